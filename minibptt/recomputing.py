"""Full BPTT in little memory: segments that are run again when the way back reaches them. Read after pieces.py.

The sequence is run once without a tape, and the states where segments begin are stored. Then each segment, from the
last to the first, is run again on a tape of its own, which starts from two adjoints: ∂L/∂outputs of its steps and that
of its final state, and gives that of the state before it (Chen et al. 2016, arXiv 1604.06174; Gruslys et al. 2016,
arXiv 1606.03401). Memory is that of one segment and of the stored states.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from .backend import Array, library_of
from .gradients import Gradients
from .nest import leaves, map_nest
from .objective import Known, Objective
from .pieces import Pieces
from .plans import Plan
from .tape import Tape, no_tape
from .tensor import Tensor


def recomputed(pieces: Pieces, objective: Objective, plan: Plan) -> tuple[Tensor | None, Gradients]:
    """(the loss, its gradient) of a plan of one update over everything, in `plan.segments` segments.

    ValueError for a model that keeps its state to itself.
    """
    segments = list(pairwise(plan.bounds))
    loss, seeds = objective.answer(plan.updates[0], _outputs(pieces, segments, kept=not isinstance(objective, Known)))
    total: Gradients | None = None
    adjoints: list[Array | None] = []  # of the parts of the state after the segment
    for a, b in reversed(segments):
        stored = pieces.resume(a)
        with Tape() as tape:
            before = _watched(tape, stored) if a else stored  # a parameter in the initial state learns by itself
            with tape.shifted(a):
                outputs, after = pieces.run(a, b, before)
            refuse_hidden_state(tape, after, pieces.model)
            parts = [h for _, h in leaves(after)]
            start = _with_adjoints(tape, [outputs, *parts], [seeds[a:b], *(adjoints or [None] * len(parts))])
        inner = [h for _, h in leaves(before)] if a else []
        gradients, *found = tape.gradient(start, [pieces.model, *filter(_is_float, inner)])
        remaining = iter(found)
        adjoints = [next(remaining) if _is_float(h) else None for h in inner]
        total = gradients if total is None else total + gradients
        del tape, before, outputs, after, parts, start, inner, gradients  # before the next segment is run
    pieces.resume(plan.T)  # the generators stand as after one run
    assert total is not None
    return loss, total


def refuse_hidden_state(tape: Tape, state: Any, model: Any) -> None:
    """ValueError where states were noted on the tape, but none came back to go on from."""
    if tape.states and state is None:  # the next piece would start from zero, unasked
        name = type(model).__name__
        raise ValueError(f"{name} keeps its state to itself: give it zero_state(batch), take the state, return it")


def _outputs(pieces: Pieces, segments: list[tuple[int, int]], kept: bool) -> Tensor:
    """Run the sequence once, storing the states: the outputs of all steps where they are kept, else some."""
    whole: Array = None
    with no_tape():
        for a, b in segments:
            outputs, after = pieces.run(a, b, pieces.resume(a))
            pieces.store(b, after)
            if kept:
                value = outputs.value
                if whole is None:
                    whole = library_of(value).empty((pieces.T, *value.shape[1:]), dtype=value.dtype)
                whole[a:b] = value
    return Tensor(whole, weak=outputs.weak) if kept else outputs


def _watched(tape: Tape, state: Any) -> Any:
    return map_nest(lambda h: tape.watch(h) if _is_float(h) else h, state)


def _with_adjoints(tape: Tape, tensors: list[Tensor], adjoints: list[Array | None]) -> Tensor:
    """A scalar of the tape from which the way back starts with the given adjoint of each tensor.

    It stands for Σ ⟨tensor, adjoint⟩, whose value nobody needs.
    """
    slots = [tape.slot_of(h) for h in tensors]
    value = tensors[0].value
    (start,) = tape.record("adjoints", slots, (), (library_of(value).zeros((), dtype=value.dtype),), lambda g: adjoints)
    return start


def _is_float(h: Tensor) -> bool:
    """Whether a part of the state has an adjoint: a counter of whole numbers has none."""
    return h.dtype.kind in "fc"
