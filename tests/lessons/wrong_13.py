"""Wrong answers to the exercises of lesson 13, and what is to be said of each. n: the numbers drawn for a student."""

import numpy as np

import minibptt as mb


def k_of(a, share=0.9):
    return int(np.ceil(np.log(1 - share) / np.log(a)))


def greedy(
    again=False, forget=False, last=False, fixed=False, least=False, with_start=False, late=0, at=-1, stuck=False
):
    def one(model, start, length):
        read, state, written = start[-1:] if last else start, None, []
        if again:
            _, state = model(start.reshape(-1, 1), None)
            read = start[-1:]
        for _ in range(length + late):
            logits, after = model(np.reshape(read, (-1, 1)), state)
            state = state if stuck and state is not None else after
            scores = logits.value[at, 0]
            written.append(int((-scores if least else scores).argmax()))
            read = start[-1:] if fixed else written[-1:]
            state = None if forget else state
        return [*(start if with_start else []), *written[late:]]

    return one


def loss(carry=True, weigh=True, tail=True, shift=1, scale=1.0, over=None, by=None):
    def mean_loss(model, ids, k):
        losses, sizes, state = [], [], None
        for a in range(0, len(ids) - 1, k):
            size = len(ids[a + 1 : a + 1 + k])
            if size == k or tail:
                logits, after = model(ids[a : a + size].reshape(-1, 1), state)
                y = ids[a + shift : a + shift + size].reshape(-1, 1)
                losses.append(mb.cross_entropy(logits, y).item())
                sizes.append(size)
                state = after if carry else None
        weights = np.array(sizes) if weigh else np.ones(len(sizes))
        if by is not None:
            return by(k) * sum(losses) / (len(ids) - 1)
        return scale * np.dot(losses, weights) / (weights.sum() if over is None else over(ids))

    return mean_loss


WRONG = {
    "13.1": [
        (lambda n: lambda: k_of(n.a) - 1, "one too few"),
        (lambda n: lambda: k_of(n.a) + 1, "one too many"),
        (lambda n: lambda: np.log(0.1) / np.log(n.a), "not rounded"),
        (lambda n: lambda: k_of(n.a, 0.99), "99 %"),
        (lambda n: lambda: -k_of(n.a), "the sign"),
        (lambda n: lambda: None, "return missing"),
        (lambda n: lambda: 1000, "1000 is not it"),
    ],
    "13.2": [
        (lambda n: greedy(forget=True), "zero state"),
        (lambda n: greedy(last=True), "only the last id"),
        (lambda n: greedy(again=True), "read twice"),
        (lambda n: greedy(fixed=True), "fed at each step"),
        (lambda n: greedy(stuck=True), "stays what it was"),
        (lambda n: greedy(least=True), "least likely"),
        (lambda n: greedy(with_start=True), "start is in it"),
        (lambda n: greedy(late=1), "one step late"),
        (lambda n: greedy(at=0), "first step's scores"),
        (lambda n: lambda model, start, length: greedy()(model, start, 5), "yours are 5"),
    ],
    "13.3": [
        (lambda n: loss(carry=False, weigh=False), "both bugs"),
        (lambda n: loss(carry=False), "zero state"),
        (lambda n: loss(weigh=False), "mean of means"),
        (lambda n: loss(by=lambda k: 1), "are added up"),
        (lambda n: loss(by=lambda k: k), "by its own length"),
        (lambda n: loss(tail=False), "is dropped"),
        (lambda n: loss(shift=0), "targets are the inputs"),
        (lambda n: loss(over=lambda ids: 1), "the sum"),
        (lambda n: loss(over=len), "one target less"),
        (lambda n: loss(scale=1 / np.log(2)), "in bits"),
    ],
}
