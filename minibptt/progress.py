"""A progress line for work that takes more than two seconds: rewritten where it can be, rare elsewhere.

Read after listing.py.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from .listing import printable


class Progress:
    """`p = Progress("training", 1000)`, then `p(done)` or `p(done, total)` as the work goes on, and `p.end()`.

    Nothing is written in the first two seconds. In a terminal the line is rewritten and kept to its width; in a
    notebook one output is rewritten, and the last line stays; elsewhere a new line comes every ten seconds. Where
    nobody reads (a closed pipe) it is silent, and the work goes on. unit: of what is counted. before: what was done in
    an earlier run, which says nothing about the speed of this one.
    """

    def __init__(self, what: str, total: int, stream: Any = None, *, unit: str = ""):
        self.what, self.total, self.before, self.unit = what, total, 0, unit
        self.stream = sys.stderr if stream is None else stream  # None: a program without a console has no stderr
        if getattr(self.stream, "closed", False):
            self.stream = None
        self.terminal = getattr(self.stream, "isatty", lambda: False)()
        self.display = None if stream is not None or self.terminal else _display_of_notebook()
        self.start = time.monotonic()
        self.next = self.start + 2.0
        self.width = 0

    def __call__(self, done: int, total: int | None = None, note: str | Callable[[float], str] = "") -> None:
        """Show how far it is, if it is time to. note: what else to say, or a function of the seconds so far."""
        self.total = total or self.total
        now = time.monotonic()
        if now < self.next:
            return
        self.next = now + (0.2 if self.terminal else 1.0 if self.display else 10.0)
        mine, seconds = done - self.before, now - self.start
        note = note(seconds) if callable(note) else note
        line = f"{self.what}: {done} of {self.total}" + (f" {self.unit}" if self.unit else "")
        line += f", {note}" if note else ""
        line += f", about {duration(seconds * (self.total - done) / mine)} left" if mine > 0 else ""
        self._show(line)

    def say(self, text: str) -> None:
        """A line that stays, whatever the clock says."""
        self.end()
        self._write(printable(text, self.stream) + "\n")

    def end(self) -> None:
        """Clear the line in a terminal."""
        if self.terminal and self.width:
            self._write("\r" + " " * self.width + "\r")
            self.width = 0

    def _show(self, line: str) -> None:
        if self.display is not None:
            self.display(line)
            return
        line = printable(line, self.stream)
        if self.terminal:
            import shutil  # here, so that `import minibptt` stays quick

            line = line[: shutil.get_terminal_size().columns - 1]  # a line that wraps cannot be rewritten
            self._write("\r" + line.ljust(self.width))
            self.width = len(line)
        else:
            self._write(line + "\n")

    def _write(self, text: str) -> None:
        if self.stream is None:
            return
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):  # a reader who has gone must not end the work; ValueError: a closed file
            self.stream = None


def duration(seconds: float) -> str:
    """Seconds in words: "45 s", "12 min", "2 h 05 min", "3 days"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        minutes = round(seconds / 60)
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{seconds / 86400:.0f} days"


def _display_of_notebook() -> Callable[[str], None] | None:
    """In a notebook, what shows a line in place of the one before; None elsewhere."""
    ipython = sys.modules.get("IPython")  # never loaded here: who runs in a notebook has it
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    handle = None

    def show(line: str) -> None:
        nonlocal handle
        data = {"text/plain": line}
        if handle is None:
            handle = display(data, raw=True, display_id=True)
        else:
            handle.update(data, raw=True)

    return show
