"""Is somebody's pass right, and if not, where does it go wrong, and what does it look like? Read after first_place.py.

The forward pass is compared first, then every gradient. Where something differs, the loss is put on step 1 alone,
then on step 2 alone, …: the first loss step that shows it is the smallest case to look at, and within it the steps
are gone through as the backward pass does, from the last to the first. Then the pass is compared with the mistakes
of mistakes.py, each of which is made on the same inputs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..listing import printable
from . import by_hand
from .by_hand import Arrays, Case
from .contract import Student
from .expected import Right
from .first_place import Where, first_loss_step, first_place, place
from .mistakes import backward_mistakes, forward_mistakes


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


def judged(student: Student, case: Case) -> CellCheck:
    """What there is to say of a pass on one case. Broken where it does not keep its contract."""
    contract = student.contract
    before = student.forward(case)
    out, right = before.arrays, Right(contract, case, before.coarsest)
    if right.differing(out):
        return _forward_differs(student, case, right, out)
    grads, coarsest = student.backward(case, before)
    if coarsest != before.coarsest:
        right = Right(contract, case, coarsest)
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
        f"{coarsest}; largest relative error {worst[0]:.1g} ({worst[1]})"
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
