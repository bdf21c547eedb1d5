"""minibptt compare: what truncation keeps of the gradient, on text or a task, before and after training.

Read after arguments.py.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..backend import to_backend, use_backend
from ..compare import compare
from ..contributions import contributions
from ..history import History, compared_over
from ..layers import Sequential
from ..module import generator
from ..progress import Progress
from ..report import Comparison
from ..tasks import Task
from ..truncation import ARTBP, Full, Schedule, artbp, full, tbptt
from .arguments import (
    UsageError,
    add_model,
    add_task,
    model_of,
    natural,
    positive,
    probability,
    rate,
    task_of,
    window,
)
from .output import output_folder, say, shown, version
from .trained import trained

MOMENTS = ("compare", "before", "after")
FILES = (".csv", "-parts.csv", ".json", ".png", "-contributions.png", "-lags.png", "-schemes.png")
OWN_FILES = {f"{moment}{file}" for moment in MOMENTS for file in FILES}
OWN_FILES |= {f"training.{kind}" for kind in ("csv", "json", "png")}
MOST_STEPS = 48  # of the pairs (loss step, source step) that are drawn: what an eye can tell apart
MOST_SCHEMES, MOST_LINES = 7, 6  # in one figure, besides full BPTT


def add(subparsers: Any) -> None:
    sub = subparsers.add_parser(
        "compare",
        help="what truncation keeps of the gradient, on text",
        description="Compare truncated BPTT with full BPTT on a character model of real text (by default the source "
        "of Python's own standard library). Prints a table; writes figures, CSV and JSON.",
    )
    add_task(sub)
    add_model(sub)
    sub.add_argument("--tbptt", type=window, action="append", metavar="K[,K2]",
                     help="chunks of K steps, or an update every K steps back through K2; give it several times "
                     "(default: 1, 2, 3, 4, 6, 8 ... T)")  # fmt: skip
    sub.add_argument("--artbp", type=probability, action="append", metavar="P",
                     help="random truncation that cuts with probability P; give it several times")  # fmt: skip
    sub.add_argument("--draws", type=positive, default=32, metavar="N",
                     help="how often the cuts of random truncation are drawn (default: 32)")  # fmt: skip
    sub.add_argument("--by", choices=("parameter", "gate"), help="print the kept share by parameter or by gate too")
    sub.add_argument("--train-steps", type=natural, default=0, metavar="N",
                     help="train so many steps by full BPTT first, and compare before and after")  # fmt: skip
    sub.add_argument("--every", type=positive, metavar="M",
                     help="compare after every M training steps too, without memory and time")  # fmt: skip
    sub.add_argument("--lr", type=rate, default=2e-3, metavar="RATE", help="Adam's step size (default: 0.002)")
    sub.add_argument("--out", type=Path, default=Path("minibptt-compare"), metavar="DIR",
                     help="folder for the figures and the numbers (default: minibptt-compare)")  # fmt: skip
    sub.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    use_backend(options.backend)
    schedules = _schedules(options)
    if options.every and not options.train_steps:
        raise UsageError(f"--every {options.every} needs a training: give --train-steps N too")
    if options.by == "gate" and options.cell == "rnn":
        raise UsageError("--by gate: an rnn has no gates; give --cell lstm or --cell gru")
    task = task_of(options)
    from .. import plots  # after the checks: matplotlib takes a while to load

    with output_folder(options.out, OWN_FILES) as staging:
        streams = generator(options.seed).spawn(4)
        model = model_of(options, task, streams)
        moments = []
        for done, result in _moments(model, task, schedules, options, streams[3]):
            moments.append((done, result))
            if 0 < done < options.train_steps:
                continue
            name = "compare" if not options.train_steps else "after" if done else "before"
            say(result.table(), end="\n\n")
            if options.by:
                say(result.table(options.by), end="\n\n")
            result.to_csv(staging / f"{name}.csv")
            result.to_csv(staging / f"{name}-parts.csv", by_part=True)
            result.to_json(staging / f"{name}.json")
            plots.save(plots.compare(result), staging / f"{name}.png")
            _draw_pairs(model, schedules, options, staging / name)
        if options.every:
            history = History(tuple(moments), _title(options, task))
            say(history.table(), end="\n\n")
            history.to_csv(staging / "training.csv")
            history.to_json(staging / "training.json")
            shown_over = _some([s for s in schedules if not isinstance(s, Full)], MOST_LINES)
            plots.save(plots.training(history, schedules=shown_over), staging / "training.png")
        names = sorted(p.name for p in staging.iterdir())
    say(f"For scale: {task.baseline_is}, the loss is {task.baseline:.4f}.")
    say(f"Written to {shown(options.out)}: {', '.join(names)}")


def _moments(
    model: Sequential, task: Task, schedules: list[Schedule], options: argparse.Namespace, rng: Any
) -> Iterator[tuple[int, Comparison]]:
    """(training steps done, what was found then): once, or before and after training and every so many steps."""
    x, y = task.sample(options.batch)
    x = x if task.ids else to_backend(x)
    about = {k: v for k, v in vars(options).items() if isinstance(v, str | int | float) and k != "command"}
    about |= {k: shown(v) for k, v in about.items() if isinstance(v, str)}  # a file's name need not be UTF-8
    about |= {"trained_steps": 0, "minibptt": version("minibptt"), "python": platform.python_version()}
    keywords: dict[str, Any] = {"draws": options.draws, "progress": _Comparing(), "about": about}
    given = (model, x, y, task.loss, schedules)
    title = _title(options, task)
    if not options.train_steps:
        yield 0, compare(*given, title=f"{title}, untrained", **keywords)
        return
    training = trained(model, task, rng, steps=options.train_steps, batch=options.batch, lr=options.lr)
    every = options.every or options.train_steps
    yield from compared_over(training, *given, every=every, measure=not options.every, title=title, **keywords)


def _title(options: argparse.Namespace, task: Task) -> str:
    return f"{options.cell.upper()}, H = {options.hidden}, {task.name}"


class _Comparing:
    """A progress line for each comparison."""

    def __call__(self, done: int, total: int) -> None:
        if done == 1:
            self.line = Progress("comparing", total)
        self.line(done)
        if done == total:
            self.line.end()


def _schedules(options: argparse.Namespace) -> list[Schedule]:
    T = options.length
    steps = {2**i for i in range(T.bit_length())} | {3 * 2**i for i in range(T.bit_length())}
    chosen = options.tbptt or ([] if options.artbp else [(k, k) for k in sorted({*(k for k in steps if k < T), T})])
    for k1, _ in chosen:
        if k1 > T:
            raise UsageError(f"--tbptt {k1}: chunks longer than the sequence are full BPTT; give at most --length {T}")
    windows = sorted(set(chosen), key=lambda pair: (pair[0] != pair[1], pair))
    return [*(tbptt(*w) for w in windows), *(artbp(p) for p in sorted(set(options.artbp or []))), full()]


def _draw_pairs(model: Sequential, schedules: list[Schedule], options: argparse.Namespace, stem: Path) -> None:
    """The figures of the pairs of steps: the triangle, the share by lag, the schemes side by side.

    They show the first steps of the batch, or a task that is made as short.
    """
    from .. import plots

    T = min(options.length, MOST_STEPS)
    task = task_of(options, None if options.task is None else T)
    x, y = task.sample(options.batch)
    symbols, targets = "", ""
    if options.task is None:
        x, y = x[:T], y[:T]
        if options.batch == 1:
            symbols, targets = _text(task, x), _text(task, y)
    c = contributions(model, x if task.ids else to_backend(x), y, task.loss)
    short = [s for s in schedules if s.plan(T, rng=0).longest < T]  # the others are full BPTT here
    fixed = [s for s in short if not isinstance(s, ARTBP)]  # a draw is one of many
    figures = {
        "contributions": plots.contributions(
            c, fixed[len(fixed) // 2] if fixed else None, symbols=symbols, targets=targets
        ),
        "lags": plots.lags(c),
        "schemes": plots.schemes(T, [*_some(short, MOST_SCHEMES), full()], c),
    }
    where = f"{task.name} at {T} steps" if options.task else f"first {T} of {options.length} steps"
    for name, axes in figures.items():
        if options.length > T:
            figure = np.ravel(axes)[0].figure
            figure.suptitle("; ".join(filter(None, [figure.get_suptitle(), where])), fontsize=16)
        plots.save(axes, stem.with_name(f"{stem.name}-{name}.png"))


def _some(schedules: list[Schedule], most: int) -> list[Schedule]:
    """At most so many of them, evenly chosen, the last one among them."""
    last = len(schedules) - 1
    return [schedules[i] for i in sorted({round(i) for i in np.linspace(last, 0, most)})] if schedules else []


def _text(task: Task, ids: Any) -> str:
    return "".join(task.symbols[i] for i in ids[:, 0].tolist())
