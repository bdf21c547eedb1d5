"""`minibptt derive`: a gradient derived step by step, for a small cell with numbers of one's own.

Read after ../derive.py.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np

from .. import ops
from ..cells import Cell, GRUCell, LSTMCell, RNNCell
from ..derive import DETAILS, derive
from ..listing import counted
from ..losses import mse
from ..module import generator
from ..parameters import assign, parameter
from ..sequence import unroll
from ..tape import Tape
from ..tensor import Tensor, zeros
from .output import say
from .output import shown as shown_path

TOY_X, TOY_Y, TOY_LENGTH = [1.0, 2.0, 3.0, 0.0], [4.0, 6.0, 8.0, 0.0], 3


class LinearCell(Cell):
    """h_t = w_x·x_t + b_x + w_h·h_{t−1} + b_h, all of them numbers."""

    def __init__(self) -> None:
        for name, value in {"w_x": 3.0, "b_x": 1.0, "w_h": 2.0, "b_h": 1.0}.items():
            setattr(self, name, parameter([value], dtype=np.float64))

    def zero_state(self, batch: int) -> Tensor:
        return zeros((batch, 1))

    def step(self, x: Any, h: Any) -> tuple[Tensor, Tensor]:
        h = self.w_x * x + self.b_x + self.w_h * h + self.b_h  # type: ignore[attr-defined]
        return h, h


def add(subparsers: Any) -> None:
    """Add the command to the parser."""
    sub = subparsers.add_parser(
        "derive",
        help="a gradient on paper, term by term, from the last step back",
        description="Derive the gradient of a small recurrent cell on one row of numbers, term by term, from the last "
        "step back; with --cut-every, cut and mended in two columns. The loss is the sum of (output - y) for the "
        "linear cell, and mse for the others.",
    )
    sub.add_argument("--cell", choices=("linear", "rnn", "lstm", "gru"), default="linear",
                     help="the cell (default: linear, h = w_x*x + b_x + w_h*h + b_h)")  # fmt: skip
    sub.add_argument("--steps", type=int, metavar="T", help="steps of the sequence (default: those of --x, or 4)")
    sub.add_argument("--hidden", type=int, default=1, metavar="H", help="hidden units (default: 1)")
    sub.add_argument("--cut-every", type=int, metavar="K", help="cut the state before every K steps (default: no cut)")
    sub.add_argument("--wrt", metavar="NAME", help="the parameter (default: w_h or W_h)")
    sub.add_argument("--detail", choices=DETAILS, default="step", help="how much to show (default: step)")
    sub.add_argument("--reset", choices=("after", "before"), default="after", help="of the gru (default: after)")
    sub.add_argument("--set", action="append", default=[], metavar="NAME=V[,V...]",
                     help="numbers of a parameter, such as w_h=2; give it several times")  # fmt: skip
    sub.add_argument("--x", metavar="V,V,...", help="the inputs; write --x=-1,2 where the first is negative")
    sub.add_argument("--y", metavar="V,V,...", help="the targets, one for each step")
    sub.add_argument("--lengths", type=int, metavar="N", help="steps that are real; the rest is padding")
    sub.add_argument("--seed", type=int, default=0, metavar="N", help="for weights and inputs not given (default: 0)")
    sub.add_argument("--latex", action="store_true", help="print LaTeX (an align* block, for amsmath)")
    sub.add_argument("--html", type=Path, metavar="FILE", help="write a page instead of printing")
    sub.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the cell on a tape and show the derivation. ValueError for what cannot be."""
    cell, x, y, lengths = _problem(options)
    names = cell.parameters()
    wrt = options.wrt or ("w_h" if "w_h" in names else "W_h")
    if wrt not in names:
        raise ValueError(f"--wrt {wrt}: the {options.cell} cell has the parameters {', '.join(names)}")
    with Tape() as tape, np.errstate(all="ignore"):
        outputs, _ = unroll(cell, x, lengths=lengths, cut_every=options.cut_every)
        target = np.broadcast_to(y, outputs.shape)
        loss = ops.sum(outputs - target) if options.cell == "linear" else mse(outputs, target, lengths=lengths)
    if not math.isfinite(loss.item()):
        raise ValueError(f"the loss is {loss.item()}: give smaller numbers or fewer steps")
    shown: Any = derive(tape, loss, names[wrt], detail=options.detail)
    if tape.cuts:
        mended = derive(tape, loss, names[wrt], through_cuts=True, detail=options.detail)
        k = options.cut_every
        shown = shown.beside(mended, (f"cut every {counted(k, 'step')}", "cuts mended: full BPTT"))
    if options.html is not None:
        if options.html.is_dir():
            raise ValueError(f"--html {options.html}: a folder of that name is there; give a file")
        if not options.html.parent.is_dir():
            raise ValueError(f"--html {options.html}: there is no such folder; give a file in a folder that is there")
        options.html.write_text(shown.html(), encoding="utf-8")
        say(f"Written to {shown_path(options.html)}")
    if options.latex or options.html is None:
        say(shown.latex() if options.latex else str(shown))


def _problem(options: argparse.Namespace) -> tuple[Any, np.ndarray, np.ndarray, list[int] | None]:
    """(cell, x (T, 1, 1), y (T, 1, 1), lengths), from the numbers that were given."""
    x = None if options.x is None else _numbers("--x", options.x)
    for name in ("steps", "hidden", "cut_every"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')}: expected at least 1, found {value}")
    T = options.steps or (4 if x is None else len(x))
    if options.cut_every is not None and options.cut_every > T:
        raise ValueError(f"--cut-every {options.cut_every}: the sequence has {counted(T, 'step')}; give at most {T}")
    toy = options.cell == "linear" and T == 4 and x is None
    rng = generator(_natural("--seed", options.seed))
    cell = _cell(options, rng)
    given = np.round(rng.standard_normal(T), 1).tolist() if options.cell != "linear" else [*range(1, T + 1)]
    x = (TOY_X if toy else given) if x is None else x
    targets = TOY_Y if toy else [0.0] * T
    y = targets if options.y is None else _numbers("--y", options.y)
    for name, values in (("--x", x), ("--y", y)):
        if len(values) != T:
            raise ValueError(f"{name}: expected {counted(T, 'number')}, one for each step, found {len(values)}")
    length = TOY_LENGTH if toy and options.y is None and options.lengths is None else options.lengths
    if length is not None and not 0 <= length <= T:
        raise ValueError(f"--lengths: expected a number of steps from 0 to {T}, found {length}")
    return cell, np.reshape(x, (T, 1, 1)) * 1.0, np.reshape(y, (T, 1, 1)) * 1.0, None if length is None else [length]


def _cell(options: argparse.Namespace, rng: np.random.Generator) -> Any:
    """The cell with its numbers: those that were given, and drawn ones to one decimal place for the rest."""
    H = options.hidden
    if options.cell == "linear":
        if H != 1:
            raise ValueError(f"--hidden {H}: the linear cell has one hidden unit; choose --cell rnn, lstm or gru")
        cell: Any = LinearCell()
    elif options.cell == "gru":
        cell = GRUCell(1, H, reset=options.reset, rng=rng, dtype=np.float64)
    else:
        cell = {"rnn": RNNCell, "lstm": LSTMCell}[options.cell](1, H, rng=rng, dtype=np.float64)
    names = cell.parameters()
    if options.cell != "linear":
        for p in names.values():
            assign(p, np.round(p.value, 1))
    for text in options.set:
        name, sign, values = text.partition("=")
        if not sign or name not in names:
            raise ValueError(f"--set {text}: expected NAME=V[,V...] with one of the names {', '.join(names)}")
        found, p = _numbers(f"--set {name}", values), names[name]
        if len(found) not in (1, p.size):
            shape = "×".join(map(str, p.shape))
            raise ValueError(
                f"--set {name}: expected {counted(p.size, 'number')} ({shape}, row by row) or one for all of them, "
                f"found {len(found)}"
            )
        assign(p, np.broadcast_to(found, p.size).reshape(p.shape))
    return cell


def _natural(name: str, value: int) -> int:
    if value < 0:
        raise ValueError(f"{name}: expected at least 0, found {value}")
    return value


def _numbers(name: str, text: str) -> list[float]:
    found = []
    for part in text.split(","):
        try:
            found.append(float(part))
        except ValueError:
            raise ValueError(f"{name}: expected numbers with commas between them, found {part!r}") from None
        if not math.isfinite(found[-1]):
            raise ValueError(f"{name}: expected finite numbers, found {part!r}")
    return found
