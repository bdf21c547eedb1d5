"""What a truncation schedule gives for T steps: its updates, and for each the factor of every boundary.

A cut is a factor on the adjoint of the whole state at one time boundary: 0 closes it, 1 leaves it open. Plans of long
sequences are small: an update keeps one factor and the few boundaries that have another. This file
needs no other; truncation.py comes next.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Factors(Sequence[float]):
    """T factors, one for each boundary: `default`, but for the `exceptions`, pairs (index, factor) in their order.

    It is equal to a tuple of the same numbers and hashes like it. IndexError for an index outside.
    """

    T: int
    default: float = 1.0
    exceptions: tuple[tuple[int, float], ...] = ()

    @classmethod
    def of(cls, values: Sequence[float]) -> Factors:
        """The same numbers, the one that is most frequent as the default."""
        values = [float(f) for f in values]
        default = Counter(values).most_common(1)[0][0] if values else 1.0
        return cls(len(values), default, tuple([(s, f) for s, f in enumerate(values) if f != default]))

    def __len__(self) -> int:
        return self.T

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self)[index]
        s = index + self.T if index < 0 else index
        if not 0 <= s < self.T:
            raise IndexError(f"factor {index} of {self.T}")
        at = bisect_right(self.exceptions, s, key=itemgetter(0))
        return self.exceptions[at - 1][1] if at and self.exceptions[at - 1][0] == s else self.default

    def __iter__(self) -> Iterator[float]:
        others = dict(self.exceptions)
        return (others.get(s, self.default) for s in range(self.T))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Factors):
            if self is other:
                return True
            if self.T != other.T:
                return False
            if self.default == other.default:
                return self._unlike_default() == other._unlike_default()
        elif not isinstance(other, tuple):
            return NotImplemented
        return tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        others = "".join([f", {f:g} at {s}" for s, f in self.exceptions[:8]])
        return f"Factors({self.T} × {self.default:g}{others}{', …' if len(self.exceptions) > 8 else ''})"

    def _unlike_default(self) -> list[tuple[int, float]]:
        return [(s, f) for s, f in self.exceptions if f != self.default]

    def last_closed(self, s: int) -> int | None:
        """The last boundary at or before index s whose factor is 0, or None."""
        at = bisect_right(self.exceptions, s, key=itemgetter(0))
        while s >= 0:
            place, factor = self.exceptions[at - 1] if at else (-1, self.default)
            if place < s and self.default == 0:
                return s
            if place < 0:
                return None
            if factor == 0:
                return place
            s, at = place - 1, at - 1
        return None

    def all_open(self, first: int, last: int) -> bool:
        """Whether every boundary from index `first` to `last` (not included) has the factor 1."""
        at = bisect_right(self.exceptions, first - 1, key=itemgetter(0))
        end = bisect_right(self.exceptions, last - 1, key=itemgetter(0))
        if self.default != 1 and end - at < last - first:
            return False
        return all(f == 1 for _, f in self.exceptions[at:end])


@dataclass(frozen=True, slots=True)
class Update:
    """One update of a plan: the losses that it owns and the factor of every boundary.

    losses: a range of time indices, from 0. factors: factors[s] is what the adjoint is multiplied by on its way
    from step s back to step s − 1; factors[0] stands before the first step, at the initial state.
    """

    losses: range
    factors: Sequence[float]

    def __post_init__(self) -> None:
        if not isinstance(self.factors, Factors):
            object.__setattr__(self, "factors", Factors.of(self.factors))

    @property
    def start(self) -> int:
        """The first step that must be on the tape: the last closed boundary at or before the first loss."""
        assert isinstance(self.factors, Factors)
        return self.factors.last_closed(self.losses.start) or 0

    @property
    def regular(self) -> bool:
        """Whether every boundary inside the window is open, so that it needs no cut."""
        assert isinstance(self.factors, Factors)
        return self.factors.all_open(self.start + 1, self.losses.stop)


@dataclass(frozen=True)
class Plan:
    """The updates of a schedule over T steps.

    segments: in how many pieces a single update over everything is run, each again when the way back reaches it.
    """

    T: int
    updates: tuple[Update, ...]
    segments: int = field(default=1, compare=False)  # how the gradient is worked out, not which one it is

    @property
    def longest(self) -> int:
        """The most steps that are on the tape at once."""
        most = max((update.losses.stop - update.start for update in self.updates), default=0)
        return -(-most // self.segments)  # rounded up

    @property
    def bounds(self) -> list[int]:
        """Where the segments begin and end, T being the last: as equal as they can be."""
        return [i * self.T // self.segments for i in range(self.segments + 1)]

    @property
    def whole(self) -> bool:
        """Whether there is one update, which owns every loss and reaches back to the start."""
        return len(self.updates) == 1 and (self.updates[0].start, self.updates[0].losses) == (0, range(self.T))

    def coverage(self) -> np.ndarray:
        """w (T, T): the weight of source step s in the gradient of the loss of step t; 0 above the diagonal."""
        w = np.zeros((self.T, self.T))
        for update in self.updates:
            start = update.start
            f = np.array([1.0, *[update.factors[s] for s in range(start + 1, update.losses.stop)]])
            for t in update.losses:
                w[t, t] = 1
                w[t, start:t] = np.cumprod(f[t - start : 0 : -1])[::-1]
        return w

    def shared_factors(self) -> Sequence[float] | None:
        """The factors, where one set serves all updates, so that one backward pass gives them all; else None."""
        first = self.updates[0].factors if self.updates else None
        return first if all(update.factors == first for update in self.updates) else None
