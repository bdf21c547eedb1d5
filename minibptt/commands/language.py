"""The character model that `minibptt train` learns and `minibptt sample` lets speak, and its checkpoint's header.

Read after arguments.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..archive import CheckpointError
from ..data import TaskError, read_text, standard_library
from ..layers import Embedding, Linear, Sequential
from ..module import generator
from ..recurrent import CELLS
from ..saving import load
from ..tasks import character_ids
from .arguments import UsageError
from .output import shown, version

WIDTH = 32  # of the embedding of a character
KIND = "minibptt train"
HELD_OUT = 10  # the last 1/10 of the text is not learnt from


class Text:
    """A text as it is learnt: `learnt` and `held_out`, character ids one after the other, numbered alike."""

    def __init__(self, path: str | None):
        self.path = path
        self.name = "Python's standard library" if path is None else shown(Path(path).name)
        text = standard_library() if path is None else read_text(path)
        self.sha256 = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        self.symbols, ids = character_ids(text)
        if len(self.symbols) < 2:
            raise TaskError(f"the text has one distinct character ({self.symbols!r}): there is nothing to predict")
        end = len(ids) - len(ids) // HELD_OUT
        if len(ids) - end < 2:  # one step and its target
            raise TaskError(
                f"{self.name} is too short: a tenth of it is held out, and needs 2 characters. Give a text of at least "
                f"{2 * HELD_OUT}, found {len(ids)}"
            )
        self.learnt, self.held_out = ids[:end], ids[end:]

    def about(self) -> dict[str, str | None]:
        """What a checkpoint keeps of it."""
        return {"path": self.path, "name": self.name, "sha256": self.sha256}


def language_model(V: int, options: Mapping[str, Any]) -> Sequential:
    """An embedding, --layers of --cell with --hidden units, a linear layer; each draws from a stream of its own."""
    streams: Sequence[Any] = generator(options["seed"]).spawn(3)
    H, layers, dropout = options["hidden"], options["layers"], options["dropout"]
    if dropout and layers == 1:
        raise UsageError(f"--dropout {dropout:g} stands between layers: give --layers 2 or more")
    cell = CELLS[options["cell"]](WIDTH, H, layers=layers, dropout=dropout, rng=streams[1])
    return Sequential(Embedding(V, WIDTH, rng=streams[0]), cell, Linear(H, V, rng=streams[2]))


def header(text: Text, options: Mapping[str, Any]) -> dict[str, Any]:
    """What a checkpoint says of itself, so that the model can be built again from the file alone."""
    about = {"kind": KIND, "minibptt": version("minibptt"), "symbols": text.symbols, "text": text.about()}
    return about | {"options": dict(options)}


def read_header(path: Path) -> tuple[dict[str, Any], int]:
    """(the header, updates done) of a checkpoint of `minibptt train`. CheckpointError for any other file."""
    rest = load(path)
    about = rest.get("about")
    if not isinstance(about, dict) or about.get("kind") != KIND:
        raise CheckpointError(
            f"{shown(path)} is no checkpoint of `minibptt train`: it does not say what model it is of"
        )
    return about, rest["training"]["updates"]


def ids_of(start: str, symbols: str) -> np.ndarray:
    """The ids of a text's characters. UsageError for one that the model has never seen."""
    place = {symbol: i for i, symbol in enumerate(symbols)}
    unknown = [symbol for symbol in start if symbol not in place]
    if unknown:
        known = "".join(symbol for symbol in symbols if symbol.isprintable())
        raise UsageError(f"the model does not know the character {unknown[0]!r}; it knows {known}")
    return np.array([place[symbol] for symbol in start])
