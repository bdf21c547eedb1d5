"""A device to be timed, which is busy and must be warmed up, and the clocks that people write for it (exercise 12.2).

Read after ../../standin/clock.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ... import standin


class Device:
    """A device that is busy with something else, and work for it, whose first call compiles."""

    def __init__(self, seed: int):
        rng = np.random.default_rng([12, seed])
        self.queue = standin.Queue(launch=5e-6)
        self.launches, self.each, self.calls = int(rng.integers(3, 30)), float(rng.uniform(5e-5, 5e-4)), 0
        for _ in range(50):
            self.queue.launch(1e-3)

    def work(self) -> None:
        self.calls += 1
        if self.calls == 1:
            self.queue.launch(2.0)
        for _ in range(self.launches):
            self.queue.launch(self.each)

    def time_by(self, clock: Callable[..., Any]) -> Any:
        return clock(self.work, self.queue.synchronize, self.queue.clock)


def _clock(work: Any, wait: Any, clock: Any, warm_up: int = 1, first: bool = True, last: bool = True) -> float:
    """The honest clock, or one with a part left out."""
    for _ in range(warm_up):
        work()
    if first:
        wait()
    start = clock()
    work()
    if last:
        wait()
    return float(clock() - start)


def _wait_after_the_start(work: Any, wait: Any, clock: Any) -> float:
    work()
    start = clock()
    wait()
    work()
    wait()
    return float(clock() - start)


def _wait_before_the_warm_up_alone(work: Any, wait: Any, clock: Any) -> float:
    wait()
    work()
    return _clock(work, wait, clock, warm_up=0, first=False)


def _two_calls(work: Any, wait: Any, clock: Any) -> float:
    wait()
    start = clock()
    work()
    work()
    wait()
    return float(clock() - start)


# What each does wrong, in the words of the check.
CLOCKS: dict[str, Callable[[Any, Any, Any], float]] = {
    "the clock stops before the device has finished: that is how long asking takes": partial(_clock, last=False),
    "the clock starts while the device is still busy: what was launched before is in your time": partial(
        _clock, first=False
    ),
    "the first call is in your time, and it compiles: warm up": partial(_clock, warm_up=0),
    "the first call is in your time, and so is what was launched before: warm up, then wait": partial(
        _clock, warm_up=0, first=False
    ),
    "no warm-up, and the clock stops before the device has finished: that is how long asking takes": partial(
        _clock, warm_up=0, last=False
    ),
    "the clock starts before the wait: what was launched before is in your time": _wait_after_the_start,
    "you wait before the warm-up, and not after it: the device is still warming up when the clock "
    "starts": _wait_before_the_warm_up_alone,
    "that is the time of warming up and of one more call: start the clock after the warm-up": _two_calls,
}
