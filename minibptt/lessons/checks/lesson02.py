"""Lesson 2, a linear RNN by hand. The engine's linear cell (one unit) says what is right. Read after ../answers.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...cells import RNNCell
from ...parameters import parameter
from ...sequence import unroll
from ...tape import Tape
from ...tensor import Tensor
from ..answers import array, call, number, same
from ..registry import NotYet, Numbers, exercise


def _cell(w_x: float, w_h: float, b: float) -> RNNCell:
    """h_t = w_x·x_t + w_h·h_{t−1} + b, one unit."""
    cell = RNNCell(1, 1, "linear", rng=0, dtype=np.float64)
    cell.W_x, cell.W_h = parameter(np.full((1, 1), float(w_x)), "W_x"), parameter(np.full((1, 1), float(w_h)), "W_h")
    cell.b = parameter(np.full(1, float(b)), "b")
    return cell


def _draw_adjoints(rng: np.random.Generator) -> Numbers:
    return {"w_h": int(rng.integers(3, 6)), "d": [int(d) for d in rng.permutation([1, 2, 4])]}


@exercise(
    "2.1",
    "my_adjoints",
    numbers=_draw_adjoints,
    hints=[
        "Start at the last step: h₃ reaches the loss in one way only.",
        "h₂ reaches the loss directly, and through h₃, whose derivative by h₂ is w_h: δ₂ = d₂ + w_h·δ₃.",
    ],
)
def _(my_adjoints: Any, n: Numbers) -> None:
    """Predict the adjoints of three steps."""
    δ = array(call(my_adjoints), "[δ₁, δ₂, δ₃]", (3,))
    w, d = n["w_h"], np.array(n["d"], float)
    with Tape() as tape:
        outputs, _ = unroll(_cell(1.0, w, 0.0), np.ones((3, 1, 1)))
        loss = ops.sum(outputs * d.reshape(3, 1, 1))
    right = tape.adjoints(loss)["h"].ravel()
    mistakes = {
        "these are the right adjoints in the wrong order: δ₁ comes first in the list": right[::-1],
        "this is ∂L_t/∂h_t alone, as if the state had been cut before every step; the question is uncut": d,
        "this counts the last loss only: d_t is missing at steps 1 and 2": d[2] * w ** np.arange(2, -1, -1.0),
        "what comes back from the next step is w_h times its whole adjoint δ_{t+1}, not times d_{t+1}":
        d + w * np.append(d[1:], 0),
        "this runs forward, from h₁ to h₃; an adjoint collects what comes after its step": _forward(d, w),
        "w_h does not multiply what comes back from the next step": np.cumsum(d[::-1])[::-1],
    }  # fmt: skip
    same(δ, right, mistakes, "[δ₁, δ₂, δ₃]", "Go back from δ₃, one step at a time: check.hint('2.1')")


def _forward(d: np.ndarray, w: float) -> np.ndarray:
    out = [d[0]]
    for one in d[1:]:
        out.append(one + w * out[-1])
    return np.array(out)


@exercise(
    "2.2",
    "truncated",
    hints=[
        "Keep one number δ, and go through t from T − 1 down to 0. At a cut set it to 0.",
        "Steps k, 2k, … are the last of their chunk: in the loop over t from 0 these are (t + 1) % k == 0.",
    ],
)
def _(truncated: Any) -> str:
    """Write the backward pass of chunks of k steps."""
    T, w = 7, 0.5
    rng = np.random.default_rng(22)
    cell, x = _cell(1.0, w, 0.25), rng.integers(1, 5, (T, 1, 1)).astype(float)
    for k in (3, 2, 5, 7, 1):
        with Tape() as tape:
            outputs, _ = unroll(cell, x, cut_every=k)
            loss = ops.sum(outputs)
        h_prev = np.append(0.0, outputs.value.ravel()[:-1])
        yours = number(call(truncated, h_prev, w, k), f"truncated(h_prev, w_h, {k})")
        right = tape.gradient(loss, cell.W_h).item()
        tail, early, rest = T // k * k, max(1, k - 1), [k] * T
        reset = np.where(np.arange(T) % k == 0, 0, h_prev)
        mistakes = {
            "you forgot to cut: this is full BPTT's gradient": _chunks(h_prev, w, [T]),
            f"this cuts the sequence into {k} chunks; what is asked for is chunks of {k} steps": _chunks(
                h_prev, w, [len(part) for part in np.array_split(np.arange(T), k)]
            ),
            f"the tail is dropped: the last {T - tail} of {T} steps fill no chunk of {k}, and count too": _chunks(
                h_prev[:tail], w, rest
            ),
            "the short chunk is the first one here; it must be the last": _chunks(h_prev, w, [T - tail, *rest]),
            "this is a reset: the states before each chunk are taken as 0; a cut keeps them": _chunks(reset, w, rest),
            "this cuts before every step, whatever k is": _chunks(h_prev, w, [1] * T),
            "the cut falls one step too early: step k belongs to the first chunk": _chunks(h_prev, w, [early, *rest]),
            "the cut falls one step too late: step k + 1 starts the second chunk": _chunks(h_prev, w, [k + 1, *rest]),
            "this is divided by the number of steps; the loss is a sum": right / T,
        }
        try:
            same(yours, right, mistakes, otherwise="δ is 1 + w_h·δ_next inside a chunk, and 1 at its last step")
        except NotYet as wrong:
            raise NotYet(f"with T = {T}, k = {k}: {wrong}") from None
    return "(T = 7 with k = 3, 2, 5, 7, 1 against the engine's cut tape.)"


def _chunks(h_prev: np.ndarray, w: float, lengths: list[int]) -> float:
    """Σ δ_t·h_{t−1} for chunks of these lengths, as far as the states go."""
    total, start = 0.0, 0
    for length in lengths:
        part = h_prev[start : start + length]
        total += sum(sum(w**j for j in range(len(part) - i)) * h for i, h in enumerate(part))
        start += length
    return float(total)


@exercise(
    "2.3",
    "cut_loop",
    hints=[
        "What goes into the loss must keep its past; what goes into the next step must not.",
        "mb.cut(h) where the state is handed to cell.step.",
    ],
)
def _(cut_loop: Any) -> None:
    """Find the bug: the loss was cut, not the state."""
    cell, x = _cell(3.0, 2.0, 2.0), np.array([1.0, 2.0, 3.0, -1.0]).reshape(4, 1, 1)
    with Tape() as tape:
        outputs = call(cut_loop, cell, x)
        if not isinstance(outputs, Tensor):
            raise NotYet(f"cut_loop must return a tensor, the stacked outputs; it returned {type(outputs).__name__}")
        loss = ops.sum(outputs) if outputs.mark is tape.mark else None
    with Tape() as ours:
        right, _ = unroll(cell, x, cut_every=1)
        expected = ops.sum(right)
    reset, _ = unroll(cell, x, resets=np.ones((4, 1)))
    mistakes = {"these are the outputs after a reset: cut the state, do not start it from zero": reset}
    same(outputs, right, mistakes, "the outputs")
    if loss is None or not tape.gradient(loss, cell).norm():
        raise NotYet("the gradient is still zero: the outputs that go into the loss are cut from their past")

    def gradient(tape: Tape, loss: Tensor, through_cuts: Any = False) -> np.ndarray:
        return np.concatenate([g.ravel() for g in tape.gradient(loss, cell, through_cuts=through_cuts).values()])

    mistaken = {
        "you forgot to cut: this is full BPTT's gradient": gradient(ours, expected, True),
        "only the state after the first step is cut": gradient(ours, expected, lambda cut: cut.step != 2),
        "the state after the first step is not cut": gradient(ours, expected, lambda cut: cut.step == 2),
        "the last state that goes on is not cut: one cut too few": gradient(ours, expected, lambda cut: cut.step == 4),
    }
    same(gradient(tape, loss), gradient(ours, expected), mistaken, "the gradient")
