"""The lines of a derivation: what is written down for each step, from the last one back. Read after formulas.py.

`Backflow` has the numbers and `Symbols` the names; here they become equations, local derivatives, adjoints, terms, and
what goes on to the step before or is dropped at a cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..asking import zero_adjoint
from ..sweep import Cut
from .backflow import Backflow, Place
from .expressions import (
    ONE,
    ZERO,
    Apply,
    Expr,
    Number,
    Symbol,
    add,
    evaluated,
    size,
    text,
    with_numbers,
    words,
)
from .formulas import LARGEST, Formulas
from .lines import MOST, Block, Line, labelled, shown
from .symbols import Symbols
from .written import in_words, local


def bare_adjoint(symbols: Symbols, slot: int) -> Symbol:
    """∂L/∂ of a value, as a left side shows it."""
    s = symbols.of(slot)
    return Symbol(s.name, s.step, s.primes, True)


class Paper:
    """The lines of one derivation."""

    def __init__(self, flow: Backflow, symbols: Symbols, detail: str):
        self.flow, self.symbols, self.detail = flow, symbols, detail
        self.formulas = Formulas(flow, symbols)
        self.total: Any = None
        self._written: set[int] = set()  # records with several outputs whose equation is there already
        places = flow.places
        # What is used at another place than where it is made.
        self.outside = {
            s for i, place in enumerate(places) for r in place.records for s in r.inputs
            if s is not None and flow.place_of.get(s, i) != i
        }  # fmt: skip

    def blocks(self) -> list[Block]:
        """From the last step back; a step in which wrt has no part is left out."""
        found = [self._block(i) for i in reversed(range(len(self.flow.places)))]
        return [block for block in found if block is not None]

    def _block(self, i: int) -> Block | None:
        flow, place = self.flow, self.flow.places[i]
        outputs = [out.slot for record in place.records for out in record.outputs]
        if flow.active.isdisjoint(outputs):
            return None
        if place.step is None and self.detail != "operation":
            if i not in flow.parts:
                return None  # what only carries the adjoint from the loss to the steps
            nodes = {out.slot for r in place.records if not flow.goals.isdisjoint(r.inputs) for out in r.outputs}
        else:
            nodes = self._nodes(outputs, self.detail)
        formulas = self.formulas.handed(place, nodes)
        if self.detail == "step" and any(size(e) > LARGEST for e in formulas.values()):
            nodes = self._nodes(outputs, "gate")
            formulas = self.formulas.handed(place, nodes)
        notes, nothing = self._notes(place)
        lines: list[Line] = []
        if not nothing:
            shown_here = [slot for slot in reversed(outputs) if slot in nodes and slot not in flow.cuts]
            derived = {slot: self._derived(slot, i, nodes, formulas) for slot in shown_here if slot in flow.active}
            if self.detail == "step":  # the equations together, then how they are derived
                named = [slot for slot in reversed(outputs) if slot in self.symbols.names and slot not in flow.cuts]
                rest = [slot for slot in named if slot not in nodes] if place.step is not None else []
                lines += self._equations(shown_here, "equation") + self._equations(rest, "where")
                lines += [line for found in derived.values() for line in found]
            else:
                for slot in shown_here:
                    lines += [*self._equations([slot], "equation"), *derived.get(slot, [])]
        lines += self._passed(i, formulas, nothing, wide=True)
        lines += self._term(i, formulas, nothing)
        lines += self._passed(i, formulas, nothing, wide=False)
        steps = [r.steps for r in place.records if r.steps]
        span = (min(s[0] for s in steps), max(s[1] for s in steps)) if steps else None
        return Block(span, place.layer, notes, lines)

    def _nodes(self, outputs: list[int], detail: str) -> set[int]:
        """The values that get lines of their own."""
        s = self.symbols
        return {
            slot for slot in outputs
            if detail == "operation" or slot in s.states or slot in self.outside or slot == self.flow.start
            or (slot in s.names and (detail == "gate" or s.names[slot].name == "v"))
        }  # fmt: skip

    def _notes(self, place: Place) -> tuple[list[str], bool]:
        """What resets and padding do at a step, and whether it is nothing but padding."""
        notes: list[str] = []
        first, last = place.records[0].outputs[0].slot, place.records[-1].outputs[-1].slot
        for call in self.flow.tape.calls:
            if place.step is None or not (first <= call.last and call.first < last):
                continue
            if call.resets is not None and call.resets.any():
                notes.append(f"reset: {_rows(call.resets)} the zero state; no adjoint crosses")
            if call.real is not None and not call.real.any():
                names = call.cell.names_of(call.state)
                same = [f"{Symbol(n, place.step).label} = {Symbol(n, place.step - 1).label}" for n in names]
                return [*notes, f"padding: {', '.join(same)}; nothing is added"], True
            if call.real is not None and not call.real.all():
                notes.append(f"padding: {_rows(~call.real)} the state that was there, and nothing is added for it")
        return notes, False

    def _equations(self, slots: list[int], kind: str) -> list[Line]:
        """The equations of values; the pieces of one value share a line, that of the first of them."""
        s, lines, done = self.symbols, [], set(self._written)
        for slot in slots:
            record, _ = s.producer[slot]
            if record.outputs[0].slot in done:
                continue
            left: Expr = s.of(slot)
            e = s.formula(slot, piece=False)
            value: Expr | None = shown(s.tensor(slot).value)
            if len(record.outputs) > 1:
                done.add(record.outputs[0].slot)
                self._written.add(record.outputs[0].slot)
                left = Apply("tuple", tuple(s.of(out.slot) for out in record.outputs))
                small = all(out.size <= MOST for out in record.outputs)
                value = Apply("list", tuple(shown(out.value) for out in record.outputs)) if small else None
            note = ""
            if self.detail == "operation" and local(s.op(record), 0, s.inputs(record), s.of(slot)) is None:
                note = in_words(record.op) or ""
            lines.append(Line(kind, left, "=", _chain(e, with_numbers(e), value), note))
        return lines

    def _derived(self, slot: int, i: int, nodes: set[int], formulas: dict[int, Expr]) -> list[Line]:
        """The local derivatives of a value, and the adjoint that arrives at it."""
        s, flow = self.symbols, self.flow
        lines = [
            Line("local", Apply("∂", (s.of(slot), s.of(a))), "=", _worked(e, s.tensor(slot).size == 1))
            for a, e in self.formulas.locals(slot, flow.places[i], nodes)
        ]
        adjoint = self.formulas.adjoint(slot)
        if adjoint is None:
            return lines
        left = bare_adjoint(s, slot)
        parts = flow.arriving(slot)
        if slot == flow.start:
            return [*lines, Line("adjoint", left, "=", (ONE,))]
        here = parts.pop(i, None)
        added: Expr = ZERO
        for j, part in parts.items():
            part = labelled(shown(part), self._from(j, i))
            added = part if added == ZERO else Apply("+", (added, part))
        if here is not None:
            added = add(added, formulas[slot] if slot in formulas else shown(here))
        total = shown(flow.adjoints[slot])
        right = _worked(added, value=total) if here is not None and not parts else (added, total)
        if len(parts) == 1 and here is None:
            right = (added,)
        return [*lines, Line("adjoint", left, "=", right)]

    def _from(self, j: int, i: int) -> str:
        """Where a part of an adjoint comes from."""
        there, here = self.flow.places[j], self.flow.places[i]
        if there.step is None:
            above = any(p.step is not None and p.layer != here.layer for p in self.flow.places[j:])
            return "loss and later layers" if above else "loss"
        return f"step {there.step}" if there.layer == here.layer else f"layer {there.layer}"

    def _term(self, i: int, formulas: dict[int, Expr], nothing: bool) -> list[Line]:
        """What this place adds to ∂L/∂wrt, and the running total."""
        flow, part = self.flow, self.flow.parts.get(i)
        if part is None:
            return []
        self.total = part if self.total is None else self.total + part
        if nothing and not bool((part != 0).any()):
            return []
        direct = [formulas[slot] for slot in sorted(flow.goals) if slot in formulas]
        inputs = {flow.of(s) for r in flow.places[i].records for s in r.inputs if s is not None}
        through = (inputs & flow.wide.keys()) - flow.goals
        value = shown(part)
        right: tuple[Expr, ...] = (value,)
        if direct and not through:
            e = direct[0]
            for one in direct[1:]:
                e = add(e, one)
            if size(e) <= 2 * LARGEST:
                right = _worked(e, value=value)
        elif through and flow.places[i].step is not None:
            ops = [r.op for p in flow.places if p.step is None for r in p.records
                   if any(flow.of(o.slot) in flow.wide for o in r.outputs) and flow.of(flow.start) not in
                   {flow.of(o.slot) for o in r.outputs}]  # fmt: skip
            right = (words(f"that, back through {', '.join(dict.fromkeys(reversed(ops)))}"), value)
        assert flow.slot is not None
        return [Line("term", bare_adjoint(self.symbols, flow.slot), "+=", right, total=shown(self.total))]

    def _passed(self, i: int, formulas: dict[int, Expr], nothing: bool, wide: bool) -> Iterator[Line]:
        """What goes on to what stands before this place, and what is dropped at a cut.

        wide: what leads to wrt through records of many steps, or else the rest.
        """
        flow, place = self.flow, self.flow.places[i]
        own = {out.slot for r in place.records if r.op != "cut" for out in r.outputs}
        for slot in sorted({s for r in place.records for s in r.inputs if s is not None} & flow.active - own):
            cut = flow.cuts.get(slot)
            if (slot in flow.goals and cut is None) or (flow.of(slot) in flow.wide and slot not in flow.goals) != wide:
                continue
            here = cut is not None and flow.place_of.get(slot) == i
            arrived = flow.inflow.get(slot, {}).get(i)
            if arrived is None:
                if not here or cut is None:
                    continue
                arrived = zero_adjoint(cut.tensor)
            if nothing and not here and not bool((arrived != 0).any()):
                continue
            e, value = formulas.get(slot), shown(arrived)
            right = _worked(e, value=value) if e is not None and size(e) <= 2 * LARGEST else (value,)
            if nothing and value == ZERO:
                right = (ZERO,)
            yield Line("cut" if cut else "passed", bare_adjoint(self.symbols, slot), "←", right, self._goes(slot, cut))

    def _goes(self, slot: int, cut: Cut | None) -> str:
        """Where it goes on to."""
        flow = self.flow
        if cut is None:
            before = flow.places[flow.place_of[slot]] if slot in flow.place_of else None
            return f"to step {before.step}" if before is not None and before.step is not None else ""
        back = f"to step {cut.step - 1}" if cut.step else "to what stands before it"
        factor = flow.factors.get(slot)
        if factor is None:
            return "✂ its past is not on this tape"
        if factor == 0:
            return f"✂ dropped (cut before step {cut.step})"
        if factor == 1:
            return f"{back} (cut mended)"
        arrived = flow.adjoints.get(slot)
        passed = text(shown(arrived * factor)) if arrived is not None else "0"
        return f"{back}: {passed} (✂ times {factor:.4g} at the cut)"


def _chain(*parts: Expr | None) -> tuple[Expr, ...]:
    """What is equal in turn, each once."""
    return tuple(dict.fromkeys(part for part in parts if part is not None))


def _worked(e: Expr, single: bool = True, value: Expr | None = None) -> tuple[Expr, ...]:
    """A formula, the same with its numbers, and its value (worked out where it is not given)."""
    numbers = with_numbers(e) if single else None
    if value is None and single:
        found = evaluated(numbers if numbers is not None else e)
        value = Number(found) if found is not None else None
    return _chain(e, numbers, value)


def _rows(flags: Any) -> str:
    """'row 2 has', 'every row has'."""
    rows = [str(b + 1) for b in range(len(flags)) if flags[b]]
    if len(rows) == len(flags):
        return "every row has" if len(rows) > 1 else "the row has"
    return f"rows {', '.join(rows)} have" if len(rows) > 1 else f"row {rows[0]} has"
