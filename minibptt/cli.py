"""The command `minibptt`: its commands are in commands/. A user's mistake ends in one line and exit code 2.

Read after commands/train.py.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from .backend import BackendError
from .commands import benchmark, compare, derive, doctor, explore, lessons, sample, train
from .commands.output import version
from .listing import printable

COMMANDS = (compare, derive, explore, train, sample, benchmark, lessons, doctor)


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="minibptt", description="Backpropagation through time, and what truncating it throws away."
    )
    parser.add_argument("--version", action="version", version=f"minibptt {version('minibptt')}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(subparsers)
    return parser
