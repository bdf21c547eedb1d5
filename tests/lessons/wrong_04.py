"""Wrong answers to the exercises of lesson 4, and what is to be said of each. n: the numbers drawn for a student."""

import numpy as np


def word(n):
    return "explodes" if n.w_h * (1 - n.h**2) > 1 else "vanishes"


def other(n):
    return "vanishes" if word(n) == "explodes" else "explodes"


def jacobians(one=lambda D, W: D @ W.T, order=1, combine=np.matmul, tanh=lambda h: 1 - h**2, steps=slice(None)):
    """A product of Jacobians with one mistake."""

    def product(h, W_h):
        M = None
        for h_t in h[steps][::-order]:
            J = one(np.diag(tanh(h_t)), W_h)
            M = J if M is None else combine(M, J)
        return np.eye(len(W_h)) if M is None else M

    return product


def clipped(factor):
    """Every gradient times factor(norm of everything, gradients, most)."""

    def clip(gradients, most):
        norm = np.sqrt(sum(np.sum(g**2) for g in gradients.values()))
        return {name: g * factor(norm, gradients, most) for name, g in gradients.items()}

    return clip


WRONG = {
    "4.1": [
        (lambda n: lambda: (n.w_h**n.j, word(n)), "tanh' is missing"),
        (lambda n: lambda: ((1 - n.h**2) ** n.j, word(n)), "w_h is missing"),
        (lambda n: lambda: (n.w_h * (1 - n.h**2), word(n)), "this is one factor"),
        (lambda n: lambda: (n.w_h * (1 - n.h**2) * n.j, word(n)), "do not add up"),
        (lambda n: lambda: ((n.w_h * (1 - n.h)) ** n.j, word(n)), "1 − h²"),
        (lambda n: lambda: ((n.w_h * (1 - n.h**2)) ** (n.j + 1), word(n)), "one factor too many"),
        (lambda n: lambda: ((n.w_h * (1 - n.h**2)) ** n.j, other(n)), "the number is right"),
        (lambda n: lambda: (n.w_h * (1 - n.h**2)) ** n.j, "2 things, "),
    ],
    "4.2": [
        (lambda n: jacobians(lambda D, W: D @ W), "not transposed"),
        (lambda n: jacobians(lambda D, W: W.T), "powers of W_hᵀ"),
        (lambda n: jacobians(lambda D, W: W.T @ D), "wrong way round"),
        (lambda n: jacobians(order=-1), "order is reversed"),
        (lambda n: lambda h, W: jacobians()(h, W).T if len(h) > 1 else jacobians()(h, W), "this is Mᵀ"),
        (lambda n: jacobians(combine=np.multiply), "element by element"),
        (lambda n: jacobians(combine=np.add), "sum of the J_t"),
        (lambda n: lambda h, W: jacobians(steps=slice(len(h) > 1, None))(h, W), "J_1 is missing"),
        (lambda n: lambda h, W: np.prod(1 - h**2), "shape"),
    ],
    "4.3": [
        (lambda n: lambda H, rng: rng.standard_normal((H, H)), "grows by a factor .* explodes"),
        (lambda n: lambda H, rng: rng.uniform(-(H**-0.5), H**-0.5, (H, H)), "shrinks by a factor .* vanishes"),
        (lambda n: lambda H, rng: 1.05 * np.linalg.qr(rng.standard_normal((H, H)))[0], "length of a dh is not kept"),
        (lambda n: lambda H, rng: np.eye(H), "not drawn"),
        (lambda n: lambda H, rng: np.eye(H)[rng.permutation(H)] * rng.choice([-1, 1], H), "entries are 0"),
        (lambda n: lambda H, rng: np.zeros((H, H)), "nothing comes back"),
    ],
    "4.4": [
        (
            lambda n: lambda gs, most: {k: g * min(1, most / np.sqrt(np.sum(g**2))) for k, g in gs.items()},
            "factor of its own",
        ),
        (lambda n: lambda gs, most: {k: np.clip(g, -most, most) for k, g in gs.items()}, "number by number"),
        (lambda n: clipped(lambda norm, gs, most: most / norm), "never scales up"),
        (lambda n: clipped(lambda norm, gs, most: min(1, most / norm**2)), "root is missing"),
        (
            lambda n: clipped(lambda norm, gs, most: min(1, most / sum(np.sqrt(np.sum(g**2)) for g in gs.values()))),
            "sum of the parameters' norms",
        ),
        (lambda n: clipped(lambda norm, gs, most: 1 / norm), "1/norm"),
        (lambda n: lambda gs, most: gs, "nothing is clipped"),
        (lambda n: lambda gs, most: list(gs.values()), "must be a dict"),
    ],
}
