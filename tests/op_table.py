"""Every operation in one table: what it is in NumPy, inputs to try it on, and calls that must fail.

The tests of the operations are made from it. A new operation needs an entry here, and nothing else.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import minibptt as mb


def some(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """Numbers that look random and are the same in every run, no two of them equal or near 0."""
    n = int(np.prod(shape))
    rng = np.random.default_rng(zlib.crc32(repr((shape, low, high)).encode()))
    numbers = low + (high - low) * (rng.permutation(n) + 0.25 + 0.5 * rng.random(n)) / max(n, 1)
    return np.where(np.abs(numbers) < 0.05, 0.05 + np.abs(numbers), numbers).reshape(shape)


def positive(*shape: int) -> np.ndarray:
    return some(*shape, low=0.4, high=2.5)


def on(xp: Any, option: Any) -> Any:
    """An option with its arrays in the library xp."""
    if isinstance(option, tuple):
        return tuple([on(xp, part) for part in option])
    return xp.asarray(option) if isinstance(option, np.ndarray) else option


@dataclass(frozen=True)
class Sample:
    """Inputs (arrays of float64) and options."""

    inputs: tuple[np.ndarray, ...]
    options: dict[str, Any]

    def options_on(self, xp: Any) -> dict[str, Any]:
        """The options with their arrays in the library xp; ids stay on the host, where they belong."""
        return {key: option if key == "ids" else on(xp, option) for key, option in self.options.items()}


@dataclass(frozen=True)
class Bad:
    """A call that must fail: with what, and the words that its message must have besides the operation's name."""

    inputs: tuple[Any, ...]
    options: dict[str, Any]
    error: type[Exception]
    words: tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """numpy: the same in NumPy, called in the same way. smooth: the complex step can differentiate it.
    elementwise: its docstring has a line ∂y/∂x = … for each input. numbers: an input may be a plain number."""

    name: str
    numpy: Callable[..., Any]
    samples: list[Sample]
    bad: list[Bad]
    smooth: bool = True
    elementwise: bool = False
    numbers: bool = True

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        return mb.dispatch.OPERATIONS[self.name](*inputs, **options)


def of(*inputs: np.ndarray, **options: Any) -> Sample:
    return Sample(inputs, options)


def bad(*inputs: Any, error: type[Exception] = ValueError, words: str = "", **options: Any) -> Bad:
    return Bad(inputs, options, error, tuple(words.split("|")))


ROWS, WIDE = np.array([[1, 1, 3], [0, 1, 3]]), np.array([[True, False, True, True], [False, False, True, False]])
BROADCAST = [
    of(some(2, 3), positive(2, 3)),
    of(some(2, 1, 4), positive(3, 1)),
    of(some(3), positive()),
    of(some(1), positive(2, 1)),
]
SHAPES = [bad(some(2, 3), some(4), words="(2, 3)|(4,)")]
COMPLEX = [bad(np.array([1j, 2.0]), error=TypeError, words="complex")]
COMPLEX_PAIR = [bad(np.array([1j, 2.0]), some(2), error=TypeError, words="complex"), *SHAPES]
WHOLE = [of(some(2, 3)), of(some(4)), of(some()), of(some(2, 0))]
AXES = [
    of(some(2, 3, 4), axis=axis, keepdims=keepdims)
    for axis in (None, 0, -1, (0, 2), (-1, 0), (1, 2))
    for keepdims in (False, True)
]
NO_AXIS = [bad(some(2, 3), axis=2, words="(2, 3)|axis 2"), bad(some(2, 3), axis=(0, -3), words="(2, 3)|axis -3")]
ALONG = [of(some(4)), of(some(2, 3, 4)), of(some(2, 3, 4), axis=0), of(some(2, 3), axis=-2)]


def _softmax(x, axis=-1):
    return np.exp(x) / np.sum(np.exp(x), axis=axis, keepdims=True)


def _logsumexp(x, axis=-1, keepdims=False):
    return np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims))


CASES = [
    Case("add", np.add, BROADCAST, SHAPES, elementwise=True),
    Case("subtract", np.subtract, BROADCAST, SHAPES, elementwise=True),
    Case("multiply", np.multiply, BROADCAST, SHAPES, elementwise=True),
    Case("divide", np.divide, BROADCAST, SHAPES, elementwise=True),
    Case(
        "power",
        np.power,
        [
            of(positive(2, 3), some(2, 3)),
            of(positive(2, 1, 4), some(3, 1)),
            of(positive(3), some()),
            of(positive(1), some(2, 1)),
        ],
        SHAPES,
        elementwise=True,
    ),
    Case("maximum", np.maximum, BROADCAST, COMPLEX_PAIR, smooth=False, elementwise=True),
    Case("minimum", np.minimum, BROADCAST, COMPLEX_PAIR, smooth=False, elementwise=True),
    Case("negative", np.negative, WHOLE, [], elementwise=True),
    Case("exp", np.exp, WHOLE, [], elementwise=True),
    Case("log", np.log, [of(positive(2, 3)), of(positive()), of(positive(0))], [], elementwise=True),
    Case("sqrt", np.sqrt, [of(positive(2, 3)), of(positive()), of(positive(0))], [], elementwise=True),
    Case("tanh", np.tanh, WHOLE, [], elementwise=True),
    Case("sigmoid", lambda x: 1 / (1 + np.exp(-x)), WHOLE, [], elementwise=True),
    Case("relu", lambda x: np.where(x > 0, x, 0), WHOLE, COMPLEX, smooth=False, elementwise=True),
    Case("abs", np.abs, WHOLE, COMPLEX, smooth=False, elementwise=True),
    Case(
        "where",
        lambda x, y, condition: np.where(condition, x, y),
        [
            of(some(2, 4), positive(2, 4), condition=WIDE),
            of(some(4), positive(2, 1), condition=WIDE),
            of(some(2, 4), positive(), condition=WIDE[0]),
        ],
        [bad(some(3), some(3), condition=WIDE, words="(3,)|(2, 4)")],
        elementwise=True,
    ),
    Case(
        "matmul",
        np.matmul,
        [
            of(some(2, 3), some(3, 4)),
            of(some(2, 3), some(3)),
            of(some(3), some(3, 2)),
            of(some(3), positive(3)),
            of(some(3, 3), some(3)),
            of(some(3), some(3, 3)),
            of(some(4, 2, 3), some(3, 2)),
            of(some(2, 3), some(4, 3, 2)),
            of(some(4, 2, 3), some(3)),
            of(some(3), some(4, 3, 2)),
            of(some(4, 1, 2, 3), some(5, 3, 2)),
            of(some(5, 4, 2, 3), some(3, 2)),
        ],
        [
            bad(some(2, 3), some(4, 2), words="(2, 3)|(4, 2)|inner sizes differ: 3 and 4"),
            bad(some(2, 3), some(2), words="(2, 3)|(2,)|inner"),
            bad(some(2, 2, 3), some(4, 3, 2), words="(2, 2, 3)|(4, 3, 2)"),
            bad(some(2, 3), some(), words="(2, 3)|()|number"),
        ],
        numbers=False,
    ),
    Case("sum", np.sum, [*AXES, of(some()), of(some(2, 0), axis=1)], NO_AXIS),
    Case("mean", np.mean, [*AXES, of(some())], [*NO_AXIS, bad(some(2, 0), axis=1, words="(2, 0)|no elements")]),
    Case(
        "max", np.max, [*AXES, of(some())], [*NO_AXIS, *COMPLEX, bad(some(2, 0), axis=1, words="(2, 0)")], smooth=False
    ),
    Case("logsumexp", _logsumexp, [*ALONG, *AXES], NO_AXIS),
    Case("softmax", _softmax, [*ALONG, of(some(2, 3), axis=(0, 1))], [bad(some(2, 3), axis=2, words="(2, 3)|axis 2")]),
    Case(
        "log_softmax",
        lambda x, axis=-1: np.log(_softmax(x, axis)),
        [*ALONG, of(some(2, 3), axis=(0, 1))],
        [bad(some(2, 3), axis=2, words="(2, 3)|axis 2")],
    ),
    Case(
        "reshape",
        lambda x, shape: np.reshape(x, shape),
        [
            of(some(2, 3), shape=(3, 2)),
            of(some(2, 3, 4), shape=(4, -1)),
            of(some(4), shape=-1),
            of(some(1, 1), shape=()),
        ],
        [bad(some(2, 3), shape=(4, 2), words="(2, 3)|(4, 2)"), bad(some(2, 3), error=TypeError, words="shape")],
    ),
    Case(
        "transpose",
        lambda x, axes=None: np.transpose(x, axes),
        [
            of(some(2, 3)),
            of(some(2, 3, 4)),
            of(some(2, 3, 4), axes=(1, 2, 0)),
            of(some(3, 3, 3), axes=(-1, 0, 1)),
            of(some(4)),
        ],
        [bad(some(2, 3), axes=(0, 2), words="(2, 3)|axis 2"), bad(some(2, 3), axes=(0, 0), words="(2, 3)|repeated")],
    ),
    Case(
        "getitem",
        lambda x, index: x[index],
        [
            of(some(4, 3), index=1),
            of(some(4, 3), index=(slice(None), -1)),
            of(some(4, 3), index=slice(0, 3, 2)),
            of(some(4, 3), index=(..., None, slice(1, None))),
            of(some(4, 3), index=ROWS),
            of(some(4, 3), index=np.array([-1, 3, 0])),
            of(some(4, 3), index=(slice(None), np.array([0, 0, 2]))),
            of(some(4, 3), index=(np.array([1, 1, 3]), np.array([2, 2, 0]))),
            of(some(2, 4), index=WIDE),
            of(some(4, 3), index=(WIDE[0], 1)),
            of(some(4, 3), index=[2, 2]),
            of(some(4, 3), index=np.array(2)),
        ],
        [
            bad(some(2, 3), index=2, error=IndexError, words="(2, 3)|2"),
            bad(some(2, 3), index=(0, 0, 0), error=IndexError, words="(2, 3)|too many"),
            bad(some(2, 3), index=np.array([0.0]), error=IndexError, words="(2, 3)|integer"),
        ],
    ),
    Case(
        "pick",
        lambda x, ids: np.take_along_axis(x, ids[..., None], -1)[..., 0],
        [of(some(2, 4), ids=np.array([3, 0])), of(some(2, 3, 4), ids=ROWS), of(some(4), ids=np.array(2))],
        [bad(some(2, 4), ids=np.array([1]), words="(2, 4)")],
    ),
    Case(
        "embedding",
        lambda W, ids: W[ids],
        [of(some(4, 2), ids=ROWS), of(some(4, 2), ids=np.array(3)), of(some(4, 2), ids=np.zeros((0, 2), int))],
        [
            bad(some(4, 2), ids=np.array([0, 4, -1]), words="id 4|(1,)|0 … 3|2 such"),
            bad(some(4, 2), ids=np.array([0, -1]), words="id -1|0 … 3"),
            bad(some(4, 2), ids=np.array([1.0]), error=TypeError, words="integers|float64"),
        ],
    ),
    Case(
        "concatenate",
        lambda *xs, axis=0: np.concatenate(xs, axis),
        [
            of(some(2, 3), some(1, 3)),
            of(some(2, 3), positive(2, 1), some(2, 2), axis=-1),
            of(some(3), positive(0)),
            of(some(2)),
        ],
        [bad(some(2, 3), some(2, 2), words="(2, 3)|(2, 2)"), bad(some(2), some(2), axis=1, words="(2,)|axis 1")],
        numbers=False,
    ),
    Case(
        "stack",
        lambda *xs, axis=0: np.stack(xs, axis),
        [
            of(some(2, 3), positive(2, 3)),
            of(some(3), positive(3), axis=1),
            of(some(3), positive(3), axis=-1),
            of(some(2, 3)),
        ],
        [bad(some(2, 3), some(2, 2), words="(2, 3)|(2, 2)"), bad(some(2), some(2), axis=2, words="(2,)|axis 2")],
        numbers=False,
    ),
    Case(
        "unstack",
        lambda x, axis=0: tuple(np.moveaxis(x, axis, 0)),
        [of(some(3, 2)), of(some(2, 3), axis=1), of(some(2, 3, 4), axis=-2), of(some(3))],
        [bad(some(2, 3), axis=2, words="(2, 3)|axis 2"), bad(some(0, 3), words="(0, 3)")],
    ),
    Case(
        "split",
        lambda x, pieces, axis=0: tuple(np.split(x, pieces, axis)),
        [
            of(some(4, 3), pieces=2),
            of(some(2, 5), pieces=[1, 4], axis=1),
            of(some(2, 6), pieces=3, axis=-1),
            of(some(3), pieces=[]),
        ],
        [
            bad(some(3, 2), pieces=2, words="(3, 2)|equal"),
            bad(some(3), pieces=3, axis=1, words="(3,)|axis 1 does not exist"),
        ],
    ),
]
TABLE = {case.name: case for case in CASES}
