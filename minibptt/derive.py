"""A gradient derived step by step, from the last step back, as it is written on a blackboard. Read after backflow.py.

Everything comes from the tape: the equations from its records, the local derivatives from the docstrings of the
operations, the numbers from the backward pass itself. So the derivation cannot disagree with the code.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .asking import TapeError, ThroughCuts
from .backflow import Backflow, Place
from .backend import library_of
from .derivation import Derivation
from .derivation_lines import Block, Line, Term, labelled, shown
from .expressions import ONE, ZERO, Apply, Expr, Number, Symbol, add, evaluated, multiply, size, text, with_numbers, words
from .sweep import Cut
from .symbols import Symbols
from .tape import Tape
from .tensor import Tensor
from .written import in_words, local, passed_on

DETAILS = ("step", "gate", "operation")
LARGEST = 80  # parts of a formula; where one would be larger, the values in between get lines of their own


def derive(
    tape: Tape, loss: Tensor, wrt: Tensor, *, through_cuts: ThroughCuts = False, detail: str = "step"
) -> Derivation:
    """∂loss/∂wrt, derived step by step from the last step back.

    wrt: a parameter, or a tensor on the tape, such as an initial state or a watched input. through_cuts: as for
    `tape.gradient`. detail: "step" (the equations of each step, lines for each part of the state), "gate" (lines for
    every value that the cell names) or "operation" (for every record). `print` shows it; see `Derivation`.
    TapeError where the tape holds a layer as one record (engine="explicit"); TypeError for a module or several tensors.
    """
    if not isinstance(tape, Tape):
        raise TypeError(f"derive takes a tape first, derive(tape, loss, wrt); found {type(tape).__name__}")
    if detail not in DETAILS:
        raise ValueError(f"detail must be one of {', '.join(map(repr, DETAILS))}, found {detail!r}")
    if not isinstance(wrt, Tensor):
        raise TypeError(_one_tensor(wrt))
    for record in tape.records:
        if record.inner is not None:
            raise TapeError(
                f"{record.op} is on this tape as one record of many steps, in which nothing can be derived step by "
                "step: run it with engine='tape', which records every operation"
            )
    flow = Backflow(tape, loss, wrt, through_cuts)
    symbols, every = Symbols(tape), Symbols(tape, every=True) if detail == "operation" else None
    terms: dict[Any, Term] = {}
    xp = library_of(wrt.value)
    for i, part in flow.parts.items():
        key = step, layer = flow.places[i].step, flow.places[i].layer
        terms[key] = Term(step, layer, terms[key].term + part if key in terms else xp.array(part))
    total = tape._zeros(wrt)
    for term in terms.values():
        total = total + term.term
    return Derivation(
        symbols.of(flow.slot) if flow.slot is not None else Symbol(wrt.label),
        symbols.formula(flow.start) if flow.start in symbols.producer else symbols.of(flow.start),
        loss.value,
        [flow.factors[cut.slot] for cut in tape.cuts if cut.slot in flow.factors],
        list(terms.values()),
        total,
        _Paper(flow, every or symbols, detail).blocks(),
        detail,
        _cuts_before_the_tape(flow, symbols),
    )


def _one_tensor(wrt: Any) -> str:
    found = f"derive explains the gradient of one tensor; found {type(wrt).__name__}"
    if hasattr(wrt, "named_parameters"):
        names = [name for name, _ in wrt.named_parameters()]
        some = ", ".join(names[:6]) + (", …" if len(names) > 6 else "")
        return f"{found}. Pass one of its parameters, model.parameters()[name]; the names are {some or '(none)'}"
    return f"{found}. Pass one at a time" if isinstance(wrt, list | tuple) else f"{found}. Watch it: x = tape.watch(x)"


def _cuts_before_the_tape(flow: Backflow, symbols: Symbols) -> list[Line]:
    """Cuts whose past is not on this tape, at which something arrives."""
    return [
        Line("cut", _bare_adjoint(symbols, cut.slot), "=", (shown(flow.adjoints[cut.slot]),),
             f"arrives at the cut before step {cut.step}, whose past is not on this tape")
        for cut in flow.tape.cuts
        if cut.source is None and cut.slot in flow.adjoints
    ]  # fmt: skip


def _bare_adjoint(symbols: Symbols, slot: int) -> Symbol:
    s = symbols.of(slot)
    return Symbol(s.name, s.step, s.primes, True)


class _Paper:
    """The lines of one derivation."""

    def __init__(self, flow: Backflow, symbols: Symbols, detail: str):
        self.flow, self.symbols, self.detail = flow, symbols, detail
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
        formulas = self._formulas(place, nodes)
        if self.detail == "step" and any(size(e) > LARGEST for e in formulas.values()):
            nodes = self._nodes(outputs, "gate")
            formulas = self._formulas(place, nodes)
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

    # --- formulas ------------------------------------------------------------------------------------------------

    def _adjoint(self, slot: int) -> Symbol | None:
        """∂L/∂ of a value, None where the loss does not reach it."""
        return self.symbols.of(slot, self.flow.adjoints[slot]) if slot in self.flow.adjoints else None

    def _inner(self, place: Place, nodes: set[int]) -> set[int]:
        """The values of a place that have no lines of their own, through which formulas go on."""
        return {out.slot for r in place.records if r.op != "cut" for out in r.outputs} - nodes

    def _formulas(self, place: Place, nodes: set[int]) -> dict[int, Expr]:
        """What the records of a place hand to their nodes and to what stands before them, in symbols."""
        own = self._inner(place, nodes)
        inner: dict[int, Expr] = {}
        formulas: dict[int, Expr] = {}
        for record in reversed(place.records):
            if record.op == "cut" or self.flow.active.isdisjoint(s for s in record.inputs if s is not None):
                continue
            found = [inner.get(o.slot) if o.slot in own else self._adjoint(o.slot) for o in record.outputs]
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

    def _locals(self, y: int, i: int, nodes: set[int]) -> Iterator[Line]:
        """∂y/∂a for each symbol a in the formula of y, where that is a product of element-wise derivatives."""
        place, s = self.flow.places[i], self.symbols
        own = self._inner(place, nodes)
        pending: dict[int, Expr | None] = {y: ONE}
        found: dict[int, Expr | None] = {}
        for record in reversed(place.records):
            out = record.outputs[0]
            reached = [o.slot for o in record.outputs if o.slot in pending]
            if not reached:
                continue
            g = [pending.pop(slot) for slot in reached][0]
            args, shapes = s.inputs(record), s.shapes(record)
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
                yield Line("local", Apply("∂", (s.of(y), s.of(slot))), "=", _worked(e, self._single(y)))

    def _single(self, slot: int) -> bool:
        return self.symbols.tensor(slot).size == 1

    # --- lines ---------------------------------------------------------------------------------------------------

    def _equations(self, slots: list[int], kind: str) -> list[Line]:
        """The equations of values; the pieces of one value share a line, that of the first of them."""
        s, lines, done = self.symbols, [], set(self._written)
        for slot in slots:
            record, _ = s.producer[slot]
            if record.outputs[0].slot in done:
                continue
            left: Expr = s.of(slot)
            e, value = s.formula(slot, piece=False), shown(s.tensor(slot).value)
            if len(record.outputs) > 1:
                done.add(record.outputs[0].slot)
                self._written.add(record.outputs[0].slot)
                left = Apply("tuple", tuple(s.of(out.slot) for out in record.outputs))
                value = Apply("list", tuple(shown(out.value) for out in record.outputs))
            note = ""
            if self.detail == "operation" and local(s.op(record), 0, s.inputs(record), s.of(slot)) is None:
                note = in_words(record.op) or ""
            lines.append(Line(kind, left, "=", _chain(e, with_numbers(e), value), note))
        return lines

    def _derived(self, slot: int, i: int, nodes: set[int], formulas: dict[int, Expr]) -> list[Line]:
        """The local derivatives of a value, and the adjoint that arrives at it."""
        s, flow = self.symbols, self.flow
        lines = list(self._locals(slot, i, nodes))
        adjoint = self._adjoint(slot)
        if adjoint is None:
            return lines
        left = _bare_adjoint(s, slot)
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
        return [Line("term", _bare_adjoint(self.symbols, flow.slot), "+=", right, total=shown(self.total))]

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
                arrived = flow.tape._zeros(cut.tensor)
            if nothing and not here and not bool((arrived != 0).any()):
                continue
            e, value = formulas.get(slot), shown(arrived)
            right = _worked(e, value=value) if e is not None and size(e) <= 2 * LARGEST else (value,)
            if nothing and value == ZERO:
                right = (ZERO,)
            yield Line("cut" if cut else "passed", _bare_adjoint(self.symbols, slot), "←", right, self._goes(slot, cut))

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


