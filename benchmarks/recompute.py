"""Full BPTT in segments that are run again: memory and time beside those of one tape over everything.

    python benchmarks/recompute.py [--T 1000] [--batch 16] [--hidden 64] [--segments 4 10 32 63] [--runs 5] [--out DIR]

One LSTM with a small readout, float32, on the CPU, by both engines. Memory is the peak of what Python and NumPy
allocate in one `bptt` (tracemalloc), outputs and loss included; time the median of several, each schedule in turn.
Every segment is run twice forward and once backward, so where a backward pass takes as long as two forward passes the
time is 4/3 of full BPTT's (Chen et al. 2016, arXiv 1604.06174; better placed states: Gruslys et al. 2016, arXiv
1606.03401). Prints a table; writes recompute.csv into the folder minibptt-recompute or into DIR. On a busy machine set
OPENBLAS_NUM_THREADS=1: threads that wait for each other cost most where products are small.
"""

from __future__ import annotations

import argparse
import csv
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from arguments import folder

import minibptt as mb
from minibptt.cells import buffers
from minibptt.commands.arguments import positive

EXPECTED = 4 / 3
ABOUT = ["machine", "python", "numpy"]


def steps(engine: str, T: int, B: int, H: int, segments: list[int]) -> dict[str, Callable[[], mb.Gradients]]:
    """By the name of its schedule, a full gradient of an LSTM with H inputs and H units, read out by one number."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((T, B, n)).astype(np.float32) for n in (H, 1))
    model = mb.Sequential(mb.LSTM(H, H, engine=engine, rng=0), mb.Linear(H, 1, rng=1))
    schedules = [mb.full(), *[mb.recompute(n) for n in segments]]
    return {str(s): lambda s=s: mb.bptt(model, x, y, mb.mse, s) for s in schedules}


def peak_bytes(step: Callable[[], object]) -> int:
    """The most bytes in use during a step above what was in use before."""
    buffers.clear()  # so that the step pays for its arrays
    return mb.peak_memory(step)


def median_seconds(work: dict[str, Callable[[], object]], runs: int) -> dict[str, float]:
    """The median seconds of each after a first run to warm up, in turn, so that all meet the same machine."""
    seen: dict[str, list[float]] = {name: [] for name in work}
    for run in range(runs + 1):
        for name, step in work.items():
            start = time.perf_counter()
            step()
            if run:
                seen[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seen.items()}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--T", type=positive, default=1000)
    parser.add_argument("--batch", type=positive, default=16)
    parser.add_argument("--hidden", type=positive, default=64)
    parser.add_argument("--segments", type=positive, nargs="+", default=[4, 10, 32, 63])
    parser.add_argument("--runs", type=positive, default=5)
    parser.add_argument("--out", type=folder, default=Path("minibptt-recompute"))
    options = parser.parse_args(argv)
    if max(options.segments) > options.T:
        parser.error(f"argument --segments: {options.T} steps cannot be cut into {max(options.segments)} segments")
    T, B, H = options.T, options.batch, options.hidden
    print(f"LSTM, T = {T}, B = {B}, D = H = {H}, float32; time expected: {EXPECTED:.2f} × full")
    rows = []
    for engine in ("explicit", "tape"):
        work = steps(engine, T, B, H, options.segments)
        peaks = {name: peak_bytes(step) for name, step in work.items()}
        times = median_seconds(work, options.runs)
        print(f"\n{engine:34}{'peak MiB':>10}{'of full':>10}{'ms':>10}{'× full':>10}{'expected':>10}")
        for name in work:
            memory, ratio = peaks[name] / peaks["full"], times[name] / times["full"]
            expected = 1.0 if name == "full" else EXPECTED
            size, ms = peaks[name] / 2**20, times[name] * 1e3
            print(f"{name:34}{size:10.2f}{memory:10.1%}{ms:10.1f}{ratio:10.2f}{expected:10.2f}")
            rows.append([engine, name, T, B, H, peaks[name], f"{ms:.2f}", f"{ratio:.3f}", expected])
    options.out.mkdir(parents=True, exist_ok=True)
    about = [platform.processor() or platform.machine(), platform.python_version(), np.__version__]
    with open(options.out / "recompute.csv", "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(
            ["engine", "schedule", "T", "B", "H", "peak_bytes", "milliseconds", "over_full", "expected", *ABOUT]
        )
        out.writerows([[*row, *about] for row in rows])
    print(f"\nWritten to {options.out}: recompute.csv")


if __name__ == "__main__":
    main()
