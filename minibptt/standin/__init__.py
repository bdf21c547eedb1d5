"""A strict stand-in for CuPy, over NumPy, for machines without a GPU: `mb.use_backend(minibptt.standin.xp)`.

It refuses what CuPy refuses: an array that becomes a NumPy array unasked, NumPy arrays and lists in operators and
functions, and names and arguments that CuPy does not have. It also refuses np.exp(x) and np.sum(x) on its arrays,
which CuPy lets pass: a stray `np.` should be seen. As on a device, an integer array used as an index wraps around
instead of raising. `counter` counts what costs time: copies in both directions, waits for the device, and launches;
`pool` is a memory pool that keeps what was freed. It shows how often a program asks something of a device, and never
how long a device would take. Its array is `DeviceArray`. Read after backend.py: counting.py, memory.py, arrays.py,
ufuncs.py, kernel.py, library.py; clock.py shows by itself why a clock must wait.
"""

from .arrays import DeviceArray, array, asarray
from .clock import Queue
from .counting import Counter, counted, counter
from .kernel import ElementwiseKernel
from .library import FUNCTIONS, xp
from .memory import MemoryHook, Pool, pool
from .ufuncs import UFUNCS, Ufunc

__all__ = [
    "FUNCTIONS",
    "UFUNCS",
    "Counter",
    "DeviceArray",
    "ElementwiseKernel",
    "MemoryHook",
    "Pool",
    "Queue",
    "Ufunc",
    "array",
    "asarray",
    "counted",
    "counter",
    "pool",
    "xp",
]
