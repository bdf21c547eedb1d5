"""The process in which grade.py runs a student's notebook, told what to do on its input. Read after grade.py.

Every cell is run in one namespace, as in a notebook; a cell that fails is noted and the next one goes on. Then the
checks are made, by the package as it is installed for the grader. Each result is a line of JSON in a file, so that it
is known how far things went if this process dies.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from typing import Any, TextIO


class OutOfTime(BaseException):
    """A cell or a check has had its time; no Exception, so that `except Exception` does not catch it."""


def main() -> None:
    task = json.loads(sys.stdin.buffer.read())
    sys.stdin = io.StringIO("")
    from minibptt.lessons import check, registry  # before the student's code runs

    exercises = registry.exercises_of(task["lesson"])
    wrong = registry.NotYet
    limit(task["bytes"])
    with open(task["results"], "w", encoding="utf-8") as results:
        names = run(task["cells"], task["seconds"], results, wrong)
        name, seed = check.student()
        say(results, student=name)
        for one in exercises:
            say(results, begins=f"the check of exercise {one.name}")
            say(results, exercise=one.name, **checked(one, names, seed, task["seconds"], wrong))
        say(results, done=True)


def limit(most: int | None) -> None:
    """No more memory than `most` bytes, no file above 64 MiB, no core dump; nothing where the system has no limits."""
    try:
        import resource
    except ImportError:  # Windows
        return
    for what, size in ((resource.RLIMIT_AS, most), (resource.RLIMIT_FSIZE, 2**26), (resource.RLIMIT_CORE, 0)):
        if size is not None:
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(what, (size, size))


def run(cells: list[tuple[int, str]], seconds: float, results: TextIO, wrong: type[BaseException]) -> dict[str, Any]:
    """The names that the cells define. A cell that runs out of memory leaves nothing behind."""
    names: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
    for place, code in cells:
        say(results, begins=f"cell {place}")
        before = dict(names)
        try:
            with at_most(seconds):
                exec(compile(code, f"<cell {place}>", "exec"), names)
        except NotImplementedError as error:
            if not str(error).startswith("Exercise "):
                say(results, cell=place, error=shown(error, place))
        except wrong:
            pass  # the check is made again below
        except OutOfTime:
            say(results, cell=place, error=f"stopped: it did not end within {seconds:g} seconds")
        except MemoryError:
            names.clear()
            names.update(before)
            say(results, cell=place, error="out of memory")
        except BaseException as error:
            say(results, cell=place, error=shown(error, place))
    return names


def checked(one: Any, names: dict[str, Any], seed: int, seconds: float, wrong: type[BaseException]) -> dict[str, Any]:
    """Whether the answers to one exercise are right, and what to say."""
    missing = [name for name in one.answers if name not in names]
    if missing:
        return {"status": "missing", "says": f"{', '.join(missing)} not defined"}
    try:
        with at_most(seconds):
            return {"status": "right", "says": one.check([names[name] for name in one.answers], seed)}
    except wrong as error:
        return {"status": "wrong", "says": str(error)}
    except NotImplementedError as error:
        return {"status": "not answered", "says": str(error)}
    except OutOfTime:
        return {"status": "error", "says": f"stopped: the check did not end within {seconds:g} seconds"}
    except MemoryError:
        return {"status": "error", "says": "out of memory"}
    except BaseException as error:
        return {"status": "error", "says": shown(error)}


def shown(error: BaseException, place: int | None = None) -> str:
    """An error in one line, with the line of the cell where it came from."""
    text = " ".join(f"{type(error).__name__}: {error}".split())[:500].removesuffix(": ")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith("<cell ")]
    if not frames:
        return text
    here = frames[-1]
    cell = "" if here.filename == f"<cell {place}>" else f" of {here.filename[1:-1]}"
    return f"{text} (line {here.lineno}{cell})"


def say(results: TextIO, **what: Any) -> None:
    print(json.dumps(what), file=results, flush=True)


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """OutOfTime after so many seconds, where the system can say so; the parent has a limit of its own."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_: Any) -> None:
        raise OutOfTime

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # and again every second, for one who catches it
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    code = 1
    try:
        main()
        code = 0
    finally:
        os._exit(code)  # now: a thread that the notebook left running would hold the process until its time is over
