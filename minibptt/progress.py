"""A progress line for work that takes more than two seconds: rewritten in a terminal, rare in a pipe."""

from __future__ import annotations

import sys
import time
from typing import Any

from .listing import printable


class Progress:
    """`p = Progress("training", 1000)`, then `p(done)` or `p(done, total)` as the work goes on, and `p.end()`.

    Nothing is written in the first two seconds. In a terminal the line is rewritten; elsewhere a new line comes
    every ten seconds.
    """

    def __init__(self, what: str, total: int, stream: Any = None):
        self.what, self.total = what, total
        self.stream = sys.stderr if stream is None else stream
        self.terminal = getattr(self.stream, "isatty", lambda: False)()
        self.start = time.monotonic()
        self.next = self.start + 2.0
        self.width = 0

    def __call__(self, done: int, total: int | None = None, note: str = "") -> None:
        self.total = total or self.total
        now = time.monotonic()
        if now < self.next:
            return
        self.next = now + (0.2 if self.terminal else 10.0)
        left = (now - self.start) * (self.total - done) / done if done else float("inf")
        line = f"{self.what}: {done} of {self.total}"
        line += f", {note}" if note else ""
        line += f", about {left:.0f} s left" if left < 1e6 else ""
        line = printable(line, self.stream)
        if self.terminal:
            self.stream.write("\r" + line.ljust(self.width))
            self.width = len(line)
        else:
            self.stream.write(line + "\n")
        self.stream.flush()

    def end(self) -> None:
        """Clear the line in a terminal."""
        if self.terminal and self.width:
            self.stream.write("\r" + " " * self.width + "\r")
            self.stream.flush()
