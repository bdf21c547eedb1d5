"""Wrong answers to the exercises of lesson 9, and what is to be said of each. n: the numbers drawn for a student."""

import numpy as np


def mean(n, over=None, squared=True):
    total = sum(T * (e**2 if squared else e) for T, e in zip(n.lengths, n.e))
    return total / (over or sum(n.lengths))


def choose(out, new):
    """A padded step of given choices, functions of (new, h, real (B, 1))."""

    def padded_step(step, x_t, h, real):
        moved, here = step(x_t, h), real[:, None]
        return out(moved, h, here), new(moved, h, here)

    return padded_step


def good_out(moved, h, here):
    return np.where(here, moved, 0)


def good_new(moved, h, here):
    return np.where(here, moved, h)


def clean(then):
    """With the padding set to 0 first."""
    return lambda step, x_t, h, real: then(step, np.nan_to_num(x_t), h, real)


def layout(x_of=None, y_of=None, tail=True, first=False):
    """The windows, with one mistake. x_of, y_of: (tokens, B, L) → (L, B)."""
    x_of = x_of or (lambda s, B, L: s[: B * L].reshape(B, L).T)
    y_of = y_of or (lambda s, B, L: s[1 : B * L + 1].reshape(B, L).T)

    def windows(tokens, B, k):
        L = (len(tokens) - 1) // B
        x, y = x_of(tokens, B, L), y_of(tokens, B, L)
        found = [(x[a : a + k], y[a : a + k]) for a in range(0, L if tail else L // k * k, k)]
        return [(a.T, b.T) for a, b in found] if first else found

    return windows


def one_after_the_other(tokens, B, k):
    L = (len(tokens) - 1) // B
    spans = [(a, min(a + k, L)) for a in range(0, L, k)]
    return [tuple(tokens[a * B + j : b * B + j].reshape(B, b - a).T for j in (0, 1)) for a, b in spans]


def rolled(tokens, B, k):
    return [(x, np.roll(x, -1, axis=0)) for x, _ in layout()(tokens, B, k)]


def from_rows(of):
    """x and y both cut from the rows, of(N, B) tokens long."""

    def windows(tokens, B, k):
        rows = tokens[: of(len(tokens), B) * B].reshape(B, -1)
        x, y = rows[:, :-1].T, rows[:, 1:].T
        return [(x[a : a + k], y[a : a + k]) for a in range(0, len(x), k)]

    return windows


WRONG = {
    "9.1": [
        (lambda n: lambda: np.mean(np.square(n.e)), "mean of the rows' means"),
        (lambda n: lambda: mean(n, 18), "all 6·3 places"),
        (lambda n: lambda: mean(n, 1), "this is the sum"),
        (lambda n: lambda: mean(n, 3), "number of rows"),
        (lambda n: lambda: mean(n, squared=False), "not squared"),
        (lambda n: lambda: mean(n, squared=False) ** 2, "squared after the mean"),
        (lambda n: lambda: mean(n) ** 0.5, "root is taken"),
        (lambda n: lambda: mean(n, 6), "the 6 steps"),
    ],
    "9.2": [
        (lambda n: choose(lambda m, h, r: m * r, lambda m, h, r: m * r), "becomes 0"),
        (lambda n: choose(good_out, lambda m, h, r: m * r + h * ~r), "0 · NaN"),
        (lambda n: choose(good_out, lambda m, h, r: m), "bias and W_h"),
        (lambda n: choose(good_out, lambda m, h, r: h), "nothing moves"),
        (lambda n: choose(good_out, lambda m, h, r: np.where(r, h, m)), "other way round"),
        (lambda n: choose(good_new, good_new), "is its state; it must be 0"),
        (lambda n: clean(choose(lambda m, h, r: m, good_new)), "new state in all rows"),
        (lambda n: choose(lambda m, h, r: 0 * h, good_new), "0 in all rows"),
        (lambda n: choose(lambda m, h, r: None, good_new), "return missing"),
        (lambda n: lambda step, x_t, h, real: h, "2 things, "),
    ],
    "9.3": [
        (lambda n: layout(lambda s, B, L: s[: B * L].reshape(L, B)), "side by side"),
        (lambda n: one_after_the_other, "another place in the text"),
        (lambda n: layout(tail=False), "tail is dropped"),
        (lambda n: layout(first=True, tail=True), "rows first"),
        (lambda n: layout(y_of=lambda s, B, L: s[: B * L].reshape(B, L).T), "y is x itself"),
        (lambda n: rolled, "rolled inside the window"),
        (
            lambda n: layout(y_of=lambda s, B, L: np.roll(s[: B * L].reshape(B, L), -1, axis=1).T),
            "last target of a row",
        ),
        (lambda n: layout(y_of=lambda s, B, L: np.roll(s, 1)[: B * L].reshape(B, L).T), "one token back"),
        (lambda n: from_rows(lambda N, B: (N - 1) // B), "starts no step"),
        (lambda n: from_rows(lambda N, B: N // B), "a token late"),
        (lambda n: lambda tokens, B, k: tokens, "a list of pairs"),
    ],
}
