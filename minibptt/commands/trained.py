"""A model trained for a while, for the commands that look at a model before, during and after training.

Read after arguments.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ..backend import to_backend
from ..clipping import clip_by_global_norm
from ..layers import Sequential
from ..optim import Adam
from ..progress import Progress
from ..tape import Tape
from ..tasks import Task
from .arguments import UsageError


def trained(
    model: Sequential, task: Task, rng: np.random.Generator, *, steps: int, batch: int, lr: float
) -> Iterator[None]:
    """Full BPTT over whole sequences, by Adam with the gradient's norm clipped at 1; a step for each next().

    rng: what batches are drawn from. UsageError where the loss is no longer finite.
    """
    optimiser, progress = Adam(model, lr=lr), Progress("training", steps)
    for step in range(1, steps + 1):
        x, y = task.batch(rng, batch)
        with Tape() as tape, np.errstate(all="ignore"):
            outputs, _ = model(x if task.ids else to_backend(x))
            loss = task.loss(outputs, y)
        value = loss.item()
        if not math.isfinite(value):
            raise UsageError(f"training diverged at step {step} (loss {value}): give a smaller --lr than {lr}")
        optimiser.step(clip_by_global_norm(tape.gradient(loss, model), 1.0))
        progress(step, note=f"loss {value:.3f}")
        if step == steps:
            progress.end()
        yield
