"""The first place where a hand-written backward pass goes wrong: which array, gate and step. Read after expected.py.

With the loss on one step alone, the steps are gone through from the last to the first, as the backward pass does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .by_hand import GATES, Arrays, Case
from .contract import Broken, Student
from .expected import Right
from .mistakes import gate_name


@dataclass(frozen=True)
class Where:
    """The first place that differs. parameter: the array, "out" or "dW_h". gate: None where there is none, or where
    all of them differ. step: from 1, 0 for the initial state, None for a single step. loss_step: the step that bears
    the loss, alone; None where the forward pass differs. index: of `yours` and `expected` in the array."""

    parameter: str
    gate: str | None
    step: int | None
    loss_step: int | None
    index: tuple[int, ...]
    yours: float
    expected: float


def first_loss_step(
    student: Student, case: Case, right: Right, grads: Arrays
) -> tuple[Case, Right, Arrays, int | None]:
    """The case with the loss on one step alone, for the first step that shows a difference, and what comes of it.

    Where no single step shows it, what was given, and None.
    """
    for n in range(1, len(case.x) + 1) if not student.contract.step else ():
        only = np.zeros_like(case.dout)
        only[n - 1] = case.dout[n - 1]
        one = replace(case, dout=only)
        try:
            yours, coarsest = student.run(one)
            there = Right(student.contract, one, coarsest)
        except (Broken, ValueError):
            continue
        if there.differing(yours):
            return one, there, yours, n
    return case, right, grads, None


def first_place(student: Student, case: Case, right: Right, grads: Arrays, loss_step: int | None) -> Where:
    """The first place in which the gradients differ."""
    differing = [name for name in right.differing(grads) if name not in student.contract.gives]
    single, T = student.contract.step, len(case.x)
    if set(differing) <= {"dh0", "dc0", "dh_prev", "dc_prev"}:
        return place(right, differing[0], grads[differing[0]], None, None if single else 0, loss_step)
    wrong, adjoints = _by_step_and_gate(student, case)
    dx = right.wrong("dx", grads["dx"]).reshape(T, -1).any(axis=1)
    by_step = wrong.any(axis=1) if wrong.any() else dx
    step = int(np.flatnonzero(by_step)[-1]) + 1 if by_step.any() else loss_step
    clock = None if single else step
    if by_step.any() and step:
        gates = _some_gates(case, [(case.blocks(wrong[step - 1]), case.blocks(adjoints[step - 1]))])
    else:  # every adjoint is right: something goes wrong where they are added up
        pairs = [
            (_by_gate(case, name, right.wrong(name, grads[name])), _by_gate(case, name, right.arrays[name]))
            for name in ("dW_x", "dW_h", "db", "db_hn")
            if name in grads
        ]
        gates = _some_gates(case, pairs)
    for name in differing if gates else ():
        if name.startswith(("dW", "db")):
            flags = _by_gate(case, name, right.wrong(name, grads[name]))
            if any(flags[q].any() for q in gates if q in flags):
                keep = np.concatenate([np.full(f.shape, float(q in gates)) for q, f in flags.items()], axis=-1)
                names = ", ".join(gate_name(case.like, q) for q in gates)
                return place(right, name, grads[name], names, clock, loss_step, keep=keep)
    name = differing[0]
    only = step - 1 if name == "dx" and step and not single else slice(None)
    return place(right, name, grads[name], None, clock, loss_step, only=only)


def _by_step_and_gate(student: Student, case: Case) -> tuple[np.ndarray, np.ndarray]:
    """The adjoints of the pre-activations, summed over the batch, (T, G·H): where they differ, and what is right.

    Each step gets an input of its own that is 1 there and 0 elsewhere, with weights of 0: the outputs stay the same,
    and the gradients of those weights are the adjoints of single steps. Nothing differs where that cannot be run.
    """
    T, B, D = case.x.shape
    marks = np.broadcast_to(np.eye(T, dtype=case.x.dtype)[:, None], (T, B, T))
    none = np.zeros((T, case.W_x.shape[1]), case.W_x.dtype)
    case = replace(case, x=np.concatenate([case.x, marks], axis=2), W_x=np.concatenate([case.W_x, none]))
    try:
        yours, coarsest = student.run(case)
        right = Right(student.contract, case, coarsest)
    except (Broken, ValueError):  # a pass that knows its D
        return none != 0, none
    return right.wrong("dW_x", yours["dW_x"])[D:], right.arrays["dW_x"][D:]


def _by_gate(case: Case, name: str, array: np.ndarray) -> Arrays:
    return {"n": array} if name == "db_hn" else case.blocks(array)


def _some_gates(case: Case, pairs: Iterable[tuple[Arrays, Arrays]]) -> list[str]:
    """The gates that differ, from (what differs, what is right) by gate; none where all that have a gradient do."""
    bad, seen = set(), set()
    for wrong, right in pairs:
        bad |= {q for q, flags in wrong.items() if flags.any()}
        seen |= {q for q, values in right.items() if values.any()}
    return [] if bad >= seen else [q for q in GATES[case.like] if q in bad]


def place(
    right: Right,
    name: str,
    yours: np.ndarray,
    gate: str | None,
    step: int | None,
    loss_step: int | None,
    only: Any = slice(None),
    keep: Any = 1,
) -> Where:
    """The entry of an array that is furthest off, in the part `only` of its first axis and where `keep` is 1."""
    expected = right.arrays[name]
    error = np.full(expected.shape, -1.0)
    error[only] = (np.abs(yours - expected) * keep)[only]
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(error)), error.shape))
    return Where(name, gate, step, loss_step, index, float(yours[index]), float(expected[index]))
