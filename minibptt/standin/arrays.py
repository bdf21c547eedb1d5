"""The array of the stand-in: NumPy's inside, and as strict as CuPy's outside. Read after counting.py and memory.py.

It has no operators yet: they are launches, and come with ufuncs.py.
"""

from __future__ import annotations

import numpy as np

from .counting import counter
from .memory import pool


class DeviceArray:
    """Never becomes a NumPy array unasked, and never meets one. What is read from it is copied, and waited for."""

    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("__weakref__", "_host")

    def __init__(self, host):
        if host.dtype.kind not in "biufc":
            raise ValueError(f"Unsupported dtype {host.dtype}")
        self._host = host

    shape = property(lambda self: self._host.shape)
    dtype = property(lambda self: self._host.dtype)
    ndim = property(lambda self: self._host.ndim)
    size = property(lambda self: self._host.size)
    nbytes = property(lambda self: self._host.nbytes)
    T = property(lambda self: view(self._host.T))
    real = property(lambda self: view(self._host.real))
    imag = property(lambda self: view(self._host.imag))
    base = property(lambda self: None if self._host.base is None else view(self._host.base))

    def get(self):
        counter.wait()
        counter.to_host += 1
        return self._host.copy()

    def item(self):
        return self.get().item()

    def __len__(self):
        return len(self._host)

    def __iter__(self):
        return iter([self[i] for i in range(len(self))])

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Use .get()")

    def __array_function__(self, function, types, args, kwargs):
        raise TypeError(f"numpy.{function.__name__} was called on a device array")

    def __getitem__(self, index):
        return view(self._host[host_index(index, self.shape)])

    def __setitem__(self, index, value):
        counter.launches += 1
        self._host[host_index(index, self.shape)] = host_of(value)

    def astype(self, dtype, order="K", casting=None, subok=None, copy=True):
        return self if not copy and np.dtype(dtype) == self.dtype else launched(self._host.astype(dtype))

    def reshape(self, *shape, order="C"):
        return view(self._host.reshape(*shape, order=order))

    def transpose(self, *axes):
        return view(self._host.transpose(*axes))

    def copy(self, order="C"):
        return launched(self._host.copy(order))


for _name, _type in dict(float=float, int=int, bool=bool, complex=complex, repr=repr).items():
    setattr(DeviceArray, f"__{_name}__", lambda self, f=_type: f(self.get()))


def array(obj, dtype=None, copy=True, order="K", subok=False, ndmin=0, *, blocking=False):
    """A copy from the host to the device; an array of the device stays there."""
    if isinstance(obj, DeviceArray):
        return obj.astype(dtype or obj.dtype, copy=copy)
    counter.to_device += 1
    new = view(np.array(obj, dtype=dtype, order=order, ndmin=ndmin))
    pool.take(new._host)
    return new


def asarray(a, dtype=None, order=None, *, copy=None, blocking=False):
    return array(a, dtype, bool(copy), order or "K")


def view(host):
    """An array of the device that shares the memory of another; no launch."""
    return DeviceArray(np.asarray(host))  # NumPy's scalars become arrays of shape ()


def launched(host):
    """What a launch has worked out, in memory of its own."""
    counter.launches += 1
    new = view(host)
    pool.take(new._host)
    return new


def host_of(x):
    """The NumPy array inside, for a launch; numbers as they are. TypeError for whatever is not on the device."""
    if isinstance(x, DeviceArray):
        return x._host
    if isinstance(x, bool | int | float | complex | np.generic):
        return x
    raise TypeError(f"Unsupported type {type(x)}")


def on_device(x):
    """x. TypeError where it is no array of the device."""
    if not isinstance(x, DeviceArray):
        raise TypeError(f"expected an array of the device, got {type(x).__name__}")
    return x


def host_index(index, shape):
    """An index for the NumPy array inside. An array of integers wraps around, as on a device, which says nothing."""
    parts = []
    for part in index if isinstance(index, tuple) else (index,):
        part = asarray(part) if isinstance(part, list | np.ndarray) else part
        if isinstance(part, DeviceArray):
            part = part._host
            if part.dtype.kind == "b":
                counter.wait()  # the size of the result must be known
            elif not isinstance(index, tuple) and shape:
                part = part % shape[0]
        parts.append(part)
    return tuple(parts) if any(part is Ellipsis for part in parts) else (*parts, ...)
