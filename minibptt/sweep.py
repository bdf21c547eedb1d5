"""The backward pass: a loop over the records of a tape in reverse. Read after tensor.py.

Each record hands the adjoint of its output, g = ∂L/∂y, to its rule, and what the rule returns is added to the
adjoints of the record's inputs. No recursion, so a tape may be as long as memory allows. An adjoint is given
up as soon as its record is done, unless somebody asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .backend import Array
from .listing import subscript
from .tensor import Steps, Tensor

Rule = Callable[..., Any]


class Record:
    """One operation on the tape.

    inputs: the slots of its inputs, None for a constant. constants: the values of those constants, an array
    standing as its shape only. several: the operation returns a tuple, of one output or more. rule: from the
    adjoint of the output (a tuple of them where `several`, None for an unused one) to one adjoint per input;
    None for a cut. inner: for a record of many steps, the cuts inside it; its rule takes their factors too, and
    returns, besides the adjoints of the inputs, those of the slots inside it.
    """

    __slots__ = ("constants", "inner", "inputs", "layer", "op", "outputs", "rule", "several", "steps")

    def __init__(
        self,
        op: str,
        inputs: Sequence[int | None],
        constants: Sequence[Any],
        outputs: tuple[Tensor, ...],
        rule: Rule | None,
        steps: Steps,
        layer: str | None,
        several: bool,
        inner: Sequence[Cut] | None = None,
    ):
        self.op, self.inputs, self.constants, self.outputs = op, inputs, constants, outputs
        self.rule, self.steps, self.layer, self.several = rule, steps, layer, several
        self.inner = inner


@dataclass(frozen=True, eq=False)
class Cut:
    """A place where the tape was cut, in `layer`, at the boundary before step `step`.

    source: the slot of the tensor that was cut, None where its past is not on this tape and there is nothing
    to mend, −1 where it stands inside a record, whose rule mends it. tensor: what stands after the cut.
    """

    step: int | None
    layer: str | None
    source: int | None
    tensor: Tensor

    @property
    def name(self) -> str | None:
        return self.tensor.name

    @property
    def slot(self) -> int:
        return self.tensor.slot

    def __repr__(self) -> str:
        layer = f"{self.layer}." if self.layer else ""
        name = subscript(self.name or "v", None if self.step is None else self.step - 1)
        return f"cut({layer}{name}, before step {self.step})"


def sweep(
    records: Sequence[Record],
    cuts: Sequence[Cut],
    factors: Mapping[int, float],
    start: int,
    seed: Array,
    wanted: Sequence[int],
    apart: dict[int, dict[int, Array]] | None = None,
    leaves: Container[int] = (),
) -> dict[int, Array]:
    """The adjoints of the slots in `wanted`, starting from the adjoint `seed` at slot `start`.

    factors: for each cut that has a past, by its slot, what its adjoint is multiplied by.
    apart: slots of parameters whose parts are kept apart by the step of the record that uses them, and filled in.
    leaves: slots that nothing lies behind: their adjoints are worked out only where they are wanted.
    Slots that are not reached are left out of the answer. No array that was there before is changed.
    """
    # A mended cut is no operation: both sides of it share one adjoint, so that the order of summation, and
    # with it the last bit, is that of a tape which was never cut.
    same: dict[int, int] = {}
    for cut in cuts:
        if cut.source is not None and cut.source >= 0 and factors[cut.slot] == 1:
            same[cut.slot] = same.get(cut.source, cut.source)
    keep = {same.get(slot, slot) for slot in wanted}
    adjoint: dict[int, Any] = {same.get(start, start): seed}
    ours: set[int] = set()  # adjoints that are sums made here and held by nobody else: these add in place
    for record in reversed(records):
        outputs = record.outputs
        g: Any
        if not record.several:
            g = _take(adjoint, outputs[0].slot, keep)
            if g is None:
                continue
        else:
            g = tuple([_take(adjoint, out.slot, keep) for out in outputs])
            if all(part is None for part in g):
                continue
        if record.inner is not None:
            parts, inside = record.rule(g, [factors[cut.slot] for cut in record.inner])  # type: ignore[misc]
            adjoint.update((slot, part) for slot, part in inside.items() if slot in keep)
        elif record.rule is not None:
            parts = record.rule(g)
        else:
            factor = factors[outputs[0].slot]
            parts = (g * factor if factor else None,)
        for slot, part in zip(record.inputs, parts):
            if slot is None or part is None:
                continue
            slot = same.get(slot, slot)
            if slot in leaves and slot not in keep:
                continue
            step = _only_step(record, slot) if apart is not None and slot in apart else None
            if callable(part):  # an adjoint that is worked out only where it is needed
                part = part()
            if apart is not None and step is not None:
                apart[slot][step] = apart[slot][step] + part if step in apart[slot] else part
            elif slot not in adjoint:
                adjoint[slot] = part
            elif slot in ours:
                adjoint[slot] += part
            else:
                adjoint[slot] = adjoint[slot] + part
                ours.add(slot)
    return {slot: adjoint[same.get(slot, slot)] for slot in wanted if same.get(slot, slot) in adjoint}


class UsedOffTheClock(Exception):
    """A parameter, by its slot, is used in a record that belongs to no single step."""

    def __init__(self, slot: int, where: str):
        self.slot, self.where = slot, where


def _only_step(record: Record, slot: int) -> int:
    if record.steps is None or record.steps[0] != record.steps[1]:
        raise UsedOffTheClock(slot, f"{record.op}, which belongs to no single step")
    return record.steps[0]


def _take(adjoint: dict[int, Array], slot: int, keep: set[int]) -> Array | None:
    """The adjoint of a slot, given up unless somebody asked for it: nothing is added to it any more."""
    return adjoint.get(slot) if slot in keep else adjoint.pop(slot, None)
