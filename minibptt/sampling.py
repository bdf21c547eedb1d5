"""What a language model says when its own words are given back to it, one at a time. Read after sequence.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .backend import to_numpy
from .module import Rng, check_model, check_number, check_size, evaluating, generator
from .sequence import run
from .tape import no_tape


def sample(model: Any, start: Any, length: int, *, temperature: float = 1.0, rng: Rng = None) -> Iterator[int]:
    """`length` token ids that follow `start`, drawn from p ∝ exp(logits / temperature), each the input after it.

    start: one or more ids. temperature: 1 draws as the model has learnt, less prefers what is likely, 0 takes the most
    likely. rng: an int or a generator; draws are made on the host. Dropout is off. ValueError for an empty start and a
    temperature that is no number of at least 0.
    """
    check_model(model, learns=False)
    check_size("sample", length=length)
    temperature = check_number("sample: the temperature", temperature)
    ids = np.asarray(start)
    if ids.ndim != 1 or not ids.size:
        raise ValueError(f"sample: start must be one or more ids, found shape {ids.shape}")
    if ids.dtype.kind not in "iu":
        raise TypeError(f"sample: start must be ids, which are whole numbers, found {ids.dtype}")
    return _drawn(model, ids, length, temperature, generator(rng))


def _drawn(model: Any, ids: np.ndarray, length: int, temperature: float, rng: np.random.Generator) -> Iterator[int]:
    state = None
    for _ in range(length):
        with evaluating(model), no_tape():
            outputs, state = run(model, ids[:, None], state)
        chosen = draw(to_numpy(outputs.value[-1, 0]), temperature, rng)
        yield chosen
        ids = np.array([chosen])


def draw(logits: np.ndarray, temperature: float, rng: np.random.Generator) -> int:
    """One id from softmax(logits / temperature) (V,), the most likely at temperature 0. ValueError for NaN."""
    if not np.isfinite(logits.max()):
        raise ValueError("sample: the model's outputs are NaN or infinite: look at its weights")
    logits = logits.astype(np.float64) - logits.max()
    if temperature == 0:
        return int(logits.argmax())
    with np.errstate(over="ignore", under="ignore"):
        up_to = np.cumsum(np.exp(logits / temperature))
    return int(np.searchsorted(up_to, rng.random() * up_to[-1], side="right"))
