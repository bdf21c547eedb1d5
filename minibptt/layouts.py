"""Weights as PyTorch, Keras and TensorFlow 1 keep them, to and fro. Read after recurrent.py; see weights.py.

With D inputs, H units and G gates (RNN 1, GRU 3, LSTM 4), for each cell:

    ours       W_x (D, G·H)           W_h (H, G·H)               b (G·H,)    LSTM i f g o    GRU r z n, b_hn (H,)
    PyTorch    weight_ih (G·H, D)     weight_hh (G·H, H)         bias_ih, bias_hh (G·H,)     gates as ours
    Keras 3    kernel (D, G·H)        recurrent_kernel (H, G·H)  bias (G·H,)   LSTM i f c o    GRU z r h
    TF 1       kernel (D+H, G·H), inputs over units              bias (G·H,)   LSTM i j f o    GRU r u, candidate apart

PyTorch adds its two biases, so ours is their sum; the GRU's in gate n are apart, b and b_hn, for its reset stands
between them. Keras's GRU with reset_after=True has a bias (2, 3H) of the same meaning, with False it is ours of
reset="before", as is TensorFlow 1's GRUCell. Its BasicLSTMCell adds a forget bias when it runs; ours is in b.
Ours go out and come back to the bit. What comes in is cast to the dtype of the layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .backend import is_array, library_of, to_backend, to_numpy
from .cells import GRUCell, LSTMCell, RNNCell
from .layers import Embedding, Linear
from .module import Module
from .parameters import assign

Arrays = dict[str, np.ndarray]
Shapes = dict[str, tuple[int, ...]]
LIBRARIES = {"torch": "PyTorch", "keras": "Keras", "tf1": "TensorFlow 1"}

GATES: dict[str, int] = {"RNN": 1, "LSTM": 4, "GRU": 3, "GRU of reset='before'": 3}
CELLS: dict[type, str] = {RNNCell: "RNN", LSTMCell: "LSTM", GRUCell: "GRU"}


def cells_of(layer: Module) -> tuple[list[Any], bool]:
    """The cells of a layer, or the one layer; and whether it numbers them."""
    if isinstance(layer, Linear | Embedding | RNNCell | LSTMCell | GRUCell):
        return [layer], False
    cells = list(getattr(layer, "cells", ()))
    known = all(isinstance(cell, RNNCell | LSTMCell | GRUCell) for cell in cells)
    if not known or len({_kind(cell) for cell in cells}) != 1:  # none, or of several kinds
        raise TypeError(
            "weights of other libraries go into one RNN, LSTM, GRU, one of their cells, Linear or Embedding; found "
            f"{type(layer).__name__}. Take the layers of a Sequential or the cells of a stack one at a time: model[0]"
        )
    return cells, True


def _kind(cell: Any) -> str:
    return "GRU of reset='before'" if getattr(cell, "reset", None) == "before" else CELLS[type(cell)]


def shapes_of(library: str, cell: Any) -> Shapes:
    """By name, the shapes that `library` keeps for this cell or layer."""
    if isinstance(cell, Embedding):
        return {"embeddings" if library == "keras" else "weight": cell.W.shape}
    if isinstance(cell, Linear):
        D, V = cell.W.shape
        bias: Shapes = {"bias": (V,)} if hasattr(cell, "b") else {}
        return {"weight": (V, D), **bias} if library == "torch" else {"kernel": (D, V), **bias}
    shapes = _cell_shapes(library, _kind(cell), cell.D, cell.H)
    if not shapes:
        needed = {"torch": "after", "tf1": "before"}[library]
        raise ValueError(f"the GRU of {LIBRARIES[library]} needs reset={needed!r}; this one has reset={cell.reset!r}")
    return shapes


def _cell_shapes(library: str, kind: str, D: int, H: int) -> Shapes:
    """The table of this file's head; empty where the library has no such cell."""
    GH, before = GATES[kind] * H, kind.endswith("'before'")
    if library == "torch":
        return {} if before else {"weight_ih": (GH, D), "weight_hh": (GH, H), "bias_ih": (GH,), "bias_hh": (GH,)}
    if library == "keras":
        return {"kernel": (D, GH), "recurrent_kernel": (H, GH), "bias": (2, GH) if kind == "GRU" else (GH,)}
    if kind == "GRU":
        return {}
    if not before:
        return {"kernel": (D + H, GH), "bias": (GH,)}
    gates: Shapes = {"gates/kernel": (D + H, 2 * H), "gates/bias": (2 * H,)}
    return {**gates, "candidate/kernel": (D + H, H), "candidate/bias": (H,)}


def _looks_like(library: str, cell: Any, name: str, shape: tuple[int, ...]) -> str:
    """What an array of a wrong shape may be instead."""
    if not hasattr(cell, "H"):
        return "; it looks transposed" if shape[::-1] == cell.W.shape != shape else ""
    D, H, own = cell.D, cell.H, _kind(cell)
    every = [
        (lib, kind, its, expected)
        for kind in (own, *GATES)
        for lib in LIBRARIES
        for its, expected in _cell_shapes(lib, kind, D, H).items()
    ]
    # The same array of another cell is likelier than one of another library.
    for lib, kind, its, expected in sorted(every, key=lambda one: (one[0], one[2]) != (library, name)):
        if expected == shape:
            article = "a" if kind.startswith("GRU") else "an"
            return f"; that is the shape of {LIBRARIES[lib]}'s {its} of {article} {kind}"
    for size in range(1, max(shape, default=0) + 1):
        for D2, H2 in ((size, H), (D, size)):
            if _cell_shapes(library, own, D2, H2)[name] == shape:
                return f"; it would fit D = {D2}, H = {H2}"
    return ""


# --- one cell --------------------------------------------------------------------------------------------------


def take(library: str, layer: Module, given: list[dict[str, Any]], forget_bias: float = 0.0) -> None:
    """Check the arrays of every cell, convert them, then assign them all."""
    cells, lines = cells_of(layer)[0], []
    theirs = [{name: _host(x) for name, x in one.items()} for one in given]
    for i, (cell, one) in enumerate(zip(cells, theirs)):
        where, shapes = f" of layer {i}" if len(cells) > 1 else "", shapes_of(library, cell)
        biases = {name: np.zeros(shape) for name, shape in shapes.items() if "bias" in name}
        if not biases.keys() & one.keys():
            one |= biases
        for name, shape in shapes.items():
            if name not in one:
                lines.append(f"{name}{where} is missing, {shape}")
            elif one[name].shape != shape:
                hint = _looks_like(library, cell, name, one[name].shape)
                lines.append(f"{name}{where} is {shape} in {LIBRARIES[library]}, found {one[name].shape}{hint}")
            elif one[name].dtype.kind != "f":
                lines.append(f"{name}{where} must be of floats, found {one[name].dtype}")
        first = next(j for j, other in enumerate(cells) if other is cell)
        if not lines and any((one[name] != theirs[first][name]).any() for name in shapes):
            lines.append(f"layers {first} and {i} are one cell, used twice, and these weights differ between them")
    if lines:
        raise ValueError("\n  ".join([f"these weights do not fit this {type(layer).__name__}:", *lines]))
    for cell, one in zip(cells, theirs):
        parameters = dict(cell.named_parameters())
        for name, value in _ours(library, cell, one, forget_bias).items():
            p = parameters[name]
            assign(p, to_backend(value.astype(p.dtype), library_of(p.value)))


def _host(x: Any) -> np.ndarray:
    """A NumPy array of an array of any library: PyTorch's tensors, TensorFlow's and Keras's variables."""
    if is_array(x) or isinstance(x, list | tuple):
        return to_numpy(x)
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        x = x.float() if "bfloat16" in str(x.dtype) else x  # NumPy has no such type
    return np.asarray(x.numpy() if hasattr(x, "numpy") else x)


def give(library: str, cell: Any, forget_bias: float = 0.0) -> Arrays:
    """The arrays of one cell or layer as `library` keeps them: copies, C-contiguous, on the host."""
    ours = {name: to_numpy(p) for name, p in cell.named_parameters()}
    shapes = shapes_of(library, cell)  # refuses what the library does not have
    return {name: np.array(x, order="C") for name, x in zip(shapes, _theirs(library, cell, ours, forget_bias))}


def _reordered(cell: Any, library: str) -> Callable[[np.ndarray], np.ndarray]:
    """The blocks of gates in the order of the other library; twice is once back."""
    orders = {("LSTM", "tf1"): (0, 2, 1, 3), ("GRU", "keras"): (1, 0, 2)}
    order = orders.get((CELLS[type(cell)], library))
    H = cell.H
    return lambda a: a if order is None else np.concatenate([a[..., i * H : (i + 1) * H] for i in order], axis=-1)


def _theirs(library: str, cell: Any, ours: Arrays, forget_bias: float) -> list[np.ndarray]:
    """In the order of the names in shapes_of."""
    if isinstance(cell, Linear | Embedding):
        W, *rest = ours.values()
        return [W.T if library == "torch" and isinstance(cell, Linear) else W, *rest]
    W_x, W_h, b, H = ours["W_x"], ours["W_h"], ours["b"], cell.H
    # −0 and not 0: b + (−0) is b for every b, −0 included.
    b_h = np.full_like(b, -0.0)
    if "b_hn" in ours:
        b_h[2 * H :] = ours["b_hn"]
    order = _reordered(cell, library)
    if library == "torch":
        return [W_x.T, W_h.T, b, b_h]
    if library == "keras":
        return [order(W_x), order(W_h), np.stack([order(b), order(b_h)]) if "b_hn" in ours else order(b)]
    K = np.concatenate([W_x, W_h])
    if isinstance(cell, GRUCell):
        return [K[:, : 2 * H], b[: 2 * H], K[:, 2 * H :], b[2 * H :]]
    if isinstance(cell, LSTMCell):
        b = b.copy()
        cell.by_gate(b)["f"][:] -= forget_bias
    return [order(K), order(b)]


def _ours(library: str, cell: Any, theirs: Arrays, forget_bias: float) -> Arrays:
    """By our names."""
    if isinstance(cell, Linear | Embedding):
        W, *rest = [theirs[name] for name in shapes_of(library, cell)]
        return dict(zip("Wb", [W.T if library == "torch" and isinstance(cell, Linear) else W, *rest]))
    H, order = cell.H, _reordered(cell, library)
    if library == "tf1":
        if isinstance(cell, GRUCell):
            K = np.concatenate([theirs["gates/kernel"], theirs["candidate/kernel"]], axis=1)
            b = np.concatenate([theirs["gates/bias"], theirs["candidate/bias"]])
        else:
            K, b = order(theirs["kernel"]), np.array(order(theirs["bias"]))
        if isinstance(cell, LSTMCell):
            cell.by_gate(b)["f"][:] += forget_bias
        return {"W_x": K[: cell.D], "W_h": K[cell.D :], "b": b}
    if library == "torch":
        W_x, W_h = theirs["weight_ih"].T, theirs["weight_hh"].T
        b, b_h = theirs["bias_ih"], theirs["bias_hh"]
    else:
        W_x, W_h = order(theirs["kernel"]), order(theirs["recurrent_kernel"])
        b, b_h = order(theirs["bias"]), np.full(cell.W_x.shape[1], -0.0)
        if b.ndim == 2:
            b, b_h = b
    if hasattr(cell, "b_hn"):
        return {"W_x": W_x, "W_h": W_h, "b": np.append((b + b_h)[: 2 * H], b[2 * H :]), "b_hn": b_h[2 * H :]}
    return {"W_x": W_x, "W_h": W_h, "b": b + b_h}
