"""What several commands ask for: types of arguments, and the task and the model chosen by them.

Read after output.py.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..backend import BACKENDS
from ..data import read_text, standard_library
from ..layers import Embedding, Linear, Sequential
from ..recurrent import CELLS
from ..tasks import TASKS, Task, text_task
from .output import shown


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
