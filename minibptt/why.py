"""Why an operation cannot take what it was given: what was found, what was expected, what to do. Read after tensor.py.

An array library says it in words of its own, which name neither. These functions are asked only after an operation has
failed, so that the good case costs nothing; each looks at the inputs again and answers in words, or None where it finds
nothing wrong.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from .backend import RAGGED, is_array, to_numpy
from .listing import counted

Shape = tuple[int, ...]
ELEMENTWISE = frozenset(("add", "subtract", "multiply", "divide", "power", "maximum", "minimum"))
_WHOLE = (int, np.integer)


def why(name: str, values: Sequence[Any], static: dict[str, Any]) -> str | None:
    """What is wrong with the inputs and the options of the operation `name`; None where nothing is known to be."""
    if name in ELEMENTWISE:
        return meeting([getattr(v, "shape", ()) for v in values])
    reason = _REASONS.get(name)
    if reason is None:
        return None
    try:
        inspect.signature(reason).bind(*values, **static)
    except TypeError:  # an option that is not known, which the operation's own error names
        return None
    try:
        return reason(*values, **static)
    except (TypeError, ValueError) as error:  # of axes_of
        return str(error)
    except (AttributeError, IndexError):  # what is looked for is not even there; the error itself must show
        return None


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """`axis` (None, a number or a tuple, negative counting from the end) as a tuple of numbers from 0."""
    axes = range(ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    for a in axes:
        if not isinstance(a, _WHOLE):
            raise TypeError(f"axis must be None, a whole number or a tuple of them, found {axis!r}")
        if not -ndim <= a < ndim:
            raise ValueError(f"axis {a} does not exist in an array of {counted(ndim, 'axis', 'axes')}")
    return tuple(sorted({a % ndim for a in axes}))


def meeting(shapes: Sequence[Shape], names: Sequence[str] = ()) -> str | None:
    """Why arrays of these shapes cannot meet element by element; None where they can."""
    for back, sizes in enumerate(zip_longest(*[shape[::-1] for shape in shapes], fillvalue=1), start=1):
        different = list(dict.fromkeys(n for n in sizes if n != 1))
        if len(different) > 1:
            whose = (
                f"{_listed(f'{name} {shape}' for name, shape in zip(names, shapes))} do" if names else "the shapes do"
            )
            return (
                f"{whose} not fit: axis −{back} has the sizes {_listed(map(str, different))}, which must be equal, or "
                "1 where an array is to be repeated. Reshape one, or look whether it is the array that was meant"
            )
    return None


def _listed(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _one_axis(axis: Any, ndim: int) -> None:
    if not isinstance(axis, _WHOLE):
        raise TypeError(f"axis must be one whole number, found {axis!r}")
    axes_of(axis, ndim)


def _where(x: Any, y: Any, *, condition: Any) -> str | None:
    condition = getattr(condition, "value", condition)
    try:
        of_condition = condition.shape if is_array(condition) else np.shape(condition)
    except ValueError:
        return f"the condition is a {RAGGED}"
    shapes = [of_condition, getattr(x, "shape", ()), getattr(y, "shape", ())]
    return meeting(shapes, ("the condition", "x", "y"))


def _matmul(a: Any, b: Any) -> str | None:
    if not is_array(a) or not is_array(b) or a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        return None  # which it says itself
    reason = meeting([a.shape[:-2], b.shape[:-2]])
    return reason and f"of these stacks of matrices, without the last two axes, {reason}"


def _stack(*xs: Any, axis: Any = 0) -> str | None:
    _one_axis(axis, xs[0].ndim + 1)
    for i, x in enumerate(xs, start=1):
        if x.shape != xs[0].shape:
            return (
                f"all must have one shape; the first has {xs[0].shape}, number {i} has {x.shape}. Reshape one; "
                "concatenate joins along an axis that is there, whose sizes may differ"
            )
    return None


def _concatenate(*xs: Any, axis: Any = 0) -> str | None:
    first = xs[0].shape
    if not first:
        return "there is no axis to join numbers along; stack makes one"
    _one_axis(axis, len(first))
    for i, x in enumerate(xs, start=1):
        found = f"the first has shape {first}, number {i} has {x.shape}"
        if x.ndim != len(first):
            return f"all must have as many axes; {found}. Reshape one, or join them with stack"
        other = [j for j, (m, n) in enumerate(zip(first, x.shape)) if m != n]
        if any(j != axis % len(first) for j in other):
            hint = f"give axis={other[0]}, or reshape one" if len(other) == 1 else "reshape one"
            return f"all sizes but that of axis {axis} must be equal; {found}: {hint}"
    return None


def _reshape(x: Any, *, shape: Any) -> str | None:
    sizes = shape if isinstance(shape, tuple | list) else (shape,)
    if not all(isinstance(n, _WHOLE) for n in sizes):
        return f"a shape is a whole number or a tuple of them, found {shape!r}"
    known = math.prod(n for n in sizes if n != -1)
    if sizes.count(-1) > 1 or min(sizes, default=0) < -1:
        return f"sizes are at least 0, and one of them may be −1, which is worked out; found {shape}"
    if -1 in sizes and not known:
        return f"beside a size of 0 there is no working out −1, for any would do: give the size; found {shape}"
    fits = known == x.size if -1 not in sizes else x.size % known == 0
    if not fits:
        needs = f"has {counted(known, 'element')}" if -1 not in sizes else f"needs a multiple of {known}"
        return f"{x.shape} has {counted(x.size, 'element')}, {shape} {needs}. Give a shape of the same size"
    return None


def _transpose(x: Any, *, axes: Any = None) -> str | None:
    if not isinstance(axes, tuple | list) or not all(isinstance(a, _WHOLE) for a in axes):
        return f"axes must be None or each of the {x.ndim} axes once, such as {tuple(range(x.ndim))}, found {axes!r}"
    return None


def _unstack(x: Any, *, axis: Any = 0) -> str | None:
    _one_axis(axis, x.ndim)
    return None


def _split(x: Any, *, pieces: Any, axis: Any = 0) -> str | None:
    _one_axis(axis, x.ndim)
    places = isinstance(pieces, tuple | list | range) or is_array(pieces)
    if not isinstance(pieces, _WHOLE) and not (places and all(isinstance(p, _WHOLE) for p in pieces)):
        return f"pieces must be how many equal ones, or a list of the places to cut at; found {pieces!r}"
    return None


def _reduced(x: Any, *, axis: Any = None, keepdims: bool = False) -> str | None:
    axes = axes_of(axis, x.ndim)
    return (
        f"axis {axis} names one axis twice: name each once"
        if isinstance(axis, tuple) and len(axes) < len(axis)
        else None
    )


def _largest(x: Any, *, axis: Any = None, keepdims: bool = False) -> str | None:
    if not math.prod(x.shape[i] for i in axes_of(axis, x.ndim)):
        along = "" if axis is None else f" along axis {axis}"
        return f"there is no largest of no elements, and shape {x.shape} has none{along}: give at least one"
    return _reduced(x, axis=axis)


def _soft(x: Any, *, axis: Any = -1, keepdims: bool = False) -> str | None:
    return _largest(x, axis=axis)


def _getitem(x: Any, *, index: Any) -> str | None:
    given = [getattr(p, "value", p) for p in (index if isinstance(index, tuple) else (index,))]
    parts: list[Any] = []
    for p in given:
        if isinstance(p, bool | np.bool_):
            p = np.asarray(p)  # one boolean chooses from no axis
        elif isinstance(p, list):
            try:
                p = np.asarray(p, dtype=None if p else int)
            except ValueError:
                return f"the index is a {RAGGED}"
        if not isinstance(p, int | np.integer | slice | None | type(Ellipsis)) and not (
            is_array(p) and p.dtype.kind in "biu"
        ):
            found = f"an array of {p.dtype}" if is_array(p) else repr(p)
            return f"an index is whole numbers, slices, ..., None and arrays of integers or booleans; found {found}"
        parts.append(p)
    if sum(p is ... for p in parts) > 1:
        return "an index may hold one ..., which stands for all axes that are not named; found more"
    used = sum(p.ndim if is_array(p) and p.dtype.kind == "b" else 1 for p in parts if p is not None and p is not ...)
    if used > x.ndim:
        return (
            f"{counted(used, 'axis is', 'axes are')} indexed, too many: there {'is' if x.ndim == 1 else 'are'} {x.ndim}"
        )
    at = 0
    for p in parts:
        if p is ...:
            at += x.ndim - used
        elif is_array(p) and p.dtype.kind == "b":
            if p.shape != x.shape[at : at + p.ndim]:
                there = x.shape[at : at + p.ndim]
                return f"booleans must have the shape of what they choose from, {there}, found {p.shape}"
            at += p.ndim
        elif p is not None:
            places = [] if isinstance(p, slice) else np.ravel(to_numpy(p)).tolist()
            size = x.shape[at]
            wrong = [i for i in places if not -size <= i < size]
            if wrong:
                return f"there is no place {wrong[0]} on axis {at}; its {size} are counted from 0, or back from −1"
            at += 1
    return meeting([p.shape for p in parts if is_array(p) and p.dtype.kind != "b"])


def _embedding(W: Any, *, ids: Any) -> str | None:
    return None if W.ndim == 2 else f"the table must be (V, D), a row for each id; found shape {W.shape}"


_REASONS: dict[str, Callable[..., str | None]] = {
    "where": _where,
    "matmul": _matmul,
    "stack": _stack,
    "concatenate": _concatenate,
    "reshape": _reshape,
    "transpose": _transpose,
    "unstack": _unstack,
    "split": _split,
    "sum": _reduced,
    "mean": _reduced,
    "max": _largest,
    "logsumexp": _soft,
    "log_softmax": _soft,
    "softmax": _soft,
    "getitem": _getitem,
    "embedding": _embedding,
}
