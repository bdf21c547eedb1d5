"""Is a forward and backward pass that you wrote by hand right? Against the tape, step by step. Read after check.py.

The forward pass is compared first, then every gradient. Where something differs, the loss is put on step 1 alone,
then on step 2 alone, …: the first loss step that shows it is the smallest case to look at, and within it the steps
are gone through as the backward pass does, from the last to the first. Then the pass is compared with the mistakes
of mistakes.py, each of which is made on the same inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .check import GradientError
from .listing import printable
from .module import Rng, check_size, generator
from .students import by_hand
from .students.by_hand import Arrays, Case
from .students.contract import Broken, Contract, Student
from .students.expected import CELLS, Right, draw
from .students.first_place import Where, first_loss_step, first_place, place
from .students.mistakes import backward_mistakes, forward_mistakes


@dataclass(frozen=True, repr=False)
class CellCheck:
    """What `check_cell` or `check_step` found. mistake: what it looks like, None where no single known mistake gives
    the same numbers. notes: what is worth knowing though the numbers are right. inputs: the arguments and adjoints
    of the case in `where`, to run again; yours, expected: what they gave."""

    ok: bool
    message: str
    where: Where | None = None
    mistake: str | None = None
    notes: tuple[str, ...] = ()
    inputs: Arrays = field(default_factory=dict)
    yours: Arrays = field(default_factory=dict)
    expected: Arrays = field(default_factory=dict)

    def __str__(self) -> str:
        return printable("\n".join([self.message, *(f"note: {note}" for note in self.notes)]))

    __repr__ = __str__


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
    ValueError for an unknown `like`, sizes below 1, and inputs on which rounding grows so much that nothing can be
    said (long sequences at a large scale); TypeError for what cannot be called.
    """
    sizes = {"T": T, "B": B, "D": D, "H": H}
    return _check("check_cell", forward, backward, like, False, sizes, scale, dtype, rng, raises)


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
    return _check("check_step", forward, backward, like, True, sizes, scale, dtype, rng, raises)


def _check(
    name: str,
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    like: str,
    step: bool,
    sizes: dict[str, int],
    scale: float,
    dtype: Any,
    rng: Rng,
    raises: bool,
) -> CellCheck:
    if like not in CELLS:
        raise ValueError(f"{name}: like must be one of {', '.join(map(repr, CELLS))}, found {like!r}")
    check_size(name, **sizes)
    if np.dtype(dtype).kind != "f":
        raise TypeError(f"{name}: dtype must be a float type, found {np.dtype(dtype)}")
    for what, function in (("forward", forward), ("backward", backward)):
        if not callable(function):
            raise TypeError(f"{name} takes two functions, forward and backward; {what} is a {type(function).__name__}")
    cause: BaseException | None = None
    try:
        contract = Contract.of(forward, like, step)
        student = Student(forward, backward, contract)
        case = draw(contract, **sizes, scale=scale, dtype=np.dtype(dtype), rng=generator(rng))
        student.coarsest = min(np.dtype(dtype), student.coarsest, key=lambda d: d.itemsize)
        found = _compare(student, case)
    except Broken as broken:
        found, cause = CellCheck(False, str(broken)), broken.__cause__
    if not found.ok and raises:
        error = GradientError(str(found))
        error.check = found
        raise error from cause
    return found


def _compare(student: Student, case: Case) -> CellCheck:
    contract = student.contract
    out, cache, inputs = student.forward(case)
    right = Right(student, case)
    if right.differing(out):
        return _forward_differs(student, case, right, out)
    grads = student.backward(case, cache, inputs)
    right = Right(student, case)  # again: the gradients may be of a coarser type than the outputs
    if right.differing(grads):
        return _backward_differs(student, case, right, grads)
    notes = []
    if student.uses_up_the_cache(case):
        notes.append("backward changes the cache, so it cannot be called twice with the same one")
    worst = max(
        (float(np.abs(a - right.arrays[n]).max() / (np.abs(right.arrays[n]).max() or 1)), n)
        for n, a in (out | grads).items()
    )
    (T, B, D), H = case.x.shape, case.h0.shape[1]
    steps = "one step" if contract.step else f"T = {T} steps"
    message = (
        f"forward and backward agree with the tape: {contract.like}, {steps}, B = {B}, D = {D}, H = {H}, "
        f"{student.coarsest}; largest relative error {worst[0]:.1g} ({worst[1]})"
    )
    return CellCheck(True, message, notes=tuple(notes), **_evidence(student, case, out | grads, right))


def _evidence(student: Student, case: Case, yours: Arrays, right: Right) -> dict[str, Any]:
    inputs = student.contract.inputs(case) | student.contract.adjoints(case)
    return {"inputs": inputs, "yours": yours, "expected": {name: right.arrays[name] for name in yours}}


def _forward_differs(student: Student, case: Case, right: Right, out: Arrays) -> CellCheck:
    name = right.differing(out)[0]
    wrong = right.wrong(name, out[name])
    step = None if student.contract.step else int(np.argmax(wrong.any(axis=(1, 2)))) + 1
    where = place(right, name, out[name], None, step, None, only=slice(None) if step is None else step - 1)
    named = student.contract.named
    mistake = right.looks_like(
        out, forward_mistakes(case.like), lambda fault: named(by_hand.forward(right.case, fault)[0])
    )
    return CellCheck(False, _say(where, mistake), where, mistake, **_evidence(student, case, out, right))


def _backward_differs(student: Student, case: Case, right: Right, grads: Arrays) -> CellCheck:
    named = student.contract.named
    mistake = right.looks_like(
        grads,
        backward_mistakes(case.like, *case.x.shape[:2]),
        lambda fault: named(by_hand.backward(right.case, right.kept, fault)),
    )
    case, right, grads, loss_step = first_loss_step(student, case, right, grads)
    where = first_place(student, case, right, grads, loss_step)
    return CellCheck(False, _say(where, mistake), where, mistake, **_evidence(student, case, grads, right))


def _say(where: Where, mistake: str | None) -> str:
    digits = next((d for d in range(3, 17) if f"{where.yours:.{d}g}" != f"{where.expected:.{d}g}"), 17)
    text = f"{where.parameter} "
    text += f"first differs at step {where.step}" if where.step else "differs"
    text += f", {where.gate}" if where.gate else ""
    text += f": yours {where.yours:.{digits}g}, expected {where.expected:.{digits}g}; "
    text += f"looks like {mistake}" if mistake else "no single known mistake gives these numbers"
    loss = f", with the loss on step {where.loss_step} alone" if where.loss_step else ""
    counting = "; steps count from 1, indices from 0" if where.step else ""
    return f"{text}\n({where.parameter}{list(where.index)}{loss}{counting})"
