"""Lesson 3, the RNN's backward pass: `check_cell` holds it against the tape. Read after ../answers.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...check_cell import check_cell
from ...parameters import parameter
from ...tape import Tape
from ..answers import array, call, number, same
from ..registry import NotYet, Numbers, exercise


def _draw_step(rng: np.random.Generator) -> Numbers:
    h = rng.choice([0.2, 0.4, 0.6, 0.8, -0.4, -0.6])
    return {"h_t": float(h), "w_h": float(rng.choice([2.0, -2.0, 3.0])), "dh_t": float(rng.choice([5.0, 10.0, -10.0]))}


@exercise(
    "3.1",
    "dh_prev",
    numbers=_draw_step,
    hints=["Two factors besides dh_t.", "da_t = dh_t·(1 − h_t²), and h_t is tanh a_t already; then w_h."],
)
def _(dh_prev: Any, n: Numbers) -> None:
    """Predict what one step hands back."""
    h, w, g = n["h_t"], n["w_h"], n["dh_t"]
    start = parameter([(np.arctanh(h) - 0.1) / w], dtype=np.float64)  # some h_{t−1} from which step t makes h_t
    with Tape() as tape:
        h_t = ops.tanh(start * w + 0.1)
    right = tape.gradient(h_t, start, seed=np.array([g]))
    mistakes = {
        "that is da_t: w_h is missing": g * (1 - h**2),
        "tanh' is missing": g * w,
        "tanh of tanh: h_t is tanh a_t already, so tanh' a_t is 1 − h_t²": g * (1 - np.tanh(h) ** 2) * w,
        "tanh' is 1 − h_t, where 1 − h_t² belongs": g * (1 - h) * w,
        "dh_t is missing: what arrives multiplies everything": (1 - h**2) * w,
        "that is ∂L/∂w_h's part with h_t in the place of w_h": g * (1 - h**2) * h,
        "tanh' is not h_t; it is 1 − h_t²": g * h * w,
        "tanh' is not h_t²; it is 1 − h_t²": g * h**2 * w,
        "tanh' is 1 − h_t², not 1 + h_t²": g * (1 + h**2) * w,
        "the sign is wrong: nothing is subtracted but in tanh', 1 − h_t²": -g * (1 - h**2) * w,
        "w_h is in it twice: the way back goes through it once": g * (1 - h**2) * w**2,
        "back through a product with w_h one multiplies by w_h; you have divided": g * (1 - h**2) / w,
        "dh_t is added; h_{t−1} reaches the loss only through h_t here, so that all is one product": g
        + g * (1 - h**2) * w,
    }
    same(number(call(dh_prev)), right, mistakes, otherwise="Two factors besides dh_t: check.hint('3.1')")


@exercise(
    "3.2",
    "forward",
    "backward",
    points=3,
    hints=[
        "Keep dh_next, (B, H), zeros at first: it is da_{t+1} @ W_hᵀ. da = (dout[t] + dh_next)·(1 − h_t²).",
        "In the cache h[t + 1] is h_t of the equations, for the step with index t, and h[t] is its h_{t−1}.",
        "The gradients of the parameters are sums over the steps: +=. What is dh_next when the loop is done?",
    ],
)
def _(forward: Any, backward: Any) -> str:
    """Write the backward pass of an RNN."""
    for name, function in (("forward", forward), ("backward", backward)):
        if not callable(function):
            raise NotYet(f"{name} must be a function; yours is {type(function).__name__}")
    # No two of T, B, D and H are the same: a wrong axis is a wrong shape.
    for T, B, D, H in ((5, 2, 4, 3), (1, 2, 4, 3), (4, 1, 2, 5)):
        found = check_cell(forward, backward, like="rnn", T=T, B=B, D=D, H=H, raises=False, rng=3)
        if found.where is None and not found.ok:  # what it raised, or a wrong shape
            raise NotYet(f"with T = {T}, B = {B}, D = {D}, H = {H}: {found}")
        if not found.ok:
            raise NotYet(str(found))
    return "(Three sizes, each against the tape.)"


@exercise(
    "3.3",
    "mended_line",
    hints=[
        "mb.check_cell(forward, nearly, like='rnn', raises=False) finds it with the loss on one step alone, "
        "where dh_next is 0. So it is dout_t that goes wrong.",
        "Which of the two terms of dh_t goes through tanh?",
    ],
)
def _(mended_line: Any) -> None:
    """Find the bug: one line of a backward pass."""
    rng = np.random.default_rng(33)
    dout, dh_next, h_prev, x_t = (rng.standard_normal((2, 3)) for _ in range(4))
    a = parameter(rng.standard_normal((2, 3)))
    with Tape() as tape:
        h_t = ops.tanh(a)
    right = tape.gradient(h_t, a, seed=dout + dh_next)
    h = h_t.value
    mistakes = {
        "this is the line as it was: dout_t does not go through tanh in it, only dh_next does": dout
        + dh_next * (1 - h**2),
        "now dout_t goes through tanh and dh_next does not": dout * (1 - h**2) + dh_next,
        "this is dh_t; it must go through tanh to be da": dout + dh_next,
        "dh_next is lost: that is a cut": dout * (1 - h**2),
        "dout_t is lost": dh_next * (1 - h**2),
        "tanh' at the wrong step: it is 1 − h_t², not 1 − h_{t−1}²": (dout + dh_next) * (1 - h_prev**2),
        "tanh of tanh: h_t is tanh a_t already": (dout + dh_next) * (1 - np.tanh(h) ** 2),
        "that line was right already": dh_next,
    }
    yours = array(call(mended_line, dout, dh_next, h, h_prev, x_t), "the line")
    same(yours, right, mistakes, "the line", "Compare each line with steps 1 to 4: check.hint('3.3')")
