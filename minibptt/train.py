"""A training loop on a stream: the state carried, stopped at any time, resumed to the bit. Read after loop.py.

A checkpoint holds all that the next update depends on: weights, optimiser, the carried state, the position in the
stream, and the generators of dropout and of schedules that draw their cuts. Training ends, is stopped and is saved
between two windows of the stream only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .loop import Loop
from .module import Module, Rng, check_model, check_number, check_path, check_size, generator, learning, unwritable
from .objective import check_loss
from .optim import Optimiser
from .progress import Progress
from .signals import interrupts
from .streams import Stream
from .tensor import Tensor
from .truncation import Schedule


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
    _check_stream(stream)
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
    with learning(model), interrupts() as asked, np.errstate(all="ignore"):
        saved = None
        while loop.done < updates and not asked:
            before = loop.done
            if not loop.window(loss, schedule, clip):
                break
            if _passed(read_every, before, loop.done):
                loop.read()
            if save is not None and _passed(every, before, loop.done):
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
            line.say(f"training stopped after {loop.done} of {updates} updates; to go on: {_how_to_go_on(save)}")
    return Training(loop.done, loop.passes, loop.all_losses(), loop.carried, stopped)


def _passed(every: int | None, before: int, now: int) -> bool:
    """Whether a multiple of `every` updates lies between two numbers of them."""
    return every is not None and now // every > before // every


def _how_to_go_on(save: str | os.PathLike[str] | None) -> str:
    if save is None:
        return "give the answer's state as state=, for there is no checkpoint without save="
    return f"train(…, resume={os.fspath(save)!r})"


def _check_stream(stream: Any) -> None:
    if not isinstance(stream, Stream):
        raise TypeError(
            f"train takes a stream, stream_batches(tokens, batch=…, steps=…), or a Stream of your own; found "
            f"{type(stream).__name__}"
        )


def _check_saving(save: str | os.PathLike[str] | None, about: Any) -> None:
    """CheckpointError or TypeError for what could not be saved, or not there: before the training, not after it."""
    if save is None and about is None:
        return
    from . import saving  # here, as below, so that `import minibptt` stays quick

    if save is not None:
        check_path("train: save", save)
        why = unwritable(save)
        if why:
            raise saving.CheckpointError(f"{save or repr(save)} cannot be written: {why}")
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
