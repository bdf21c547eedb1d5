"""What several commands ask for: types of arguments, and the task, the model and the training chosen by them.

Read after output.py.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..backend import BACKENDS, to_backend
from ..data import read_text, standard_library
from ..layers import Embedding, Linear, Sequential
from ..optim import Adam, clip_by_global_norm
from ..progress import Progress
from ..recurrent import GRU, LSTM, RNN
from ..tape import Tape
from ..tasks import TASKS, Task, text_task
from .output import shown

CELLS: dict[str, Callable[..., Any]] = {"rnn": RNN, "lstm": LSTM, "gru": GRU}


class UsageError(ValueError):
    """What a user asked for cannot be done; the message is all that is shown."""


def add_task(sub: argparse.ArgumentParser) -> None:
    """--text or --task, --length, --batch: see `task_of`."""
    source = sub.add_mutually_exclusive_group()
    source.add_argument("--text", metavar="FILE", help="a UTF-8 text file of your own")
    source.add_argument("--task", choices=sorted(TASKS), help="a synthetic task instead of text")
    sub.add_argument("--length", type=positive, default=128, metavar="T", help="steps of a sequence (default: 128)")
    sub.add_argument("--batch", type=positive, default=16, metavar="B", help="sequences at once (default: 16)")


def add_model(sub: argparse.ArgumentParser) -> None:
    """--cell, --hidden, --seed, --backend: see `model_of`."""
    sub.add_argument("--cell", choices=sorted(CELLS), default="rnn", help="the recurrent cell (default: rnn)")
    sub.add_argument("--hidden", type=positive, default=64, metavar="H", help="hidden units (default: 64)")
    sub.add_argument(
        "--seed", type=natural, default=0, metavar="N", help="for weights and training batches (default: 0)"
    )
    sub.add_argument("--backend", default="numpy", metavar="NAME", help=f"{' or '.join(BACKENDS)} (default: numpy)")


def task_of(options: argparse.Namespace, length: int | None = None) -> Task:
    """The task that was chosen, with sequences of --length steps or of `length`."""
    length = length or options.length
    if options.task:
        return TASKS[options.task](length)
    if options.text is not None:
        return text_task(read_text(options.text), length, shown(Path(options.text).name))
    return text_task(standard_library(), length, "Python's standard library")


def model_of(options: argparse.Namespace, task: Task, streams: list[Any]) -> Sequential:
    """An embedding where the task has ids, the cell, a linear layer; each draws from a stream of its own."""
    width = 32 if task.ids else task.inputs
    cell = CELLS[options.cell](width, options.hidden, rng=streams[1])
    first = [Embedding(task.inputs, width, rng=streams[0])] if task.ids else []
    return Sequential(*first, cell, Linear(options.hidden, task.outputs, rng=streams[2]))


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


def whole(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, found {text!r}") from None
    if value < least:
        raise argparse.ArgumentTypeError(f"expected at least {least}, found {value}")
    return value


def positive(text: str) -> int:
    return whole(text, 1)


def natural(text: str) -> int:
    return whole(text, 0)


def at_least(least: int) -> Callable[[str], int]:
    """The type of a whole number that is not smaller."""
    return lambda text: whole(text, least)


def folder(text: str) -> Path:
    """A folder to write into, which need not be there yet."""
    path = Path(text)
    there = next(one for one in (path, *path.absolute().parents) if os.path.exists(one))
    if not os.path.isdir(there):
        raise argparse.ArgumentTypeError(f"cannot write to the folder {shown(path)}: {shown(there)} is a file")
    if not os.access(there, os.W_OK):
        raise argparse.ArgumentTypeError(f"cannot write to the folder {shown(path)}: {shown(there)} is read-only")
    return path


def csv_rows(*columns: str) -> Callable[[str], list[dict[str, str]]]:
    """The type of a CSV file with at least these columns, and a line: its lines by column."""

    def rows(text: str) -> list[dict[str, str]]:
        try:
            with open(text, newline="", encoding="utf-8") as file:
                found = list(csv.DictReader(file))
        except OSError as error:
            raise argparse.ArgumentTypeError(f"cannot read {shown(text)}: {error.strerror}") from None
        except (csv.Error, UnicodeDecodeError) as error:
            raise argparse.ArgumentTypeError(f"{shown(text)} is no CSV file: {error}") from None
        missing = [column for column in columns if not found or found[0].get(column) is None]
        if missing:
            what = "has no line of numbers" if not found else f"has no column {', '.join(missing)}"
            raise argparse.ArgumentTypeError(f"{shown(text)} {what}: give a file that this script wrote")
        return found

    return rows


def window(text: str) -> tuple[int, int]:
    parts = text.split(",")
    if len(parts) > 2:
        raise argparse.ArgumentTypeError(f"expected K or K1,K2, found {text!r}")
    return positive(parts[0]), positive(parts[-1])


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, found {text!r}") from None


def probability(text: str) -> float:
    value = number(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"expected a probability of at least 0 and below 1, found {text}")
    return value


def rate(text: str) -> float:
    value = number(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a positive number, found {text}")
    return value
