"""Lesson 10, memory: the best number of segments, one segment on the way back, and a tape that grows.

Read after ../answers.py.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import ops
from ...cells import RNNCell
from ...gradients import Gradients
from ...sequence import unroll
from ...tape import Tape, cut, open_tape
from ..answers import array, call, number, parts, same
from ..registry import NotYet, Numbers, exercise


def _draw_segments(rng: np.random.Generator) -> Numbers:
    root, j = int(rng.integers(2, 4)), int(rng.integers(5, 9))
    s = int(rng.choice([64, 128]))
    return {"T": (12 * j // root) ** 2, "m": root**2 * s, "s": s}


@exercise(
    "10.1",
    "best_segments",
    numbers=_draw_segments,
    hints=["Where is s − T·m/S² zero?", "S = √(T·m/s): what does it become for your T, m and s?"],
)
def _(best_segments: Any, n: Numbers) -> None:
    """Predict the number of segments that needs the least memory."""
    T, m, s = n["T"], n["m"], n["s"]
    right = min(range(1, T + 1), key=lambda S: S * s + T / S * m)
    mistakes = {
        "that is √T, the answer where m = s; here a step puts more on the tape than a state": T**0.5,
        "that is how long a segment is, or m and s are swapped; asked for is how many segments there are": T / right,
        "the root is missing: S² = T·m/s": T * m / s,
        "that is how much memory it needs; asked for is S": right * s + T / right * m,
        "one segment is the whole sequence: nothing would be recomputed": 1,
        "with T segments a state is stored at every step: the stored states fill the memory": T,
        "that is m/s, the steps' share against the state's; T is in it too": m / s,
    }
    same(number(call(best_segments)), right, mistakes, otherwise="Ask check.hint('10.1')")


Segment = Callable[[RNNCell, Any, Any, Any], Any]


def _segment(
    cell: RNNCell,
    x: Any,
    h: Any,
    dh: Any,
    own: float = 1.0,
    after: float = 1.0,
    reset: bool = False,
    late: float = 0.0,
    mean: bool = False,
    end_only: bool = False,
    lost: bool = False,
) -> tuple[Gradients, Any]:
    """One segment, right, or with a mistake: its own losses or the adjoint after it left out, the state left out, …"""
    with Tape() as tape:
        start = tape.watch(h * (not reset))
        out, end = unroll(cell, x, start)
        loss = own * ops.sum(out * out) / (out.size if mean else 1) + after * ops.sum(end * dh)
    gradients, before = tape.gradient(loss, [cell, end if end_only else start])
    return gradients, before * (not lost) + late * dh


def _backwards(segment: Segment, cell: RNNCell, x: np.ndarray, length: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """All segments from the last to the first: the sum of the gradients, and what arrives at h₀."""
    states = [np.full((x.shape[1], cell.H), 0.1)]
    for a in range(0, len(x), length):
        states.append(unroll(cell, x[a : a + length], states[-1])[1].value)
    dh, total = np.zeros_like(states[0]), None
    for i in range(len(states) - 2, -1, -1):
        found = segment(cell, x[i * length : (i + 1) * length], states[i], dh)
        found = parts(found, "segment", "the gradients", "dh_before")
        gradients, dh = found
        if not isinstance(gradients, Gradients):
            raise NotYet(
                "the first thing that segment returns must be what tape.gradient gives for the cell; found "
                f"{type(gradients).__name__}"
            )
        dh = array(dh, "dh_before", states[0].shape)
        total = gradients if total is None else total + gradients
    assert total is not None
    return dict(total), dh


@exercise(
    "10.2",
    "segment",
    hints=[
        "Three lines inside `with mb.Tape() as tape:`: watch the state, unroll from it, and make one scalar.",
        "loss = mb.sum(out * out) + mb.sum(h * dh_after); then tape.gradient(loss, [cell, start]) gives both.",
    ],
)
def _(segment: Any) -> str:
    """Write one segment of the way back, run again from its stored state."""
    rng = np.random.default_rng(102)
    cell, x = RNNCell(2, 3, rng=rng, dtype=np.float64), rng.standard_normal((12, 2, 2))
    right, dh0 = _backwards(_segment, cell, x, 4)
    whole, dh_whole = _backwards(_segment, cell, x, 12)
    same(_flat(right, dh0), _flat(whole, dh_whole))  # full BPTT, as one segment

    def yours(*arguments: Any) -> Any:
        return call(segment, *arguments, what="segment")

    found, dh = _backwards(yours, cell, x, 4)
    missing = [name for name in right if name not in found]
    if missing:
        raise NotYet(f"the gradients must be those of the cell; {', '.join(missing)} is missing")

    def mistaken(**options: Any) -> Callable[[], np.ndarray]:
        return lambda: _flat(*_backwards(lambda *a: _segment(*a, **options), cell, x, 4))

    mistakes = {
        "dh_after is never used: that is truncation in chunks, for no adjoint crosses a boundary": mistaken(after=0),
        "dh_after is added to dh_before as it is; it must go back through the segment's steps": mistaken(
            after=0, late=1
        ),
        "dh_after goes through the segment, and is then added to dh_before once more": mistaken(late=1),
        "the segment's own losses are missing: only what comes from later segments goes back": mistaken(own=0),
        "the segment is run from a zero state, not from the stored one: a reset": mistaken(reset=True),
        "the sign of dh_after is wrong": mistaken(after=-1),
        "dh_after is counted twice": mistaken(after=2),
        "the loss is a mean; it is Σ out²": mistaken(mean=True),
        "dh_before is ∂L/∂(state after the segment): ask for that of what tape.watch gave": mistaken(end_only=True),
        "dh_before is 0 for all segments: unroll from what tape.watch gave, uncut": mistaken(lost=True),
    }
    same(_flat(found, dh), _flat(right, dh0), mistakes, "the gradient", "Ask check.hint('10.2')")
    return "Three segments of 4 steps give full BPTT's gradient of 12."


def _flat(gradients: dict[str, np.ndarray], dh: np.ndarray) -> np.ndarray:
    return np.concatenate([*[gradients[name].ravel() for name in sorted(gradients)], dh.ravel()])


class _Watching(RNNCell):
    """A cell that notes, at each step, how many records the tape has and which tapes are alive."""

    most, alive = 0, 0

    def step(self, x: Any, h: Any) -> tuple[Any, Any]:
        tape = open_tape()
        if tape is not None:
            self.tapes.add(tape)
            self.most = max(self.most, len(tape.records))
            self.alive = max(self.alive, len(self.tapes))
        return super().step(x, h)

    def forget(self) -> None:
        self.tapes: weakref.WeakSet[Tape] = weakref.WeakSet()
        self.most = self.alive = 0


@exercise(
    "10.3",
    "stream",
    hints=[
        "mb.cut(h) stops the adjoint. Are the records of the chunk before still on the tape?",
        "A tape of its own for each chunk: `with mb.Tape() as tape:` belongs inside the loop.",
    ],
)
def _(stream: Any) -> None:
    """Find the bug: a tape that grows with the stream."""
    rng = np.random.default_rng(103)
    cell = _Watching(2, 3, rng=rng, dtype=np.float64)
    cell.forget()
    chunks = [rng.standard_normal((steps, 2, 2)) for steps in (4, 4, 4, 4, 3)]
    right = _chunks(cell, chunks)
    most = cell.most
    cell.forget()
    found = call(stream, cell, chunks)
    if found is None:
        raise NotYet("stream returns None: is a return missing?")
    if not isinstance(found, Gradients):
        raise NotYet(f"stream must return a sum of gradients, as broken does; it returned {type(found).__name__}")
    grown, alive = cell.most, cell.alive
    empty = np.zeros(0)
    whole = _chunks(cell, [np.concatenate(chunks)])
    mistakes = {
        "that is full BPTT's gradient: the state is not cut between the chunks": whole,
        "every chunk starts from the zero state: that is a reset. Carry the state on, cut": _chunks(
            cell, chunks, reset=True
        ),
        "that is the gradient of the last chunk alone: add them up": _chunks(cell, chunks, only=4),
        "that is the gradient of the first chunk alone: add them up": _chunks(cell, chunks, only=0),
        "the last, shorter chunk is missing": _chunks(cell, chunks[:-1]),
        f"that is the mean over the chunks; broken gives the sum of {len(chunks)}": right * (1 / len(chunks)),
    }
    same(
        _flat(dict(found), empty),
        _flat(dict(right), empty),
        {says: _flat(dict(g), empty) for says, g in mistakes.items()},
        "the gradient",
    )
    if not grown:
        raise NotYet("the cell never ran on an open tape by its own steps: use mb.unroll(cell, x, …) as broken does")
    if grown > most:
        raise NotYet(
            f"the gradient is right, and the tape still grows: it held {grown} records, and one chunk has {most}. "
            "A cut stops the adjoint and frees nothing; what holds the records is a tape that stays open"
        )
    if alive > 2:
        raise NotYet(f"the gradient is right, but {alive} tapes were alive at once: something keeps the tapes")


def _chunks(cell: RNNCell, chunks: list[np.ndarray], reset: bool = False, only: int | None = None) -> Gradients:
    h, total = cell.zero_state(chunks[0].shape[1]), None
    for i, x in enumerate(chunks):
        with Tape() as tape:
            out, h = unroll(cell, x, cell.zero_state(x.shape[1]) if reset else cut(h))
            loss = ops.sum(out * out)
        if only in (None, i):
            g = tape.gradient(loss, cell)
            total = g if total is None else total + g
        del tape
    assert total is not None
    return total
