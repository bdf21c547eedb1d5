"""Gradients before the step: clipped, and checked for NaN and infinity. Read after module.py.

Clipping stays on the device, and never scales up. Only `check_finite` waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .backend import Array, is_array, library_of, to_numpy
from .gradients import Gradients
from .module import check_number

LARGE = 1e100  # the square of what is larger might pass float64
SHRINK = 2.0**600  # a power of two, so that nothing is rounded on the way


def check_gradients(what: str, gradients: Any, kinds: str = "f") -> None:
    """TypeError for what is no dict of arrays by name, and for arrays of other kinds of numbers than these."""
    if not isinstance(gradients, Mapping):
        raise TypeError(f"{what} takes tape.gradient(loss, model), found {type(gradients).__name__}")
    for name, g in gradients.items():
        if not is_array(g) and not isinstance(g, np.generic):  # arithmetic makes NumPy numbers of arrays of shape ()
            raise TypeError(
                f"{what}: the gradient of {name} must be an array, found {type(g).__name__}: give "
                "tape.gradient(loss, model)"
            )
        if g.dtype.kind not in kinds:
            raise TypeError(
                f"{what}: the gradient of {name} is {g.dtype}, and a gradient is an array of "
                f"{'real numbers' if kinds == 'f' else 'numbers'}, float32 or float64: give g.astype(numpy.float32)"
            )


def all_finite(gradients: Mapping[str, Array]) -> Array:
    """Whether every number of every gradient is finite: one boolean of shape (), where the gradients are."""
    flags = finite_flags(gradients)
    return library_of(flags).asarray(flags.all())


def finite_flags(gradients: Mapping[str, Array]) -> Array:
    """For each gradient in turn, whether all its numbers are finite: booleans where the gradients are."""
    arrays = list(gradients.values())
    xp = library_of(arrays[0])
    return xp.stack([xp.asarray(xp.isfinite(g).all()) for g in arrays])


def check_finite(gradients: Gradients) -> Gradients:
    """The gradients as they are. ValueError that names the first parameter whose gradient has NaN or infinity in it.

    It waits for the device, so a training loop asks where it reads the loss. Clipping before it hides nothing.
    """
    check_gradients("check_finite", gradients, "fc")
    if gradients and not bool(all_finite(gradients)):
        bad = {name: int(g.size - np.isfinite(to_numpy(g)).sum()) for name, g in gradients.items()}
        name = next(name for name, n in bad.items() if n)
        others = len([n for n in bad.values() if n]) - 1
        more = f", and so are some of {others} more parameter{'s' * (others > 1)}" if others else ""
        raise ValueError(
            f"the gradient of {name} is not finite: {bad[name]} of its {gradients[name].size} numbers are NaN or "
            f"infinite{more}. An optimiser's step leaves all weights as they are then. Give a smaller lr, or clip the "
            "gradients of the steps before"
        )
    return gradients


def clip_by_global_norm(gradients: Gradients, most: float) -> Gradients:
    """Scale all gradients by one factor, so that their common norm is at most `most`; never scales up.

    The factor stays on the device. Gradients that are not finite come back as they are, so that `check_finite` still
    finds the parameter that they started from. ValueError for most ≤ 0, TypeError for gradients that are no floats.
    """
    most = check_number("clip_by_global_norm: the largest norm", most, above=True, infinite=True)
    check_gradients("clip_by_global_norm", gradients)
    arrays = list(gradients.values())
    if not arrays:
        return gradients
    xp, finite = library_of(arrays[0]), all_finite(gradients)
    scale = _scale(arrays)
    small = arrays if scale is None else [g / scale for g in arrays]
    squares = [xp.sum(xp.multiply(g, g, dtype=xp.float64)) for g in small]
    norm = xp.sqrt(sum(squares[1:], squares[0]))
    factor = 1 / xp.maximum(1.0, norm / most) if scale is None else 1 / xp.maximum(1 / scale, norm / most) / scale
    factor = xp.where(finite, factor, 1.0)
    return Gradients({name: g * factor.astype(g.dtype) for name, g in gradients.items()})


def _scale(arrays: list[Array]) -> Array | None:
    """What gradients are divided by before they are squared, where they are: 1 unless one is very large.

    None where no square can pass float64, in which it is taken: that of a float32 cannot.
    """
    wide = [g for g in arrays if g.size and g.dtype.itemsize > 4]
    if not wide:
        return None
    xp = library_of(wide[0])
    largest = xp.stack([xp.max(xp.abs(g)) for g in wide]).max()
    return xp.where(largest > LARGE, SHRINK, 1.0)


def clip_by_value(gradients: Gradients, most: float) -> Gradients:
    """Bring every number of every gradient to between −most and most. The direction may change, unlike by the norm.

    NaN and infinity stay as they are, for `check_finite` to find. ValueError for most ≤ 0,
    TypeError for gradients that are no floats.
    """
    most = check_number("clip_by_value: the largest value", most, above=True, infinite=True)
    check_gradients("clip_by_value", gradients)

    def clipped(g: Array) -> Array:
        xp, limit = library_of(g), min(most, float(np.finfo(g.dtype).max))
        return xp.where(xp.isfinite(g), xp.maximum(xp.minimum(g, limit), -limit), g)

    return Gradients({name: clipped(g) for name, g in gradients.items()})
