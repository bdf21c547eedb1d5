"""What the values on a tape are called: by their cell, without asking anybody. Read after tape.py and written.py.

Parameters and states carry their names. For what a cell's `step` works out in between, a copy of the cell takes the
step once more, on a tape of its own, and a trace of that one call sees which local name each value is given. The
records of both tapes are then laid side by side; where they do not match, values stay without a name. Nothing of this
happens while a model trains.
"""

from __future__ import annotations

import contextlib
import copy
import io
import math
import sys
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple

from .asking import Call
from .backend import to_numpy
from .expressions import Expr, Number, Symbol, size, words
from .listing import brief
from .nest import leaves, map_nest
from .sweep import Record
from .tape import Tape
from .tensor import Tensor, tensors
from .written import formula

LARGEST = 24  # a formula of more parts than this is not written out inside another: its value gets a symbol of its own


class Name(NamedTuple):
    """A name, and how many primes it has."""

    name: str
    primes: int = 0


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
        rehearsed: dict[Any, Any] = {}
        first = [record.outputs[0].slot for record in tape.records]
        for call in tape.calls:
            begin, end = bisect_right(first, call.first), bisect_right(first, call.last)
            self._note_call(call, tape.records[begin:end], rehearsed)
            self._note_choices(call, begin, end)
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
            while flags is not None and 0 <= i < len(records) and records[i].op == "where" and records[i].steps == (t, t):
                slot = records[i].outputs[0].slot
                self.conditions[slot] = Symbol(name, t)
                if direction > 0 and slot not in self.states:
                    self._call(slot, "out", t)
                i += direction

    def _note_states(self) -> None:
        for state in self.tape._states:
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
            rehearsed[key] = _rehearse(call, mark)
        x_name, names, bound, played = rehearsed[key] or (_argument(call.cell), *_unknown(call.cell, call.state))
        if isinstance(call.x, Tensor) and call.x.mark is mark:
            self._call(call.x.slot, x_name, t)
        for name, (_, h) in zip(names, leaves(call.state)):
            if isinstance(h, Tensor) and h.mark is mark:
                # Not the state itself where there was a reset: what it made of it.
                self._call(h.slot, name if call.resets is None or not call.resets.any() else name + "°", t - 1)
        if played is not None:
            self._match(call, own, x_name, names, bound, played)

    def _match(
        self, call: Call, own: list[Record], x_name: str, names: list[str], bound: dict[int, Name], played: Any
    ) -> None:
        """Lay the records of a call beside those of its rehearsal, and take over the names."""
        t, mark = call.steps[1], self.tape.mark
        records, x_slot, state_slots, parameters = played
        real: dict[int, int] = {slot: self.tape._parameters[key][1] for slot, key in parameters.items()
                                if key in self.tape._parameters}  # fmt: skip
        constant: dict[int, Expr] = {}
        given = [(x_slot, call.x, Symbol(x_name, t, value=_single(call.x)))]
        for slot, name, (_, h) in zip(state_slots, names, leaves(call.state)):
            given.append((slot, h, Symbol(name, t - 1, value=_single(h))))
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
        for record in records:
            known = [s is None or s in constant for s in record.inputs]
            if all(known):
                args = self._arguments(record, constant)
                for i, out in enumerate(record.outputs):
                    constant[out.slot] = formula(record.op, args, i if len(record.outputs) > 1 else None)
                continue
            mine = next(remaining, None)
            if mine is None or mine.op != record.op or len(mine.inputs) != len(record.inputs):
                return
            if any(b is not None if const else b is None or b != real.get(a, b)
                   for a, b, const in zip(record.inputs, mine.inputs, known)):  # fmt: skip
                return
            for i, slot in enumerate(record.inputs):
                if slot in constant:
                    constants_found[mine.outputs[0].slot, i] = constant[slot]
            for out, ours in zip(record.outputs, mine.outputs):
                real[out.slot] = ours.slot
                if out.slot in bound:
                    names_found.append((ours.slot, bound[out.slot]))
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
                shapes.append(self._values[slot].shape)
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


def _argument(cell: Any) -> str:
    code = getattr(getattr(type(cell).step, "__wrapped__", type(cell).step), "__code__", None)
    names = code.co_varnames[1 : code.co_argcount] if code else ()
    return names[0] if names else "x"


def _unknown(cell: Any, state: Any) -> tuple[list[str], dict[int, Name], None]:
    try:
        return cell.names_of(state), {}, None
    except (TypeError, ValueError):
        return ["h" for _ in leaves(state)], {}, None


def _rehearse(call: Call, mark: object) -> tuple[str, list[str], dict[int, Name], Any] | None:
    """Take the step once more and see what it calls its values; None where that cannot be done.

    First with everything on the tape, so that x_t and h₀ can be told from other constants; where the cell does not
    take x as a tensor, with what was on the tape in the first place.
    """
    for everything in (True, False):
        with contextlib.suppress(Exception):
            return _rehearsed(call, mark, everything)
    return None


def _rehearsed(call: Call, mark: object, everything: bool) -> tuple[str, list[str], dict[int, Name], Any]:
    shared = {id(p): p for p in call.cell.parameters().values()}
    cell = copy.deepcopy(call.cell, dict(shared))  # its generators and counters stay as they are
    tape = Tape()

    def on_tape(thing: Any, watched: bool) -> Any:
        value = getattr(thing, "value", thing)
        if getattr(thing, "is_parameter", False) or not watched or value.dtype.kind not in "fc":
            return thing if getattr(thing, "is_parameter", False) or not isinstance(thing, Tensor) else Tensor(value)
        return tape.watch(Tensor(value, None, getattr(thing, "weak", True)))

    bindings: list[tuple[str, int]] = []
    with tape, tape.at(call.steps[1], layer=call.layer), contextlib.redirect_stdout(io.StringIO()):
        is_x = isinstance(call.x, Tensor) and call.x.mark is mark
        x = on_tape(call.x, everything or is_x)
        state = map_nest(lambda h: on_tape(h, everything or h.mark is mark), tensors(call.state))
        before = tape.slots
        with _watching(cell, tape, bindings):
            cell.step(x, state)
    bindings = [(name, slot) for name, slot in bindings if slot > before]
    parameters = {slot: id(p) for slot, p in tape.leaves.items() if p.is_parameter}

    def slot_of(thing: Any) -> int | None:
        return thing.slot if isinstance(thing, Tensor) and thing.mark is tape.mark else None

    played = (tape.records, slot_of(x), [slot_of(h) for _, h in leaves(state)], parameters)
    names, bound, _ = _unknown(cell, state)
    return _argument(cell), names, bound | dict(_primed(bindings)), played


def _primed(bindings: list[tuple[str, int]]) -> Iterator[tuple[int, Name]]:
    """The first name of each slot. Where one name is given to several in turn, the last one is plain."""
    first: dict[int, str] = {}
    for name, slot in bindings:
        first.setdefault(slot, name)
    times: dict[str, int] = {}
    for slot in reversed(first):
        name = first[slot]
        yield slot, Name(name, times.get(name, 0))
        times[name] = times.get(name, 0) + 1


@contextlib.contextmanager
def _watching(cell: Any, tape: Tape, bindings: list[tuple[str, int]]) -> Iterator[None]:
    """Inside, each tensor of `tape` that becomes a local variable of `cell.step` is noted, with its name."""
    seen: dict[str, int] = {}

    def at_each_line(frame: Any, event: str, _: Any) -> Any:
        for name, value in frame.f_locals.items():
            if type(value) is Tensor and value.mark is tape.mark and seen.get(name) != value.slot:
                seen[name] = value.slot
                bindings.append((name, value.slot))
        return at_each_line

    def at_each_call(frame: Any, event: str, _: Any) -> Any:
        code = frame.f_code
        if code.co_name != "step" and not code.co_name.startswith("<lambda"):
            return None
        return at_each_line if any(value is cell for value in frame.f_locals.values()) else None

    outer = sys.gettrace()
    sys.settrace(at_each_call)
    try:
        yield
    finally:
        sys.settrace(outer)
