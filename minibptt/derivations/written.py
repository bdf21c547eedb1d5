"""What an operation looks like on paper: its formula, and its derivative as its docstring states it.

Read after expressions.py. The line `∂y/∂x = …` of an operation's docstring is what a derivation prints, and the tests
hold that line to what the operation computes; where a docstring says it in words (`∂L/∂x = g in the shape of x`), the
words are shown beside the operation's name.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..dispatch import OPERATIONS
from .expressions import INFIX, NEGATIVE, ZERO, Apply, Expr, Number, multiply, negative, words

_SIGNS = {"add": "+", "subtract": "−", "multiply": "·", "divide": "/", "power": "^", "matmul": "@"}
_NAMES = {"sigmoid": "σ", "logsumexp": "log_sum_exp", "abs": "abs"}
# These only move numbers about: g goes through them as it is, and its place is said by the symbols on both sides.
_MOVED = frozenset(("sum", "reshape"))


def formula(op: str, args: Sequence[Expr], output: int | None = None) -> Expr:
    """The value of an operation: a + b, tanh(x). output: which one, of an operation with several."""
    if op == "cut":
        return args[0]
    if op == "negative":
        return negative(args[0])
    name = _SIGNS.get(op) or _NAMES.get(op, op)
    return Apply(name if output is None else f"piece {output + 1} of {name}", tuple(args))


@functools.cache
def _lines(op: str) -> dict[tuple[str, str], str]:
    """The derivatives that the docstring states: {("y", "a"): "b", …}, or ("L", "a") for ∂L/∂a."""
    docstring = inspect.getdoc(OPERATIONS[op]) or ""
    found = re.findall(r"∂(\w)/∂(\w+) = (.+?)(?=;|:|,|\.\s|\.$)", docstring, re.MULTILINE)
    return {("L" if y == "L" else "y", name): line for y, name, line in found}


@functools.cache
def _inputs(op: str) -> list[str]:
    parameters = list(inspect.signature(inspect.unwrap(OPERATIONS[op])).parameters.values())[1:]  # after xp
    return [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]


def local(op: str, i: int, args: Sequence[Expr], y: Expr) -> Expr | None:
    """∂y/∂(input i) of an element-wise operation, from its docstring; None for an operation of another kind."""
    names = _inputs(op)
    stated = _lines(op).get(("y", names[i])) if i < len(names) else None
    if stated is None:
        return None
    if op == "where":
        return None  # its condition is no symbol
    scope = dict(zip(names, args)) | {"y": y}
    return parse(stated, scope)


def passed_on(
    op: str,
    i: int,
    args: Sequence[Expr],
    y: Expr,
    g: Any,
    shape: tuple[int, ...],
    before: tuple[int, ...],
    condition: Expr | None = None,
) -> Expr:
    """∂L/∂(input i) from g = ∂L/∂y (a tuple of them for an operation with several outputs).

    shape, before: those of y and of input i. condition: of `where`. Where an operand
    was repeated, its adjoint is the sum Σ over the repeats.
    """
    if op == "split":
        return Apply("list", tuple(g))
    if isinstance(g, tuple):
        return Apply(f"{op}ᵀ", tuple(part for part in g if part != ZERO))
    if op in _MOVED:
        return g
    if op == "mean":
        return Apply("/", (g, Number(math.prod(before) // max(1, math.prod(shape)))))
    factor = local(op, i, args, y)
    if factor is None and op != "where":
        names = _inputs(op)
        stated = _lines(op).get(("L", names[i])) if i < len(names) else None
        e = parse(stated, dict(zip(names, args)) | {"y": y, "g": g}) if stated else None
        return e if e is not None else Apply(f"{op}ᵀ", (g,))
    e = (
        multiply(g, factor)
        if factor is not None
        else Apply("where", (condition or words("…"), *((g, ZERO) if i == 0 else (ZERO, g))))
    )
    return Apply("Σ", (e,)) if math.prod(before) < math.prod(shape) else e


def in_words(op: str) -> str | None:
    """The docstring's own line on the derivative of an operation, for one that no formula is read from."""
    if op not in OPERATIONS:
        return None
    text = " ".join((inspect.getdoc(OPERATIONS[op]) or "").split())
    found = re.search(r"(∂\w/∂\w+ = .+?)(?=\.(\s|$))", text)
    return found[1] if found else None


# --- formulas from docstrings --------------------------------------------------------------------------------

_TOKEN = re.compile(r"\s*(\d+\.?\d*|½|[A-Za-zΣ]+|[-+−·/^@()=<>²ᵀ])")


def parse(line: str, names: Mapping[str, Expr]) -> Expr | None:
    """A formula read from text, with the trees of `names` in the place of the names; None for what is no formula."""
    tokens: list[str] = []
    at = 0
    while at < len(line.rstrip()):
        match = _TOKEN.match(line, at)
        if not match:
            return None
        tokens.append(match[1])
        at = match.end()
    reader = _Reader(tokens, names)
    try:
        found = reader.sum(0)
    except (LookupError, ValueError):
        return None
    return None if reader.tokens else found


class _Reader:
    """Reads by operator precedence; LookupError for what it does not know."""

    def __init__(self, tokens: list[str], names: Mapping[str, Expr]):
        self.tokens, self.names = tokens, names

    def sum(self, least: int) -> Expr:
        left = self.atom()
        while self.tokens and self.tokens[0] in INFIX and INFIX[self.tokens[0]] > least:
            sign = self.tokens.pop(0)
            right = self.sum(INFIX[sign])
            left = multiply(left, right) if sign == "·" else Apply(sign, (left, right))
        return left

    def atom(self) -> Expr:
        token = self.tokens.pop(0)
        e: Expr
        if token == "(":
            e = self.sum(0)
            if self.tokens.pop(0) != ")":
                raise LookupError
        elif token == "−":
            return negative(self.sum(NEGATIVE))
        elif token == "Σ":
            e = Apply("Σ", (self.sum(NEGATIVE),))
        elif token in self.names:
            e = self.names[token]
        elif token == "½":
            e = Number(0.5)
        elif token[0].isdigit():
            e = Number(float(token))
        elif token == "exp" and self.tokens and self.tokens[0] != "(":
            e = Apply("exp", (self.atom(),))
        elif self.tokens and self.tokens[0] == "(" and token.isalpha():
            e = Apply(token, (self.atom(),))
        else:
            raise LookupError(token)
        while self.tokens and self.tokens[0] in "²ᵀ":
            e = Apply("^", (e, Number(2))) if self.tokens.pop(0) == "²" else transposed(e)
        return e


def transposed(e: Expr) -> Expr:
    return e.args[0] if isinstance(e, Apply) and e.op == "T" else Apply("T", (e,))
