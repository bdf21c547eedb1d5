"""What a step hands back, in symbols instead of numbers. Read after backflow.py.

The same loop over the records in reverse as in sweep.py, but the adjoints are formulas and the rules are those that the
docstrings of the operations state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .backflow import Backflow, Place
from .expressions import ONE, ZERO, Expr, Symbol, add, multiply, size
from .symbols import Symbols
from .written import local, passed_on

LARGEST = 80  # parts of a formula; where one would be larger, the values in between get lines of their own


class Formulas:
    """The formulas of one backward pass. nodes: the values that have lines, and symbols for their adjoints."""

    def __init__(self, flow: Backflow, symbols: Symbols):
        self.flow, self.symbols = flow, symbols

    def adjoint(self, slot: int) -> Symbol | None:
        """∂L/∂ of a value, None where the loss does not reach it."""
        return self.symbols.of(slot, self.flow.adjoints[slot]) if slot in self.flow.adjoints else None

    def _inner(self, place: Place, nodes: set[int]) -> set[int]:
        """The values of a place that have no lines of their own, through which formulas go on."""
        return {out.slot for r in place.records if r.op != "cut" for out in r.outputs} - nodes

    def handed(self, place: Place, nodes: set[int]) -> dict[int, Expr]:
        """What the records of a place hand to their nodes and to what stands before them, in symbols."""
        own = self._inner(place, nodes)
        inner: dict[int, Expr] = {}
        formulas: dict[int, Expr] = {}
        for record in reversed(place.records):
            if record.op == "cut" or self.flow.active.isdisjoint(s for s in record.inputs if s is not None):
                continue
            found = [inner.get(o.slot) if o.slot in own else self.adjoint(o.slot) for o in record.outputs]
            if all(part is None for part in found):
                continue
            s = self.symbols
            g: Any = tuple(part or ZERO for part in found) if record.several else found[0]
            args, shapes, y = s.inputs(record), s.shapes(record), s.written(record.outputs[0].slot)
            for k, slot in enumerate(record.inputs):
                if slot is not None and slot in self.flow.active:
                    e = passed_on(s.op(record), k, args, y, g, record.outputs[0].shape, shapes[k],
                                  s.conditions.get(record.outputs[0].slot))  # fmt: skip
                    into = inner if slot in own else formulas
                    into[slot] = add(into[slot], e) if slot in into else e
        return formulas

    def locals(self, y: int, place: Place, nodes: set[int]) -> Iterator[tuple[int, Expr]]:
        """(slot of a, ∂y/∂a) for each symbol a in the formula of y, where element-wise derivatives say all."""
        s = self.symbols
        own = self._inner(place, nodes)
        pending: dict[int, Expr | None] = {y: ONE}
        found: dict[int, Expr | None] = {}
        for record in reversed(place.records):
            out = record.outputs[0]
            reached = [o.slot for o in record.outputs if o.slot in pending]
            if not reached:
                continue
            g, *_ = [pending.pop(slot) for slot in reached]
            args = s.inputs(record)
            for k, slot in enumerate(record.inputs):
                if slot is None or slot not in self.flow.active:
                    continue
                factor = None
                if g is not None and not record.several and s.tensor(slot).size == out.size and record.op != "cut":
                    factor = local(s.op(record), k, args, s.written(out.slot))
                e = None if factor is None or g is None else multiply(g, factor)
                into = pending if slot in own else found
                old = into.get(slot, ZERO)
                into[slot] = None if e is None or old is None else add(old, e)
        for slot in sorted(found, key=lambda slot: (slot not in self.flow.goals, slot)):
            e = found[slot]
            if e is not None and size(e) <= LARGEST:
                yield slot, e
