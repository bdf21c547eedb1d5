"""Wrong answers to the exercises of lesson 6, and what is to be said of each. n: the numbers drawn for a student."""

import numpy as np

import minibptt as mb


def kept(n, k1, k2):
    return lambda: mb.tbptt(k1, k2).describe(n.T).steps_kept


def right(n):
    return np.array(mb.tbptt(n.k1, n.k2).describe(n.T).steps_kept)


def ends(n):
    return np.array([min(n.T, -(-t // n.k1) * n.k1) for t in range(1, n.T + 1)])


def mask(ends=lambda T, k1: [*range(k1, T, k1), T], start=lambda e, k2: max(0, e - k2), past=lambda e: e, row=-1):
    """The mask of the last loss alone, with one mistake."""

    def last_loss_mask(T, k1, k2):
        w = np.zeros((T, T))
        for e in ends(T, k1):
            w[e + row, start(e, k2) : past(e)] = 1
        return w

    return last_loss_mask


def every_loss_of_the_window(T, k1, k2):
    w = np.zeros((T, T))
    for e in [*range(k1, T, k1), T]:
        start = max(0, e - k2)
        w[start:e, start:e] += np.tril(np.ones((e - start, e - start)))
    return w


def loop(chunks=lambda T, k: [range(s, min(s + k, T)) for s in range(0, T, k)], count="all", between=mb.cut):
    """The gradient in chunks, with one mistake. count: of what the losses are the mean."""

    def chunked(model, x, y, k):
        state, total = model.zero_state(x.shape[1]), []
        parts = chunks(len(x), k)
        for steps in parts:
            with mb.Tape() as tape:
                out, state = model(x[list(steps)], between(state))
                by = {"all": y.size, "one": 1, "steps": len(x)}.get(count)
                loss = mb.mse(out, y[list(steps)], count=by)
            weight = {"own": 1 / len(parts), "1/k": 1 / k, "k/T": k / len(x), "1/T": 1 / len(x)}.get(count, 1)
            total.append(tape.gradient(loss, model) * weight)
        return sum(total[1:], total[0])

    return chunked


def split(T, k):
    return [part for part in np.array_split(np.arange(T), k) if len(part)]


def whole(T, k):
    return [range(s, s + k) for s in range(0, T - k + 1, k)] or [range(T)]


def shares(answer):
    """answer(kept shares over all offsets, share, k)."""

    def judged(share, k):
        T = len(share)
        return answer(np.array([(mb.tbptt(k, offset=o).coverage(T) * share).sum() for o in range(k)]), share, k)

    return judged


WRONG = {
    "6.1": [
        (lambda n: kept(n, 1, n.k2), "a window of its own"),
        (lambda n: kept(n, n.k1, n.k1), "chunks of k1"),
        (lambda n: kept(n, n.k2, n.k2), "chunks of k2"),
        (lambda n: kept(n, n.k2, n.k1), "swapped"),
        (lambda n: lambda: right(n) - 1, "own step counts"),
        (lambda n: lambda: [n.k2] * n.T, "by the last loss of a window only"),
        (
            lambda n: lambda: [t - max(0, -(-t // n.k1) * n.k1 - n.k2) for t in range(1, n.T + 1)],
            "comes at step T",
        ),
        (lambda n: lambda: range(1, n.T + 1), "nothing is cut"),
        (lambda n: lambda: right(n) + ends(n) - np.arange(1, n.T + 1), "not up to e"),
        (lambda n: lambda: np.arange(1, n.T + 1) - np.maximum(1, ends(n) - n.k2) + 1, "one step too long"),
        (lambda n: lambda: [n.k2], "shape"),
    ],
    "6.2": [
        (lambda n: lambda T, k1, k2: mb.tbptt(k1, k2).coverage(T), "owns all losses since"),
        (lambda n: every_loss_of_the_window, "counts more than once"),
        (lambda n: lambda T, k1, k2: mask()(T, k2, k1), "swapped: k1"),
        (lambda n: lambda T, k1, k2: mask()(T, k1, k2).T, "t and s are swapped"),
        (lambda n: mask(ends=lambda T, k1: range(k1, T + 1, k1)), "tail is dropped"),
        (lambda n: mask(ends=lambda T, k1: [part[-1] + 1 for part in np.array_split(np.arange(T), k1)]), "3 updates"),
        (lambda n: mask(start=lambda e, k2: max(0, e - k2 - 1)), "too long"),
        (lambda n: mask(start=lambda e, k2: max(0, e - k2 + 1)), "too short"),
        (lambda n: mask(past=lambda t: t - 1), "own step is missing"),
        (lambda n: mask(start=lambda e, k2: 0), "reaches back to step 1"),
        (lambda n: mask(row=-2), "too high up"),
        (lambda n: mask(start=lambda e, k2: max(1, e - k2 + 1)), "first step of each window is left out"),
        (lambda n: mask(start=lambda e, k2: e - k2), "counts that from the end"),
        (lambda n: lambda T, k1, k2: mask()(T, k1, k1), "these windows go back k1 steps"),
        (
            lambda n: lambda T, k1, k2: mask(start=lambda e, k2: (max(e - k2, 0), e // k1 * k1)[e % k1 > 0])(T, k1, k2),
            "T goes back",
        ),
        (lambda n: mask(past=lambda e: None), "s > t"),
        (lambda n: lambda T, k1, k2: np.ones(T), "shape"),
    ],
    "6.3": [
        (lambda n: loop(count="own"), "mean of the chunks' means"),
        (lambda n: loop(split), "still 4 chunks"),
        (lambda n: loop(split, count="own"), "as it was"),
        (lambda n: loop(whole), "fill no chunk of 4, and count too$"),
        (lambda n: loop(whole, count="own"), "divided by its own number"),
        (lambda n: loop(between=mb.reset), "state is reset"),
        (lambda n: loop(between=lambda state: state), "forgot to cut the state"),
        (lambda n: loop(lambda T, k: [range(T)]), "full BPTT"),
        (lambda n: loop(count="1/k"), "chunks are right now"),
        (lambda n: loop(count="k/T"), "each chunk counts 4 of 11 steps"),
        (lambda n: loop(count="1/T"), "as one step of T"),
        (lambda n: loop(lambda T, k: np.array_split(np.arange(T), T // k)), "these are 2 chunks"),
        (lambda n: loop(count="one"), "the sum over all targets"),
        (lambda n: loop(count="steps"), "divides by the steps"),
        (lambda n: lambda model, x, y, k: 0.0, "must be a dict"),
    ],
    "6.4": [
        (lambda n: shares(lambda kept, share, k: kept[0]), "one offset alone"),
        (lambda n: shares(lambda kept, share, k: kept[1:].mean()), "offset 0 is left out"),
        (lambda n: shares(lambda kept, share, k: kept.sum()), "the sum over the offsets"),
        (lambda n: shares(lambda kept, share, k: kept.max()), "the best offset"),
        (
            lambda n: shares(lambda kept, share, k: sum(np.diagonal(share, -lag).sum() for lag in range(k))),
            "with k1 = 1 keep",
        ),
        (lambda n: shares(lambda kept, share, k: 1 - kept.mean()), "what is lost"),
        (lambda n: shares(lambda kept, share, k: share.sum()), "nothing is cut"),
        (lambda n: lambda share, k: shares(lambda kept, share, k: kept.mean())(abs(share), k), "abs is not taken"),
        (lambda n: lambda share, k: shares(lambda kept, share, k: kept.mean())(np.ones_like(share), k), "counts pairs"),
        (
            lambda n: lambda share, k: np.mean([(share @ mb.tbptt(k, offset=o).coverage(11)).sum() for o in range(k)]),
            "entry by entry",
        ),
        (lambda n: shares(lambda kept, share, k: kept), "one number"),
    ],
}
