"""The LSTM (Hochreiter and Schmidhuber 1997; the forget gate from Gers, Schmidhuber and Cummins 2000).

Read after rnn.py.

Gates in the order i, f, g, o, side by side in the last axis of W_x (D, 4H), W_h (H, 4H) and b (4H,).
Forward, for t = 1 … T:

    z_t = x_t @ W_x + h_{t−1} @ W_h + b
    i_t = σ(z_i)    f_t = σ(z_f)    g_t = tanh(z_g)    o_t = σ(z_o)
    c_t = f_t · c_{t−1} + i_t · g_t
    h_t = o_t · tanh(c_t)                        the output y_t is h_t too

Backward, for t = T … 1, from dy_t = ∂L/∂y_t and from the adjoints of the final state, which start dh_T, dc_T:

    dh_t += dy_t                                 the adjoint ∂L/∂h_t
    dc_t += dh_t · o_t (1 − tanh² c_t)           the adjoint ∂L/∂c_t
    dz_i = dc_t · g_t i_t (1 − i_t)              dz_f = dc_t · c_{t−1} f_t (1 − f_t)
    dz_g = dc_t · i_t (1 − g_t²)                 dz_o = dh_t · tanh(c_t) o_t (1 − o_t)
    dh_{t−1} = dz_t @ W_hᵀ                       dc_{t−1} = dc_t · f_t
    dW_x = Σ x_tᵀ @ dz_t      dW_h = Σ h_{t−1}ᵀ @ dz_t      db = Σ dz_t      dx_t = dz_t @ W_xᵀ
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import ops
from ..backend import Array, library_of, use_backend
from ..module import Rng, check_number, check_size, generator, uniform
from ..parameters import assign
from ..tensor import Tensor, zeros
from .base import Cell
from .buffers import empty
from .explicit import Factors, Pass, Saved, backwards, block_length, input_gradient, over_time, products, rows
from .fused import lstm_backward, lstm_forward
from .kernels import fusing


class LSTMCell(Cell):
    """One LSTM layer. D: inputs; H: hidden units.

    W_x, W_h and b are drawn from U(−1/√H, 1/√H), but the forget gate's part of b is set to `forget_bias`: a real
    parameter value, which learns (Gers et al. 2000; Jozefowicz et al. 2015). rng: an int or a generator. dtype:
    float32 unless given. ValueError for sizes below 1.
    """

    gates = ("i", "f", "g", "o")
    state_names = ("h", "c")

    def __init__(self, D: int, H: int, *, forget_bias: float = 1.0, rng: Rng = None, dtype: Any = None):
        check_size("LSTMCell", D=D, H=H)
        forget_bias = check_number("LSTMCell: forget_bias", forget_bias, -math.inf, above=True)
        rng, bound = generator(rng), H**-0.5
        self.D, self.H = D, H
        self.W_x = uniform(rng, bound, (D, 4 * H), dtype)
        self.W_h = uniform(rng, bound, (H, 4 * H), dtype)
        self.b = uniform(rng, bound, (4 * H,), dtype)
        b = self.b.value.copy()
        self.by_gate(b)["f"][:] = forget_bias
        assign(self.b, b)

    def zero_state(self, batch: int) -> tuple[Tensor, Tensor]:
        """(h₀, c₀) = 0, each (batch, H)."""
        check_size("zero_state", batch=batch)
        with use_backend(library_of(self.W_h.value)):
            return zeros((batch, self.H), dtype=self.W_h.dtype), zeros((batch, self.H), dtype=self.W_h.dtype)

    def step(self, x: Any, state: Any) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """h_t and (h_t, c_t), each (B, H)."""
        h, c = state
        z_i, z_f, z_g, z_o = ops.split(x @ self.W_x + h @ self.W_h + self.b, 4, -1)
        i, f, g, o = ops.sigmoid(z_i), ops.sigmoid(z_f), ops.tanh(z_g), ops.sigmoid(z_o)
        c = f * c + i * g
        h = o * ops.tanh(c)
        return h, (h, c)

    def forward(
        self, x: Array, state: list[Array], real: np.ndarray | None = None, resets: np.ndarray | None = None
    ) -> Saved:
        """The whole sequence by hand. x: (T, B, D); state: [h₀, c₀], (B, H) each; see `explicit.Saved`."""
        s = Saved(self, x, state, real, resets)
        if fusing(s.xp, x.dtype):
            return lstm_forward(self, s)
        xp, H, (h, c) = s.xp, self.H, s.states
        # σ(z) = ½ + ½ tanh(z/2), so one tanh serves all gates: halve what goes into i, f, o, scale what comes out.
        scale, shift = _half_gates(xp, H, x.dtype)
        A = products(xp, x, s.W_x * scale, self.b.value * scale)  # z_t, then i, f, g, o, step by step
        W_h = s.W_h * scale
        i_, f_, g_, o_ = self.by_gate(A).values()
        tanh_c_ = empty(xp, (s.T, s.B, H), x.dtype)
        z, ig = xp.empty_like(A[0]), xp.empty_like(h[0])
        h_prev, c_prev = h[0], c[0]
        steps = zip(A, i_, f_, g_, o_, tanh_c_, c[1:], h[1:])
        for t, (a, i, f, g, o, tanh_c, c_t, h_t) in enumerate(steps):
            if s.irregular:
                h_prev, c_prev = before = s.before(t)
            xp.matmul(h_prev, W_h, out=z)
            xp.add(a, z, out=a)
            xp.tanh(a, out=a)
            xp.multiply(a, scale, out=a)
            xp.add(a, shift, out=a)
            xp.multiply(f, c_prev, out=c_t)
            xp.multiply(i, g, out=ig)
            xp.add(c_t, ig, out=c_t)
            xp.tanh(c_t, out=tanh_c)
            xp.multiply(o, tanh_c, out=h_t)
            if s.irregular:
                s.after(t, before)
            h_prev, c_prev = h_t, c_t
        s.A, s.tanh_c = A, tanh_c_
        return s

    def backward(
        self,
        s: Saved,
        dy: Array | None,
        d_final: list[Array | None],
        factors: Factors | None = None,
    ) -> Pass:
        """The whole sequence in reverse. dy: (T, B, H) or None; d_final: [dh_T, dc_T], each or None."""
        p = Pass(s, d_final, factors)
        by_kernels = fusing(s.xp, s.x.dtype)
        dz = lstm_backward(self, p, p.real_only(dy)) if by_kernels else self._backward(p, p.real_only(dy))
        p.gates = self.by_gate(dz)
        p.dx = lambda: input_gradient(s, dz)
        p.parameters = [
            lambda: over_time(s.x, dz),
            lambda: over_time(s.all_before(0), dz),
            lambda: rows(dz).sum(axis=0),
        ]
        return p

    def _backward(self, p: Pass, dy: Array | None) -> Array:
        """dz (T, B, 4H); fills the adjoints of p."""
        s, xp, (dh, dc) = p.saved, p.saved.xp, p.adjoints
        f_ = self.by_gate(s.A)["f"]
        W_hT = xp.ascontiguousarray(s.W_h.T)
        dz = empty(xp, s.A.shape, s.A.dtype)  # holds each step's local derivatives first, dz_t when its turn comes
        dz_i, dz_f, dz_g, dz_o = self.by_gate(dz).values()
        dc_dh = empty(xp, s.tanh_c.shape, s.A.dtype)  # o (1 − tanh² c)
        part = xp.empty_like(dh[0])
        c_prev = s.all_before(1)
        ahead = block_length(s.A[0])
        steps = backwards(s.T, dh[1:], dh[:-1], dc[1:], dc[:-1], dz, dz_i, dz_f, dz_g, dz_o, dc_dh, f_, dy)
        for t, dh_t, dh_prev, dc_t, dc_prev, dz_t, i, f, g, o, dc_dh_t, f_t, dy_t in steps:
            if (s.T - 1 - t) % ahead == 0:
                self.local_derivatives(s, c_prev, dz, dc_dh, slice(max(0, t + 1 - ahead), t + 1))
            if dy_t is not None:
                xp.add(dh_t, dy_t, out=dh_t)
            xp.multiply(dh_t, dc_dh_t, out=part)
            xp.add(dc_t, part, out=dc_t)
            xp.multiply(i, dc_t, out=i)
            xp.multiply(f, dc_t, out=f)
            xp.multiply(g, dc_t, out=g)
            xp.multiply(o, dh_t, out=o)
            xp.matmul(dz_t, W_hT, out=dh_prev)
            xp.multiply(dc_t, f_t, out=dc_prev)
            if p.irregular:
                p.between(t)
        return dz

    def local_derivatives(self, s: Saved, c_prev: Array, dz: Array, dc_dh: Array, steps: slice) -> None:
        """What dc_t and dh_t are multiplied by on the way to dz_t, for a block of steps, written into dz and dc_dh."""
        xp = s.xp
        i, _, g, o = self.by_gate(s.A[steps]).values()
        k_i, k_f, k_g, k_o = self.by_gate(dz[steps]).values()
        a, k, k_c, tanh_c = s.A[steps], dz[steps], dc_dh[steps], s.tanh_c[steps]
        xp.subtract(1, a, out=k)
        xp.multiply(k, a, out=k)  # σ' = σ (1 − σ) in all gates; g is put right below
        xp.multiply(k_i, g, out=k_i)
        xp.multiply(k_f, c_prev[steps], out=k_f)
        xp.multiply(g, g, out=k_g)
        xp.subtract(1, k_g, out=k_g)
        xp.multiply(k_g, i, out=k_g)
        xp.multiply(k_o, tanh_c, out=k_o)
        xp.multiply(tanh_c, tanh_c, out=k_c)
        xp.subtract(1, k_c, out=k_c)
        xp.multiply(k_c, o, out=k_c)
        if s.real is not None:  # a padded step has no derivative
            k[...] = xp.where(s.real[steps], k, 0)
            k_c[...] = xp.where(s.real[steps], k_c, 0)


def _half_gates(xp: Any, H: int, dtype: Any) -> tuple[Array, Array]:
    """½ in the sigmoid gates i, f, o and 1 in g, to scale by; ½ and 0, to add. (4H,) each."""
    scale, shift = np.full(4 * H, 0.5, dtype), np.full(4 * H, 0.5, dtype)
    scale[2 * H : 3 * H], shift[2 * H : 3 * H] = 1, 0
    return xp.asarray(scale), xp.asarray(shift)
