"""Formulas as small trees: built by a derivation, read from docstrings, shown as text. Read after listing.py.

A tree holds symbols and numbers; what a symbol's number is, it knows itself, so that a formula can be shown a second
time with its numbers put in: w_h·h₂ = 2·18.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..listing import subscript


class Expr:
    """A formula."""

    __slots__ = ()


@dataclass(frozen=True)
class Symbol(Expr):
    """A name with its step, such as h₃; primes tell apart what has the same name and step, such as h′₃.

    adjoint: ∂L/∂ of it. value: its number, where it has just one.
    """

    name: str
    step: int | None = None
    primes: int = 0
    adjoint: bool = False
    value: float | None = field(default=None, compare=False)

    @property
    def label(self) -> str:
        label = subscript(self.name + "′" * self.primes, self.step)
        return f"∂L/∂{label}" if self.adjoint else label


@dataclass(frozen=True)
class Number(Expr):
    """A number."""

    value: float


@dataclass(frozen=True)
class Apply(Expr):
    """An operation on formulas. op: a sign of INFIX, "neg", "T", "list" (side by side), "words", or a function."""

    op: str
    args: tuple[Expr, ...]


INFIX = {"=": 1, "<": 1, ">": 1, "+": 2, "−": 2, "·": 4, "/": 4, "@": 4, "^": 6}
ATOM, NEGATIVE = 9, 3
ZERO, ONE = Number(0), Number(1)


def add(a: Expr, b: Expr) -> Expr:
    """a + b, without a 0, and as a difference where b is negative."""
    if ZERO in (a, b):
        return b if a == ZERO else a
    if isinstance(b, Apply) and b.op == "neg":
        return Apply("−", (a, b.args[0]))
    return Apply("+", (a, b))


def multiply(a: Expr, b: Expr) -> Expr:
    """a·b, without a factor 1 and with its sign in front."""
    if ZERO in (a, b):
        return ZERO
    if ONE in (a, b):
        return b if a == ONE else a
    for one, other, left in ((a, b, True), (b, a, False)):
        if isinstance(one, Number) and one.value == -1:
            return negative(other)
        if isinstance(one, Apply) and one.op == "neg":
            return negative(multiply(one.args[0], other) if left else multiply(other, one.args[0]))
    return Apply("·", (a, b))


def negative(a: Expr) -> Expr:
    """−a; of −a, a."""
    if isinstance(a, Apply) and a.op == "neg":
        return a.args[0]
    return Number(-a.value) if isinstance(a, Number) else Apply("neg", (a,))


def size(e: Expr) -> int:
    """How many symbols, numbers and operations there are in a formula."""
    return 1 + sum(map(size, e.args)) if isinstance(e, Apply) else 1


def symbols(e: Expr) -> Iterator[Symbol]:
    """The symbols of a formula, from left to right, with repeats."""
    if isinstance(e, Symbol):
        yield e
    elif isinstance(e, Apply):
        for part in e.args:
            yield from symbols(part)


def with_numbers(e: Expr) -> Expr | None:
    """The formula with its numbers put in; None where a symbol has none, or where nothing is left to work out."""
    found = list(symbols(e))
    if any(s.value is None for s in found) or len(found) > 8 or not isinstance(e, Apply) or _has(e, {"@", "T", "list"}):
        return None

    def put(e: Expr) -> Expr:
        if isinstance(e, Symbol):
            return Number(e.value or 0.0)
        return Apply(e.op, tuple([put(part) for part in e.args])) if isinstance(e, Apply) else e

    return put(e)


def _has(e: Expr, ops: set[str]) -> bool:
    return isinstance(e, Apply) and (e.op in ops or any(_has(part, ops) for part in e.args))


# --- as text ---------------------------------------------------------------------------------------------------


def number(value: float) -> str:
    """A number in a few characters, as people write it: 47, −0.25, 1.2e−07."""
    text = f"{value:.4g}" if value else "0"
    return text.replace("-", "−")


def level(e: Expr) -> int:
    """How tightly a formula binds: a sum needs brackets inside a product."""
    if isinstance(e, Number) and e.value < 0:
        return NEGATIVE
    if not isinstance(e, Apply):
        return ATOM
    if e.op == "label":
        return level(e.args[0])
    return NEGATIVE if e.op == "neg" else INFIX.get(e.op, ATOM)


def leads_negative(e: Expr) -> bool:
    """Does a formula begin with a minus sign?"""
    if isinstance(e, Apply):
        first = e.op == "label" or (e.op in INFIX and not inside(e, 0))
        return e.op == "neg" or (first and leads_negative(e.args[0]))
    return isinstance(e, Number) and e.value < 0


def inside(e: Apply, i: int) -> bool:
    """Does operand i of an operation need brackets?"""
    outer, part = INFIX.get(e.op, NEGATIVE if e.op == "neg" else ATOM), e.args[i]
    here, op = level(part), part.op if isinstance(part, Apply) else ""
    if i and leads_negative(part):
        return True
    if e.op == "·":
        return (here < outer and not (i == 0 and here == NEGATIVE)) or op == "@" or (i > 0 and op == "/")
    if e.op == "@":
        return (here < outer and not (i == 0 and here == NEGATIVE)) or op in ("·", "/") or (i > 0 and op == "@")
    if e.op in ("T", "^"):
        return here <= outer if e.op == "^" else here < ATOM
    return here < outer if e.op == "+" or (i == 0 and e.op != "neg") else here <= outer


def without_sign(e: Expr) -> Expr | None:
    """A negative number, labelled or not, as a positive one; None for anything else."""
    if isinstance(e, Apply) and e.op == "label":
        number = without_sign(e.args[0])
        return Apply("label", (number, e.args[1])) if number else None
    return Number(-e.value) if isinstance(e, Number) and e.value < 0 else None


def text(e: Expr) -> str:
    """A formula in Unicode, on one line."""
    if isinstance(e, Symbol):
        return e.label
    if isinstance(e, Number):
        return number(e.value)
    assert isinstance(e, Apply)
    if e.op == "words":
        return str(e.args[0].name)  # type: ignore[attr-defined]
    if e.op == "list":
        return f"[{', '.join(map(text, e.args))}]"
    if e.op == "label":
        return f"{text(e.args[0])} ({text(e.args[1])})"
    if e.op == "tuple":
        return ", ".join(map(text, e.args))
    if e.op == "∂":
        return f"∂{text(e.args[0])}/∂{text(e.args[1])}"
    if e.op == "+" and (positive := without_sign(e.args[1])):
        return f"{text(e.args[0])} − {text(positive)}"
    args = [text(part) for part in e.args]
    if e.op in INFIX or e.op in ("neg", "T"):
        args = [f"({arg})" if inside(e, i) else arg for i, arg in enumerate(args)]
    if e.op == "^" and e.args[1] == Number(2):
        return f"{args[0]}²"
    if e.op == "neg":
        return f"−{args[0]}"
    if e.op == "T":
        return f"{args[0]}ᵀ"
    if e.op in INFIX:
        return f"{args[0]}{e.op}{args[1]}" if e.op in "·^" else f"{args[0]} {e.op} {args[1]}"
    return f"{e.op}({', '.join(args)})"


def words(phrase: Any) -> Expr:
    """Words in the place of a formula."""
    return Apply("words", (Symbol(str(phrase)),))


_FUNCTIONS: dict[str, Callable[..., float]] = {
    "+": lambda a, b: a + b, "−": lambda a, b: a - b, "·": lambda a, b: a * b, "/": lambda a, b: a / b,
    "^": lambda a, b: a**b, "neg": lambda a: -a, ">": lambda a, b: a > b, "<": lambda a, b: a < b,
    "=": lambda a, b: a == b, "exp": math.exp, "log": math.log, "tanh": math.tanh,
    "σ": lambda a: 0.5 * (1 + math.tanh(a / 2)), "sign": lambda a: (a > 0) - (a < 0), "sqrt": math.sqrt,
    "relu": lambda a: max(a, 0.0),
}  # fmt: skip


def evaluated(e: Expr) -> float | None:
    """The value of a formula of numbers; None where there is something in it that is no number."""
    if isinstance(e, Symbol):
        return e.value
    if isinstance(e, Number):
        return e.value
    assert isinstance(e, Apply)
    args = [evaluated(part) for part in e.args]
    if e.op not in _FUNCTIONS or None in args:
        return None
    try:
        return float(_FUNCTIONS[e.op](*args))
    except (ArithmeticError, ValueError):
        return None
