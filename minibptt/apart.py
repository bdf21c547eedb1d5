"""The contributions C[t, s] of any causal model: one backward pass for each loss step, over a tape of single steps.

The model is run one step at a time, so that every use of a parameter stands at one step of the clock. Read after
parts.py, and before together.py, which gives the same numbers faster for the layers that it knows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from . import ops
from .backend import Array, to_numpy
from .gradients import Gradients
from .parts import Part, take
from .sequence import run
from .tape import Tape
from .tensor import Tensor


class Apart:
    """The pairs of a model that was run on `tape`; outputs: those of each step; seeds: ∂L/∂outputs (T, B, …)."""

    def __init__(self, tape: Tape, model: Any, outputs: list[Tensor], seeds: Array):
        self.tape, self.model, self.outputs, self.seeds = tape, model, outputs, seeds
        self.T = len(outputs)

    def row(self, t: int) -> dict[int, Gradients]:
        """C[t, s] for every source step s (from 0) that the loss of step t reaches."""
        row = self.tape.gradient_by_step(self.outputs[t], self.model, seed=self.seeds[t : t + 1])
        return {step - 1: C for step, C in row.items()}

    def pairs(self) -> Iterator[tuple[int, int, Gradients]]:
        """(t, s, C[t, s]) for every pair that is reached, one after the other."""
        for t in range(self.T):
            for s, C in self.row(t).items():
                yield t, s, C

    def measure(self, parts: Mapping[str, Part], G: Gradients) -> tuple[dict[str, Array], dict[str, Array]]:
        """(‖C[t, s]‖², ⟨C[t, s], G⟩) by part, (T, T) each, on the host."""
        squares, dots = ({name: np.zeros((self.T, self.T)) for name in parts} for _ in range(2))
        of_G = {name: take(G, part) for name, part in parts.items()}
        for t, s, C in self.pairs():
            for name, part in parts.items():
                mine = take(C, part)
                squares[name][t, s], dots[name][t, s] = mine.dot(mine), mine.dot(of_G[name])
        return squares, dots

    def gram_bytes(self, part: Part, G: Gradients) -> int:
        """How many bytes `gram` needs: the matrix, and every C[t, s] in float64."""
        P = self.T * (self.T + 1) // 2
        return 8 * P * (P + sum(array.size for array in take(G, part).values()))

    def gram(self, part: Part, G: Gradients) -> np.ndarray:
        """⟨C_i, C_j⟩ over all pairs (see gram.Gram), of the parameters and columns in `part`."""
        arrays = take(G, part)
        rows = np.zeros((self.T * (self.T + 1) // 2, sum(array.size for array in arrays.values())))
        for t, s, C in self.pairs():
            mine = take(C, part)
            rows[t * (t + 1) // 2 + s] = np.concatenate([to_numpy(mine[name]).reshape(-1) for name in arrays])
        return rows @ rows.T

    def gradient_of_all(self) -> Gradients:
        """Σ C[t, s]: the full gradient, in one backward pass."""
        with self.tape:
            together = ops.concatenate(self.outputs)
        return self.tape.gradient(together, self.model, seed=self.seeds)

    def gradient(self, w: np.ndarray) -> Gradients:
        """Σ w[t, s]·C[t, s], in one backward pass for each loss step that has weight."""
        total = 0 * self.tape.gradient(self.outputs[-1], self.model, seed=self.seeds[-1:])
        for t in range(self.T):
            if w[t].any():
                for s, C in self.row(t).items():
                    total = total + float(w[t, s]) * C
        return total


def one_step_at_a_time(
    model: Any,
    x: Any,
    whole: Array,
    seeds: Array,
    state: Any,
    options: Mapping[str, np.ndarray | None],
    most_bytes: float = math.inf,
) -> Apart:
    """Run `model` step by step on a tape whose clock goes on; whole: its outputs on the sequence at once, (T, B, …).

    ValueError where the two differ, and, after the first step, where the tape would need more than most_bytes.
    """
    outputs = []
    with Tape() as tape:
        for t in range(len(x)):
            flags = {name: None if f is None else f[t : t + 1] for name, f in options.items()}
            with tape.shifted(t), tape.at(1):  # what is no step of a cell stands here too, the initial state's making
                output, state = run(model, x[t : t + 1], state, **flags)
            outputs.append(output)
            needed = len(x) * sum(out.value.nbytes for record in tape.records for out in record.outputs) if not t else 0
            if needed > most_bytes:
                raise ValueError(
                    f"a tape of T = {len(x)} steps would need about {needed / 2**20:,.0f} MiB, and "
                    f"{most_bytes / 2**20:,.0f} MiB are left. Take a shorter sequence or fewer rows, or give a larger "
                    "most_bytes"
                )
    found, expected = to_numpy(ops.concatenate(outputs)), to_numpy(whole)
    if not np.allclose(expected, found, rtol=1e-3, atol=1e-5 * (1 + np.abs(expected).max())):
        raise ValueError(
            f"{type(model).__name__} gives other outputs one step at a time than on the whole sequence: it reads the "
            "future, or keeps its state to itself. Contributions need a causal model that takes and returns its state"
        )
    return Apart(tape, model, outputs, seeds)
