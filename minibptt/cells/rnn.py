"""The plain recurrent cell (Elman 1990), with tanh, relu or no nonlinearity. Read after explicit.py.

Forward, for t = 1 … T:

    a_t = x_t @ W_x + h_{t−1} @ W_h + b          x_t (B, D), W_x (D, H), W_h (H, H), b (H,)
    h_t = φ(a_t)                                 h_t (B, H); the output y_t is h_t too

Backward, for t = T … 1, from dy_t = ∂L/∂y_t and from the adjoint of the final state, which starts dh_T:

    dh_t += dy_t                                 the adjoint ∂L/∂h_t
    da_t = dh_t · φ'(a_t)                        tanh: 1 − h_t²;  relu: h_t > 0;  linear: 1
    dh_{t−1} = da_t @ W_hᵀ
    dW_x = Σ x_tᵀ @ da_t      dW_h = Σ h_{t−1}ᵀ @ da_t      db = Σ da_t      dx_t = da_t @ W_xᵀ
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
from .explicit import Factors, Pass, Saved, backwards, input_gradient, over_time, products, rows
from .fused import rnn_backward, rnn_forward
from .kernels import fusing

NONLINEARITIES = {"tanh": ops.tanh, "relu": ops.relu, "linear": None}


class RNNCell(Cell):
    """h_t = φ(x_t @ W_x + h_{t−1} @ W_h + b).

    D: inputs; H: hidden units; nonlinearity: "tanh", "relu" or "linear". W_x, W_h and b are drawn from
    U(−1/√H, 1/√H). rng: an int or a generator. dtype: float32 unless given.
    ValueError for sizes below 1 and for an unknown nonlinearity.
    """

    state_names = ("h",)

    def __init__(self, D: int, H: int, nonlinearity: str = "tanh", *, rng: Rng = None, dtype: Any = None):
        check_size("RNNCell", D=D, H=H)
        if nonlinearity not in NONLINEARITIES:
            raise ValueError(
                f"RNNCell: nonlinearity must be one of {', '.join(NONLINEARITIES)}, found {nonlinearity!r}"
            )
        rng, bound = generator(rng), H**-0.5
        self.D, self.H, self.nonlinearity = D, H, nonlinearity
        self.W_x = uniform(rng, bound, (D, H), dtype)
        self.W_h = uniform(rng, bound, (H, H), dtype)
        self.b = uniform(rng, bound, (H,), dtype)

    def zero_state(self, batch: int) -> Tensor:
        """h₀ = 0, (batch, H)."""
        check_size("zero_state", batch=batch)
        with use_backend(library_of(self.W_h.value)):
            return zeros((batch, self.H), dtype=self.W_h.dtype)

    def step(self, x: Any, h: Any) -> tuple[Tensor, Tensor]:
        """h_t (B, H), twice: as output and as state."""
        a = x @ self.W_x + h @ self.W_h + self.b
        φ = NONLINEARITIES[self.nonlinearity]
        h = a if φ is None else φ(a)
        return h, h

    def forward(
        self, x: Array, state: list[Array], real: np.ndarray | None = None, resets: np.ndarray | None = None
    ) -> Saved:
        """The whole sequence by hand. x: (T, B, D); state: [h₀ (B, H)]; see `explicit.Saved` for the rest."""
        s = Saved(self, x, state, real, resets)
        if fusing(s.xp, x.dtype):
            return rnn_forward(self, s)
        xp, (h,), W_h = s.xp, s.states, s.W_h
        A = products(xp, x, s.W_x, self.b.value)
        h_prev = h[0]
        for t, (a, h_t) in enumerate(zip(A, h[1:])):
            if s.irregular:
                (h_prev,) = before = s.before(t)
            xp.matmul(h_prev, W_h, out=h_t)
            xp.add(h_t, a, out=h_t)
            if self.nonlinearity == "tanh":
                xp.tanh(h_t, out=h_t)
            elif self.nonlinearity == "relu":
                xp.maximum(h_t, 0, out=h_t)
            if s.irregular:
                s.after(t, before)
            h_prev = h_t
        return s

    def backward(
        self,
        s: Saved,
        dy: Array | None,
        d_final: list[Array | None],
        factors: Factors | None = None,
    ) -> Pass:
        """The whole sequence in reverse. dy: (T, B, H) or None; d_final: [dh_T or None]; see `explicit.Pass`."""
        p = Pass(s, d_final, factors)
        by_kernels = fusing(s.xp, s.x.dtype)
        da = rnn_backward(self, p, p.real_only(dy)) if by_kernels else self._backward(p, p.real_only(dy))
        p.gates = {"a": da}
        p.dx = lambda: input_gradient(s, da)
        p.parameters = [
            lambda: over_time(s.x, da),
            lambda: over_time(s.all_before(0), da),
            lambda: rows(da).sum(axis=0),
        ]
        return p

    def _backward(self, p: Pass, dy: Array | None) -> Array:
        """da (T, B, H); fills the adjoints of p."""
        s, xp, (h,), (dh,) = p.saved, p.saved.xp, p.saved.states, p.adjoints
        W_hT = xp.ascontiguousarray(s.W_h.T)
        # φ'(a_t) for all steps at once; each becomes da_t when its turn comes.
        da = empty(xp, h[1:].shape, h.dtype)
        if self.nonlinearity == "tanh":
            xp.multiply(h[1:], h[1:], out=da)
            xp.subtract(1, da, out=da)
        elif self.nonlinearity == "relu":
            xp.greater(h[1:], 0, out=da, casting="unsafe")
        else:
            da[...] = 1
        da = p.real_only(da)
        for t, dh_t, dh_prev, da_t, dy_t in backwards(s.T, dh[1:], dh[:-1], da, dy):
            if dy_t is not None:
                xp.add(dh_t, dy_t, out=dh_t)
            xp.multiply(dh_t, da_t, out=da_t)
            xp.matmul(da_t, W_hT, out=dh_prev)
            if p.irregular:
                p.between(t)
        return da
