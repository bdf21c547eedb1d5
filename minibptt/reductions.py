"""Operations that sum up an axis: sum, mean, max, and the soft maxima, which never overflow. Read after places.py."""

from __future__ import annotations

import math

import numpy as np

from .dispatch import op, real_only
from .why import axes_of


def _kept(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape after reducing over `axes` with keepdims."""
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


@op
def sum(xp, x, *, axis=None, keepdims=False):
    """y = Σ x over `axis` (None: all; a number or a tuple);  ∂L/∂x = g, repeated over the axes summed."""
    shape, kept = x.shape, _kept(x.shape, axes_of(axis, x.ndim))
    y = xp.sum(x, axis=axis, keepdims=keepdims)
    return y, lambda g: (xp.broadcast_to(g.reshape(kept), shape),)


@op
def mean(xp, x, *, axis=None, keepdims=False):
    """y = the mean of x over `axis`;  ∂L/∂x = g / n, repeated over the n elements averaged."""
    shape, axes = x.shape, axes_of(axis, x.ndim)
    kept, n = _kept(shape, axes), math.prod(shape[i] for i in axes)
    if n == 0:
        raise ValueError(f"the mean of no elements (shape {shape}, axis {axis}) is not defined")
    y = xp.mean(x, axis=axis, keepdims=keepdims)
    return y, lambda g: (xp.broadcast_to(g.reshape(kept) / n, shape),)


@op
def max(xp, x, *, axis=None, keepdims=False):
    """y = the largest x over `axis`;  ∂L/∂x = g, shared evenly among the elements that are largest."""
    real_only(x)
    kept = _kept(x.shape, axes_of(axis, x.ndim))
    top = xp.max(x, axis=axis, keepdims=True) if axis is not None else xp.max(x).reshape(kept)

    def rule(g):
        largest = x == top
        count = xp.maximum(xp.sum(largest, axis=axis, keepdims=True).reshape(kept), 1)  # 0 where x holds nan
        return (xp.where(largest, g.reshape(kept) / count.astype(g.dtype), 0),)

    return top if keepdims else xp.max(x, axis=axis), rule


# --- soft maxima -----------------------------------------------------------------------------------------------


def _below_top(xp, x, axis):
    """x less its largest real part along `axis`, and that part: a constant, never −∞, taken off before exp.

    A difference that is too large for the dtype counts as −∞, without NumPy's warning.
    """
    top = xp.max(x.real, axis=axis, keepdims=True)
    top = xp.where(xp.isfinite(top), top, 0)
    with np.errstate(over="ignore"):
        return x - top, top


def _or_one(xp, total):
    """Σ exp is 0 only where every x is −∞: the logarithm is then −∞, the softmax 0, and so is the derivative."""
    return xp.where(total == 0, 1, total)


@op
def logsumexp(xp, x, *, axis=-1, keepdims=False):
    """y = log Σ exp x over `axis` (None: all);  ∂L/∂x = g·exp(x − y). Never overflows; −∞ is allowed."""
    axes = axes_of(axis, x.ndim)
    kept = _kept(x.shape, axes)
    z, top = _below_top(xp, x, axes)
    e = xp.exp(z)
    total = xp.sum(e, axis=axes, keepdims=True)
    y = xp.where(total == 0, -math.inf, xp.log(_or_one(xp, total)) + top)
    y = y if keepdims else y.reshape([n for i, n in enumerate(x.shape) if i not in axes])
    return y, lambda g: (g.reshape(kept) * (e / _or_one(xp, total)),)


@op
def log_softmax(xp, x, *, axis=-1):
    """y = x − log Σ exp x along `axis`;  ∂L/∂x = g − exp(y)·Σ g. Never overflows; −∞ is allowed."""
    z, _ = _below_top(xp, x, axis)
    y = z - xp.log(_or_one(xp, xp.sum(xp.exp(z), axis=axis, keepdims=True)))
    return y, lambda g: (g - xp.exp(y) * xp.sum(g, axis=axis, keepdims=True),)


@op
def softmax(xp, x, *, axis=-1):
    """y = exp x / Σ exp x along `axis`;  ∂L/∂x = y·(g − Σ g·y). Never overflows; −∞ is allowed."""
    e = xp.exp(_below_top(xp, x, axis)[0])
    y = e / _or_one(xp, xp.sum(e, axis=axis, keepdims=True))
    return y, lambda g: (y * (g - xp.sum(g * y, axis=axis, keepdims=True)),)
