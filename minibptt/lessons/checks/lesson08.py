"""Lesson 8, LSTM and GRU: the engine's LSTM cell says what a bias, a step back and another library's weights give.

Read after ../answers.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops, weights
from ...cells import LSTMCell
from ...check_cell import check_step
from ...parameters import assign
from ...tape import Tape
from ...tensor import Tensor
from ..answers import array, call, number, parts, same
from ..registry import NotYet, Numbers, exercise


def _draw_steps(rng: np.random.Generator) -> Numbers:
    return {"steps": int(rng.choice([5, 8, 12, 25, 40, 60]))}


def _kept(b_f: float) -> float:
    """∂c_1/∂c_0 of a cell whose weights are 0, by the tape."""
    cell = LSTMCell(1, 1, forget_bias=b_f, rng=0, dtype=np.float64)
    for W in (cell.W_x, cell.W_h):
        assign(W, np.zeros(W.shape))
    with Tape() as tape:
        c_0 = tape.watch(np.ones((1, 1)))
        _, (_, c) = cell.step(np.zeros((1, 1)), (Tensor(np.zeros((1, 1))), c_0))
        loss = ops.sum(c)
    return float(tape.gradient(loss, c_0).item())


@exercise(
    "8.1",
    "my_bias",
    numbers=_draw_steps,
    hints=["1/(1 − f) = steps: which f is that?", "f = σ(b_f) = 1/(1 + e^(−b_f)): solve for b_f."],
)
def _(my_bias: Any, n: Numbers) -> None:
    """Predict a forget bias from a time constant."""
    steps, b_f = n["steps"], number(call(my_bias), "b_f")
    f = 1 - 1 / steps
    mistakes = {
        "this is f itself; the bias goes through a sigmoid to be f": f,
        "the sign is flipped: with this bias the cell keeps 1/steps and forgets the rest": -np.log(steps - 1),
        "this is ln(steps): solve σ(b) = 1 − 1/steps once more, 1 − f is 1/steps": np.log(steps),
        "this is the number of steps itself": float(steps),
        "this is −1/ln f, which is about the number of steps": -1 / np.log(f),
        "this solves σ(b) = 1/steps with tanh in the place of σ": np.arctanh(1 / steps),
        "f is a sigmoid of its bias, no tanh": np.arctanh(f),
        "this has f^steps = ½, a half-life; what is asked for is 1/(1 − f) = steps": -np.log(2 ** (1 / steps) - 1),
        "this has f^steps = 1/e exactly; what is asked for is 1/(1 − f) = steps, which is near it": -np.log(
            np.exp(1 / steps) - 1
        ),
    }
    given = 1 / (1 - _kept(b_f)) if abs(b_f) < 30 else np.inf
    if abs(given - steps) < 0.01 * steps:  # an answer may be rounded to two decimals
        return
    says, wrong = min(mistakes.items(), key=lambda one: abs(b_f - one[1]))
    if abs(b_f - wrong) < 5e-3 * max(1.0, abs(wrong)):
        raise NotYet(says)
    raise NotYet(f"a cell with this bias has 1/(1 − f) = {given:.4g} steps, by the tape: check.hint('8.1')")


@exercise(
    "8.2",
    "step",
    "step_back",
    points=3,
    hints=[
        "c_t reaches the loss through step t + 1, which is dc, and through h_t: dc = dc + dh · o · (1 − tanh² c_t).",
        "Each dz is the adjoint of its gate times the gate's own derivative: dz_f = dc · c_{t−1} · f·(1 − f).",
        "o is the only gate that dh reaches directly. dc_prev is dc · f, with the dc that has dh's part in it.",
    ],
)
def _(step: Any, step_back: Any) -> str:
    """Write one LSTM step backward."""
    for name, function in (("step", step), ("step_back", step_back)):
        if not callable(function):
            raise NotYet(f"{name} must be a function; yours is {type(function).__name__}")
    for sizes in ({}, {"B": 1, "D": 2, "H": 5}):
        found = check_step(step, step_back, like="lstm", raises=False, rng=8, **sizes)
        if not found.ok:
            raise NotYet(str(found))
    return "(Two sizes, each against the tape.)"


@exercise(
    "8.3",
    "converted",
    points=2,
    hints=[
        "np.split(kernel, 4, axis=1) gives the four blocks in the order i, j, f, o.",
        "The rows of the kernel are the D inputs first, then the H units. The forget bias is added to one block of b.",
    ],
)
def _(converted: Any) -> None:
    """Write the conversion from TensorFlow 1."""
    for D, H, forget_bias in ((3, 2, 1.0), (2, 4, 0.5)):
        rng = np.random.default_rng(83)
        kernel, bias = rng.standard_normal((D + H, 4 * H)), rng.standard_normal(4 * H)
        cell = LSTMCell(D, H, rng=0, dtype=np.float64)
        weights.from_tf1(cell, {"kernel": kernel, "bias": bias}, forget_bias=forget_bias)
        found = parts(call(converted, kernel, bias, D, forget_bias), "converted", "W_x", "W_h", "b")
        right = [p.value for p in (cell.W_x, cell.W_h, cell.b)]
        for name, yours, its in zip(("W_x", "W_h", "b"), found, right):
            array(yours, name, its.shape)
        plain = kernel[:D], kernel[D:], bias
        last = np.concatenate([kernel[H:], kernel[:H]]), bias
        mistakes = [
            {
                "the gates are in the order of TensorFlow 1 still, i j f o; here it is i f g o": plain[k],
                "the rows are split the wrong way: the first D rows of the kernel are the inputs', W_x": (
                    _reordered(last[0], H)[:D],
                    _reordered(last[0], H)[D:],
                    right[2],
                )[k],
                "these blocks are i f o g; here they are i f g o": _reordered(plain[k], H, (0, 2, 3, 1)),
                "o and f are swapped; j (here g) and f change places": _reordered(plain[k], H, (0, 3, 2, 1)),
            }
            for k in range(3)
        ]
        b = _reordered(bias, H)
        mistakes[2] |= {
            "the gates are in the order of TensorFlow 1 still, i j f o; here it is i f g o": bias
            + forget_bias * _block(2, H),
            "the forget bias is missing: TensorFlow 1 adds it when it runs, here it is in b": b,
            "the forget bias is added to all gates; it belongs to f alone": b + forget_bias,
            "the forget bias is added to g: add it to the block of f": b + forget_bias * _block(2, H),
            "the forget bias is subtracted; that is the way back, to TensorFlow 1": b - forget_bias * _block(1, H),
            "the forget bias takes the place of what TensorFlow 1 has in the block of f; add it": np.where(
                _block(1, H) > 0, forget_bias, b
            ),
            "the forget bias is 1 here whatever was given": b + _block(1, H),
        }
        for name, yours, its, known in zip(("W_x", "W_h", "b"), found, right, mistakes):
            try:
                same(yours, its, known, name)
            except NotYet as wrong:
                raise NotYet(f"{name}, with D = {D}, H = {H}, forget_bias = {forget_bias}: {wrong}") from None


def _reordered(a: np.ndarray, H: int, order: tuple[int, ...] = (0, 2, 1, 3)) -> np.ndarray:
    return np.concatenate([a[..., q * H : (q + 1) * H] for q in order], axis=-1)


def _block(q: int, H: int) -> np.ndarray:
    """1 in block q of four."""
    return np.repeat(np.arange(4) == q, H).astype(float)
