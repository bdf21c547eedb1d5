"""The plain recurrent cell (Elman 1990), with tanh, relu or no nonlinearity.

a_t = x_t @ W_x + h_{t−1} @ W_h + b          x_t (B, D), W_x (D, H), W_h (H, H), b (H,)
h_t = φ(a_t)                                 h_t (B, H); the output of the step is h_t too
"""

from __future__ import annotations

from typing import Any

from .. import ops
from ..backend import library_of, use_backend
from ..module import Rng, check_size, generator, uniform
from ..tensor import Tensor, zeros
from .base import Cell

NONLINEARITIES = {"tanh": ops.tanh, "relu": ops.relu, "linear": None}


class RNNCell(Cell):
    """h_t = φ(x_t @ W_x + h_{t−1} @ W_h + b).

    D: inputs; H: hidden units; nonlinearity: "tanh", "relu" or "linear". W_x, W_h and b are drawn from
    U(−1/√H, 1/√H). rng: an int or a generator. dtype: float32 unless given.
    ValueError for sizes below 1 and for an unknown nonlinearity.
    """

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
        with use_backend(library_of(self.W_h.value)):
            return zeros((batch, self.H), dtype=self.W_h.dtype)

    def step(self, x: Any, h: Any) -> tuple[Tensor, Tensor]:
        """h_t (B, H), twice: as output and as state."""
        a = x @ self.W_x + h @ self.W_h + self.b
        φ = NONLINEARITIES[self.nonlinearity]
        h = a if φ is None else φ(a)
        return h, h
