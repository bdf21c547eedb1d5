"""Losses over sequences: means over what is real. Read after sequence.py.

Each divides once, by the number of real target entries, or by `count` where a chunk must use the whole
sequence's. A batch without a single real entry has the loss 0. What stands at padded places, NaN or an
impossible id included, is never seen.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import ops
from .backend import host_array
from .module import check_number
from .places import check_ids
from .sequence import hide_padding, real_steps
from .tensor import Tensor


def mse(prediction: Any, target: Any, *, lengths: Any = None, mask: Any = None, count: float | None = None) -> Tensor:
    """The mean of (prediction − target)² over the real entries.

    prediction, target: the same shape, (T, B, …) where lengths or a mask is given; the mean is over the last
    axes too. count: what to divide by instead, in entries. ValueError where shapes differ: nothing broadcasts.
    """
    prediction, target = _both(prediction, target)
    if prediction.shape != target.shape:
        raise ValueError(
            f"mse: the prediction has shape {prediction.shape}, the target {target.shape}. They must be the same; "
            "reshape one of them"
        )
    real = _real("mse", prediction.shape, lengths, mask)
    entries = prediction.size
    if real is not None:
        prediction, target = hide_padding(prediction, real), hide_padding(target, real)
        entries = int(real.sum()) * math.prod(prediction.shape[2:])
    error = prediction - target
    return ops.sum(error * error) * (1 / _divisor("mse", entries, count))


def cross_entropy(
    logits: Any, target: Any, *, lengths: Any = None, mask: Any = None, count: float | None = None
) -> Tensor:
    """The mean over the real steps of −log softmax(logits)[target], in nats.

    logits: (…, V), (T, B, …, V) where lengths or a mask is given. target: host integers (…), 0 ≤ id < V.
    count: what to divide by instead, in targets. ValueError for shapes that differ and ids out of range.
    """
    logits = logits if isinstance(logits, Tensor) else _given("cross_entropy: the logits", logits)
    target = host_array("cross_entropy: the target", target)
    if target.dtype.kind not in "biufc":
        raise TypeError(f"cross_entropy: targets must be integers, found {target.dtype}")
    if logits.ndim < 1 or logits.shape[:-1] != target.shape:
        raise ValueError(
            f"cross_entropy: logits {logits.shape} need targets of shape {logits.shape[:-1]}, found {target.shape}"
        )
    real = _real("cross_entropy", target.shape, lengths, mask)
    entries = target.size
    if real is not None:
        logits, target = hide_padding(logits, real), hide_padding(target, real).value
        entries = int(real.sum()) * math.prod(target.shape[2:])
    target = check_ids(target, logits.shape[-1], "cross_entropy", "target")
    chosen = ops.pick(ops.log_softmax(logits), ids=target)
    if real is not None:
        chosen = hide_padding(chosen, real)
    divisor = _divisor("cross_entropy", entries, count)
    return ops.sum(chosen) * (-1 / divisor if entries else 1.0)  # of nothing 0, not −0


def _both(prediction: Any, target: Any) -> tuple[Any, Any]:
    prediction = prediction if isinstance(prediction, Tensor) else _given("mse: the prediction", prediction, weak=True)
    return prediction, target if isinstance(target, Tensor) else _given("mse: the target", target).value


def _given(what: str, x: Any, weak: bool = False) -> Tensor:
    """What is no tensor as one; the errors name it."""
    try:
        return Tensor(x, weak=weak)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{what}: {error}") from None


def _real(what: str, shape: tuple[int, ...], lengths: Any, mask: Any) -> np.ndarray | None:
    if lengths is None and mask is None:
        return None
    if len(shape) < 2:
        raise ValueError(f"{what}: lengths and mask need sequences (T, B, …), found shape {shape}")
    return real_steps(shape[0], shape[1], lengths, mask)


def _divisor(what: str, entries: int, count: float | None) -> float:
    if count is None:
        return entries or 1
    return check_number(f"{what}: count", count, above=True)
