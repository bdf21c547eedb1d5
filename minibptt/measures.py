"""How a gradient g is judged against full BPTT's gradient G: five measures, of the whole and of each part.

Every measure follows from four sums over entries, ⟨g, G⟩, ‖g‖², ‖g − G‖² and the number of entries whose signs agree.
They are taken once, by column, and added up for parameters, gates and the whole; in float64, whatever the arrays are.
Read after parts.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .backend import Array, library_of, to_numpy
from .gradients import Gradients
from .parts import Part

MEASURES = {
    "share": "the part of full BPTT's first-order decrease of the loss that is kept: ⟨g, G⟩ / ‖G‖²",
    "error": "the relative error ‖g − G‖ / ‖G‖",
    "cosine": "the cosine between g and G",
    "norm_ratio": "‖g‖ / ‖G‖",
    "sign": "sign agreement: of the entries of G that are not 0, the fraction whose sign g has",
}


class Judge:
    """`judge(g)` → (measures, 1 + parts): the measures in the order of MEASURES, of the whole and then of each part.

    A part is judged against its own part of G. Where that is 0, the error is 0 or inf and the others are nan.
    """

    def __init__(self, G: Gradients, parts: Mapping[str, Part]):
        self.G, self.parts = G, parts
        self._names = [name for name, array in G.items() if array.size]
        self._G = {name: _rows(G[name]) for name in self._names}
        self._signs = {name: library_of(array).sign(array) for name, array in self._G.items()}
        blocks: list[tuple[str, int]] = []  # which parameter, and the column where it starts
        columns = 0
        starts, inside = [], []
        for name, array in self._G.items():
            width = array.shape[-1]
            edges = {edge for part in parts.values() if name in part for edge in part[name].indices(width)[:2]}
            for edge in sorted({0, *edges} - {width}):
                blocks.append((name, edge))
                starts.append(columns + edge)
            columns += width
        for part in parts.values():
            ranges = {name: range(*part[name].indices(self._G[name].shape[-1])) for name in part if name in self._G}
            inside.append([i for i, (name, edge) in enumerate(blocks) if edge in ranges.get(name, ())])
        self._starts, self._inside = starts, [list(range(len(blocks))), *inside]
        self._full = self._sums(G)

    def _sums(self, g: Gradients) -> np.ndarray:
        """(4, 1 + parts): ⟨g, G⟩, ‖g‖², ‖g − G‖² and the entries of the same sign. One copy from the device."""
        by_column = []
        for name in self._names:
            xp = library_of(self._G[name])
            a, G = _rows(g[name]), self._G[name]
            d = xp.subtract(a, G, dtype=xp.float64)
            same = a * self._signs[name] > 0  # a product with ±1 cannot underflow
            products = [xp.multiply(a, G, dtype=xp.float64), xp.multiply(a, a, dtype=xp.float64), d * d, same]
            by_column.append(xp.stack([xp.sum(p, axis=0, dtype=xp.float64) for p in products]))
        if not by_column:
            return np.zeros((4, len(self._inside)))
        by_block = np.add.reduceat(to_numpy(library_of(by_column[0]).concatenate(by_column, axis=1)), self._starts, 1)
        return np.stack([by_block[:, blocks].sum(axis=1) for blocks in self._inside], axis=1)

    def __call__(self, g: Gradients) -> np.ndarray:
        dot, square, distance, same = self._sums(g)
        _, size, _, entries = self._full
        with np.errstate(divide="ignore", invalid="ignore"):  # 0 / 0 is nan and 1 / 0 is inf, as they should be here
            norm, full = np.sqrt(square), np.sqrt(size)
            error = np.where(distance == 0, 0.0, np.sqrt(distance) / full)
            share = np.where(size == 0, np.nan, dot / size)
            ratio = np.where(size == 0, np.nan, norm / full)
            return np.stack([share, error, dot / (norm * full), ratio, same / entries])


def _rows(array: Array) -> Array:
    """The array as (rows, columns), its last axis being the columns."""
    return array.reshape(math.prod(array.shape[:-1]), array.shape[-1] if array.shape else 1)


@dataclass(frozen=True)
class Noise:
    """What drawing costs, relative to ‖G‖: over the n gradients g that were drawn, with mean ḡ.

    bias: ‖ḡ − G‖ / ‖G‖, which chance alone makes as large as standard_error, deviation / √n. deviation: the standard
    deviation √(E‖g − ḡ‖²) / ‖G‖, estimated with n − 1; nan for one draw.
    """

    n: int
    bias: float
    standard_error: float
    deviation: float

    @property
    def variance(self) -> float:
        """E‖g − ḡ‖² / ‖G‖²."""
        return self.deviation**2

    def __str__(self) -> str:
        if self.n == 1:
            return f"one draw is off by {self.bias:.3f} (of ‖G‖); how much draws differ takes two"
        return (
            f"over {self.n} draws the mean gradient is off by {self.bias:.3f} ± {self.standard_error:.3f}, one draw "
            f"deviates by {self.deviation:.3f} (of ‖G‖)"
        )


class RunningNoise:
    """Σ (g − G) and Σ ‖g − G‖² over draws, from which `noise()` follows; no gradient is kept."""

    def __init__(self, G: Gradients):
        self._G, self._n, self._sum, self._squares = G, 0, G * 0, 0.0

    def add(self, g: Gradients) -> None:
        d = Gradients({name: _difference(g[name], G) for name, G in self._G.items()})
        self._n, self._sum, self._squares = self._n + 1, self._sum + d, self._squares + d.dot(d)

    def noise(self) -> Noise:
        n, size, bias = self._n, self._G.norm(), self._sum.norm() / self._n
        spread = math.sqrt(max(self._squares - n * bias**2, 0.0) / (n - 1)) if n > 1 else math.nan
        if not size:
            return Noise(n, math.nan, math.nan, math.nan)
        return Noise(n, bias / size, spread / size / math.sqrt(n), spread / size)


def _difference(a: Array, b: Array) -> Array:
    xp = library_of(a)
    return xp.subtract(a, b, dtype=xp.float64)
