"""Truncation schedules, and the gradient that they give by really cutting the tape. Read after layers.py.

A cut is a factor on the adjoint of the whole state at one time boundary: 0 closes it, 1 leaves it open. A
schedule's plan for T steps says which updates there are, the loss steps that each owns, and the factor of
every boundary. At frozen weights the gradient is then Σ w[t, s]·C[t, s], where C[t, s] is what the loss of
step t asks of the parameters used at step s, and w[t, s] is the product of the factors between s and t.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np

from . import tensor
from .gradients import Gradients
from .module import Rng, check_size, evaluating
from .nest import map_nest
from .sequence import real_steps, run, sequence_input
from .tape import Tape, cut, no_tape
from .tensor import Tensor, tensors


@dataclass(frozen=True)
class Update:
    """One update of a plan: the losses that it owns and the factor of every boundary.

    losses: a range of time indices, from 0. factors: factors[s] is what the adjoint is multiplied by on its way
    from step s back to step s − 1; factors[0] stands before the first step, at the initial state.
    """

    losses: range
    factors: tuple[float, ...]

    @property
    def start(self) -> int:
        """The first step that must be on the tape: the last closed boundary at or before the first loss."""
        return max((s for s in range(self.losses.start + 1) if self.factors[s] == 0), default=0)


@dataclass(frozen=True)
class Plan:
    """The updates of a schedule over T steps."""

    T: int
    updates: tuple[Update, ...]

    def coverage(self) -> np.ndarray:
        """w (T, T): the weight of source step s in the gradient of the loss of step t; 0 above the diagonal."""
        w = np.zeros((self.T, self.T))
        for update in self.updates:
            for t in update.losses:
                w[t, t] = 1
                for s in range(t - 1, -1, -1):
                    w[t, s] = w[t, s + 1] * update.factors[s + 1]
        return w

    def shared_factors(self) -> tuple[float, ...] | None:
        """The factors, where one set serves all updates, so that one backward pass gives them all; else None."""
        factors = {update.factors for update in self.updates}
        return factors.pop() if len(factors) == 1 else None


@dataclass(frozen=True)
class Schedule:
    """Base of truncation schedules: immutable, and independent of any model."""

    def plan(self, T: int, rng: Rng = None) -> Plan:
        """The updates for a sequence of T steps. rng: for schedules that draw their cuts."""
        raise TypeError(f"{type(self).__name__} has no plan(T): define it")

    def coverage(self, T: int, rng: Rng = None) -> np.ndarray:
        """The (T, T) weights that follow from the plan."""
        return self.plan(T, rng).coverage()

    def over_offsets(self, T: int) -> tuple[Schedule, ...]:
        """The schedules that differ from this one only in where the first cut falls; a k is judged over all."""
        return (self,)


@dataclass(frozen=True)
class Full(Schedule):
    """Full BPTT: one update, no boundary closed."""

    def __str__(self) -> str:
        return "full"

    def plan(self, T: int, rng: Rng = None) -> Plan:
        check_size("plan", T=T)
        return Plan(T, (Update(range(T), (1.0,) * T),))


@dataclass(frozen=True)
class Chunks(Schedule):
    """Chunks of k steps: the first cut before index `offset` (before k where the offset is 0), then every k steps.

    A tail that is shorter than k is a chunk like the others.
    """

    k: int
    offset: int = 0

    def __str__(self) -> str:
        return f"k={self.k}" + (f", offset {self.offset}" if self.offset else "")

    def plan(self, T: int, rng: Rng = None) -> Plan:
        check_size("plan", T=T)
        closed = range(self.offset or self.k, T, self.k)
        factors = tuple([0.0 if s in closed else 1.0 for s in range(T)])
        starts = [0, *closed]
        ends = [*starts[1:], T]
        return Plan(T, tuple([Update(range(a, b), factors) for a, b in zip(starts, ends)]))

    def over_offsets(self, T: int) -> tuple[Schedule, ...]:
        """All k offsets; where one chunk holds the whole sequence there is only one."""
        return tuple([replace(self, offset=o) for o in range(self.k)]) if self.k < T else (replace(self, offset=0),)


@overload
def full() -> Schedule: ...
@overload
def full(shape: int | tuple[int, ...], fill: float, dtype: Any = None) -> Tensor: ...
def full(shape: Any = None, fill: Any = None, dtype: Any = None) -> Any:
    """full() is the schedule of full BPTT; full(shape, fill) is a tensor filled with one number (see tensor.py)."""
    if shape is None and fill is None and dtype is None:
        return Full()
    if shape is None or fill is None:
        raise TypeError("full() is full BPTT; a tensor needs both: full(shape, fill)")
    return tensor.full(shape, fill, dtype)


def tbptt(k1: int, k2: int | None = None, offset: int = 0) -> Schedule:
    """Truncated BPTT in chunks of k1 steps; the last chunk may be shorter.

    offset: 0 ≤ offset < k1, where the first cut falls. k2 other than k1 is not built yet: ValueError.
    """
    check_size("tbptt", k1=k1)
    if k2 not in (None, k1):
        raise ValueError(f"tbptt: windows with k2 other than k1 are not built yet (found k1={k1}, k2={k2})")
    if isinstance(offset, bool) or not isinstance(offset, int | np.integer) or not 0 <= offset < k1:
        raise ValueError(f"tbptt: offset must be a whole number from 0 to k1 − 1 = {k1 - 1}, found {offset!r}")
    return Chunks(int(k1), int(offset))


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
) -> Gradients:
    """The gradient of loss(outputs, y) by `schedule`, at frozen weights, by cutting the tape between its updates.

    Each update runs on a tape of its own, so that memory is that of its window. The loss is asked once, on the
    outputs of the whole sequence: L_t is the slice t of ∂L/∂outputs, so it may be any function of the outputs; with
    lengths or a mask it is called as loss(outputs, y, mask=…). Dropout is off. Other arguments as for `unroll`.
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
        seeds = tape.gradient(total, outputs)
        del tape, total
        return accumulate(model, x, seeds, schedule.plan(T), state=state, **options)


def realise(
    model: Any, x: Any, seeds: Any, plan: Plan, *, state: Any = None, mask: Any = None, resets: Any = None
) -> Iterator[Gradients]:
    """The gradients of the updates of a plan in turn, each from a tape that holds its own window only.

    seeds: ∂L/∂outputs of the whole sequence. For plans whose windows do not overlap.
    """
    for update in plan.updates:
        window = slice(update.start, update.losses.stop)
        if window.start != update.losses.start:
            raise ValueError("realise: this plan has windows that overlap, which are not built yet")
        rows = {name: flags if flags is None else flags[window] for name, flags in [("mask", mask), ("resets", resets)]}
        with Tape() as tape:
            before = cut(state) if window.start else map_nest(_unless_learnt, tensors(state))
            outputs, state = run(model, x[window], before, **rows)
        if tape.states and state is None and window.stop < plan.T:  # the next window would start from zero, unasked
            name = type(model).__name__
            raise ValueError(f"{name} keeps its state to itself: give it zero_state(batch), take the state, return it")
        yield tape.gradient(outputs, model, seed=seeds[window])
        del tape, outputs


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
