"""Lesson 13, a character model: how long a window must be, free running, and an evaluation that is right.

Read after ../answers.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...cells import RNNCell
from ...evaluate import evaluate
from ...layers import Embedding, Linear, Sequential
from ...losses import cross_entropy
from ...parameters import assign
from ...recurrent import LSTM
from ...sampling import sample
from ...sequence import unroll
from ...streams import stream_batches
from ...tape import Tape
from ..answers import array, call, number, same
from ..registry import NotYet, Numbers, exercise


def _draw_a(rng: np.random.Generator) -> Numbers:
    return {"a": float(rng.choice([0.6, 0.7, 0.8, 0.85, 0.95]))}


@exercise(
    "13.1",
    "smallest_k",
    numbers=_draw_a,
    hints=[
        "The step j before the last counts a^j. The sum of the first k terms is (1 − a^k)/(1 − a), of all 1/(1 − a).",
        "1 − a^k ≥ 0.9, so a^k ≤ 0.1: take logarithms, and round up.",
    ],
)
def _(smallest_k: Any, n: Numbers) -> None:
    """Predict how long a window a linear recurrence needs."""
    a, T = n["a"], 400
    cell = RNNCell(1, 1, "linear", rng=0, dtype=np.float64)
    assign(cell.W_x, np.ones((1, 1)))
    assign(cell.W_h, np.full((1, 1), a))
    with Tape() as tape:
        x = tape.watch(np.ones((T, 1, 1)))
        loss = ops.sum(unroll(cell, x)[0][-1])
    terms = tape.gradient(loss, x).ravel()[::-1]  # of ∂h_T/∂w, from the last step back; the inputs are 1
    shares = np.cumsum(terms) / terms.sum()
    right = int(np.argmax(shares >= 0.9)) + 1
    yours = number(call(smallest_k), "k")
    lag = int(np.argmax(terms <= 0.1))
    mistakes = {
        "one too few: with so many steps the share is still below 90 %": right - 1,
        "one too many: a window of one step less has 90 % already": right + 1,
        "not rounded: a window has a whole number of steps": float(np.log(0.1) / np.log(a)),
        "that is the time constant 1/(1 − a), which keeps 63 % or so; asked for is 90 %": 1 / (1 - a),
        "that is for 99 %; asked for is 90 %": int(np.argmax(shares >= 0.99)) + 1,
        "that is for 10 %: a^k must be at most 0.1, not at most 0.9": int(np.argmax(shares >= 0.1)) + 1,
        "the sign: both logarithms are negative, k is not": -right,
        "that is a^k itself; asked for is k": lag and a**right,
    }
    same(yours, right, mistakes, "k", "Ask check.hint('13.1')")


def _model(seed: int) -> tuple[Sequential, np.ndarray]:
    """A model of seven symbols with a memory that matters, and a text."""
    streams = np.random.default_rng(seed).spawn(4)
    model = Sequential(
        Embedding(7, 8, rng=streams[0], dtype=np.float64),
        LSTM(8, 12, rng=streams[1], dtype=np.float64),
        Linear(12, 7, rng=streams[2], dtype=np.float64),
    )
    for p in model.parameters().values():
        assign(p, 3 * p.value)
    return model, streams[3].integers(0, 7, 24)


def _greedy(model: Any, start: np.ndarray, length: int, mistake: str = "") -> list[int]:
    """The most likely ids one by one, right or with a mistake."""
    state, read, written = None, np.asarray(start), list[int]()
    if mistake == "last only":
        read = read[-1:]
    if mistake == "twice":
        _, state = model(read.reshape(-1, 1), None)
        read = read[-1:]
    for _ in range(length):
        logits, after = model(np.reshape(read, (-1, 1)), state)
        at = 0 if mistake == "first" else -1
        scores = logits.value[at, 0]
        written.append(int(scores.argmin() if mistake == "least" else scores.argmax()))
        if mistake != "stuck" or state is None:
            state = after if mistake != "reset" else None
        read = np.array(written[-1:]) if mistake != "teacher" else np.asarray(start)[-1:]
    return written


@exercise(
    "13.2",
    "greedy",
    hints=[
        "One call reads all of start. After that each call reads one id, and gets the state that the last one gave.",
        "The next id is the argmax of logits.value[-1, 0]; then it is what is read next.",
    ],
)
def _(greedy: Any) -> None:
    """Write free running."""
    for seed in (17, 20, 39):  # in which each of the mistakes below gives another text
        model, text = _model(seed)
        start, length = text[:9], 12
        found = call(greedy, model, start, length)
        if found is None:
            raise NotYet("greedy returns None: is a return missing?")
        ids = array(found, "what greedy returns")
        right = list(sample(model, start, length, temperature=0))
        if ids.size == len(start) + length:
            raise NotYet("start is in it too; asked for are the ids that follow")
        if ids.size != length:
            raise NotYet(f"asked for are {length} ids; yours are {ids.size}")
        mistakes = {
            "each id is chosen from the zero state: what was read before is forgotten. Carry the state": "reset",
            "only the last id of start was read; the state must know all of it": "last only",
            "the last id of start is read twice: once with the others, then again by itself": "twice",
            "the last id of start is fed at each step; in free running the model's own word is": "teacher",
            "the state stays what it was after start; each call gives the state for the next one": "stuck",
            "those are the least likely ids": "least",
            "the first step's scores are taken, where those after the last one that was read belong": "first",
        }
        made = {says: _greedy(model, start, length, mistake) for says, mistake in mistakes.items()}
        made["that is one step late: the first id that follows start is missing"] = list(
            sample(model, start, length + 1, temperature=0)
        )[1:]
        same(ids, right, made, "the text", "Ask check.hint('13.2')")


def _mean(model: Any, ids: np.ndarray, k: int, mistake: str = "") -> float:
    """The mean loss in windows of k, right or with a mistake."""
    losses, sizes, state = [], [], None
    for a in range(0, len(ids) - 1, k):
        y = ids[a + 1 : a + 1 + k]
        if mistake == "tail" and len(y) < k:
            break
        x = ids[a : a + len(y)]
        logits, after = model(x.reshape(-1, 1), state)
        losses.append(cross_entropy(logits, (x if mistake == "unshifted" else y).reshape(-1, 1)).item())
        sizes.append(len(y))
        state = None if mistake in ("reset", "both") else after
    if mistake in ("of means", "both"):
        return float(np.mean(losses))
    if mistake == "added":
        return sum(losses) / sum(sizes)
    total = float(np.dot(losses, sizes)) if mistake != "k" else k * sum(losses)
    return total if mistake == "sum" else total / (len(ids) if mistake == "n" else sum(sizes))


@exercise(
    "13.3",
    "mean_loss",
    hints=[
        "What does broken do with the second thing that the model returns?",
        "A window of 3 characters counts as much as one of 8 in np.mean(losses): weigh each by its length.",
    ],
)
def _(mean_loss: Any) -> str:
    """Find the bugs: an evaluation that depends on k."""
    model, ids = _model(5)
    for k in (7, 5, 23):
        yours = number(call(mean_loss, model, ids, k), f"mean_loss(model, ids, {k})")
        right = evaluate(model, stream_batches(ids, batch=1, steps=k)).loss
        mistakes = {
            "both bugs are still there: each window starts from zero, and the mean is one of means": "both",
            "each window starts from the zero state: carry it on": "reset",
            "a mean of means: the last, shorter window weighs as much as the others": "of means",
            "the last, shorter window is dropped": "tail",
            "the targets are the inputs: what is to be said is the next character": "unshifted",
            "that is the sum over the characters; asked for is the mean": "sum",
            "divided by the number of characters; there is one target less": "n",
        }
        made: dict[str, Any] = {says: _mean(model, ids, k, mistake) for says, mistake in mistakes.items()}
        made["mean losses of windows are added up: multiply each by its length before, and divide once"] = _mean(
            model, ids, k, "added"
        )
        made["the last window is shorter than k: multiply its mean loss by its own length"] = _mean(model, ids, k, "k")
        made["that is in bits; asked for is nats, as cross_entropy gives it"] = right / np.log(2)
        try:
            same(yours, right, made, otherwise="Ask check.hint('13.3')")
        except NotYet as wrong:
            raise NotYet(f"with {len(ids)} characters, k = {k}: {wrong}") from None
    return "One number for all k, as it should be."
