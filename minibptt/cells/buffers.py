"""Large arrays that are used again, so that a training loop does not ask the system for fresh pages at each step.

The explicit passes fill a few arrays of T·B·H numbers at every call and drop them all when the tape goes. Fresh
pages are slow to get; the arrays of the call before are warm. An array is handed out again only when nobody
else holds it or a view of it, so nothing that a caller can still see is ever overwritten. Read after ../backend.py.
"""

from __future__ import annotations

import math
import sys
import threading
from typing import Any

import numpy as np

from ..backend import Array

SMALLEST, LIMIT = 2**17, 2**27  # bytes: smaller arrays are not worth keeping; kept at most, in each thread
COUNTED = hasattr(sys, "getrefcount")  # without it (PyPy) nobody knows whether an array is free: none is kept


class _Pool(threading.local):
    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []


_pool = _Pool()


def empty(xp: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    """An array whose values are whatever was there before. CuPy keeps a pool of its own."""
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    if xp is not np or not COUNTED or not SMALLEST <= size <= LIMIT:
        return xp.empty(shape, dtype=dtype)
    arrays = _pool.arrays
    for i in range(len(arrays)):
        if arrays[i].nbytes == size and _holders(arrays, i) == _FREE:
            arrays.append(arrays.pop(i))  # what was used last stands last
            return arrays[-1].view(dtype).reshape(shape)
    arrays.append(np.empty(size, np.uint8))
    while sum(array.nbytes for array in arrays) > LIMIT:
        del arrays[0]  # what was used longest ago; whoever holds it still has it
    return arrays[-1].view(dtype).reshape(shape)


def _holders(arrays: list[np.ndarray], i: int) -> int:
    """How many references there are to an array of the list."""
    return sys.getrefcount(arrays[i])


_FREE = _holders([np.empty(1)], 0) if COUNTED else 0  # held by the list and by the question itself alone


def clear() -> None:
    """Forget the arrays that are kept, for example to measure memory."""
    _pool.arrays.clear()
