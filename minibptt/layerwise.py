"""A model as the layers that run one after the other, each ready to take the adjoints of many losses back together.

Such a layer has `back(t, dy, wanted)`, one step back for all losses, and `groups`, in whose D that step leaves the
adjoints of the pre-activations. Those of the recurrent cells are in cells/many.py.
Read after cells/many.py, and before together.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .backend import Array, library_of
from .cells.many import BACK, Group, Use
from .cells.stack import Stack
from .layers import Dropout, Embedding, Linear, Sequential
from .nest import leaves
from .recurrent import GRU, LSTM, RNN
from .sequence import fill_padding


class LinearBack:
    """y = x @ W + b: dx = dy @ Wᵀ."""

    def __init__(self, layer: Linear, x: Array, names: Mapping[str, str]):
        self.W = layer.W.value
        bias = [Use(names["b"], 0, None)] if "b" in names else []
        self.groups = [Group((Use(names["W"], 0, x), *bias), self.W.shape[1])]

    def back(self, t: int, dy: Array, wanted: bool) -> Array | None:
        self.groups[0].D = dy
        return dy @ self.W.T if wanted else None


class EmbeddingBack:
    """y = W[ids]."""

    def __init__(self, layer: Embedding, ids: Array, names: Mapping[str, str]):
        self.groups = [Group((Use(names["W"], 0, ids),), layer.W.shape[1])]

    def back(self, t: int, dy: Array, wanted: bool) -> None:
        self.groups[0].D = dy


def flat_layers(model: Any) -> list[Any] | None:
    """The layers of a model in the order in which they run; None where one of them is none of ours."""
    if type(model) in BACK or type(model) in (Linear, Embedding, Dropout):
        return [model]
    inside: list[Any] = []
    if type(model) is Sequential:
        inside = list(model.layers)
    elif type(model) in (Stack, RNN, LSTM, GRU) and not model.residual:
        for i, cell in enumerate(model.cells):
            inside += [model.dropouts[i - 1], cell] if i else [cell]
    flat: list[Any] = []
    for layer in inside:
        found = flat_layers(layer)
        if found is None:
            return None
        flat += found
    return flat or None


def forward(model: Any, flat: list[Any], x: Any, given: list[Any], real: Any, resets: Any) -> list[Any]:
    """The layers with what their forward pass saves. given: the parts of the initial state, or none for zeros."""
    names = {id(p): name for name, p in model.named_parameters()}
    states = iter([getattr(h, "value", h) for h in given])
    home = next(iter(model.parameters().values())).value
    xp: Any = library_of(home)
    x = xp.asarray(getattr(x, "value", x))
    made: list[Any] = []
    for layer in flat:
        if type(layer) is Dropout:
            continue
        local = {name: names[id(p)] for name, p in layer.named_parameters()}
        x = x if real is None else fill_padding(x, real)
        if type(layer) is Embedding:
            made.append(EmbeddingBack(layer, x, local))
            x = layer.W.value[x]
            continue
        x = x.astype(home.dtype, copy=False)
        if type(layer) is Linear:
            made.append(LinearBack(layer, x, local))
            x = layer(x).value
        else:
            zero = [h.value for _, h in leaves(layer.zero_state(x.shape[1]))]
            before = [xp.asarray(h, dtype=home.dtype) for h in ([next(states) for _ in zero] if given else zero)]
            saved = layer.forward(x, before, real, resets)
            made.append(BACK[type(layer)](layer, saved, local))
            x = saved.outputs
    return made
