"""Sequences to learn from: any text, and the long-lag tasks of the literature. Nothing is downloaded.

A task gives batches (x, y), time first, and says which loss they want. The text that is on every machine is
the source of Python's own standard library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from . import ops
from .backend import library_of
from .cells import Cell
from .losses import cross_entropy, mse
from .module import check_size
from .tensor import Tensor, ones, parameter

# Modules of plain Python that have been there for long and stay; read one after the other, in this order.
_MODULES = [
    "argparse",
    "textwrap",
    "difflib",
    "calendar",
    "configparser",
    "csv",
    "dataclasses",
    "doctest",
    "fractions",
    "gettext",
    "heapq",
    "inspect",
]


WORDS = {  # what the predictor of each task's baseline knows
    "text": "knowing only how often each character occurs",
    "coin": "knowing nothing",
    "adding": "always predicting the mean",
    "copy": "without memory",
}


class TaskError(ValueError):
    """A task that cannot be made from what was given: one line that says what was found and what to do."""


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


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file. TaskError where it is missing, empty, a folder, binary or in another encoding."""
    path = Path(path)
    try:
        with open(path, "rb") as file:
            data = file.read(2**16)
            if b"\0" not in data:  # a device such as /dev/zero has no end
                data += file.read()
    except FileNotFoundError:
        raise TaskError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise TaskError(f"{path} is a folder; a text file is needed") from None
    except OSError as error:
        raise TaskError(f"{path} cannot be read: {error.strerror}") from None
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TaskError(f"{path} is UTF-16. Save it as UTF-8 first")
    if b"\0" in data:
        raise TaskError(f"{path} is not a text file: it has a zero byte at {data.index(0)}")
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise TaskError(
            f"{path} is not UTF-8: byte {data[error.start]:#04x} at {error.start}. Save it as UTF-8 first"
        ) from None
    if not text:
        raise TaskError(f"{path} is empty")
    return text


def standard_library(characters: int = 500_000) -> str:
    """The source of Python's own standard library, its first `characters` characters.

    It is asked from the modules' loaders, so it is found where the library is zipped too. The numbers that a
    model gives on it depend on the Python version.
    """
    found, size = [], 0
    for name in _MODULES:
        spec = find_spec(name)
        source = getattr(spec.loader, "get_source", lambda name: None)(name) if spec and spec.loader else None
        if source:
            found.append(source)
            size += len(source)
        if size >= characters:
            break
    if not found:
        raise TaskError("this Python has its standard library without source; give a text with --text FILE")
    return "\n".join(found)[:characters]


def text_task(text: str, T: int, name: str = "text") -> Task:
    """Predict the next character. x and y are (T, B) ids, y one character ahead.

    Training takes windows from anywhere; the sample takes windows evenly spread over the text. TaskError where
    the text is shorter than T + 1 characters.
    """
    check_size("text_task", T=T)
    if len(text) < T + 1:
        raise TaskError(
            f"the text has {len(text)} characters; a sequence of {T} steps and the target of its last step need "
            f"{T + 1}. Give a longer text or a smaller --length"
        )
    symbols = "".join(sorted(set(text)))
    if len(symbols) < 2:
        raise TaskError(f"the text has one distinct character ({symbols!r}): there is nothing to predict")
    place = {symbol: i for i, symbol in enumerate(symbols)}
    ids = np.array([place[c] for c in text])

    def windows(starts: np.ndarray) -> tuple[Any, Any]:
        at = starts + np.arange(T)[:, None]
        return ids[at], ids[at + 1]

    last = len(ids) - T - 1

    def batch(rng: np.random.Generator, B: int) -> tuple[Any, Any]:
        return windows(rng.integers(0, last + 1, B))

    def sample(B: int) -> tuple[Any, Any]:
        return windows(np.linspace(0, last, B).astype(int))

    counts = np.bincount(ids)
    p = counts[counts > 0] / len(ids)
    entropy = float(-(p * np.log(p)).sum())
    return Task(name, True, len(symbols), len(symbols), cross_entropy, batch, sample, entropy, WORDS["text"], symbols)


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


def _sampled(batch: Callable[[np.random.Generator, int], tuple[Any, Any]]) -> Callable[[int], tuple[Any, Any]]:
    return lambda B: batch(np.random.default_rng(0), B)


TASKS: dict[str, Callable[[int], Task]] = {"coin": coin_task, "adding": adding_task, "copy": copy_task}
