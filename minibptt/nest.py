"""Nestings of tuples, lists and dicts, in which states come: h, or (h, c), or one entry per layer.

It needs no other file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def map_nest(function: Callable[[Any], Any], nest: Any) -> Any:
    """Apply `function` to each leaf of a nesting of tuples, lists and dicts, in the order of `leaves`. None stays."""
    if nest is None:
        return None
    if isinstance(nest, dict):
        new = {key: map_nest(function, nest[key]) for key in sorted(nest, key=str)}
        return {key: new[key] for key in nest}
    if isinstance(nest, tuple) and hasattr(nest, "_fields"):  # a namedtuple
        return type(nest)(*[map_nest(function, value) for value in nest])
    if isinstance(nest, list | tuple):
        return type(nest)([map_nest(function, value) for value in nest])
    return function(nest)


def leaves(nest: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a nesting, each with its path: "" for a bare leaf, "0", "1.h" … inside; None is skipped.

    A dict is gone through in the order of its sorted keys, so that two states of one form always match.
    """
    if nest is None:
        return
    if isinstance(nest, dict):
        pairs = [(str(key), nest[key]) for key in sorted(nest, key=str)]
    elif isinstance(nest, tuple) and hasattr(nest, "_fields"):
        pairs = list(zip(nest._fields, nest))
    elif isinstance(nest, list | tuple):
        pairs = [(str(i), value) for i, value in enumerate(nest)]
    else:
        yield path, nest
        return
    for key, value in pairs:
        yield from leaves(value, f"{path}.{key}" if path else key)


def rebuild(nest: Any, new: list[Any]) -> Any:
    """A nesting of the shape of `nest` with the leaves `new`, in the order of `leaves`."""
    remaining = iter(new)
    return map_nest(lambda _: next(remaining), nest)
