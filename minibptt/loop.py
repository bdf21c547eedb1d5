"""A training as it goes, window by window: what `train` keeps, and what of it a checkpoint has. Read after updates.py.

What is asked of losses and gradients stays on the device until somebody reads it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .backend import Array, library_of, to_numpy
from .clipping import clip_by_global_norm, finite_flags
from .gradients import Gradients
from .module import Module
from .optim import Optimiser
from .streams import Stream
from .tensor import Tensor
from .truncation import Schedule
from .updates import updates as by_updates


class Loop:
    """A training as it goes: what `train` keeps from window to window, and what of it is in a checkpoint."""

    def __init__(self, model: Module, stream: Stream, optimiser: Optimiser, rng: np.random.Generator, state: Any):
        self.model, self.stream, self.optimiser, self.rng, self.carried = model, stream, optimiser, rng, state
        self.done, self.passes = 0, 0
        self.losses: list[tuple[int, float]] = []
        self.total: Any = 0.0  # Σ loss over the steps since the last reading, where the model is
        self.steps, self.tokens = 0, 0  # since the last reading; in this run, all rows together
        self.names: list[str] = []  # of the parameters, in the order of `finite`
        self.finite: Array = None  # for each parameter, whether the gradient was finite, at the first update where one
        self.at: Any = 0  # was not, which this is; or, as long as all were, at the last update

    def window(self, loss: Callable[..., Tensor], schedule: Schedule, clip: float | None) -> bool:
        """Learn from the next window. False where the stream has no more. Nothing is read from the device."""
        found = next(self.stream, None)
        if found is None and self.stream.length is not None:
            self.carried, self.passes = None, self.passes + 1
            found = next(self.stream.seek(0), None)
        if found is None:
            return False
        x, y = found
        run = by_updates(self.model, x, y, loss, schedule, state=self.carried, rng=self.rng)
        if not run.plan.updates:
            raise ValueError(f"train: the schedule ({schedule}) makes no update in {len(x)} steps")
        owned = sum([len(update.losses) for update in run.plan.updates])
        # Parts add up to the loss of the steps that are owned; a whole loss comes once for each update.
        share = 1 / len(run.plan.updates) if run.whole else len(x) / owned
        for value, gradients in run:
            self.done += 1
            self._note(gradients)
            if clip is not None:
                gradients = clip_by_global_norm(gradients, clip)
            self.optimiser.step(gradients)
            xp = library_of(value.value)
            self.total = self.total + xp.multiply(value.value.reshape(()), share * len(x), dtype=xp.float64)
        self.carried = run.state
        self.steps += len(x)
        self.tokens += len(x) * x.shape[1]
        return True

    def _note(self, gradients: Gradients) -> None:
        """Keep on the device what `check` reads later."""
        now, self.names = finite_flags(gradients), list(gradients)
        xp = library_of(now)
        if self.finite is None:
            self.finite, self.at = now, self.done
        else:
            good = self.finite.all()
            self.finite, self.at = xp.where(good, now, self.finite), xp.where(good, self.done, self.at)

    def check(self) -> None:
        """ValueError where a gradient since the start was not finite."""
        if self.finite is None:
            return
        bad = [name for name, fine in zip(self.names, to_numpy(self.finite)) if not fine]
        if bad:
            more = f" (nor are those of {len(bad) - 1} others)" if len(bad) > 1 else ""
            raise ValueError(
                f"update {int(to_numpy(self.at))}: the gradient of {bad[0]} is not finite{more}. The optimiser left "
                "the weights as they were then, and nothing was saved since. Give a smaller lr than "
                f"{self.optimiser.lr:g}, or a smaller clip"
            )

    def read(self) -> None:
        """Read the loss, and whether all was finite."""
        self.check()
        self.losses.append((self.done, float(to_numpy(self.total)) / self.steps))
        self.total, self.steps = 0.0, 0

    def all_losses(self) -> np.ndarray:
        """(n, 2), with what was not read yet as the last."""
        rest = [(self.done, float(to_numpy(self.total)) / self.steps)] if self.steps else []
        return np.array([*self.losses, *rest], float).reshape(-1, 2)

    def note(self, seconds: float) -> str:
        """What the progress line says."""
        loss = f"loss {self.losses[-1][1]:.3f}, " if self.losses else ""
        return f"{loss}{self.tokens / seconds:,.0f} tokens/s"

    def save(self, path: str | os.PathLike[str], about: Any) -> None:
        """Write a checkpoint. ValueError where a gradient was not finite: the last good one stays."""
        from . import saving

        self.check()
        saving.save(path, self.model, **self._parts(), state=self.carried, about=about)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go on from a checkpoint. CheckpointError where it does not fit."""
        from . import saving

        self.carried = saving.load(path, self.model, **self._parts()).get("state")

    def _parts(self) -> dict[str, Any]:
        # The stream comes first: it refuses another layout before anything has changed.
        return {"stream": self.stream, "training": self, "optimiser": self.optimiser, "rng": self.rng}

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of the loop itself."""
        numbers = {"updates": self.done, "passes": self.passes, "steps": self.steps}
        return numbers | {"total": float(to_numpy(self.total)), "losses": self.losses}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""
        self.done, self.passes, self.steps = state["updates"], state["passes"], state["steps"]
        self.total, self.losses = state["total"], list(state["losses"])
