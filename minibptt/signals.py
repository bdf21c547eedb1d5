"""Signals that ask a program to stop, and what to do about them for a while.

Only the main thread may say what a signal does, and only for what Python code had set before. It needs no other file.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


def handlers(*numbers: int) -> dict[int, Any]:
    """What these signals do now, of those that may be changed: outside the main thread none."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    found: dict[int, Any] = {number: signal.getsignal(number) for number in numbers}
    return {number: handler for number, handler in found.items() if handler is not None}  # None: not Python's


@contextmanager
def handled(handler: Callable[[int, Any], None], before: Mapping[int, Any]) -> Iterator[None]:
    """Inside, `handler` gets the signals in `before`, from `handlers`; afterwards they do again what they did."""
    for number in before:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def interrupts() -> Iterator[list[int]]:
    """Signals that ask to stop, as they come; each asks once, and then means again what it meant before.

    SIGTERM is given on at the end. Where this is not the main thread, none comes.
    """
    asked: list[int] = []
    found = handlers(signal.SIGINT, signal.SIGTERM)
    # SIG_IGN: a job in the background, which another program's Ctrl-C must not stop.
    before = {number: handler for number, handler in found.items() if handler != signal.SIG_IGN}

    def ask(number: int, _: Any) -> None:
        asked.append(number)
        signal.signal(number, before[number])

    with handled(ask, before):
        yield asked
    if signal.SIGTERM in asked:
        signal.raise_signal(signal.SIGTERM)
