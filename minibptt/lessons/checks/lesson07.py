"""Lesson 7, when truncation misleads: contributions of a cell that adds up say what each window and each draw gives.

Read after ../answers.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...cells import Cell
from ...contributions import Contributions, contributions
from ...losses import cross_entropy
from ...parameters import parameter
from ...tensor import Tensor, zeros
from ...truncation import artbp, tbptt
from ..answers import call, number, parts, same
from ..registry import NotYet, Numbers, exercise


class _Adder(Cell):
    """h_t = h_{t−1} + θ·x_t: x_s is what step s contributes to the last h."""

    def __init__(self) -> None:
        self.theta = parameter(1.0, dtype=np.float64)

    def zero_state(self, batch: int) -> Tensor:
        return zeros((batch, 1), dtype=np.float64)

    def step(self, x: Any, h: Any) -> tuple[Tensor, Tensor]:
        h = h + self.theta * x
        return h, h


def _by_lag(C: Any) -> Contributions:
    """The contributions to the last loss of a sequence in which lag j contributes C[j]."""
    x = np.array(C, float)[::-1].reshape(-1, 1, 1)
    return contributions(_Adder(), x, None, lambda outputs, _: ops.sum(outputs[-1]))


def _draw_windows(rng: np.random.Generator) -> Numbers:
    near = rng.permutation([4, 5, 10])  # says yes
    far = rng.permutation([-7, -11, -13, -16])  # says no, and is more; no two mistakes give the same number
    return {"C": [int(C) for C in (*near, *far, rng.integers(-4, -1))]}


@exercise(
    "7.1",
    "windows",
    numbers=_draw_windows,
    hints=[
        "The full gradient is the sum of all C_j; a window of K steps keeps the lags 0 to K − 1.",
        "With one parameter the share is g/G, sign and all: g is positive while G is negative.",
    ],
)
def _(windows: Any, n: Numbers) -> None:
    """Predict the share of a window, and the least window of the right sign."""
    found = parts(call(windows), "windows", "the share", "K")
    share, least = number(found[0], "the share"), number(found[1], "K")
    C, c = np.array(n["C"], float), _by_lag(n["C"])
    kept = [c.kept_share(tbptt(1, K)) for K in range(1, c.T + 1)]
    size = np.abs(C).sum()
    same(
        share,
        kept[2],
        {
            "the sign is lost: the window's gradient and the full one point in opposite ways": -kept[2],
            "this is the gradient of the window; the share divides it by the full gradient": C[:3].sum(),
            "this is the share of lag 3 alone; a window keeps lags 0, 1 and 2": C[3] / C.sum(),
            "this is the share of lag 2 alone; a window keeps all the lags before it too": C[2] / C.sum(),
            "these are norms, |C_j| over Σ|C_j|: they hide that contributions cancel": C[:3].sum() / size,
            "this window has 4 steps: a window of 3 keeps lags 0, 1 and 2": kept[3],
            "this window has 2 steps: a window of 3 keeps lags 0, 1 and 2": kept[1],
            "these are the 3 steps farthest back; a window keeps the nearest": C[-3:].sum() / C.sum(),
            "this window leaves out lag 0, the loss step itself; a window of 3 keeps lags 0, 1 and 2": C[1:4].sum()
            / C.sum(),
        },
        "the share",
        "Σ C over the window, divided by Σ C over all lags: check.hint('7.1')",
        tolerance=0.01,  # two decimals will do
    )
    right = next(K for K in range(1, c.T + 1) if all(share > 0 for share in kept[K - 1 :]))
    mistakes = {"this is the lag; a window of K steps reaches back to lag K − 1, so K is one more": right - 1}
    for K in range(1, c.T + 1):
        says = "has a share that is 0 or negative still" if kept[K - 1] <= 0 else "is more than it takes: fewer will do"
        mistakes[f"a window of {K} steps {says}"] = K
    same(least, right, mistakes, "K", "K counts steps, from 1 to the number of lags")


@exercise(
    "7.2",
    "estimate",
    points=2,
    hints=[
        "Lag 0 crosses no boundary: its weight is 1. Lag j crosses the boundaries 0 … j − 1.",
        "The weight of a lag is a product: 0 for a closed boundary, 1/(1 − p) for an open one.",
    ],
)
def _(estimate: Any) -> str:
    """Write the estimate of randomised truncation."""
    C, T = np.array([3.0, -1.0, 2.0, 5.0, -4.0, 1.5, 2.5, -5.0]), 8
    c, draws = _by_lag(C), 0
    for p in (0.2, 0.4):
        for seed in range(4):
            plan = artbp(p).plan(T, seed)
            w = plan.coverage()[-1, ::-1]  # by lag
            closed = np.array([any(u.start == s for u in plan.updates) for s in range(T - 1, 0, -1)])
            right = c.gradient(artbp(p), seed)["theta"].item()
            open_, lag = w > 0, np.arange(T)
            twice = np.append(1.0, np.cumprod(np.where(closed, 1.0, 1 / (1 - p))))
            yours = number(call(estimate, C, closed, p), "the estimate")
            mistakes = {
                "nothing is scaled: this is plain truncation at a random place, and its mean is too small": C @ open_,
                "open boundaries scale by 1/p; p is the probability of a cut, 1 − p that of an open boundary": C
                @ (open_ * p ** -lag.astype(float)),
                "open boundaries multiply by 1 − p; they must divide by it to make up for the draws that are cut": C
                @ (open_ * (1 - p) ** lag),
                "everything is scaled once; each open boundary on the way scales again": C
                @ (open_ * np.where(lag > 0, 1 / (1 - p), 1)),
                "lag 0 is scaled too; it crosses no boundary": right / (1 - p),
                "you forgot to cut: a closed boundary has the factor 0 for all that lies behind it": C @ twice,
                "a closed boundary takes away one lag only; what lies behind it is lost too": C
                @ (twice * np.append(1.0, ~closed)),
                "a closed boundary takes away one lag only; what lies behind it is lost too, whatever was drawn there":
                C @ np.append(1.0, np.where(closed, 0.0, 1 / (1 - p))),
                "the weight of a lag is no power of its own number: it is a product over the boundaries on the way":
                C @ np.append(1.0, np.where(closed, 0.0, (1 - p) ** -lag[1:].astype(float))),
                "closed is the other way round: True is a boundary that was drawn to be closed, factor 0": C
                @ np.append(1.0, np.cumprod(np.where(closed, 1 / (1 - p), 0.0))),
                "lag 0 is missing: it crosses no boundary, its weight is 1": right - C[0],
                "the lag just behind the closed boundary is still in": right
                + (C @ (twice * (lag == open_.sum())) if not open_.all() else 0.0),
                "this is full BPTT's gradient, which no single draw gives": C.sum(),
                "the lags are the wrong way round: C[0] is lag 0, the loss step itself": C[::-1] @ w,
            }  # fmt: skip
            try:
                same(yours, right, mistakes, otherwise="Each boundary is a factor on all that lies behind it")
            except NotYet as wrong:
                said = ", ".join(map(str, np.flatnonzero(closed))) or "none"
                raise NotYet(f"with p = {p}, closed boundaries: {said}: {wrong}") from None
            draws += 1
    return f"({draws} draws, against the engine's cuts.)"


def _least_losses() -> dict[str, float]:
    """By what is known of x_{t−3} and x_{t−8}: the loss of who gives the right probability, over all cases."""
    p = np.array([[0.5 + 0.5 * a - 0.25 * b for b in (0, 1)] for a in (0, 1)])  # [x_{t−3}, x_{t−8}]
    found = {}
    for name, known in (("nothing", p.mean()), ("lag 3", p.mean(axis=1, keepdims=True)), ("both", p)):
        known = np.clip(np.broadcast_to(known, p.shape), 1e-12, 1 - 1e-12)
        logits = np.log(np.stack([1 - known, known], axis=-1))  # (2, 2, 2)
        loss = sum(
            (p if y else 1 - p)[i, j] * cross_entropy(logits[i, j], np.array(y)).item() / 4
            for i in (0, 1)
            for j in (0, 1)
            for y in (0, 1)
        )
        found[name] = float(loss)
    return found


@exercise(
    "7.3",
    "best_alone",
    hints=[
        "Take k = 5. Which of the five steps has the coin of 3 steps before in its own chunk?",
        "Step j, counted from 1, sees lag 3 where j > 3 and lag 8 where j > 8.",
    ],
)
def _(best_alone: Any) -> str:
    """Predict what a reset leaves of the best."""
    best = _least_losses()

    def mean(k: int, three: int = 3, eight: int = 8) -> float:
        steps = range(1, k + 1)
        return float(np.mean([best["both" if j > eight else "lag 3" if j > three else "nothing"] for j in steps]))

    for k in (5, 12, 3, 1, 9):
        right = mean(k)
        mistakes = {
            "that is what the last step of the chunk sees; the first ones see less": mean(k, 3, 8) * k
            - mean(k - 1, 3, 8) * (k - 1)
            if k > 1
            else -1.0,
            "that needs both lags at every step, which is for a carried state": best["both"],
            "that has lag 3 at every step; the first three steps of a chunk do not see it": best["lag 3"],
            "that is knowing nothing at every step; later steps do see lag 3": best["nothing"],
            "one step too early: step 3, counted from 1, would need a coin from before the chunk": mean(k, 2, 7),
            "one step too late: step 4, counted from 1, has the first coin of the chunk 3 steps before": mean(k, 4, 9),
            "lag 8 is missing: where k > 8 the last steps see both": mean(k, 3, 99),
            "this is a sum over the chunk; a mean is asked for": right * k,
            "k − 8 steps see both only where k is above 8; a number of steps is never negative": (
                3 * best["nothing"] + 5 * best["lag 3"] + (k - 8) * best["both"]
            )
            / k,
        }
        try:
            same(number(call(best_alone, k, dict(best))), right, mistakes, otherwise="A mean over the k steps")
        except NotYet as wrong:
            raise NotYet(f"with k = {k}: {wrong}") from None
    return f"(k = 5: {mean(5):.4f}. That is where reset ended.)"
