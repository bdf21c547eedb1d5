"""The contributions C[t, s] of explicit layers, the adjoints of all loss steps going back together.

At step s the adjoints of the losses of steps s … T − 1 stand side by side, so a step back is one product for all. A
parameter's C[t, s] is Xᵀ @ D, X being shared by all losses, so what is asked of the pairs needs no array of the
parameter's size:

    ‖XᵀD‖² = Σ (X Xᵀ) ∘ (D Dᵀ)        ⟨XᵀD, G⟩ = Σ D ∘ (X G)        Σ_t w[t, s] XᵀD = Xᵀ (Σ_t w[t, s] D)

Sums are taken in float64. Read after cells/many.py and layerwise.py, which makes the layers ready.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .backend import Array, library_of, to_numpy
from .cells.many import Group, Use
from .gradients import Gradients
from .layers import Dropout, Embedding
from .layerwise import flat_layers, forward
from .nest import leaves
from .parts import Part
from .sequence import hide_padding
from .tape import no_tape

CHUNK = 2**17  # numbers of D that are taken to float64 at once: as many as stay in cache


class Together:
    """The pairs of a model whose layers can all be taken back this way; `made` says whether they can.

    seeds: ∂L/∂outputs, (T, B, V).
    """

    def __init__(self, model: Any, layers: Sequence[Any], seeds: Array):
        self.model, self.layers, self.seeds = model, layers, seeds
        self.T, self.B = seeds.shape[:2]

    @classmethod
    def made(cls, model: Any, x: Any, seeds: Array, state: Any, real: Any, resets: Any) -> Together | None:
        """None where a layer is none of ours (or changed by a subclass), a parameter is used twice, dropout is on, or
        the initial state has parameters or is given for some layers only."""
        flat = flat_layers(model)
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
        with no_tape():
            seeds = seeds if real is None else hide_padding(seeds, real).value  # the output there is 0, whatever it is
            return cls(model, forward(model, flat, x, given, real, resets), seeds)

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
        measures = [_Measure(group, G, self.B) for group in self.groups()]
        found = [np.zeros((2, self.T, self.T, len(m.group.uses), m.group.gates)) for m in measures]
        for s in self.steps_back():
            for measure, figures in zip(measures, found):
                values = measure(s)  # (2, m, uses, gates), of the last m losses met
                figures[:, s : s + values.shape[1], s] = values[:, ::-1]
        answers: tuple[dict[str, Array], dict[str, Array]] = ({}, {})
        for name, part in parts.items():
            mine = np.zeros((2, self.T, self.T))
            for measure, figures in zip(measures, found):
                for u, use in enumerate(measure.group.uses):
                    for gate, columns in enumerate(_columns(measure.group, use)):
                        if _within((use.parameter, columns.start, columns.stop), part, G):
                            mine += figures[..., u, gate]
            answers[0][name], answers[1][name] = mine
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
        xp: Any = library_of(self.seeds)
        zero = xp.zeros((self.B, self.B))  # to which a number broadcasts
        for s in range(self.T):
            for other in range(s + 1):
                for (uses, D), (_, E) in zip(stored[s], stored[other]):
                    kernel = sum([use.kernel(s, other) for use in uses], zero)
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
    w = group.width // group.gates
    blocks = [[group.D[..., g * w : (g + 1) * w] for g in which] for which in gates.values()]
    return [
        (tuple([group.uses[u] for u in mine]), xp.concatenate(block, axis=-1).astype(xp.float64))
        for mine, block in zip(gates, blocks)
    ]


def _columns(group: Group, use: Use) -> list[slice]:
    """The columns of the parameter that belong to each of the group's gates."""
    width = group.width // group.gates
    return [slice(use.start + i * width, use.start + (i + 1) * width) for i in range(group.gates)]


def _within(piece: tuple[str, int, int], part: Part, G: Gradients) -> bool:
    """Whether a piece of a parameter, by its columns, belongs to a part."""
    name, start, stop = piece
    if name not in part:
        return False
    first, last, _ = part[name].indices(G[name].shape[-1])
    return first <= start and stop <= last


class _Measure:
    """‖XᵀD‖² and ⟨XᵀD, G⟩ of a group at one step after the other; its buffers serve them all."""

    def __init__(self, group: Group, G: Gradients, B: int):
        self.group, self.B = group, B
        self.xp: Any = library_of(next(iter(G.values())))
        self.XG = [use.times(G[use.parameter][..., use.start : use.start + group.width]) for use in group.uses]
        self.at_once = max(1, CHUNK // max(B * group.width, B * B * group.gates))
        self.D = self.xp.empty(self.at_once * B * group.width)
        self.outer = self.xp.empty(self.at_once * B * B * group.gates)

    def __call__(self, s: int) -> np.ndarray:
        """(2, m, uses, gates), for the m losses in the group's D at step s."""
        xp, D, B, gates, uses = self.xp, self.group.D, self.B, self.group.gates, len(self.group.uses)
        m, w = len(D), self.group.width // gates
        kernels = xp.empty((B, B, uses))
        XG = xp.empty((gates, B, w, uses))
        for u, (use, times) in enumerate(zip(self.group.uses, self.XG)):
            kernels[..., u] = use.kernel(s, s)
            XG[..., u] = times(s).reshape(-1, gates, w).transpose(1, 0, 2)
        kernels, XG = kernels.reshape(B * B, uses), XG.reshape(gates, B * w, uses)
        figures = xp.empty((2, gates, m, uses))
        for a in range(0, m, self.at_once):
            n = min(self.at_once, m - a)
            by_gate = self.D[: gates * n * B * w].reshape(gates, n, B, w)
            outer = self.outer[: gates * n * B * B].reshape(gates, n, B, B)
            by_gate[...] = D[a : a + n].reshape(n, B, gates, w).transpose(2, 0, 1, 3)
            xp.matmul(by_gate, by_gate.transpose(0, 1, 3, 2), out=outer)
            figures[0, :, a : a + n] = xp.maximum(outer.reshape(gates, n, B * B) @ kernels, 0)
            figures[1, :, a : a + n] = xp.matmul(by_gate.reshape(gates, n, B * w), XG)
        return to_numpy(figures).transpose(0, 2, 3, 1)
