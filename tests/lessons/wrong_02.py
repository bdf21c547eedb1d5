"""Wrong answers to the exercises of lesson 2, and what is to be said of each. n: the numbers drawn for a student."""

import numpy as np

import minibptt as mb


def chunks(number=None, drop_tail=False, reset=False, first_short=False):
    """∂L/∂w_h in chunks, with one mistake."""

    def truncated(h_prev, w_h, k):
        h_prev = np.array(h_prev)
        T = len(h_prev)
        starts = list(range(T % k if first_short else 0, T, k))
        starts = starts if not first_short or not starts[0] else [0, *starts]
        if number is not None:
            starts = [part[0] for part in np.array_split(np.arange(T), number(k))]
        if drop_tail:
            h_prev, starts = h_prev[: T // k * k], [s for s in starts if s + k <= T]
        total = 0.0
        for start, end in zip(starts, [*starts[1:], len(h_prev)]):
            δ = 0.0
            for t in range(end - 1, start - 1, -1):
                δ = 1 + w_h * δ
                total += δ * (0.0 if reset and t == start else h_prev[t])
        return total

    return truncated


def loop(before=lambda h, t: h, after=lambda out: out):
    def cut_loop(cell, x):
        h, outputs = cell.zero_state(x.shape[1]), []
        for t, x_t in enumerate(x):
            out, h = cell.step(x_t, before(h, t))
            outputs.append(after(out))
        return mb.stack(outputs)

    return cut_loop


WRONG = {
    "2.1": [
        (lambda n: lambda: n.d, "as if the state had been cut"),
        (lambda n: lambda: [n.d[2] * n.w_h**2, n.d[2] * n.w_h, n.d[2]], "the last loss only"),
        (lambda n: lambda: [n.d[0], n.d[1] + n.w_h * n.d[0], 99], "is not it|differs"),
        (
            lambda n: lambda: [n.d[2], n.d[1] + n.w_h * n.d[2], n.d[0] + n.w_h * (n.d[1] + n.w_h * n.d[2])],
            "wrong order",
        ),
        (lambda n: lambda: [n.d[0] + n.w_h * n.d[1], n.d[1] + n.w_h * n.d[2], n.d[2]], "whole adjoint"),
        (
            lambda n: lambda: [n.d[0], n.d[1] + n.w_h * n.d[0], n.d[2] + n.w_h * (n.d[1] + n.w_h * n.d[0])],
            "runs forward",
        ),
        (lambda n: lambda: None, "return missing"),
        (lambda n: lambda: [1, 2], "shape"),
    ],
    "2.2": [
        (lambda n: chunks(number=lambda k: 1), "forgot to cut"),
        (lambda n: chunks(number=lambda k: k), "chunks of"),
        (lambda n: chunks(number=lambda k: 7), "cuts before every step"),
        (lambda n: chunks(drop_tail=True), "tail is dropped"),
        (lambda n: chunks(reset=True), "this is a reset"),
        (lambda n: chunks(first_short=True), "short chunk"),
        (lambda n: lambda h_prev, w_h, k: chunks()(h_prev, w_h, k) / 7, "divided by the number of steps"),
        (lambda n: lambda h_prev, w_h, k: h_prev, "one number"),
    ],
    "2.3": [
        (lambda n: loop(), "forgot to cut"),
        (lambda n: loop(after=mb.cut), "still zero"),
        (lambda n: loop(before=lambda h, t: mb.zeros((1, 1), dtype=np.float64)), "after a reset"),
        (lambda n: loop(before=lambda h, t: mb.cut(h) if t == 1 else h), "only the state after the first"),
        (lambda n: lambda cell, x: x, "must return a tensor"),
    ],
}
