"""A truncation of one's own: an array of weights (T, T), where cutting can realise it. Read after truncation.py.

c.gradient(w) of a `Contributions` takes any weights; a cut tape gives only those whose every row is a product of
factors, one for each boundary that is crossed going back from its loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .backend import host_array
from .module import Rng
from .plans import Factors, Plan, Update
from .truncation import Schedule

CLOSE = 1e-12  # two factors of one boundary that differ by no more, relatively, are the same up to rounding


@dataclass(frozen=True, eq=False)
class Given(Schedule):
    """The schedule of an array of weights; see `from_weights`."""

    updates: tuple[Update, ...]
    T: int

    def __str__(self) -> str:
        return f"given weights {self.T} × {self.T}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Given) and (self.T, self.updates) == (other.T, other.updates)

    def __hash__(self) -> int:
        return hash((self.T, self.updates))

    def plan(self, T: int, rng: Rng = None) -> Plan:
        if T != self.T:
            raise ValueError(f"the weights are {self.T} × {self.T}; a sequence of {T} steps needs shape {(T, T)}")
        return Plan(T, self.updates)


def from_weights(w: Any) -> Given:
    """The schedule whose coverage is w (T, T), w[t, s] being the weight of source step s in the loss of step t.

    w[t, t] is 1, or 0 for a loss that is never reached, whose row is 0. Going back from t the weights are multiplied by
    one factor at each boundary; where it is 0 the row stays 0. Rows next to each other that agree on their common
    boundaries make one update. ValueError for another shape, weights above the diagonal or not finite, and for the
    first pair (t, s), counted from 1, that no cut can give.
    """
    w = host_array("weights", w)
    if w.ndim != 2 or w.shape[0] != w.shape[1] or not len(w) or w.dtype.kind not in "fiub":
        raise ValueError(f"weights must be numbers of shape (T, T), found {w.dtype} of shape {w.shape}")
    w = w.astype(float)
    for wrong, words in [
        (~np.isfinite(w), "is {}: weights must be finite"),
        (np.triu(w, 1) != 0, "is {}, above the diagonal: no loss reaches forward in time"),
    ]:
        if wrong.any():
            t, s = map(int, np.argwhere(wrong)[0])
            raise ValueError(f"the weight at {_pair(t, s)} " + words.format(w[t, s]))
    updates: list[tuple[int, int, list[float]]] = []  # first loss, last loss + 1, factors from the first open one on
    for t, row in enumerate(w):
        factors = _factors_of(t, row)
        if factors is None:
            continue
        if updates and updates[-1][1] == t and _agree(factors, updates[-1][2]):
            first, _, before = updates.pop()
            factors = [*before, factors[-1]]
        else:
            first = t
        updates.append((first, t + 1, factors))
    return Given(tuple([Update(range(a, b), _all_factors(b, f, len(w))) for a, b, f in updates]), len(w))


def as_schedule(schedule: Any) -> Schedule:
    """A schedule as it is; an array of one's own as the schedule that gives its weights. TypeError for others."""
    if isinstance(schedule, Schedule):
        return schedule
    if isinstance(schedule, list | tuple) or hasattr(schedule, "dtype"):
        return from_weights(schedule)
    raise TypeError(
        "schedules are made by full(), tbptt(k), artbp(p_cut) and recompute(), or are an array of weights (T, T); "
        f"found {schedule!r}"
    )


def as_schedules(schedules: Any) -> list[Schedule]:
    """One schedule, or several in any iterable, as a list. TypeError for what is no schedule."""
    one = isinstance(schedules, Schedule | str) or hasattr(schedules, "dtype") or not isinstance(schedules, Iterable)
    return [as_schedule(schedule) for schedule in ([schedules] if one else schedules)]


def _factors_of(t: int, row: np.ndarray) -> list[float] | None:
    """The factors of the boundaries crossed going back from t, in the order of time: those after the last closed
    one, and that, or all of them from index 1 on; None for a loss that is not reached."""
    if not row[t] and not row[:t].any():
        return None
    if row[t] != 1:
        raise _impossible(t, t, f"is {row[t]:g}; a cut leaves a step's own weight at 1, and a loss out as a whole (0)")
    factors: list[float] = []
    for s in range(t - 1, -1, -1):
        factor = float(row[s]) / float(row[s + 1])
        if not math.isfinite(factor):
            raise _impossible(t, s, f"is {row[s]:g} after {row[s + 1]:g}: no finite factor leads from one to the other")
        factors.append(factor)
        if factor == 0:
            back = np.flatnonzero(row[:s])
            if back.size:
                s = int(back[-1])
                raise _impossible(t, s, f"is {row[s]:g}, after a 0 at step {s + 2}: nothing crosses a closed boundary")
            break
    return factors[::-1]


def _agree(factors: list[float], before: list[float]) -> bool:
    """Whether the factors of a row are those of the row before and one more, which is not 0.

    A boundary that is closed just before a loss begins an update, whose window starts there.
    """
    if len(factors) != len(before) + 1 or factors[-1] == 0:
        return False
    return all(math.isclose(f, g, rel_tol=CLOSE) for f, g in zip(factors, before))


def _all_factors(end: int, factors: Sequence[float], T: int) -> Factors:
    """The factors of all T boundaries from those that stand before the index `end`; the others are open."""
    first = end - len(factors)
    return Factors(T, 1.0, tuple([(first + i, f) for i, f in enumerate(factors) if f != 1]))


def _impossible(t: int, s: int, words: str) -> ValueError:
    return ValueError(
        f"cutting cannot give these weights: the one at {_pair(t, s)} {words}. "
        "contributions(model, x, y, loss).gradient(w) takes any weights"
    )


def _pair(t: int, s: int) -> str:
    return f"(t, s) = ({t + 1}, {s + 1}), loss step and source step counted from 1,"
