"""`Stack`: cells on top of each other, which together are one cell. Read after layers.py.

    x⁰_t = x_t                                        layers i = 0 … n − 1, steps t = 1 … T
    y_t, s^i_t = cell_i(drop(x^i_t), s^i_{t−1})       each layer has a state of its own; x⁰ is not dropped
    x^{i+1}_t = y_t, or x^i_t + y_t around which a residual connection goes

Depth and time are two different things: n layers have n states and, unless a cell is used twice, n sets of parameters;
T steps use the same parameters T times. So a stack can be run in two orders, which give the same numbers: step by step,
all layers at each (`unroll`, `step`), or layer by layer, all steps in each (calling it), as the explicit passes do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .. import ops
from ..layers import Dropout
from ..listing import counted
from ..module import Rng, generator
from ..nest import leaves
from ..passes import why_not_explicitly
from ..sequence import ENGINES, checked_step, hide_padding, real_steps, sequence_input, unroll
from ..states import entries, in_layer, who, zero_state
from ..tensor import Tensor
from .base import Cell


class Stack(Cell):
    """Cells on top of each other: a cell for `unroll`, and a layer, stack(x, state) → (outputs, state).

    cells: one or more, or one list of them. The state is a tuple with one entry for each use of a cell. A cell that
    stands there twice, `[cell] * 2`, is used twice: its parameters are there once, its gradient is the sum over both
    uses. dropout: the probability with which an input of a layer is dropped on its way up from the one below, by a new
    mask at each step; what goes around a layer is not dropped. rng: for these masks, an int or a generator, spread over
    the layers. residual: add its input to a layer's output; True for all layers, or the numbers of the layers, from 0.
    engine: what a call runs every layer by, see `unroll`; unless given, "explicit" in those that have explicit passes.
    TypeError for what is no cell; ValueError where the sizes of two layers, or those of a residual connection, differ.
    """

    dropouts: tuple[Dropout, ...]

    def __init__(
        self,
        *cells: Any,
        dropout: float = 0.0,
        residual: bool | Sequence[int] = False,
        engine: str | None = None,
        rng: Rng = None,
    ):
        if len(cells) == 1 and isinstance(cells[0], list | tuple):
            cells = tuple(cells[0])
        if not cells:
            raise ValueError("Stack needs at least one cell")
        for i, cell in enumerate(cells):
            if not isinstance(cell, Cell):
                raise TypeError(
                    f"Stack: layer {i} ({type(cell).__name__}) is no cell: make it a subclass of minibptt.Cell"
                )
        self._build(cells, dropout, generator(rng).spawn(len(cells) - 1), residual, engine)

    def _build(self, cells: Sequence[Any], dropout: float, streams: Sequence[Any], residual: Any, engine: Any) -> None:
        """streams: a generator for each place between two layers."""
        if engine is not None and engine not in ENGINES:
            raise ValueError(f"{type(self).__name__}: engine must be one of {ENGINES}, found {engine!r}")
        if dropout and len(cells) == 1:
            raise ValueError(f"{type(self).__name__}: dropout stands between layers, and one layer has no between")
        self.engine = engine
        self.cells = tuple(cells)
        self.dropouts = tuple([Dropout(dropout, rng=stream) for stream in streams])
        self.residual = self._numbers(residual)
        self._check_sizes()

    def _numbers(self, residual: Any) -> frozenset[int]:
        """The numbers of the layers that a residual connection goes around."""
        n = len(self.cells)
        if isinstance(residual, bool):
            return frozenset(range(n) if residual else ())
        if not isinstance(residual, list | tuple | set | frozenset | range) or not all(
            type(i) is int for i in residual
        ):
            raise TypeError(f"Stack: residual must be True, False or a list of layer numbers, found {residual!r}")
        wrong = [i for i in residual if not 0 <= i < n]
        if wrong:
            raise ValueError(f"Stack: residual={list(residual)}: there is no layer {wrong[0]}; they are 0 to {n - 1}")
        return frozenset(residual)

    def _check_sizes(self) -> None:
        """ValueError where the sizes that are known, those of the built-in cells, do not fit."""
        width = None
        for i, cell in enumerate(self.cells):
            D, H = _sizes(cell)
            if width is not None and D is not None and width != D:
                raise ValueError(
                    f"{type(self).__name__}: layer {i} ({type(cell).__name__}) takes D = {D} inputs, and layer {i - 1} "
                    f"gives {width}{self._twice(i)}"
                )
            if i in self.residual and None not in (D, H) and D != H:
                raise ValueError(
                    f"{type(self).__name__}: a residual connection adds the inputs of layer {i} to its outputs, and "
                    f"these are D = {D} and H = {H} wide: leave {i} out of residual="
                )
            width = H

    def _twice(self, i: int) -> str:
        """What an error about the shapes of layer i adds where its cell stands further down too."""
        first = next(j for j, cell in enumerate(self.cells) if cell is self.cells[i])
        if first == i:
            return ""
        return (
            f". It is the cell of layer {first} again, and a cell on top of itself needs outputs as wide as its inputs"
        )

    @property
    def D(self) -> int | None:
        """The width of the inputs, None where a cell of one's own does not say."""
        return _sizes(self.cells[0])[0]

    @property
    def H(self) -> int | None:
        """The width of the outputs, None where a cell of one's own does not say."""
        return _sizes(self.cells[-1])[1]

    def children(self) -> Iterator[tuple[str, Any]]:
        yield from ((str(i), cell) for i, cell in enumerate(self.cells))
        yield from ((f"dropout{i}", drop) for i, drop in enumerate(self.dropouts))

    # --- the state ---------------------------------------------------------------------------------------------

    def zero_state(self, batch: int) -> tuple[Any, ...]:
        """The zero state of each layer."""
        return tuple([zero_state(cell, batch) for cell in self.cells])

    def entries(self, state: Any) -> list[tuple[int, Cell, Any]]:
        """(number, cell, its entry of the state) for each layer. ValueError for a state of another form."""
        n = len(self.cells)
        expected = f"a tuple of {counted(n, 'entry', 'entries')}, one for each layer"
        return list(zip(range(n), self.cells, entries(self, state, n, expected)))

    def names_of(self, state: Any) -> list[str]:
        return [name for _, cell, entry in self.entries(state) for name in cell.names_of(entry)]

    def layers_of(self, state: Any) -> list[str | None]:
        found: list[str | None] = []
        for i, cell, entry in self.entries(state):
            inner = cell.layers_of(entry)
            found += inner if self._alone else [str(i) if layer is None else f"{i}.{layer}" for layer in inner]
        return found

    @property
    def _alone(self) -> bool:
        return len(self.cells) == 1

    # --- step by step, and layer by layer ------------------------------------------------------------------------

    def step(self, x: Any, state: Any) -> tuple[Tensor, tuple[Any, ...]]:
        """One step of every layer, from the bottom up: the output of the last, and the state of each.

        ValueError for a state that is missing, or of another batch than x.
        """
        after: list[Any] = []
        seen: list[tuple[int, ...]] = []
        for i, cell, before in self.entries(state):
            with self._use(i, seen, x):
                parts = list(leaves(before))
                form, below = [path for path, _ in parts], x
                wrong = [h for _, h in parts if not getattr(h, "ndim", 0) or h.shape[0] not in (1, len(x))]
                if wrong or before is None:
                    found = f"shape {wrong[0].shape}" if wrong and hasattr(wrong[0], "shape") else repr(before)
                    raise ValueError(
                        f"the state of {who(cell)} must be one of {counted(len(x), 'row')}, as x is; found {found}. "
                        f"The first one is zero_state({len(x)})"
                    )
                x = self.dropouts[i - 1](x) if i else x
                y, new = checked_step(cell, x, before, form, [None] * len(form))
                x = self._around(i, below, y)
            after.append(new)
        return x, tuple(after)

    def __call__(
        self,
        x: Any,
        state: Any = None,
        *,
        lengths: Any = None,
        mask: Any = None,
        resets: Any = None,
        cut_every: int | None = None,
    ) -> tuple[Tensor, tuple[Any, ...]]:
        """(outputs of the last layer (T, B, …), state), layer by layer, with arguments as for `unroll`."""
        x = sequence_input(x)
        T, B = x.shape[:2]
        real = real_steps(T, B, lengths, mask)
        return self.by_layer(x, state, self.engine, mask=real, resets=resets, cut_every=cut_every)

    def by_layer(
        self, x: Any, state: Any, engine: str | None, *, mask: Any, **options: Any
    ) -> tuple[Tensor, tuple[Any, ...]]:
        """The whole sequence through one layer after the other. mask: from `real_steps`, or None."""
        after: list[Any] = []
        seen: list[tuple[int, ...]] = []
        for i, cell, before in self.entries(state):
            with self._use(i, seen, x):
                below = x
                x = self.dropouts[i - 1](x) if i else x
                if engine is None and isinstance(cell, Stack):
                    y, new = cell(x, before, mask=mask, **options)
                else:
                    by_hand = not why_not_explicitly(cell, options["resets"] is not None)
                    how = engine or ("explicit" if by_hand else "tape")
                    y, new = unroll(cell, x, before, engine=how, mask=mask, **options)
                x = self._around(i, below, y)
            after.append(new)
        return hide_padding(x, mask) if mask is not None and i in self.residual else x, tuple(after)

    def _around(self, i: int, x: Any, y: Tensor) -> Tensor:
        """The output of layer i, with its input added where a residual connection goes around it."""
        if i not in self.residual:
            return y
        if x.shape != y.shape:
            raise ValueError(
                f"{who(self.cells[i])}: a residual connection adds the input {x.shape} to the output {y.shape}, and "
                f"these must have one shape: leave {i} out of residual="
            )
        return ops.add(x, y)

    @contextmanager
    def _use(self, i: int, seen: list[tuple[int, ...]], x: Any) -> Iterator[None]:
        """Inside, layer i runs on x; an error says so where x has another shape than at an earlier use of the cell."""
        seen.append(x.shape)
        with in_layer(i, alone=self._alone):
            try:
                yield
            except (TypeError, ValueError) as error:
                if seen[self.cells.index(self.cells[i])] == x.shape:
                    raise
                kind = TypeError if isinstance(error, TypeError) else ValueError
                raise kind(f"{error}{self._twice(i)}") from error


def _sizes(cell: Any) -> tuple[int | None, int | None]:
    """(D, H) of a built-in cell or a stack of them; None where a cell of one's own may mean something else by it."""
    if isinstance(cell, Stack) or hasattr(cell, "forward"):
        return getattr(cell, "D", None), getattr(cell, "H", None)
    return None, None
