"""The state that a model carries from step to step: where it belongs, whether it fits, reset. Read after cells/base.py.

A state is a tensor, or any nesting of tuples, lists and dicts of them: (h, c) for an LSTM cell, a tuple with one entry
for each layer in a model. It is carried on with `cut`, and given up with `reset`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from . import backend, ops
from .backend import (
    BackendError,
    current_library,
    host_array,
    is_array,
    library_named,
    library_of,
    name_of,
    use_backend,
)
from .cells.base import Cell
from .listing import counted
from .module import first_array
from .nest import leaves, map_nest, rebuild
from .tape import cut, open_tape
from .tensor import Tensor, moved, tensors

# --- where a layer stands ----------------------------------------------------------------------------------------


class _Place(threading.local):
    path = ""  # of the layer that runs in this thread, as parameters are named: "1.0"


_place = _Place()


@contextmanager
def in_layer(name: str | int, first: int | None = None, last: int | None = None, alone: bool = False) -> Iterator[None]:
    """Records and errors inside belong to the layer `name` of the layer outside, and to the steps first to last.

    alone: the layer is the only one where it stands, and the tape leaves its name out.
    """
    before, tape = _place.path, open_tape()
    _place.path = f"{before}.{name}" if before else str(name)
    layer = None if alone or tape is None else f"{tape.layer}.{name}" if tape.layer else str(name)
    try:
        with nullcontext() if tape is None else tape.at(first, last, layer=layer):
            yield
    finally:
        _place.path = before


def who(cell: Any, method: str = "") -> str:
    """The cell as errors name it: "layer 1.0 (LSTMCell)", or "LSTMCell" where it is no layer of anything."""
    name = type(cell).__name__ + method
    return f"layer {_place.path} ({name})" if _place.path else name


# --- a state to start from ---------------------------------------------------------------------------------------


def zero_state(model: Any, batch: int) -> Any:
    """The zero state of a layer, made in the library of its parameters, whatever the current backend is."""
    home = first_array(model, None)
    with nullcontext() if home is None else use_backend(library_of(home)):
        return model.zero_state(batch)


def entries(model: Any, state: Any, n: int, expected: str) -> list[Any]:
    """The entries of a state that has one for each of n layers; None for each where there is no state.

    expected: what a state must be, for the ValueError where it is something else.
    """
    if state is None:
        return [None] * n
    if not isinstance(state, list | tuple) or len(state) != n:
        found = counted(len(state), "entry", "entries") if isinstance(state, list | tuple) else type(state).__name__
        raise ValueError(f"the state of {who(model)} is {expected}; found {found}")
    return list(state)


def initial(cell: Any, state: Any, B: int, xp: Any, needs_zero: bool) -> tuple[Any, Any]:
    """(the state to start from, the zero state or None), every part checked: ValueError, TypeError, BackendError."""
    if hasattr(cell, "entries"):  # a stack: each of its layers for itself
        pairs = []
        for name, layer, entry in cell.entries(state):
            with in_layer(name):
                pairs.append(initial(layer, entry, B, xp, needs_zero))
        zeros = tuple([zero for _, zero in pairs])
        return tuple([start for start, _ in pairs]), None if any(zero is None for zero in zeros) else zeros
    with use_backend(xp):
        has_zero = state is None or needs_zero or type(cell).zero_state is not Cell.zero_state
        zero = tensors(cell.zero_state(B)) if has_zero else None
    if state is None:
        return zero, zero
    state = as_state(f"the initial state of {who(cell)}", state)
    found = list(leaves(state))
    expected = found if zero is None else list(leaves(zero))
    if len(found) != len(expected):
        raise ValueError(f"the state of {who(cell)} has {counted(len(expected), 'part')}, found one with {len(found)}")
    if [path for path, _ in found] != [path for path, _ in expected]:
        raise ValueError(
            f"the state of {who(cell)} has the form {parts_in_words([path for path, _ in expected])}, found one "
            f"with {parts_in_words([path for path, _ in found])}"
        )
    weights = first_array(cell, None)
    for name, (_, h), (_, z) in zip(cell.names_of(state), found, expected):
        what = f"the initial state {name!r} of {who(cell)}"
        if library_of(h.value) is not xp:
            there = name_of(library_of(h.value))
            raise BackendError(
                f"{what} is a {there} array and must be a {name_of(xp)} one, like the weights. Start from "
                f"zero_state(batch), or move it with mb.to_backend(h, {name_of(xp)!r})"
            )
        if zero is not None and not z.weak:
            dtype = z.dtype
        else:
            dtype = None if weights is None else weights.dtype
        if not h.weak and dtype is not None and _precision(h.dtype) != _precision(dtype):
            raise TypeError(
                f"{what} is {h.dtype} and must be {dtype}, like the weights: two tensors of different float types do "
                "not mix. A state given as an array adapts"
            )
        if zero is not None and not _broadcasts(h.shape, z.shape):
            raise ValueError(
                f"{what} has shape {h.shape}; for a batch of {counted(B, 'row')} it must be {z.shape}, or broadcast "
                "to it"
            )
    return state, zero


def as_state(what: str, state: Any) -> Any:
    """`state` with its leaves as tensors. what: its name in the TypeError where something in it is no array."""
    try:
        return tensors(state)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"{what} must be a tensor, or a tuple, list or dict of them, as zero_state(batch) gives it: {error}"
        ) from None


def _precision(dtype: Any) -> np.dtype:
    """The float type of a real or complex type: the two mix, which the complex step needs."""
    return np.zeros(0, dtype).real.dtype


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, to) == to
    except ValueError:
        return False


def parts_in_words(paths: list[str]) -> str:
    return ", ".join(f"part {path}" if path else "(one tensor)" for path in paths) or "(none)"


# --- row by row --------------------------------------------------------------------------------------------------


def over_rows(flags: Any, like: Tensor) -> Any:
    """(B,) flags in a shape that broadcasts over the rows of `like` (B, …)."""
    return flags.reshape(-1, *[1] * (like.ndim - 1))


def choose(flags: Any, yes: Any, no: Any, layers: list[str | None]) -> Any:
    """For each row the state `yes` where its flag is set, else `no`, in every part of the state.

    layers: where on the tape each part belongs, `Cell.layers_of(state)`.
    """
    new = []
    for layer, (_, a), (_, b) in zip(layers, leaves(yes), leaves(no), strict=True):
        with nullcontext() if layer is None else in_layer(layer):
            new.append(ops.where(over_rows(flags, a if a.ndim else b), a, b))
    return rebuild(no, new)


def cut_by_layer(state: Any, layers: list[str | None]) -> Any:
    """`cut`, each part in its own layer."""
    new = []
    for layer, (_, h) in zip(layers, leaves(state), strict=True):
        with nullcontext() if layer is None else in_layer(layer):
            new.append(cut(h))
    return rebuild(state, new)


def to_backend(x: Any, name: Any = None) -> Any:
    """The values of x in the backend `name` (default: the current one): `state = mb.to_backend(state, "cupy")`.

    x: a tensor, array or number, of which an array comes back; or a nesting of tuples, lists and dicts with tensors or
    arrays in it, such as the state of a model, of which the same nesting comes back, its tensors without a past.
    What is there already is not copied.
    """
    nested = isinstance(x, list | tuple | dict)
    if not nested or not any(isinstance(leaf, Tensor) or is_array(leaf) for _, leaf in leaves(x)):
        return backend.to_backend(x, name)
    library = current_library() if name is None else library_named(name)
    return map_nest(lambda h: moved(h, library) if isinstance(h, Tensor) else backend.to_backend(h, library), x)


def reset(state: Any, rows: Any = None) -> Any:
    """The state with zeros in some rows, or in all: neither their values nor their gradients come from before.

    state: a tensor (B, …), or any nesting of tuples, lists and dicts of them; the same form comes back, of new tensors.
    rows: a list of row numbers from 0, or booleans (B,); None for all. It is no cut: on an open tape the other rows
    keep their past (`cut` takes it away), and no `through_cuts` mends what a reset has parted. It sets zeros even where
    `zero_state` is something else: inside a sequence, `resets=` goes back to that.
    ValueError for rows that are not there and for states of different numbers of rows.
    """
    state = as_state("reset: the state", state)
    if rows is None:
        return map_nest(lambda h: Tensor(library_of(h.value).zeros_like(h.value), h.name, h.weak), state)
    sizes = {h.shape[0] if h.ndim else 0 for _, h in leaves(state)}
    if len(sizes) > 1 or 0 in sizes:
        found = ", ".join(f"{path or 'it'} {h.shape}" for path, h in leaves(state))
        raise ValueError(f"reset: to reset some rows, all parts of the state must be (B, …) with one B; found {found}")
    flags = _flags_of_rows(rows, sizes.pop()) if sizes else None

    def without(h: Tensor) -> Tensor:
        new = ops.where(library_of(h.value).asarray(over_rows(flags, h)), 0, h)
        new.name = h.name
        return new

    return map_nest(without, state)


def _flags_of_rows(rows: Any, B: int) -> np.ndarray:
    rows = host_array("reset: rows", rows)
    if rows.dtype.kind == "b":
        if rows.shape != (B,):
            raise ValueError(f"reset: booleans for {counted(B, 'row')} must have shape {(B,)}, found {rows.shape}")
        return rows
    if rows.ndim > 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise TypeError(f"reset: rows must be row numbers or booleans (B,), found {rows.dtype} of shape {rows.shape}")
    wrong = [int(row) for row in rows.flat if not 0 <= row < B]
    if wrong:
        raise ValueError(f"reset: there is no row {wrong[0]}; rows are numbered 0 to {B - 1}")
    flags = np.zeros(B, bool)
    flags[rows.astype(int)] = True
    return flags
