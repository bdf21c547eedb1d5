"""minibptt train: a character model learns a text, stopped and resumed at will, and is judged at the end.

Read after language.py.
"""

from __future__ import annotations

import argparse
import math
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..backend import BACKENDS, use_backend
from ..evaluate import Evaluation, evaluate
from ..listing import columns, counted
from ..losses import cross_entropy
from ..optim import Adam
from ..progress import Progress
from ..recurrent import CELLS
from ..streams import Stream, stream_batches
from ..train import train
from ..truncation import tbptt
from .arguments import UsageError, natural, positive, probability, rate, window
from .language import Text, header, language_model, read_header
from .output import say, shown

DEFAULT_FILE, UPDATES = Path("minibptt-train.npz"), 2000
# What a checkpoint keeps, so that --resume FILE is enough.
KEPT: dict[str, Any] = {
    "cell": "lstm", "hidden": 128, "layers": 1, "dropout": 0.0, "batch": 32, "steps": 64, "tbptt": None, "lr": 2e-3,
    "clip": 1.0, "seed": 0,
}  # fmt: skip


def add(subparsers: Any) -> None:
    sub = subparsers.add_parser(
        "train",
        help="train a character model on a text, with checkpoints",
        description="Train a character model on a text (by default the source of Python's own standard library), the "
        "state carried from window to window; Ctrl-C stops after the window at hand and saves. The last tenth of the "
        "text is not learnt from: on it the model is judged at the end. With --resume all that made the model is taken "
        "from the checkpoint. On a busy machine set OPENBLAS_NUM_THREADS=1: small products gain nothing from threads.",
    )
    sub.add_argument("--text", metavar="FILE", help="a UTF-8 text file of your own")
    sub.add_argument("--cell", choices=sorted(CELLS), help="the recurrent cell (default: lstm)")
    sub.add_argument("--hidden", type=positive, metavar="H", help="hidden units (default: 128)")
    sub.add_argument("--layers", type=positive, metavar="N", help="recurrent layers (default: 1)")
    sub.add_argument("--dropout", type=probability, metavar="P", help="between layers (default: 0)")
    sub.add_argument("--batch", type=positive, metavar="B", help="rows of the stream (default: 32)")
    sub.add_argument("--steps", type=positive, metavar="T", help="steps of a window (default: 64)")
    sub.add_argument("--tbptt", type=window, metavar="K1[,K2]",
                     help="an update every K1 steps of a window, back through K2 (default: one a window)")  # fmt: skip
    sub.add_argument("--lr", type=rate, metavar="RATE", help="Adam's step size (default: 0.002)")
    sub.add_argument("--clip", type=rate, metavar="NORM", help="the largest norm of a gradient (default: 1)")
    sub.add_argument("--seed", type=natural, metavar="N", help="for weights and dropout (default: 0)")
    sub.add_argument("--updates", type=positive, metavar="N",
                     help="steps of the optimiser, those before a resume included (default: 2000)")  # fmt: skip
    sub.add_argument("--every", type=positive, default=200, metavar="N",
                     help="updates from one checkpoint to the next (default: 200)")  # fmt: skip
    sub.add_argument("--save", type=Path, metavar="FILE",
                     help=f"the checkpoint (default: {DEFAULT_FILE}, or that of --resume)")  # fmt: skip
    sub.add_argument("--resume", type=Path, metavar="FILE", help="a checkpoint to go on from")
    sub.add_argument("--reset-every", type=positive, metavar="N",
                     help="at the end, judge with a state reset every N steps too (default: four windows)")  # fmt: skip
    sub.add_argument("--backend", default="numpy", metavar="NAME", help=f"{' or '.join(BACKENDS)} (default: numpy)")
    sub.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    use_backend(options.backend)
    kept, text, updates, save = _resumed(options) if options.resume else _new(options)
    B, T = kept["batch"], kept["steps"]
    _check_window(kept["tbptt"], T)
    stream = stream_batches(text.learnt, batch=B, steps=T)
    rows = max(1, min(B, len(text.held_out) // (16 * T)))  # few enough for rows that are long beside a window
    held_out = stream_batches(text.held_out, batch=rows, steps=T)
    _check_lengths(options, T, stream, held_out)
    model = language_model(len(text.symbols), kept)
    layers = f"{counted(kept['layers'], 'layer')} of {kept['hidden']}"
    say(f"{kept['cell'].upper()}, {layers}, on {text.name}: {len(text.learnt):,} characters to learn from, "
        f"{len(text.held_out):,} held out, {len(text.symbols)} distinct")  # fmt: skip
    result = train(
        model,
        stream,
        cross_entropy,
        tbptt(*(kept["tbptt"] or [T])),
        Adam(model, lr=kept["lr"]),
        updates=updates,
        clip=kept["clip"],
        save=save,
        every=options.every,
        resume=options.resume,
        about=header(text, kept) | {"updates": updates},
        progress=Progress("training", updates, unit="updates"),
    )
    passed = result.passes + stream.position / (stream.length or 1)
    loss = f"{result.loss:.3f} nat, {result.loss / math.log(2):.3f} bits per character"
    say(f"{counted(result.updates, 'update')}, {passed:.1f} passes over the text; the last training loss: {loss}")
    again = f"minibptt train --resume {shlex.quote(shown(save))}"
    if result.stopped:
        say(f"Stopped and saved to {shown(save)}. To go on: {again}")
        raise KeyboardInterrupt
    say(f"Saved to {shown(save)}. To let it speak: minibptt sample {shlex.quote(shown(save))}", end="\n\n")
    every = options.reset_every or 4 * T
    resets = [every, T] if every <= (held_out.length or 0) else [T]  # one that never comes is none
    found = [evaluate(model, held_out, reset_every=n) for n in dict.fromkeys([None, *resets])]
    say(judged(found, T))


def _new(options: argparse.Namespace) -> tuple[dict[str, Any], Text, int, Path]:
    """(what is kept, the text, updates, the file to save to) of a training from the beginning."""
    save = options.save or DEFAULT_FILE
    if save.is_dir():
        raise UsageError(f"--save {shown(save)} is a folder: give the name of a file")
    if save.exists():
        name = shlex.quote(shown(save))
        raise UsageError(f"{name} is there already: go on from it with --resume {name}, or give another --save FILE")
    given = {name: getattr(options, name) for name in KEPT}
    kept = {name: KEPT[name] if value is None else value for name, value in given.items()}
    return kept, Text(options.text), options.updates or UPDATES, save


def _resumed(options: argparse.Namespace) -> tuple[dict[str, Any], Text, int, Path]:
    """The same of one that goes on; what was given must be what the checkpoint says."""
    about, done = read_header(options.resume)
    name, kept = shown(options.resume), about["options"]
    for option in KEPT:
        value = getattr(options, option)
        if value is not None and value != kept[option]:
            raise UsageError(f"--{option} {_words(value)}: {name} was made with {_words(kept[option])}; leave it out")
    updates = options.updates or about["updates"]
    if updates <= done:
        raise UsageError(f"{name} has {counted(done, 'update')} already: give --updates N, those before included")
    text = Text(about["text"]["path"] if options.text is None else options.text)
    if text.sha256 != about["text"]["sha256"]:
        raise UsageError(
            f"{text.name} is not the text that {name} was trained on ({about['text']['name']}), or has changed since: "
            "give that text with --text"
        )
    save = options.save or options.resume
    if save.exists() and not save.samefile(options.resume):
        raise UsageError(f"{shown(save)} is there already: give another --save FILE")
    return kept, text, updates, save


def _check_window(tbptt: tuple[int, int] | None, T: int) -> None:
    if tbptt and max(tbptt) > T:
        raise UsageError(
            f"--tbptt {_words(tbptt)}: no gradient reaches over the beginning of a window of {counted(T, 'step')}: "
            f"give --steps {max(tbptt)} or more"
        )


def _check_lengths(options: argparse.Namespace, T: int, stream: Stream, held_out: Stream) -> None:
    """A window that is longer than a row, or a reset that never comes, would not be what the results say."""
    learnt, judged_on = stream.length or 0, held_out.length or 0
    if min(learnt, judged_on) < T and not options.resume:
        raise UsageError(
            f"--steps {T}: this text has rows of {counted(learnt, 'step')} to learn from, and "
            f"{counted(judged_on, 'step')} held out. Give --steps {min(learnt, judged_on)} or fewer, or a longer text"
        )
    if options.reset_every and options.reset_every > judged_on:
        raise UsageError(
            f"--reset-every {options.reset_every}: the rows that are held out have {counted(judged_on, 'step')}. Give "
            f"{judged_on} or fewer"
        )


def _words(value: Any) -> str:
    if value is None:
        return "none"
    return ",".join(map(str, dict.fromkeys(value))) if isinstance(value, tuple) else str(value)


def judged(found: list[Evaluation], T: int) -> str:
    """Two tables: the loss by how the state is treated, and by the steps since it was zero."""
    rows: list[tuple[str, ...]] = [("state", "nat", "bits per character")]
    for e in found:
        state = "carried" if e.reset_every is None else f"zero every {counted(e.reset_every, 'step')}"
        state += " (cold: each window)" if e.reset_every == T else ""
        rows.append((state, f"{e.loss:.3f}", f"{e.bits:.3f}"))
    cold, bounds = next(e for e in found if e.reset_every == T), [0, *[2**i for i in range(T.bit_length())]]
    bounds = [*bounds[:-1], T] if bounds[-1] == T else [*bounds, T]
    places: list[tuple[str, ...]] = [("steps since the state was zero", "bits per character, cold")]
    for a, b in pairwise(bounds):
        here = cold.by_position[a:b]
        if np.isfinite(here).any():
            places.append((f"{a + 1}" if b == a + 1 else f"{a + 1}–{b}", f"{np.nanmean(here) / math.log(2):.3f}"))
    head = f"On the held-out text ({found[0].targets:,} characters), after learning:"
    return "\n".join([head, "", *columns(rows, right=(1, 2)), "", *columns(places, right=(0, 1))])
