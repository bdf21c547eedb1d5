"""The operations, each beside its derivative. Read after dispatch.py, which explains `@op`.

In a docstring, y is the value, g = ∂L/∂y the adjoint that arrives. A line `∂y/∂x = …` is the derivative of an
element-wise operation; a line `∂L/∂x = …` says what the rule returns. Where an operation broadcasts, the
adjoint is summed back over the broadcast axes (`unbroadcast`), here and nowhere else. Here are those that work
element by element, and the matrix product; those on shapes and places (reshape, indexing, joining) are in places.py,
those that sum up an axis (sum, max, softmax) in reductions.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .backend import Array, BackendError, is_array, library_of, name_of
from .dispatch import op, real_only

# This module has every operation, also those that stand elsewhere.
from .places import concatenate, embedding, getitem, pick, reshape, split, stack, transpose, unstack  # noqa: F401
from .reductions import log_softmax, logsumexp, max, mean, softmax, sum  # noqa: F401
from .tensor import Tensor


def unbroadcast(g: Array, shape: tuple[int, ...]) -> Array:
    """Sum g over the axes along which an operand of `shape` was repeated."""
    if g.shape == shape:
        return g
    extra = g.ndim - len(shape)
    axes = tuple(i for i in range(g.ndim) if i < extra or (shape[i - extra] == 1 and g.shape[i] != 1))
    return g.sum(axis=axes, keepdims=True).reshape(shape)


def _shape(x: Any) -> tuple[int, ...]:
    return getattr(x, "shape", ())


def _pair(a: Any, b: Any, da: Any, db: Any) -> Any:
    """The rule of an element-wise operation of two inputs, from g·∂y/∂a and g·∂y/∂b as functions of g."""
    a_shape, b_shape = _shape(a), _shape(b)
    return lambda g: (lambda: unbroadcast(da(g), a_shape), lambda: unbroadcast(db(g), b_shape))


# --- arithmetic ------------------------------------------------------------------------------------------------


@op
def add(xp, a, b):
    """y = a + b;  ∂y/∂a = 1;  ∂y/∂b = 1."""
    y = a + b
    a_shape, b_shape = _shape(a), _shape(b)
    if a_shape == b_shape:
        return y, lambda g: (g, g)
    return y, lambda g: (lambda: unbroadcast(g, a_shape), lambda: unbroadcast(g, b_shape))


@op
def subtract(xp, a, b):
    """y = a − b;  ∂y/∂a = 1;  ∂y/∂b = −1."""
    return a - b, _pair(a, b, lambda g: g, lambda g: -g)


@op
def multiply(xp, a, b):
    """y = a·b;  ∂y/∂a = b;  ∂y/∂b = a."""
    # Written out: on a long tape each closure is one more object for the garbage collector to walk.
    return a * b, lambda g: (lambda: unbroadcast(g * b, _shape(a)), lambda: unbroadcast(g * a, _shape(b)))


@op
def divide(xp, a, b):
    """y = a / b;  ∂y/∂a = 1 / b;  ∂y/∂b = −y / b."""
    y = a / b
    return y, _pair(a, b, lambda g: g / b, lambda g: -g * y / b)


@op
def negative(xp, x):
    """y = −x;  ∂y/∂x = −1."""
    return -x, lambda g: (-g,)


@op
def power(xp, a, b):
    """y = a^b;  ∂y/∂a = b·a^(b − 1);  ∂y/∂b = y·log(a).

    A constant exponent never takes a logarithm, so a may be negative; b = 0 has derivative 0 everywhere. The
    derivative for the exponent is 0 where a = 0 and nan where a < 0.
    """
    y = a**b

    def da(g):
        if not is_array(b):
            return g * b * a ** (b - 1) if b else g * 0
        return g * xp.where(b == 0, 0, b * a ** xp.where(b == 0, 1, b - 1))

    def db(g):
        base = a if is_array(a) else xp.asarray(a, dtype=y.dtype)
        if base.dtype.kind == "c":
            return g * y * xp.log(base)
        log = xp.log(xp.where(base > 0, base, 1))
        return g * y * xp.where(base < 0, math.nan, log)

    return y, _pair(a, b, da, db)


@op
def matmul(xp, a, b):
    """y = a @ b, for every rank that NumPy has: vectors, matrices, and stacks of matrices that broadcast.

    ∂L/∂a = g @ bᵀ;  ∂L/∂b = aᵀ @ g.
    """
    if _shape(a) == () or _shape(b) == ():
        raise ValueError("a matrix product needs at least one axis on each side; for a number use *")
    inner = b.shape[-2] if b.ndim > 1 else b.shape[0]
    if a.shape[-1] != inner:
        raise ValueError(
            f"the inner sizes differ: {a.shape[-1]} and {inner}. (…, n) @ (n, m) gives (…, m): transpose one, or give "
            "inputs of the size that the weights were made for"
        )
    if a.ndim > 1 and b.ndim == 2:  # rows times one matrix: one product over all rows, a sequence's too
        rows, shape = a.reshape(-1, inner), a.shape

        def rule_of_rows(g):
            g = g.reshape(-1, g.shape[-1])
            # dot, because NumPy's matmul takes a slow path where there is just one row.
            return lambda: xp.dot(g, b.T).reshape(shape), lambda: xp.dot(rows.T, g)

        return xp.matmul(rows, b).reshape(*shape[:-1], b.shape[-1]), rule_of_rows
    A = a[None, :] if a.ndim == 1 else a
    B = b[:, None] if b.ndim == 1 else b
    a_shape, b_shape = a.shape, b.shape

    def rule(g):
        g = g if len(b_shape) > 1 else g[..., None]
        g = g if len(a_shape) > 1 else g[..., None, :]
        return (
            lambda: unbroadcast(g @ B.swapaxes(-1, -2), A.shape).reshape(a_shape),
            lambda: unbroadcast(A.swapaxes(-1, -2) @ g, B.shape).reshape(b_shape),
        )

    return a @ b, rule


# --- element-wise functions ------------------------------------------------------------------------------------


@op
def exp(xp, x):
    """y = exp x;  ∂y/∂x = y."""
    y = xp.exp(x)
    return y, lambda g: (g * y,)


@op
def log(xp, x):
    """y = log x (natural);  ∂y/∂x = 1 / x."""
    return xp.log(x), lambda g: (g / x,)


@op
def sqrt(xp, x):
    """y = √x;  ∂y/∂x = 1 / (2·y), taken as 0 at x = 0, so that a norm has the gradient 0 at 0."""
    y = xp.sqrt(x)
    return y, lambda g: (xp.where(y == 0, 0, 0.5 * g / xp.where(y == 0, 1, y)),)


@op
def tanh(xp, x):
    """y = tanh x;  ∂y/∂x = 1 − y²."""
    y = xp.tanh(x)
    return y, lambda g: (g * (1 - y * y),)


@op
def sigmoid(xp, x):
    """y = 1 / (1 + exp(−x));  ∂y/∂x = y·(1 − y). Never overflows."""
    right = x.real >= 0
    e = xp.exp(xp.where(right, -x, x))  # at most 1 in size
    y = xp.where(right, 1, e) / (1 + e)
    return y, lambda g: (g * (y * (1 - y)),)


@op
def relu(xp, x):
    """y = x where x > 0, else 0;  ∂y/∂x = (x > 0): 0 at x = 0."""
    real_only(x)
    return xp.maximum(x, 0), lambda g: (g * (x > 0),)


@op
def abs(xp, x):
    """y = |x|;  ∂y/∂x = sign(x): 0 at x = 0."""
    real_only(x)
    return xp.abs(x), lambda g: (g * xp.sign(x),)


def _preferred(xp, g, a, b):
    """What g gives to a, picked over b: all of it where a > b, half of it where they tie."""
    return xp.where(a > b, g, xp.where(a == b, 0.5 * g, 0))


@op
def maximum(xp, a, b):
    """y = max(a, b);  ∂y/∂a = (a > b) + ½·(a = b);  ∂y/∂b = (b > a) + ½·(a = b): a tie is shared."""
    real_only(a, b)
    return xp.maximum(a, b), _pair(a, b, lambda g: _preferred(xp, g, a, b), lambda g: _preferred(xp, g, b, a))


@op
def minimum(xp, a, b):
    """y = min(a, b);  ∂y/∂a = (a < b) + ½·(a = b);  ∂y/∂b = (b < a) + ½·(a = b): a tie is shared."""
    real_only(a, b)
    return xp.minimum(a, b), _pair(a, b, lambda g: _preferred(xp, g, b, a), lambda g: _preferred(xp, g, a, b))


@op
def _where(xp, x, y, *, condition):
    """z = x where the condition holds, else y;  ∂z/∂x = condition;  ∂z/∂y = not condition."""
    condition = getattr(condition, "value", condition)
    if is_array(condition) and library_of(condition) is not xp:
        raise BackendError(f"where: the condition is a {name_of(library_of(condition))} array, x and y are not")
    if not is_array(condition):
        condition = np.asarray(condition)
    if condition.dtype.kind not in "biuf":
        raise TypeError(f"the condition must be booleans, found {condition.dtype}")
    condition = xp.array(condition, dtype=bool)
    # 0·nan would let through what the condition hides, so the adjoint is chosen, not multiplied.
    return xp.where(condition, x, y), _pair(
        x, y, lambda g: xp.where(condition, g, 0), lambda g: xp.where(condition, 0, g)
    )


def where(condition: Any, x: Any, y: Any) -> Tensor:
    """x where the condition holds, else y; the adjoint goes to the one that was chosen, and exactly 0 to the other.

    condition: booleans that broadcast with x and y.
    """
    return _where(x, y, condition=condition)


# --- the operators and methods of Tensor are these functions ------------------------------------------------------


def _reshape_method(self: Tensor, *shape: Any) -> Tensor:
    return reshape(self, shape=shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape)


_METHODS: dict[str, Any] = {
    "__neg__": lambda self: negative(self),
    "__abs__": lambda self: abs(self),
    "__getitem__": lambda self, index: getitem(self, index=index),
    "sum": lambda self, axis=None, keepdims=False: sum(self, axis=axis, keepdims=keepdims),
    "mean": lambda self, axis=None, keepdims=False: mean(self, axis=axis, keepdims=keepdims),
    "reshape": _reshape_method,
    "T": property(lambda self: transpose(self)),
}
for _sign, _function in dict(add=add, sub=subtract, mul=multiply, truediv=divide, pow=power, matmul=matmul).items():
    _METHODS[f"__{_sign}__"] = lambda self, other, f=_function: f(self, other)
    _METHODS[f"__r{_sign}__"] = lambda self, other, f=_function: f(other, self)
for _name, _method in _METHODS.items():
    setattr(Tensor, _name, _method)
