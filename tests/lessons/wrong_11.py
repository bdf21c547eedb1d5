"""Wrong answers to the exercises of lesson 11, and what is to be said of each. n: the numbers drawn for a student."""

import math

import numpy as np

import minibptt as mb


def step(add=lambda i, first, below, out: below + out if i else out, start=lambda i, state, after: state[i], **more):
    def stack_step(cells, x, state):
        after, first = [], x
        for i, cell in enumerate(cells):
            below = first if more.get("flat") else x
            out, h = cell.step(below, start(i, state, after))
            x = add(i, first, below, out)
            after.append(x if more.get("sum") else h)
        return x, tuple(after[:: -1 if more.get("back") else 1][: more.get("most", 9)])

    return stack_step


def run(up=lambda drop, h: drop(h), state=lambda drop, h: h, out=lambda drop, y: y, x_in=lambda drop, x: x):
    def mended(lower, upper, drop, x):
        h, g, outputs = lower.zero_state(x.shape[1]), upper.zero_state(x.shape[1]), []
        for x_t in x:
            y, h = lower.step(x_in(drop, x_t), h)
            h = state(drop, h)
            y, g = upper.step(up(drop, y), g)
            outputs.append(out(drop, y))
        return mb.stack(outputs)

    return mended


def broken(lower, upper, drop, x):
    h, g, outputs = lower.zero_state(x.shape[1]), upper.zero_state(x.shape[1]), []
    for x_t in x:
        h = drop(lower.step(x_t, h)[1])
        out, g = upper.step(h, g)
        outputs.append(out)
    return mb.stack(outputs)


def one_mask(lower, upper, drop, x):
    mask = drop(np.ones((x.shape[1], lower.H)))
    return run(up=lambda drop, h: h * mask)(lower, upper, drop, x)


def same(drop, h):
    return h


WRONG = {
    "11.1": [
        (lambda n: lambda: n.L * (n.j + 1), "number of boxes"),
        (lambda n: lambda: math.comb(n.j + n.L, n.L), "one layer too many"),
        (lambda n: lambda: math.comb(n.j + n.L - 2, n.L - 2), "one layer too few"),
        (lambda n: lambda: math.comb(n.j + n.L - 2, n.L - 1), "one step too few"),
        (lambda n: lambda: 2 ** (n.j + n.L - 1), "must go up"),
        (lambda n: lambda: n.L**n.j, "never comes down"),
        (lambda n: lambda: (n.j + 1) ** (n.L - 1), "in layer 3 before"),
        (lambda n: lambda: n.j + n.L - 1, "length of a path"),
        (lambda n: lambda: "ten", "numbers"),
    ],
    "11.2": [
        (lambda n: step(add=lambda i, first, below, out: out), "residual connections are missing"),
        (lambda n: step(add=lambda i, first, below, out: below + out), "the first layer has"),
        (lambda n: step(add=lambda i, first, below, out: below + out if i == 2 else out), "only the last layer"),
        (lambda n: step(add=lambda i, first, below, out: first + out if i else out), "what is added is x"),
        (lambda n: step(flat=True), "every layer reads x"),
        (lambda n: step(start=lambda i, state, after: after[i - 1] if i else state[0]), "layer below"),
        (lambda n: step(start=lambda i, state, after: state[0]), "first layer's state"),
        (lambda n: step(sum=True), "what goes into the state is the sum"),
        (lambda n: step(back=True), "wrong order"),
        (lambda n: step(most=2), "one entry for each layer"),
        (lambda n: lambda cells, x, state: x, "2 things, "),
    ],
    "11.3": [
        (lambda n: broken, "still dropped"),
        (lambda n: run(up=same, state=lambda drop, h: drop(h)), "the other way round"),
        (lambda n: run(up=same), "nothing is dropped"),
        (lambda n: run(up=same, x_in=lambda drop, x: drop(x)), "the inputs are dropped"),
        (lambda n: run(up=same, out=lambda drop, y: drop(y)), "outputs of the upper layer"),
        (lambda n: run(x_in=lambda drop, x: drop(x)), "inputs are dropped too"),
        (lambda n: run(out=lambda drop, y: drop(y)), "upper layer are dropped too"),
        (lambda n: one_mask, "one mask"),
        (lambda n: lambda lower, upper, drop, x: run()(lower, upper, drop, x)[:-1], "shape"),
    ],
}
