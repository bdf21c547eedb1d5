"""The exercises of the course: what each is called, what a student defines for it, and what checks it.

The exercises of lesson 2 are declared in checks/lesson02.py, which is imported when one of them is first asked for:

    @exercise("2.1", "w_h_cut", hints=["Which boundaries are closed?"], numbers=lambda rng: {"x": …})
    def _(w_h_cut, numbers):
        "The gradient of w_h with a cut before every step."
        same(number(w_h_cut), expected, {"that is full BPTT: nothing is cut": mended})

The function takes what the student defined, in the order of the names, and the numbers drawn for that student where
`numbers` is given. It returns nothing where all is right (or a line to print) and raises `NotYet` where it is not.
It works out what is right from the engine, and never holds an answer. Read this file first in this folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

Numbers = dict[str, Any]


class NotYet(Exception):
    """An answer that is not right yet; the message says what is wrong. Notebooks show it without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


@dataclass(frozen=True)
class Exercise:
    """One exercise: see the top of this file. title: the first line of the function's docstring."""

    name: str
    answers: tuple[str, ...]
    function: Callable[..., Any]
    hints: tuple[str, ...]
    draw: Callable[[np.random.Generator], Numbers] | None
    points: float

    @property
    def title(self) -> str:
        return (self.function.__doc__ or "").strip().split("\n")[0]

    def numbers(self, seed: int) -> Numbers:
        """What is drawn for the student with this seed: the same on every machine."""
        if self.draw is None:
            raise ValueError(f"exercise {self.name} has no numbers of its own: everybody works on the same ones")
        return self.draw(np.random.default_rng([seed, *map(int, self.name.split("."))]))

    def check(self, answers: Sequence[Any], seed: int) -> str:
        """A line to print where the answers are right, else NotYet; what a student's code raises goes through."""
        if len(answers) != len(self.answers):
            raise NotYet(
                f"Exercise {self.name} takes {' and '.join(self.answers)}, in this order; it was given "
                f"{len(answers)} thing{'s' * (len(answers) != 1)}"
            )
        drawn = () if self.draw is None else (self.numbers(seed),)
        try:
            said = self.function(*answers, *drawn)
        except NotYet as wrong:
            raise NotYet(f"Exercise {self.name}, not yet: {wrong}") from None
        return f"Exercise {self.name} is right. {said or ''}".rstrip()


_exercises: dict[str, Exercise] = {}


def exercise(
    name: str,
    *answers: str,
    hints: Sequence[str] = (),
    numbers: Callable[[np.random.Generator], Numbers] | None = None,
    points: float = 1.0,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare exercise `name` ("lesson.number"); `answers` are the names that the student defines."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        if not answers or not function.__doc__:
            raise TypeError(f"exercise {name} needs the names of its answers, and a docstring as its title")
        _exercises[name] = Exercise(name, answers, function, tuple(hints), numbers, points)
        return function

    return declare


def exercises_of(lesson: int) -> list[Exercise]:
    """The exercises of one lesson in order; none where the lesson has no checks."""
    module = f"{__package__}.checks.lesson{lesson:02d}"
    if find_spec(module) is None:
        return []
    import_module(module)
    found = [e for name, e in _exercises.items() if int(name.split(".")[0]) == lesson]
    return sorted(found, key=lambda e: int(e.name.split(".")[1]))


def exercise_of(name: str) -> Exercise:
    """The exercise that is called `name`. ValueError where there is none."""
    lesson = str(name).split(".")[0]
    known = exercises_of(int(lesson)) if lesson.isdigit() else []
    for one in known:
        if one.name == str(name):
            return one
    there = f"lesson {lesson} has {', '.join(e.name for e in known)}" if known else 'give lesson and number: "2.1"'
    raise ValueError(f"there is no exercise {name!r}; {there}")


def seed_of(student: str) -> int:
    """A seed from a name, the same on every machine; letter case and spaces around it do not matter."""
    return int.from_bytes(hashlib.sha256(" ".join(student.casefold().split()).encode()).digest()[:4], "big")
