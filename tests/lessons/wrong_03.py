"""Wrong answers to the exercises of lesson 3, and what is to be said of each. n: the numbers drawn for a student."""

import numpy as np


def forward(x, h0, W_x, W_h, b):
    h = [h0]
    for x_t in x:
        h.append(np.tanh(x_t @ W_x + h[-1] @ W_h + b))
    return np.stack(h[1:]), (x, np.stack(h), W_x, W_h)


def passes(
    carried=True,
    transposed=True,
    summed=True,
    through=lambda dout, dh, h: (dout + dh) * (1 - h**2),
    before=lambda h, t: h[t],
    steps=lambda T: range(T - 1, -1, -1),
    handed=lambda dh, da, dh_next, W_h: da @ W_h.T,
    bias=lambda da: da.sum(axis=0),
    late=0,
):
    """(forward, backward), with one mistake."""

    def backward(dout, cache):
        x, h, W_x, W_h = cache
        dx, dW_x, dW_h, db = np.zeros_like(x), np.zeros_like(W_x), np.zeros_like(W_h), np.zeros_like(W_h[0])
        dh_next = np.zeros_like(h[0])
        for t in steps(len(x)):
            da = through(dout[t], dh_next * carried, h[t + 1 - late])
            dW_x, dW_h, db = dW_x * summed, dW_h * summed, db * summed
            dW_x += x[t].T @ da
            dW_h += before(h, t).T @ da
            db += bias(da)
            dx[t] = da @ W_x.T
            dh_next = handed(dout[t] + dh_next, da, dh_next, W_h if transposed else W_h.T)
        return dx, dh_next, dW_x, dW_h, db

    return forward, backward


WRONG = {
    "3.1": [
        (lambda n: lambda: n.dh_t * (1 - n.h_t**2), "w_h is missing"),
        (lambda n: lambda: n.dh_t * n.w_h, "tanh' is missing"),
        (lambda n: lambda: n.dh_t * (1 - np.tanh(n.h_t) ** 2) * n.w_h, "tanh of tanh"),
        (lambda n: lambda: n.dh_t * (1 - n.h_t) * n.w_h, "1 − h_t, where"),
        (lambda n: lambda: n.dh_t * n.h_t * n.w_h, "not h_t;"),
        (lambda n: lambda: n.dh_t * n.h_t**2 * n.w_h, "not h_t²;"),
        (lambda n: lambda: n.dh_t * (1 + n.h_t**2) * n.w_h, "not 1 . h_t²$"),
        (lambda n: lambda: -n.dh_t * (1 - n.h_t**2) * n.w_h, "the sign is wrong"),
        (lambda n: lambda: n.dh_t * (1 - n.h_t**2) * n.w_h**2, "in it twice"),
        (lambda n: lambda: n.dh_t * (1 - n.h_t**2) / n.w_h, "you have divided"),
        (lambda n: lambda: n.dh_t + n.dh_t * (1 - n.h_t**2) * n.w_h, "dh_t is added"),
        (lambda n: lambda: 0.123, "is not it"),
    ],
    "3.2": [
        (lambda n: passes(carried=False), "carry is lost"),
        (lambda n: passes(transposed=False), "not transposed"),
        (lambda n: passes(before=lambda h, t: h[t + 1]), "stands where"),
        (lambda n: passes(summed=False), "overwritten at each step"),
        (lambda n: passes(through=lambda dout, dh, h: dout + dh * (1 - h**2)), r"dout\[t\] does not go through tanh"),
        (lambda n: passes(through=lambda dout, dh, h: dout * (1 - h**2) + dh), "dh_next does not go through tanh"),
        (lambda n: passes(handed=lambda dh, da, before, W_h: dh @ W_h.T), "dh_next is dh"),
        (lambda n: passes(handed=lambda dh, da, before, W_h: da), "dh_next is da, where"),
        (lambda n: passes(handed=lambda dh, da, before, W_h: before + da @ W_h.T), "where each step replaces it"),
        (lambda n: passes(steps=range), "from the first step to the last"),
        (lambda n: passes(bias=np.sum), "one sum over everything"),
        (lambda n: passes(late=1, before=lambda h, t: h[t - 1]), r"h is h\[t\]$|h_{t−1} is h\[t\]\n"),
        (
            lambda n: passes(late=1, before=lambda h, t: h[t - 1], steps=lambda T: range(T - 1, 0, -1)),
            "and the loop stops before step 1",
        ),
        (lambda n: passes(bias=lambda da: da.sum(axis=1)), "H = 3.*ValueError.*broadcast"),
        (lambda n: (forward, lambda dout, cache: None), "must return 5 results"),
        (lambda n: (forward, 3), "must be a function"),
    ],
    "3.3": [
        (lambda n: lambda dout, dh, h, h_prev, x: dout + dh * (1 - h**2), "as it was"),
        (lambda n: lambda dout, dh, h, h_prev, x: dout * (1 - h**2) + dh, "dh_next does not"),
        (lambda n: lambda dout, dh, h, h_prev, x: dout + dh, "this is dh_t"),
        (lambda n: lambda dout, dh, h, h_prev, x: (dout + dh) * (1 - h_prev**2), "wrong step"),
        (lambda n: lambda dout, dh, h, h_prev, x: (dout + dh) * (1 - np.tanh(h) ** 2), "tanh of tanh"),
        (lambda n: lambda dout, dh, h, h_prev, x: "da", "must be numbers"),
    ],
}
