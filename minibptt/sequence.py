"""A cell over time: unroll, lengths, masks, resets, and where the cuts fall. Read after states.py.

Time comes first: x is (T, B, …). `lengths` (B,), `mask` (T, B) and `resets` (T, B) are host arrays and separate
words for separate things. A padded step passes the state through, outputs exactly 0 and contributes exactly
0 to every gradient. `resets[t, b]` starts row b from the zero state before step t, padded or not.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np

from . import ops
from .backend import as_array, host_array, library_of
from .cells.base import Cell
from .listing import counted
from .module import Module, check_size, first_array
from .nest import leaves
from .passes import run_explicitly
from .states import choose, cut_by_layer, in_layer, initial, over_rows, parts_in_words, who
from .tape import open_tape
from .tensor import Tensor

ENGINES = ("tape", "explicit")


def unroll(
    cell: Cell,
    x: Any,
    state: Any = None,
    *,
    lengths: Any = None,
    mask: Any = None,
    resets: Any = None,
    cut_every: int | None = None,
    engine: str = "tape",
) -> tuple[Tensor, Any]:
    """Take `cell` over the sequence x: (outputs (T, B, …), state after the last step).

    x: (T, B, …), an array, or a tensor where its gradient is wanted. state: the state before the first step
    (default: the cell's zero state). lengths: (B,) whole numbers, 0 to T. mask: (T, B), true at real steps.
    resets: (T, B). cut_every: cut the state before every so many steps (step k + 1, 2k + 1, …). engine: "tape"
    records every operation of `cell.step`; "explicit" records the sequence as one entry, by the passes that the
    built-in cells derive by hand (in a Stack one entry for each layer): the same numbers, to rounding.
    ValueError for T = 0 and for shapes that do not fit, which it names; TypeError for a cell whose `step` does not
    return (output, next state), and for one without explicit passes where they are asked for.
    """
    if not isinstance(cell, Cell):
        found, hint = type(cell).__name__, "make it a subclass of minibptt.Cell"
        if isinstance(cell, type):
            found, hint = f"the class {cell.__name__}", "call it, to make a cell of it"
        if isinstance(cell, Module):
            hint = "call it: model(x)"
        raise TypeError(f"unroll takes a cell; {found} is none: {hint}")
    x = sequence_input(x)
    known = hasattr(cell, "forward") or hasattr(cell, "entries")  # the built-in cells, and stacks of them
    D = getattr(cell, "D", None) if known else None
    if D is not None and (x.ndim != 3 or x.shape[2] != D):
        hint = ". One row is x[:, None]" if x.ndim == 2 and x.shape[1] == D else ""
        raise ValueError(f"{who(cell)} takes sequences (T, B, D = {D}), time first; found shape {x.shape}{hint}")
    T, B = x.shape[:2]
    real = real_steps(T, B, lengths, mask)
    resets = flags("resets", resets, T, B)
    if cut_every is not None:
        check_size("unroll", cut_every=cut_every)
    home = first_array(cell, getattr(x, "value", x))
    xp = library_of(home)
    if real is not None:
        x = fill_padding(x, real)
    if not isinstance(x, Tensor) and x.dtype.kind == "f" and home.dtype.kind == "f":
        x = x.astype(home.dtype, copy=False)
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(map(repr, ENGINES))}, found {engine!r}")
    if engine == "explicit" and hasattr(cell, "by_layer"):
        return cell.by_layer(x, state, engine, mask=real, resets=resets, cut_every=cut_every)
    state, zero = initial(cell, state, B, xp, resets is not None)
    if engine == "explicit":
        return run_explicitly(cell, x, state, real, resets, cut_every)
    return _step_by_step(cell, x, (state, zero), (real, resets), cut_every, xp)


def _step_by_step(
    cell: Cell, x: Any, states: tuple[Any, Any], marks: tuple[Any, Any], cut_every: int | None, xp: Any
) -> tuple[Tensor, Any]:
    """`unroll` on the tape. states: the one to start from and the zero state; marks: real and resets."""
    (state, zero), (real, resets) = states, marks
    here: list[Any] = [None if f is None else xp.asarray(f) for f in marks]  # copied to the device once
    real_here, resets_here = here
    names, layers, form = cell.names_of(state), cell.layers_of(state), [path for path, _ in leaves(state)]
    shapes = [None] * len(form) if zero is None else [z.shape for _, z in leaves(zero)]
    tape = open_tape()
    steps = ops.unstack(x) if isinstance(x, Tensor) else x
    outputs = []
    for t in range(len(x)):
        with tape.at(t + 1) if tape else nullcontext():
            if cut_every and t and t % cut_every == 0:
                state = cut_by_layer(state, layers)
            if resets is not None and resets[t].any():
                state = choose(resets_here[t], zero, state, layers)
            first = tape.slots if tape else 0
            out, new = checked_step(cell, steps[t], state, form, shapes)
            if tape:
                tape.called(cell, steps[t], state, first, *[None if f is None else f[t] for f in marks])
            padded = real is not None and not real[t].all()
            state = choose(real_here[t], new, state, layers) if padded else new
            outputs.append(ops.where(over_rows(real_here[t], out), out, 0) if padded else out)
            if tape:
                for name, layer, (_, h), (_, kept) in zip(names, layers, leaves(new), leaves(state)):
                    with nullcontext() if layer is None else in_layer(layer):
                        rows = (kept, over_rows(real_here[t], kept)) if padded else ()
                        tape.state(name, h, *rows, resets=None if resets is None else resets[t])
    with tape.at(1, len(x)) if tape else nullcontext():
        return ops.stack(outputs), state


def run(model: Any, x: Any, state: Any = None, **options: Any) -> tuple[Tensor, Any]:
    """`model` over the sequence x, whatever it is: a cell is unrolled, a layer with a state (or a stack) is called.

    A model without a state (no `zero_state`) is called as model(x), and its state is None. options: lengths,
    mask, resets, cut_every, as for `unroll`.
    """
    if isinstance(model, Cell) and not hasattr(model, "by_layer"):
        return unroll(model, x, state, **options)
    if hasattr(model, "zero_state"):
        return model(x, state, **options)
    if any(True for _ in leaves(state)):  # (): a state without parts
        raise TypeError(f"{type(model).__name__} has no state (no zero_state), and one was given: leave state= out")
    x = sequence_input(x)
    T, B = x.shape[:2]
    real = real_steps(T, B, options.get("lengths"), options.get("mask"))
    return (model(x) if real is None else hide_padding(model(fill_padding(x, real)), real)), None


def real_steps(T: int, B: int, lengths: Any = None, mask: Any = None) -> np.ndarray | None:
    """Where the steps are real, (T, B) on the host; None where all of them are. ValueError where shapes don't fit."""
    real = flags("mask", mask, T, B)
    if lengths is not None:
        given, lengths = lengths, host_array("lengths", lengths)
        if lengths.shape != (B,) or lengths.dtype.kind not in "iu":
            raise ValueError(
                f"lengths must be {counted(B, 'whole number')}, one for each row, found {_found(given, lengths)}"
            )
        if lengths.size and not (lengths.min() >= 0 and lengths.max() <= T):
            raise ValueError(f"lengths must lie between 0 and T = {T}, found {lengths.min()} … {lengths.max()}")
        within = np.arange(T)[:, None] < lengths
        real = within if real is None else real & within
    return None if real is None or real.all() else real


def fill_padding(x: Any, real: np.ndarray) -> Any:
    """x with its padded steps replaced by a real step of their row, so that nothing in the padding is ever seen.

    A row that has no real step takes one of another row; where there is none at all, zeros.
    """
    value = getattr(x, "value", x)
    xp = library_of(value)
    if not real.any():
        return ops.where(False, x, xp.zeros_like(value)) if isinstance(x, Tensor) else xp.zeros_like(value)
    some_row = real.any(axis=0)
    row = np.where(some_row, np.arange(real.shape[1]), some_row.argmax())
    first = real.argmax(axis=0)[row]
    step = np.where(real, np.arange(len(real))[:, None], first)
    filled = value[xp.asarray(step), xp.asarray(np.broadcast_to(row, real.shape))]
    if not isinstance(x, Tensor):
        return filled
    return ops.where(_over_entries(real, x), x, filled)


def hide_padding(x: Any, real: np.ndarray) -> Tensor:
    """x (T, B, …), a tensor or an array, with exactly 0 at its padded steps, whose adjoints are 0."""
    return ops.where(_over_entries(real, x), x, 0)


def _over_entries(real: np.ndarray, x: Any) -> Any:
    """(T, B) flags in the library of x (T, B, …), in a shape that broadcasts over its last axes."""
    xp = library_of(getattr(x, "value", x))
    return xp.asarray(real.reshape(*real.shape, *[1] * (x.ndim - 2)))


def sequence_input(x: Any) -> Any:
    """x as a tensor or an array. ValueError where it is no sequence (T, B, …) with T ≥ 1 and B ≥ 1.

    TypeError for what holds no numbers.
    """
    if isinstance(x, Tensor):
        array = x
    else:
        try:
            array = as_array(x)
        except ValueError as error:
            raise ValueError(f"the sequence x: {error}, and tell the lengths") from None
    if array.dtype.kind not in "biufc":
        raise TypeError(f"the sequence x is an array or a tensor of numbers (T, B, …), found {_found(x, array)}")
    if array.ndim < 2 or array.shape[0] < 1 or array.shape[1] < 1:
        hint = ""
        if array.ndim == 1 and array.size:
            hint = f". One row of ids is {'x' if array.dtype.kind in 'iu' else 'ids'}[:, None]"
            hint += "" if array.dtype.kind in "iu" else ", one row of single numbers x[:, None, None]"
        raise ValueError(
            f"a sequence of T ≥ 1 steps and B ≥ 1 rows is (T, B, …), time first; found shape {array.shape}{hint}"
        )
    return array


def _found(given: Any, array: Any) -> str:
    """What was given in words: an array by its dtype and shape, what makes none by its type."""
    if hasattr(given, "dtype") or array.ndim:
        return f"{array.dtype} of shape {array.shape}"
    return repr(given) if isinstance(given, str | int | float | None) else f"{type(given).__name__}: make it a list"


def flags(what: str, given: Any, T: int, B: int) -> np.ndarray | None:
    """A mask or resets as booleans (T, B) on the host. ValueError for another shape and for other numbers."""
    if given is None:
        return None
    was, given = given, host_array(what, given)
    if given.shape != (T, B):
        raise ValueError(f"{what} must have shape (T, B) = {(T, B)}, found {given.shape or _found(was, given)}")
    if given.dtype.kind not in "biuf" or not np.isin(given, (0, 1)).all():
        found = next((v for v in given.flat if v not in (0, 1)), None)
        raise ValueError(f"{what} must hold true and false (or 1 and 0), found {found!r} ({given.dtype})")
    return given.astype(bool)


def checked_step(cell: Cell, x: Any, state: Any, form: list[str], shapes: list[Any]) -> tuple[Tensor, Any]:
    """`cell.step`, and that it returns (output, next state). form, shapes: of the parts of the state; None: unknown."""
    result = cell.step(x, state)
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[0], Tensor):
        raise TypeError(
            f"{who(cell, '.step')} must return (output, next state), the output being a tensor; it returned "
            f"{type(result).__name__}"
        )
    found = list(leaves(result[1]))
    if [path for path, _ in found] != form:
        raise TypeError(
            f"{who(cell, '.step')} must return a state of the form that it was given, with the parts "
            f"{parts_in_words(form)}; it returned {parts_in_words([path for path, _ in found])}"
        )
    for (path, part), shape in zip(found, shapes):
        if isinstance(part, Tensor) and shape is not None and part.shape != shape:
            raise ValueError(
                f"{who(cell, '.step')} must keep the shape of its state: part {path or '(the whole)'} is "
                f"{part.shape} after the step, and {shape} in zero_state"
            )
        if not isinstance(part, Tensor):
            raise TypeError(
                f"{who(cell, '.step')} must return a state of tensors; part {path or '(the whole)'} is "
                f"{type(part).__name__}"
            )
    return result
