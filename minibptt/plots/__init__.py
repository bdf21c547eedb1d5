"""Figures. The only folder that knows matplotlib; read style.py first, then triangle.py.

Every function takes `ax=None`, returns the Axes (an array of them where a figure has several panels), never calls show,
and leaves rcParams alone. A figure of its own has the size of a projector's slide, 1280 × 720 at 100 dots per inch.
"""

from .benchmark import benchmark
from .compare import compare
from .drift import drift
from .lags import lags
from .pairs import contributions
from .schemes import schemes
from .style import save
from .training import training

__all__ = ["benchmark", "compare", "contributions", "drift", "lags", "save", "schemes", "training"]
