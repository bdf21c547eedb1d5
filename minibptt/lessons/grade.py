"""Grading notebooks: each is run in a process of its own, with limits, and checked by the grader's own package.

This is no sandbox. A student's code can read and write what you can, and code that means to can change the checks.
Read after notebooks.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..listing import columns
from .notebooks import NoNotebook, code_of, lesson_of, read
from .registry import Exercise, exercises_of

MARKS = {"right": "right", "wrong": "not right", "not answered": "not answered", "missing": "missing", "error": "error"}


@dataclass(frozen=True)
class Mark:
    """One exercise: status is a key of MARKS, says what the check said."""

    exercise: str
    title: str
    status: str
    points: float
    most: float
    says: str


@dataclass
class Grade:
    """One notebook. student: the name given to check.seed; problems: what is worth knowing besides the marks."""

    file: str
    lesson: int | None = None
    student: str = ""
    marks: list[Mark] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def points(self) -> float:
        return sum(mark.points for mark in self.marks)

    @property
    def graded(self) -> bool:
        """False for a file that is no notebook of a lesson: nothing in it was run."""
        return bool(self.marks)

    @property
    def most(self) -> float:
        return sum(mark.most for mark in self.marks)

    def as_dict(self) -> dict[str, Any]:
        marks = [vars(mark) for mark in self.marks]
        head = {"file": self.file, "lesson": self.lesson, "student": self.student}
        return head | {"points": self.points, "of": self.most, "exercises": marks, "problems": self.problems}

    def gradescope(self) -> dict[str, Any]:
        """What Gradescope's autograder reads from results.json."""
        tests = [
            {
                "name": f"Exercise {mark.exercise}: {mark.title}",
                "score": mark.points,
                "max_score": mark.most,
                "status": "passed" if mark.status == "right" else "failed",
                "output": mark.says,
            }
            for mark in self.marks
        ]
        return {"score": self.points, "output": "\n".join(self.problems), "tests": tests}


def grade(
    path: Path, *, lesson: int | None = None, cell_seconds: float = 60, seconds: float = 300, megabytes: int = 4096
) -> Grade:
    """Run and check one notebook. It always returns: whatever the notebook does is in `problems` or in a mark.

    lesson: which one it is, where the notebook does not say. cell_seconds: for each cell and each check; seconds: for
    the whole; megabytes: address space of its process, where the system can limit it.
    """
    result = Grade(str(path))
    try:
        notebook = read(path)
        result.lesson = lesson_of(notebook, path) if lesson is None else lesson
        if result.lesson is None:
            raise NoNotebook("does not say which lesson it is; give --lesson N")
        exercises = exercises_of(result.lesson)
        if not exercises:
            raise NoNotebook(f"is lesson {result.lesson}, which has no exercises")
    except NoNotebook as error:
        result.problems.append(str(error))
        return result
    with tempfile.TemporaryDirectory() as work:
        task: dict[str, Any] = {
            "cells": code_of(notebook), "lesson": result.lesson, "seconds": cell_seconds,
            "bytes": megabytes * 2**20, "results": str(Path(work) / "results.jsonl"),
        }  # fmt: skip
        ended = _run(task, work, seconds)
        lines = _lines(Path(task["results"]))
    _collect(result, exercises, lines, ended)
    return result


def _run(task: dict[str, Any], work: str, seconds: float) -> str:
    """How the process ended, in words; "" where all was well. Whatever it started ends with it."""
    folder = Path(work) / "run"
    folder.mkdir()
    home = str(Path(__file__).resolve().parents[2])  # this package, whatever lies beside the notebook
    environment = os.environ | {
        "MPLBACKEND": "Agg", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8",
        "PYTHONPATH": os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])]),
    }  # fmt: skip
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        [sys.executable, "-m", "minibptt.lessons.run_cells"], cwd=folder, env=environment, start_new_session=True,
        stdin=subprocess.PIPE, stdout=quiet, stderr=quiet,
    )  # fmt: skip
    try:
        process.communicate(json.dumps(task).encode(), timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"stopped: the notebook did not end within {seconds:g} seconds"
    finally:
        _end(process)
    if process.returncode < 0:
        return f"the process was killed by signal {-process.returncode}"
    return f"the process ended with code {process.returncode}" if process.returncode else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    elif process.poll() is None:
        process.kill()
    process.wait()


def _lines(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue  # the last line of a process that died while it wrote
    return [one for one in found if isinstance(one, dict)]


def _collect(result: Grade, exercises: list[Exercise], lines: list[dict[str, Any]], ended: str) -> None:
    done = {line["exercise"]: line for line in lines if "exercise" in line}
    result.student = next((line["student"] for line in lines if "student" in line), "")
    result.problems += [f"cell {line['cell']}: {line['error']}" for line in lines if "cell" in line]
    if not any(line.get("done") for line in lines):
        at = next((line["begins"] for line in reversed(lines) if "begins" in line), "the start")
        result.problems.append(f"{ended or 'the process ended early'}, in {at}")
    for one in exercises:
        line = done.get(one.name, {"status": "error", "says": "never checked: see the problems of this notebook"})
        points = one.points if line["status"] == "right" else 0.0
        result.marks.append(Mark(one.name, one.title, line["status"], points, one.points, line["says"]))


def table(grades: list[Grade]) -> str:
    """What was found, for reading: a line for each exercise, and for each notebook its sum and its problems."""
    out = []
    for one in grades:
        who = f", {one.student}" if one.student else ""
        head = f"{one.file}{who}" if one.lesson is None else f"{one.file}: lesson {one.lesson}{who}"
        out.append(head if not one.marks else f"{head}: {one.points:g} of {one.most:g}")
        rows: list[tuple[str, ...]] = [
            (f"  {m.exercise}", MARKS[m.status], "" if m.status == "right" else m.says) for m in one.marks
        ]
        out += columns(rows)
        out += [f"  ! {problem}" for problem in one.problems]
    return "\n".join(out)
