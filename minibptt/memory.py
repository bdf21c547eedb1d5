"""How much memory arrays use: a device's pool, reserved against live, and the peak of a piece of work.

On a device the pool keeps what was freed, so what is reserved must not be taken for what is live, and a peak must be
looked at while the work goes on. Read after backend.py.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from .backend import BackendError, current_library, library_named, name_of


def device_memory(name: str | ModuleType | None = None) -> dict[str, int]:
    """{"reserved": bytes that the memory pool of the device holds, "live": bytes of them that arrays use now}.

    name: a backend, by default the current one. The pool keeps what was freed, so `reserved` says what was once needed
    and never shrinks by itself; nvidia-smi shows it too. BackendError on NumPy, which has no pool: use tracemalloc.
    """
    library = current_library() if name is None else library_named(name)
    if not hasattr(library, "get_default_memory_pool"):
        raise BackendError(f"{name_of(library)} has no memory pool: tracemalloc measures what arrays on the host use")
    pool = library.get_default_memory_pool()
    return {"reserved": pool.total_bytes(), "live": pool.used_bytes()}


def peak_memory(work: Callable[[], Any], name: str | ModuleType | None = None) -> int:
    """The most bytes that were live while work() ran, above what was live before, in the backend `name`.

    On a device the pool's live bytes are looked at whenever it gives out a block.
    """
    if not callable(work):
        raise TypeError(
            f"peak_memory takes a function without arguments, as peak_memory(lambda: …), found {work!r:.80}"
        )
    library = current_library() if name is None else library_named(name)
    if library is np:
        return _peak_on_the_host(work)
    pool, seen = library.get_default_memory_pool(), [0]

    def look(self: Any, **of_block: Any) -> None:
        seen.append(max(seen.pop(), pool.used_bytes()))

    hook = type("Peak", (library.cuda.MemoryHook,), {"name": "Peak", "malloc_postprocess": look})()
    before = pool.used_bytes()
    with hook:
        work()
    return max(0, seen[0] - before)


def _peak_on_the_host(work: Callable[[], Any]) -> int:
    running = tracemalloc.is_tracing()
    if not running:
        tracemalloc.start()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    work()
    peak = tracemalloc.get_traced_memory()[1] - before
    if not running:
        tracemalloc.stop()
    return peak
