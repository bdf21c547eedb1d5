"""The command `minibptt`: compare, derive, doctor. A user's mistake ends in one line and exit code 2."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import platform
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from .backend import BACKENDS, BackendError, backend_report, to_backend, use_backend
from .commands import derive as derive_command
from .compare import compare
from .layers import Embedding, Linear, Sequential
from .listing import can_print, printable
from .module import generator
from .optim import Adam, clip_by_global_norm
from .progress import Progress
from .recurrent import GRU, LSTM, RNN
from .report import Comparison
from .tape import Tape
from .tasks import TASKS, Task, read_text, standard_library, text_task
from .truncation import Schedule, artbp, full, tbptt

CELLS: dict[str, Callable[..., Any]] = {"rnn": RNN, "lstm": LSTM, "gru": GRU}


class UsageError(ValueError):
    """What a user asked for cannot be done; the message is all that is shown."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0, 2 for a user's mistake, 130 for Ctrl-C."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        with _stoppable():
            options.run(options)
    except (ValueError, TypeError, BackendError, MemoryError, OSError) as error:
        if os.environ.get("MINIBPTT_TRACEBACK"):
            raise
        text = " ".join(str(error).split()) or type(error).__name__
        print(printable(f"minibptt: {text}", sys.stderr), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nminibptt: stopped", file=sys.stderr)
        return 130
    return 0


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM ends the run as Ctrl-C does, so that nothing half-written stays behind."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _say(text: str, end: str = "\n") -> None:
    """Print in what the terminal can show; a reader who has closed the pipe does not stop the work."""
    try:
        print(printable(text), end=end, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="minibptt", description="Backpropagation through time, and what truncating it throws away."
    )
    parser.add_argument("--version", action="version", version=f"minibptt {_version('minibptt')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    sub = commands.add_parser(
        "compare",
        help="what truncation keeps of the gradient, on text",
        description="Compare truncated BPTT with full BPTT on a character model of real text (by default the source "
        "of Python's own standard library). Prints a table; writes a figure, CSV and JSON.",
    )
    source = sub.add_mutually_exclusive_group()
    source.add_argument("--text", metavar="FILE", help="a UTF-8 text file of your own")
    source.add_argument("--task", choices=sorted(TASKS), help="a synthetic task instead of text")
    sub.add_argument("--cell", choices=sorted(CELLS), default="rnn", help="the recurrent cell (default: rnn)")
    sub.add_argument("--hidden", type=_positive, default=64, metavar="H", help="hidden units (default: 64)")
    sub.add_argument("--length", type=_positive, default=128, metavar="T", help="steps of a sequence (default: 128)")
    sub.add_argument("--batch", type=_positive, default=16, metavar="B", help="sequences at once (default: 16)")
    sub.add_argument("--tbptt", type=_window, action="append", metavar="K[,K2]",
                     help="chunks of K steps, or an update every K steps back through K2; give it several times "
                     "(default: 1, 2, 3, 4, 6, 8 ... T)")  # fmt: skip
    sub.add_argument("--artbp", type=_probability, action="append", metavar="P",
                     help="random truncation that cuts with probability P; give it several times")  # fmt: skip
    sub.add_argument("--train-steps", type=_natural, default=0, metavar="N",
                     help="train so many steps by full BPTT first, and compare before and after")  # fmt: skip
    sub.add_argument("--lr", type=_rate, default=2e-3, metavar="RATE", help="Adam's step size (default: 0.002)")
    sub.add_argument(
        "--seed", type=_natural, default=0, metavar="N", help="for weights and training batches (default: 0)"
    )
    sub.add_argument("--backend", default="numpy", metavar="NAME", help=f"{' or '.join(BACKENDS)} (default: numpy)")
    sub.add_argument("--out", type=Path, default=Path("minibptt-compare"), metavar="DIR",
                     help="folder for the figure and the numbers (default: minibptt-compare)")  # fmt: skip
    sub.set_defaults(run=run_compare)

    derive_command.add(commands)

    sub = commands.add_parser("doctor", help="what is installed and which backends work")
    sub.set_defaults(run=run_doctor)
    return parser


# --- compare ---------------------------------------------------------------------------------------------------


def run_compare(options: argparse.Namespace) -> None:
    use_backend(options.backend)
    schedules = _schedules(options)
    task = _task(options)
    from . import plots  # after the checks: matplotlib takes a while to load

    with _output_folder(options.out) as staging:
        streams = generator(options.seed).spawn(4)
        model = _model(options, task, streams)
        x, y = task.sample(options.batch)
        x = x if task.ids else to_backend(x)
        moments = [("before", 0), ("after", options.train_steps)] if options.train_steps else [("compare", 0)]
        for name, steps in moments:
            if steps:
                _train(model, task, options, streams[3])
            result = _compared(model, task, x, y, schedules, options, steps)
            _say(result.table(), end="\n\n")
            result.to_csv(staging / f"{name}.csv")
            result.to_json(staging / f"{name}.json")
            plots.save(plots.compare(result), staging / f"{name}.png")
        names = sorted(p.name for p in staging.iterdir())
    _say(f"For scale: {task.baseline_is}, the loss is {task.baseline:.4f}.")
    _say(f"Written to {_shown(options.out)}: {', '.join(names)}")


def _compared(
    model: Any, task: Task, x: Any, y: Any, schedules: list[Schedule], options: argparse.Namespace, steps: int
) -> Comparison:
    trained = f"after {steps} training steps" if steps else "untrained"
    title = f"{options.cell.upper()}, H = {options.hidden}, {task.name}, {trained}"
    progress = Progress("comparing", 1)
    about = {k: v for k, v in vars(options).items() if isinstance(v, str | int | float) and k != "command"}
    about |= {"trained_steps": steps, "minibptt": _version("minibptt"), "python": platform.python_version()}
    result = compare(model, x, y, task.loss, schedules, progress=progress, title=title, about=about)
    progress.end()
    return result


def _schedules(options: argparse.Namespace) -> list[Schedule]:
    T = options.length
    steps = {2**i for i in range(T.bit_length())} | {3 * 2**i for i in range(T.bit_length())}
    chosen = options.tbptt or ([] if options.artbp else [(k, k) for k in sorted({*(k for k in steps if k < T), T})])
    for k1, _ in chosen:
        if k1 > T:
            raise UsageError(f"--tbptt {k1}: chunks longer than the sequence are full BPTT; give at most --length {T}")
    windows = sorted(set(chosen), key=lambda pair: (pair[0] != pair[1], pair))
    return [*(tbptt(*w) for w in windows), *(artbp(p) for p in sorted(set(options.artbp or []))), full()]


def _task(options: argparse.Namespace) -> Task:
    if options.task:
        return TASKS[options.task](options.length)
    if options.text is not None:
        return text_task(read_text(options.text), options.length, _shown(Path(options.text).name))
    return text_task(standard_library(), options.length, "Python's standard library")


def _model(options: argparse.Namespace, task: Task, streams: list[Any]) -> Sequential:
    width = 32 if task.ids else task.inputs
    cell = CELLS[options.cell](width, options.hidden, rng=streams[1])
    first = [Embedding(task.inputs, width, rng=streams[0])] if task.ids else []
    return Sequential(*first, cell, Linear(options.hidden, task.outputs, rng=streams[2]))


def _train(model: Sequential, task: Task, options: argparse.Namespace, rng: Any) -> None:
    """Full BPTT over whole sequences, by Adam with the gradient's norm clipped at 1."""
    optimiser = Adam(model, lr=options.lr)
    progress = Progress("training", options.train_steps)
    for step in range(options.train_steps):
        x, y = task.batch(rng, options.batch)
        with Tape() as tape, np.errstate(all="ignore"):
            outputs, _ = model(x if task.ids else to_backend(x))
            loss = task.loss(outputs, y)
        value = loss.item()
        if not math.isfinite(value):
            raise UsageError(
                f"training diverged at step {step + 1} (loss {value}): give a smaller --lr than {options.lr}"
            )
        optimiser.step(clip_by_global_norm(tape.gradient(loss, model), 1.0))
        progress(step + 1, note=f"loss {value:.3f}")
    progress.end()


OWN_FILES = frozenset(f"{name}.{kind}" for name in ("compare", "before", "after") for kind in ("csv", "json", "png"))


@contextlib.contextmanager
def _output_folder(out: Path) -> Iterator[Path]:
    """A folder to write into; what it holds is moved to `out` at the end, and only if all went well."""
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    if out.exists() and not out.is_dir():
        raise UsageError(f"cannot write to the folder {_shown(out)}: it is a file. Give a folder")
    blocked = [name for name in sorted(OWN_FILES) if (out / name).is_dir()]
    if blocked:
        raise UsageError(f"cannot write {_shown(out / blocked[0])}: a folder of that name is there")
    try:
        out.mkdir(parents=True, exist_ok=True)
        staging = tempfile.TemporaryDirectory(dir=out, prefix=".unfinished-")
    except OSError as error:
        raise UsageError(f"cannot write to the folder {_shown(out)}: {error.strerror}") from None
    try:
        with staging as name:
            yield Path(name)
            new = sorted(path.name for path in Path(name).iterdir())
            for file in new:
                os.replace(Path(name) / file, out / file)
            for stale in OWN_FILES - set(new):  # of an earlier run, which would look like one set with this one
                (out / stale).unlink(missing_ok=True)
    finally:
        for folder in made:  # after a failure: leave no empty folder that was not there before
            with contextlib.suppress(OSError):
                folder.rmdir()


def _shown(path: Any) -> str:
    """A path as text that can be written anywhere, whatever bytes the file's name has."""
    return os.fsencode(path).decode("utf-8", "replace")


# --- doctor ----------------------------------------------------------------------------------------------------


def run_doctor(options: argparse.Namespace) -> None:
    rows = [("minibptt", _version("minibptt")), ("Python", f"{platform.python_version()} on {platform.platform()}")]
    rows += [("matplotlib", _version("matplotlib"))]
    rows += list(backend_report().items())
    rows += [("text output", "✂ and h₃ can be shown" if can_print("✂ h₃") else "ASCII only")]
    for name, state in rows:
        print(printable(f"{name + ':':13} {state}"))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


# --- arguments -------------------------------------------------------------------------------------------------


def _whole(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, found {text!r}") from None
    if value < least:
        raise argparse.ArgumentTypeError(f"expected at least {least}, found {value}")
    return value


def _positive(text: str) -> int:
    return _whole(text, 1)


def _natural(text: str) -> int:
    return _whole(text, 0)


def _window(text: str) -> tuple[int, int]:
    parts = text.split(",")
    if len(parts) > 2:
        raise argparse.ArgumentTypeError(f"expected K or K1,K2, found {text!r}")
    return _positive(parts[0]), _positive(parts[-1])


def _probability(text: str) -> float:
    value = _number(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"expected a probability of at least 0 and below 1, found {text}")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, found {text!r}") from None


def _rate(text: str) -> float:
    value = _number(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a positive number, found {text}")
    return value
