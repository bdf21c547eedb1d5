"""Is a forward and backward pass that you wrote by hand right? Against the tape, step by step. Read after check.py.

Here are the questions; how they are answered is in students/, which is loaded when one is asked. Read verdict.py there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .check import GradientError
from .module import Rng, check_number, check_size, generator
from .tensor import number_type

if TYPE_CHECKING:
    from .students.verdict import CellCheck


def check_cell(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    *,
    like: str,
    T: int = 5,
    B: int = 3,
    D: int = 4,
    H: int = 3,
    scale: float = 1.0,
    dtype: Any = np.float64,
    rng: Rng = 0,
    raises: bool = True,
) -> CellCheck:
    """Compare a hand-written pass over a whole sequence with the tape; GradientError says where it first differs.

    out, cache = forward(x, h0, W_x, W_h, b) and dx, dh0, dW_x, dW_h, db = backward(dout, cache), time first:
    x (T, B, D), out and dout (T, B, H), h0 (B, H), W_x (D, G·H), W_h (H, G·H), b (G·H,); cache is anything.

    like: "rnn" (tanh); "lstm" (gates i, f, g, o; c starts at 0, or forward takes (x, h0, c0, …) and backward returns
    dx, dh0, dc0, …); "gru" (r, z, n, reset after, with b_hn (H,) after b, and db_hn) or "gru-before".
    scale: what the weights are multiplied by; at 30 the gates saturate. dtype: of the arrays that are passed.
    raises: False returns the CellCheck where something differs too; the error has it as `check`.
    ValueError for an unknown `like`, sizes below 1, a scale that is not positive, and inputs on which rounding grows so
    much that nothing can be said (long sequences at a large scale); TypeError for what cannot be called.
    """
    sizes = {"T": T, "B": B, "D": D, "H": H}
    return _check(forward, backward, _Asked("check_cell", like, False, sizes, scale, dtype, rng), raises)


def check_step(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    *,
    like: str,
    B: int = 3,
    D: int = 4,
    H: int = 3,
    scale: float = 1.0,
    dtype: Any = np.float64,
    rng: Rng = 0,
    raises: bool = True,
) -> CellCheck:
    """Compare one hand-written step with the tape; GradientError says where it first differs.

    h, cache = forward(x, h_prev, W_x, W_h, b) and dx, dh_prev, dW_x, dW_h, db = backward(dh, cache); for the LSTM
    h, c, cache = forward(x, h_prev, c_prev, W_x, W_h, b) and dx, dh_prev, dc_prev, … = backward(dh, dc, cache); for
    "gru" b_hn and db_hn at the end. x (B, D), h and c (B, H). The rest as for `check_cell`.
    """
    sizes = {"T": 1, "B": B, "D": D, "H": H}
    return _check(forward, backward, _Asked("check_step", like, True, sizes, scale, dtype, rng), raises)


class _Asked(NamedTuple):
    """What a pass is checked against: one step of a cell or a sequence, and what its inputs are drawn by."""

    name: str  # of the function that was called, for messages
    like: str
    step: bool
    sizes: dict[str, int]
    scale: float
    dtype: Any
    rng: Rng


def _check(forward: Callable[..., Any], backward: Callable[..., Any], asked: _Asked, raises: bool) -> CellCheck:
    # Here, not above, so that `import minibptt` stays quick: few programs check a pass.
    from .students.contract import Broken, Contract, Student
    from .students.expected import CELLS, draw
    from .students.verdict import CellCheck, judged

    name, like, step, sizes, scale, dtype, rng = asked
    if like not in CELLS:
        raise ValueError(f"{name}: like must be one of {', '.join(map(repr, CELLS))}, found {like!r}")
    check_size(name, **sizes)
    number_type(name, dtype, "f")
    most = float(np.finfo(dtype).max) ** 0.5  # beyond it products overflow
    check_number(f"{name}: scale", scale, below=most, above=True)
    for what, function in (("forward", forward), ("backward", backward)):
        if not callable(function):
            raise TypeError(f"{name} takes two functions, forward and backward; {what} is a {type(function).__name__}")
    cause: BaseException | None = None
    try:
        contract = Contract.of(forward, like, step)
        student = Student(forward, backward, contract, np.dtype(dtype))
        case = draw(contract, **sizes, scale=scale, dtype=np.dtype(dtype), rng=generator(rng))
        found = judged(student, case)
    except Broken as broken:
        found, cause = CellCheck(False, str(broken)), broken.__cause__
    if not found.ok and raises:
        error = GradientError(str(found))
        error.check = found
        raise error from cause
    return found
