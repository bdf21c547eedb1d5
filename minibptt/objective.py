"""How a loss is asked while a sequence goes by in windows: L_t is the slice t of ∂L/∂outputs.

A loss is asked on a tape of its own, on which the outputs are all that it can be differentiated by. It is either a
function of the outputs of the whole sequence, or one that takes `count` and can so be asked on a part. Read after
plans.py.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .backend import Array, library_of
from .plans import Update
from .tape import Tape, cut, no_tape
from .tensor import Tensor

Loss = Callable[..., Tensor]


class Objective(ABC):
    """What `answer` says of an update: (the loss or None, ∂L/∂outputs on the steps of its window)."""

    whole = False  # whether it wants to see the outputs of all steps before the first update

    @abstractmethod
    def answer(self, update: Update, window: Tensor) -> tuple[Tensor | None, Array]:
        """window: the outputs of the steps from update.start to the last loss that the update owns."""

    def see(self, first: int, outputs: Tensor) -> None:  # noqa: B027  most have nothing to note
        """Take note of the outputs from step `first` on (from 0)."""


class Known(Objective):
    """∂L/∂outputs (T, B, …) is known beforehand."""

    def __init__(self, seeds: Array):
        self.seeds = seeds

    def answer(self, update: Update, window: Tensor) -> tuple[Tensor | None, Array]:
        return None, owned(self.seeds, update, update.start, update.losses.stop)


class OnOwnedSteps(Objective):
    """A loss with `count` is asked on the steps that an update owns, as loss(outputs[a:b], y[a:b], count=…).

    count is the number of real target entries of the whole sequence, so that the parts add up to the whole loss.
    ValueError where y is not (T, B, …).
    """

    def __init__(self, loss: Loss, y: Any, mask: np.ndarray | None, T: int, B: int):
        shape = tuple(getattr(y, "shape", ())) if hasattr(y, "shape") or y is None else np.shape(y)
        if shape[:2] != (T, B):
            found = f"shape {shape}" if shape else repr(y)
            raise ValueError(
                f"a loss that takes count is asked on a part of the steps, so y must be (T, B, …) = ({T}, {B}, …); "
                f"found {found}. For a loss of the whole sequence give a function of (outputs, y) without count"
            )
        self.loss, self.y, self.mask = loss, y, mask
        self.count = int(T * B if mask is None else mask.sum()) * math.prod(shape[2:]) or 1

    def answer(self, update: Update, window: Tensor) -> tuple[Tensor | None, Array]:
        a, b = update.losses.start, update.losses.stop
        mine = slice(a - update.start, b - update.start)
        mask = None if self.mask is None else self.mask[a:b]
        value, seed = ask(self.loss, window.value[mine], self.y[a:b], mask, window.weak, count=self.count)
        if b - a == len(window):
            return value, seed
        seeds = library_of(seed).zeros_like(window.value, dtype=seed.dtype)
        seeds[mine] = seed
        return value, seeds


class OnWhole(Objective):
    """A loss of the outputs of all steps, of which the newest that are known are kept.

    once: the weights do not move, so one answer serves all updates; it must be finite.
    """

    whole = True

    def __init__(self, loss: Loss, y: Any, mask: np.ndarray | None, T: int, once: bool = False):
        self.loss, self.y, self.mask, self.T, self.once = loss, y, mask, T, once
        self.outputs: Array = None
        self.known: tuple[Tensor, Array] | None = None

    def see(self, first: int, outputs: Tensor) -> None:
        if self.known:
            return
        value = outputs.value
        if self.outputs is None:
            self.outputs = library_of(value).zeros((self.T, *value.shape[1:]), dtype=value.dtype)
        self.outputs[first : first + len(value)] = value

    def answer(self, update: Update, window: Tensor) -> tuple[Tensor | None, Array]:
        a, b = update.start, update.losses.stop
        if self.known:
            value, seeds = self.known
        else:
            if (a, b) != (0, self.T):
                self.see(a, window)
            outputs = window.value if (a, b) == (0, self.T) else self.outputs
            value, seeds = ask(self.loss, outputs, self.y, self.mask, window.weak, finite=self.once)
            if self.once:
                self.known, self.outputs = (value, seeds), None
        return value, owned(seeds, update, a, b)


def objective(loss: Loss, y: Any, mask: np.ndarray | None, T: int, B: int) -> Objective:
    """How `loss` is asked while weights move: on the owned steps where it takes count, else on the whole."""
    check_loss(loss)
    return OnOwnedSteps(loss, y, mask, T, B) if takes_count(loss) else OnWhole(loss, y, mask, T)


def takes_count(loss: Loss) -> bool:
    """Whether the loss has a keyword `count` that is still free: not one that functools.partial has filled in."""
    if isinstance(loss, partial) and "count" in loss.keywords:
        return False
    try:
        count = inspect.signature(loss).parameters.get("count")
    except (TypeError, ValueError):  # a callable without a signature
        return False
    return count is not None and count.kind in (count.KEYWORD_ONLY, count.POSITIONAL_OR_KEYWORD)


def ask(
    loss: Loss, outputs: Array, y: Any, mask: np.ndarray | None, weak: bool = False, finite: bool = False, **count: Any
) -> tuple[Tensor, Array]:
    """(the loss without a past, ∂L/∂outputs), on a tape of its own. Nothing is read from a device unless `finite`."""
    with Tape() as tape:
        watched = tape.watch(Tensor(outputs, weak=weak))
        value = asked(loss, watched, y, mask, **count)
    if finite:
        _refuse_infinite(value)
    refuse_parameters_in_the_loss(tape, 0)
    with no_tape():
        return cut(value), tape.gradient(value, watched)


def call_loss(loss: Loss, outputs: Tensor, y: Any, mask: np.ndarray | None) -> Tensor:
    """loss(outputs, y), or loss(outputs, y, mask=mask) where there is padding. ValueError for no finite scalar."""
    if mask is not None and not mask.any():
        raise ValueError("no step is real: all lengths are 0, or the mask is. There is nothing to compare")
    value = asked(loss, outputs, y, mask)
    _refuse_infinite(value)
    return value


def asked(loss: Loss, outputs: Tensor, y: Any, mask: np.ndarray | None, **count: Any) -> Tensor:
    """What the loss says of these outputs. ValueError where it is no scalar tensor, TypeError for no function."""
    check_loss(loss)
    try:
        value = loss(outputs, y, **count) if mask is None else loss(outputs, y, mask=mask, **count)
    except TypeError as error:
        if mask is not None and "'mask'" in str(error):
            raise TypeError("with lengths or a mask the loss is called as loss(outputs, y, mask=…)") from error
        raise
    if not isinstance(value, Tensor) or value.size != 1:
        found = f"shape {value.shape}" if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"the loss must return a scalar tensor, found {found}")
    if value.dtype.kind == "c":
        raise TypeError("the loss is complex; gradients are of real losses")
    if outputs.mark is not None and value.mark is not outputs.mark:
        raise ValueError("the loss does not depend on the outputs: there is no gradient")
    return value


def check_loss(loss: Any) -> None:
    """TypeError for what cannot be called."""
    if not callable(loss):
        raise TypeError(f"the loss must be a function of (outputs, y), found {type(loss).__name__}")


def _refuse_infinite(value: Tensor) -> None:
    if not math.isfinite(value.item()):
        raise ValueError(f"the loss is {value.item()}: nothing can be compared")


def refuse_parameters_in_the_loss(tape: Tape, recorded: int) -> None:
    """ValueError where a parameter is used in the records after the first `recorded`, which are those of the loss."""
    used = {slot for record in tape.records[recorded:] for slot in record.inputs}
    if any(leaf.is_parameter and slot in used for slot, leaf in tape.leaves.items()):
        raise ValueError(
            "a parameter is used inside the loss, where it belongs to no step: a truncation cannot be judged. Make it "
            "a layer of the model"
        )


def owned(seeds: Any, update: Update, first: int, last: int) -> Any:
    """∂L/∂outputs of the steps `first` to `last` (not included), with 0 at the losses that the update does not own."""
    seeds, losses = seeds[first:last], update.losses
    if (losses.start, losses.stop) == (first, last):
        return seeds
    kept = library_of(seeds).zeros_like(seeds)
    mine = slice(losses.start - first, losses.stop - first)
    kept[mine] = seeds[mine]
    return kept
