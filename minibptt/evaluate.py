"""The loss on data that a model did not learn from, its state carried, or started anew now and then.

A model that was trained with a carried state knows what stood before a chunk; one that starts from zero (cold) does
not. What the state is worth shows in the loss by position: cold, the first steps of a chunk cost most. Read after
streams.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from .backend import library_of, to_numpy
from .losses import cross_entropy
from .module import check_size, evaluating
from .sequence import run
from .streams import Stream
from .tape import no_tape
from .tensor import Tensor


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found.

    loss: the mean over all targets. by_position: the mean at each step since the last reset, or of the window where
    the state is carried, (k,); nan where no step was. targets: how many there were. reset_every: as it was given.
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
    the stream's position, which stays; an iterator from where it stands.
    The loss is asked step by step, as loss(outputs[t:t+1], y[t:t+1]), so it must be a mean over steps; the device is
    waited for at each window. ValueError where there is nothing to evaluate.
    """
    if not isinstance(stream, Stream):
        raise TypeError(f"evaluate takes a stream made by stream_batches, found {type(stream).__name__}")
    for name, size in {"reset_every": reset_every, "windows": windows}.items():
        if size is not None:
            check_size("evaluate", **{name: size})
    k, position = reset_every or stream.steps, stream.position
    totals, counts, done, targets, state = np.zeros(k), np.zeros(k), 0, 0, None
    if stream.length is not None:
        stream.seek(0)
    with evaluating(model), no_tape():
        for x, y in islice(stream, windows):
            steps = done + np.arange(len(x))
            resets = np.repeat((steps % k == 0)[:, None], x.shape[1], axis=1) if reset_every else None
            outputs, state = run(model, x, state, resets=resets)
            losses = [loss(outputs[t : t + 1], y[t : t + 1]).value.reshape(()) for t in range(len(x))]
            np.add.at(totals, steps % k, to_numpy(library_of(losses[0]).stack(losses)))
            np.add.at(counts, steps % k, 1)
            done, targets = done + len(x), targets + math.prod(y.shape)
    if stream.length is not None:
        stream.seek(position)
    if not done:
        raise ValueError("evaluate: the stream has ended: there is nothing left to evaluate")
    with np.errstate(invalid="ignore"):
        return Evaluation(float(totals.sum() / done), totals / counts, targets, reset_every)
