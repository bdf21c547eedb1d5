"""`xp`: the same test body on NumPy, on the strict stand-in for CuPy, and on CuPy where there is a device."""

import os

os.environ.setdefault("MPLBACKEND", "Agg")

import importlib
import signal
import sys

import numpy as np
import pytest

import minibptt as mb
from minibptt import backend
from minibptt import standin as strict_cupy

sys.modules["strict_cupy"] = strict_cupy  # the name by which tests know it

CUPY = backend.backend_report()["cupy"]
LIBRARIES = ["numpy", "strict"]
if CUPY.startswith("ok"):
    LIBRARIES.append(pytest.param("cupy", marks=pytest.mark.gpu))


def pytest_terminal_summary(terminalreporter):
    if len(LIBRARIES) == 2:
        terminalreporter.write_line(f"xp: NumPy and the stand-in, not CuPy: {CUPY}")


@pytest.fixture(autouse=True, scope="session")
def ctrl_c_counts():
    """SIGINT means Ctrl-C, here and in processes that tests start, where pytest was started to ignore it (nohup)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(params=LIBRARIES)
def xp(request):
    """An array library; new arrays are made there while the test runs."""
    if request.param == "cupy":
        library = importlib.import_module("cupy")
    else:
        library = {"numpy": np, "strict": strict_cupy.xp}[request.param]
    strict_cupy.counter.reset()
    with mb.use_backend(library):
        yield library
