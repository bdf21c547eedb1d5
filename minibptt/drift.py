"""Where single precision leaves double precision: the same weights and inputs, run in both, step by step.

Read after sequence.py.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from .backend import is_array, library_of, to_numpy
from .module import check_model, evaluating, first_array
from .nest import map_nest
from .parameters import recast
from .sequence import run, sequence_input
from .tape import no_tape


@dataclass(frozen=True)
class Drift:
    """outputs: ‖y₃₂ − y₆₄‖ / ‖y₆₄‖ at each step, (T,), over all rows; nan where y₆₄ is 0. title: for the figure."""

    outputs: np.ndarray
    title: str = ""


def drift(model: Any, x: Any, *, state: Any = None, title: str = "", **options: Any) -> Drift:
    """How far float32 leaves float64 on the sequence x (T, B, …): the same float32 weights, inputs and state.

    options: as for `unroll`. Dropout is off. Nothing of `model` changes. It runs where the weights are.
    """
    check_model(model)
    x = sequence_input(getattr(x, "value", x))
    library = library_of(first_array(model, x))
    found = []
    for dtype in (np.float32, np.float64):
        twin = copy.deepcopy(model)
        for _, p in twin.named_parameters():
            recast(p, np.float32)  # so that both start from the same numbers
            recast(p, dtype)
        here = x
        if x.dtype.kind == "f":
            here = library.asarray(x).astype(np.float32).astype(dtype)
        start = map_nest(lambda h: _in(h, dtype), state)  # noqa: B023
        with no_tape(), evaluating(twin):
            outputs, _ = run(twin, here, start, **options)
        found.append(to_numpy(outputs).astype(np.float64).reshape(len(x), -1))
    single, double = found
    size = np.linalg.norm(double, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return Drift(np.where(size > 0, np.linalg.norm(single - double, axis=1) / size, np.nan), title)


def _in(h: Any, dtype: Any) -> Any:
    """A part of a state by its float32 numbers in `dtype`. What has no numbers stays, for `run` to say so."""
    h = getattr(h, "value", h)
    return h.astype(np.float32).astype(dtype) if is_array(h) else h
