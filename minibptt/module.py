"""`Module`: a thing that has parameters, known by the names of its attributes. Read after parameters.py.

At the end the checks of what a user gives: whole numbers, sizes, numbers in a range, names of files, models.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from numbers import Real
from typing import Any

import numpy as np

from .backend import Array, is_array, library_named, to_backend, to_numpy
from .parameters import Parameter, move, parameter
from .tensor import Tensor, moved

Rng = int | np.random.Generator | None


class Module:
    """Base of cells and layers. Parameters are its attributes, and those of modules that it holds.

    No `super().__init__()` is needed. A parameter that is found twice (tied weights) is one parameter.
    training: whether dropout is on; `train()` and `eval()` set it here and in every module inside.
    """

    training = True

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Parameter) and value.name is None:
            value.name = name
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        found = list(self.named_parameters())
        size = sum(p.size for _, p in found)
        names = ", ".join(f"{name} {'×'.join(map(str, p.shape)) or 'scalar'}" for name, p in found[:12])
        return f"{type(self).__name__}({names}{', …' if len(found) > 12 else ''}; {size:,} number{'s' * (size != 1)})"

    def children(self) -> Iterator[tuple[str, Any]]:
        """The attributes in which parameters are looked for, by name, in the order in which they were set."""
        yield from vars(self).items()

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Each parameter once, with its path: ("W_x", …) or ("1.W_x", …)."""
        return named(self, Parameter)

    def train(self, training: bool = True) -> Module:
        """Turn dropout on (or off), here and in every module inside. Returns the module."""
        for module in self.modules():
            module.training = training
        return self

    def eval(self) -> Module:
        """Turn dropout off, here and in every module inside. Returns the module."""
        return self.train(False)

    def to(self, name: Any) -> Module:
        """Bring every parameter, and every tensor and array among the attributes, to the backend "numpy" or "cupy".

        Values are kept to the bit. Move the state with `to_backend`, the optimiser with its own `to`. Returns itself.
        BackendError where the library cannot be used; nothing has moved then.
        """
        library = library_named(name)
        for _, p in self.named_parameters():
            move(p, library)
        for module in self.modules():
            for key, value in list(vars(module).items()):
                if is_array(value):
                    object.__setattr__(module, key, to_backend(value, library))
                elif type(value) is Tensor:
                    object.__setattr__(module, key, moved(value, library))
        return self

    def modules(self) -> Iterator[Module]:
        """This module and every module inside, each once."""
        seen: set[int] = set()
        stack: list[Any] = [self]
        while stack:
            x = stack.pop()
            if isinstance(x, Module) and id(x) not in seen:
                seen.add(id(x))
                yield x
                stack += [child for _, child in x.children()]
            elif isinstance(x, list | tuple):
                stack += x
            elif isinstance(x, dict):
                stack += x.values()

    def parameters(self) -> dict[str, Parameter]:
        """The parameters by name."""
        return dict(self.named_parameters())


def named(x: Any, kind: type) -> Iterator[tuple[str, Any]]:
    """Everything of type `kind` that x holds, each once, with its path: parameters, or the generators of dropout."""
    seen: set[int] = set()
    for name, value in _walk(x, "", set(), kind):
        if id(value) not in seen:
            seen.add(id(value))
            yield name, value


def _walk(x: Any, path: str, inside: set[int], kind: type = Parameter) -> Iterator[tuple[str, Any]]:
    """Everything of type `kind` in x with its path. inside: the modules we are in, for one that holds its parent."""
    if isinstance(x, kind):
        yield path, x
        return
    pairs: Any = ()
    if isinstance(x, Module) and id(x) not in inside:
        inside, pairs = inside | {id(x)}, x.children()
    elif isinstance(x, dict):
        pairs = x.items()
    elif isinstance(x, list | tuple):
        pairs = enumerate(x)
    for name, value in pairs:
        yield from _walk(value, f"{path}.{name}" if path else str(name), inside, kind)


def first_array(module: Any, default: Array) -> Array:
    """The array of the first parameter of `module`, by which its library and dtype are known, or `default`."""
    for _, found in _walk(module, "", set()):
        return found.value
    return default


def generator(rng: Rng) -> np.random.Generator:
    """A host generator from a seed, a generator or None (fresh). The global one is left alone."""
    if isinstance(rng, np.random.Generator):
        return rng
    if rng is not None and (isinstance(rng, bool) or not isinstance(rng, int | np.integer)):
        raise TypeError(f"rng must be an int or a numpy.random.Generator, found {type(rng).__name__}")
    if rng is not None and rng < 0:
        raise ValueError(f"rng must be a seed of at least 0 or a numpy.random.Generator, found {rng}")
    return np.random.default_rng(rng)


def uniform(rng: np.random.Generator, bound: float, shape: tuple[int, ...], dtype: Any = None) -> Parameter:
    """A parameter drawn from U(−bound, bound): on the host, so that every backend starts from the same numbers."""
    return parameter(to_backend(rng.uniform(-bound, bound, shape)), dtype=dtype or np.float32)


def check_whole(what: str, **numbers: Any) -> None:
    """TypeError for what is not a whole number."""
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int | np.integer):
            raise TypeError(f"{what}: {name} must be a whole number, found {number!r}")


def check_size(what: str, **sizes: Any) -> None:
    """TypeError for a size that is not a whole number, ValueError for one below 1."""
    check_whole(what, **sizes)
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{what}: {name} must be at least 1, found {size}")


def real_number(x: Any) -> float | None:
    """A real number of any kind as a float, inf where it is larger than any; None for what is none, as a boolean.

    An array of shape () is one too: a sum on a device gives such a thing, and is waited for.
    """
    if is_array(x) and x.ndim == 0:
        x = to_numpy(x).item()
    number: Any = x if isinstance(x, Real) and not isinstance(x, bool) else None
    try:
        return None if number is None else float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def check_number(
    what: str, number: Any, least: float = 0.0, below: float = math.inf, *, above: bool = False, infinite: bool = False
) -> float:
    """The number as a float. TypeError for what is no real number, ValueError for NaN and for one out of range.

    least ≤ number < below; above: least itself is out of range too; infinite: ∞ is in it.
    least=-math.inf, above=True: any finite number.
    """
    found = real_number(number)
    if found is None:
        raise TypeError(f"{what} must be a number, found {number!r:.80}")
    inside = found > least if above else found >= least
    if not inside or (found >= below and not infinite):
        low = "positive" if above and least == 0 else f"above {least:g}" if above else f"at least {least:g}"
        high = f"below {below:g}" if math.isfinite(below) else "" if infinite else "finite"
        words = " and ".join(filter(None, [low if math.isfinite(least) else "", high]))
        raise ValueError(f"{what} must be {words}, found {number!r:.80}")
    return found


def check_path(what: str, path: Any) -> None:
    """TypeError for what is no name of a file: a number would be taken for an open file."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"{what} must be the name of a file, found {path!r:.80}")


def unwritable(path: str | os.PathLike[str]) -> str | None:
    """Why no file can be written at this path, in words; None where nothing is known to be in the way."""
    if os.path.isdir(path):  # which raises nothing, whatever the path is
        return "it is a folder; give the name of a file"
    folder = os.path.dirname(os.path.abspath(path))
    return None if os.path.isdir(folder) else f"there is no folder {folder}. Give a file in a folder that is there"


def check_model(model: Any, learns: bool = True) -> None:
    """TypeError for what is no module, ValueError for one without parameters, of which no gradient can be asked.

    learns: False where the model is only run, which any function can be.
    """
    if isinstance(model, type) or not (hasattr(model, "named_parameters") or (callable(model) and not learns)):
        found, hint = f"{type(model).__name__}", ""
        if isinstance(model, type):
            found, hint = f"the class {model.__name__}", ": call it, to make one"
        elif callable(model):
            hint = ": put it among the layers of a Sequential"
        raise TypeError(f"the model must be a cell, a layer or another Module, found {found}{hint}")
    if learns and next(iter(model.named_parameters()), None) is None:
        raise ValueError(f"{type(model).__name__} has no parameters: there is no gradient to ask for")


@contextmanager
def evaluating(model: Any, dropout: bool = False) -> Iterator[None]:
    """Inside, dropout is off in `model` unless it is asked for; afterwards every module is as it was."""
    with nullcontext() if dropout else _switched(model, False):
        yield


@contextmanager
def learning(model: Any) -> Iterator[None]:
    """Inside, dropout is on in `model`; afterwards every module is as it was."""
    with _switched(model, True):
        yield


@contextmanager
def _switched(model: Any, training: bool) -> Iterator[None]:
    before = [(module, module.training) for module in getattr(model, "modules", list)()]
    try:
        for module, _ in before:
            module.training = training
        yield
    finally:
        for module, was in before:
            module.training = was


def generators(model: Any) -> list[np.random.Generator]:
    """The random generators that the modules of `model` own (those of dropout), each once."""
    found = [v for module in getattr(model, "modules", list)() for v in vars(module).values()]
    return list({id(v): v for v in found if isinstance(v, np.random.Generator)}.values())


def random_states(owned: list[np.random.Generator]) -> list[Any]:
    """Where these generators stand, for `restore_random`."""
    return [one.bit_generator.state for one in owned]


def restore_random(owned: list[np.random.Generator], states: list[Any]) -> None:
    """Put the generators back to where they stood: what they draw next is what they drew then."""
    for one, state in zip(owned, states):
        one.bit_generator.state = state
