"""A strict stand-in for CuPy, over NumPy, for machines without a GPU: `mb.use_backend(minibptt.standin.xp)`.

It refuses what CuPy refuses: an array that becomes a NumPy array unasked, NumPy arrays and lists in operators and
functions, and names and arguments that CuPy does not have. It also refuses np.exp(x) and np.sum(x) on its arrays,
which CuPy lets pass: a stray `np.` should be seen. As on a device, an integer array used as an index wraps around
instead of raising. `counter` counts what costs time: copies in both directions, waits for the device, and launches;
`pool` is a memory pool that keeps what was freed. It shows how often a program asks something of a device, and never
how long a device would take. Its array is `DeviceArray`. Read after backend.py.
"""

from __future__ import annotations

import inspect
import re
import weakref
from collections import Counter as Bag
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from . import backend


class Counter:
    """to_host, to_device: copies; syncs: how often the host waited for the device; launches: kernels started."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.to_host = self.to_device = self.syncs = self.launches = 0

    def wait(self):
        self.syncs += 1


counter = Counter()


def counted(work):
    """(what work() returns, {"launches": …, "syncs": …, "to_host": …, "to_device": …}) of arrays of this device."""
    before = vars(counter).copy()
    result = work()
    return result, {name: n - before.get(name, 0) for name, n in vars(counter).items()}


class Pool:
    """As CuPy's: a block that was freed is kept, and given out again where its size is asked for."""

    def __init__(self):
        self._used: dict[int, Any] = {}
        self._free: Bag[int] = Bag()
        self._live = 0
        self.hooks: list[MemoryHook] = []

    def used_bytes(self):
        """What is live now."""
        return self._live

    def free_bytes(self):
        return sum(size * n for size, n in self._free.items())

    def total_bytes(self):
        """What is reserved: live, or kept since it was freed."""
        return self.used_bytes() + self.free_bytes()

    def free_all_blocks(self, stream=None):
        """Give back what is kept and not live."""
        self._free.clear()

    def take(self, host):
        """Note that the memory of a NumPy array is on the device as long as somebody holds it."""
        while isinstance(host.base, np.ndarray):
            host = host.base
        key = id(host)
        if key in self._used or not host.nbytes:
            return
        size = -(-host.nbytes // 512) * 512
        if self._free[size]:
            self._free[size] -= 1
        self._used[key] = weakref.ref(host, lambda _: self._give_back(key)), size
        self._live += size
        for hook in self.hooks:
            hook.malloc_postprocess(device_id=0, size=host.nbytes, mem_size=size, mem_ptr=key, pmem_id=key)

    def _give_back(self, key):
        _, size = self._used.pop(key)
        self._free[size] += 1
        self._live -= size


class MemoryHook:
    """Is told of every block that the pool gives out, inside `with hook:`."""

    def __enter__(self):
        pool.hooks.append(self)
        return self

    def __exit__(self, *exception):
        pool.hooks.remove(self)

    def malloc_postprocess(self, **of_block):
        pass


pool = Pool()


class Queue:
    """A device that works behind the back of the program, and a clock of its own: to see what a wait is for.

    launch(seconds) returns at once; synchronise() waits until all that was launched is done; clock() is the time now.
    """

    def __init__(self, launch=0.0):
        self.now, self.done, self.cost, self.events = 0.0, 0.0, launch, []

    def launch(self, seconds):
        self.events.append("launch")
        self.now += self.cost  # what the program itself spends on asking
        self.done = max(self.done, self.now) + seconds

    def synchronise(self):
        self.events.append("wait")
        self.now = max(self.now, self.done)

    def clock(self):
        self.events.append("clock")
        return self.now


def _view(host):
    return DeviceArray(np.asarray(host))  # NumPy's scalars become arrays of shape ()


def _new(host):
    counter.launches += 1
    new = _view(host)
    pool.take(new._host)
    return new


def _host(x):
    if isinstance(x, DeviceArray):
        return x._host
    if isinstance(x, bool | int | float | complex | np.generic):
        return x
    raise TypeError(f"Unsupported type {type(x)}")


def _array(x):
    if not isinstance(x, DeviceArray):
        raise TypeError(f"expected an array of the device, got {type(x).__name__}")
    return x


def _index(index, shape):
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


class DeviceArray:
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
    T = property(lambda self: _view(self._host.T))
    real = property(lambda self: _view(self._host.real))
    imag = property(lambda self: _view(self._host.imag))
    base = property(lambda self: None if self._host.base is None else _view(self._host.base))

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
        return _view(self._host[_index(index, self.shape)])

    def __setitem__(self, index, value):
        counter.launches += 1
        self._host[_index(index, self.shape)] = _host(value)

    def astype(self, dtype, order="K", casting=None, subok=None, copy=True):
        return self if not copy and np.dtype(dtype) == self.dtype else _new(self._host.astype(dtype))

    def reshape(self, *shape, order="C"):
        return _view(self._host.reshape(*shape, order=order))

    def transpose(self, *axes):
        return _view(self._host.transpose(*axes))

    def copy(self, order="C"):
        return _new(self._host.copy(order))


class Ufunc:
    """Takes arrays of its own and numbers, no where=. `reduce` is there for add and multiply alone, `at` for add."""

    def __init__(self, name):
        self.__name__, self._numpy = name, getattr(np, name)
        if name == "add":
            self.at = self._at
        if name in ("add", "multiply"):
            self.reduce = lambda a, axis=0, dtype=None, out=None, keepdims=False: _new(
                self._numpy.reduce(_host(a), axis=axis, dtype=dtype, keepdims=keepdims)
            )

    def __call__(self, *inputs, out=None, casting="same_kind", dtype=None):
        host = None if out is None else _host(out)
        result = _new(self._numpy(*[_host(x) for x in inputs], out=host, casting=casting, dtype=dtype))
        return result if out is None else out

    def _at(self, a, slices, b=None):
        counter.launches += 1
        self._numpy.at(_host(a), _index(slices, a.shape), _host(b))


def asarray(a, dtype=None, order=None, *, copy=None, blocking=False):
    return array(a, dtype, bool(copy), order or "K")


def array(obj, dtype=None, copy=True, order="K", subok=False, ndmin=0, *, blocking=False):
    if isinstance(obj, DeviceArray):
        return obj.astype(dtype or obj.dtype, copy=copy)
    counter.to_device += 1
    new = _view(np.array(obj, dtype=dtype, order=order, ndmin=ndmin))
    pool.take(new._host)
    return new


class ElementwiseKernel:
    """One launch whose body, straight-line C, is evaluated by NumPy: declarations, assignments, sigmoid, relu, tanh."""

    def __init__(self, in_params, out_params, operation, name="kernel", reduce_dims=True, preamble="", **kwargs):
        self.name, self.operation, self.preamble = name, operation, preamble
        self.params = [p.split() for text in (in_params, out_params) for p in text.split(",")]
        self.nin = len(in_params.split(","))

    def __call__(self, *args, size=None):
        if len(args) != len(self.params):
            raise TypeError(f"{self.name} takes {len(self.params)} arguments, found {len(args)}")
        counter.launches += 1
        hosts = {}
        for (*kind, name), value in zip(self.params, args):
            hosts[name] = _array(value)._host if "T" in kind else int(value)
        arrays = [host for host in hosts.values() if isinstance(host, np.ndarray)]
        if len({host.dtype for host in arrays}) > 1:
            raise TypeError(f"{self.name}: the arrays of type T are of {sorted({str(a.dtype) for a in arrays})}")
        if not all(host.flags.c_contiguous for host in arrays):
            raise ValueError(f"{self.name}: every array must be C-contiguous")
        self.run(hosts, size)

    def run(self, hosts, size):
        names = {"i": np.arange(size), "sigmoid": _sigmoid, "tanh": np.tanh, "relu": lambda x: np.maximum(x, 0)}
        names |= {name: host.reshape(-1) if isinstance(host, np.ndarray) else host for name, host in hosts.items()}
        for statement in re.split("[;{}]", self.operation):
            line = statement.strip()
            whole = line.startswith("const int ")  # only there is a division one of whole numbers
            line = line.removeprefix("const int ").removeprefix("T ")
            if "=" in line:
                exec(line.replace("/", "//") if whole else line, names)


def _sigmoid(x):
    return 0.5 + 0.5 * np.tanh(0.5 * x)


def _function(text):
    """CuPy's function of this name and signature, by NumPy's of the same name."""
    name, _, parameters = text.partition("(")
    signature = inspect.signature(eval(f"lambda {parameters[:-1]}: None"))
    first = next(iter(signature.parameters))

    def host(x):
        if isinstance(x, list | tuple):  # arrays; or a shape, axes, places
            return tuple([part if type(part) is int else _array(part)._host for part in x])
        return x if x is None or isinstance(x, str | type | np.dtype) else _host(x)

    def call(*args, **kwargs):
        given = signature.bind(*args, **kwargs).arguments  # TypeError for what CuPy does not take
        if first in ("a", "ary", "array", "condition"):
            _array(given[first])
        given = {key: host(x) for key, x in given.items()}
        places = [given.pop(key) for key in (first, "x", "y") if key in given]
        result = getattr(np, name)(*places, **given)
        return [_view(part) for part in result] if name == "split" else _new(result)

    call.__name__ = name
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


UFUNCS = """abs add bitwise_and bitwise_or divide equal exp expm1 greater greater_equal invert isfinite isnan less
less_equal log log1p matmul maximum minimum multiply negative not_equal power sign sqrt square subtract tanh"""

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

xp: Any = ModuleType("strict_cupy")
xp.__version__ = "0 (a stand-in)"
xp.ndarray, xp.asarray, xp.array, xp.ElementwiseKernel = DeviceArray, asarray, array, ElementwiseKernel
xp.get_default_memory_pool = lambda: pool
backend._library_of_type[DeviceArray] = xp
for _name in UFUNCS.split():
    setattr(xp, _name, Ufunc(_name))
for _text in FUNCTIONS.splitlines():
    setattr(xp, _text.partition("(")[0], _function(_text))
for _name in ("all", "any", "argmax", "cumsum", "max", "mean", "min", "sum", "swapaxes"):
    setattr(DeviceArray, _name, getattr(xp, _name))
for _name in (
    "bool_",
    "complex64",
    "complex128",
    "dtype",
    "finfo",
    "float32",
    "float64",
    "inf",
    "int32",
    "int64",
    "nan",
):
    setattr(xp, _name, getattr(np, _name))
xp.asnumpy = lambda a, stream=None, order="C", out=None, *, blocking=True: a.get()
xp.result_type = lambda *arrays_and_dtypes: np.result_type(*[getattr(x, "_host", x) for x in arrays_and_dtypes])
xp.is_available = lambda: True
xp.cuda = SimpleNamespace(
    MemoryHook=MemoryHook,
    get_current_stream=lambda device_id=-1: SimpleNamespace(synchronize=counter.wait),
    runtime=SimpleNamespace(getDeviceCount=lambda: 1),
)


def _operator(sign, ufunc):
    def forward(self, other):
        if hasattr(other, "__array_ufunc__") and not isinstance(other, DeviceArray | np.ndarray | np.generic):
            return NotImplemented  # a tensor answers for itself
        return ufunc(self, other)

    setattr(DeviceArray, f"__{sign}__", forward)
    setattr(DeviceArray, f"__r{sign}__", lambda self, other: ufunc(other, self))
    setattr(DeviceArray, f"__i{sign}__", lambda self, other: ufunc(self, other, out=self))


OPERATORS = dict(add="add", sub="subtract", mul="multiply", truediv="divide", pow="power", matmul="matmul")
OPERATORS |= dict(lt="less", le="less_equal", gt="greater", ge="greater_equal", eq="equal", ne="not_equal")
OPERATORS |= {"and": "bitwise_and", "or": "bitwise_or"}
for _sign, _name in OPERATORS.items():
    _operator(_sign, getattr(xp, _name))
for _sign, _ufunc in dict(neg=xp.negative, abs=xp.abs, invert=xp.invert).items():
    setattr(DeviceArray, f"__{_sign}__", lambda self, f=_ufunc: f(self))
for _sign, _type in dict(float=float, int=int, bool=bool, complex=complex, repr=repr).items():
    setattr(DeviceArray, f"__{_sign}__", lambda self, f=_type: f(self.get()))
