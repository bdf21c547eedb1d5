"""Figures. The only folder that knows matplotlib; read style.py first, then triangle.py.

Every function takes `ax=None`, returns the Axes (an array of them where a figure has several panels), never calls show,
and leaves rcParams alone. A figure of its own has the size of a projector's slide, 1280 × 720 at 100 dots per inch.
"""

from .adjoints import adjoints
from .benchmark import benchmark
from .compare import compare
from .drift import drift
from .jacobians import highway, jacobians
from .lags import lags
from .pairs import contributions
from .schemes import schemes
from .style import save
from .tape import tape
from .training import training

__all__ = [
    "adjoints",
    "benchmark",
    "compare",
    "contributions",
    "drift",
    "highway",
    "jacobians",
    "lags",
    "save",
    "schemes",
    "tape",
    "training",
]
