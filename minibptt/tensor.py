"""Tensors, and how new ones are made. Read after backend.py; those that learn are in parameters.py.

A tensor is an array with a name, and with its place on the tape that recorded it, if one did. It does not
keep that tape alive: memory goes when the tape goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Number, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from .backend import Array, as_array, current_library, is_array, library_of, to_backend, to_numpy
from .listing import brief, subscript
from .nest import leaves, map_nest

Steps = tuple[int, int] | None  # the first and the last step that something covers, counted from 1


# What these answer has no derivative, so that nothing is lost where they take tensors for their values.
_WITHOUT_DERIVATIVE = {np.allclose, np.array_equal, np.isclose, np.argmax, np.argmin, np.argsort, np.shape, np.size}


class Tensor:
    """An array in a computation: a value, a name, and its place on a tape.

    value: the array. weak: it has no float type of its own and adapts to the tensors that it meets
    (what `zeros`, `ones` and `full` make, and integers). steps: the time steps that it covers.
    """

    __slots__ = ("__weakref__", "mark", "name", "slot", "steps", "value", "weak")
    is_parameter = False
    _kind = "tensor"

    # Operators and these methods are the functions of ops.py, which sets them; here type checkers read of them.
    if TYPE_CHECKING:

        def __add__(self, other: Any) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __rtruediv__(self, other: Any) -> Tensor: ...
        def __pow__(self, other: Any) -> Tensor: ...
        def __rpow__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...
        def __rmatmul__(self, other: Any) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...
        def __getitem__(self, index: Any) -> Tensor: ...
        def sum(self, axis: Any = None, keepdims: bool = False) -> Tensor: ...
        def mean(self, axis: Any = None, keepdims: bool = False) -> Tensor: ...
        def reshape(self, *shape: Any) -> Tensor: ...
        @property
        def T(self) -> Tensor: ...

    def __init__(
        self,
        value: Any,
        name: str | None = None,
        weak: bool = False,
        mark: object = None,
        slot: int = -1,
        steps: Steps = None,
    ):
        self.value = as_array(value)
        self.name = name
        kind = self.value.dtype.kind
        if kind not in "fcbiu":
            raise TypeError(f"a tensor needs numbers, found {type(value).__name__} ({self.value.dtype})")
        self.weak = weak or kind not in "fc"
        self.mark, self.slot, self.steps = mark, slot, steps  # mark: the token of the tape; slot: its place there

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def dtype(self) -> np.dtype:
        return self.value.dtype

    @property
    def ndim(self) -> int:
        return self.value.ndim

    @property
    def size(self) -> int:
        return self.value.size

    @property
    def label(self) -> str:
        """The name with its step, as a reader writes it: h₃; v₁₇ for the 17th value of a tape where unnamed."""
        if self.name is None:
            return subscript("v", self.slot) if self.slot >= 0 else f"a {self._kind}"
        return subscript(self.name, self.steps[1] if self.steps and not self.is_parameter else None)

    def item(self) -> Any:
        """The single element as a Python number. ValueError where there is not exactly one."""
        if self.size != 1:
            raise ValueError(f"item() needs exactly one element: {self.label} has shape {self.shape}")
        return to_numpy(self.value).item()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("a tensor of shape () has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return iter([self[i] for i in range(len(self))])

    def __repr__(self) -> str:
        name = "" if self.name is None else self.label + ", "
        return f"{self._kind}({name}{brief(self.value, most=12)}, {'weak ' if self.weak else ''}{self.dtype})"

    def __format__(self, spec: str) -> str:
        """f"{loss:.3f}" formats the single element; without a specification it is `repr`."""
        return format(self.item(), spec) if spec else repr(self)

    def __getattr__(self, name: str) -> Any:  # asked only for names that are not there
        other = {
            "backward": "tape.gradient(loss, model)",
            "grad": "tape.gradient(loss, tensor)",
            "detach": "mb.cut(tensor)",
            "numpy": "mb.to_numpy(tensor)",
            "data": "tensor.value",
        }.get(name)
        hint = f"; here it is {other}" if other else ""
        raise AttributeError(f"a {type(self).__name__} has no {name!r}{hint}")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The value, where it is on the host: plotting and printing need no more. A copy never joins the tape."""
        if library_of(self.value) is not np:
            raise TypeError(f"{self.label} is on a device; mb.to_numpy(x) copies it to the host")
        return np.array(self.value, dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """array * tensor comes here (from CuPy too), and so does np.tanh(tensor), which would not record."""
        if method != "__call__" or ufunc.__name__ not in _OPERATORS or kwargs:
            raise _not_recorded(ufunc.__name__)
        a, b = inputs
        ours, reflected = _OPERATORS[ufunc.__name__]
        return getattr(a, ours)(b) if isinstance(a, Tensor) else getattr(b, reflected)(a)

    def __array_function__(self, function, types, args, kwargs):
        if function in _WITHOUT_DERIVATIVE:
            args, kwargs = map_nest(lambda x: x.value if isinstance(x, Tensor) else x, (args, kwargs))
            return function(*args, **kwargs)
        raise _not_recorded(function.__name__)

    # Comparisons give plain boolean arrays: they have no derivative.
    __hash__ = object.__hash__

    def __eq__(self, other):
        return self.value == getattr(other, "value", other)

    def __ne__(self, other):
        return self.value != getattr(other, "value", other)

    def __lt__(self, other):
        return self.value < getattr(other, "value", other)

    def __le__(self, other):
        return self.value <= getattr(other, "value", other)

    def __gt__(self, other):
        return self.value > getattr(other, "value", other)

    def __ge__(self, other):
        return self.value >= getattr(other, "value", other)


def made(value: Array, weak: bool, mark: object = None, slot: int = -1, steps: Steps = None) -> Tensor:
    """The tensor of an operation's result: the constructor without its checks, which an array of floats has passed."""
    tensor = Tensor.__new__(Tensor)
    tensor.value, tensor.name, tensor.weak = value, None, weak
    tensor.mark, tensor.slot, tensor.steps = mark, slot, steps
    return tensor


# The operators that NumPy's functions stand for, where an array is on the left: ours, and the reflected one.
_OPERATORS = {
    "add": ("__add__", "__radd__"),
    "subtract": ("__sub__", "__rsub__"),
    "multiply": ("__mul__", "__rmul__"),
    "divide": ("__truediv__", "__rtruediv__"),
    "power": ("__pow__", "__rpow__"),
    "matmul": ("__matmul__", "__rmatmul__"),
    "equal": ("__eq__", "__eq__"),
    "not_equal": ("__ne__", "__ne__"),
    "less": ("__lt__", "__gt__"),
    "less_equal": ("__le__", "__ge__"),
    "greater": ("__gt__", "__lt__"),
    "greater_equal": ("__ge__", "__le__"),
}


def _not_recorded(name: str) -> TypeError:
    return TypeError(
        f"numpy.{name} does not record on the tape: use minibptt.{name} if there is one, or to_numpy(x) for the value"
    )


def tensors(nest: Any) -> Any:
    """A nesting with its leaves as tensors: an array becomes one that adapts to the tensors that it meets.

    Lists of nothing but numbers are an array, not a nesting.
    """
    found = [leaf for _, leaf in leaves(nest)]
    if found and not isinstance(nest, dict) and all(isinstance(leaf, Real) for leaf in found):
        return Tensor(nest, weak=True)
    return map_nest(lambda leaf: leaf if isinstance(leaf, Tensor) else Tensor(leaf, weak=True), nest)


def moved(tensor: Tensor, library: Any) -> Tensor:
    """The values of a tensor in another library, with its name and no past; itself where it is there already."""
    if library_of(tensor.value) is library:
        return tensor
    return Tensor(to_backend(tensor.value, library), tensor.name, tensor.weak)


def number_type(what: str, dtype: Any, kinds: str = "fc") -> np.dtype:
    """A dtype that was given by its name or its type. TypeError for what is none, and for one of another kind."""
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):  # NumPy reads a string as a description of columns
        found = None
    if found is None or found.kind not in kinds:
        kind = "type of numbers" if "i" in kinds else "float type"
        shown = f"{dtype!r:.80}" if found is None else found
        raise TypeError(f"{what} needs a {kind}, found dtype={shown}: give numpy.float32 or numpy.float64")
    return found


def _check_shape(shape: Any) -> None:
    """TypeError for what is no whole number or tuple of them, ValueError for a size below 0."""
    for size in shape if isinstance(shape, tuple | list | range) else (shape,):
        if isinstance(size, bool) or not isinstance(size, int | np.integer):
            raise TypeError(f"a shape is a whole number or a tuple of them, such as 3 or (2, 3); found {shape!r:.80}")
        if size < 0:
            raise ValueError(f"a shape has no sizes below 0, found {shape!r:.80}")


def full(shape: int | tuple[int, ...], fill: float, dtype: Any = None) -> Tensor:
    """A tensor of `shape` filled with one number, on the current backend.

    Without a dtype it has no float type of its own: it adapts to the tensors that it meets. TypeError for what is no
    shape, number or type of numbers; ValueError for sizes below 0.
    """
    _check_shape(shape)
    if not isinstance(fill, Number) and not is_array(fill):
        raise TypeError(f"a tensor is filled with one number, found {fill!r:.80}")
    if dtype is not None:
        dtype = number_type("a tensor", dtype, "biufc")
    own = np.complex128 if isinstance(fill, complex) else np.float64
    return Tensor(current_library().full(shape, fill, dtype=own if dtype is None else dtype), weak=dtype is None)


def zeros(shape: int | tuple[int, ...], dtype: Any = None) -> Tensor:
    """A tensor of zeros; without a dtype it adapts to the tensors that it meets."""
    return full(shape, 0, dtype)


def ones(shape: int | tuple[int, ...], dtype: Any = None) -> Tensor:
    """A tensor of ones; without a dtype it adapts to the tensors that it meets."""
    return full(shape, 1, dtype)
