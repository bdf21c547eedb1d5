"""Is a gradient right? Numerical derivatives against the tape, in float64. Read after ops.py.

The complex step (Squire and Trapp 1998), f'(x) ≈ Im f(x + ih) / h, has no cancellation, so h can be tiny and
the derivative is exact to rounding. It needs operations without kinks; for the others the central difference
(f(x + h) − f(x − h)) / 2h is good to about 1e-9. Either one sees a wrong derivative; neither sees a wrong
convention.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .backend import Array, as_array, library_of, to_numpy
from .module import Rng, check_model, check_number, check_whole, generator
from .parameters import Parameter, parameter
from .tape import Tape, no_tape
from .tensor import Tensor

TOLERANCE = {"complex step": 1e-11, "central difference": 1e-6}


class GradientError(ValueError):
    """Two gradients that should be equal differ. check: what was found, if `check_cell` or `check_step` raised it."""

    check: Any = None


@dataclass(frozen=True)
class GradientCheck:
    """What `check_gradient` found: the method, the largest error (relative to the largest entry of the gradient of
    that input), where it was, and the two numbers there."""

    method: str
    error: float
    where: str
    tape: float
    numerical: float

    def __str__(self) -> str:
        return (
            f"{self.method}: largest relative error {self.error:.2g} at {self.where} "
            f"(tape {self.tape:.10g}, numerical {self.numerical:.10g})"
        )


def check_gradient(
    function: Callable[..., Tensor],
    wrt: Any,
    *,
    method: str = "auto",
    tolerance: float | None = None,
    coordinates: int = 200,
    rng: Rng = 0,
) -> GradientCheck:
    """Compare the tape's gradient of `function` with numerical derivatives; GradientError where they differ.

    wrt: what to differentiate by. A module, a parameter or a list of these: `function()` uses them. An array or
    a list of arrays: `function(*tensors)` is called with them.
    method: "complex step", "central difference", or "auto": the first where the operations allow it.
    tolerance: the relative error allowed (default 1e-11 and 1e-6). coordinates: how many entries of each input are
    tried one by one, chosen by `rng` where there are more; a random direction through all of them is always
    tried. Everything runs in float64; afterwards parameters hold the same arrays as before.
    """
    if method not in ("auto", *TOLERANCE):
        raise ValueError(f"method must be 'auto', {' or '.join(map(repr, TOLERANCE))}, found {method!r}")
    check_whole("check_gradient", coordinates=coordinates)
    check_number("check_gradient: coordinates", coordinates)
    if tolerance is not None:
        tolerance = check_number("check_gradient: tolerance", tolerance, infinite=True)
    inputs, named, call = _inputs(function, wrt)
    rng = generator(rng)
    before = [p.value for p in inputs]
    try:
        for p in inputs:
            p.value = p.value.astype(np.float64)
        with Tape() as tape:
            loss = call()
        gradients = [to_numpy(g) for g in tape.gradient(loss, inputs)]
        if method == "auto":
            method = "complex step" if _allows_complex(call, inputs) else "central difference"
        derivative = _complex_step if method == "complex step" else _central_difference
        worst = _worst(method, derivative, call, inputs, named, gradients, coordinates, rng)
    finally:
        for p, value in zip(inputs, before):
            p.value = value
    if not worst.error <= (TOLERANCE[method] if tolerance is None else tolerance):  # nan fails too
        raise GradientError(str(worst))
    return worst


def _inputs(function: Callable[..., Tensor], wrt: Any) -> tuple[list[Parameter], list[str], Callable[[], Tensor]]:
    """The parameters to perturb, their names, and the function of no arguments that uses them."""
    if not callable(function):
        raise TypeError(
            f"check_gradient: the function must be one that returns a scalar tensor, found {function!r:.80}"
        )
    many = list(wrt) if isinstance(wrt, list | tuple) else [wrt]
    if not many:
        raise ValueError("check_gradient: there is nothing to differentiate by: give a module, parameters or arrays")
    known: list[tuple[str, Parameter]] = []
    for one in many:
        if isinstance(one, Parameter):
            known.append((one.name or f"parameter {len(known) + 1}", one))
        elif hasattr(one, "named_parameters"):
            check_model(one)
            known += one.named_parameters()
    if known:
        return [p for _, p in known], [name for name, _ in known], function
    inputs = [parameter(one, f"input {i + 1}", dtype=np.float64) for i, one in enumerate(many)]
    return inputs, [str(p.name) for p in inputs], lambda: function(*inputs)


def _worst(
    method: str,
    derivative: Callable[..., float],
    call: Callable[[], Tensor],
    inputs: list[Parameter],
    named: list[str],
    gradients: list[np.ndarray],
    coordinates: int,
    rng: np.random.Generator,
) -> GradientCheck:
    directions = [rng.standard_normal(p.shape) for p in inputs]
    along = math.fsum(float(np.sum(g * d)) for g, d in zip(gradients, directions))
    # Terms that cancel in the sum over a direction leave its rounding error behind: judge it by their size.
    size = math.fsum(float(np.sum(np.abs(g * d))) for g, d in zip(gradients, directions))
    checks = [("a random direction", along, derivative(call, inputs, directions), size)]
    for i, (p, g, name) in enumerate(zip(inputs, gradients, named)):
        places = np.arange(p.size) if p.size <= coordinates else rng.choice(p.size, coordinates, replace=False)
        scale = float(np.abs(g).max(initial=0.0))
        for place in places:
            one = [np.zeros(q.shape) for q in inputs]
            one[i].flat[place] = 1
            index = tuple(int(j) for j in np.unravel_index(place, p.shape))
            where = f"{name}{list(index)}" if index else name
            checks.append((where, float(g.flat[place]), derivative(call, inputs, one), scale))
    found = [
        GradientCheck(method, abs(tape - n) / scale if scale else abs(n), where, tape, n)
        for where, tape, n, scale in checks
    ]
    return max(found, key=lambda c: math.inf if math.isnan(c.error) else c.error)


def _value(call: Callable[[], Tensor], inputs: list[Parameter], directions: list[Array], step: complex) -> complex:
    """The loss at inputs + step·directions; the inputs are as before afterwards."""
    before = [p.value for p in inputs]
    try:
        for p, d in zip(inputs, directions):
            p.value = as_array(p.value + step * library_of(p.value).asarray(d))
        with no_tape():
            return call().item()
    finally:
        for p, value in zip(inputs, before):
            p.value = value


def _complex_step(call: Callable[[], Tensor], inputs: list[Parameter], directions: list[Array]) -> float:
    h = 1e-30
    return complex(_value(call, inputs, directions, h * 1j)).imag / h


def _central_difference(call: Callable[[], Tensor], inputs: list[Parameter], directions: list[Array]) -> float:
    size = max((float(np.abs(to_numpy(p.value)[d != 0]).max(initial=0.0)) for p, d in zip(inputs, directions)))
    h = 6e-6 * max(1.0, size)
    return (_value(call, inputs, directions, h) - _value(call, inputs, directions, -h)).real / (2 * h)


def _allows_complex(call: Callable[[], Tensor], inputs: list[Parameter]) -> bool:
    try:
        _value(call, inputs, [np.ones(p.shape) for p in inputs], 1e-30j)
    except TypeError:
        return False
    return True
