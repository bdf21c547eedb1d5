"""minibptt sample: text from a model that `minibptt train` made. Read after language.py."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..backend import BACKENDS, use_backend
from ..sampling import sample
from ..saving import load
from .arguments import UsageError, natural, number, positive
from .language import ids_of, language_model, read_header
from .output import say


def add(subparsers: Any) -> None:
    sub = subparsers.add_parser(
        "sample",
        help="text from a model that was trained",
        description="Text from a model that `minibptt train` made, character by character.",
    )
    sub.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="the file that `minibptt train` saved")
    sub.add_argument("--start", metavar="TEXT", help="what it goes on from (default: the beginning of a line)")
    sub.add_argument("--length", type=positive, default=500, metavar="N", help="characters (default: 500)")
    sub.add_argument("--temperature", type=temperature, default=1.0, metavar="T",
                     help="below 1 prefers what is likely; 0 takes the most likely (default: 1)")  # fmt: skip
    sub.add_argument("--seed", type=natural, default=0, metavar="N", help="for the draws (default: 0)")
    sub.add_argument("--backend", default="numpy", metavar="NAME", help=f"{' or '.join(BACKENDS)} (default: numpy)")
    sub.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    use_backend(options.backend)
    about, _ = read_header(options.checkpoint)
    symbols = about["symbols"]
    if options.start == "":
        raise UsageError("--start is empty: give one character or more, or leave it out")
    ids = ids_of(options.start or ("\n" if "\n" in symbols else symbols[0]), symbols)
    model = language_model(len(symbols), about["options"])
    load(options.checkpoint, model)
    say(options.start or "", end="")
    drawn = sample(model, ids, options.length, temperature=options.temperature, rng=options.seed)
    line = ""
    for i in drawn:  # line by line, as they come
        line += symbols[i]
        if symbols[i] == "\n":
            say(line, end="")
            line = ""
    say(line)


def temperature(text: str) -> float:
    value = number(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a temperature of at least 0, found {text}")
    return value
