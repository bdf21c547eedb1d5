"""Checkpoints: `save` writes all that a run needs to go on to the bit, `load` puts it back. Read after archive.py.

A checkpoint is an archive (archive.py) of arrays and of a header for everything else. It knows no device.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from .archive import CheckpointError, read_archive, write_archive
from .backend import as_array, current_library, is_array, library_of, to_backend, to_numpy
from .module import Module, check_path, first_array, named
from .parameters import Parameter, assign
from .tensor import Tensor

GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


def save(path: str | os.PathLike[str], model: Module | None = None, **parts: Any) -> None:
    """Write a checkpoint: `save(path, model, optimiser=opt, state=state, rng=rng, position=120)`.

    Each part is a module (its weights, and the generators of its dropout), anything with `state()` and
    `restore(state)` (an optimiser), a numpy Generator, or any nesting of tuples, lists and dicts of tensors, arrays,
    numbers, strings and None. What a Generator spawns later is not kept, only what it draws. A file that was there is
    replaced in one step. Only one process at a time may save to one path.
    TypeError for what cannot be saved, ValueError where nothing is given; CheckpointError where the file cannot be
    written: the old one is still there.
    """
    check_path("save: the path", path)
    parts = _with_model(model, parts)
    if not parts:
        raise ValueError(
            "save: there is nothing to save: give a model, or parts by name, as save(path, model, rng=rng)"
        )
    write_archive(path, *_encoded(parts))


def check_parts(**parts: Any) -> None:
    """TypeError where `save` could not write one of these parts. Nothing is written."""
    _encoded(_with_model(None, parts))


def load(path: str | os.PathLike[str], model: Module | None = None, **parts: Any) -> dict[str, Any]:
    """Put a checkpoint back: `rest = load(path, model, optimiser=opt, rng=rng)`, then `rest["state"]`, …

    model, parts: what is to be restored in place, under the names that it was saved by. The answer holds every other
    part: tensors live where the model lives (without one: on the current backend), arrays on the host, a module is a
    dict of its arrays by name. All is checked before anything is changed: CheckpointError lists all that is missing,
    unexpected, or of another shape or type; it says so too where the file is damaged or of a later format.
    """
    check_path("load: the path", path)
    wanted = _with_model(model, parts)
    for name, part in wanted.items():
        if not isinstance(part, Module | np.random.Generator) and not _restorable(part):
            raise TypeError(
                f"load restores modules, generators and what has state() and restore(); {name} is "
                f"{type(part).__name__}. Leave it out: it is in what load returns"
            )
    modules = [part for part in wanted.values() if isinstance(part, Module)]
    home = first_array(modules[0], None) if modules else None
    library = current_library() if home is None else library_of(home)
    nodes, arrays = read_archive(path)
    try:
        found = {name: _decode(node, arrays, library) for name, node in nodes.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:  # whole, but by no `save` of ours
        raise CheckpointError(f"{path} is no checkpoint of minibptt ({type(error).__name__}: {error})") from error
    lines = [f"missing: {name}" for name in wanted if name not in found]
    for name in wanted.keys() & found.keys():
        lines += misfits(name, _named(found[name]), _named(_content(wanted[name])))
    if lines:
        raise CheckpointError("\n  ".join([f"{path} does not fit; nothing was changed:", *sorted(lines)]))
    # Optimisers first: they may refuse what only they can judge, and then no weight has moved.
    for name in sorted(wanted, key=lambda name: isinstance(wanted[name], Module | np.random.Generator)):
        _restore(wanted[name], found.pop(name))
    return found


def _encoded(parts: dict[str, Any]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """(the parts as JSON, their arrays by entry)."""
    arrays: dict[str, np.ndarray] = {}
    return {name: _encode(_content(part), name, arrays) for name, part in parts.items()}, arrays


def _with_model(model: Any, parts: dict[str, Any]) -> dict[str, Any]:
    for name in parts:
        if not name.isidentifier():
            raise ValueError(f"a part of a checkpoint is named like a variable, found {name!r}")
    if model is not None and not isinstance(model, Module):
        raise TypeError(f"the model must be a module, found {type(model).__name__}; give other things by name")
    return parts if model is None else {"model": model, **parts}


def _restorable(x: Any) -> bool:
    return callable(getattr(x, "state", None)) and callable(getattr(x, "restore", None))


def _content(part: Any) -> Any:
    """What a part is as a nesting: that of a module or an optimiser is a dict by name."""
    if isinstance(part, Module):
        weights = {name: p.value for name, p in part.named_parameters()}
        return weights | dict(named(part, np.random.Generator))
    return part.state() if _restorable(part) else part


def _restore(part: Any, found: Any) -> None:
    """Give a part what was found for it, which was checked."""
    if isinstance(part, np.random.Generator):
        part.bit_generator.state = found.bit_generator.state
    elif isinstance(part, Module):
        for name, p in part.named_parameters():
            assign(p, to_backend(found[name], library_of(p.value)))
        for name, rng in named(part, np.random.Generator):
            rng.bit_generator.state = found[name].bit_generator.state
    else:
        now = part.state()
        part.restore(
            {k: to_backend(v, library_of(now[k])) if is_array(v) and is_array(now[k]) else v for k, v in found.items()}
        )


# --- does it fit? ----------------------------------------------------------------------------------------------


def misfits(part: str, found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """All that is wrong with arrays, numbers and generators by name, a line each; empty where they fit."""
    at = {name: f"{part} {name}".strip() for name in found.keys() | expected.keys()}
    lines = [f"missing: {at[name]}, {_form(x)}" for name, x in expected.items() if name not in found]
    lines += [f"unexpected: {at[name]}, {_form(x)}" for name, x in found.items() if name not in expected]
    for name in expected.keys() & found.keys():
        forms = _form(found[name]), _form(expected[name])
        if forms[0] != forms[1]:
            lines.append(f"different: {at[name]} is {forms[0]}, expected {forms[1]}")
    return sorted(lines)


def _named(part: Any) -> Mapping[str, Any]:
    return part if isinstance(part, Mapping) else {"": part}


def _form(x: Any) -> str:
    if is_array(x):
        return f"{x.shape} {x.dtype}"
    if isinstance(x, np.random.Generator):
        return f"a {x.bit_generator.state['bit_generator']} generator"
    return "a number" if isinstance(x, int | float) and not isinstance(x, bool) else type(x).__name__


# --- nestings as JSON, their arrays apart ----------------------------------------------------------------------


def _encode(x: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    """x as JSON. Numbers, strings and lists are themselves; {"tuple": …}, {"array": its entry}, … all else."""
    if x is None or type(x) in (bool, int, float, str):
        return x
    if type(x) in (list, tuple):
        items = [_encode(value, f"{path}/{i}", arrays) for i, value in enumerate(x)]
        return items if type(x) is list else {"tuple": items}
    if isinstance(x, dict):
        keys = [_encode(key, f"{path}/key", arrays) for key in x]
        return {"dict": [[key, _encode(x[k], f"{path}/{k}", arrays)] for key, k in zip(keys, x)]}
    if isinstance(x, np.random.Generator):
        state = x.bit_generator.state
        if state.get("bit_generator") not in GENERATORS:
            raise TypeError(f"save: {path} is a generator of a kind that NumPy does not have: {x}")
        return {"generator": _encode(state, path, arrays)}
    kind = "scalar" if isinstance(x, np.generic) else "array"
    if isinstance(x, Tensor) and not isinstance(x, Parameter):
        kind = "weak" if x.weak else "tensor"
    elif not isinstance(x, np.generic) and not is_array(x):
        raise TypeError(
            f"save: {path.replace('/', '.')} is {type(x).__name__}. A part is a module, a generator, something with "
            "state() and restore(), or a nesting of tuples, lists and dicts of tensors, arrays, numbers, strings and "
            "None; parameters are saved with their module, a namedtuple as a tuple or a dict"
        )
    array = to_numpy(as_array(getattr(x, "value", x)))
    if array.dtype.kind not in "biufcSU":
        raise TypeError(f"save: {path.replace('/', '.')} is an array of {array.dtype}; only numbers and text are saved")
    part, _, rest = path.partition("/")  # an entry's name is for people: any that is free will do
    entry = f"{part}/{re.sub(r'[^A-Za-z0-9_.-]', '.', rest) or part}"[:200]
    while entry in arrays:
        entry += "_"
    arrays[entry] = np.asarray(array, order="C")
    return {kind: entry}


def _decode(node: Any, arrays: Mapping[str, np.ndarray], library: Any) -> Any:
    """The nesting that _encode made `node` of; tensors in `library`."""
    if isinstance(node, list):
        return [_decode(item, arrays, library) for item in node]
    if not isinstance(node, dict):
        return node
    ((kind, content),) = node.items()
    if kind == "tuple":
        return tuple(_decode(content, arrays, library))
    if kind == "dict":
        return {key: value for key, value in _decode(content, arrays, library)}
    if kind == "generator":
        state = _decode(content, arrays, library)
        if state["bit_generator"] not in GENERATORS:
            raise ValueError(f"no generator {state['bit_generator']!r}")
        generator = np.random.Generator(getattr(np.random, state["bit_generator"])(0))
        generator.bit_generator.state = state
        return generator
    if kind in ("tensor", "weak"):
        return Tensor(to_backend(arrays[content], library), weak=kind == "weak")
    return {"array": lambda: arrays[content], "scalar": lambda: arrays[content][()]}[kind]()
