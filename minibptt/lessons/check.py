"""Is my answer right? In a notebook: `from minibptt.lessons import check`. Read after registry.py.

check.seed("Ada Lovelace")           numbers of your own in the exercises that have some
check.numbers("2.3")                 those numbers, by name
check.hint("2.1")                    a hint; asked again, the next one
check.exercise("2.1", my_answer)     says that it is right, or what is wrong with it
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ..listing import printable
from .registry import NotYet, exercise_of, seed_of

__all__ = ["NotYet", "exercise", "hint", "numbers", "seed"]


class _Student:
    """Whose notebook this is, and which hints were given."""

    name, seed = "", seed_of("")
    hints: dict[str, int] = {}  # noqa: RUF012


def seed(name: str) -> int:
    """Take the numbers of the exercises from this name, whatever the machine; returns a seed to use for your own."""
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f'check.seed takes a name, as in check.seed("Ada Lovelace"); found {name!r}')
    _Student.name, _Student.seed, _Student.hints = " ".join(name.split()), seed_of(name), {}
    return _Student.seed


def student() -> tuple[str, int]:
    """The name that `seed` was given last, and its seed."""
    return _Student.name, _Student.seed


def numbers(name: str) -> SimpleNamespace:
    """The numbers of your own for exercise `name`, as attributes: n = check.numbers("2.3"); n.x."""
    return SimpleNamespace(**exercise_of(name).numbers(_Student.seed))


def hint(name: str) -> None:
    """Print a hint for exercise `name`; asked again, the next one."""
    one = exercise_of(name)
    given = _Student.hints.get(name, 0)
    _Student.hints[name] = given + 1
    if not one.hints:
        print(f"Exercise {name} has no hint")
        return
    more = len(one.hints) - given - 1
    text = one.hints[min(given, len(one.hints) - 1)]
    print(printable(f"Hint for exercise {name}: {text}" + (f" ({more} more)" if more > 0 else "")))


def exercise(name: str, *answers: Any) -> None:
    """Print that the answers to exercise `name` are right. NotYet says what is wrong where they are not."""
    print(printable(exercise_of(name).check(answers, _Student.seed)))
