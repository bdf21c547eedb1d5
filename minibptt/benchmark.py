"""How long a training step takes, on the CPU and on a GPU: warmed up, and synchronised on both sides of the clock.

A device works behind the back of the program: a launch returns at once. A clock that starts before the queue is empty
counts what came before, and one that stops before the device has finished measures how fast it is asked to work. What
is found is explained by the simplest model, time = launches · a + flops · b: small steps are bound by launches, large
ones by arithmetic. Read after standin/clock.py.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from .backend import (
    BACKENDS,
    available_backends,
    backend_report,
    library_named,
    name_of,
    synchronize,
    to_backend,
    use_backend,
)
from .cells.kernels import fusing, unfused
from .layers import Embedding
from .losses import mse
from .module import check_model, check_number, check_size, check_whole, evaluating
from .recurrent import CELLS
from .sequence import run, sequence_input
from .tape import Tape
from .tensor import number_type

if TYPE_CHECKING:
    from .timings import Benchmark, Timing


def timed(
    work: Callable[[], Any],
    synchronize: Callable[[], Any],
    *,
    seconds: float = 0.3,
    least: int = 5,
    most: int = 200,
    warm_up: int = 3,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """How long each of several calls of work() took, after `warm_up` calls that do not count.

    synchronize: waits until the device has finished; it is called before the clock starts and before it stops. The
    measurement takes about `seconds`, but at least `least` and at most `most` calls.
    """
    if not callable(work) or not callable(synchronize):
        raise TypeError("timed takes two functions without arguments: the work, and what waits for the device")
    check_size("timed", least=least, most=most)
    check_whole("timed", warm_up=warm_up)
    check_number("timed: seconds", seconds, infinite=True)
    for _ in range(warm_up):
        work()
    times: list[float] = []
    while len(times) < least or (sum(times) < seconds and len(times) < most):
        synchronize()
        start = clock()
        work()
        synchronize()
        times.append(clock() - start)
    return times


def training_step(model: Any, x: Any) -> Any:
    """Forward and backward of the mean square of the outputs: the gradients of all parameters. Copies nothing."""
    with Tape() as tape:
        outputs, _ = run(model, x)
        loss = mse(outputs, outputs.value * 0)
    return tape.gradient(loss, model)


def launches_of(model: Any, x: Any, fused: bool = True) -> int:
    """How many launches a training step asks of a device, counted on the stand-in; one operation counts as one.

    fused: by one kernel a step, or by one launch for each operation of the explicit passes. The number grows evenly
    with T, so two short sequences tell it. CuPy makes two launches of some operations, as of a long sum.
    """
    from . import standin  # here, so that `import minibptt` stays quick: few programs measure

    twin = copy.deepcopy(model).to(standin.xp)
    x = sequence_input(getattr(x, "value", x))
    T, ids = len(x), x.dtype.kind in "iu"
    found = []
    for steps in (2, 3):
        here = x[:steps] if ids else to_backend(x[:steps], standin.xp)
        if fused:
            _, counts = standin.counted(partial(training_step, twin, here))
        else:
            with unfused():
                _, counts = standin.counted(partial(training_step, twin, here))
        found.append(counts["launches"])
    return found[0] + (T - 2) * (found[1] - found[0])


def flops_of(model: Any, T: int, B: int) -> float:
    """About how many floating-point operations a training step takes: 6 · T · B for each number of a matrix.

    A product is 2 operations for each, and there are three: forward, and back to the inputs and to the weights.
    """
    rows = {id(m.W) for m in model.modules() if isinstance(m, Embedding)}
    return 6.0 * T * B * sum(p.size for _, p in model.named_parameters() if p.ndim == 2 and id(p) not in rows)


def benchmark(
    model: Any,
    x: Any,
    *,
    backends: Sequence[str | ModuleType] | None = None,
    seconds: float = 0.3,
    title: str = "",
    cell: str | None = None,
) -> Benchmark:
    """A training step of `model` on the sequence x (T, B, …), timed on each backend: `mb.benchmark(model, x).table()`.

    The model is copied to each backend and stays as it is; dropout is off. backends: by default those that work here;
    what is missing is kept with the result. seconds: about how long to measure each. cell: how the table calls it.
    """
    from .timings import Benchmark

    check_model(model)
    check_number("benchmark: seconds", seconds)
    if isinstance(backends, str | ModuleType):
        raise TypeError(f"benchmark: backends is a list of them, [{backends!r}]; found one alone")
    if backends is not None and not isinstance(backends, Iterable):
        raise TypeError(f"benchmark: backends is a list of names, such as ['numpy', 'cupy']; found {backends!r}")
    for what, text in (("title", title), ("cell", cell or "")):
        if not isinstance(text, str):
            raise TypeError(f"benchmark: {what} is a text, found {text!r}")
    x = sequence_input(getattr(x, "value", x))
    given = available_backends() if backends is None else list(backends)
    if not given:
        raise ValueError(
            "benchmark: backends is an empty list; name one or more, or leave it out for all that work here"
        )
    report = backend_report() if backends is None else {}
    rows = [_timing(model, x, library_named(name), seconds, cell) for name in given]
    missing = {name: report[name] for name in BACKENDS if name in report and name not in available_backends()}
    return Benchmark(tuple(rows), missing, title)


def _timing(model: Any, x: Any, library: ModuleType, seconds: float, cell: str | None) -> Timing:
    """A training step of a copy of the model in one library."""
    from .timings import Timing, where_it_ran

    T, B = x.shape[:2]
    ids = x.dtype.kind in "iu"
    with use_backend(library):
        twin, here = copy.deepcopy(model).to(library), x if ids else to_backend(x, library)
        with evaluating(twin):
            times = timed(partial(training_step, twin, here), partial(_wait, library), seconds=seconds)
    dtype = str(next(iter(model.parameters().values())).dtype)
    low, median, high = np.percentile(times, [25, 50, 75]).tolist()
    return Timing(
        backend=name_of(library),
        cell=cell or type(model).__name__.lower(),
        H=int(getattr(model, "H", 0) or 0),
        D=0 if ids or x.ndim < 3 else int(x.shape[2]),
        B=B,
        T=T,
        dtype=dtype,
        runs=len(times),
        median=median,
        low=low,
        high=high,
        launches=launches_of(model, to_backend(x, "numpy"), fused=fusing(library, dtype)),
        flops=flops_of(model, T, B),
        **where_it_ran(library),
    )


def sweep(
    cells: Iterable[str] = ("lstm",),
    hidden: Iterable[int] = (32, 64, 128, 256),
    batches: Iterable[int] = (1, 32),
    lengths: Iterable[int] = (50,),
    *,
    backends: Sequence[str | ModuleType] | None = None,
    seconds: float = 0.3,
    dtype: Any = np.float32,
    progress: Callable[[int, int], None] | None = None,
) -> Benchmark:
    """`benchmark` for every combination of cell, H (and D = H), B and T. progress: called with (done, of).

    ValueError for an unknown cell and where there is nothing to measure, TypeError for one thing where a list belongs.
    """
    from .timings import Benchmark

    sizes = {"hidden": hidden, "batches": batches, "lengths": lengths}
    for what, given in {"cells": cells, **sizes}.items():
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise TypeError(f"sweep: {what} is a list of them, [{given!r}]; found one alone")
    cells, (hidden, batches, lengths) = list(cells), map(list, sizes.values())
    for what, numbers in {"hidden": hidden, "batches": batches, "lengths": lengths}.items():
        for size in numbers:
            check_size("sweep", **{f"each of {what}": size})
    several = [(H, B, T) for T in lengths for B in batches for H in hidden]
    if not cells or not several:
        empty = [what for what, given in [("cells", cells), *zip(sizes, (hidden, batches, lengths))] if not given]
        raise ValueError(f"sweep: there is nothing to measure, for {' and '.join(empty)} is empty")
    for cell in cells:
        if cell not in CELLS:
            raise ValueError(f"sweep: a cell is one of {', '.join(map(repr, CELLS))}; found {cell!r}")
    dtype, parts = number_type("sweep", dtype, "f"), []
    for cell in cells:
        for H, B, T in several:
            x = np.random.default_rng(0).standard_normal((T, B, H)).astype(dtype)
            with use_backend("numpy"):
                model = CELLS[cell](H, H, rng=0, dtype=dtype)
            parts.append(benchmark(model, x, backends=backends, seconds=seconds, cell=cell))
            if progress:
                progress(len(parts), len(cells) * len(several))
    rows = tuple([row for part in parts for row in part.rows])
    return Benchmark(rows, parts[0].missing)


def _wait(library: ModuleType) -> None:
    with use_backend(library):
        synchronize()


def crossover(sizes: Sequence[float], one: Sequence[float], other: Sequence[float]) -> float:
    """The size from which on `other` takes less time than `one`, on straight lines between logarithms; nan for none."""
    gain = np.log(np.asarray(one) / np.asarray(other))
    for i in range(len(sizes) - 1, -1, -1):
        if gain[i] <= 0:
            if i == len(sizes) - 1:
                return math.nan
            share = -gain[i] / (gain[i + 1] - gain[i])
            return float(np.exp(np.log(sizes[i]) * (1 - share) + np.log(sizes[i + 1]) * share))
    return float(sizes[0])
