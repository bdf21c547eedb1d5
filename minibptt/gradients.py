"""`Gradients`: what `tape.gradient(loss, model)` answers, a mapping from parameter name to array.

Gradients add, scale and compare. Sums over elements are taken in float64, whatever the arrays are.
Read after backend.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from numbers import Number
from typing import Any

import numpy as np

from .backend import Array, is_array, library_of


class Gradients(Mapping[str, Array]):
    """Gradients by parameter name. Immutable as a mapping; arithmetic makes new ones. TypeError for what is no array.

    Two Gradients meet only where they have the same names and shapes: ValueError otherwise.
    """

    __array_ufunc__ = None  # so that a NumPy number on the left asks the Gradients

    def __init__(self, arrays: Mapping[str, Array]):
        if not isinstance(arrays, Mapping):
            raise TypeError(f"Gradients are arrays by parameter name, a mapping; found {type(arrays).__name__}")
        self._arrays = dict(arrays)
        for name, g in self._arrays.items():
            if not is_array(g) and not isinstance(g, np.generic):
                raise TypeError(f"Gradients are arrays by parameter name; {name!r} is {type(g).__name__}")

    def __getitem__(self, name: str) -> Array:
        try:
            return self._arrays[name]
        except KeyError:
            raise KeyError(f"no parameter {name!r}; there are {', '.join(self._arrays)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def __repr__(self) -> str:
        rows = ", ".join(f"{name} {'×'.join(map(str, g.shape)) or 'scalar'}" for name, g in self.items())
        return f"Gradients({rows}; norm {self.norm():.4g})"

    def __eq__(self, other: object) -> bool:
        """True where names, shapes and every bit of the values agree."""
        if not isinstance(other, Mapping) or set(self) != set(other):
            return False
        return all(g.shape == other[name].shape and bool((g == other[name]).all()) for name, g in self.items())

    __hash__ = None  # type: ignore[assignment]

    def _map(self, other: object, function: Callable[[Array, Array], Array]) -> Gradients:
        self._check(other)
        return Gradients({name: function(g, other[name]) for name, g in self.items()})  # type: ignore[index]

    def _check(self, other: object) -> None:
        if not isinstance(other, Mapping):
            raise TypeError(f"Gradients meet Gradients; found {type(other).__name__}")
        if set(self) != set(other):
            raise ValueError(f"Gradients of different parameters: {sorted(self)} and {sorted(other)}")
        for name, g in self.items():
            if g.shape != other[name].shape:
                raise ValueError(f"Gradients of {name!r} have shapes {g.shape} and {other[name].shape}")

    def __add__(self, other: object) -> Gradients:
        if isinstance(other, Number) and other == 0:  # where a sum begins, the builtin sum's too
            return self
        return self._map(other, lambda a, b: a + b)

    __radd__ = __add__

    def __sub__(self, other: object) -> Gradients:
        return self._map(other, lambda a, b: a - b)

    def __mul__(self, factor: Any) -> Gradients:
        if isinstance(factor, Mapping):
            raise TypeError("Gradients are scaled by a number; for the inner product use a.dot(b)")
        factor = factor.item() if isinstance(factor, np.generic) else factor  # a Python number keeps the dtype
        if not isinstance(factor, Number) and not (is_array(factor) and factor.ndim == 0):
            found = f"an array of shape {factor.shape}" if is_array(factor) else repr(factor)
            raise TypeError(f"Gradients are scaled by a number; found {found:.60}")
        return Gradients({name: g * factor for name, g in self.items()})

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Gradients:
        return self * (1 / divisor if isinstance(divisor, Number) or is_array(divisor) else divisor)

    def __neg__(self) -> Gradients:
        return self * -1

    def dot(self, other: Mapping[str, Array]) -> float:
        """⟨g, other⟩ over all parameters."""
        self._check(other)
        return sum((_dot(g, other[name]) for name, g in self.items()), 0.0)

    def norm(self) -> float:
        """‖g‖ over all parameters."""
        return math.sqrt(max(self.dot(self), 0.0))

    def cosine(self, other: Mapping[str, Array]) -> float:
        """The cosine of the angle between the two; nan where one of them is zero."""
        other = Gradients(other)
        norms = self.norm() * other.norm()
        return self.dot(other) / norms if norms else math.nan

    def relative_error(self, other: Mapping[str, Array]) -> float:
        """‖g − other‖ / ‖other‖; 0 where both are zero, inf where only `other` is."""
        distance, size = (self - other).norm(), Gradients(other).norm()
        return distance / size if size else (math.inf if distance else 0.0)

    def share(self, full: Mapping[str, Array]) -> float:
        """⟨g, full⟩ / ‖full‖²: the part of the full gradient's first-order decrease of the loss that g keeps.

        nan where `full` is zero. It can exceed 1 or be negative.
        """
        size = Gradients(full).dot(full)
        return self.dot(full) / size if size else math.nan


def _dot(a: Array, b: Array) -> float:
    xp: Any = library_of(a)
    return float(xp.sum(xp.multiply(a, b, dtype=xp.float64)))
