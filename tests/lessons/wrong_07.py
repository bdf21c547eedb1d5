"""Wrong answers to the exercises of lesson 7, and what is to be said of each. n: the numbers drawn for a student."""

import numpy as np


def least(C, first=0):
    """The least K from which on all windows have the sign of the whole."""
    kept = np.cumsum(C) / np.sum(C)
    return 1 + max(K for K in range(1, 8) if kept[K - 1] <= 0) + first


def share(C, a=0, b=3):
    return np.sum(C[a:b]) / np.sum(C)


def draw(weight, lag_0=1.0, stop=True):
    """An estimate in which each open boundary multiplies by weight(p)."""

    def estimate(C, closed, p):
        total, w = 0.0, lag_0 if not callable(lag_0) else lag_0(p)
        for j, C_j in enumerate(C):
            if j:
                w = w * weight(p) if not closed[j - 1] else w * (0.0 if stop else 1.0)
            total += w * C_j
        return total

    return estimate


def one_lag_lost(C, closed, p):
    w = np.append(1.0, np.cumprod(np.where(closed, 1.0, 1 / (1 - p))))
    return np.sum(C * w * np.append(True, ~closed))


def scaled_once(C, closed, p):
    w = np.append(1.0, np.cumprod(~closed) / (1 - p))
    return np.sum(C * w)


def reopened(C, closed, p):
    return C[0] + np.sum(C[1:][~closed]) / (1 - p)


def own_power(C, closed, p):
    return C[0] + sum(C[j + 1] / (1 - p) ** (j + 1) for j in range(len(closed)) if not closed[j])


def chunk(three=3, eight=8, reduce=np.mean):
    def best_alone(k, best):
        steps = [best["both" if j > eight else "lag 3" if j > three else "nothing"] for j in range(1, k + 1)]
        return reduce(steps)

    return best_alone


WRONG = {
    "7.1": [
        (lambda n: lambda: (-share(n.C), least(n.C)), "sign is lost"),
        (lambda n: lambda: (sum(n.C[:3]), least(n.C)), "divides it by the full"),
        (lambda n: lambda: (share(n.C, 3, 4), least(n.C)), "lag 3 alone"),
        (lambda n: lambda: (sum(n.C[:3]) / np.abs(n.C).sum(), least(n.C)), "norms"),
        (lambda n: lambda: (share(n.C, 0, 4), least(n.C)), "has 4 steps"),
        (lambda n: lambda: (share(n.C, 1, 4), least(n.C)), "leaves out lag 0"),
        (lambda n: lambda: (share(n.C, 5, 8), least(n.C)), "farthest back"),
        (lambda n: lambda: (share(n.C), least(n.C, -1)), "this is the lag"),
        (lambda n: lambda: (share(n.C), 3), "0 or negative still"),
        (lambda n: lambda: (share(n.C), least(n.C, 1)), "fewer will do"),
        (lambda n: lambda: share(n.C), "2 things, "),
    ],
    "7.2": [
        (lambda n: draw(lambda p: 1.0), "nothing is scaled"),
        (lambda n: draw(lambda p: 1 / p), "1/p"),
        (lambda n: draw(lambda p: 1 - p), "divide by it"),
        (lambda n: scaled_once, "scaled once"),
        (lambda n: draw(lambda p: 1 / (1 - p), lag_0=lambda p: 1 / (1 - p)), "lag 0 is scaled"),
        (lambda n: draw(lambda p: 1 / (1 - p), stop=False), "forgot to cut"),
        (lambda n: one_lag_lost, "one lag only"),
        (lambda n: reopened, "whatever was drawn there"),
        (lambda n: own_power, "no power of its own number"),
        (lambda n: lambda C, closed, p: draw(lambda p: 1 / (1 - p))(C, ~closed, p), "the other way round"),
        (lambda n: draw(lambda p: 1 / (1 - p), lag_0=0.0), "differs|is not it"),
        (lambda n: lambda C, closed, p: draw(lambda p: 1 / (1 - p))(C, closed, p) - C[0], "lag 0 is missing"),
        (lambda n: lambda C, closed, p: C.sum(), "full BPTT"),
        (lambda n: lambda C, closed, p: draw(lambda p: 1 / (1 - p))(C[::-1], closed, p), "wrong way round"),
        (lambda n: lambda C, closed, p: None, "return missing"),
    ],
    "7.3": [
        (
            lambda n: lambda k, best: best["both" if k > 8 else "lag 3" if k > 3 else "nothing"],
            "last step of the chunk",
        ),
        (lambda n: lambda k, best: best["both"], "both lags at every step"),
        (lambda n: lambda k, best: best["nothing"], "knowing nothing at every step"),
        (lambda n: chunk(2, 7), "too early"),
        (lambda n: chunk(4, 9), "too late"),
        (lambda n: chunk(3, 99), "lag 8 is missing"),
        (
            lambda n: lambda k, best: (3 * best["nothing"] + 5 * best["lag 3"] + (k - 8) * best["both"]) / k,
            "never negative",
        ),
        (lambda n: chunk(reduce=sum), "a sum over the chunk"),
    ],
}
