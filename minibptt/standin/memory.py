"""The memory of a device that does not exist: what is live, and what was freed and is kept. It needs no other file."""

from __future__ import annotations

import weakref
from collections import Counter as Bag
from typing import Any

import numpy as np


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


pool = Pool()


class MemoryHook:
    """Is told of every block that the pool gives out, inside `with hook:`."""

    def __enter__(self):
        pool.hooks.append(self)
        return self

    def __exit__(self, *exception):
        pool.hooks.remove(self)

    def malloc_postprocess(self, **of_block):
        pass
