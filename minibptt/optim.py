"""Optimisers: they take Gradients and move the parameters of a model. Read after module.py."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .backend import library_of
from .gradients import Gradients
from .tensor import Parameter, assign


class Adam:
    """Adam (Kingma and Ba 2015), with bias correction.

    model: a module. lr: the step size; betas: the decay of the two moments; eps: added to the root.
    ValueError where the model has no parameters.
    """

    def __init__(self, model: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8):
        if not hasattr(model, "named_parameters"):
            raise TypeError(f"Adam takes one module, found {type(model).__name__}; put several into a Sequential")
        if not isinstance(lr, int | float) or not 0 < lr < math.inf:
            raise ValueError(f"Adam: lr must be a positive number, found {lr!r}")
        self.parameters: dict[str, Parameter] = dict(model.named_parameters())
        if not self.parameters:
            raise ValueError(f"Adam: {type(model).__name__} has no parameters to learn")
        self.lr: float = lr
        self.betas, self.eps, self.t = betas, eps, 0
        self.m = {name: 0 * p.value for name, p in self.parameters.items()}
        self.v = {name: 0 * p.value for name, p in self.parameters.items()}

    def step(self, gradients: Gradients) -> None:
        """Move every parameter once. ValueError where the gradients are not those of this model."""
        if not isinstance(gradients, Mapping):
            raise TypeError(f"Adam: step takes tape.gradient(loss, model), found {type(gradients).__name__}")
        if set(gradients) != set(self.parameters):
            raise ValueError(f"Adam: gradients of {sorted(gradients)}, parameters {sorted(self.parameters)}")
        for name, p in self.parameters.items():
            if gradients[name].shape != p.shape:
                raise ValueError(
                    f"Adam: the gradient of {name} has shape {gradients[name].shape}, the parameter {p.shape}"
                )
        self.t += 1
        β1, β2 = self.betas
        for name, p in self.parameters.items():
            g = gradients[name]
            self.m[name] = β1 * self.m[name] + (1 - β1) * g
            self.v[name] = β2 * self.v[name] + (1 - β2) * (g * g)
            m, v = self.m[name] / (1 - β1**self.t), self.v[name] / (1 - β2**self.t)
            assign(p, p.value - self.lr * m / (library_of(v).sqrt(v) + self.eps))


def clip_by_global_norm(gradients: Gradients, most: float) -> Gradients:
    """Scale all gradients by one factor, so that their common norm is at most `most`; never scales up.

    The factor stays on the device. ValueError for most ≤ 0.
    """
    if not most > 0:
        raise ValueError(f"clip_by_global_norm: the largest norm must be positive, found {most}")
    arrays = list(gradients.values())
    if not arrays:
        return gradients
    xp = library_of(arrays[0])
    squares = [xp.sum(xp.multiply(g, g, dtype=xp.float64)) for g in arrays]
    norm = xp.sqrt(sum(squares[1:], squares[0]))
    factor = 1 / xp.maximum(1.0, norm / most)
    return Gradients({name: g * factor.astype(g.dtype) for name, g in gradients.items()})
