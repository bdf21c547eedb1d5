"""What a check says of an answer: first whether it is of the right kind, then which mistake it looks like.

A mistake is recognised by making it: its numbers are worked out by the engine like those of the right answer.
Read after registry.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..backend import to_numpy
from ..tensor import Tensor
from .registry import NotYet

Mistakes = Mapping[str, Any]


def number(answer: Any, what: str = "the answer") -> float:
    """The answer as one number. NotYet where it is none."""
    value = array(answer, what)
    if value.size != 1:
        raise NotYet(f"{what} is one number; yours has shape {value.shape}")
    return float(value.ravel()[0])


def array(answer: Any, what: str = "the answer", shape: tuple[int, ...] | None = None) -> np.ndarray:
    """The answer as an array of numbers, of `shape` where it is given. NotYet where it is none."""
    if answer is None:
        raise NotYet(f"{what} is None: is a return missing?")
    if answer is Ellipsis:
        raise NotYet(f"{what} is still ... : put your own in its place")
    if callable(answer) and not isinstance(answer, Tensor):
        raise NotYet(f"{what} is a function; give what it returns: call it")
    try:
        if np.iscomplexobj(to_numpy(answer)):
            raise NotYet(f"{what} is complex, {_brief(answer)}: is there a root of a negative number in it?")
        value = _array(answer)
    except (TypeError, ValueError):
        raise NotYet(f"{what} must be numbers, and yours is {_brief(answer)}") from None
    if shape is not None and value.shape != shape:
        raise NotYet(f"{what} must have shape {shape}; yours has {value.shape}")
    if not np.isfinite(value).all():
        raise NotYet(f"{what} is not finite: {_brief(answer)}")
    return value


def mapping(answer: Any, names: tuple[str, ...], what: str = "the answer") -> dict[str, Any]:
    """The answer as a dict with exactly these names. NotYet where it is none, or where names differ."""
    if answer is None:
        raise NotYet(f"{what} is None: is a return missing?")
    if not isinstance(answer, Mapping):
        raise NotYet(f"{what} must be a dict with the keys {', '.join(names)}; yours is {_brief(answer)}")
    missing = [name for name in names if name not in answer]
    extra = [repr(name) for name in answer if name not in names]
    if missing or extra:
        said = [f"{', '.join(missing)} missing"] * bool(missing) + [f"{', '.join(extra)} not asked for"] * bool(extra)
        raise NotYet(f"{what} must have the keys {', '.join(names)}; {' and '.join(said)}")
    return dict(answer)


def same(
    answer: Any,
    expected: Any,
    mistakes: Mistakes | None = None,
    what: str = "the answer",
    otherwise: str = "",
    tolerance: float = 1e-6,
) -> None:
    """Nothing where the answer equals `expected`; else NotYet with what it looks like.

    mistakes: for each thing to say, the numbers that one gets by that mistake (or a function that gives them); those
    that give the right numbers too say nothing. otherwise: what to say where no known mistake gives these numbers.
    The error of an answer counts relative to the largest number expected. The expected numbers are never shown.
    """
    right = _array(expected)
    yours = array(answer, what)
    if yours.size == right.size == 1:
        yours = yours.reshape(right.shape)
    if yours.shape != right.shape:
        raise NotYet(f"{what} must have shape {right.shape}; yours has {yours.shape}")
    if _close(yours, right, tolerance):
        return
    for says, made in (mistakes or {}).items():
        value = made() if callable(made) and not isinstance(made, Tensor) else made
        wrong = _array(value)
        if wrong.size == right.size and _close(yours, wrong.reshape(right.shape), tolerance):
            raise NotYet(says)
    shown = f"{yours.item():.6g} is not it" if yours.size == 1 else f"{what} differs{_where(yours, right, tolerance)}"
    raise NotYet(". ".join([shown, *([otherwise] if otherwise else [])]))


def chosen(answer: Any, right: str, wrong: Mapping[str, str], what: str = "the answer") -> None:
    """A choice between words: nothing where it is `right`, else NotYet with what `wrong` says of it."""
    word = answer.strip().lower() if isinstance(answer, str) else answer
    if word == right:
        return
    if word in wrong:
        raise NotYet(wrong[word])
    raise NotYet(f"{what} must be one of {', '.join(map(repr, sorted([right, *wrong])))}; yours is {_brief(answer)}")


def call(function: Any, *arguments: Any, what: str = "") -> Any:
    """What a student's function returns. NotYet where it is no function; what it raises goes through."""
    what = what or getattr(function, "__name__", "the answer")
    if not callable(function):
        raise NotYet(f"{what} must be a function; yours is {_brief(function)}")
    copies = [np.array(a) if isinstance(a, np.ndarray) else a for a in arguments]
    found = function(*copies)
    for before, after in zip(arguments, copies):
        if isinstance(before, np.ndarray) and not np.array_equal(before, after, equal_nan=True):
            raise NotYet(f"{what} changes an array that it was given; work on a copy")
    return found


def parts(answer: Any, what: str, *names: str) -> tuple[Any, ...]:
    """The answer as a tuple of so many things as there are names. what: the function that returned it."""
    if answer is None:
        raise NotYet(f"{what} returns None: is a return missing?")
    if not isinstance(answer, tuple | list) or len(answer) != len(names):
        several = f"{', '.join(names[:-1])} and {names[-1]}"
        found = f"{len(answer)} of them" if isinstance(answer, tuple | list) else f"a {type(answer).__name__}"
        raise NotYet(f"{what} must return {len(names)} things, {several}; found {found}")
    return tuple(answer)


def first_wrong(answer: np.ndarray, expected: np.ndarray, tolerance: float = 1e-6) -> int | None:
    """The first index along axis 0 (the step, from 0) where the two differ; None where they agree."""
    scale = float(np.abs(expected).max(initial=0.0)) or 1.0
    wrong = ~(np.abs(answer - expected) <= tolerance * scale)
    rows = wrong.reshape(len(wrong), -1).any(axis=1) if wrong.ndim else wrong.reshape(1)
    return int(rows.argmax()) if rows.any() else None


def _array(answer: Any) -> np.ndarray:
    return np.asarray(to_numpy(answer), dtype=float)


def _close(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    scale = float(np.abs(b).max(initial=0.0)) or 1.0
    return bool((np.abs(a - b) <= tolerance * scale).all())


def _where(yours: np.ndarray, right: np.ndarray, tolerance: float) -> str:
    if not yours.ndim:
        return ""
    row = first_wrong(yours, right, tolerance)
    return f", first at index {row}" if row is not None and len(yours) > 1 else ""


def _brief(answer: Any) -> str:
    text = repr(answer)
    return text if len(text) <= 60 else f"a {type(answer).__name__}"
