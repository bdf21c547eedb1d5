"""What a hand-written pass should give, from the tape, and how far off it may be. Read after contract.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from ..backend import use_backend
from ..cells import GRUCell, LSTMCell, RNNCell
from ..ops import sum as sum_of
from ..parameters import assign
from ..sequence import unroll
from ..tape import Tape
from . import by_hand
from .by_hand import GATES, Arrays, Case
from .contract import Contract
from .mistakes import Mistake

CELLS: dict[str, Callable[..., Any]] = {
    "rnn": RNNCell,
    "lstm": LSTMCell,
    "gru": lambda D, H, **o: GRUCell(D, H, reset="after", **o),
    "gru-before": lambda D, H, **o: GRUCell(D, H, reset="before", **o),
}
TOLERANCE = {8: 1e-9, 4: 2e-5, 2: 2e-2}  # by the bytes of the coarsest float type in use, of the largest entry


def draw(
    contract: Contract, T: int, B: int, D: int, H: int, scale: float, dtype: Any, rng: np.random.Generator
) -> Case:
    """Arrays of ordinary size, so that no gate saturates unless `scale` is large and every mistake shows."""
    N = len(GATES[contract.like]) * H

    def normal(*shape: int, times: float = 1.0) -> np.ndarray:
        return (times * rng.standard_normal(shape)).astype(dtype)

    lstm = contract.like == "lstm"
    has_c = {"c0", "c_prev"} & set(contract.takes)
    return Case(
        contract.like,
        x=normal(T, B, D),
        h0=normal(B, H, times=0.5),
        c0=normal(B, H, times=1.0 if has_c else 0.0) if lstm else None,
        W_x=normal(D, N, times=scale * D**-0.5),
        W_h=normal(H, N, times=scale * H**-0.5),
        b=normal(N, times=0.5 * scale),
        b_hn=normal(H, times=0.5 * scale) if contract.like == "gru" else None,
        dout=normal(T, B, H),
        dc=normal(B, H) if "dc" in contract.seeds else None,
    )


def _as(case: Case, dtype: Any) -> Case:
    arrays: Any = {name: value.astype(dtype) for name, value in vars(case).items() if isinstance(value, np.ndarray)}
    return replace(case, **arrays)


def on_the_tape(case: Case) -> Arrays:
    """What is right, from the tape in float64: outputs and gradients, named as by_hand.py names them."""
    case = _as(case, np.float64)
    with use_backend("numpy"):
        cell = CELLS[case.like](case.x.shape[2], case.h0.shape[1], rng=0, dtype=np.float64)
        weights = {name: getattr(case, name) for name in ("W_x", "W_h", "b", "b_hn") if hasattr(cell, name)}
        for name, value in weights.items():
            assign(getattr(cell, name), value)
        with Tape() as tape:
            x, state = tape.watch(case.x), [tape.watch(s) for s in (case.h0, case.c0) if s is not None]
            out, after = unroll(cell, x, tuple(state) if len(state) > 1 else state[0])
            loss = sum_of(out * case.dout)
            if case.dc is not None:
                loss = loss + sum_of(after[1] * case.dc)
        dx, d_state, gradients = tape.gradient(loss, (x, state, cell))
    found = {"out": out.value, "dx": dx, "dh0": d_state[0]} | {"d" + name: gradients[name] for name in weights}
    return found if case.c0 is None else found | {"c": after[1].value, "dc0": d_state[1]}


class Right:
    """What a case should give, and how far off each array may be. ValueError where rounding hides any difference."""

    def __init__(self, contract: Contract, case: Case, coarsest: np.dtype):
        """coarsest: the smallest float type in use, whose rounding is allowed for."""
        named = contract.named
        exact, own = _as(case, np.float64), _as(case, coarsest)
        self.case, self.arrays, self.kept = exact, named(on_the_tape(case)), by_hand.forward(exact, {})[1]
        # Our own pass in the same float type shows what rounding alone costs on these inputs.
        out, kept = by_hand.forward(own, {})
        rounded = named(out | by_hand.backward(own, kept, {}))
        tolerance = TOLERANCE.get(coarsest.itemsize, 1e-9)
        seeds = [np.abs(a).max(initial=0.0) for a in (exact.dout, exact.dc) if a is not None]
        floor = max(1.0, np.abs(exact.W_x).max(), np.abs(exact.W_h).max()) * max(seeds)
        self.limits: dict[str, float] = {}
        for name, right in self.arrays.items():
            size = max(np.abs(right).max(), 1.0 if name in contract.gives else floor)
            self.limits[name] = max(tolerance * size, 30 * float(np.abs(rounded[name] - right).max()))
            if not self.limits[name] < 0.05 * size:
                raise ValueError(
                    f"nothing can be said about {name} on these inputs: rounding to {coarsest} alone moves it "
                    f"by {self.limits[name] / 30:.2g}. Take fewer steps, a smaller scale or dtype=float64"
                )

    def differing(self, arrays: Arrays) -> list[str]:
        """The names of the arrays that differ, in the order of the contract."""
        return [name for name in self.arrays if name in arrays and self.wrong(name, arrays[name]).any()]

    def wrong(self, name: str, yours: np.ndarray) -> np.ndarray:
        return np.abs(yours - self.arrays[name]) > self.limits[name]

    def looks_like(self, yours: Arrays, mistakes: Iterable[Mistake], run: Callable[[Any], Arrays]) -> str | None:
        """The known mistakes that give all these numbers; two at most are named."""
        found: list[str] = []
        for mistake in mistakes:
            try:
                with np.errstate(all="ignore"):
                    theirs = run(mistake.fault)
            except ValueError:  # not square, so nobody can have made this one
                continue
            same = all(
                theirs[name].shape == array.shape and (np.abs(array - theirs[name]) <= self.limits[name]).all()
                for name, array in yours.items()
            )
            if same and mistake.says not in found:
                found.append(mistake.says)
        return " or ".join(found[:2]) or None
