"""`xp`, the stand-in as an array library: the names and signatures of CuPy's that minibptt uses. Read last.

A name or an argument that is not here is refused, as CuPy refuses what it does not have. A function that the package
begins to use is added to FUNCTIONS with CuPy's own signature.
"""

from __future__ import annotations

import inspect
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from ..backend import register
from .arrays import DeviceArray, array, asarray, host_of, launched, on_device, view
from .counting import counter
from .kernel import ElementwiseKernel
from .memory import MemoryHook, pool
from .ufuncs import UFUNCS

FUNCTIONS = """\
all(a, axis=None, out=None, keepdims=False)
any(a, axis=None, out=None, keepdims=False)
arange(start, stop=None, step=1, dtype=None)
argmax(a, axis=None, dtype=None, out=None, keepdims=False)
ascontiguousarray(a, dtype=None)
broadcast_to(array, shape)
concatenate(tup, axis=0, out=None, *, dtype=None, casting='same_kind')
cumsum(a, axis=None, dtype=None, out=None)
dot(a, b, out=None)
empty(shape, dtype=float, order='C')
empty_like(prototype, dtype=None, order='K', subok=None, shape=None)
full(shape, fill_value, dtype=None, order='C')
max(a, axis=None, out=None, keepdims=False)
mean(a, axis=None, dtype=None, out=None, keepdims=False)
min(a, axis=None, out=None, keepdims=False)
ones(shape, dtype=float, order='C')
ones_like(a, dtype=None, order='K', subok=None, shape=None)
split(ary, indices_or_sections, axis=0)
stack(tup, axis=0, out=None, *, dtype=None, casting='same_kind')
sum(a, axis=None, dtype=None, out=None, keepdims=False)
swapaxes(a, axis1, axis2)
take_along_axis(a, indices, axis)
transpose(a, axes=None)
where(condition, x=None, y=None)
zeros(shape, dtype=float, order='C')
zeros_like(a, dtype=None, order='K', subok=None, shape=None)"""

TYPES_AND_NUMBERS = "bool_ complex64 complex128 dtype finfo float32 float64 inf int32 int64 nan"  # NumPy's, as CuPy's
METHODS = "all any argmax cumsum max mean min sum swapaxes"  # of arrays, which are the functions of the same names


def _function(text):
    """CuPy's function of this name and signature, by NumPy's of the same name."""
    name, _, parameters = text.partition("(")
    signature = inspect.signature(eval(f"lambda {parameters[:-1]}: None"))
    first = next(iter(signature.parameters))

    def host(x):
        if isinstance(x, list | tuple):  # arrays; or a shape, axes, places
            return tuple([part if type(part) is int else host_of(on_device(part)) for part in x])
        return x if x is None or isinstance(x, str | type | np.dtype) else host_of(x)

    def call(*args, **kwargs):
        given = signature.bind(*args, **kwargs).arguments  # TypeError for what CuPy does not take
        if first in ("a", "ary", "array", "condition"):
            on_device(given[first])
        given = {key: host(x) for key, x in given.items()}
        places = [given.pop(key) for key in (first, "x", "y") if key in given]
        result = getattr(np, name)(*places, **given)
        return [view(part) for part in result] if name == "split" else launched(result)

    call.__name__ = name
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


xp: Any = ModuleType("standin")
xp.__version__ = "0 (a stand-in)"
xp.ndarray, xp.asarray, xp.array, xp.ElementwiseKernel = DeviceArray, asarray, array, ElementwiseKernel
xp.get_default_memory_pool = lambda: pool
for _name, _ufunc in UFUNCS.items():
    setattr(xp, _name, _ufunc)
for _text in FUNCTIONS.splitlines():
    setattr(xp, _text.partition("(")[0], _function(_text))
for _name in METHODS.split():
    setattr(DeviceArray, _name, getattr(xp, _name))
for _name in TYPES_AND_NUMBERS.split():
    setattr(xp, _name, getattr(np, _name))
xp.asnumpy = lambda a, stream=None, order="C", out=None, *, blocking=True: a.get()
xp.result_type = lambda *arrays_and_dtypes: np.result_type(*[getattr(x, "_host", x) for x in arrays_and_dtypes])
xp.is_available = lambda: True
xp.cuda = SimpleNamespace(
    MemoryHook=MemoryHook,
    get_current_stream=lambda device_id=-1: SimpleNamespace(synchronize=counter.wait),
    runtime=SimpleNamespace(getDeviceCount=lambda: 1),
)
register(DeviceArray, xp)
