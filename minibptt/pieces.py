"""A sequence that is run in pieces: the states where pieces begin, stored so that a piece can be run again.

With a state the places of the generators of dropout are stored, so that a piece that is run again has the same masks.
Read after objective.py.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from .module import generators, random_states, restore_random
from .nest import map_nest
from .sequence import run
from .tape import Tape, cut, no_tape
from .tensor import Tensor, tensors


class Pieces:
    """`model` over the sequence x (T, B, …), as far as it was run.

    reached: how many steps were run so far. mask, resets: (T, B) on the host, or None.
    """

    def __init__(self, model: Any, x: Any, state: Any = None, mask: Any = None, resets: Any = None):
        self.model, self.x, self.T, self.reached = model, x, x.shape[0], 0
        self._flags = {"mask": mask, "resets": resets}
        self._generators = generators(model)
        # The initial state has no past: one from a tape is refused, as everywhere; but a parameter in it learns.
        fresh = Tape()
        with no_tape():
            initial = map_nest(lambda h: cut(h) if fresh.slot_of(h) is None else h, tensors(state))
        self._stored: dict[int, tuple[Any, list[Any]]] = {0: (initial, [])}

    def begin(self) -> None:
        """Note where the generators stand: call it before the first piece is run."""
        self._stored[0] = self._stored[0][0], random_states(self._generators)

    @property
    def state(self) -> Any:
        """The state after the last step that was reached, without a past."""
        with no_tape():
            return cut(self._stored[self.reached][0])

    def run(self, first: int, last: int, state: Any, cut_every: int | None = None) -> tuple[Tensor, Any]:
        """(outputs, state after them) of the steps `first` to `last` (not included), from `state`."""
        options: dict[str, Any] = {name: None if f is None else f[first:last] for name, f in self._flags.items()}
        if cut_every is not None:
            options["cut_every"] = cut_every
        return run(self.model, self.x[first:last], state, **options)

    def store(self, s: int, state: Any) -> None:
        """Keep the value of the state after s steps, and where the generators stand."""
        with no_tape():
            self._stored[s] = cut(state), random_states(self._generators)
        self.reached = max(self.reached, s)

    def resume(self, s: int) -> Any:
        """The state that was stored after s steps; the generators are put back to where they stood then."""
        state, places = self._stored[s]
        restore_random(self._generators, places)
        return state

    def keep(self, wanted: Container[int]) -> None:
        """Forget the states that are not in `wanted`, but for the last one."""
        self._stored = {s: kept for s, kept in self._stored.items() if s in wanted or s == self.reached}

    def go_to(self, s: int, see: Callable[[int, Tensor], None] | None = None) -> None:
        """Carry the state on without a tape from where the sequence stands to s steps. see: is shown the outputs."""
        if s > self.reached:
            first = self.reached
            with no_tape():
                outputs, state = self.run(first, s, self.resume(first))
            self.store(s, state)
            if see:
                see(first, outputs)

    def look_ahead(self, see: Callable[[int, Tensor], None], steps: int) -> None:
        """Show the outputs of all steps, run so many at a time; the sequence then stands where it stood before."""
        state = self.resume(self.reached)
        for first in range(self.reached, self.T, max(steps, 1)):
            with no_tape():
                outputs, state = self.run(first, min(first + max(steps, 1), self.T), state)
            see(first, outputs)
        self.resume(self.reached)
