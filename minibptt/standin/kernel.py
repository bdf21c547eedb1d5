"""A kernel whose body is C, run by NumPy: one launch for a whole step of a cell. Read after arrays.py."""

from __future__ import annotations

import re

import numpy as np

from .arrays import host_of, on_device
from .counting import counter


class ElementwiseKernel:
    """One launch whose body, straight-line C, is evaluated by NumPy: declarations, assignments, sigmoid, relu, tanh."""

    def __init__(self, in_params, out_params, operation, name="kernel", reduce_dims=True, preamble="", **kwargs):
        self.name, self.operation, self.preamble = name, operation, preamble
        self.params = [p.split() for text in (in_params, out_params) for p in text.split(",")]
        self.nin = len(in_params.split(","))

    def __call__(self, *args, size=None):
        if len(args) != len(self.params):
            raise TypeError(f"{self.name} takes {len(self.params)} arguments, found {len(args)}")
        counter.launches += 1
        hosts = {}
        for (*kind, name), value in zip(self.params, args):
            hosts[name] = host_of(on_device(value)) if "T" in kind else int(value)
        arrays = [host for host in hosts.values() if isinstance(host, np.ndarray)]
        if len({host.dtype for host in arrays}) > 1:
            raise TypeError(f"{self.name}: the arrays of type T are of {sorted({str(a.dtype) for a in arrays})}")
        if not all(host.flags.c_contiguous for host in arrays):
            raise ValueError(f"{self.name}: every array must be C-contiguous")
        self.run(hosts, size)

    def run(self, hosts, size):
        """Work out the body on NumPy's arrays, by the names of the parameters, for all i below size at once."""
        names = {"i": np.arange(size), "sigmoid": sigmoid, "tanh": np.tanh, "relu": lambda x: np.maximum(x, 0)}
        names |= {name: host.reshape(-1) if isinstance(host, np.ndarray) else host for name, host in hosts.items()}
        for statement in re.split("[;{}]", self.operation):
            line = statement.strip()
            whole = line.startswith("const int ")  # only there is a division one of whole numbers
            line = line.removeprefix("const int ").removeprefix("T ")
            if "=" in line:
                exec(line.replace("/", "//") if whole else line, names)


def sigmoid(x):
    """σ(x), which overflows nowhere."""
    return 0.5 + 0.5 * np.tanh(0.5 * x)
