"""A whole sequence as one record of the tape: the explicit passes of a cell. Read after cells/lstm.py.

The record covers all its steps. Cuts inside it are cuts of the tape like any others, and the adjoints of every
h_t and c_t can be asked for: the cell's backward pass has them at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from .backend import Array
from .cells.explicit import Pass
from .dispatch import agreed
from .nest import leaves, rebuild
from .ops import unbroadcast
from .states import who
from .sweep import Cut
from .tape import open_tape
from .tensor import Tensor


def run_explicitly(
    cell: Any, x: Any, state: Any, real: np.ndarray | None, resets: np.ndarray | None, cut_every: int | None
) -> tuple[Tensor, Any]:
    """(outputs (T, B, H), final state) by the cell's `forward`, recorded as one entry with its `backward`.

    x: (T, B, D), padding filled; state: checked against the cell's; real, resets: (T, B) on the host, or None.
    TypeError for a cell that has no explicit passes, or only those of a cell whose equations it changes.
    """
    missing = why_not_explicitly(cell, resets is not None)
    if missing:
        raise TypeError(missing)
    name = type(cell).__name__
    before = [h for _, h in leaves(state)]
    inputs = [x, *before, *cell.parameters().values()]
    values, _ = agreed(name, inputs)
    dtype = np.result_type(*[v.dtype for v in values])  # real and complex may meet
    values = [v.astype(dtype, copy=False) for v in values]
    n = len(before)
    shapes = [h.shape for h in values[1 : n + 1]]
    T = len(values[0])
    saved = cell.forward(values[0], values[1 : n + 1], real, resets)  # a state (H,) is broadcast over the rows
    results = (saved.outputs, *saved.final)
    tape = open_tape()
    slots = [tape.slot_of(v) if tape and isinstance(v, Tensor) else None for v in inputs]
    if tape is None or not any(slots):
        outputs = tuple([Tensor(v) for v in results])
        return outputs[0], rebuild(state, list(outputs[1:]))

    names, layer = cell.names_of(state), tape.layer
    boundaries = range(cut_every, T, cut_every) if cut_every else ()
    with tape.at(1, T):
        assert tape.step is not None
        first, last = tape.step - T + 1, tape.step
        # What stands inside the record: each part of the state over all steps, and after each cut.
        over_time = [tape.place(h[1:], part, (first, last)) for h, part in zip(saved.states, names)]
        cuts = [
            Cut(first + t, layer, -1, tape.place(h[t], part, (first + t - 1, first + t - 1)))
            for t in boundaries
            for h, part in zip(saved.states, names)
        ]
        rule = partial(_rule, cell, saved, shapes, over_time, boundaries, cuts)
        constants = [v.shape for v, slot in zip(values, slots) if slot is None]
        outputs = tape.record(name, slots, constants, results, rule, several=True, inner=cuts)
        for h, part in zip(over_time, names):
            tape.state(part, h, real=real, stacked=True, resets=resets)
        for h, part in zip(outputs[1:], names):
            h.name, h.steps = part, (last, last)
    return outputs[0], rebuild(state, list(outputs[1:]))


def why_not_explicitly(cell: Any, resets: bool = False) -> str | None:
    """What keeps a cell from running by explicit passes, None where nothing does. resets: they are given."""
    if not hasattr(cell, "forward"):
        return f"{who(cell)} has no explicit passes (forward and backward): use engine='tape'"
    for method in ("step", "zero_state") if resets else ("step",):
        if _depth(cell, method) < _depth(cell, "forward"):
            return (
                f"{who(cell)} has a {method} of its own, but inherits its explicit passes (forward and backward), "
                "which know nothing of it: use engine='tape', or write these passes too"
            )
    return None


def _depth(cell: Any, method: str) -> int:
    """How far up among the classes of `cell` the method is defined; 0 is its own class."""
    return next(i for i, kind in enumerate(type(cell).__mro__) if method in vars(kind))


def _rule(
    cell: Any,
    saved: Any,
    shapes: Sequence[tuple[int, ...]],
    over_time: Sequence[Tensor],
    boundaries: Sequence[int],
    cuts: Sequence[Cut],
    g: Sequence[Array | None],
    factors: Sequence[float],
) -> tuple[list[Callable[[], Array] | None], dict[int, Array]]:
    """The adjoints of the inputs, and of the slots inside the record. factors: those of `cuts`, in their order."""
    n = len(over_time)
    at = {t: factors[i * n : (i + 1) * n] for i, t in enumerate(boundaries)}  # one for each part of the state
    scaled = {t: parts for t, parts in at.items() if any(factor != 1 for factor in parts)}
    result: Pass = cell.backward(saved, g[0], list(g[1:]), scaled)
    inside = {h.slot: adjoint[1:] for h, adjoint in zip(over_time, result.adjoints)}
    for i, t in enumerate(boundaries):
        for j in range(n):
            # Both sides of a mended cut share one adjoint, as they do on the tape.
            inside[cuts[i * n + j].slot] = result.adjoints[j][t] if at[t][j] == 1 else result.arrived[t][j]
    d_state = [partial(unbroadcast, d, shape) for d, shape in zip(result.d_state, shapes)]
    return [result.dx, *d_state, *result.parameters], inside
