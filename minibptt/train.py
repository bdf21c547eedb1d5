"""A training loop on a stream: the state carried, stopped at any time, resumed to the bit. Read after updates.py.

A checkpoint holds all that the next update depends on: weights, optimiser, the carried state, the position in the
stream, and the generators of dropout and of schedules that draw their cuts. Training ends, is stopped and is saved
between two windows of the stream only.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .backend import Array, library_of, to_numpy
from .clipping import clip_by_global_norm, finite_flags
from .gradients import Gradients
from .module import Module, Rng, check_model, check_number, check_path, check_size, generator, learning
from .objective import check_loss
from .optim import Optimiser
from .progress import Progress
from .streams import Stream
from .tensor import Tensor
from .truncation import Schedule
from .updates import updates as by_updates


@dataclass(frozen=True)
class Training:
    """What `train` did.

    updates: how many there were, those before a resume included. passes: how often the stream began anew. losses
    (n, 2): pairs (updates so far, mean loss since the pair before). state: to go on from. stopped: by Ctrl-C.
    """

    updates: int
    passes: int
    losses: np.ndarray
    state: Any
    stopped: bool = False

    @property
    def loss(self) -> float:
        """The last loss that was read; nan where there is none."""
        return float(self.losses[-1, 1]) if len(self.losses) else float("nan")


def train(
    model: Module,
    stream: Stream,
    loss: Callable[..., Tensor],
    schedule: Schedule,
    optimiser: Optimiser,
    *,
    updates: int,
    clip: float | None = 1.0,
    state: Any = None,
    rng: Rng = None,
    save: str | os.PathLike[str] | None = None,
    every: int | None = 1000,
    resume: str | os.PathLike[str] | None = None,
    about: Any = None,
    read_every: int = 100,
    progress: bool | Progress = True,
) -> Training:
    """Train by `schedule` on the windows of a stream, the state carried from window to window and cut in between.

        stream = mb.stream_batches(tokens, batch=32, steps=64)
        mb.train(model, stream, mb.cross_entropy, mb.tbptt(64), mb.Adam(model), updates=5000, save="model.npz")

    updates: how many steps of the optimiser in all, those before a resume included; training ends with the window in
    which they are reached. No gradient reaches back over the beginning of a window, whatever the schedule. When an
    array's stream ends it begins anew, from the zero state; an iterator that ends, ends the training. clip: the largest
    common norm of a gradient, None for any. state: to start from. rng: for a schedule that draws its cuts. Dropout is
    on. Other arguments as for `updates`.

    save: a file for checkpoints, every `every` updates (None: never) and at the end; one that is there is replaced.
    resume: a checkpoint to go on from; with the same arguments the numbers are those of a training that was never
    stopped, to the bit. about: what else it should carry, as for `save`. Ctrl-C finishes the window, saves and says how
    to go on; a second one stops at once. SIGTERM does the same and then what it always does.

    The loss is read every `read_every` updates, and so is whether the gradients were finite: ValueError names the first
    update and parameter where one was not, and nothing is saved from then on. progress: a line on stderr with updates,
    loss, tokens a second and time left; or a `Progress` that writes elsewhere.
    """
    check_size("train", updates=updates, read_every=read_every, **({} if every is None else {"every": every}))
    if not isinstance(stream, Stream):
        raise TypeError(
            f"train takes a stream, stream_batches(tokens, batch=…, steps=…), or a Stream of your own; found "
            f"{type(stream).__name__}"
        )
    check_model(model)
    check_loss(loss)
    _check_optimiser(optimiser, model)
    if clip is not None:
        check_number("train: clip", clip, above=True, infinite=True)
    _check_saving(save, about)
    if resume is not None:
        check_path("train: resume", resume)
    if not isinstance(progress, bool | Progress):
        raise TypeError(f"train: progress must be True, False or a Progress, found {progress!r:.80}")
    loop = Loop(model, stream, optimiser, generator(rng), state)
    if resume is not None:
        loop.load(resume)
    line = progress if isinstance(progress, Progress) else None
    if progress is True:
        line = Progress("training", updates, unit="updates")
    if line:
        line.before = loop.done
    with learning(model), _interrupts() as asked, np.errstate(all="ignore"):
        saved = None
        while loop.done < updates and not asked:
            before = loop.done
            if not loop.window(loss, schedule, clip):
                break
            if loop.done // read_every > before // read_every:
                loop.read()
            if save is not None and every is not None and loop.done // every > before // every:
                loop.save(save, about)
                saved = loop.done
            if line:
                line(loop.done, updates, loop.note)
        loop.check()
        if save is not None and loop.done != saved:
            loop.save(save, about)
        if line:
            line.end()
        stopped = bool(asked) and loop.done < updates
        if stopped and line and progress is True:
            how = "give the answer's state as state=, for there is no checkpoint without save="
            if save is not None:
                how = f"train(…, resume={os.fspath(save)!r})"
            line.say(f"training stopped after {loop.done} of {updates} updates; to go on: {how}")
    return Training(loop.done, loop.passes, loop.all_losses(), loop.carried, stopped)


def _check_saving(save: str | os.PathLike[str] | None, about: Any) -> None:
    """CheckpointError or TypeError for what could not be saved, or not there: before the training, not after it."""
    if save is None and about is None:
        return
    if save is not None:
        check_path("train: save", save)
    from . import saving  # here, as below, so that `import minibptt` stays quick

    if save is not None and not Path(save).absolute().parent.is_dir():
        raise saving.CheckpointError(f"{save} cannot be written: there is no folder {Path(save).absolute().parent}")
    if save is not None and Path(save).is_dir():
        raise saving.CheckpointError(f"{save or repr(save)} cannot be written: it is a folder; give the name of a file")
    saving.check_parts(about=about)


def _check_optimiser(optimiser: Any, model: Module) -> None:
    """TypeError for what is no optimiser; ValueError for one of another model, which would be moved in its place."""
    if isinstance(optimiser, type) or not callable(getattr(optimiser, "step", None)):
        found = f"the class {optimiser.__name__}" if isinstance(optimiser, type) else type(optimiser).__name__
        raise TypeError(f"train takes an optimiser, SGD(model, lr=…) or Adam(model), found {found}")
    own, its = dict(model.named_parameters()), getattr(optimiser, "parameters", None)  # one of your own may have none
    if not isinstance(its, Mapping):
        return
    if isinstance(optimiser, Optimiser) and its.keys() != own.keys():
        raise ValueError(
            f"train: the {type(optimiser).__name__} was made for another model, with the parameters {sorted(its)}, not "
            f"{sorted(own)}. Make it for the model that is trained"
        )
    if its.keys() == own.keys() and any(its[name] is not p for name, p in own.items()):
        raise ValueError(
            f"train: the {type(optimiser).__name__} was made for another model, whose parameters have the same names: "
            "it would move those. Make it for the model that is trained"
        )


class Loop:
    """A training as it goes: what `train` keeps from window to window, and what of it is in a checkpoint."""

    def __init__(self, model: Module, stream: Stream, optimiser: Optimiser, rng: np.random.Generator, state: Any):
        self.model, self.stream, self.optimiser, self.rng, self.carried = model, stream, optimiser, rng, state
        self.done, self.passes = 0, 0
        self.losses: list[tuple[int, float]] = []
        self.total: Any = 0.0  # Σ loss over the steps since the last reading, where the model is
        self.steps, self.tokens = 0, 0  # since the last reading; in this run, all rows together
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


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Signals that ask to stop, as they come; each asks once, and then means again what it meant before.

    SIGTERM is given on at the end. Where this is not the main thread, none comes.
    """
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    found: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # None: set by no Python code. SIG_IGN: a job in the background, which another program's Ctrl-C must not stop.
    before = {number: handler for number, handler in found.items() if handler not in (None, signal.SIG_IGN)}

    def ask(number: int, _: Any) -> None:
        asked.append(number)
        signal.signal(number, before[number])

    for number in before:
        signal.signal(number, ask)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if signal.SIGTERM in asked:
        signal.raise_signal(signal.SIGTERM)
