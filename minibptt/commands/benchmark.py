"""minibptt benchmark: a training step on the CPU and on a GPU, timed honestly. Read after ../benchmark.py."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from ..benchmark import sweep
from ..progress import Progress
from ..recurrent import CELLS
from ..timings import read
from .arguments import UsageError, number, positive
from .output import output_folder, say, shown

OWN_FILES = {"benchmark.csv", "benchmark-H.png", "benchmark-B.png", "benchmark-T.png"}


def add(subparsers: Any) -> None:
    sub = subparsers.add_parser(
        "benchmark",
        help="a training step on CPU and GPU, timed",
        description="Time a training step on every backend that works here, over the cell, H, B and T: warmed up, "
        "synchronised on both sides of the clock. Prints a table; writes a figure and a CSV file.",
    )
    sub.add_argument("--cell", choices=sorted(CELLS), nargs="+", default=["lstm"], help="cells (default: lstm)")
    sub.add_argument("--hidden", type=positive, nargs="+", default=[32, 64, 128, 256], metavar="H",
                     help="hidden units, as many inputs (default: 32 64 128 256)")  # fmt: skip
    sub.add_argument("--batch", type=positive, nargs="+", default=[1, 32], metavar="B", help="rows (default: 1 32)")
    sub.add_argument("--length", type=positive, nargs="+", default=[50], metavar="T", help="steps (default: 50)")
    sub.add_argument("--seconds", type=number, default=0.3, metavar="S",
                     help="about how long to measure each (default: 0.3)")  # fmt: skip
    sub.add_argument("--recorded", type=Path, metavar="FILE",
                     help="a CSV file that this command wrote on a machine with a GPU, to show too")  # fmt: skip
    sub.add_argument("--out", type=Path, default=Path("minibptt-benchmark"), metavar="DIR",
                     help="folder for the figure and the numbers (default: minibptt-benchmark)")  # fmt: skip
    sub.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    if not 0 < options.seconds < float("inf"):
        raise UsageError(f"--seconds must be a positive number, found {options.seconds}")
    recorded = None if options.recorded is None else read(options.recorded)
    without = [row.cell for row in recorded.rows if row.H < 1] if recorded else []
    if without:
        raise UsageError(f"--recorded {shown(options.recorded)}: a timing of {without[0]} has no H to be drawn at")
    axes = {"H": options.hidden, "B": options.batch, "T": options.length}
    over = [name for name, values in axes.items() if len(set(values)) > 1] or ["H"]
    from .. import plots  # after the checks: matplotlib takes a while to load

    with output_folder(options.out, OWN_FILES) as staging:
        cells, sizes = list(dict.fromkeys(options.cell)), [sorted(set(values)) for values in axes.values()]
        line = Progress("measuring", len(cells) * math.prod(map(len, sizes)))
        result = sweep(cells, *sizes, seconds=options.seconds, progress=line)
        line.end()
        result.to_csv(staging / "benchmark.csv")
        shown_too = result if recorded is None else result.with_recorded(recorded)
        say(shown_too.table(), end="\n\n")
        for name in over:
            plots.save(plots.benchmark(shown_too, over=name), staging / f"benchmark-{name}.png")
        names = sorted(p.name for p in staging.iterdir())
    say(f"Written to {shown(options.out)}: {', '.join(names)}")
