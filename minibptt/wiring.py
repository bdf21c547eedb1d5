"""A tape as a graph: every record a node with its formula and value, every use of an output an edge.

This is what `plots.tape` draws where it shows single operations. An edge of the graph has one part of an adjoint: what
the backward pass hands on from the record that used an output to the record that made it. The parts that arrive at a
node add up to its adjoint. Read after unrolled.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import listing
from .asking import ThroughCuts, check_through_cuts, factor_of
from .listing import subscript
from .sweep import Cut, Record
from .tape import Tape
from .tensor import Steps, Tensor
from .unrolled import MOST_NUMBERS, norm, text_of

INFIX = {"add": "+", "subtract": "−", "multiply": "·", "divide": "/", "matmul": "@"}
SIGNS = {"sigmoid": "σ", "negative": "−"}
ARRIVES = "…"  # stands in a formula for what an edge brings


@dataclass(eq=False)
class Node:
    """One record. steps: None off the clock. formula: in its own leaves and constants, … for what edges bring.

    value: of its output, numbers or norm. state: its output is one. padded: no row is real at its step, in its layer.
    cut: where it is one.
    adjoint: the norm of what arrives at its outputs, and at a cut `dropped` of what goes no further; None without a
    loss. factor: of a cut, 0 where it is closed.
    """

    record: Record | None
    steps: Steps
    layer: str | None
    formula: str
    value: str
    cut: Cut | None = None
    padded: bool = False
    state: bool = False
    adjoint: float | None = None
    dropped: float | None = None
    factor: float = 0.0

    @property
    def step(self) -> int | None:
        """The step of a record that belongs to one only, a cut standing before its step."""
        if self.cut is not None:
            return self.cut.step
        return self.steps[0] if self.steps and self.steps[0] == self.steps[1] else None


@dataclass(eq=False)
class Edge:
    """From the node that made a value to a node that uses it. part: the norm of what comes back; None: no loss."""

    start: Node
    end: Node
    part: float | None = None


@dataclass(eq=False)
class Wiring:
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)


def wiring(tape: Tape, loss: Tensor | None = None, *, through_cuts: ThroughCuts = False) -> Wiring:
    """The records of `tape` as nodes and edges, and with a loss what the backward pass brings to each.

    Errors as for `Tape.gradient`.
    """
    check_through_cuts(through_cuts)
    graph = Wiring()
    maker: dict[int, Node] = {}
    edges: dict[tuple[int, int], Edge] = {}  # by record and input
    padded = _padded(tape)
    cuts = {cut.slot: cut for cut in tape.cuts}
    names = {slot: leaf.label for slot, leaf in tape.leaves.items()}
    called = listing.value_names(tape)
    for slot, from_before in cuts.items():
        if from_before.source is None:
            tensor = from_before.tensor
            maker[slot] = Node(None, tensor.steps, from_before.layer, tensor.label, text_of(tensor.value), from_before)
            graph.nodes.append(maker[slot])
    for i, record in enumerate(tape.records):
        first = record.outputs[0]
        known = {s: names[s] for s in record.inputs if s is not None and s in names and s not in maker}
        value = text_of(first.value) if len(record.outputs) == 1 else f"{len(record.outputs)} outputs"
        cut = cuts.get(first.slot) if record.rule is None else None
        node = Node(record, record.steps, record.layer, _formula(record, known, called), value, cut)
        node.state = bool(first.name)
        node.padded = node.step is not None and (record.layer, node.step) in padded
        node.factor = factor_of(cut, through_cuts) if cut is not None else 0.0
        graph.nodes.append(node)
        for j, used in enumerate(record.inputs):
            if used is not None and used in maker:
                edges[i, j] = Edge(maker[used], node)
                graph.edges.append(edges[i, j])
        maker.update({out.slot: node for out in record.outputs})
    if loss is not None:
        tape.gradient(loss, (), through_cuts=through_cuts)  # every check
        _backwards(tape, loss, through_cuts, edges, maker)
    return graph


def _backwards(
    tape: Tape, loss: Tensor, through_cuts: ThroughCuts, edges: dict[tuple[int, int], Edge], maker: dict[int, Node]
) -> None:
    """The pass of sweep.py once more, keeping the part of every edge."""
    arrived: dict[int, Any] = {loss.slot: 1 + 0 * loss.value}
    factors = {cut.slot: factor_of(cut, through_cuts) for cut in tape.cuts}  # those inside a record too
    for node in maker.values():
        node.adjoint, node.dropped = 0.0, 0.0 if node.cut is not None else None
    for edge in edges.values():
        edge.part = 0.0
    for i in range(len(tape.records) - 1, -1, -1):
        record = tape.records[i]
        g = tuple([arrived.pop(out.slot, None) for out in record.outputs])
        if all(part is None for part in g):
            continue
        node = maker[record.outputs[0].slot]
        node.adjoint = sum(norm(part) ** 2 for part in g if part is not None) ** 0.5
        if record.rule is None:
            factor = factors[record.outputs[0].slot]
            node.dropped = abs(1 - factor) * node.adjoint
            parts: Any = (g[0] * factor if factor else None,)
        elif record.inner is not None:
            parts, _ = record.rule(g, [factors[cut.slot] for cut in record.inner])
        else:
            parts = record.rule(g if record.several else g[0])
        for j, (slot, part) in enumerate(zip(record.inputs, parts)):
            if slot is None or part is None or slot not in maker:
                continue
            part = part() if callable(part) else part
            edges[i, j].part = norm(part)
            arrived[slot] = arrived[slot] + part if slot in arrived else part
    for place, part in arrived.items():
        if place in maker:  # a cut whose past is not on this tape
            maker[place].adjoint = maker[place].dropped = norm(part)


def _padded(tape: Tape) -> set[tuple[str | None, int]]:
    """(layer, step) where no row is real."""
    found = set()
    for note in tape.notes:
        if note.kept is not None and not note.real.any():
            found.add((note.key.rpartition(".")[0] or None, note.steps[0]))
    return found


def _formula(record: Record, known: dict[int, str], called: Mapping[int, str]) -> str:
    """'h₁ = … + b_h': leaves and constants by name or number, … for what edges bring."""
    constants = iter(record.constants)
    arguments = []
    for slot in record.inputs:
        if slot is None:
            value = next(constants)
            arguments.append(_short(value))
        else:
            arguments.append(known.get(slot, ARRIVES))
    if record.op in INFIX and len(arguments) == 2:
        text = f" {INFIX[record.op]} ".join(arguments)
    else:
        text = f"{SIGNS.get(record.op, record.op)}({', '.join(_few(arguments))})"
    first = record.outputs[0]
    if len(record.outputs) == 1 and first.slot in called:
        short = text.removesuffix(f"({ARRIVES})") if not first.name else text  # f₁ = σ: there are many in a row
        return f"{called[first.slot]} = {short}"
    return f"{subscript(first.name, record.steps[1] if record.steps else None)} = {text}" if first.name else text


def _few(arguments: list[str]) -> Iterable[str]:
    """A row of nothing but edges is one …"""
    return [ARRIVES] if set(arguments) == {ARRIVES} else arguments


def _short(value: Any) -> str:
    """A constant: its numbers where they are few, else its shape."""
    shape = value if isinstance(value, tuple) else getattr(value, "shape", ())
    if isinstance(value, tuple) or getattr(value, "size", 1) > MOST_NUMBERS:
        return f"[{'×'.join(map(str, shape))}]"
    return text_of(value)
