"""Does the memory of a training grow with the stream? A million time steps, the state carried, nothing kept.

    python benchmarks/memory.py [--steps 1000000] [--out FOLDER]

An endless stream of numbers in B = 8 rows, windows of k = 20 steps, an LSTM with H = 32 units, an update of Adam for
each window, by `minibptt.train`. What is measured is the resident memory of the process (/proc/self/statm, on Linux),
and what Python and NumPy hold (tracemalloc, which makes everything slower: --traced). What counts is the growth after
the first tenth of the steps: the least of the readings of the last tenth over the least of those of the second tenth,
so that a passing peak is not taken for growth. Writes memory.csv, one line for each reading.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from arguments import at_least, folder

import minibptt as mb

H, B, K, V = 32, 8, 20, 50
READINGS = 100
Reading = tuple[int, int]  # time steps done, bytes


def tokens(rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Steps (B,) of a stream without an end: each token is the one before, or one more, or any."""
    now = rng.integers(0, V, B)
    while True:
        yield now
        now = np.where(rng.random(B) < 0.1, rng.integers(0, V, B), (now + rng.integers(0, 2, B)) % V)


def resident() -> int:
    """Bytes of this process that are in memory. OSError where the system does not say so in /proc."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def traced() -> int:
    """Bytes that Python and NumPy hold."""
    return tracemalloc.get_traced_memory()[0]


def readings(steps: int, read: Callable[[], int]) -> list[Reading]:
    """Train for so many time steps; the memory at a hundred moments."""
    model = mb.Sequential(mb.Embedding(V, H, rng=1), mb.LSTM(H, H, rng=2), mb.Linear(H, V, rng=3))
    optimiser, state = mb.Adam(model, lr=2e-3), None
    stream = mb.stream_batches(tokens(np.random.default_rng(0)), batch=B, steps=K)
    windows, found = steps // K, []
    for i in range(READINGS):
        part = windows * (i + 1) // READINGS - windows * i // READINGS
        result = mb.train(
            model, stream, mb.cross_entropy, mb.full(), optimiser, updates=part, state=state, progress=False
        )
        state = result.state
        found.append((stream.position, read()))
        if result.stopped:
            break
    return found


def growth(found: list[Reading]) -> int:
    """Bytes from the second tenth of the readings to the last."""
    tenth = len(found) // 10
    sizes = [size for _, size in found]
    return min(sizes[-tenth:]) - min(sizes[tenth : 2 * tenth])


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=at_least(K * READINGS), default=1_000_000, help="time steps of each row")
    parser.add_argument("--traced", action="store_true", help="by tracemalloc")
    parser.add_argument("--out", type=folder, metavar="FOLDER", help="write memory.csv there")
    options = parser.parse_args(argv)
    if options.traced:
        tracemalloc.start()
    elif not os.path.exists("/proc/self/statm"):
        parser.error("this system does not tell the memory of a process in /proc: give --traced")
    start = time.perf_counter()
    found = readings(options.steps, traced if options.traced else resident)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        with open(options.out / "memory.csv", "w", newline="") as file:
            csv.writer(file).writerows([("time_steps", "bytes"), *found])
    sizes = [size for _, size in found]
    tenth, end = [f"{size / 2**20:.2f} MiB" for size in (sizes[len(sizes) // 10], sizes[-1])]
    print(f"{found[-1][0]:,} time steps in {time.perf_counter() - start:.0f} s")
    print(f"{tenth} after a tenth, {end} at the end, growth {growth(found):,} bytes")


if __name__ == "__main__":
    main()
