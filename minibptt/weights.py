"""A model's weights by gate, in the layouts of other libraries, and as safetensors. Read after layouts.py.

`split_gates(layer)` shows every gate's W_x, W_h and b. `from_torch`, `from_keras` and `from_tf1` give a layer the
weights of another library's, `to_torch`, `to_keras` and `to_tf1` give them back; layouts.py has the table.
Arrays may be NumPy's or CuPy's, tensors of PyTorch, or variables that have `.numpy()`; none of these is imported.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .archive import CheckpointError, replacing
from .backend import Array, library_of, to_backend, to_numpy
from .cells import Cell
from .layouts import Arrays, cells_of, give, shapes_of, take
from .module import Module, check_model, check_number, check_path
from .parameters import assign
from .saving import misfits


def split_gates(layer: Module, gradients: Mapping[str, Array] | None = None) -> dict[str, Any]:
    """gate → parameter → its columns of that gate, as views: `split_gates(lstm)["f"]["b"]` is (H,).

    For several cells, a layer with layers=2 or a Sequential, cell → gate → parameter, cells named by their path ("0",
    "1.0"). gradients: show these instead, as `tape.gradient(loss, layer)` gives them. ValueError where nothing in the
    layer has gates, and for gradients of other parameters.
    """
    if isinstance(layer, type) or not isinstance(layer, Module):
        check_model(layer)
    if gradients is not None:
        _check_gradients(layer, gradients)
    names = {id(p): name for name, p in layer.named_parameters()}
    places = list(names)
    cells: list[tuple[int, str, dict[str, dict[str, Array]]]] = []
    for cell in layer.modules():
        if not isinstance(cell, Cell) or not cell.gates:
            continue
        gates: dict[str, dict[str, Array]] = {gate: {} for gate in cell.gates}
        path, first = "", len(places)
        for local, p in cell.named_parameters():
            full = names[id(p)]
            path, first = full.removesuffix(local).rstrip("."), min(first, places.index(id(p)))
            for gate, columns in cell.gate_columns(local).items():
                gates[gate][local] = (p.value if gradients is None else gradients[full])[..., columns]
        cells.append((first, path, gates))
    if not cells:
        raise ValueError(f"split_gates: {type(layer).__name__} has no gates")
    found = {path: gates for _, path, gates in sorted(cells, key=lambda one: one[0])}
    return next(iter(found.values())) if len(found) == 1 else found


def _check_gradients(layer: Module, gradients: Any) -> None:
    """That there is a gradient for each parameter, of its shape."""
    asked = "split_gates takes gradients as tape.gradient(loss, layer) gives them, parameter name → array"
    if not isinstance(gradients, Mapping):
        raise TypeError(f"{asked}; found {type(gradients).__name__}")
    for name, p in layer.named_parameters():
        if name not in gradients:
            raise ValueError(
                f"{asked}; there is none for {name!r}, only for {', '.join(map(str, gradients)) or 'none'}"
            )
        shape = getattr(gradients[name], "shape", ())
        if shape != p.shape:
            raise ValueError(f"{asked}; {name!r} has shape {p.shape}, its gradient {shape}")


# --- other libraries -------------------------------------------------------------------------------------------


def from_torch(layer: Module, state_dict: Mapping[str, Any], prefix: str = "") -> None:
    """Give `layer` the weights of a PyTorch module: RNN, LSTM, GRU or their cells, Linear, Embedding.

    state_dict: name → array or tensor; with a prefix ("lstm.") only the names that start with it. Without biases
    (bias=False) ours become 0. ValueError for names or shapes that do not fit, all of them, and for a GRU with
    reset="before", which PyTorch does not have; then nothing was changed.
    """
    if not isinstance(state_dict, Mapping):
        raise TypeError(
            f"from_torch takes name → array, as module.state_dict() gives it, found {type(state_dict).__name__}"
        )
    given = {name.removeprefix(prefix): x for name, x in state_dict.items() if name.startswith(prefix)}
    cells, several = cells_of(layer)
    suffix = "_l{}" if several or "weight_ih_l0" in given else ""
    names = [{name: name + suffix.format(i) for name in shapes_of("torch", cell)} for i, cell in enumerate(cells)]
    extra = sorted(given.keys() - {name for one in names for name in one.values()})
    if extra:
        of_another_kind = any("_reverse" in name or "weight_hr" in name for name in extra)
        hint = "give prefix= where they belong to other layers"
        if of_another_kind:
            hint = "bidirectional and projected layers do not exist here"
        raise ValueError(f"from_torch: no place in this {type(layer).__name__} for {', '.join(extra)} ({hint})")
    take("torch", layer, [{name: given[full] for name, full in one.items() if full in given} for one in names])


def to_torch(layer: Module, prefix: str = "") -> Arrays:
    """The weights of `layer` under PyTorch's names: `{k: torch.from_numpy(v) …}` is a state_dict.

    Our one bias goes into bias_ih, and bias_hh is 0 but for the GRU's b_hn. ValueError for a GRU with reset="before".
    """
    cells, several = cells_of(layer)
    suffix = "_l{}" if several else ""
    return {prefix + k + suffix.format(i): v for i, c in enumerate(cells) for k, v in give("torch", c).items()}


def from_keras(layer: Module, arrays: Mapping[str, Any] | Sequence[Any]) -> None:
    """Give `layer` the weights of Keras's SimpleRNN, LSTM, GRU, Dense or Embedding.

    arrays: what `get_weights()` lists (for several layers, one list after the other), or a dict by name ("kernel",
    "recurrent_kernel", "bias") for one layer. The activations are not in there: Keras 3's defaults are ours;
    before TensorFlow 2 its gates were hard_sigmoid. ValueError for shapes that do not fit; then nothing was changed.
    """
    if not isinstance(arrays, Mapping | list | tuple):
        raise TypeError(f"from_keras takes the list that layer.get_weights() gives, found {type(arrays).__name__}")
    cells, _ = cells_of(layer)
    names = list(shapes_of("keras", cells[0]))
    if isinstance(arrays, Mapping):
        if len(cells) > 1:
            raise ValueError(f"from_keras: for {len(cells)} layers give a list, one get_weights() after the other")
        given = [dict(arrays)]
        if extra := sorted(given[0].keys() - set(names)):
            raise ValueError(f"from_keras: no place for {', '.join(extra)}; expected {', '.join(names)}")
    else:
        if "bias" in names and len(arrays) == (len(names) - 1) * len(cells):
            names.remove("bias")  # use_bias=False
        if len(arrays) != len(names) * len(cells):
            raise ValueError(
                f"from_keras: {type(layer).__name__} takes {len(names) * len(cells)} arrays ({', '.join(names)}"
                f"{f', for each of {len(cells)} layers' if len(cells) > 1 else ''}), found {len(arrays)}"
            )
        given = [dict(zip(names, arrays[i:])) for i in range(0, len(arrays), len(names))]
    take("keras", layer, given)


def to_keras(layer: Module) -> list[np.ndarray]:
    """The weights of `layer` in the order of Keras's `set_weights()`; for several layers one list after the other.

    A GRU with reset="after" fits reset_after=True, one with "before" reset_after=False.
    """
    return [array for cell in cells_of(layer)[0] for array in give("keras", cell).values()]


def from_tf1(layer: Module, arrays: Mapping[str, Any], prefix: str = "", forget_bias: float = 1.0) -> None:
    """Give `layer` the weights of TensorFlow 1's BasicRNNCell, BasicLSTMCell, GRUCell (or of a dense layer).

    arrays: name → array; a name counts by its end ("kernel", "gates/kernel") and may start with `prefix`, and that of
    a cell in several must hold "cell_0/", "cell_1/", … forget_bias: what the LSTM was run with. ValueError for names or
    shapes that do not fit and for a GRU with reset="after"; then nothing was changed.
    """
    check_number("from_tf1: forget_bias", forget_bias, -math.inf, above=True)
    cells, _ = cells_of(layer)
    given, lines = [], []
    for i, cell in enumerate(cells):
        theirs: dict[str, Any] = {}
        for name in shapes_of("tf1", cell):
            found = [
                full
                for full in arrays
                if full.startswith(prefix)
                and f"/{full.removesuffix(':0')}".endswith(f"/{name}")
                and (len(cells) == 1 or f"/cell_{i}/" in f"/{full}")
            ]
            if len(found) > 1:
                lines.append(f"{name} may be any of {', '.join(found)}: give prefix=")
            if found:
                theirs[name] = arrays[found[0]]
        given.append(theirs)
    if lines:
        raise ValueError("from_tf1: " + "; ".join(lines))
    take("tf1", layer, given, forget_bias)


def to_tf1(layer: Module, forget_bias: float = 1.0) -> Arrays:
    """The weights of `layer` under TensorFlow 1's names; those of several layers start with "cell_0/", …

    forget_bias: what the LSTM will be run with; it is subtracted here. Where that rounds, at a forget gate's bias
    outside ½ … 2, ours comes back to the bit only with forget_bias=0.
    """
    check_number("to_tf1: forget_bias", forget_bias, -math.inf, above=True)
    cells, _ = cells_of(layer)
    at = [f"cell_{i}/" if len(cells) > 1 else "" for i in range(len(cells))]
    return {i + name: array for i, c in zip(at, cells) for name, array in give("tf1", c, forget_bias).items()}


# --- safetensors -----------------------------------------------------------------------------------------------


def save_safetensors(path: str | os.PathLike[str], weights: Module | Mapping[str, Any]) -> None:
    """Write the weights of a module by name, or arrays by name such as `to_torch(layer)`, as a .safetensors file.

    The file appears in one step. CheckpointError where the package safetensors is missing, and where the file cannot
    be written.
    """
    check_path("save_safetensors: the path", path)
    package = _safetensors("save_safetensors")
    arrays = weights.parameters() if isinstance(weights, Module) else weights
    # It writes a buffer as it lies in memory, so a transposed view would be stored wrong.
    data = package.save({name: np.asarray(to_numpy(x), order="C") for name, x in arrays.items()})
    with replacing(path) as file:
        file.write(data)


def load_safetensors(path: str | os.PathLike[str], model: Module | None = None) -> dict[str, np.ndarray]:
    """The arrays of a .safetensors file by name; with a model they are its weights from then on.

    CheckpointError where the package is missing, the file cannot be read or the arrays do not fit the model, listing
    all that is missing, unexpected, or of another shape or type; then the model is as it was.
    """
    check_path("load_safetensors: the path", path)
    package = _safetensors("load_safetensors")
    try:
        with open(path, "rb") as file:
            arrays = package.load(file.read())
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None
    except Exception as error:  # the package's own errors, and NumPy's for types that it does not have
        raise CheckpointError(
            f"{path} is damaged, or no .safetensors file that NumPy can hold ({type(error).__name__}: {error})"
        ) from error
    if model is not None:
        parameters = model.parameters()
        if lines := misfits("", arrays, {name: p.value for name, p in parameters.items()}):
            raise CheckpointError("\n  ".join([f"{path} does not fit; nothing was changed:", *lines]))
        for name, p in parameters.items():
            assign(p, to_backend(arrays[name], library_of(p.value)))
    return arrays


def _safetensors(what: str) -> Any:
    try:
        import safetensors.numpy
    except ImportError:
        raise CheckpointError(
            f"{what} needs the package safetensors: pip install 'minibptt[safetensors]', or use mb.save and mb.load"
        ) from None
    return safetensors.numpy
