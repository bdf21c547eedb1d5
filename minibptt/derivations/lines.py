"""The lines of a derivation, before anybody decides how they look. Read after expressions.py."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..backend import Array, to_numpy
from .expressions import Apply, Expr, Number, Symbol, words

MOST = 4  # numbers of an array that are shown; of a larger one, the shape and the norm


class Term(NamedTuple):
    """What one step adds to the gradient.

    step: counted from 1; None for what is used over many steps at once. layer: its name, or None. term: the array.
    """

    step: int | None
    layer: str | None
    term: Array


class Line(NamedTuple):
    """One line: left, relation, right (several, joined by =), a note, and the running total.

    kind: "equation", "where" (the equation of a named value, for reading the others), "local" (∂y/∂x), "adjoint" (what
    arrives at a value), "term" (what is added to ∂L/∂wrt), "passed" (what goes on to the step before) or "cut".
    """

    kind: str
    left: Expr
    relation: str
    right: tuple[Expr, ...]
    note: str = ""
    total: Expr | None = None


class Block(NamedTuple):
    """The lines of one step of one layer. steps: the first and the last one, None off the clock."""

    steps: tuple[int, int] | None
    layer: str | None
    notes: list[str]
    lines: list[Line]

    @property
    def title(self) -> str:
        """'step 3', 'steps 1–4, layer 0'."""
        if self.steps is None:
            where = "off the clock"
        else:
            first, last = self.steps
            where = f"step {first}" if first == last else f"steps {first}–{last}"
        return where + (f", layer {self.layer}" if self.layer else "")


def shown(value: Any) -> Expr:
    """An array as a number, as a few numbers, or as its shape and norm."""
    array = np.asarray(to_numpy(value)) if not isinstance(value, int | float) else np.asarray(value)
    if array.size == 1 and array.dtype.kind != "c":
        return Number(float(array.reshape(-1)[0]))
    if array.size <= MOST and array.dtype.kind != "c":
        return nested(array.tolist() if 1 not in array.shape else array.reshape(-1).tolist())
    return words(f"{'×'.join(map(str, array.shape))}, ‖·‖ = {np.linalg.norm(array.reshape(-1)):.4g}")


def nested(values: Any) -> Expr:
    """Lists of numbers as a formula."""
    return Apply("list", tuple(map(nested, values))) if isinstance(values, list) else Number(values)


def labelled(e: Expr, label: str) -> Expr:
    """A part of a sum, with where it comes from."""
    return Apply("label", (e, Symbol(label)))
