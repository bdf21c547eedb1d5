"""The GRU (Cho et al. 2014), in both variants of its reset.

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

from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import ops
from ..backend import Array, library_of, use_backend
from ..module import Rng, check_size, generator, uniform
from ..tensor import Tensor, zeros
from .base import Cell
from .explicit import Pass, Saved, input_gradient, over_time, rows


class GRUCell(Cell):
    """One GRU layer. D: inputs; H: hidden units; reset: "after" or "before" the product with W_hn.

    W_x, W_h, b, and b_hn (H,) for "after", are drawn from U(−1/√H, 1/√H). rng: an int or a generator. dtype:
    float32 unless given. ValueError for sizes below 1 and another `reset`.
    """

    gates = ("r", "z", "n")

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

    def zero_state(self, batch: int) -> Tensor:
        """h₀ = 0, (batch, H)."""
        with use_backend(library_of(self.W_h.value)):
            return zeros((batch, self.H), dtype=self.W_h.dtype)

    def step(self, x: Any, h: Any) -> tuple[Tensor, Tensor]:
        """h_t (B, H), twice: as output and as state."""
        H = self.H
        a = x @ self.W_x + self.b
        if self.reset == "after":
            u = h @ self.W_h
            rz = ops.sigmoid(a[..., : 2 * H] + u[..., : 2 * H])
            r, z = rz[..., :H], rz[..., H:]
            n = ops.tanh(a[..., 2 * H :] + r * (u[..., 2 * H :] + self.b_hn))
        else:
            rz = ops.sigmoid(a[..., : 2 * H] + h @ self.W_h[:, : 2 * H])
            r, z = rz[..., :H], rz[..., H:]
            n = ops.tanh(a[..., 2 * H :] + (r * h) @ self.W_h[:, 2 * H :])
        h = (1 - z) * n + z * h
        return h, h

    def forward(
        self, x: Array, state: list[Array], real: np.ndarray | None = None, resets: np.ndarray | None = None
    ) -> Saved:
        """The whole sequence by hand. x: (T, B, D); state: [h₀ (B, H)]; see `explicit.Saved` for the rest."""
        s = Saved(self, x, state, real, resets)
        # σ(a) = ½ + ½ tanh(a/2): halve what goes into r and z, scale what comes out of tanh.
        scale = s.xp.asarray(np.repeat(np.array([0.5, 0.5, 1], x.dtype), self.H))
        A = rows(x) @ (s.W_x * scale)
        A += self.b.value * scale
        s.A = A.reshape(s.T, s.B, 3 * self.H)  # all inputs in one product; then r, z, n, step by step
        (self._forward_after if self.reset == "after" else self._forward_before)(s, s.W_h * scale)
        return s

    def _forward_after(self, s: Saved, W_h: Array) -> None:
        xp, H, (h,), b_hn = s.xp, self.H, s.states, self.b_hn.value
        s.u = xp.empty((s.T, s.B, H), dtype=h.dtype)
        q, part = xp.empty_like(s.A[0]), xp.empty_like(h[0])  # q = h_{t−1} @ W_h
        q_rz, q_n = q[:, : 2 * H], q[:, 2 * H :]
        h_prev = h[0]
        r_, z_, n_ = self.by_gate(s.A).values()
        for t, (rz, r, z, n, u, h_t) in enumerate(zip(s.A[..., : 2 * H], r_, z_, n_, s.u, h[1:])):
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

    def _forward_before(self, s: Saved, W_h: Array) -> None:
        xp, H, (h,) = s.xp, self.H, s.states
        W_rz, W_n = xp.ascontiguousarray(W_h[:, : 2 * H]), xp.ascontiguousarray(W_h[:, 2 * H :])
        q, part, rh = xp.empty_like(s.A[0, :, : 2 * H]), xp.empty_like(h[0]), xp.empty_like(h[0])
        h_prev = h[0]
        r_, z_, n_ = self.by_gate(s.A).values()
        for t, (rz, r, z, n, h_t) in enumerate(zip(s.A[..., : 2 * H], r_, z_, n_, h[1:])):
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
        factors: Mapping[int, float] | None = None,
    ) -> Pass:
        """The whole sequence in reverse. dy: (T, B, H) or None; d_final: [dh_T or None]; see `explicit.Pass`."""
        p = Pass(s, d_final, factors)
        r, z, n = self.by_gate(s.A).values()
        h_prev = s.all_before(0)
        # For all steps at once, what dh_t is multiplied by on its way to da_n and da_z. A padded step has none.
        k_n = p.real_only((1 - z) * (1 - n * n))
        k_z = p.real_only((h_prev - n) * (z * (1 - z)))
        way = self._backward_after if self.reset == "after" else self._backward_before
        da = way(p, p.real_only(dy), h_prev, k_n, k_z, r, z)
        p.gates = self.by_gate(da)
        p.dx = lambda: input_gradient(s, da)
        p.parameters[0:0] = [lambda: over_time(s.x, da)]
        p.parameters[2:2] = [lambda: rows(da).sum(axis=0)]
        return p

    def _backward_after(
        self, p: Pass, dy: Array | None, h_prev: Array, k_n: Array, k_z: Array, r: Array, z: Array
    ) -> Array:
        s, xp, (dh,) = p.saved, p.saved.xp, p.adjoints
        # da_r, da_z and du_t, which go back through W_h together: first their local derivatives, then each in its turn.
        d = xp.empty_like(s.A)
        d_r, d_z, d_u = self.by_gate(d).values()
        xp.multiply(k_n, s.u * (r * (1 - r)), out=d_r)
        d_z[...] = k_z
        xp.multiply(k_n, r, out=d_u)
        by_gate = d.reshape(s.T, s.B, 3, self.H)
        W_hT, part = xp.ascontiguousarray(s.W_h.T), xp.empty_like(dh[0])
        for t in range(s.T - 1, -1, -1):
            dh_t = dh[t + 1]
            if dy is not None:
                xp.add(dh_t, dy[t], out=dh_t)
            xp.multiply(by_gate[t], dh_t[:, None], out=by_gate[t])
            xp.matmul(d[t], W_hT, out=dh[t])
            xp.multiply(dh_t, z[t], out=part)
            xp.add(dh[t], part, out=dh[t])
            if p.irregular:
                p.between(t)
        da = d.copy()
        xp.multiply(dh[1:], k_n, out=self.by_gate(da)["n"])
        p.parameters = [lambda: over_time(h_prev, d), lambda: rows(d_u).sum(axis=0)]
        return da

    def _backward_before(
        self, p: Pass, dy: Array | None, h_prev: Array, k_n: Array, k_z: Array, r: Array, z: Array
    ) -> Array:
        s, xp, H, (dh,) = p.saved, p.saved.xp, self.H, p.adjoints
        k_r = h_prev * (r * (1 - r))
        da = xp.empty_like(s.A)
        da_rz, da_n = da[..., : 2 * H], da[..., 2 * H :]
        W_rzT, W_nT = xp.ascontiguousarray(s.W_h[:, : 2 * H].T), xp.ascontiguousarray(s.W_h[:, 2 * H :].T)
        d_rz, d_n = xp.empty_like(da_rz[0]), xp.empty_like(dh[0])
        dm, part = xp.empty_like(dh[0]), xp.empty_like(dh[0])
        for t in range(s.T - 1, -1, -1):
            dh_t = dh[t + 1]
            if dy is not None:
                xp.add(dh_t, dy[t], out=dh_t)
            xp.multiply(dh_t, k_n[t], out=d_n)
            xp.matmul(d_n, W_nT, out=dm)
            xp.multiply(dm, k_r[t], out=d_rz[:, :H])
            xp.multiply(dh_t, k_z[t], out=d_rz[:, H:])
            xp.matmul(d_rz, W_rzT, out=dh[t])
            for d, k in ((dm, r[t]), (dh_t, z[t])):
                xp.multiply(d, k, out=part)
                xp.add(dh[t], part, out=dh[t])
            da_n[t], da_rz[t] = d_n, d_rz
            if p.irregular:
                p.between(t)
        p.parameters = [lambda: xp.concatenate([over_time(h_prev, da_rz), over_time(r * h_prev, da_n)], axis=1)]
        return da


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
