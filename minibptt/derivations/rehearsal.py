"""What a cell calls the values that its `step` works out, found by taking the step once more. Read after tape.py.

A copy of the cell takes the step on a tape of its own, while a trace of that one call sees which local name each value
is given. Nothing of this happens while a model trains, and the cell and its generators stay as they are.
"""

from __future__ import annotations

import contextlib
import copy
import io
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..asking import Call
from ..nest import leaves, map_nest
from ..sweep import Record
from ..tape import Tape
from ..tensor import Tensor, tensors


class Name(NamedTuple):
    """A name, and how many primes it has."""

    name: str
    primes: int = 0


class Rehearsal(NamedTuple):
    """What a cell calls things, and the records of the step that it took once more.

    x, states: the names of its arguments. bound: by slot of the rehearsal, a name. x_slot, state_slots: where the
    arguments stand, None for what is no tensor there. parameters: by slot.
    """

    x: str
    states: list[str]
    bound: dict[int, Name]
    records: list[Record]
    x_slot: int | None
    state_slots: list[int | None]
    parameters: dict[int, Tensor]


def argument_of(cell: Any) -> str:
    """What `step` calls its input."""
    code = getattr(getattr(type(cell).step, "__wrapped__", type(cell).step), "__code__", None)
    names = code.co_varnames[1 : code.co_argcount] if code else ()
    return names[0] if names else "x"


def cell_names(call: Call) -> list[str]:
    """The names of the parts of the state, as `unroll` notes them."""
    try:
        return call.cell.names_of(call.state)
    except (TypeError, ValueError):
        return ["h" for _ in leaves(call.state)]


def states_of(call: Call, bound: list[str | None] | None = None) -> list[str]:
    """What the parts of the state are called on paper: not state.0, but what `step` calls it, or the last of its path.

    bound: for each part, the local name of what `step` returned.
    """
    found = cell_names(call)
    better = []
    for name, own in zip(found, bound or [None] * len(found)):
        last = name.rpartition(".")[2]
        better.append(name if "." not in name else own or (name if last.isdigit() else last))
    return better if len(set(better)) == len(better) else found


def rehearse(call: Call, mark: object) -> Rehearsal | None:
    """Take the step once more and see what it calls its values; None where that cannot be done.

    First with everything on the tape, so that x_t and h₀ can be told from other constants; where the cell does not
    take x as a tensor, with what was on the tape in the first place.
    """
    for everything in (True, False):
        with contextlib.suppress(Exception):
            return _rehearsed(call, mark, everything)
    return None


def _rehearsed(call: Call, mark: object, everything: bool) -> Rehearsal:
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
            out, after = cell.step(x, state)
    bindings = [(name, slot) for name, slot in bindings if slot > before]
    parameters = {slot: p for slot, p in tape.leaves.items() if p.is_parameter}

    def slot_of(thing: Any) -> int | None:
        return thing.slot if isinstance(thing, Tensor) and thing.mark is tape.mark else None

    bound = dict(_primed(bindings))
    if slot_of(out) is not None:
        bound.setdefault(slot_of(out), Name("out"))  # type: ignore[arg-type]
    own = [bound[slot_of(h)].name if slot_of(h) in bound else None for _, h in leaves(after)]  # type: ignore[index]
    return Rehearsal(
        argument_of(cell),
        states_of(call, own),
        bound,
        tape.records,
        slot_of(x),
        [slot_of(h) for _, h in leaves(state)],
        parameters,
    )


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
