"""Operations on each element, and the operators of the array, which are the same launches. Read after arrays.py."""

from __future__ import annotations

import numpy as np

from .arrays import DeviceArray, host_index, host_of, launched
from .counting import counter


class Ufunc:
    """Takes arrays of its own and numbers, no where=. `reduce` is there for add and multiply alone, `at` for add."""

    def __init__(self, name):
        self.__name__, self._numpy = name, getattr(np, name)
        if name == "add":
            self.at = self._at
        if name in ("add", "multiply"):
            self.reduce = lambda a, axis=0, dtype=None, out=None, keepdims=False: launched(
                self._numpy.reduce(host_of(a), axis=axis, dtype=dtype, keepdims=keepdims)
            )

    def __call__(self, *inputs, out=None, casting="same_kind", dtype=None):
        host = None if out is None else host_of(out)
        result = launched(self._numpy(*[host_of(x) for x in inputs], out=host, casting=casting, dtype=dtype))
        return result if out is None else out

    def _at(self, a, slices, b=None):
        counter.launches += 1
        self._numpy.at(host_of(a), host_index(slices, a.shape), host_of(b))


NAMES = """abs add bitwise_and bitwise_or divide equal exp expm1 greater greater_equal invert isfinite isnan less
less_equal log log1p matmul maximum minimum multiply negative not_equal power sign sqrt square subtract tanh"""
UFUNCS = {name: Ufunc(name) for name in NAMES.split()}

OPERATORS = dict(add="add", sub="subtract", mul="multiply", truediv="divide", pow="power", matmul="matmul")
OPERATORS |= dict(lt="less", le="less_equal", gt="greater", ge="greater_equal", eq="equal", ne="not_equal")
OPERATORS |= {"and": "bitwise_and", "or": "bitwise_or"}


def _operator(sign, ufunc):
    def forward(self, other):
        if hasattr(other, "__array_ufunc__") and not isinstance(other, DeviceArray | np.ndarray | np.generic):
            return NotImplemented  # a tensor answers for itself
        return ufunc(self, other)

    setattr(DeviceArray, f"__{sign}__", forward)
    setattr(DeviceArray, f"__r{sign}__", lambda self, other: ufunc(other, self))
    setattr(DeviceArray, f"__i{sign}__", lambda self, other: ufunc(self, other, out=self))


for _sign, _name in OPERATORS.items():
    _operator(_sign, UFUNCS[_name])
for _sign, _name in dict(neg="negative", abs="abs", invert="invert").items():
    setattr(DeviceArray, f"__{_sign}__", lambda self, f=UFUNCS[_name]: f(self))
