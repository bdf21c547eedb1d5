"""The Gram matrix ⟨C_i, C_j⟩ over pairs of steps: every figure of every truncation, without going back to the model.

A truncated gradient is g = Σ w_i C_i over the pairs i = (t, s), so its size and its angle to the full gradient G follow
from the weights w and the matrix K[i, j] = ⟨C_i, C_j⟩: ‖g‖² = wᵀ K w, ⟨g, G⟩ = wᵀ K 1, ‖G‖² = 1ᵀ K 1. The matrix
itself is worked out in together.py and apart.py. Read after together.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .backend import host_array
from .module import check_number


def checked_weights(w: Any, T: int) -> np.ndarray:
    """Weights on the pairs as an array (T, T) of floats, w[t, s] being that of source step s in the loss of step t.

    TypeError for what holds no real numbers. ValueError for an array of another shape, for numbers that are not finite
    and for weight above the diagonal: no loss reaches forward in time.
    """
    w = host_array("weights", w)
    if w.dtype.kind not in "fiub":
        raise TypeError(f"weights must be real numbers (T, T), such as schedule.coverage({T}); found {w.dtype}")
    if w.shape != (T, T):
        raise ValueError(f"weights must have shape (T, T) = {(T, T)}, found {w.shape}")
    if not np.isfinite(w).all() or np.triu(w, 1).any():
        raise ValueError("weights must be finite, and 0 above the diagonal: no loss reaches forward in time")
    return w.astype(float)


class Gram:
    """K[i, j] = ⟨C_i, C_j⟩ in float64, (P, P) with P = T(T + 1)/2; pair i is the loss step t[i] and source step s[i].

    The pairs go by loss step, then by source step: i = t(t + 1)/2 + s, from 0. Weights are (T, T) arrays, such as
    `schedule.coverage(T)`. The figures are those of `compare`.
    """

    def __init__(self, T: int, K: np.ndarray):
        self.T, self.K = T, K
        self.t, self.s = np.tril_indices(T)
        self._KG = K.sum(axis=1)  # ⟨C_i, G⟩
        self._GG = float(self._KG.sum())

    def _vector(self, w: np.ndarray) -> np.ndarray:
        return checked_weights(w, self.T)[self.t, self.s]

    def dot(self, w: np.ndarray, v: np.ndarray) -> float:
        """⟨g_w, g_v⟩."""
        return float(self._vector(w) @ (self.K @ self._vector(v)))

    def norm(self, w: np.ndarray) -> float:
        """‖g_w‖."""
        return math.sqrt(max(0.0, self.dot(w, w)))

    def share(self, w: np.ndarray) -> float:
        """⟨g_w, G⟩ / ‖G‖²; nan where G is 0."""
        return float(self._vector(w) @ self._KG) / self._GG if self._GG > 0 else math.nan

    def error(self, w: np.ndarray) -> float:
        """‖g_w − G‖ / ‖G‖, of the missing pairs themselves: no difference of large numbers. nan where G is 0."""
        missing = np.tri(self.T) - checked_weights(w, self.T)
        return self.norm(missing) / math.sqrt(self._GG) if self._GG > 0 else math.nan

    def cosine(self, w: np.ndarray) -> float:
        """The cosine between g_w and G; nan where one of them is 0."""
        ratio = self.norm_ratio(w)
        return self.share(w) / ratio if ratio else math.nan

    def norm_ratio(self, w: np.ndarray) -> float:
        """‖g_w‖ / ‖G‖; nan where G is 0."""
        return self.norm(w) / math.sqrt(self._GG) if self._GG > 0 else math.nan

    def artbp_variance(self, p_cut: float) -> float:
        """E‖g − G‖² / ‖G‖² of randomised truncation, in closed form; its mean is G.

        A boundary's factor is 0 with probability p, else 1/(1 − p): its mean is 1, its mean square 1/(1 − p), and
        boundaries are independent. So E[w_i w_j] = (1/(1 − p))^n, n being how many boundaries the pairs i and j have in
        common. ValueError for p outside [0, 1). The scheme: Tallec and Ollivier 2017.
        """
        p_cut = check_number("p_cut", p_cut, 0, 1)
        if not self._GG > 0:
            return math.nan
        excess = 0.0
        for i in range(len(self.K)):  # a row at a time, so that no second matrix of this size is made
            common = np.minimum(self.t[i], self.t) - np.maximum(self.s[i], self.s)
            excess += float((np.expm1(-math.log1p(-p_cut) * np.maximum(common, 0))) @ self.K[i])
        return excess / self._GG
