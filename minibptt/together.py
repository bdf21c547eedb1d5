"""The contributions C[t, s] of explicit layers, the adjoints of all loss steps going back together. See cells/many.py.

At step s the adjoints of the losses of steps s … T − 1 stand side by side, so a step back is one product for all. A
parameter's C[t, s] is Xᵀ @ D, X being shared by all losses, so what is asked of the pairs needs no array of the
parameter's size:

    ‖XᵀD‖² = Σ (X Xᵀ) ∘ (D Dᵀ)        ⟨XᵀD, G⟩ = Σ D ∘ (X G)        Σ_t w[t, s] XᵀD = Xᵀ (Σ_t w[t, s] D)

Sums are taken in float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .backend import Array, library_of, to_numpy
from .cells.many import BACK, Group, Use
from .gradients import Gradients
from .layers import Dropout, Embedding, Linear, Sequential
from .nest import leaves
from .parts import Part
from .recurrent import GRU, LSTM, RNN
from .sequence import fill_padding
from .tape import no_tape

CHUNK = 2**18  # numbers of D that are taken to float64 at once: as many as stay in cache


class LinearBack:
    """y = x @ W + b: dx = dy @ Wᵀ."""

    def __init__(self, layer: Linear, x: Array, names: Mapping[str, str]):
        self.W = layer.W.value
        bias = [Use(names["b"], 0, None)] if "b" in names else []
        self.groups = [Group((Use(names["W"], 0, x), *bias))]

    def back(self, t: int, dy: Array, wanted: bool) -> Array | None:
        self.groups[0].D = dy
        return dy @ self.W.T if wanted else None


class EmbeddingBack:
    """y = W[ids]."""

    def __init__(self, ids: Array, names: Mapping[str, str]):
        self.groups = [Group((Use(names["W"], 0, ids),))]

    def back(self, t: int, dy: Array, wanted: bool) -> None:
        self.groups[0].D = dy


class Together:
    """The pairs of a model whose layers can all be taken back this way; `made` says whether they can.

    seeds: ∂L/∂outputs, (T, B, N), 0 at padded steps.
    """

    def __init__(self, model: Any, layers: Sequence[Any], seeds: Array):
        self.model, self.layers, self.seeds = model, layers, seeds
        self.T, self.B = seeds.shape[:2]

    @classmethod
    def made(cls, model: Any, x: Any, seeds: Array, state: Any, real: Any, resets: Any) -> Together | None:
        """None where a layer is none of ours (or changed by a subclass), a parameter is used twice, dropout is on, or
        the initial state has parameters or is given for some layers only."""
        flat = _flat(model)
        used = [id(p) for layer in flat or () for _, p in layer.named_parameters()]
        given = [] if state is None else [h for _, h in leaves(state)]
        if (
            flat is None
            or len(set(used)) < len(used)
            or any(layer.training and layer.p for layer in flat if type(layer) is Dropout)
            or any(h is None or getattr(h, "is_parameter", False) for h in given)
            or seeds.ndim != 3
            or (type(flat[0]) is Embedding and x.ndim != 2)
        ):
            return None
        if real is not None:  # a loss may look at padded outputs, which are 0 whatever the parameters are
            xp: Any = library_of(seeds)
            seeds = xp.where(xp.asarray(real)[:, :, None], seeds, 0)
        with no_tape():
            return cls(model, _forward(model, flat, x, given, real, resets), seeds)

    def steps_back(self) -> Iterator[int]:
        """Take one step back after the other, from the last (T − 1); each leaves its D in the layers' groups."""
        for t in range(self.T - 1, -1, -1):
            dy = self.seeds[t][None]
            for i, layer in reversed(list(enumerate(self.layers))):
                dy = layer.back(t, dy, i > 0)
            yield t

    def groups(self) -> list[Group]:
        return [group for layer in self.layers for group in layer.groups]

    def measure(self, parts: Mapping[str, Part], G: Gradients) -> tuple[dict[str, Array], dict[str, Array]]:
        """(‖C[t, s]‖², ⟨C[t, s], G⟩) by part, (T, T) each, on the host."""
        pieces: dict[Any, tuple[Array, Array]] = {}
        for s in self.steps_back():
            for group in self.groups():
                squares, dots = _measure(group, s, G)  # (m, uses, gates), of the last m losses met
                for u, use in enumerate(group.uses):
                    for gate, columns in enumerate(_columns(group, use)):
                        piece = use.parameter, columns.start, columns.stop
                        if piece not in pieces:
                            pieces[piece] = np.zeros((self.T, self.T)), np.zeros((self.T, self.T))
                        for array, values in zip(pieces[piece], (squares, dots)):
                            array[s : s + len(values), s] = values[::-1, u, gate]
        answers: tuple[dict[str, Array], dict[str, Array]] = ({}, {})
        for name, part in parts.items():
            for k, answer in enumerate(answers):
                mine = [arrays[k] for piece, arrays in pieces.items() if _within(piece, part, G)]
                answer[name] = sum(mine, np.zeros((self.T, self.T)))
        return answers

    def gradient(self, w: np.ndarray) -> Gradients:
        """Σ w[t, s]·C[t, s]."""
        xp: Any = library_of(self.seeds)
        sums: dict[int, Array] = {}
        for s in self.steps_back():
            for i, group in enumerate(self.groups()):
                m, B, width = group.D.shape
                weights = xp.asarray(w[s : s + m, s][::-1], dtype=group.D.dtype)
                if i not in sums:
                    sums[i] = xp.zeros((self.T, B, width), dtype=group.D.dtype)
                sums[i][s] = (weights @ group.D.reshape(m, B * width)).reshape(B, width)
        total = {name: xp.zeros_like(p.value) for name, p in self.model.named_parameters()}
        for i, group in enumerate(self.groups()):
            for use in group.uses:
                use.add_gradient(sums[i], total[use.parameter])
        return Gradients(total)

    def gram_bytes(self, part: Part, G: Gradients) -> int:
        """About how many bytes `gram` needs: the matrix, and every D in float64."""
        P = self.T * (self.T + 1) // 2
        width = sum(array.shape[-1] for name, array in G.items() if name in part)
        return 8 * P * (P + self.B * width)

    def gram(self, part: Part, G: Gradients) -> np.ndarray:
        """⟨C_i, C_j⟩ over all pairs (see gram.Gram), of the parameters and columns in `part`."""
        stored: list[list[tuple[tuple[Use, ...], Array]]] = []
        for _ in self.steps_back():
            stored.insert(0, [block for group in self.groups() for block in _blocks(group, part, G)])
        K = np.zeros((self.T * (self.T + 1) // 2,) * 2)
        for s in range(self.T):
            for other in range(s + 1):
                for (uses, D), (_, E) in zip(stored[s], stored[other]):
                    kernel = sum(use.kernel(s, other, D) for use in uses)
                    products = to_numpy(D.reshape(len(D), -1) @ (kernel @ E).reshape(len(E), -1).T)
                    here, there = (_places(k, len(a)) for k, a in ((s, D), (other, E)))
                    K[here[:, None], there] += products
                    if other < s:
                        K[there[:, None], here] += products.T
        return K


def _places(s: int, losses: int) -> np.ndarray:
    """The numbers i = t(t + 1)/2 + s of the pairs of a step with the losses in its D, the oldest loss being step s."""
    t = np.arange(s + losses - 1, s - 1, -1)
    return t * (t + 1) // 2 + s


def _blocks(group: Group, part: Part, G: Gradients) -> list[tuple[tuple[Use, ...], Array]]:
    """(uses, D in float64) of the gates of a group that belong to `part`, those with the same uses side by side."""
    xp: Any = library_of(group.D)
    gates: dict[tuple[int, ...], list[int]] = {}  # by which of the group's uses belong to the part
    for gate in range(group.gates):
        columns = [_columns(group, use)[gate] for use in group.uses]
        pieces = [(use.parameter, at.start, at.stop) for use, at in zip(group.uses, columns)]
        mine = tuple([u for u, piece in enumerate(pieces) if _within(piece, part, G)])
        if mine:
            gates.setdefault(mine, []).append(gate)
    w = group.D.shape[-1] // group.gates
    blocks = [[group.D[..., g * w : (g + 1) * w] for g in which] for which in gates.values()]
    return [
        (tuple([group.uses[u] for u in mine]), xp.concatenate(block, axis=-1).astype(xp.float64))
        for mine, block in zip(gates, blocks)
    ]


def _columns(group: Group, use: Use) -> list[slice]:
    """The columns of the parameter that belong to each of the group's gates."""
    width = group.D.shape[-1] // group.gates
    return [slice(use.start + i * width, use.start + (i + 1) * width) for i in range(group.gates)]


def _within(piece: tuple[str, int, int], part: Part, G: Gradients) -> bool:
    """Whether a piece of a parameter, by its columns, belongs to a part."""
    name, start, stop = piece
    if name not in part:
        return False
    first, last, _ = part[name].indices(G[name].shape[-1])
    return first <= start and stop <= last


def _measure(group: Group, s: int, G: Gradients) -> tuple[np.ndarray, np.ndarray]:
    """(‖XᵀD‖², ⟨XᵀD, G⟩), each (m, uses, gates), for the m losses in the group's D."""
    D = group.D
    xp: Any = library_of(D)
    (m, B, width), gates, uses = D.shape, group.gates, len(group.uses)
    w = width // gates
    kernels = xp.stack([use.kernel(s, s, D).reshape(B * B) for use in group.uses], axis=1)
    XG = [use.times(s, G[use.parameter][..., use.start : use.start + width], B) for use in group.uses]
    XG = xp.stack(XG, axis=-1).astype(xp.float64)  # (B, gates · w, uses)
    XG = XG.reshape(B, gates, w, uses).transpose(1, 0, 2, 3).reshape(gates, B * w, uses)
    squares, dots = [], []
    at_once = max(1, CHUNK // max(B * width, B * B * gates))
    for a in range(0, m, at_once):
        part = D[a : a + at_once]
        n = len(part)
        by_gate = xp.empty((gates, n, B, w))
        by_gate[...] = part.reshape(n, B, gates, w).transpose(2, 0, 1, 3)
        outer = xp.matmul(by_gate, by_gate.transpose(0, 1, 3, 2)).reshape(gates, n, B * B)
        squares.append(xp.maximum(outer @ kernels, 0).transpose(1, 2, 0))
        dots.append(xp.matmul(by_gate.reshape(gates, n, B * w), XG).transpose(1, 2, 0))
    return to_numpy(xp.concatenate(squares)), to_numpy(xp.concatenate(dots))


# --- the layers ------------------------------------------------------------------------------------------------


def _flat(model: Any) -> list[Any] | None:
    """The layers of a model in the order in which they run; None where one of them is none of ours."""
    if type(model) in BACK or type(model) in (Linear, Embedding, Dropout):
        return [model]
    inside: list[Any] = []
    if type(model) is Sequential:
        inside = list(model.layers)
    elif type(model) in (RNN, LSTM, GRU):
        for i, cell in enumerate(model.cells):
            inside += [model.dropouts[i - 1], cell] if i else [cell]
    flat: list[Any] = []
    for layer in inside:
        found = _flat(layer)
        if found is None:
            return None
        flat += found
    return flat or None


def _forward(model: Any, flat: list[Any], x: Any, given: list[Any], real: Any, resets: Any) -> list[Any]:
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
            made.append(EmbeddingBack(x, local))
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
