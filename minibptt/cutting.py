"""The gradient of a schedule by really cutting the tape: memory is that of one window. Read after truncation.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from . import ops
from .backend import library_of
from .gradients import Gradients
from .module import Rng, evaluating
from .nest import map_nest
from .sequence import real_steps, run, sequence_input
from .sweep import Cut
from .tape import Tape, cut, no_tape
from .tensor import Tensor, tensors
from .truncation import Plan, Schedule, Update


def bptt(
    model: Any,
    x: Any,
    y: Any,
    loss: Callable[..., Tensor],
    schedule: Schedule,
    *,
    state: Any = None,
    lengths: Any = None,
    mask: Any = None,
    resets: Any = None,
    rng: Rng = None,
) -> Gradients:
    """The gradient of loss(outputs, y) by `schedule`, at frozen weights, by cutting the tape between its updates.

    Each update runs on a tape of its own, so that memory is that of its window. The loss is asked once, on the
    outputs of the whole sequence: L_t is the slice t of ∂L/∂outputs, so it may be any function of the outputs; with
    lengths or a mask it is called as loss(outputs, y, mask=…). rng: for a schedule that draws its cuts. Dropout is
    off. Other arguments as for `unroll`. ValueError for a parameter inside the loss, and for a model that keeps its
    state to itself.
    """
    x = sequence_input(x)
    T, B = x.shape[:2]
    options: dict[str, Any] = {"mask": real_steps(T, B, lengths, mask), "resets": resets}
    with evaluating(model):
        with no_tape():
            outputs, _ = run(model, x, state, **options)
        with Tape() as tape:
            outputs = tape.watch(outputs)
            total = call_loss(loss, outputs, y, options["mask"])
        refuse_parameters_in_the_loss(tape, 0)
        seeds = tape.gradient(total, outputs)
        del tape, total
        return accumulate(model, x, seeds, schedule.plan(T, rng), state=state, **options)


def realise(
    model: Any, x: Any, seeds: Any, plan: Plan, *, state: Any = None, mask: Any = None, resets: Any = None
) -> Iterator[Gradients]:
    """The gradients of the updates of a plan in turn, each from a tape that holds its own window only.

    seeds: ∂L/∂outputs of the whole sequence. Where windows overlap, each is run again from the state that was stored at
    its start; where there is a gap between two, the state is carried over it without a tape.
    """
    starts = sorted({update.start for update in plan.updates})
    stored = {0: map_nest(_unless_learnt, tensors(state))}

    def advance(a: int, b: int, before: Any, every: int | None = None) -> tuple[Tensor, Any]:
        rows = {name: None if flags is None else flags[a:b] for name, flags in (("mask", mask), ("resets", resets))}
        return run(model, x[a:b], before, **rows, **({} if every is None else {"cut_every": every}))

    for update in plan.updates:
        a, b = update.start, update.losses.stop
        if a not in stored:
            known = max(s for s in stored if s < a)
            with no_tape():
                stored[a] = advance(known, a, stored[known])[1]
        scaled = any(f not in (0, 1) for f in update.factors[a + 1 : b])
        # The window in pieces, split where another one starts, so that the state there can be stored.
        pieces = [a, *(s for s in starts if a < s < b), b]
        with Tape() as tape:
            here = stored[a] if a == 0 else cut(stored[a])
            outputs = []
            for p, q in pairwise(pieces):
                out, here = advance(p, q, here, 1 if scaled else None)
                outputs.append(out)
                stored[q] = here
            window = outputs[0] if len(outputs) == 1 else ops.concatenate(outputs)
        if tape.states and here is None and b < plan.T:  # the next window would start from zero, unasked
            name = type(model).__name__
            raise ValueError(f"{name} keeps its state to itself: give it zero_state(batch), take the state, return it")
        yield tape.gradient(
            window, model, seed=owned(seeds, update, a, b), through_cuts=_factors(update) if scaled else False
        )
        del tape, outputs, window
        stored = {s: h for s, h in stored.items() if s in starts or s == b}


def owned(seeds: Any, update: Update, first: int, last: int) -> Any:
    """∂L/∂outputs of the steps `first` to `last` (not included), with 0 at the losses that the update does not own."""
    seeds, losses = seeds[first:last], update.losses
    if (losses.start, losses.stop) == (first, last):
        return seeds
    kept = library_of(seeds).zeros_like(seeds)
    mine = slice(losses.start - first, losses.stop - first)
    kept[mine] = seeds[mine]
    return kept


def _factors(update: Update) -> Callable[[Cut], float]:
    """The factor of a cut inside the window of an update that is run in one piece."""

    def factor(cut: Cut) -> float:
        assert cut.step is not None  # unroll cuts on the clock, which starts at 1 in each window
        return update.factors[update.start + cut.step - 1]

    return factor


def _unless_learnt(h: Any) -> Any:
    """The initial state has no past here, but a parameter in it learns."""
    return h if getattr(h, "is_parameter", False) else cut(h)


def accumulate(model: Any, x: Any, seeds: Any, plan: Plan, **options: Any) -> Gradients:
    """The sum of the gradients that `realise` gives, added up as they come."""
    updates = realise(model, x, seeds, plan, **options)
    total = next(updates)
    for gradients in updates:
        total = total + gradients
    return total


def refuse_parameters_in_the_loss(tape: Tape, recorded: int) -> None:
    """ValueError where a parameter is used in the records after the first `recorded`, which are those of the loss."""
    used = {slot for record in tape.records[recorded:] for slot in record.inputs}
    if any(leaf.is_parameter and slot in used for slot, leaf in tape.leaves.items()):
        raise ValueError(
            "a parameter is used inside the loss, where it belongs to no step: a truncation cannot be judged. Make it "
            "a layer of the model"
        )


def call_loss(loss: Callable[..., Tensor], outputs: Tensor, y: Any, mask: np.ndarray | None) -> Tensor:
    """loss(outputs, y), or loss(outputs, y, mask=mask) where there is padding. ValueError for what is no scalar."""
    if not callable(loss):
        raise TypeError(f"the loss must be a function of (outputs, y), found {type(loss).__name__}")
    try:
        value = loss(outputs, y) if mask is None else loss(outputs, y, mask=mask)
    except TypeError as error:
        if mask is not None and "'mask'" in str(error):
            raise TypeError("with lengths or a mask the loss is called as loss(outputs, y, mask=…)") from error
        raise
    if not isinstance(value, Tensor) or value.size != 1:
        found = f"shape {value.shape}" if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"the loss must return a scalar tensor, found {found}")
    if not math.isfinite(value.item()):
        raise ValueError(f"the loss is {value.item()}: nothing can be compared")
    return value
