"""Recurrent layers: `RNN`, `LSTM` and `GRU`, one or more cells on top of each other. Read after cells/stack.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .cells import Cell, GRUCell, LSTMCell, RNNCell
from .cells.stack import Stack
from .module import Rng, check_size, generator


class Recurrent(Stack):
    """A `Stack` of `layers` cells that it makes itself: layer(x, state) → (outputs, state).

    The state is a tuple with one entry for each layer. dropout: the probability with which an output is dropped on
    its way to the next layer. engine: "explicit", the passes derived by hand, one record for each layer; or "tape",
    every operation recorded, which derivations and drawings of single operations need.
    """

    def __init__(self, make: Callable[[int, Any], Cell], D: int, layers: int, dropout: float, engine: str, rng: Rng):
        check_size(type(self).__name__, layers=layers)
        streams = generator(rng).spawn(2 * layers)  # one seed, spread over the layers
        first = make(D, streams[0])
        cells = [first, *[make(first.H, stream) for stream in streams[1:layers]]]  # type: ignore[attr-defined]
        self._build(cells, dropout, streams[layers : 2 * layers - 1], False, engine)


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


CELLS: dict[str, Callable[..., Any]] = {"rnn": RNN, "lstm": LSTM, "gru": GRU}  # as commands and tables call them
