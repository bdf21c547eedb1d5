"""The matrix C: what the loss of each step asks of the parameters used at each step. Read after cutting.py.

dL/dθ = Σ_t Σ_{s≤t} C[t, s] with C[t, s] = ∂L_t/∂θ_s, θ_s being the copy of the parameters that is used at step s, in
whatever layer, and L_t the part of the loss that falls on the outputs of step t. Every truncation is a weight on these
pairs, so the matrix explains them all. The C[t, s] cancel, so their norms mislead; what a pair is worth is its signed
share of the full gradient G, P[t, s] = ⟨C[t, s], G⟩ / ‖G‖², and Σ P = 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from . import ops
from .backend import to_numpy
from .cutting import call_loss, refuse_parameters_in_the_loss
from .gradients import Gradients
from .module import Rng, evaluating
from .sequence import real_steps, run, sequence_input
from .tape import Tape, no_tape
from .tensor import Tensor
from .truncation import Schedule


class Contributions:
    """The pairs (loss step t, source step s) of one model on one batch; arrays are indexed from 0, [t, s].

    norms: ‖C[t, s]‖, (T, T). share: P[t, s], signed, (T, T), Σ = 1. norms_of, shares_of: the same by parameter, the
    shares summing to `share`. full: G. loss: its value. T: steps.
    """

    def __init__(self, tape: Tape, model: Any, outputs: list[Tensor], seeds: Any, full: Gradients, loss: float):
        self.T, self.full, self.loss = len(outputs), full, loss
        self._tape, self._model, self._outputs, self._seeds = tape, model, outputs, seeds
        names = list(model.parameters())
        self.norms_of = {name: np.zeros((self.T, self.T)) for name in names}
        self.shares_of = {name: np.zeros((self.T, self.T)) for name in names}
        size = self.full.dot(self.full)
        for t in range(self.T):
            for s, C in self._row(t).items():
                for name in names:
                    part = Gradients({name: C[name]})
                    self.norms_of[name][t, s] = part.norm()
                    self.shares_of[name][t, s] = part.dot({name: self.full[name]}) / size if size else math.nan
        self.norms = np.sqrt(sum(norms**2 for norms in self.norms_of.values()))
        self.share = np.asarray(sum(self.shares_of.values()))

    def _row(self, t: int) -> dict[int, Gradients]:
        """C[t, s] for every source step s (from 0) that the loss of step t reaches."""
        row = self._tape.gradient_by_step(self._outputs[t], self._model, seed=self._seeds[t])
        return {step - 1: C for step, C in row.items()}

    @property
    def norm_by_lag(self) -> np.ndarray:
        """Σ ‖C[t, t − lag]‖ over t, (T,)."""
        return np.array([np.diagonal(self.norms, -lag).sum() for lag in range(self.T)])

    @property
    def share_by_lag(self) -> np.ndarray:
        """Σ P[t, t − lag] over t, (T,); its running sum may pass 1 or fall below 0."""
        return np.array([np.diagonal(self.share, -lag).sum() for lag in range(self.T)])

    def gradient(self, weights: Schedule | Any, rng: Rng = None) -> Gradients:
        """Σ w[t, s]·C[t, s] for a schedule or an array (T, T) of one's own, in one backward pass for each loss step.

        ValueError for an array of another shape or with weight above the diagonal: no loss reaches forward in time.
        """
        w = weights.coverage(self.T, rng) if isinstance(weights, Schedule) else np.asarray(weights, dtype=float)
        if w.shape != (self.T, self.T):
            raise ValueError(f"weights must have shape (T, T) = {(self.T, self.T)}, found {w.shape}")
        if not np.isfinite(w).all() or np.triu(w, 1).any():
            raise ValueError("weights must be finite, and 0 above the diagonal: no loss reaches forward in time")
        total = 0 * self._tape.gradient(self._outputs[-1], self._model, seed=self._seeds[-1])
        for t in range(self.T):
            if w[t].any():
                for s, C in self._row(t).items():
                    total = total + float(w[t, s]) * C
        return total

    def kept_share(self, weights: Schedule | Any, rng: Rng = None) -> float:
        """Σ w·P: the part of full BPTT's first-order decrease of the loss that these weights keep."""
        w = weights.coverage(self.T, rng) if isinstance(weights, Schedule) else np.asarray(weights, dtype=float)
        return float((w * self.share).sum())

    def missing(self, schedule: Schedule, rng: Rng = None) -> np.ndarray:
        """The share that each boundary takes away, (T,), by the index of the step that it precedes.

        A missing pair belongs to the first closed boundary that one meets going back from t, one that is only scaled to
        the first boundary that scales, so that nothing is counted twice: the sum over all boundaries is Σ (1 − w)·P. A
        loss that is never reached belongs to its own step's index.
        """
        plan, taken = schedule.plan(self.T, rng), np.zeros(self.T)
        w, owner = plan.coverage(), {t: update for update in plan.updates for t in update.losses}
        for t in range(self.T):
            for s in range(t + 1):
                if w[t, s] != 1:
                    factors = owner[t].factors if t in owner else None
                    crossed = [b for b in range(s + 1, t + 1) if factors and factors[b] != 1]
                    closed = [b for b in crossed if factors and factors[b] == 0]
                    taken[max(closed or crossed, default=t)] += (1 - w[t, s]) * self.share[t, s]
        return taken

    def __repr__(self) -> str:
        return (
            f"Contributions(T = {self.T}, ‖G‖ = {self.full.norm():.4g}, sum of norms {self.norms.sum():.4g}, "
            f"share within 8 steps {self.share_by_lag[:8].sum():.3f})"
        )


def contributions(
    model: Any,
    x: Any,
    y: Any,
    loss: Callable[..., Tensor],
    *,
    state: Any = None,
    lengths: Any = None,
    mask: Any = None,
    resets: Any = None,
) -> Contributions:
    """The matrix C of any causal model whose layers can run one step at a time, with every parameter use on the clock.

    x: (T, B, …); y: what loss(outputs, y) wants; the rest as for `unroll`. Dropout is off. One tape holds the whole
    sequence; each loss step takes one backward pass, and no array of the size of the parameters is kept for a pair.
    A layer with engine="explicit" is run step by step, which gives the same numbers.
    ValueError where the model reads the future or keeps its state to itself, and for a parameter inside the loss.
    """
    x = sequence_input(x)
    T, B = x.shape[:2]
    real = real_steps(T, B, lengths, mask)
    options: dict[str, Any] = {"mask": real, "resets": resets}
    with evaluating(model):
        with no_tape():
            at_once, _ = run(model, x, state, **options)
        with Tape() as tape:
            outputs = []
            for t in range(T):
                flags = {name: None if f is None else np.asarray(f)[t : t + 1] for name, f in options.items()}
                with tape.shifted(t), tape.at(1) if not hasattr(model, "zero_state") else nullcontext():
                    output, state = run(model, x[t : t + 1], state, **flags)
                outputs.append(output)
            recorded = len(tape.records)
            together = ops.concatenate(outputs)
            value = call_loss(loss, together, y, real)
    refuse_parameters_in_the_loss(tape, recorded)
    whole, steps = to_numpy(at_once), to_numpy(together)
    if not np.allclose(whole, steps, rtol=1e-3, atol=1e-5 * (1 + np.abs(whole).max())):
        raise ValueError(
            f"{type(model).__name__} gives other outputs one step at a time than on the whole sequence: it reads the "
            "future, or keeps its state to itself. Contributions need a causal model that takes and returns its state"
        )
    seeds = tape.gradient(value, together)
    full = tape.gradient(together, model, seed=seeds)
    return Contributions(tape, model, outputs, [seeds[t : t + 1] for t in range(T)], full, value.item())
