"""Recurrent layers: `RNN`, `LSTM` and `GRU`, one or more cells on top of each other. Read after layers.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

from .cells import Cell, GRUCell, LSTMCell, RNNCell
from .layers import Dropout
from .module import Module, Rng, check_size, generator
from .sequence import ENGINES, unroll
from .tape import open_tape
from .tensor import Tensor


class Recurrent(Module):
    """`layers` cells on top of each other, each over the whole sequence: layer(x, state) → (outputs, state).

    The state is a tuple with one entry for each layer. dropout: the probability with which an output is dropped on
    its way to the next layer. engine: "explicit", the passes derived by hand, one record for each layer; or "tape",
    every operation recorded, which derivations and drawings of single operations need.
    """

    def __init__(self, make: Callable[[int, Any], Cell], D: int, layers: int, dropout: float, engine: str, rng: Rng):
        check_size(type(self).__name__, layers=layers)
        if engine not in ENGINES:
            raise ValueError(f"{type(self).__name__}: engine must be one of {ENGINES}, found {engine!r}")
        if dropout and layers == 1:
            raise ValueError(f"{type(self).__name__}: dropout stands between layers, and layers=1 has no between")
        streams = generator(rng).spawn(2 * layers)  # one seed, spread over the layers
        first = make(D, streams[0])
        self.engine = engine
        self.cells = (first, *[make(first.H, stream) for stream in streams[1:layers]])  # type: ignore[attr-defined]
        self.dropouts = tuple([Dropout(dropout, rng=stream) for stream in streams[layers : 2 * layers - 1]])

    def children(self) -> Iterator[tuple[str, Any]]:
        yield from ((str(i), cell) for i, cell in enumerate(self.cells))
        yield from ((f"dropout{i}", drop) for i, drop in enumerate(self.dropouts))

    def zero_state(self, batch: int) -> tuple[Any, ...]:
        """The zero state of each layer."""
        return tuple([cell.zero_state(batch) for cell in self.cells])

    def __call__(self, x: Any, state: Any = None, **options: Any) -> tuple[Tensor, tuple[Any, ...]]:
        """(outputs of the last layer (T, B, H), state), with lengths, mask, resets and cut_every as for `unroll`."""
        if state is None:
            state = [None] * len(self.cells)
        elif not isinstance(state, list | tuple) or len(state) != len(self.cells):
            found = f"{len(state)} entries" if isinstance(state, list | tuple) else type(state).__name__
            raise ValueError(
                f"the state of this {type(self).__name__} is a tuple of {len(self.cells)} entries, one for each "
                f"layer; found {found}"
            )
        after = []
        tape = open_tape()
        outer = f"{tape.layer}." if tape and tape.layer else ""
        for i, (cell, before) in enumerate(zip(self.cells, state)):
            if i:
                x = self.dropouts[i - 1](x)
            name = f"{outer}{i}" if len(self.cells) > 1 else None
            with tape.at(layer=name) if tape else nullcontext():
                x, new = unroll(cell, x, before, engine=self.engine, **options)
            after.append(new)
        return x, tuple(after)


class RNN(Recurrent):
    """Elman RNN layers (cells/rnn.py). D: inputs; H: hidden units; nonlinearity: "tanh", "relu" or "linear".

    rng: an int or a generator, spread over the layers. dtype: float32 unless given. The state: (h, …), (B, H) each.
    """

    def __init__(
        self,
        D: int,
        H: int,
        nonlinearity: str = "tanh",
        *,
        layers: int = 1,
        dropout: float = 0.0,
        engine: str = "explicit",
        rng: Rng = None,
        dtype: Any = None,
    ):
        super().__init__(
            lambda D, rng: RNNCell(D, H, nonlinearity, rng=rng, dtype=dtype), D, layers, dropout, engine, rng
        )


class LSTM(Recurrent):
    """LSTM layers (cells/lstm.py). D: inputs; H: hidden units; forget_bias: the forget gate's part of b at the start.

    rng: an int or a generator, spread over the layers. dtype: float32 unless given. State: ((h, c), …), (B, H) each.
    """

    def __init__(
        self,
        D: int,
        H: int,
        *,
        layers: int = 1,
        dropout: float = 0.0,
        forget_bias: float = 1.0,
        engine: str = "explicit",
        rng: Rng = None,
        dtype: Any = None,
    ):
        super().__init__(
            lambda D, rng: LSTMCell(D, H, forget_bias=forget_bias, rng=rng, dtype=dtype),
            D,
            layers,
            dropout,
            engine,
            rng,
        )


class GRU(Recurrent):
    """GRU layers (cells/gru.py). D: inputs; H: hidden units; reset: "after" or "before" the product with W_hn.

    rng: an int or a generator, spread over the layers. dtype: float32 unless given. The state: (h, …), (B, H) each.
    """

    def __init__(
        self,
        D: int,
        H: int,
        *,
        layers: int = 1,
        dropout: float = 0.0,
        reset: str = "after",
        engine: str = "explicit",
        rng: Rng = None,
        dtype: Any = None,
    ):
        super().__init__(
            lambda D, rng: GRUCell(D, H, reset=reset, rng=rng, dtype=dtype), D, layers, dropout, engine, rng
        )
