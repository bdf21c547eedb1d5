"""The parts of a model that are judged apart: each parameter, and each gate over all its parameters.

Read after cells/base.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .cells.base import Cell
from .gradients import Gradients

Part = Mapping[str, slice]  # by parameter name, which columns (of its last axis) belong to the part


def parts_of(model: Any) -> dict[str, Part]:
    """The parts by name: "1.W_x", …, then "gate i", … over all parameters of a cell that has gates.

    Where several cells have gates each is named too: "gate i of 1.0". Parameters by themselves add up to the whole;
    gates do so for the cells that have them.
    """
    names = {id(p): name for name, p in model.named_parameters()}
    parts: dict[str, Part] = {name: {name: slice(None)} for name in names.values()}
    places = list(names)
    gated: list[tuple[int, str, dict[str, dict[str, slice]]]] = []
    for cell in getattr(model, "modules", list)():
        if not isinstance(cell, Cell) or not cell.gates:
            continue
        by_gate: dict[str, dict[str, slice]] = {gate: {} for gate in cell.gates}
        path, first, newest = "", len(places), -1
        for local, parameter in cell.named_parameters():
            place, name = places.index(id(parameter)), names[id(parameter)]
            first = min(first, place)
            if place > newest:  # one that it shares with an earlier cell is named after that
                path, newest = name.removesuffix(local).rstrip("."), place
            for gate, columns in cell.gate_columns(local).items():
                by_gate[gate][names[id(parameter)]] = columns
        gated.append((first, path, by_gate))
    for _, path, by_gate in sorted(gated, key=lambda one: one[0]):
        where = f" of {path}" if len(gated) > 1 else ""
        parts |= {f"gate {gate}{where}": columns for gate, columns in by_gate.items()}
    return parts


def take(gradients: Mapping[str, Any], part: Part) -> Gradients:
    """The gradients of one part: views of its columns, and a scalar as it is."""
    mine = {name: (gradients[name], columns) for name, columns in part.items()}
    return Gradients({name: g[..., columns] if g.ndim else g for name, (g, columns) in mine.items()})
