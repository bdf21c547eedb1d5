"""The matrix C: what the loss of each step asks of the parameters used at each step. Read after cutting.py.

dL/dθ = Σ_t Σ_{s≤t} C[t, s] with C[t, s] = ∂L_t/∂θ_s, θ_s being the copy of the parameters that is used at step s, in
whatever layer, and L_t the part of the loss that falls on the outputs of step t. Every truncation is a weight on these
pairs, so the matrix explains them all. The C[t, s] cancel, so their norms mislead; what a pair is worth is its signed
share of the full gradient G, P[t, s] = ⟨C[t, s], G⟩ / ‖G‖², and Σ P = 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .apart import Apart, one_step_at_a_time
from .given import as_schedule
from .gradients import Gradients
from .gram import Gram, checked_weights
from .module import Rng, check_model, check_number, evaluating, generators, random_states, restore_random
from .objective import call_loss, refuse_parameters_in_the_loss
from .parts import Part, parts_of
from .sequence import flags, real_steps, run, sequence_input
from .tape import Tape
from .tensor import Tensor
from .together import Together
from .truncation import Schedule


class Contributions:
    """The pairs (loss step t, source step s) of one model on one batch; arrays are indexed from 0, [t, s].

    norms: ‖C[t, s]‖, (T, T). share: P[t, s], signed, (T, T), Σ = 1. norms_of, shares_of: the same by part (see
    parts.py): the shares of all parameters sum to `share`, and so do those of all gates and of the parameters that
    have none. full: G. loss: its value. T: steps. pairs: what they were worked out from.
    """

    def __init__(self, pairs: Apart | Together, full: Gradients, loss: float):
        self.T, self.full, self.loss = pairs.T, full, loss
        self.pairs = pairs
        squares, dots = pairs.measure(parts_of(pairs.model), full)
        size = full.dot(full) or math.nan
        self.norms_of = {name: np.sqrt(square) for name, square in squares.items()}
        self.shares_of = {name: dot / size for name, dot in dots.items()}
        self.norms = np.sqrt(sum(squares[name] for name in full))
        self.share = np.asarray(sum(self.shares_of[name] for name in full))

    @property
    def norm_by_lag(self) -> np.ndarray:
        """Σ ‖C[t, t − lag]‖ over t, (T,)."""
        return np.array([np.diagonal(self.norms, -lag).sum() for lag in range(self.T)])

    @property
    def share_by_lag(self) -> np.ndarray:
        """Σ P[t, t − lag] over t, (T,); its running sum may pass 1 or fall below 0."""
        return np.array([np.diagonal(self.share, -lag).sum() for lag in range(self.T)])

    def gradient(self, weights: Schedule | Any, rng: Rng = None) -> Gradients:
        """Σ w[t, s]·C[t, s] for a schedule or an array (T, T) of one's own.

        ValueError for an array of another shape or with weight above the diagonal: no loss reaches forward in time.
        """
        return self.pairs.gradient(self._weights(weights, rng))

    def kept_share(self, weights: Schedule | Any, rng: Rng = None) -> float:
        """Σ w·P: the part of full BPTT's first-order decrease of the loss that these weights keep.

        weights and errors as for `gradient`.
        """
        return float((self._weights(weights, rng) * self.share).sum())

    def _weights(self, weights: Schedule | Any, rng: Rng) -> np.ndarray:
        return checked_weights(weights.coverage(self.T, rng) if isinstance(weights, Schedule) else weights, self.T)

    def gram_bytes(self, part: str | None = None) -> int:
        """About how many bytes `gram` will need."""
        return self.pairs.gram_bytes(self._part(part), self.full)

    def gram(self, part: str | None = None, most_bytes: int = 2**31) -> Gram:
        """The Gram matrix ⟨C_i, C_j⟩ over all pairs, of one part or of all: see gram.py.

        ValueError where it would need more than `most_bytes`: its size grows with T to the fourth power.
        """
        check_number("gram: most_bytes", most_bytes, above=True, infinite=True)
        needed = self.gram_bytes(part)
        if needed > most_bytes:
            raise ValueError(
                f"the Gram matrix of T = {self.T} steps ({self.T * (self.T + 1) // 2:,} pairs) needs about "
                f"{needed / 2**20:,.0f} MiB, and {most_bytes / 2**20:,.0f} MiB are allowed. Take a shorter sequence or "
                "fewer rows, or give a larger most_bytes"
            )
        return Gram(self.T, self.pairs.gram(self._part(part), self.full))

    def _part(self, name: str | None) -> Part:
        parts = parts_of(self.pairs.model)
        if name is not None and name not in parts:
            raise ValueError(f"there is no part {name!r}; there are {', '.join(parts)}")
        return {name: slice(None) for name in self.full} if name is None else parts[name]

    def missing(self, schedule: Schedule | Any, rng: Rng = None) -> np.ndarray:
        """The share that each boundary takes away, (T,), by the index of the step that it precedes.

        A missing pair belongs to the first closed boundary that one meets going back from t, one that is only scaled to
        the first boundary that scales, so that nothing is counted twice: the sum over all boundaries is Σ (1 − w)·P. A
        loss that is never reached belongs to its own step's index. schedule: or an array of weights, as for `bptt`.
        """
        plan, taken = as_schedule(schedule).plan(self.T, rng), np.zeros(self.T)
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
    dropout: bool = False,
    most_bytes: int = 2**32,
) -> Contributions:
    """The matrix C of any causal model whose layers can run one step at a time, with every parameter use on the clock.

    x: (T, B, …); y: what loss(outputs, y) wants; the rest as for `unroll`. dropout: leave it as the model has it; it is
    off otherwise. RNN, LSTM, GRU, Linear, Embedding and what Sequential makes of them take the adjoints of all losses
    back together (together.py); any other model is run on a tape one step at a time (apart.py). Both give the same
    numbers. A parameter in the initial state belongs to the first step.
    TypeError for what is no model. ValueError where the model has no parameters, reads the future or keeps its state to
    itself, for a parameter inside the loss, and where more than most_bytes would be needed: two matrices (T, T) for
    each part, and in apart.py a tape of T steps.
    """
    check_model(model)
    x = sequence_input(x)
    T, B = x.shape[:2]
    options: dict[str, Any] = {"mask": real_steps(T, B, lengths, mask), "resets": flags("resets", resets, T, B)}
    check_number("contributions: most_bytes", most_bytes, above=True, infinite=True)
    matrices = 16 * T * T * 2 * len(parts_of(model))
    if matrices > most_bytes:
        raise ValueError(
            f"the contributions of T = {T} steps need about {matrices / 2**20:,.0f} MiB, and {most_bytes / 2**20:,.0f} "
            "MiB are allowed. Take a shorter sequence, or give a larger most_bytes"
        )
    with evaluating(model, dropout):
        drawn = random_states(generators(model))
        with Tape() as tape:
            outputs, _ = run(model, x, state, **options)
            recorded = len(tape.records)
            value = call_loss(loss, tape.watch(outputs), y, options["mask"])
        refuse_parameters_in_the_loss(tape, recorded)
        if outputs.mark is not tape.mark:
            raise ValueError("the outputs depend on no parameter: there is no gradient to take apart")
        seeds = tape.gradient(value, outputs)
        pairs: Apart | Together | None = Together.made(model, x, seeds, state, options["mask"], resets)
        if pairs is not None:
            full = tape.gradient(outputs, model, seed=seeds)
        else:
            restore_random(generators(model), drawn)  # the same masks again
            del tape  # so that the two tapes are not in memory at once
            pairs = one_step_at_a_time(model, x, outputs.value, seeds, state, options, most_bytes - matrices)
            full = pairs.gradient_of_all()
    return Contributions(pairs, full, value.item())
