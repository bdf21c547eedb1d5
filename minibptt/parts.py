"""The parts of a model that are judged apart: each parameter, and each gate over all its parameters."""

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
        path, first = "", len(places)
        for local, parameter in cell.named_parameters():
            path, first = names[id(parameter)].removesuffix(local).rstrip("."), min(first, places.index(id(parameter)))
            for gate, columns in cell.gate_columns(local).items():
                by_gate[gate][names[id(parameter)]] = columns
        gated.append((first, path, by_gate))
    for _, path, by_gate in sorted(gated, key=lambda one: one[0]):
        where = f" of {path}" if len(gated) > 1 else ""
        parts |= {f"gate {gate}{where}": columns for gate, columns in by_gate.items()}
    return parts


def take(gradients: Mapping[str, Any], part: Part) -> Gradients:
    """The gradients of one part: views of its columns. A parameter that is a single number has none, and is whole."""
    return Gradients({n: gradients[n][..., at] if gradients[n].ndim else gradients[n] for n, at in part.items()})
