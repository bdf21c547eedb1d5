"""Lesson 6, k1 and k2: what is right comes from schedules and from a tape that is really cut.

Read after ../answers.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...contributions import contributions
from ...cutting import bptt
from ...layers import Linear, Sequential
from ...losses import mse
from ...recurrent import RNN
from ...states import reset
from ...tape import Tape, TapeError, cut
from ...truncation import full, tbptt
from ..answers import array, call, mapping, number, same
from ..registry import NotYet, Numbers, exercise


def _draw_windows(rng: np.random.Generator) -> Numbers:
    k1 = int(rng.integers(2, 4))
    return {"T": int(rng.choice([9, 11] if k1 == 2 else [10, 11])), "k1": k1, "k2": int(rng.choice([4, 5]))}


@exercise(
    "6.1",
    "steps_kept",
    numbers=_draw_windows,
    hints=[
        "Write down the ends of the updates first: k1, 2·k1, …, and T. Which losses does each own?",
        "The window of the update at e starts at step max(1, e − k2 + 1). Loss t keeps the steps from there to t.",
    ],
)
def _(steps_kept: Any, n: Numbers) -> None:
    """Predict how many steps each loss keeps."""
    T, k1, k2 = n["T"], n["k1"], n["k2"]
    yours = array(call(steps_kept), "the list", (T,))
    right = np.array(tbptt(k1, k2).describe(T).steps_kept)
    t = np.arange(1, T + 1)
    ends = -(-t // k1) * k1

    def kept(k1: int, k2: int) -> np.ndarray:
        return np.array(tbptt(k1, k2).describe(T).steps_kept)

    mistakes = {
        "this gives every loss a window of its own, as with k1 = 1; here one window serves k1 losses": kept(1, k2),
        "these are chunks of k1 steps; the window goes back k2 steps, past the last update": kept(k1, k1),
        "these are chunks of k2 steps; there is an update every k1 steps": kept(k2, k2),
        "k1 and k2 are swapped: k1 is how often, k2 is how far back": kept(k2, k1),
        "a loss's own step counts too: each number is one too small": right - 1,
        "k2 steps are kept by the last loss of a window only; the earlier ones in it keep fewer": np.full(T, k2),
        "the last update comes at step T, not at the next multiple of k1": t - np.maximum(0, ends - k2),
        "there are no steps before the first: a window starts at step 1 at the earliest": t
        - (np.minimum(ends, T) - k2),
        "nothing is cut in this": t,
        "the tail is left out: its losses belong to an update at T": np.where(t > T // k1 * k1, 0, right),
        "these are the right numbers in the wrong order: the loss of step 1 comes first": right[::-1],
        "these are the steps of each window; a loss keeps those up to its own step t, not up to e": right
        + np.minimum(ends, T)
        - t,
        "a window is one step too long: it starts at e − k2 + 1, so that step e is one of the k2": t
        - np.maximum(1, np.minimum(ends, T) - k2)
        + 1,
    }
    same(yours, right, mistakes, "the list", otherwise="check.hint('6.1')")


@exercise(
    "6.2",
    "last_loss_mask",
    hints=[
        "Only the rows e − 1 are not zero, e being the end of an update.",
        "Row e − 1 has k2 ones, ending at column e − 1.",
    ],
)
def _(last_loss_mask: Any) -> str:
    """Write the mask of the last loss alone."""
    for T, k1, k2 in ((11, 3, 5), (8, 2, 4), (9, 4, 6), (10, 4, 2)):
        yours = array(call(last_loss_mask, T, k1, k2), "w", (T, T))
        right = tbptt(k1, k2, losses="last").coverage(T)

        def rows(ends: list[int], length: int, T: int = T, own: int = 1) -> np.ndarray:
            w = np.zeros((T, T))
            for e in ends:
                w[e - 1, max(0, e - length) : e - 1 + own] = 1
            return w

        ends = [*range(k1, T, k1), T]
        starts = [max(0, e - k2) for e in ends]
        parts = [int(part[-1]) + 1 for part in np.array_split(np.arange(T), k1)]
        mistakes = {
            "this owns all losses since the last update; here an update owns its last loss alone": tbptt(
                k1, k2
            ).coverage(T),
            "this owns every loss in the window: where windows overlap, a loss counts more than once": _whole_windows(
                T, ends, k2
            ),
            "k1 and k2 are swapped: k1 is how often, k2 is how far back": tbptt(k2, k1, losses="last").coverage(T),
            "t and s are swapped: rows are loss steps, columns source steps": right.T,
            "the tail is dropped: the last update comes at T": rows(ends[:-1], k2),
            f"these are {k1} updates; what is asked for is an update every {k1} steps": rows(parts, k2),
            "a window is one step too long: step e is one of the k2": rows(ends, k2 + 1),
            "a window is one step too short: k2 steps, that of the loss included": rows(ends, k2 - 1),
            "the loss's own step is missing: s = t is a pair too": rows(ends, k2, own=0),
            "each loss reaches back to step 1: nothing is cut": rows(ends, T),
            "this is one update, at T": rows([T], k2),
            "the updates come one step too late: index e − 1 is step e": rows([min(e + 1, T) for e in ends], k2),
            "the rows are one too high up: the loss of step e is row e − 1": _rows(T, ends, starts, row=-2),
            "the first step of each window is left out: step s is column s − 1": _rows(
                T, ends, [max(1, e - k2 + 1) for e in ends]
            ),
            "e − k2 is negative for the first updates, and a slice counts that from the end: max(0, e − k2)": _rows(
                T, ends, [e - k2 for e in ends]
            ),
            "these windows go back k1 steps; k1 says when, k2 how far": rows(ends, k1),
            "the update at T goes back k2 steps too; only chunks side by side stop where the tail starts": _rows(
                T, ends, [*starts[:-1], max(starts[-1], ends[-2])]
            ),
            "w has pairs with s > t: no loss depends on a later step": yours if np.triu(yours, 1).any() else right,
        }
        try:
            same(yours, right, mistakes, "w", otherwise="check.hint('6.2')")
        except NotYet as wrong:
            raise NotYet(f"with T = {T}, k1 = {k1}, k2 = {k2}: {wrong}") from None
    return "(Four schedules, one with k2 < k1, against the engine's coverage.)"


def _rows(T: int, ends: list[int], starts: list[int], row: int = -1) -> np.ndarray:
    """The mask of the last losses, from the index at which each window starts; row: where the loss of step e is."""
    w = np.zeros((T, T))
    for e, start in zip(ends, starts, strict=True):
        w[e + row, start:e] = 1
    return w


def _whole_windows(T: int, ends: list[int], k2: int) -> np.ndarray:
    w = np.zeros((T, T))
    for e in ends:
        for t in range(max(0, e - k2), e):
            w[t, max(0, e - k2) : t + 1] += 1
    return w


@exercise(
    "6.3",
    "chunked",
    points=2,
    hints=[
        "range(0, T, k) starts the chunks; the last slice is shorter by itself.",
        "mb.mse(…, count=y.size) divides by the targets of the whole sequence, so that the chunks' gradients add up.",
    ],
)
def _(chunked: Any) -> str:
    """Find the bugs: k chunks for chunks of k, and a mean of means."""
    rng = np.random.default_rng(63)
    model = Sequential(RNN(2, 3, rng=rng, dtype=np.float64), Linear(3, 1, rng=rng, dtype=np.float64))
    for T, k in ((11, 4), (9, 2), (5, 7)):
        x, y = rng.standard_normal((T, 2, 2)), rng.standard_normal((T, 2, 1))
        try:
            found = call(chunked, model, x, y, k)
        except TapeError as error:
            if "another tape" not in str(error):
                raise
            raise NotYet("you forgot to cut the state between chunks, and each has a tape of its own") from None
        found = mapping(found, tuple(model.parameters()), "what chunked returns")
        right = _flat(bptt(model, x, y, mse, tbptt(k)))
        whole = _flat(bptt(model, x, y, mse, full()))
        split = [len(part) for part in np.array_split(np.arange(T), k) if len(part)]
        chunks = [min(k, T - start) for start in range(0, T, k)]
        no_tail = [k] * (T // k)
        spread = [len(part) for part in np.array_split(np.arange(T), max(1, T // k))]

        def one(lengths: list[int], weights: Any, between: Any = cut, x: Any = x, y: Any = y) -> np.ndarray:
            return _weighted(model, x, y, lengths, weights, between)

        def means(lengths: list[int], by: float | None = None, between: Any = cut) -> np.ndarray:
            return one(lengths, [1 / (by or len(lengths))] * len(lengths), between)

        mistakes = {
            "you forgot to cut: this is full BPTT's gradient": whole,
            f"this is the mean of the chunks' means: a last chunk of {chunks[-1]} weighs as much as one of {k}": means(
                chunks
            ),
            f"the mean is right now, and these are still {k} chunks instead of chunks of {k} steps": one(
                split, [length / T for length in split]
            ),
            f"as it was: {k} chunks instead of chunks of {k} steps, and a mean of means": means(split, k),
            "this is the sum of the chunks' means, not the mean over all steps": means(chunks, 1.0),
            f"the chunks are right now, and each mean still counts 1/{k}": means(chunks, k),
            f"each chunk counts {k} of {T} steps; the last one has {chunks[-1]}": one(chunks, [k / T] * len(chunks)),
            "each chunk counts as one step of T; it has as many as it is long": one(chunks, [1 / T] * len(chunks)),
            f"these are {T // k} chunks, the tail shared out among them; here it is a chunk of its own": one(
                spread, [length / T for length in spread]
            ),
            "this is the sum over all targets; the mean is asked for": right * y.size,
            "this divides by the steps; a step has a target in each row": right * y.size / T,
            "the state is reset between chunks; it is to be carried and cut": one(
                chunks, [length / T for length in chunks], reset
            ),
        }
        if no_tail:
            says = f"the tail is dropped: the last {T % k} of {T} steps fill no chunk of {k}, and count too"
            mistakes |= {
                says: one(no_tail, [k / T] * len(no_tail)),
                says + " (and what is left is divided by its own number)": means(no_tail),
                "this is the last chunk's gradient alone": one(chunks, [0] * (len(chunks) - 1) + [chunks[-1] / T]),
            }
        try:
            same(_flat(found), right, mistakes, "the gradient", otherwise="check.hint('6.3')")
        except NotYet as wrong:
            raise NotYet(f"with T = {T}, k = {k}: {wrong}") from None
    return "(T = 11, 9, 5 with k = 4, 2, 7 against mb.bptt, which cuts the tape.)"


def _flat(gradients: Any) -> np.ndarray:
    return np.concatenate([np.ravel(g) for g in gradients.values()])


def _weighted(model: Any, x: Any, y: Any, lengths: list[int], weights: Any, between: Any) -> np.ndarray:
    """Σ weight·(gradient of a chunk's mean loss)."""
    state, total, start = model.zero_state(x.shape[1]), np.zeros(1), 0
    for length, weight in zip(lengths, weights, strict=True):
        with Tape() as tape:
            out, state = model(x[start : start + length], between(state))
            loss = mse(out, y[start : start + length])
        total = total + weight * _flat(tape.gradient(loss, model))
        start += length
    return total


@exercise(
    "6.4",
    "judged",
    hints=[
        "The share that a schedule keeps is (its coverage · share).sum().",
        "There are k offsets, 0 to k − 1. With offset 0 the first cut falls after k steps.",
    ],
)
def _(judged: Any) -> str:
    """Judge a k over all its offsets."""
    rng = np.random.default_rng(69)  # offset 0 is neither the best nor the worst
    model = Sequential(RNN(1, 4, rng=rng, dtype=np.float64), Linear(4, 1, rng=rng, dtype=np.float64))
    T = 11
    x, y = rng.standard_normal((T, 2, 1)), rng.standard_normal((T, 2, 1))
    share = contributions(model, x, y, mse).share
    for k in (4, 3):
        kept = np.array([(tbptt(k, offset=o).coverage(T) * share).sum() for o in range(k)])
        lags = np.array([np.diagonal(share, -lag).sum() for lag in range(T)])
        absolute = [(tbptt(k, offset=o).coverage(T) * abs(share)).sum() / abs(share).sum() for o in range(k)]
        mistakes = {
            "this is one offset alone, the one whose first cut falls after k steps": kept[0],
            "offset 0 is left out: there are k offsets, 0 to k − 1": kept[1:].mean(),
            "the last offset, k − 1, is left out": kept[:-1].mean(),
            "this is the sum over the offsets; take their mean": kept.sum(),
            "this is the best offset; nobody chooses that before training": kept.max(),
            "this is the worst offset; the mean is asked for": kept.min(),
            "this is what windows with k1 = 1 keep: lags 0 to k − 1, all of them": lags[:k].sum(),
            "shares have signs: what hurts counts against": np.mean(absolute),
            "shares have signs: what hurts counts against, abs is not taken": np.mean(absolute) * abs(share).sum(),
            "this counts pairs; each pair has a share": np.mean(
                [tbptt(k, offset=o).coverage(T).sum() for o in range(k)]
            ),
            "* multiplies entry by entry, which is meant; @ is a product of matrices": np.mean(
                [(share @ tbptt(k, offset=o).coverage(T)).sum() for o in range(k)]
            ),
            "nothing is cut in this: all shares together are 1": 1.0,
            "this is what is lost; the share that is kept is asked for": 1 - kept.mean(),
            "that is the mean over pairs; a share is a sum over pairs": kept.mean() / share.size,
        }
        try:
            same(
                number(call(judged, share, k), f"judged(share, {k})"),
                kept.mean(),
                mistakes,
                otherwise="check.hint('6.4')",
            )
        except NotYet as wrong:
            raise NotYet(f"with k = {k}: {wrong}") from None
    return "(T = 11 with k = 4 and 3.)"
