"""The GRU (Cho et al. 2014), in both variants of its reset. Read after lstm.py.

Gates in the order r, z, n, side by side in the last axis of W_x (D, 3H), W_h (H, 3H) and b (3H,).
Forward, for t = 1 … T:

    r_t = σ(x_t @ W_xr + h_{t−1} @ W_hr + b_r)
    z_t = σ(x_t @ W_xz + h_{t−1} @ W_hz + b_z)
    after  (PyTorch, cuDNN):  u_t = h_{t−1} @ W_hn + b_hn      n_t = tanh(x_t @ W_xn + b_n + r_t · u_t)
    before (Cho et al.):      u_t = (r_t · h_{t−1}) @ W_hn     n_t = tanh(x_t @ W_xn + b_n + u_t)
    h_t = (1 − z_t) · n_t + z_t · h_{t−1}        the output y_t is h_t too

Backward, for t = T … 1, from dy_t = ∂L/∂y_t and from the adjoint of the final state, which starts dh_T:

    dh_t += dy_t                                 the adjoint ∂L/∂h_t
    da_n = dh_t · (1 − z_t)(1 − n_t²)            da_z = dh_t · (h_{t−1} − n_t) z_t (1 − z_t)
    after:   da_r = da_n · u_t r_t (1 − r_t)     du_t = da_n · r_t
             dh_{t−1} = dh_t · z_t + [da_r, da_z, du_t] @ W_hᵀ
    before:  dm = da_n @ W_hnᵀ                   da_r = dm · h_{t−1} r_t (1 − r_t)
             dh_{t−1} = dh_t · z_t + dm · r_t + [da_r, da_z] @ [W_hr, W_hz]ᵀ
    dW_x = Σ x_tᵀ @ [da_r, da_z, da_n]           db = Σ [da_r, da_z, da_n]        dx_t = [da_r, da_z, da_n] @ W_xᵀ
    dW_hr, dW_hz = Σ h_{t−1}ᵀ @ [da_r, da_z]     after:  dW_hn = Σ h_{t−1}ᵀ @ du_t, db_hn = Σ du_t
                                                 before: dW_hn = Σ (r_t · h_{t−1})ᵀ @ da_n
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import ops
from ..backend import Array, library_of, use_backend
from ..module import Rng, check_size, generator, uniform
from ..tensor import Tensor, zeros
from .base import Cell
from .buffers import empty
from .explicit import Factors, Pass, Saved, backwards, block_length, over_time, products, rows
from .fused import gru_backward, gru_forward
from .kernels import fusing


class GRUCell(Cell):
    """One GRU layer. D: inputs; H: hidden units; reset: "after" or "before" the product with W_hn.

    W_x, W_h, b, and b_hn (H,) for "after", are drawn from U(−1/√H, 1/√H). rng: an int or a generator. dtype:
    float32 unless given. ValueError for sizes below 1 and another `reset`.
    """

    gates = ("r", "z", "n")
    state_names = ("h",)

    def __init__(self, D: int, H: int, *, reset: str = "after", rng: Rng = None, dtype: Any = None):
        check_size("GRUCell", D=D, H=H)
        if reset not in ("after", "before"):
            raise ValueError(
                f"GRUCell: reset must be 'after' (PyTorch, cuDNN) or 'before' (Cho et al.), found {reset!r}"
            )
        rng, bound = generator(rng), H**-0.5
        self.D, self.H, self.reset = D, H, reset
        self.W_x = uniform(rng, bound, (D, 3 * H), dtype)
        self.W_h = uniform(rng, bound, (H, 3 * H), dtype)
        self.b = uniform(rng, bound, (3 * H,), dtype)
        if reset == "after":
            self.b_hn = uniform(rng, bound, (H,), dtype)

    def gate_columns(self, name: str) -> dict[str, slice]:
        return {"n": slice(None)} if name == "b_hn" else super().gate_columns(name)

    def zero_state(self, batch: int) -> Tensor:
        """h₀ = 0, (batch, H)."""
        check_size("zero_state", batch=batch)
        with use_backend(library_of(self.W_h.value)):
            return zeros((batch, self.H), dtype=self.W_h.dtype)

    def step(self, x: Any, h: Any) -> tuple[Tensor, Tensor]:
        """h_t (B, H), twice: as output and as state."""
        H = self.H
        a = x @ self.W_x + self.b
        a_rz, a_n = ops.split(a, [2 * H], -1)
        if self.reset == "after":
            u_rz, u_n = ops.split(h @ self.W_h, [2 * H], -1)
            r, z = ops.split(ops.sigmoid(a_rz + u_rz), 2, -1)
            n = ops.tanh(a_n + r * (u_n + self.b_hn))
        else:
            W_rz, W_n = ops.split(self.W_h, [2 * H], -1)
            r, z = ops.split(ops.sigmoid(a_rz + h @ W_rz), 2, -1)
            n = ops.tanh(a_n + (r * h) @ W_n)
        h = (1 - z) * n + z * h
        return h, h

    def forward(
        self, x: Array, state: list[Array], real: np.ndarray | None = None, resets: np.ndarray | None = None
    ) -> Saved:
        """The whole sequence by hand. x: (T, B, D); state: [h₀ (B, H)]; see `explicit.Saved` for the rest."""
        s = Saved(self, x, state, real, resets)
        if fusing(s.xp, x.dtype):
            return gru_forward(self, s)
        xp, H, b = s.xp, self.H, self.b.value
        # σ(a) = ½ + ½ tanh(a/2): halve what goes into r and z, scale what comes out of tanh. All inputs in one product
        # each; then r and z, and n, step by step.
        s.A = products(xp, x, s.W_x[:, : 2 * H] * 0.5, b[: 2 * H] * 0.5)
        s.n = products(xp, x, s.W_x[:, 2 * H :], b[2 * H :])
        (self._forward_after if self.reset == "after" else self._forward_before)(s)
        return s

    def _forward_after(self, s: Saved) -> None:
        xp, H, (h,), b_hn = s.xp, self.H, s.states, self.b_hn.value
        s.u = empty(xp, s.n.shape, h.dtype)
        W_h = s.W_h.copy()
        W_h[:, : 2 * H] *= 0.5
        q, part = xp.empty((s.B, 3 * H), dtype=h.dtype), xp.empty_like(h[0])  # q = h_{t−1} @ W_h
        q_rz, q_n = q[:, : 2 * H], q[:, 2 * H :]
        h_prev = h[0]
        for t, (rz, r, z, n, u, h_t) in enumerate(zip(s.A, s.A[..., :H], s.A[..., H:], s.n, s.u, h[1:])):
            if s.irregular:
                (h_prev,) = before = s.before(t)
            xp.matmul(h_prev, W_h, out=q)
            xp.add(rz, q_rz, out=rz)
            _sigmoid_of_twice(xp, rz)
            xp.add(q_n, b_hn, out=u)
            xp.multiply(r, u, out=part)
            xp.add(n, part, out=n)
            _blend(xp, h_prev, z, n, part, h_t)
            if s.irregular:
                s.after(t, before)
            h_prev = h_t

    def _forward_before(self, s: Saved) -> None:
        xp, H, (h,) = s.xp, self.H, s.states
        W_rz, W_n = s.W_h[:, : 2 * H] * 0.5, xp.ascontiguousarray(s.W_h[:, 2 * H :])
        q, part, rh = xp.empty_like(s.A[0]), xp.empty_like(h[0]), xp.empty_like(h[0])
        h_prev = h[0]
        for t, (rz, r, z, n, h_t) in enumerate(zip(s.A, s.A[..., :H], s.A[..., H:], s.n, h[1:])):
            if s.irregular:
                (h_prev,) = before = s.before(t)
            xp.matmul(h_prev, W_rz, out=q)
            xp.add(rz, q, out=rz)
            _sigmoid_of_twice(xp, rz)
            xp.multiply(r, h_prev, out=rh)
            xp.matmul(rh, W_n, out=part)
            xp.add(n, part, out=n)
            _blend(xp, h_prev, z, n, part, h_t)
            if s.irregular:
                s.after(t, before)
            h_prev = h_t

    def backward(
        self,
        s: Saved,
        dy: Array | None,
        d_final: list[Array | None],
        factors: Factors | None = None,
    ) -> Pass:
        """The whole sequence in reverse. dy: (T, B, H) or None; d_final: [dh_T or None]; see `explicit.Pass`."""
        p = Pass(s, d_final, factors)
        xp, H = s.xp, self.H
        dy, h_prev = p.real_only(dy), s.all_before(0)
        if fusing(xp, s.x.dtype):
            d, da_n = gru_backward(self, p, dy, h_prev)
        else:
            d, da_n = (self._backward_after if self.reset == "after" else self._backward_before)(p, dy, h_prev)
        da_rz = d[..., : 2 * H]  # d goes back through W_h: [da_r, da_z, du], or without du
        p.gates = {"r": da_rz[..., :H], "z": da_rz[..., H:], "n": da_n}
        W_rzT, W_nT = s.W_x[:, : 2 * H].T, s.W_x[:, 2 * H :].T
        p.dx = lambda: (xp.dot(rows(da_rz), W_rzT) + xp.dot(rows(da_n), W_nT)).reshape(s.x.shape)
        p.parameters = [
            lambda: xp.concatenate([over_time(s.x, da_rz), over_time(s.x, da_n)], axis=1),
            lambda: over_time(h_prev, d),
            lambda: xp.concatenate([rows(da_rz).sum(axis=0), rows(da_n).sum(axis=0)]),
        ]
        if self.reset == "after":
            p.parameters.append(lambda: rows(d[..., 2 * H :]).sum(axis=0))
        else:
            through = [lambda: over_time(h_prev, da_rz), lambda: over_time(s.A[..., :H] * h_prev, da_n)]
            p.parameters[1] = lambda: xp.concatenate([part() for part in through], axis=1)
        return p

    def _backward_after(self, p: Pass, dy: Array | None, h_prev: Array) -> tuple[Array, Array]:
        s, xp, H, (dh,) = p.saved, p.saved.xp, self.H, p.adjoints
        # d = [da_r, da_z, du], which go back through W_h together. First they and da_n hold their local derivatives,
        # for a block of steps that stays in cache; dh_t makes them adjoints when its turn comes.
        d, da_n = empty(xp, (s.T, s.B, 3 * H), dh.dtype), empty(xp, s.n.shape, dh.dtype)
        d_r, d_z, d_u = self.by_gate(d).values()
        z = s.A[..., H:]
        W_hT, part = xp.ascontiguousarray(s.W_h.T), xp.empty_like(dh[0])
        ahead = block_length(d[0])
        steps = backwards(s.T, dh[1:], dh[:-1], d, d_r, d_z, d_u, da_n, z, dy)
        for t, dh_t, dh_prev, d_t, d_r_t, d_z_t, d_u_t, da_n_t, z_t, dy_t in steps:
            if (s.T - 1 - t) % ahead == 0:
                self.local_derivatives(s, h_prev, d, da_n, slice(max(0, t + 1 - ahead), t + 1))
            if dy_t is not None:
                xp.add(dh_t, dy_t, out=dh_t)
            for adjoint in (d_r_t, d_z_t, d_u_t, da_n_t):
                xp.multiply(adjoint, dh_t, out=adjoint)
            xp.matmul(d_t, W_hT, out=dh_prev)
            xp.multiply(dh_t, z_t, out=part)
            xp.add(dh_prev, part, out=dh_prev)
            if p.irregular:
                p.between(t)
        return d, da_n

    def local_derivatives(self, s: Saved, h_prev: Array, d: Array, k_n: Array, steps: slice) -> None:
        """What dh_t is multiplied by on its way to da_r, da_z and du (side by side in d) and da_n, for some steps."""
        xp, H = s.xp, self.H
        r, z, n, u = s.A[steps, :, :H], s.A[steps, :, H:], s.n[steps], s.u[steps]
        k_r, k_z, k_u = self.by_gate(d[steps]).values()
        k_n = k_n[steps]
        xp.multiply(n, n, out=k_n)
        xp.subtract(1, k_n, out=k_n)
        xp.subtract(1, z, out=k_z)
        xp.multiply(k_n, k_z, out=k_n)  # (1 − z)(1 − n²)
        xp.multiply(k_z, z, out=k_z)
        xp.subtract(h_prev[steps], n, out=k_u)
        xp.multiply(k_z, k_u, out=k_z)  # (h − n) z (1 − z)
        xp.subtract(1, r, out=k_r)
        xp.multiply(k_r, r, out=k_r)
        xp.multiply(k_r, u, out=k_r)
        xp.multiply(k_r, k_n, out=k_r)  # u r (1 − r), by way of da_n
        xp.multiply(k_n, r, out=k_u)
        if s.real is not None:  # a padded step has no derivative
            d[steps] = xp.where(s.real[steps], d[steps], 0)
            k_n[...] = xp.where(s.real[steps], k_n, 0)

    def _backward_before(self, p: Pass, dy: Array | None, h_prev: Array) -> tuple[Array, Array]:
        s, xp, H, (dh,) = p.saved, p.saved.xp, self.H, p.adjoints
        r, z, n = s.A[..., :H], s.A[..., H:], s.n
        k_r = h_prev * (r * (1 - r))
        da_rz, da_n = empty(xp, s.A.shape, dh.dtype), empty(xp, n.shape, dh.dtype)
        da_r, da_z = da_rz[..., :H], da_rz[..., H:]  # da_z and da_n hold their local derivatives first
        da_z[...] = p.real_only((h_prev - n) * (z * (1 - z)))
        da_n[...] = p.real_only((1 - z) * (1 - n * n))
        W_rzT, W_nT = xp.ascontiguousarray(s.W_h[:, : 2 * H].T), xp.ascontiguousarray(s.W_h[:, 2 * H :].T)
        dm, part = xp.empty_like(dh[0]), xp.empty_like(dh[0])
        steps = backwards(s.T, dh[1:], dh[:-1], da_rz, da_r, da_z, da_n, k_r, r, z, dy)
        for t, dh_t, dh_prev, da_rz_t, da_r_t, da_z_t, da_n_t, k_r_t, r_t, z_t, dy_t in steps:
            if dy_t is not None:
                xp.add(dh_t, dy_t, out=dh_t)
            xp.multiply(da_n_t, dh_t, out=da_n_t)
            xp.multiply(da_z_t, dh_t, out=da_z_t)
            xp.matmul(da_n_t, W_nT, out=dm)
            xp.multiply(dm, k_r_t, out=da_r_t)
            xp.matmul(da_rz_t, W_rzT, out=dh_prev)
            for d, k in ((dm, r_t), (dh_t, z_t)):
                xp.multiply(d, k, out=part)
                xp.add(dh_prev, part, out=dh_prev)
            if p.irregular:
                p.between(t)
        return da_rz, da_n


def _sigmoid_of_twice(xp: Any, a: Array) -> None:
    """a ← σ(2a) = ½ + ½ tanh a, in place."""
    xp.tanh(a, out=a)
    xp.multiply(a, 0.5, out=a)
    xp.add(a, 0.5, out=a)


def _blend(xp: Any, h_prev: Array, z: Array, n: Array, part: Array, h_t: Array) -> None:
    """n ← tanh n;  h_t = (1 − z)·n + z·h_{t−1} = n + z·(h_{t−1} − n)."""
    xp.tanh(n, out=n)
    xp.subtract(h_prev, n, out=part)
    xp.multiply(part, z, out=part)
    xp.add(n, part, out=h_t)
