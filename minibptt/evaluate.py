"""The loss on data that a model did not learn from, its state carried, or started anew now and then.

A model that was trained with a carried state knows what stood before a chunk; one that starts from zero (cold) does
not. What the state is worth shows in the loss by position: cold, the first steps of a chunk cost most. Read after
streams.py.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from .backend import library_of, to_numpy
from .losses import cross_entropy
from .module import check_model, check_size, evaluating
from .objective import asked, check_loss
from .sequence import run
from .streams import Stream
from .tape import no_tape
from .tensor import Tensor


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found.

    loss: the mean over all targets. by_position: the mean at each step since the last reset, or of the window where
    the state is carried, (k,), or as many as there were steps where these are fewer. targets: how many there were.
    reset_every: as it was given.
    """

    loss: float
    by_position: np.ndarray
    targets: int
    reset_every: int | None = None

    @property
    def bits(self) -> float:
        """The loss in bits, where it is a cross-entropy in nats: bits per character of a text."""
        return self.loss / math.log(2)

    def __str__(self) -> str:
        state = "carried" if self.reset_every is None else f"zero every {self.reset_every} steps"
        return f"loss {self.loss:.4f} ({self.bits:.4f} bits) over {self.targets} targets, state {state}"


def evaluate(
    model: Any,
    stream: Stream,
    loss: Callable[..., Tensor] = cross_entropy,
    *,
    reset_every: int | None = None,
    windows: int | None = None,
) -> Evaluation:
    """The mean of `loss` over a stream made by `stream_batches`, dropout off, nothing recorded, no weight changed.

    reset_every: start all rows from the zero state every so many steps, counted from where the evaluation begins;
    reset_every=stream.steps is cold, each window by itself. None: the state is carried from beginning to end. The
    numbers do not depend on how long the windows are, but for by_position where the state is carried.
    windows: at most so many; needed where a stream never ends. An array is gone through from its first step, whatever
    the stream's position, which stays, after an error too; an iterator from where it stands.
    The loss is asked once for each position i in a window, as loss(outputs[i::k], y[i::k]), so it must be a mean over
    steps; the device is waited for at each window. ValueError where there is nothing to evaluate.
    """
    if not isinstance(stream, Stream):
        raise TypeError(f"evaluate takes a stream made by stream_batches, found {type(stream).__name__}")
    check_model(model, learns=False)
    check_loss(loss)
    for name, size in {"reset_every": reset_every, "windows": windows}.items():
        if size is not None:
            check_size("evaluate", **{name: size})
    k, position = min(reset_every or stream.steps, stream.length or sys.maxsize), stream.position
    totals, counts, done, targets, state = np.zeros(0), np.zeros(0), 0, 0, None
    if stream.length is not None:
        stream.seek(0)
    try:
        with evaluating(model), no_tape():
            for x, y in islice(stream, windows):
                steps = done + np.arange(len(x))
                resets = np.repeat((steps % k == 0)[:, None], x.shape[1], axis=1) if reset_every else None
                outputs, state = run(model, x, state, resets=resets)
                outputs = outputs if isinstance(outputs, Tensor) else Tensor(outputs)  # a function may give an array
                losses = [asked(loss, outputs[i::k], y[i::k], None).value.reshape(()) for i in range(min(k, len(x)))]
                done, targets = done + len(x), targets + math.prod(y.shape)
                totals, counts = _with_room(totals, min(k, done)), _with_room(counts, min(k, done))
                here = steps[: len(losses)] % k  # the positions, each once, and how many steps are at each
                several = np.array([len(range(i, len(x), k)) for i in range(len(losses))])
                totals[here] += several * to_numpy(library_of(losses[0]).stack(losses))
                counts[here] += several
    finally:
        if stream.length is not None:
            stream.seek(position)
    if not done:
        raise ValueError("evaluate: the stream has ended: there is nothing left to evaluate")
    k = min(k, done)
    return Evaluation(float(totals.sum() / done), totals[:k] / counts[:k], targets, reset_every)


def _with_room(sums: np.ndarray, least: int) -> np.ndarray:
    """The sums with zeros after them: at least so many numbers in all, and more, so that it is seldom needed."""
    return sums if len(sums) >= least else np.concatenate([sums, np.zeros(max(least, 2 * len(sums)) - len(sums))])
