"""`summary`: what a model is made of, as a table: layers, the shapes of their parameters, and what they add up to.

Read after layers.py.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from .cells.base import Cell
from .layers import Dropout
from .listing import columns, counted, printable
from .module import Module
from .parameters import Parameter


class Row(NamedTuple):
    """One line: a layer, or a parameter of it.

    path: as parameters are named. kind: the class of the layer, "" in a parameter's row. same_as: the path where what
    stands here was met before, which is not counted again. numbers, bytes: of the parameter, or of a layer that was met
    before; 0 for a layer whose parameters have rows of their own.
    """

    path: str
    kind: str = ""
    shape: tuple[int, ...] | None = None
    numbers: int = 0
    bytes: int = 0
    dtype: str = ""
    same_as: str | None = None


@dataclass(frozen=True)
class Summary:
    """What `summary` found; printed, or shown in a notebook, it is a table.

    rows: in the order of the parameters. numbers, bytes: of all parameters, those that are shared counted once. cells:
    how many layers have a state of their own and are unrolled over time; a cell that is used twice is two.
    """

    model: str
    rows: tuple[Row, ...]
    cells: int

    @property
    def numbers(self) -> int:
        return sum(row.numbers for row in self.rows if row.same_as is None)

    @property
    def bytes(self) -> int:
        return sum(row.bytes for row in self.rows if row.same_as is None)

    def table(self) -> str:
        """The table for a terminal."""
        head, body = self.cells_of_the_table()
        lines = columns([tuple(row) for row in [head, *body]], right=(3, 4))
        lines.insert(1, "─" * max(map(len, lines)))
        return printable("\n".join([*lines, "", self.note()]))

    def note(self) -> str:
        """The totals, and what is a layer and what is a step."""
        shared = sum(row.numbers for row in self.rows if row.same_as is not None)
        again = f" ({shared:,} more are shared, and counted once)" if shared else ""
        text = f"{self.model}: {self.numbers:,} parameter{'s' * (self.numbers != 1)}, {self.bytes:,} bytes{again}."
        if self.cells:
            layers = f"{counted(self.cells, 'layer')} with a state"
            text += f" {layers}, unrolled over T steps: every step uses the same parameters, so T adds none."
        return text

    def cells_of_the_table(self) -> tuple[list[str], list[list[str]]]:
        """The table as text: its head and its rows."""
        shared = any(row.same_as is not None for row in self.rows)
        body = []
        for row in self.rows:
            size = [f"{row.numbers:,}", f"{row.bytes:,}"] if not row.kind and row.same_as is None else ["", ""]
            shape = "" if row.shape is None else "×".join(map(str, row.shape)) or "scalar"
            same = [] if not shared else ["" if row.same_as is None else f"= {row.same_as}"]
            body.append([row.path, row.kind, shape, *size, row.dtype, *same])
        return ["layer", "kind", "shape", "parameters", "bytes", "type", *["shared"] * shared], body

    def __str__(self) -> str:
        return self.table()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, body = self.cells_of_the_table()
        th = "".join(f'<th scope="col">{html.escape(c)}</th>' for c in head)
        trs = []
        for first, *rest in body:
            tds = "".join(f"<td>{html.escape(c)}</td>" for c in rest)
            trs.append(f'<tr><th scope="row">{html.escape(first)}</th>{tds}</tr>')
        caption = html.escape(self.note())
        return f"<table><caption>{caption}</caption><thead><tr>{th}</tr></thead><tbody>{''.join(trs)}</tbody></table>"


def summary(model: Any) -> Summary:
    """The layers and parameters of a model as a table, with shapes, sizes in numbers and bytes, and totals.

    model: a module; `print(mb.summary(model))`. What is used twice (a cell in two layers, tied weights) is marked with
    the place where it was met first, and counted once. TypeError for what is no module.
    """
    if not isinstance(model, Module):
        raise TypeError(f"summary takes a module (a cell, a layer or a model), found {type(model).__name__}")
    rows = tuple(_rows(model, "", {}, frozenset()))
    return Summary(type(model).__name__, rows, sum(_cells(model, frozenset())))


def _rows(x: Any, path: str, met: dict[int, str], inside: frozenset[int]) -> Iterator[Row]:
    """The rows of x and of what is in it. met: where each module and parameter was met first, by id."""
    if isinstance(x, Parameter):
        same = met.setdefault(id(x), path)
        size = x.size * x.dtype.itemsize
        yield Row(path, "", x.shape, x.size, size, str(x.dtype), None if same == path else same)
    elif isinstance(x, Dropout):
        if x.p:
            yield Row(path, f"Dropout {x.p:g}")
    elif isinstance(x, Module) and id(x) not in inside:
        same = met.setdefault(id(x), path)
        if same != path:
            own = list(x.parameters().values())
            size = sum(p.size * p.dtype.itemsize for p in own)
            yield Row(path, type(x).__name__, None, sum(p.size for p in own), size, "", same)
            return
        if path:
            yield Row(path, type(x).__name__)
        for name, child in x.children():
            yield from _rows(child, f"{path}.{name}" if path else name, met, inside | {id(x)})
    elif isinstance(x, dict | list | tuple):
        for key, child in x.items() if isinstance(x, dict) else enumerate(x):
            yield from _rows(child, f"{path}.{key}", met, inside)
    elif callable(x) and path.rpartition(".")[2].isdigit():  # a function among the layers of a Sequential
        yield Row(path, getattr(x, "__name__", type(x).__name__))


def _cells(x: Any, inside: frozenset[int]) -> Iterator[int]:
    """1 for each use of a cell that has no cell inside."""
    if isinstance(x, Module) and id(x) not in inside:
        found = [n for _, child in x.children() for n in _cells(child, inside | {id(x)})]
        yield from found or ([1] if isinstance(x, Cell) else [])
    elif isinstance(x, dict | list | tuple):
        for child in x.values() if isinstance(x, dict) else x:
            yield from _cells(child, inside)
