"""Lesson 4, vanishing and exploding: Jacobians come from the tape, seed by seed. Read after ../answers.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...cells import RNNCell
from ...clipping import clip_by_global_norm
from ...gradients import Gradients
from ...parameters import parameter
from ...sequence import unroll
from ...tape import Tape
from ..answers import array, call, chosen, mapping, number, parts, same
from ..registry import NotYet, Numbers, exercise


def _cell(W_h: np.ndarray, nonlinearity: str = "tanh") -> RNNCell:
    """h_t = φ(x_t + h_{t−1} @ W_h)."""
    H = len(W_h)
    cell = RNNCell(H, H, nonlinearity, rng=0, dtype=np.float64)
    cell.W_x, cell.W_h = parameter(np.eye(H), "W_x"), parameter(W_h.astype(np.float64), "W_h")
    cell.b = parameter(np.zeros(H), "b")
    return cell


def _jacobian(cell: RNNCell, x: np.ndarray, h0: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(states h (T, H), M with dh_0 = dh_T @ M), from x (T, H): H rows alike, each with a seed of its own."""
    H = len(h0)
    with Tape() as tape:
        start = tape.watch(np.tile(h0, (H, 1)))
        out, h_T = unroll(cell, np.repeat(x[:, None], H, axis=1), start)
    return out.value[:, 0], tape.gradient(h_T, start, seed=np.eye(H))


def _draw_unit(rng: np.random.Generator) -> Numbers:
    w, h = [(2.0, 0.6), (1.5, 0.8), (3.0, 0.8), (2.0, 0.8), (3.0, 0.6), (1.5, 0.6)][int(rng.integers(6))]
    return {"w_h": w, "h": h, "j": int(rng.integers(3, 6))}


@exercise(
    "4.1",
    "arrives",
    numbers=_draw_unit,
    hints=["One factor is w_h·(1 − h²).", "j steps back are j factors, all alike: a power."],
)
def _(arrives: Any, n: Numbers) -> None:
    """Predict what is left after j steps."""
    found = parts(call(arrives), "arrives", "the number", '"vanishes" or "explodes"')
    w, h, j = n["w_h"], n["h"], n["j"]
    x = np.full((j, 1), np.arctanh(h) - w * h)  # what holds the state at h
    right = _jacobian(_cell(np.array([[w]])), x, np.array([h]))[1].item()
    one = right ** (1 / j)
    mistakes = {
        "tanh' is missing: each step multiplies by 1 − h² too": w**j,
        "w_h is missing: each step multiplies by it too": (1 - h**2) ** j,
        "this is one factor; j steps back there are j of them": one,
        "factors of many steps multiply; they do not add up": one * j,
        "tanh' is 1 − h², where you have 1 − h": (w * (1 - h)) ** j,
        "tanh of tanh: h is tanh a already, so tanh' a is 1 − h²": (w * (1 - np.tanh(h) ** 2)) ** j,
        "one factor too many: from T to T − j there are j steps": one ** (j + 1),
        "one factor too few: from T to T − j there are j steps": one ** (j - 1),
        "tanh' counts once a step, j times in all": w**j * (1 - h**2),
        "w_h counts once a step, j times in all": w * (1 - h**2) ** j,
    }
    says = "What is one factor? check.hint('4.1')"
    same(number(found[0], "the first answer"), right, mistakes, otherwise=says, tolerance=1e-4)  # five digits will do
    words = ["vanishes", "explodes"]
    is_so, is_not = words if one < 1 else words[::-1]
    other = "less" if one < 1 else "more"
    says = f"the number is right; each factor is {other} than 1, so what happens as j grows?"
    chosen(found[1], is_so, {is_not: says}, "the second answer")


@exercise(
    "4.2",
    "product",
    points=2,
    hints=[
        "Start from np.eye(H), and multiply by J_T first: M = M @ J_t for t = T, T − 1, …, 1.",
        "J_t = np.diag(1 - h_t**2) @ W_h.T: dh_t goes through tanh first, then through W_hᵀ.",
    ],
)
def _(product: Any) -> str:
    """Write the product of the Jacobians."""
    rng = np.random.default_rng(42)
    for T, H in ((1, 3), (5, 3), (4, 2)):
        W, x = rng.standard_normal((H, H)), rng.standard_normal((T, H))
        h, right = _jacobian(_cell(W), x, rng.standard_normal(H) / 2)
        D = [np.diag(1 - one**2) for one in h]
        yours = array(call(product, h, W), "M", (H, H))
        mistakes = {
            "W_h is not transposed: dh_t @ J_t goes back, and going back takes W_hᵀ": _times([d @ W for d in D]),
            "tanh' is missing: these are powers of W_hᵀ, as without a nonlinearity": _times([W.T] * T),
            "in each J_t the factors are the wrong way round: dh_t meets tanh' first, then W_hᵀ": _times(
                [W.T @ d for d in D]
            ),
            "the order is reversed: dh_T meets J_T first, so J_T stands on the left": _times(
                [d @ W.T for d in D][::-1]
            ),
            "this is Mᵀ, which carries small changes of h_0 forward as column vectors": right.T,
            "this is multiplied element by element: matrices take @": np.prod([d @ W.T for d in D], axis=0),
            "this is the sum of the J_t; steps in a row multiply": np.sum([d @ W.T for d in D], axis=0),
            "tanh of tanh: h_t is tanh a_t already, so tanh' is 1 − h_t²": _times(
                [np.diag(1 - np.tanh(one) ** 2) @ W.T for one in h]
            ),
            "J_T is missing: T steps are T factors": _times([d @ W.T for d in D[:-1]], H),
            "J_1 is missing: T steps are T factors": _times([d @ W.T for d in D[1:]], H),
        }
        try:
            same(yours, right, mistakes if T > 1 else dict(list(mistakes.items())[:3]), "M", "check.hint('4.2')")
        except NotYet as wrong:
            raise NotYet(f"with T = {T}, H = {H}: {wrong}") from None
    return "(Three sizes, each against the adjoints of a tape.)"


def _times(factors: list[np.ndarray], H: int = 0) -> np.ndarray:
    """J_T @ … @ J_1 from [J_1, …, J_T]."""
    M = np.eye(len(factors[0]) if factors else H)
    for J in factors[::-1]:
        M = M @ J
    return M


@exercise(
    "4.3",
    "initial",
    hints=[
        "‖v @ W‖ = ‖v‖ for every v means W @ Wᵀ = 1: an orthogonal matrix.",
        "np.linalg.qr takes any matrix apart into an orthogonal one and a triangular one.",
    ],
)
def _(initial: Any) -> str:
    """Write an initialisation that keeps the length of every adjoint."""
    for H in (6, 40, 3):
        W, again, other = (
            array(call(initial, H, np.random.default_rng(s)), f"initial({H}, rng)", (H, H)) for s in (1, 1, 2)
        )
        dh = _linear_lengths(W)
        if not dh[1].any():
            raise NotYet(f"with H = {H} nothing comes back at all: W_h gives 0")
        far = dh[50].mean()
        if not 1e-3 < far < 1e3:
            what, so = ("shrinks", "vanishes") if far < 1 else ("grows", "explodes")
            raise NotYet(f"with H = {H} a dh {what} by a factor of {far:.1e} in 50 steps: the gradient {so}")
        if np.abs(dh - 1).max() > 1e-6:
            raise NotYet(
                f"with H = {H} it neither vanishes nor explodes at once, but the length of a dh is not kept: after one "
                f"step some have {dh[1].min():.2g} times their length and some {dh[1].max():.2g} times"
            )
        if not (np.array_equal(W, again) and not np.array_equal(W, other)):
            raise NotYet("lengths are kept, but the matrix is not drawn from `rng`: another rng must give another one")
        if (np.abs(W) > 1e-12).sum() < H * H / 2:
            raise NotYet("lengths are kept, but most entries are 0: most units do not talk to each other")
    return "(50 steps back in a linear network of 3, 6 and 40 units.)"


def _linear_lengths(W: np.ndarray, T: int = 51) -> np.ndarray:
    """‖dh_{T−j}‖, (T, rows), of a linear network, from random directions of length 1 at step T."""
    H = len(W)
    seed = np.random.default_rng(43).standard_normal((8, H))
    with Tape() as tape:
        out, _ = unroll(_cell(W, "linear"), np.zeros((T, 8, H)), engine="tape")
        last = out[-1]
    dh = tape.adjoints(last, seed / np.linalg.norm(seed, axis=1, keepdims=True))["h"]
    return np.linalg.norm(dh[::-1], axis=2)


@exercise(
    "4.4",
    "clip",
    hints=["How many factors does broken_clip have?", "The norm of everything: √ of the sum of all squares."],
)
def _(clip: Any) -> None:
    """Find the bug: clipping that turns the gradient."""
    rng = np.random.default_rng(44)
    large = {"W_x": rng.standard_normal((2, 3)), "W_h": 5 * rng.standard_normal((3, 3)), "b": rng.standard_normal(3)}
    small = {name: g / 100 for name, g in large.items()}
    for gradients, most in ((large, 2.0), (small, 2.0)):
        kept = {name: g.copy() for name, g in gradients.items()}
        found = mapping(call(clip, kept, most), ("W_x", "W_h", "b"), "what clip returns")
        if any(not np.array_equal(kept[name], g) for name, g in gradients.items()):
            raise NotYet("clip changes the arrays that it was given; return new ones")
        yours = np.concatenate([array(found[name], name, gradients[name].shape).ravel() for name in gradients])
        right = _flat(clip_by_global_norm(Gradients(gradients), most))
        flat, norms = _flat(gradients), {name: float(np.linalg.norm(g)) for name, g in gradients.items()}
        if gradients is small and np.allclose(yours, flat * most / np.linalg.norm(flat)):
            raise NotYet("a gradient that is short enough is made longer: clipping never scales up")
        same(
            yours,
            right,
            {
                "each parameter has a factor of its own: that turns the direction": _flat(
                    {name: g * min(1.0, most / norms[name]) for name, g in gradients.items()}
                ),
                "nothing is clipped": flat,
                "this clips number by number, to −most … most: that turns the direction": np.clip(flat, -most, most),
                "the norm of everything is not the sum of the parameters' norms": flat * most / sum(norms.values()),
                "the root is missing: the sum of squares is the norm squared": flat * most / (flat @ flat),
                "this scales by the largest number, not by the norm": flat * most / np.abs(flat).max(),
                "the gradients are scaled by 1/norm; the limit is `most`, not 1": flat / np.linalg.norm(flat),
            },
            "the clipped gradient",
        )


def _flat(gradients: Any) -> np.ndarray:
    return np.concatenate([np.ravel(g) for g in gradients.values()])
