"""Operations on shapes and places: reshape, transpose, indexing, looking up, joining and taking apart.

Read after dispatch.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np

from .backend import BackendError, host_array, is_array, library_of, name_of
from .dispatch import op
from .listing import counted
from .tensor import Tensor
from .why import axes_of


@op
def reshape(xp, x, *, shape):
    """y = the elements of x in `shape` (one −1 is worked out);  ∂L/∂x = g in the shape of x."""
    before = x.shape
    return x.reshape(shape), lambda g: (g.reshape(before),)


@op
def transpose(xp, x, *, axes=None):
    """y = x with its axes in the order `axes` (None: reversed);  ∂L/∂x = g in the inverse order."""
    order = tuple(range(x.ndim))[::-1] if axes is None else tuple(a % x.ndim for a in axes)
    if axes is not None and axes_of(tuple(axes), x.ndim) != tuple(range(x.ndim)):
        raise ValueError(f"repeated or missing axis in {tuple(axes)}: name each of the {x.ndim} axes once")
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return xp.transpose(x, order), lambda g: (xp.transpose(g, inverse),)


def _has_repeats(index: Any) -> bool:
    """Can this index name one element twice? Numbers, slices and boolean masks cannot; integer arrays can."""
    parts = index if isinstance(index, tuple) else (index,)
    plain = (int, slice, type(None), type(Ellipsis), np.integer)
    return not all(isinstance(p, plain) or getattr(p, "dtype", np.dtype(int)).kind == "b" for p in parts)


def _own_index(xp: Any, p: Any) -> Any:
    """A part of an index as an array of our own, which nobody changes before the gradient is asked for."""
    if isinstance(p, list):
        return xp.asarray(np.asarray(p, dtype=None if p else int))
    if not is_array(p):
        return p
    if library_of(p) is not xp:
        raise BackendError(f"getitem: the index is a {name_of(library_of(p))} array, the tensor a {name_of(xp)} one")
    return p.copy()


@op
def getitem(xp, x, *, index):
    """y = x[index], with slices, numbers, integer arrays (repeats add up) and boolean masks;  ∂L/∂x = g put back."""
    shape = x.shape
    parts = [_own_index(xp, getattr(p, "value", p)) for p in (index if isinstance(index, tuple) else (index,))]
    index = tuple(parts) if isinstance(index, tuple) else parts[0]
    repeats = _has_repeats(index)

    def rule(g):
        dx = xp.zeros(shape, dtype=g.dtype)
        if repeats:
            xp.add.at(dx, index, g)
        else:
            dx[index] = g
        return (dx,)

    return x[index], rule


@op
def pick(xp, x, *, ids):
    """y[…] = x[…, ids[…]], one element of the last axis for each row;  ∂L/∂x = g put back.

    x: (…, V); ids: host integers (…), checked here: ValueError outside 0 … V − 1.
    """
    shape, V = x.shape, x.shape[-1]
    ids = check_ids(ids, V, "pick")
    if ids.shape != shape[:-1]:
        raise ValueError(f"ids must have shape {shape[:-1]}, found {ids.shape}")
    place = xp.asarray(np.arange(ids.size) * V + ids.reshape(-1))  # in the flattened x

    def rule(g):
        dx = xp.zeros(math.prod(shape), dtype=g.dtype)
        dx[place] = g.reshape(-1)
        return (dx.reshape(shape),)

    return x.reshape(-1)[place].reshape(shape[:-1]), rule


def check_ids(ids: Any, V: int, what: str, name: str = "id") -> np.ndarray:
    """Token ids, checked on the host. TypeError where they are no integers, ValueError outside 0 … V − 1.

    what: the name of the operation, name: what it calls one of them, for the message.
    """
    ids = host_array(f"{what}: the {name}s", ids)
    if ids.dtype.kind not in "iu":
        hint = f". Where they are whole, give {name}s.astype(int)" if ids.dtype.kind in "fb" else ""
        raise TypeError(f"{what}: {name}s must be integers, found {ids.dtype}{hint}")
    wrong = np.argwhere((ids < 0) | (ids >= V))
    if wrong.size:
        place = tuple(wrong[0].tolist())
        raise ValueError(
            f"{what}: {name} {ids[place]} at {place} is outside 0 … {V - 1} ({counted(len(wrong), f'such {name}')})"
        )
    return ids


@op
def embedding(xp, W, *, ids):
    """y[…] = W[ids[…]], the rows of W;  ∂L/∂W = the g of every use of a row, added up.

    W: (V, D); ids: host integers (…), checked here: ValueError outside 0 … V − 1.
    """
    V, D = W.shape
    ids = xp.array(check_ids(ids, V, "embedding"))

    def rule(g):
        dW = xp.zeros((V, D), dtype=g.dtype)
        xp.add.at(dW, ids.reshape(-1), g.reshape(-1, D))
        return (dW,)

    return W[ids], rule


@op
def _concatenate(xp, *xs, axis=0):
    """y = the xs one after the other along `axis`;  ∂L/∂x_i = its piece of g."""
    y = xp.concatenate(xs, axis=axis)
    ends = np.cumsum([x.shape[axis] for x in xs])[:-1].tolist()
    return y, lambda g: xp.split(g, ends, axis=axis)


def concatenate(tensors: Iterable[Any], axis: int = 0) -> Tensor:
    """The tensors one after the other along `axis`. ValueError where there is none or the other sizes differ."""
    return _concatenate(*_some(tensors, "concatenate"), axis=axis)


@op
def _stack(xp, *xs, axis=0):
    """y = the xs side by side along a new axis;  ∂L/∂x_i = its slice of g."""
    y = xp.stack(xs, axis=axis)
    place = (slice(None),) * (axis % y.ndim)
    n = len(xs)
    return y, lambda g: [g[(*place, i)] for i in range(n)]


def stack(tensors: Iterable[Any], axis: int = 0) -> Tensor:
    """The tensors side by side along a new axis. ValueError where there is none or the shapes differ."""
    return _stack(*_some(tensors, "stack"), axis=axis)


def _some(tensors: Iterable[Any], name: str) -> list[Any]:
    if hasattr(tensors, "shape"):
        raise ValueError(f"{name} takes a list of at least one tensor, found one alone, of shape {tensors.shape}")
    if not isinstance(tensors, Iterable):
        raise TypeError(f"{name} takes a list of at least one tensor, found {tensors!r:.60}")
    given = list(tensors)
    if not given:
        raise ValueError(f"{name} takes a list of at least one tensor, found none")
    return given


@op
def unstack(xp, x, *, axis=0):
    """ys = the slices of x along `axis`, as a tuple, recorded once;  ∂L/∂x = the g of the slices, stacked."""
    place = (slice(None),) * axes_of(axis, x.ndim)[0]
    if x.shape[axis] == 0:
        raise ValueError(f"axis {axis} has no slices to take apart (shape {x.shape})")
    ys = tuple([x[(*place, i)] for i in range(x.shape[axis])])
    shapes = [y.shape for y in ys]
    return ys, lambda g: (xp.stack(_filled(xp, g, shapes), axis=axis),)


@op
def split(xp, x, *, pieces, axis=0):
    """ys = x in pieces along `axis`, as a tuple: so many equal ones, or cut at a list of places (NumPy's split).

    ∂L/∂x = the g of the pieces, one after the other.
    """
    place, n = (slice(None),) * axes_of(axis, x.ndim)[0], x.shape[axis]
    if isinstance(pieces, int | np.integer):
        if pieces < 1 or n % pieces:
            raise ValueError(f"axis {axis} of shape {x.shape} does not divide into {pieces} equal pieces")
        cuts = range(n // pieces, n, n // pieces)
    else:
        cuts = pieces
    ys = tuple([x[(*place, slice(a, b))] for a, b in pairwise([0, *cuts, n])])
    shapes = [y.shape for y in ys]
    return ys, lambda g: (xp.concatenate(_filled(xp, g, shapes), axis=axis),)


def _filled(xp, g, shapes):
    """The adjoints of several outputs, zeros standing for those that nobody used."""
    dtype = next(part.dtype for part in g if part is not None)
    return [xp.zeros(shape, dtype=dtype) if part is None else part for part, shape in zip(g, shapes)]
