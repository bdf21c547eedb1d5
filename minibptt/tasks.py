"""Sequences to learn from: real data (data.py) and the long-lag tasks of the literature. Nothing is downloaded.

A task gives batches (x, y), time first, and says which loss they want. Read after data.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import ops
from .backend import library_of
from .cells import Cell
from .data import LABELS, TaskError, digits, standard_library, token_labels
from .losses import cross_entropy, mse
from .module import check_size, check_whole
from .parameters import parameter
from .tensor import Tensor, ones

WORDS = {  # what the predictor of each task's baseline knows
    "text": "knowing only how often each character occurs",
    "labels": "knowing only how often each label occurs",
    "digits": "knowing nothing",
    "coin": "knowing nothing",
    "adding": "always predicting the mean",
    "copy": "without memory",
}


@dataclass(frozen=True)
class Task:
    """What a model is to learn.

    batch(rng, B): (x, y) for training; x is (T, B) token ids where `ids`, else (T, B, inputs) floats.
    sample(B): the batch on which schedules are compared. inputs: tokens or features; outputs: classes, or
    numbers per step. loss(outputs, y). baseline: the loss of a simple predictor; baseline_is says which.
    """

    name: str
    ids: bool
    inputs: int
    outputs: int
    loss: Callable[..., Tensor]
    batch: Callable[[np.random.Generator, int], tuple[Any, Any]]
    sample: Callable[[int], tuple[Any, Any]]
    baseline: float
    baseline_is: str
    symbols: str = ""


def text_task(text: str, T: int, name: str = "text") -> Task:
    """Predict the next character. x and y are (T, B) ids, y one character ahead.

    Training takes windows from anywhere; the sample takes windows evenly spread over the text. TaskError where
    the text is shorter than T + 1 characters.
    """
    check_size("text_task", T=T)
    _check_text("text_task", text)
    if len(text) < T + 1:
        raise TaskError(
            f"the text has {len(text)} characters; a sequence of {T} steps and the target of its last step need "
            f"{T + 1}. Give a longer text or a smaller --length"
        )
    symbols, ids = character_ids(text)
    if len(symbols) < 2:
        raise TaskError(f"the text has one distinct character ({symbols!r}): there is nothing to predict")
    batch, sample = _windows(ids[:-1], ids[1:], T)
    n, baseline = len(symbols), _entropy(ids)
    return Task(name, True, n, n, cross_entropy, batch, sample, baseline, WORDS["text"], symbols)


def labels_task(T: int, text: str | None = None) -> Task:
    """Label every character of Python source with the type of its token (`data.LABELS`), from what stands before it.

    x: (T, B) ids of characters; y: (T, B) labels. text: Python source (default: that of the standard library). What
    the standard tokenizer says depends a little on the Python version. The baseline is the entropy of the labels.
    TaskError where the text that can be tokenized is shorter than T characters.
    """
    check_size("labels_task", T=T)
    text = standard_library() if text is None else text
    _check_text("labels_task", text)
    text, labels = token_labels(text)
    if len(text) < T:
        raise TaskError(
            f"{len(text)} characters can be tokenized, and a sequence has {T} steps. Give a longer text or a smaller "
            "--length"
        )
    symbols, ids = character_ids(text)
    batch, sample = _windows(ids, labels, T)
    outputs, baseline = len(LABELS), _entropy(labels)
    return Task("labels", True, len(symbols), outputs, cross_entropy, batch, sample, baseline, WORDS["labels"], symbols)


def digits_task(T: int) -> Task:
    """Say which digit an image of 8 × 8 shows after reading it row by row (scikit-learn's digits).

    x: (8, B, 8), numbers from 0 to 1; y: (B,), the loss being that of the last step. Knowing nothing gives ln 10.
    TaskError for T other than 8, and where scikit-learn is missing.
    """
    if T != 8:
        raise TaskError(f"the images of digits are read in 8 steps, one a row: give --length 8, found {T}")
    images, classes = digits()

    def batch(rng: np.random.Generator, B: int) -> tuple[Any, Any]:
        chosen = rng.integers(0, len(images), B)
        return images[chosen].transpose(1, 0, 2), classes[chosen]

    def last_step(outputs: Tensor, y: Any) -> Tensor:
        return cross_entropy(outputs[-1], y)

    return Task("digits", False, 8, 10, last_step, batch, _sampled(batch), math.log(10), WORDS["digits"])


def coin_task(T: int) -> Task:
    """The two-lag coin: P(y_t = 1) = ½ + ½·x_{t−3} − ¼·x_{t−8}, x fair bits, absent ones counting as 0.

    Cross-entropy in nats: .6616 knowing nothing, .5192 with lag 3 only, .6277 with lag 8 only, .4545 with both
    (r2rt, Styles of Truncated Backpropagation, 2016).
    """
    check_size("coin_task", T=T)

    def batch(rng: np.random.Generator, B: int) -> tuple[Any, Any]:
        x = rng.integers(0, 2, (T, B))
        past = [np.concatenate([np.zeros((min(lag, T), B)), x[: max(T - lag, 0)]]) for lag in (3, 8)]
        y = rng.random((T, B)) < 0.5 + 0.5 * past[0] - 0.25 * past[1]
        return x[..., None].astype(np.float32), y.astype(int)

    return Task("coin", False, 1, 2, cross_entropy, batch, _sampled(batch), 0.6616, WORDS["coin"])


def adding_task(T: int) -> Task:
    """The adding problem (Hochreiter and Schmidhuber 1997): the sum of the two marked numbers, at the last step.

    x: (T, B, 2), uniform numbers in [0, 1] and marks, one in each half; y: (B, 1). Mean squared error; always
    predicting the mean gives 1/6. TaskError for T < 2.
    """
    check_whole("adding_task", T=T)
    if T < 2:
        raise TaskError(f"the adding problem marks two steps: the length must be at least 2, found {T}")

    def batch(rng: np.random.Generator, B: int) -> tuple[Any, Any]:
        numbers, marks, rows = rng.random((T, B)), np.zeros((T, B)), np.arange(B)
        first, second = rng.integers(0, T // 2, B), rng.integers(T // 2, T, B)
        marks[first, rows] = marks[second, rows] = 1
        y = numbers[first, rows] + numbers[second, rows]
        return np.stack([numbers, marks], axis=-1).astype(np.float32), y[:, None].astype(np.float32)

    def last_step(outputs: Tensor, y: Any) -> Tensor:
        return mse(outputs[-1], y)

    return Task("adding", False, 2, 1, last_step, batch, _sampled(batch), 1 / 6, WORDS["adding"])


def copy_task(T: int) -> Task:
    """Copy ten symbols of eight after a delay (Arjovsky, Shah and Bengio 2016); T = delay + 20.

    Ids 0 to 7 are symbols, 8 is blank, 9 asks for the answer. Without memory the mean cross-entropy is 10·ln 8 / T.
    TaskError for T < 21.
    """
    check_whole("copy_task", T=T)
    if T < 21:
        raise TaskError(f"the copy task needs 20 steps and a delay: the length must be at least 21, found {T}")

    def batch(rng: np.random.Generator, B: int) -> tuple[Any, Any]:
        symbols = rng.integers(0, 8, (10, B))
        x, y = np.full((T, B), 8), np.full((T, B), 8)
        x[:10], y[-10:] = symbols, symbols
        x[-11] = 9
        return x, y

    return Task("copy", True, 10, 9, cross_entropy, batch, _sampled(batch), 10 * math.log(8) / T, WORDS["copy"])


class InfluenceBalancing(Cell):
    """s_t = A s_{t−1} + θ·u, output s₀: the nearer steps pull θ one way, the far ones the other, and further.

    n = 23 units, A = ½·I + ½·(ones above the diagonal), u = +1 for the first 10 units and −1 for the 13 others. The
    state (B, n) starts at 1, θ (one number, float64) at ½; the loss is ½(s₀ − 1)², the optimum θ = −1/6. At the fixed
    point ∂s₀/∂θ = −6, of which a window of K steps sees 1 for K = 1, 16.476 for K = 19, and less than 0 from K = 41 on:
    a shorter window trains the wrong way. The input x (T, B, …) only says how many steps and rows there are.
    (Tallec and Ollivier 2017, the set-up of arXiv 1702.05043.)
    """

    n, positive = 23, 10

    def __init__(self) -> None:
        self.theta = parameter(0.5, dtype=np.float64)
        xp = library_of(self.theta.value)
        self.A_T = xp.asarray(0.5 * np.eye(self.n) + 0.5 * np.eye(self.n, k=-1))  # Aᵀ: rows are vectors here
        self.u = xp.asarray(np.where(np.arange(self.n) < self.positive, 1.0, -1.0))

    def zero_state(self, batch: int) -> Tensor:
        return ones((batch, self.n))

    def step(self, x: Any, s: Any) -> tuple[Tensor, Tensor]:
        s = ops.matmul(s, self.A_T) + self.theta * self.u
        return s[:, :1], s


def character_ids(text: str) -> tuple[str, np.ndarray]:
    """(the distinct characters, sorted; the place among them of each character of the text)."""
    _check_text("character_ids", text)
    symbols = "".join(sorted(set(text)))
    place = {symbol: i for i, symbol in enumerate(symbols)}
    return symbols, np.array([place[c] for c in text])


def _check_text(what: str, text: Any) -> None:
    if not isinstance(text, str):
        hint = ': data.decode("utf-8") makes one of them' if isinstance(text, bytes | bytearray) else ""
        raise TypeError(f"{what}: the text must be a string, found {type(text).__name__}{hint}")


def _windows(x: np.ndarray, y: np.ndarray, T: int) -> tuple[Any, Any]:
    """(batch, sample) of windows of T steps: from anywhere, and evenly spread from the first to the last."""
    last = len(x) - T

    def windows(starts: np.ndarray) -> tuple[Any, Any]:
        at = starts + np.arange(T)[:, None]
        return x[at], y[at]

    def batch(rng: np.random.Generator, B: int) -> tuple[Any, Any]:
        return windows(rng.integers(0, last + 1, B))

    def sample(B: int) -> tuple[Any, Any]:
        return windows(np.linspace(0, last, B).astype(int))

    return batch, sample


def _entropy(ids: np.ndarray) -> float:
    """−Σ p ln p of how often each id occurs: the cross-entropy of who knows only that."""
    counts = np.bincount(ids)
    p = counts[counts > 0] / len(ids)
    return float(-(p * np.log(p)).sum())


def _sampled(batch: Callable[[np.random.Generator, int], tuple[Any, Any]]) -> Callable[[int], tuple[Any, Any]]:
    return lambda B: batch(np.random.default_rng(0), B)


TASKS: dict[str, Callable[[int], Task]] = {
    "coin": coin_task,
    "adding": adding_task,
    "copy": copy_task,
    "labels": labels_task,
    "digits": digits_task,
}
