"""`Cell`: one step of a recurrent network. Read after module.py.

A cell has `zero_state(batch)`, the state before the first step, and `step(x_t, state)`, which returns the
output and the next state. The state is a tensor or any nesting of tuples, lists and dicts of tensors.
`unroll` in sequence.py takes a cell over time.
"""

from __future__ import annotations

import inspect
from typing import Any

from ..backend import Array
from ..module import Module
from ..nest import leaves
from ..tensor import Tensor


class Cell(Module):
    """Base of recurrent cells; one of your own needs no more than its two methods.

    gates: the names of the gates whose blocks lie side by side in the last axis of each parameter.
    state_names: the names of the parts of the state, in order; without them a state that is one tensor is
    called after the second argument of `step`.
    """

    gates: tuple[str, ...] = ()
    state_names: tuple[str, ...] = ()

    def zero_state(self, batch: int) -> Any:
        """The state before the first step, for `batch` rows."""
        raise TypeError(f"{type(self).__name__} has no zero_state(batch): define it, or pass a state")

    def step(self, x: Any, state: Any) -> tuple[Tensor, Any]:
        """(output, next state) from x_t (B, …) and the state after step t − 1."""
        raise TypeError(f"{type(self).__name__} has no step(x, state): define it")

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        raise TypeError(
            f"{type(self).__name__} is one step; over a sequence: outputs, state = minibptt.unroll(cell, x)"
        )

    def names_of(self, state: Any) -> list[str]:
        """A name for each leaf of `state`."""
        paths = [path for path, _ in leaves(state)]
        if len(self.state_names) == len(paths):
            return list(self.state_names)
        arguments = list(inspect.signature(self.step).parameters)
        base = arguments[1] if len(arguments) > 1 else "state"
        return [f"{base}.{path}" if path else base for path in paths]

    def layers_of(self, state: Any) -> list[str | None]:
        """For each leaf of `state` the layer inside this cell that it belongs to; None where there is none inside."""
        return [None for _ in leaves(state)]

    def by_gate(self, array: Array) -> dict[str, Array]:
        """A parameter or its gradient (…, G·H) apart by gate, as views (…, H). Empty for a cell without gates.

        ValueError where the last axis does not divide into the gates, each of H units where the cell has an H.
        """
        if not self.gates:
            return {}
        array = getattr(array, "value", array)
        width, rest = divmod(array.shape[-1], len(self.gates))
        H = getattr(self, "H", width)
        if rest or width != H:
            raise ValueError(
                f"the last axis of shape {array.shape} does not divide into {len(self.gates)} gates "
                f"({', '.join(self.gates)})" + (f" of H = {H} units" if hasattr(self, "H") else "")
            )
        return {gate: array[..., i * width : (i + 1) * width] for i, gate in enumerate(self.gates)}

    def gate_columns(self, name: str) -> dict[str, slice]:
        """Where each gate stands in the last axis of the parameter `name`; empty where it is not laid out by gate."""
        width, rest = divmod(dict(self.named_parameters())[name].shape[-1], max(1, len(self.gates)))
        if rest or width != getattr(self, "H", width):
            return {}
        return {gate: slice(i * width, (i + 1) * width) for i, gate in enumerate(self.gates)}
