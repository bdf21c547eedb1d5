"""What costs time on a device, counted: copies, waits and launches. Read this file first."""

from __future__ import annotations


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
