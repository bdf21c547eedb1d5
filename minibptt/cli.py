"""The command `minibptt`: its commands are in commands/. A user's mistake ends in one line and exit code 2.

Read after commands/train.py.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from .backend import BackendError
from .commands import benchmark, compare, derive, doctor, explore, lessons, sample, train
from .commands.output import version
from .listing import printable
from .signals import handled, handlers

SIZES = {"hidden", "batch", "length", "steps", "draws"}  # options that are sizes of arrays
# What NumPy and Python say, in other errors than MemoryError, of arrays beyond 2⁶³ bytes and sizes beyond 2⁶³.
TOO_LARGE = ("Maximum allowed dimension exceeded", "array is too big", "Python int too large")
COMMANDS = (compare, derive, explore, train, sample, benchmark, lessons, doctor)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0, 2 for a user's mistake, 130 for Ctrl-C."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        with handled(_stop, handlers(signal.SIGTERM)):
            options.run(options)
    except (ValueError, TypeError, BackendError, MemoryError, OSError, OverflowError) as error:
        if os.environ.get("MINIBPTT_TRACEBACK"):
            raise
        text = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, MemoryError) or text.startswith(TOO_LARGE):
            text = f"this does not fit into memory ({text}). {_largest(options)}"
        print(printable(f"minibptt: {text}", sys.stderr), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nminibptt: stopped", file=sys.stderr)
        return 130
    return 0


def _largest(options: argparse.Namespace) -> str:
    """The largest size that was asked for, which most likely is the one to make smaller."""
    given = {name: value for name, value in vars(options).items() if name in SIZES}
    sizes = [(n, name) for name, value in given.items() for n in (value if isinstance(value, list) else [value]) if n]
    if not sizes:
        return "Give a smaller input"
    n, name = max(sizes)
    return f"Give smaller sizes; the largest here is --{name} {n}"


def _stop(*_: Any) -> None:
    """SIGTERM ends the run as Ctrl-C does, so that nothing half-written stays behind."""
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="minibptt", description="Backpropagation through time, and what truncating it throws away."
    )
    parser.add_argument("--version", action="version", version=f"minibptt {version('minibptt')}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(subparsers)
    return parser
