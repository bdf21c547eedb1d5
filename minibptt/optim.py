"""Optimisers: they take Gradients and move the parameters of a model. Read after clipping.py.

No step waits for the device. A gradient that is not finite is seen there: the step then leaves the weights and the
optimiser's own arrays as they are, and whoever reads the loss on the host can ask which parameter it was.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from .backend import Array, BackendError, is_array, library_named, library_of, name_of, to_backend, to_numpy
from .clipping import all_finite, check_gradients
from .gradients import Gradients
from .module import check_model, check_number
from .parameters import Parameter, assign


class Optimiser(ABC):
    """What SGD and Adam share: one step for all parameters of a model, and a state that a checkpoint can keep.

    model: one module; a parameter that it uses twice is one. lr: the step size, which may be changed between steps.
    t: how many steps moved the parameters. TypeError for what is no module, ValueError where it has no parameters.
    """

    numbers: tuple[str, ...] = ("lr",)  # of the state, besides t
    moments: tuple[str, ...] = ()  # the names of the dicts of arrays, one array for each parameter

    def __init__(self, model: Any, lr: float):
        name = type(self).__name__
        if isinstance(model, list | tuple):
            raise TypeError(
                f"{name} takes one module, found {type(model).__name__}; put several into a Sequential{_shared(model)}"
            )
        check_model(model)
        step_size = check_number(f"{name}: lr", lr, above=True)
        found = list(model.named_parameters())
        paths: dict[int, str] = {}
        for path, p in found:
            if id(p) in paths:
                raise ValueError(f"{name}: {paths[id(p)]} and {path} are one parameter, which would be moved twice")
            paths[id(p)] = path
        self.parameters: dict[str, Parameter] = dict(found)
        self.lr = step_size
        self._calls, self._taken = 0, 0  # steps asked for; steps taken, an array where the parameters are
        for moment in self.moments:
            setattr(self, moment, {path: library_of(p.value).zeros_like(p.value) for path, p in found})

    @property
    def t(self) -> int:
        """How many steps moved the parameters. Reading it waits for the device."""
        return int(to_numpy(self._taken))

    @property
    def skipped(self) -> int:
        """How many steps were left out because a gradient was not finite. Reading it waits for the device."""
        return self._calls - self.t

    def step(self, gradients: Gradients) -> None:
        """Move every parameter once; none at all where a gradient is not finite.

        ValueError where the gradients are not those of this model, which are then left as they are.
        """
        self._check(gradients)
        # In the type of the parameter, so that the moments keep it too; before it is asked what is finite.
        gradients = Gradients({n: gradients[n].astype(p.dtype, copy=False) for n, p in self.parameters.items()})
        finite = all_finite(gradients)
        self._calls += 1
        self._taken = self._taken + library_of(finite).where(finite, 1, 0)
        for name, p in self.parameters.items():
            xp = library_of(gradients[name])
            change = self._change(name, xp.where(finite, gradients[name], 0), finite)
            assign(p, xp.where(finite, p.value - change, p.value))

    @abstractmethod
    def _change(self, name: str, g: Array, finite: Array) -> Array:
        """What a parameter loses. Where `finite` is false g is 0 and the moments must stay. g may be changed."""

    def _check(self, gradients: Any) -> None:
        what = type(self).__name__
        check_gradients(f"{what}: step", gradients, "fiubc")
        if set(gradients) != set(self.parameters):
            raise ValueError(
                f"{what}: gradients of {sorted(gradients)}, parameters {sorted(self.parameters)}: give the gradient of "
                "the model that the optimiser was made for, or make one for this model"
            )
        for name, p in self.parameters.items():
            arrays = {f"the gradient of {name}": gradients[name]}
            arrays |= {f"{moment} of {name}": getattr(self, moment)[name] for moment in self.moments}
            for which, array in arrays.items():
                if library_of(array) is not library_of(p.value):
                    found, here = name_of(library_of(array)), name_of(library_of(p.value))
                    raise BackendError(
                        f"{what}: {which} is a {found} array, the parameter a {here} one: model.to(…), "
                        "optimiser.to(…) and the data must go to one backend"
                    )
            if gradients[name].shape != p.shape:
                raise ValueError(
                    f"{what}: the gradient of {name} has shape {gradients[name].shape}, the parameter {p.shape}"
                )
            if gradients[name].dtype.kind not in "fiub" and gradients[name].dtype.kind != p.dtype.kind:
                raise TypeError(f"{what}: the gradient of {name} is {gradients[name].dtype}, the parameter {p.dtype}")

    def to(self, name: Any) -> Optimiser:
        """Bring its own arrays to the backend "numpy" or "cupy"; the model moves with its own `to`. Returns itself."""
        library = library_named(name)
        for moment in self.moments:
            arrays = getattr(self, moment)
            setattr(self, moment, {name: to_backend(a, library) for name, a in arrays.items()})
        if is_array(self._taken):
            self._taken = to_backend(self._taken, library)
        return self

    def state(self) -> dict[str, Any]:
        """Everything that the next steps depend on, by flat names: numbers ("lr", "t", …) and arrays ("m/0.W", …).

        The arrays are copies, where the parameters are. Reading "t" waits for the device.
        """
        arrays = {f"{m}/{name}": a.copy() for m in self.moments for name, a in getattr(self, m).items()}
        return {name: getattr(self, name) for name in self.numbers} | {"t": self.t} | arrays

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave: the next steps have the same numbers, to the bit.

        Arrays from the host are copied to where the parameters are. ValueError for other names or shapes, TypeError for
        another dtype; nothing has changed then.
        """
        what, known = type(self).__name__, self.state()
        if not isinstance(state, Mapping):
            raise TypeError(f"{what}: restore takes what state() gave, found {type(state).__name__}")
        if set(state) != set(known):
            missing, unknown = sorted(set(known) - set(state)), sorted(set(state) - set(known))
            raise ValueError(
                f"{what}: the state is of another optimiser or model: missing {missing}, unknown {unknown}"
            )
        new = {}
        for name, old in known.items():
            value = state[name]
            if is_array(old):
                value = to_backend(value, library_of(old)).copy()
                if value.shape != old.shape:
                    raise ValueError(f"{what}: {name} has shape {value.shape}, the parameter {old.shape}")
                if value.dtype != old.dtype:
                    raise TypeError(f"{what}: {name} is {value.dtype}, the parameter {old.dtype}")
            else:
                value = type(old)(to_numpy(value).item())
            new[name] = value
        for moment in self.moments:
            setattr(self, moment, {name: new[f"{moment}/{name}"] for name in self.parameters})
        for name in self.numbers:
            setattr(self, name, new[name])
        self._calls = self._taken = new["t"]


class SGD(Optimiser):
    """Stochastic gradient descent, with momentum (Polyak 1964) or Nesterov's (Sutskever et al. 2013) if wanted.

        v ← μ·v + g        θ ← θ − lr·v            Nesterov: θ ← θ − lr·(g + μ·v)

    as in PyTorch: lr is not inside v, so changing it changes the next step at once. momentum: μ, 0 ≤ μ < 1.
    """

    numbers = ("lr", "momentum", "nesterov")
    v: dict[str, Array]

    def __init__(self, model: Any, lr: float, momentum: float = 0.0, *, nesterov: bool = False):
        μ = check_number("SGD: momentum", momentum, 0, 1)
        if nesterov and not momentum:
            raise ValueError("SGD: nesterov=True needs momentum= above 0: without it the two are the same")
        self.moments = ("v",) if momentum else ()
        super().__init__(model, lr)
        self.momentum, self.nesterov = μ, bool(nesterov)

    def _change(self, name: str, g: Array, finite: Array) -> Array:
        xp, μ = library_of(g), self.momentum
        if not μ:
            return self.lr * g
        v = self.v[name] = xp.asarray(xp.where(finite, μ, 1.0).astype(g.dtype) * self.v[name] + g)
        return self.lr * (g + μ * v if self.nesterov else v)


class Adam(Optimiser):
    """Adam (Kingma and Ba 2015), with bias correction.

        m ← β₁·m + (1 − β₁)·g      v ← β₂·v + (1 − β₂)·g²      θ ← θ − lr · m̂ / (√v̂ + ε)
        m̂ = m / (1 − β₁ᵗ)          v̂ = v / (1 − β₂ᵗ)

    betas: the decay of the two moments, each 0 ≤ β < 1; eps: added to the root.
    """

    numbers = ("lr", "beta1", "beta2", "eps")
    moments = ("m", "v")
    m: dict[str, Array]
    v: dict[str, Array]

    def __init__(self, model: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8):
        super().__init__(model, lr)
        if not isinstance(betas, list | tuple) or len(betas) != 2:
            raise TypeError(f"Adam: betas must be two numbers, such as (0.9, 0.999), found {betas!r}")
        self.beta1, self.beta2 = (check_number(f"Adam: beta{i}", β, 0, 1) for i, β in enumerate(betas, 1))
        self.eps = check_number("Adam: eps", eps)

    @property
    def betas(self) -> tuple[float, float]:
        return self.beta1, self.beta2

    def _change(self, name: str, g: Array, finite: Array) -> Array:
        xp, β1, β2 = library_of(g), self.beta1, self.beta2
        # Where a gradient is not finite, g is 0, and decays of 1 leave the moments as they are, to the bit.
        m = self.m[name] = xp.asarray(xp.where(finite, β1, 1.0).astype(g.dtype) * self.m[name])
        v = self.v[name] = xp.asarray(xp.where(finite, β2, 1.0).astype(g.dtype) * self.v[name])
        m += (1 - β1) * g
        g *= g
        g *= 1 - β2
        v += g
        t = xp.maximum(self._taken, 1)  # 0 where the very first step is left out
        change = xp.asarray(m / (1 - β1**t).astype(g.dtype))
        root = xp.asarray(xp.sqrt(v / (1 - β2**t).astype(g.dtype)))
        root += self.eps
        change *= self.lr
        change /= root
        return change


def _shared(modules: Any) -> str:
    """What an error about a list of modules adds where two of them share a parameter."""
    seen: dict[int, str] = {}
    for i, module in enumerate(modules):
        for name, p in getattr(module, "named_parameters", dict().items)():
            if id(p) in seen:
                return f", where {seen[id(p)]} and {i}.{name}, which are one parameter, are moved once"
            seen[id(p)] = f"{i}.{name}"
    return ""
