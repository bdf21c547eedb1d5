"""minibptt explore: the page "what does your k throw away?", of a text, a task, or three examples that teach.

Read after ../explore.py.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..contributions import Contributions, contributions
from ..data import read_text, standard_library
from ..explore import MOST_STEPS, Preset, explore
from ..layers import Embedding, Linear, Sequential
from ..listing import counted
from ..losses import mse
from ..module import generator
from ..recurrent import CELLS
from ..tasks import TASKS, InfluenceBalancing, Task, text_task
from .arguments import UsageError, natural, positive, rate
from .output import say, shown
from .trained import trained

MOMENTS = 5  # that are stored of a training
TRAINING_BATCH = 32
# Where the options do not say: of a text one row, so that its characters can be read; of a task many, so that what all
# rows have in common stands out, with a model so small that every pair still fits into the page.
TEXT = {"batch": 1, "cell": "lstm", "hidden": 24, "train_steps": 2000}
TASK = {"batch": 512, "cell": "rnn", "hidden": 8, "train_steps": 600}
LEARNT = 8000  # characters of the standard library: so few that they are nearly learnt by heart


def add(subparsers: Any) -> None:
    sub = subparsers.add_parser(
        "explore",
        help="a page to try truncations on",
        description="Write one HTML file in which any cut can be tried: what it keeps of the gradient, pair by pair. "
        "Without --text or --task it has three examples: text, the two-lag coin, influence balancing.",
    )
    source = sub.add_mutually_exclusive_group()
    source.add_argument("--text", metavar="FILE", help="a UTF-8 text file of your own")
    source.add_argument("--task", choices=sorted(TASKS), help="a synthetic task instead of text")
    sub.add_argument("--start", type=natural, metavar="N", help="the character of the text that comes first")
    sub.add_argument("--length", type=positive, default=32, metavar="T", help="steps (default: 32)")
    sub.add_argument(
        "--batch", type=positive, metavar="B", help="rows (default: 1 of a text, to be read; 512 of a task)"
    )
    sub.add_argument(
        "--cell", choices=sorted(CELLS), help="the recurrent cell (default: lstm of a text, rnn of a task)"
    )
    sub.add_argument("--hidden", type=positive, metavar="H", help="hidden units (default: 24 of a text, 8 of a task)")
    sub.add_argument("--train-steps", type=natural, metavar="N",
                     help="training steps by full BPTT, of which the page shows several moments "
                     "(default: 2000 of a text, 600 of a task)")  # fmt: skip
    sub.add_argument("--lr", type=rate, default=1e-2, metavar="RATE", help="Adam's step size (default: 0.01)")
    sub.add_argument("--seed", type=natural, default=0, metavar="N", help="for weights and batches (default: 0)")
    sub.add_argument("--out", type=Path, default=Path("page.html"), metavar="FILE", help="(default: page.html)")
    sub.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    _check(options)
    if options.task:
        presets = [_task(options, options.task)]
    elif options.text is not None:
        name = shown(Path(options.text).name)
        presets = [_text(options, read_text(options.text), name)]
    else:
        library = _text(options, standard_library(LEARNT), "Python's standard library")
        presets = [library, _task(options, "coin"), _influence()]
    handle, unfinished = tempfile.mkstemp(dir=options.out.parent, prefix=".unfinished-")
    os.close(handle)
    try:
        explore(presets, unfinished)
        os.chmod(unfinished, 0o644)
        os.replace(unfinished, options.out)
    finally:
        Path(unfinished).unlink(missing_ok=True)
    size = options.out.stat().st_size / 1e6
    say(f"Written to {shown(options.out)} ({size:.1f} MB): open it in a browser. It needs no network.")


def _check(options: argparse.Namespace) -> None:
    if options.length > MOST_STEPS:
        raise UsageError(f"--length {options.length}: the page shows at most {MOST_STEPS} steps")
    if options.start is not None and options.text is None:
        raise UsageError("--start says where in a text to begin: give --text FILE too")
    if options.out.is_dir() or not options.out.parent.is_dir():
        why = "it is a folder" if options.out.is_dir() else "there is no such folder"
        raise UsageError(f"cannot write to {shown(options.out)}: {why}. Give a file in a folder that is there")
    try:
        with tempfile.TemporaryFile(dir=options.out.parent):
            pass
    except OSError as error:  # known before a training, and not after it
        raise UsageError(
            f"cannot write to {shown(options.out)}: {error.strerror}. Give --out in another folder"
        ) from None


def _text(options: argparse.Namespace, text: str, name: str) -> Preset:
    options = _filled(options, TEXT)
    T = options.length
    task = text_task(text, T, name)
    start = _interesting(text, T) if options.start is None else options.start
    if start + T + 1 > len(text):
        raise UsageError(f"--start {start}: the text has {len(text)} characters, and {T + 1} are needed from there")
    x, y = task.sample(options.batch)
    ids = np.array([task.symbols.index(one) for one in text[start : start + T + 1]])
    x[:, 0], y[:, 0] = ids[:-1], ids[1:]
    moments = dict(_moments(options, task, x, y))
    rows = f" The first of {options.batch} rows is written at the axes." if options.batch > 1 else ""
    about = (
        f"A character {options.cell.upper()} with {counted(options.hidden, 'unit')} reads {len(text):,} characters of "
        f"{name} and is trained by full backpropagation for {counted(options.train_steps, 'step')}.{rows}"
    )
    symbols, targets = text[start : start + T], text[start + 1 : start + T + 1]
    return Preset(f"text: {name}", moments, symbols, targets, about, {"k1": max(1, min(8, T // 4))})


def _interesting(text: str, T: int) -> int:
    """Where to begin: the first line whose first T characters open a bracket and close it late; else the beginning."""
    start = 0
    while start + T < len(text):
        window = text[start : start + T + 1]
        opened, closed = window.find("("), window.find(")")
        once = window.count("(") == window.count(")") == 1
        if once and opened < 2 * T // 3 <= closed and "\n" not in window[:closed]:
            return start
        start = text.find("\n", start) + 1 or len(text)
    return 0


def _task(options: argparse.Namespace, name: str) -> Preset:
    options = _filled(options, TASK)
    task = TASKS[name](options.length)
    x, y = task.sample(options.batch)
    moments = dict(_moments(options, task, x, y))
    about = (
        f"The task {task.name}: {counted(options.batch, 'row')}, {options.cell.upper()} with "
        f"{counted(options.hidden, 'unit')}, trained by full backpropagation for "
        f"{counted(options.train_steps, 'step')}."
    )
    start = {"k1": options.length, "moment": len(moments) // 2}
    if name == "coin":
        about += (
            " The chance of a target depends on the bits 3 and 8 steps before: while that is learnt, stripes stand at "
            "these lags. Try k = 6. A cut takes away the credit, not the memory: the state still carries the bits."
        )
    return Preset(f"task: {name}", moments, about=about, start=start)


def _filled(options: argparse.Namespace, defaults: dict[str, Any]) -> argparse.Namespace:
    given = {name: value for name, value in vars(options).items() if value is not None}
    return argparse.Namespace(**{"start": None, "text": None, "task": None, **defaults, **given})


def _influence() -> Preset:
    """Influence balancing at T = 100: only the last step has a loss, so only one row of pairs is reached."""
    T = 100
    x, y = np.zeros((T, 1, 1)), np.ones((1, 1))

    def last(outputs: Any, y: Any) -> Any:
        return mse(outputs[-1], y)

    c = contributions(InfluenceBalancing(), x, y, last)
    about = (
        "Influence balancing (Tallec and Ollivier 2017): one parameter, 100 steps, a loss at the last step alone. The "
        "near steps pull one way, the far steps the other and further: a window of 10 steps keeps −167 % of the "
        "gradient and trains the wrong way, and so does every window up to 40 steps; 41 keep 4 %, 100 keep all."
    )
    start = {"k1": 100, "k2": 10, "tied": False}
    return Preset("influence balancing", {"": c}, about=about, start=start)


def _moments(options: argparse.Namespace, task: Task, x: Any, y: Any) -> Iterator[tuple[str, Contributions]]:
    """The contributions before training, after it, and at moments in between, each about three times as late."""
    streams = generator(options.seed).spawn(4)
    width = 8 if task.ids else task.inputs
    cell = CELLS[options.cell](width, options.hidden, rng=streams[1], dtype=np.float64)
    first = [Embedding(task.inputs, width, rng=streams[0], dtype=np.float64)] if task.ids else []
    model = Sequential(*first, cell, Linear(options.hidden, task.outputs, rng=streams[2], dtype=np.float64))
    N = options.train_steps
    stops = {0, *(max(1, N // 3**i) for i in range(MOMENTS - 1))} if N else {0}
    training = trained(model, task, streams[3], steps=N, batch=TRAINING_BATCH, lr=options.lr)
    for step in range(N + 1):
        if step:
            next(training)
        if step in stops:
            yield f"after {counted(step, 'step')}" if step else "untrained", contributions(model, x, y, task.loss)
