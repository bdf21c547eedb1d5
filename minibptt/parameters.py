"""Parameters: the tensors that learn, changed through `assign` alone. Read after tensor.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from .backend import Array, BackendError, as_array, current_library, is_array, library_of, name_of, to_backend
from .tensor import Tensor, number_type


class Parameter(Tensor):
    """A tensor that learns: recorded on every open tape that uses it, changed only through `assign`."""

    __slots__ = ()
    is_parameter = True
    _kind = "parameter"

    def __init__(self, value: Array, name: str | None = None):
        super().__init__(value, name)
        _freeze(self.value)

    def __reduce__(self):  # pickle and deepcopy make a fresh array, which must be read-only too
        return type(self), (self.value, self.name)

    def _no_inplace(self, other):
        raise TypeError(
            f"{self.label} is a parameter; an operator such as -= would put an ordinary tensor in its place. "
            "Write mb.assign(w, w.value - step)"
        )

    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ipow__ = __imatmul__ = _no_inplace


def _freeze(array: Array) -> None:
    if isinstance(array, np.ndarray):  # CuPy arrays have no such flag
        array.flags.writeable = False


def float_array(value: Any, dtype: Any = None, what: str = "a parameter") -> Array:
    """A new array of floats from anything: its own float type is kept, everything else becomes float32.

    TypeError for integer and boolean arrays without `dtype`: integers can't be differentiated.
    """
    if dtype is not None:
        dtype = number_type(what, dtype)
    value = getattr(value, "value", value)
    value = as_array(value) if isinstance(value, np.ndarray) else value  # refuses masked arrays
    numbers = isinstance(value, np.generic) or is_array(value)
    if not numbers:
        try:
            host = as_array(value, np)
        except ValueError as error:
            raise TypeError(f"{what} needs numbers, found {type(value).__name__}: {error}") from None
        if host.dtype.kind not in "biufc":
            raise TypeError(f"{what} needs numbers, found {value!r:.60}")
        if host.dtype.kind == "c" and (dtype is None or dtype.kind != "c"):
            raise TypeError(f"{what} was made from complex numbers: give dtype=numpy.complex128")
        value = current_library().asarray(host, dtype=np.float32 if dtype is None else dtype)
    if dtype is None and value.dtype.kind not in "fc":
        raise TypeError(
            f"{what} was made from {value.dtype}: integers can't be differentiated. "
            "Give dtype=numpy.float32, or an array of floats"
        )
    library = library_of(value)
    return library.array(value, dtype=value.dtype if dtype is None else dtype)  # always a copy


def parameter(value: Any, name: str | None = None, dtype: Any = None) -> Parameter:
    """A parameter with a copy of `value`. float32 unless `dtype` or the array's own float type says otherwise.

    value: numbers of any shape. name: set by the module that it is an attribute of, where not given.
    TypeError for integer arrays and for a dtype that is no float type.
    """
    return Parameter(float_array(value, dtype, name or "a parameter"), name)


def assign(parameter: Parameter, value: Any) -> None:
    """Give `parameter` a new value: a copy in its own dtype. The only way in which a parameter changes.

    A tape that recorded the old value refuses to be differentiated from then on.
    TypeError where it is no parameter; ValueError where the shape differs.
    """
    if not isinstance(parameter, Parameter):
        raise TypeError(f"assign changes parameters; found {type(parameter).__name__}")
    value = getattr(value, "value", value)
    old = parameter.value
    library = library_of(old)
    if is_array(value) and library_of(value) is not library:
        raise BackendError(
            f"assign: {parameter.label} is a {name_of(library)} array, its new value a {name_of(library_of(value))} one"
        )
    try:
        new = library.array(as_array(value, library))
    except ValueError as error:
        raise ValueError(f"assign: the new value of {parameter.label}, of shape {old.shape}: {error}") from None
    if (new.dtype.kind == "c" and old.dtype.kind != "c") or new.dtype.kind not in "biufc":
        raise TypeError(f"assign: {parameter.label} is {old.dtype}, the new value is {new.dtype}")
    if new.shape != old.shape:
        raise ValueError(f"assign: {parameter.label} has shape {old.shape}, the new value has shape {new.shape}")
    parameter.value = new.astype(old.dtype, copy=False)
    _freeze(parameter.value)


def move(parameter: Parameter, library: Any) -> None:
    """Bring the value of `parameter` to another library; nothing happens where it is there already.

    A tape that recorded the old value refuses to be differentiated from then on.
    """
    if library_of(parameter.value) is not library:
        parameter.value = library.array(to_backend(parameter.value, library))
        _freeze(parameter.value)


def recast(parameter: Parameter, dtype: Any) -> None:
    """Give `parameter` another float type, for a copy of a model whose numbers are to be compared."""
    parameter.value = parameter.value.astype(dtype)
    _freeze(parameter.value)
