"""What every record of a tape hands back, kept apart by where it comes from. Read after sweep.py.

`sweep` adds adjoints up as it goes; a derivation wants to see the parts: what arrives at h₂ from the loss and what from
step 3, and what each step adds to the gradient of a parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..asking import ThroughCuts
from ..backend import Array
from ..sweep import Record
from ..tape import Tape
from ..tensor import Tensor


class Place(NamedTuple):
    """Records that follow each other and belong to one step of one layer; step None: to no single step."""

    step: int | None
    layer: str | None
    records: list[Record]


def places_of(tape: Tape) -> list[Place]:
    """The records of a tape, in order, grouped by the step and layer that they belong to.

    What is made of a state when its step is over, such as a loss of the last one, belongs to no step.
    """
    places: list[Place] = []
    key: tuple[int | None, str | None] | None = None
    for record in tape.records:
        step = record.steps[0] if record.steps is not None and record.steps[0] == record.steps[1] else None
        if not places or key != (step, record.layer):
            key = (step, record.layer)
            places.append(Place(step, record.layer, []))
        places[-1].records.append(record)
    states = {h.slot for state in tape.notes for h in (state.tensor, state.kept) if h is not None}
    seen: set[tuple[int | None, str | None]] = set()
    for i, place in enumerate(places):
        outputs = {out.slot for record in place.records for out in record.outputs}
        if (place.step, place.layer) in seen and states.isdisjoint(outputs):
            places[i] = place._replace(step=None)
        seen.add((place.step, place.layer))
    return places


class Backflow:
    """The backward pass of one question, with its parts.

    adjoints: by slot, ∂L/∂ of it. active: the slots that depend on wrt, cuts or not. inflow: by slot, what arrives
    there from each place. goals: the slots of wrt, those behind mended cuts too. parts: by place, in the order of the
    backward pass, what it adds to ∂L/∂wrt. wide: the slots between wrt and the first record of a single step.
    """

    def __init__(self, tape: Tape, loss: Tensor, wrt: Tensor, through_cuts: ThroughCuts):
        self.tape = tape
        self.adjoints = tape.all_adjoints(loss, through_cuts=through_cuts)  # with every check of a question
        self.factors = tape.factors(through_cuts)
        self.start = tape.slot_of_loss(loss)
        self.slot = tape.slot_of_wrt(wrt)
        self.cuts = {cut.slot: cut for cut in tape.cuts}
        self.same: dict[int, int] = {}  # what stands after a mended cut is what stands before it: see `sweep`
        for cut in tape.cuts:
            if cut.source is not None and self.factors[cut.slot] == 1:
                self.same[cut.slot] = self.same.get(cut.source, cut.source)
        self.places = places_of(tape)
        self.place_of = {out.slot: i for i, p in enumerate(self.places) for r in p.records for out in r.outputs}
        here = set() if self.slot is None else {self.of(self.slot)}
        self.goals = here | ({slot for slot, source in self.same.items() if source in here})
        self.active = set(self.goals)
        for record in tape.records:
            if not self.active.isdisjoint(s for s in record.inputs if s is not None):
                self.active.update(out.slot for out in record.outputs)
        self.inflow: dict[int, dict[int, Array]] = {}
        for i in reversed(range(len(self.places))):
            for record in reversed(self.places[i].records):
                self._hand_back(i, record)
        self.wide: dict[int, dict[Any, Array]] = {slot: {} for slot in here}
        self.parts = self._parts_of_the_answer() if here else {}

    def of(self, slot: int) -> int:
        """The slot that shares its adjoint with this one."""
        return self.same.get(slot, slot)

    def handed(self, record: Record, g: Sequence[Array | None]) -> list[Any]:
        """What a record hands to its inputs, given the adjoints of its outputs."""
        if all(part is None for part in g):
            return [None] * len(record.inputs)
        if record.rule is None:
            factor = self.factors[record.outputs[0].slot]
            return [g[0] * factor if factor and record.outputs[0].slot not in self.same else None]  # type: ignore[operator]
        parts = record.rule(tuple(g) if record.several else g[0])
        return [part() if callable(part) else part for part in parts]

    def _hand_back(self, i: int, record: Record) -> None:
        if self.active.isdisjoint(s for s in record.inputs if s is not None):
            return
        parts = self.handed(record, [self.adjoints.get(out.slot) for out in record.outputs])
        for slot, part in zip(record.inputs, parts):
            if slot is not None and part is not None and slot in self.active:
                here = self.inflow.setdefault(slot, {})
                here[i] = here[i] + part if i in here else part

    def arriving(self, slot: int) -> dict[int, Array]:
        """By place, what arrives at a value, through mended cuts too."""
        total = dict(self.inflow.get(slot, {}))
        for other, source in self.same.items():
            if source == slot and other != slot:
                for i, part in self.inflow.get(other, {}).items():
                    total[i] = total[i] + part if i in total else part
        return total

    def _parts_of_the_answer(self) -> dict[int, Array]:
        """Between wrt and the first record of a single step there may be records of many, such as a projection of the
        whole sequence: what comes back through these is kept apart by step."""
        assert self.slot is not None
        wide, goal = self.wide, self.of(self.slot)
        for place in self.places:
            for record in place.records if place.step is None else ():
                if any(s is not None and self.of(s) in wide for s in record.inputs):
                    wide.update({self.of(out.slot): {} for out in record.outputs if self.of(out.slot) not in wide})
        if self.of(self.start) in wide:
            wide[self.of(self.start)][None] = self.adjoints[self.start]
        for i in reversed(range(len(self.places))):
            for record in reversed(self.places[i].records):
                targets = [k for k, s in enumerate(record.inputs) if s is not None and self.of(s) in wide]
                if not targets or record.outputs[0].slot in self.same:
                    continue
                gs: dict[Any, list[Any]] = {i: [self.adjoints.get(out.slot) for out in record.outputs]}
                if self.places[i].step is None:
                    tags = dict.fromkeys(tag for out in record.outputs for tag in wide[self.of(out.slot)])
                    gs = {tag: [wide[self.of(out.slot)].get(tag) for out in record.outputs] for tag in tags}
                for tag, g in gs.items():
                    parts = self.handed(record, g)
                    for k in targets:
                        if parts[k] is not None:
                            slot = self.of(record.inputs[k])  # type: ignore[arg-type]
                            key = i if tag is None and slot == goal else tag
                            wide[slot][key] = wide[slot][key] + parts[k] if key in wide[slot] else parts[k]
        return {
            i: part
            for i, part in sorted(
                wide[goal].items(), key=lambda item: -(len(self.places) if item[0] is None else item[0])
            )
        }
