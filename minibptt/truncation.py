"""Truncation schedules: which losses reach back through which boundaries. Independent of any model.

A schedule's plan for T steps (plans.py) says which updates there are, the loss steps that each owns, and the factor
of every boundary, by which the adjoint of the whole state is multiplied on its way back. At frozen weights the
gradient is then Σ w[t, s]·C[t, s], where C[t, s] is what the loss of step t asks of the parameters used at step s, and
w[t, s] is the product of the factors between s and t. Read after plans.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np

from . import tensor
from .listing import counted
from .module import Rng, check_number, check_size, check_whole, generator
from .plans import Factors, Plan, Update
from .tensor import Tensor


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

    def plans(self, T: int, rng: Rng = 0, draws: int = 32) -> tuple[Plan, ...]:
        """The plans that this schedule is judged over: one for each offset, or `draws` of those that are drawn."""
        return tuple([schedule.plan(T) for schedule in self.over_offsets(T)])

    def describe(self, T: int, rng: Rng = 0) -> Description:
        """What the schedule reaches in T steps: steps kept, lags that survive, losses that are never reached."""
        mine = self.plan(T, rng)
        one = mine.coverage() != 0
        plans, kept = self.plans(T, rng), np.zeros(T)
        for plan in plans:  # one matrix (T, T) at a time
            t, s = np.nonzero(plan.coverage())
            kept += np.bincount(t - s, minlength=T)
        return Description(
            schedule=str(self),
            T=T,
            steps_kept=tuple(one.sum(axis=1).tolist()),
            survival=tuple((kept / len(plans) / np.arange(T, 0, -1)).tolist()),
            unreached=int(T - one.any(axis=1).sum()),
            updates=len(mine.updates),
            longest=max(plan.longest for plan in plans),
        )


@dataclass(frozen=True)
class Description:
    """What a schedule reaches in T steps.

    steps_kept: for each loss, how many steps back it reaches, its own included, 0 for a loss that is never reached;
    with the offset that the schedule has. survival[j]: the share of pairs at lag j that are kept, over all offsets
    or draws. unreached: losses that get no gradient at all. updates: per sequence. longest: the most steps that are
    ever on the tape.
    """

    schedule: str
    T: int
    steps_kept: tuple[int, ...]
    survival: tuple[float, ...]
    unreached: int
    updates: int
    longest: int

    @property
    def mean_steps_kept(self) -> float:
        """The mean of steps_kept over all losses."""
        return sum(self.steps_kept) / self.T

    def __str__(self) -> str:
        lost = f", {counted(self.unreached, 'loss', 'losses')} never reached" if self.unreached else ""
        return (
            f"{self.schedule}, T = {self.T}: {counted(self.updates, 'update')}, {self.mean_steps_kept:.2f} steps kept "
            f"for a loss in the mean ({min(self.steps_kept)} to {max(self.steps_kept)}), at most "
            f"{counted(self.longest, 'step')} on the tape{lost}"
        )


@dataclass(frozen=True)
class Full(Schedule):
    """Full BPTT: one update, no boundary closed."""

    def __str__(self) -> str:
        return "full"

    def plan(self, T: int, rng: Rng = None) -> Plan:
        check_size("plan", T=T)
        return Plan(T, (Update(range(T), Factors(T)),))


@dataclass(frozen=True)
class Recompute(Schedule):
    """Full BPTT in little memory: one update, run in segments that are run again on the way back."""

    segments: int | None = None

    def __str__(self) -> str:
        return f"full, recomputed in {'√T segments' if self.segments is None else counted(self.segments, 'segment')}"

    def plan(self, T: int, rng: Rng = None) -> Plan:
        check_size("plan", T=T)
        segments = round(T**0.5) if self.segments is None else self.segments
        if segments > T:
            raise ValueError(f"recompute: {segments} segments need at least as many steps, found T = {T}")
        return Plan(T, Full().plan(T).updates, segments)


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
        factors = Factors(T, 1.0, tuple([(s, 0.0) for s in closed]))
        starts = [0, *closed]
        ends = [*starts[1:], T]
        return Plan(T, tuple([Update(range(a, b), factors) for a, b in zip(starts, ends)]))

    def over_offsets(self, T: int) -> tuple[Schedule, ...]:
        """All k offsets; where one chunk holds the whole sequence there is only one."""
        return tuple([replace(self, offset=o) for o in range(self.k)]) if self.k < T else (replace(self, offset=0),)


@dataclass(frozen=True)
class Windows(Schedule):
    """An update every k1 steps, back through the last k2, owning its "new" losses or the "last" alone."""

    k1: int
    k2: int
    offset: int = 0
    losses: str = "new"

    def __str__(self) -> str:
        last = ", last loss" if self.losses == "last" else ""
        return f"k1={self.k1}, k2={self.k2}{last}" + (f", offset {self.offset}" if self.offset else "")

    def plan(self, T: int, rng: Rng = None) -> Plan:
        check_size("plan", T=T)
        ends = [*range(self.offset or self.k1, T, self.k1), T]
        updates, everything_open = [], Factors(T)
        for before, end in zip([0, *ends], ends):
            start = before if self.k2 == self.k1 else max(0, end - self.k2)  # k2 = k1: chunks, a short tail too
            factors = Factors(T, 1.0, ((start, 0.0),)) if start else everything_open
            first = max(start, end - 1 if self.losses == "last" else before)
            updates.append(Update(range(first, end), factors))
        return Plan(T, tuple(updates))

    def over_offsets(self, T: int) -> tuple[Schedule, ...]:
        """All k1 offsets; where the first window holds the whole sequence there is only one."""
        offsets = range(self.k1) if self.k1 < T else (0,)
        return tuple([replace(self, offset=o) for o in offsets])


@dataclass(frozen=True)
class ARTBP(Schedule):
    """Each boundary is closed with probability p_cut, else scaled by 1/(1 − p_cut): in the mean, full BPTT."""

    p_cut: float

    def __str__(self) -> str:
        return f"ARTBP p={self.p_cut:g}"

    def plan(self, T: int, rng: Rng = None) -> Plan:
        check_size("plan", T=T)
        closed = generator(rng).random(T) < self.p_cut
        starts = [0, *(np.flatnonzero(closed[1:]) + 1).tolist()]
        factors = Factors(T, 1 / (1 - self.p_cut), ((0, 1.0), *[(s, 0.0) for s in starts[1:]]))
        return Plan(T, tuple([Update(range(a, b), factors) for a, b in zip(starts, [*starts[1:], T])]))

    def plans(self, T: int, rng: Rng = 0, draws: int = 32) -> tuple[Plan, ...]:
        """`draws` independent draws of the cuts; one serves the whole batch."""
        check_size("plans", draws=draws)
        rng = generator(rng)
        return tuple([self.plan(T, rng) for _ in range(draws)])


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


def tbptt(k1: int, k2: int | None = None, offset: int = 0, losses: str = "new") -> Schedule:
    """Truncated BPTT: an update every k1 steps, back through the last k2; a shorter tail is an update too.

    k2: default k1, chunks of k1 steps side by side, in which a shorter tail reaches back to its own start.
    offset: 0 ≤ offset < k1, where the first update falls. losses: an update owns the "new" losses, those since the last
    one, or the "last" alone. With k2 < k1 the losses that no window reaches get nothing, output layer included.
    """
    check_size("tbptt", k1=k1, k2=k1 if k2 is None else k2)
    k2 = k1 if k2 is None else k2
    check_whole("tbptt", offset=offset)
    if not 0 <= offset < k1:
        raise ValueError(f"tbptt: offset must be a whole number from 0 to k1 − 1 = {k1 - 1}, found {offset!r}")
    if losses not in ("new", "last"):
        raise ValueError(f"tbptt: losses must be 'new' or 'last', found {losses!r}")
    if k2 == k1 and losses == "new":
        return Chunks(int(k1), int(offset))
    return Windows(int(k1), int(k2), int(offset), losses)


def artbp(p_cut: float) -> Schedule:
    """Randomised truncation (Tallec and Ollivier 2017): unbiased, but it varies. ValueError for p outside [0, 1)."""
    return ARTBP(check_number("artbp: p_cut", p_cut, 0, 1))


def recompute(segments: int | None = None) -> Schedule:
    """Full BPTT in little memory: only the states at the segments' ends are kept, and each segment is run again.

    At most two forward passes instead of one: a third more time where a backward pass takes two forward passes.
    segments: default the whole number nearest to √T (Chen et al. 2016; Gruslys et al. 2016 place the states better).
    ValueError for segments < 1, and for more segments than steps when the plan is made.
    """
    if segments is not None:
        check_size("recompute", segments=segments)
    return Recompute(None if segments is None else int(segments))
