"""One step back for the adjoints of many losses at once, for the cells that have explicit passes. Read after lstm.py.

A backward pass is linear in the adjoints. Here the adjoint of the state stands for n losses side by side, (n, B, H),
the oldest loss last: at step t (from 0) these are the losses of the steps T − 1 … t. What a cell's `backward` does for
one loss, `back` does for all of them. What it leaves in `D` are the adjoints of the pre-activations; the parameters'
gradients are Xᵀ @ D with an X that all losses share (see `Use`), so that no array of a parameter's size is needed for a
pair of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..backend import Array, library_of
from .explicit import Saved, over_time, rows
from .gru import GRUCell
from .lstm import LSTMCell
from .rnn import RNNCell


@dataclass(frozen=True)
class Use:
    """A parameter, or its columns from `start` on, whose gradient at step s is X_sᵀ @ D_s.

    X: (T, B, N); or (T, B) integers, the rows of the parameter that were picked; or None for ones, of a bias.
    """

    parameter: str
    start: int
    X: Array

    def kernel(self, s: int, other: int) -> Array:
        """X_s @ X_otherᵀ in float64, (B, B) or a number: ⟨XᵀD, X'ᵀD'⟩ = ⟨D, X X'ᵀ D'⟩."""
        if self.X is None:
            return 1.0
        if self.X.ndim == 2:
            return (self.X[s][:, None] == self.X[other]).astype(np.float64)
        return self.X[s].astype(np.float64) @ self.X[other].astype(np.float64).T

    def times(self, G: Array) -> Callable[[int], Array]:
        """s → X_s @ G, (B, w) or (w,): ⟨XᵀD, G⟩ = ⟨D, X G⟩. G: the columns of the parameter that are used."""
        if self.X is None:
            return lambda s: G
        if self.X.ndim == 2:
            return lambda s: G[self.X[s]]
        return (self.X @ G).__getitem__

    def add_gradient(self, E: Array, to: Array) -> None:
        """to += Σ_t X_tᵀ @ E_t, E (T, B, w)."""
        here = to[..., self.start : self.start + E.shape[-1]]
        if self.X is None:
            here += rows(E).sum(axis=0)
        elif self.X.ndim == 2:
            library_of(E).add.at(here, self.X.reshape(-1), rows(E))
        else:
            here += over_time(self.X, E)


@dataclass
class Group:
    """Uses that share their D, (n, B, width): the adjoints after the last `back`, in `gates` blocks of columns."""

    uses: tuple[Use, ...]
    width: int
    gates: int = 1
    D: Array = field(default=None)


class CellBack:
    """Base: the way around padded steps and resets, which is that of `explicit.Pass.between`.

    names: the parameters' names in the model by their names in the cell. d: the adjoints of the parts of the state for
    T losses, of which those of the losses met so far count.
    """

    groups: list[Group]

    def __init__(self, cell: Any, s: Saved, names: Mapping[str, str]):
        self.cell, self.s, self.names = cell, s, names
        self.d = [s.xp.empty((s.T, s.B, cell.H), dtype=h.dtype) for h in s.states]

    def back(self, t: int, dy: Array, wanted: bool) -> Array | None:
        """From ∂L/∂y_t, (m, B, H), of the m losses met last, take one step back; dx (n, B, D) where wanted."""
        s, n = self.s, self.s.T - t
        d = [part[:n] for part in self.d]
        for part in d:
            part[n - 1] = 0  # the loss that is met now
        padded = s.padded_at(t)
        d[0][n - len(dy) :] += s.xp.where(s.real[t], dy, 0) if padded else dy
        before = [part.copy() for part in d] if padded else []
        dx = self.step(t, d, wanted)
        for part, kept in zip(d, before):
            part[...] = s.xp.where(s.real[t], part, kept)
        if s.reset_at(t):
            for part in d:
                part[...] = s.xp.where(s.resets[t], 0, part)
        return dx

    def step(self, t: int, d: list[Array], wanted: bool) -> Array | None:
        """The cell's own equations: D from d, then d of the step before, in place."""
        raise TypeError(f"{type(self).__name__} has no step")

    def use(self, parameter: str, start: int, X: Array) -> Use:
        return Use(self.names[parameter], start, X)


class RNNBack(CellBack):
    """da = dh · φ'(a); dh_prev = da @ W_hᵀ."""

    def __init__(self, cell: Any, s: Saved, names: Mapping[str, str]):
        super().__init__(cell, s, names)
        h = s.states[0][1:]
        slopes = {"tanh": lambda: 1 - h * h, "relu": lambda: (h > 0).astype(h.dtype), "linear": lambda: 0 * h + 1}
        k = slopes[cell.nonlinearity]()
        self.k = _real_only(s, k)
        h_prev = s.all_before(0)
        self.groups = [Group((self.use("W_x", 0, s.x), self.use("W_h", 0, h_prev), self.use("b", 0, None)), cell.H)]

    def step(self, t: int, d: list[Array], wanted: bool) -> Array | None:
        (dh,), s, (group,) = d, self.s, self.groups
        group.D = da = dh * self.k[t]
        dh[...] = da @ s.W_h.T
        return da @ s.W_x.T if wanted else None


class LSTMBack(CellBack):
    """dc += dh · k_c; dz = [dc · k_i, dc · k_f, dc · k_g, dh · k_o]; dh_prev = dz @ W_hᵀ; dc_prev = dc · f."""

    def __init__(self, cell: Any, s: Saved, names: Mapping[str, str]):
        super().__init__(cell, s, names)
        self.k, self.k_c = s.xp.empty_like(s.A), s.xp.empty_like(s.tanh_c)
        cell.local_derivatives(s, s.all_before(1), self.k, self.k_c, slice(None))
        self.f = cell.by_gate(s.A)["f"]
        uses = (self.use("W_x", 0, s.x), self.use("W_h", 0, s.all_before(0)), self.use("b", 0, None))
        self.groups = [Group(uses, 4 * cell.H, gates=4)]
        self.dz, self.W_hT = s.xp.empty_like(s.A), s.xp.ascontiguousarray(s.W_h.T)
        self.part, self.dx = s.xp.empty_like(self.d[0]), s.xp.empty_like(s.x)

    def step(self, t: int, d: list[Array], wanted: bool) -> Array | None:
        (dh, dc), s, (group,) = d, self.s, self.groups
        xp, n, B, H = s.xp, len(dh), s.B, self.cell.H
        dz = group.D = self.dz[:n]
        gates, k = dz.reshape(n, B, 4, H), self.k[t].reshape(B, 4, H)
        dc += xp.multiply(dh, self.k_c[t], out=self.part[:n])
        xp.multiply(dc[:, :, None], k[:, :3], out=gates[:, :, :3])
        xp.multiply(dh, k[:, 3], out=gates[:, :, 3])
        xp.matmul(rows(dz), self.W_hT, out=rows(dh))
        dc *= self.f[t]
        if wanted:
            xp.matmul(rows(dz), s.W_x.T, out=rows(self.dx[:n]))
        return self.dx[:n] if wanted else None


class GRUBack(CellBack):
    """As in gru.py: da_n = dh · k_n, da_z = dh · k_z, and the reset's way after or before the product with W_hn."""

    def __init__(self, cell: Any, s: Saved, names: Mapping[str, str]):
        super().__init__(cell, s, names)
        xp, H, h_prev = s.xp, cell.H, s.all_before(0)
        self.r, self.z = s.A[..., :H], s.A[..., H:]
        x_rz = (self.use("W_x", 0, s.x), self.use("W_h", 0, h_prev), self.use("b", 0, None))
        x_n = (self.use("W_x", 2 * H, s.x), self.use("b", 2 * H, None))
        self.k_n = xp.empty_like(s.n)
        if cell.reset == "after":
            self.k = xp.empty((s.T, s.B, 3 * H), dtype=s.n.dtype)  # of r, z and u
            cell.local_derivatives(s, h_prev, self.k, self.k_n, slice(None))
            u = (self.use("W_h", 2 * H, h_prev), self.use("b_hn", 0, None))
            self.groups = [Group(x_rz, 2 * H, gates=2), Group(x_n, H), Group(u, H)]
        else:
            self.k_r = h_prev * (self.r * (1 - self.r))
            self.k_z = _real_only(s, (h_prev - s.n) * (self.z * (1 - self.z)))
            self.k_n[...] = _real_only(s, (1 - self.z) * (1 - s.n * s.n))
            n = (*x_n, self.use("W_h", 2 * H, self.r * h_prev))
            self.groups = [Group(x_rz, 2 * H, gates=2), Group(n, H)]

    def step(self, t: int, d: list[Array], wanted: bool) -> Array | None:
        (dh,), s, H = d, self.s, self.cell.H
        da_n = self.groups[1].D = dh * self.k_n[t]
        if self.cell.reset == "after":
            n, B = dh.shape[:2]
            da = (dh[:, :, None] * self.k[t].reshape(B, 3, H)).reshape(n, B, 3 * H)  # da_r, da_z, du
            da_rz = self.groups[0].D = da[..., : 2 * H]
            self.groups[2].D = da[..., 2 * H :]
            dh[...] = dh * self.z[t] + da @ s.W_h.T
        else:
            dm = da_n @ s.W_h[:, 2 * H :].T
            da_rz = self.groups[0].D = s.xp.concatenate([dm * self.k_r[t], dh * self.k_z[t]], axis=-1)
            dh[...] = dh * self.z[t] + dm * self.r[t] + da_rz @ s.W_h[:, : 2 * H].T
        return da_rz @ s.W_x[:, : 2 * H].T + da_n @ s.W_x[:, 2 * H :].T if wanted else None


def _real_only(s: Saved, k: Array) -> Array:
    """A padded step has no derivative."""
    return k if s.real is None else s.xp.where(s.real, k, 0)


BACK: dict[type, type[CellBack]] = {RNNCell: RNNBack, LSTMCell: LSTMBack, GRUCell: GRUBack}
