"""What the values on a tape are called: by their cell, without asking anybody. Read after rehearsal.py and written.py.

Parameters and states carry their names. For what a cell's `step` works out in between, the records of one call are laid
beside those of its rehearsal (rehearsal.py); where they do not match, values stay without a name.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Any

from ..asking import Call
from ..backend import to_numpy
from ..listing import brief
from ..nest import leaves
from ..sweep import Record
from ..tape import Tape
from ..tensor import Tensor
from .expressions import Expr, Number, Symbol, size, words
from .expressions import text as as_text
from .rehearsal import Name, Rehearsal, argument_of, cell_names, rehearse, states_of
from .written import formula

LARGEST = 24  # a formula of more parts than this is not written out inside another: its value gets a symbol of its own


class Symbols:
    """The symbols and formulas of the values on one tape.

    names: by slot, what the cell calls it. steps: by slot, the step that its symbol shows. states: the slots of states.
    every: give each value a symbol, v₁₇ where it has no name, instead of writing its formula out inside others.
    """

    def __init__(self, tape: Tape, every: bool = False):
        self.tape = tape
        self.conditions: dict[int, Expr] = {}  # of the where-records that masks and resets make, by output
        self.names: dict[int, Name] = {}
        self.steps: dict[int, int | None] = {}
        self.states: set[int] = set()
        self.producer: dict[int, tuple[Record, int]] = {}
        self._constants: dict[tuple[int, int], Expr] = {}  # by first output of a record and input: what it is called
        self._size: dict[int, int] = {}
        self._values: dict[int, Tensor] = dict(tape.leaves)
        for record in tape.records:
            for i, out in enumerate(record.outputs):
                self.producer[out.slot], self._values[out.slot] = (record, i), out
        self._name_twins()
        for slot, tensor in self._values.items():
            if tensor.name is not None:
                self._call(slot, tensor.name, tensor.steps[1] if tensor.steps and not tensor.is_parameter else None)
        self._note_states()
        self._better: dict[str, str] = {}  # for the name of a state, what the cell itself calls it
        rehearsed: dict[Any, Any] = {}
        first = [record.outputs[0].slot for record in tape.records]
        for call in tape.calls:
            begin, end = bisect_right(first, call.first), bisect_right(first, call.last)
            self._note_call(call, tape.records[begin:end], rehearsed)
            self._note_choices(call, begin, end)
        self.names.update(
            (slot, Name(self._better[name], primes))
            for slot, (name, primes) in self.names.items()
            if name in self._better and slot not in tape.leaves
        )
        for record in tape.records:
            if record.op == "stack" and record.steps and record.steps[0] == 1:
                self._call(record.outputs[0].slot, f"outputs_{record.layer}" if record.layer else "outputs")
            for out in record.outputs:
                self._size[out.slot] = 1
                if out.slot not in self.names:
                    parts = 1 + sum(self._size.get(s, 1) if s is not None else 1 for s in record.inputs)
                    if every or parts > LARGEST or len(record.outputs) > 1:
                        self._call(out.slot, "v", out.slot)
                    else:
                        self._size[out.slot] = parts

    def _call(self, slot: int, name: str, step: int | None = None, primes: int = 0) -> None:
        if slot not in self.names:
            self.names[slot], self.steps[slot] = Name(name, primes), step

    def _name_twins(self) -> None:
        """Parameters of one name in several layers get the layer's name before their own."""
        found = [(slot, leaf.name) for slot, leaf in self.tape.leaves.items() if leaf.is_parameter and leaf.name]
        twins = {slot: name for slot, name in found if [n for _, n in found].count(name) > 1}
        for record in self.tape.records:
            for slot in record.inputs:
                if slot in twins and record.layer:
                    self._call(slot, f"{record.layer}.{twins[slot]}")

    def _note_choices(self, call: Call, begin: int, end: int) -> None:
        """The where-records around a call: before it those of resets, after it those of padding."""
        t, records = call.steps[1], self.tape.records
        for start, direction, name, flags in ((begin - 1, -1, "reset", call.resets), (end, 1, "real", call.real)):
            i = start
            while (
                flags is not None and 0 <= i < len(records) and records[i].op == "where" and records[i].steps == (t, t)
            ):
                slot = records[i].outputs[0].slot
                self.conditions[slot] = Symbol(name, t)
                if direction > 0 and slot not in self.states:
                    self._call(slot, "out", t)
                    of = records[i].inputs[0]
                    if of is not None and self.names.get(of) == Name("out"):
                        self.names[of] = Name("out", 1)
                i += direction

    def _note_states(self) -> None:
        for state in self.tape.notes:
            if state.tensor.mark is not self.tape.mark or state.stacked:
                continue
            slot = state.tensor.slot
            self.states.add(slot)
            if state.kept is not None and state.kept.mark is self.tape.mark:
                self.states.add(state.kept.slot)
                if slot in self.names:  # what a padded row does not take over is not the state itself
                    self.names[slot] = Name(self.names[slot].name, 1)

    def _note_call(self, call: Call, own: list[Record], rehearsed: dict[Any, Any]) -> None:
        """Give names to what one call of `step` made."""
        t, mark = call.steps[1], self.tape.mark
        arguments = [x for x in [call.x, *(h for _, h in leaves(call.state))] if isinstance(x, Tensor)]
        key = (id(call.cell), *(r.op for r in own), *(x.mark is mark for x in arguments))
        if key not in rehearsed:
            rehearsed[key] = rehearse(call, mark)
        found = rehearsed[key]
        x_name = found.x if found else argument_of(call.cell)
        names = found.states if found else states_of(call)
        if isinstance(call.x, Tensor) and call.x.mark is mark:
            self._call(call.x.slot, x_name, t)
        self._better |= dict(zip(cell_names(call), names))
        for name, (_, h) in zip(names, leaves(call.state)):
            if isinstance(h, Tensor) and h.mark is mark:
                self._values.setdefault(h.slot, h)  # its record may have been dropped by keep_last
                # Not the state itself where there was a reset: what it made of it.
                self._call(h.slot, name if call.resets is None or not call.resets.any() else name + "°", t - 1)
        if found is not None:
            self._match(call, own, found)

    def _match(self, call: Call, own: list[Record], found: Rehearsal) -> None:
        """Lay the records of a call beside those of its rehearsal, and take over the names."""
        t, mark = call.steps[1], self.tape.mark
        met = {slot: self.tape.known_slot(parameter) for slot, parameter in found.parameters.items()}
        real: dict[int, int] = {slot: here for slot, here in met.items() if here is not None}
        constant: dict[int, Expr] = {}
        given = [(found.x_slot, call.x, Symbol(found.x, t, value=_single(call.x)))]
        for slot, state, (_, h) in zip(found.state_slots, found.states, leaves(call.state)):
            given.append((slot, h, Symbol(state, t - 1, value=_single(h))))
        for slot, thing, symbol in given:
            if slot is None or slot in real:
                continue
            if isinstance(thing, Tensor) and thing.mark is mark:
                real[slot] = thing.slot
            else:
                constant[slot] = symbol
        names_found: list[tuple[int, Name]] = []
        constants_found: dict[tuple[int, int], Expr] = {}
        remaining = iter(own)
        for record in found.records:
            known = [s is None or s in constant for s in record.inputs]
            if all(known):
                args = self._arguments(record, constant)
                for i, out in enumerate(record.outputs):
                    constant[out.slot] = formula(record.op, args, i if len(record.outputs) > 1 else None)
                continue
            mine = next(remaining, None)
            if mine is None or mine.op != record.op or len(mine.inputs) != len(record.inputs):
                return
            for theirs, ours, const in zip(record.inputs, mine.inputs, known):
                if const != (ours is None) or (theirs in real and ours != real[theirs]):
                    return
            for i, slot in enumerate(record.inputs):
                if slot in constant:
                    constants_found[mine.outputs[0].slot, i] = constant[slot]
            for out, same in zip(record.outputs, mine.outputs):
                real[out.slot] = same.slot
                if out.slot in found.bound:
                    names_found.append((same.slot, found.bound[out.slot]))
        if next(remaining, None) is None:
            self._constants |= constants_found
            for slot, name in names_found:
                self._call(slot, name.name, t, name.primes)

    @staticmethod
    def _arguments(record: Record, known: dict[int, Expr]) -> list[Expr]:
        constants = iter(record.constants)
        return [_literal(next(constants)) if slot is None else known[slot] for slot in record.inputs]

    # --- asking ------------------------------------------------------------------------------------------------

    def of(self, slot: int, adjoint: Any = None) -> Symbol:
        """The symbol of a slot (v₁₇ where it has no name), or of its adjoint, ∂L/∂h₃, whose value is `adjoint`."""
        name, step = self.names.get(slot, Name("v")), self.steps.get(slot, slot if slot not in self.names else None)
        value = _single(adjoint if adjoint is not None else self._values.get(slot))
        return Symbol(name.name, step, name.primes, adjoint is not None, value)

    def tensor(self, slot: int) -> Tensor:
        return self._values[slot]

    def inputs(self, record: Record) -> list[Expr]:
        """The inputs of a record: symbols, or formulas of what has no name."""
        constants = iter(record.constants)
        args: list[Expr] = []
        for i, slot in enumerate(record.inputs):
            if slot is None:
                literal = next(constants)
                args.append(self._constants.get((record.outputs[0].slot, i)) or _literal(literal))
            else:
                args.append(self.written(slot))
        return args

    def shapes(self, record: Record) -> list[tuple[int, ...]]:
        """The shape of each input of a record."""
        constants = iter(record.constants)
        shapes = []
        for slot in record.inputs:
            if slot is None:
                literal = next(constants)
                shapes.append(literal if isinstance(literal, tuple) else getattr(literal, "shape", ()))
            else:
                shapes.append(self._values[slot].shape if slot in self._values else ())  # () where it was dropped
        return shapes

    def op(self, record: Record) -> str:
        """The operation of a record; a matrix product of single numbers is a product."""
        single = record.op == "matmul" and all(math.prod(shape) == 1 for shape in self.shapes(record))
        return "multiply" if single else record.op

    def written(self, slot: int) -> Expr:
        """A symbol where the value has a name, else its formula."""
        return self.of(slot) if slot in self.names or slot not in self.producer else self.formula(slot)

    def formula(self, slot: int, piece: bool = True) -> Expr:
        """The formula of a value, in the symbols of what it was made from. piece: say which one of several it is."""
        record, i = self.producer[slot]
        args = self.inputs(record)
        if sum(map(size, args)) > 8 * LARGEST:
            args = [words("…")]
        if record.op == "where":
            args = [self.conditions.get(slot, words("…")), *args]
        return formula(self.op(record), args, i if piece and len(record.outputs) > 1 else None)


def _literal(value: Any) -> Expr:
    """A constant: a number, a few numbers, or the shape of more."""
    if isinstance(value, tuple):
        return words(f"({'×'.join(map(str, value))})")
    array = to_numpy(value)
    if array.size and array.dtype.kind != "c" and (array == array.reshape(-1)[0]).all():
        return Number(float(array.reshape(-1)[0]))
    return words(f"({', '.join(f'{v:.4g}' for v in array.reshape(-1).tolist())})" if array.dtype.kind != "c"
                 else brief(value))  # fmt: skip


def _single(value: Any) -> float | None:
    """The number of a value that has just one."""
    value = getattr(value, "value", value)
    if getattr(value, "size", 0) != 1 or value.dtype.kind not in "fiub":
        return None
    return float(to_numpy(value).reshape(-1)[0])


def labels(tape: Tape) -> dict[int, str]:
    """By slot, what the values that are no leaves are called, for `print(tape)`."""
    symbols = Symbols(tape)
    return {slot: as_text(symbols.of(slot)) for slot in symbols.names if slot in symbols.producer}
