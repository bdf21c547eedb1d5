"""What the explicit passes of all cells share: masks, resets, cut boundaries, and the products over all steps.

A cell's `forward` and `backward` go over the whole sequence by hand, with the equations of their own file; this
file keeps what happens *between* two steps. Arrays only: no tensor and no tape. State buffers are (T + 1, B, H),
index 0 the initial state and index t the state after step t, and adjoints stand at the same indices.
Read after buffers.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from ..backend import Array, library_of
from .buffers import empty

Factors = Mapping[int, float | Sequence[float]]  # by step (from 0): see `Pass`


class Saved:
    """What a forward pass returns and its backward pass needs.

    x: (T, B, D). W_x, W_h: the weights as they were. states: the buffers (T + 1, B, H), one for each part of the
    state. real, resets: (T, B) booleans on the host, or None. Nothing in it is used again by another call.
    """

    # What a cell keeps besides: the LSTM its gates A (T, B, 4H) and tanh c_t; the GRU r and z in A (T, B, 2H), n and u.
    A: Array
    tanh_c: Array
    n: Array
    u: Array

    def __init__(
        self, cell: Any, x: Array, state: list[Array], real: np.ndarray | None = None, resets: np.ndarray | None = None
    ):
        self.x, self.xp = x, library_of(x)
        self.W_x, self.W_h = cell.W_x.value, cell.W_h.value
        self.T, self.B = x.shape[:2]
        self.states = [empty(self.xp, (self.T + 1, self.B, cell.H), h.dtype) for h in state]
        for buffer, h in zip(self.states, state):
            buffer[0] = h  # (B, H), or what broadcasts to it
        self._padded: Any = None if real is None else ~real.all(axis=1)
        self._reset: Any = None if resets is None else resets.any(axis=1)
        flags: list[Any] = [None if f is None else self.xp.asarray(f)[..., None] for f in (real, resets)]
        self.real, self.resets = flags
        self.irregular = real is not None or resets is not None

    def padded_at(self, t: int) -> bool:
        """Whether some row is padded at step t (from 0)."""
        return self._padded is not None and bool(self._padded[t])

    def reset_at(self, t: int) -> bool:
        """Whether some row starts afresh before step t (from 0)."""
        return self._reset is not None and bool(self._reset[t])

    def before(self, t: int) -> list[Array]:
        """The state that step t (from 0) starts from: that after step t − 1, but zero in rows that are reset."""
        if not self.reset_at(t):
            return [h[t] for h in self.states]
        return [self.xp.where(self.resets[t], 0, h[t]) for h in self.states]

    def after(self, t: int, before: list[Array]) -> None:
        """In rows that are padded at step t the state stays what it was before."""
        if self.padded_at(t):
            for h, h_prev in zip(self.states, before):
                h[t + 1] = self.xp.where(self.real[t], h[t + 1], h_prev)

    def all_before(self, part: int) -> Array:
        """The states that the steps start from, (T, B, H)."""
        h_prev = self.states[part][:-1]
        return h_prev if self.resets is None else self.xp.where(self.resets, 0, h_prev)

    @property
    def outputs(self) -> Array:
        """The first part of the state after every step, (T, B, H); exactly 0 at padded steps."""
        h = self.states[0][1:]
        return h if self.real is None else self.xp.where(self.real, h, 0)

    @property
    def final(self) -> list[Array]:
        """The state after the last step."""
        return [h[-1].copy() for h in self.states]


class Pass:
    """What a backward pass returns.

    adjoints: ∂L/∂h_t, ∂L/∂c_t, buffers (T + 1, B, H). d_state: those of the initial state. dx, parameters: functions
    that work the gradients of the inputs and of each parameter out when they are asked for. gates: the adjoint of
    the pre-activation of each gate, (T, B, H). arrived: for each boundary that has a factor, the adjoints that
    arrived there; dropped: (1 − factor) times those.
    """

    dx: Callable[[], Array]
    parameters: list[Callable[[], Array]]
    gates: dict[str, Array]

    def __init__(self, saved: Saved, d_final: list[Array | None], factors: Factors | None = None):
        """d_final: the adjoint of each part of the final state, None for one that is not used. factors: what the
        adjoint is multiplied by on its way from step t (from 0) back to step t − 1, one number or one for each part
        of the state; 1 where it is not given."""
        self.saved, n = saved, len(saved.states)
        self.factors = {t: list(f) if isinstance(f, Sequence) else [f] * n for t, f in (factors or {}).items()}
        self.adjoints = [empty(saved.xp, h.shape, h.dtype) for h in saved.states]
        for adjoint, d in zip(self.adjoints, d_final):
            adjoint[-1] = 0 if d is None else d
        self.arrived: dict[int, list[Array]] = {}
        self.irregular = saved.irregular or bool(self.factors)

    @property
    def d_state(self) -> list[Array]:
        return [d[0] for d in self.adjoints]

    @property
    def dropped(self) -> dict[int, list[Array]]:
        return {t: [(1 - f) * d for f, d in zip(self.factors[t], ds)] for t, ds in self.arrived.items()}

    def between(self, t: int) -> None:
        """The way from step t back to step t − 1: around a padded step, not across a reset, scaled at a cut."""
        s = self.saved
        for d in self.adjoints:
            if s.padded_at(t):
                d[t] = s.xp.where(s.real[t], d[t], d[t + 1])
            if s.reset_at(t):
                d[t] = s.xp.where(s.resets[t], 0, d[t])
        if t in self.factors:
            self.arrived[t] = [d[t].copy() for d in self.adjoints]
            for d, factor in zip(self.adjoints, self.factors[t]):
                d[t] = d[t] * factor if factor else 0  # nothing crosses a closed cut, not even an infinite adjoint

    def hide(self, t: int, *adjoints: Array) -> None:
        """Make adjoints (B, …) of step t exactly 0 in the rows that are padded there."""
        if self.saved.padded_at(t):
            for d in adjoints:
                d[...] = self.saved.xp.where(self.saved.real[t], d, 0)

    def real_only(self, array: Array) -> Array:
        """An array (T, B, …) with exactly 0 at padded steps; None stays None."""
        if array is None or self.saved.real is None:
            return array
        return self.saved.xp.where(self.saved.real, array, 0)


def input_gradient(s: Saved, da: Array) -> Array:
    """dx_t = da_t @ W_xᵀ for all steps, (T, B, D)."""
    return s.xp.matmul(rows(da), s.W_x.T).reshape(s.x.shape)


def products(xp: Any, x: Array, W: Array, b: Array) -> Array:
    """x_t @ W + b for all steps in one product, (T, B, N), in an array of its own."""
    a = empty(xp, (*x.shape[:2], W.shape[1]), x.dtype)
    xp.dot(rows(x), W, out=rows(a))
    a += b
    return a


def backwards(T: int, *arrays: Array | None) -> Iterator[tuple[Any, ...]]:
    """(t, a[t], b[t], …) for t = T − 1 … 0, as views; None for an array that is None. Faster than indexing."""
    return zip(range(T - 1, -1, -1), *[repeat(None) if a is None else a[::-1] for a in arrays])


def block_length(step: Array) -> int:
    """For how many steps local derivatives are worked out at once: as many as stay in cache, about half a megabyte."""
    return max(1, 2**17 // step.size)


def rows(array: Array) -> Array:
    """(T, B, N) as (T·B, N)."""
    return array.reshape(-1, array.shape[-1])


def over_time(a: Array, b: Array) -> Array:
    """Σ_t a_tᵀ @ b_t as one product over time × batch."""
    return library_of(a).matmul(rows(a).T, rows(b))
