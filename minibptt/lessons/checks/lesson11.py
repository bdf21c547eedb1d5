"""Lesson 11, layers against steps: paths through a stack, a step of one with residuals, dropout in its place.

Read after ../answers.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import ops
from ...cells import RNNCell
from ...cells.stack import Stack
from ...layers import Dropout
from ...parameters import assign
from ...tape import Tape
from ...tensor import Tensor
from ..answers import call, number, parts, same
from ..registry import NotYet, Numbers, exercise

GRIDS = [(3, 3), (3, 5), (3, 7), (4, 5), (4, 7)]  # layers and steps, no two mistakes giving the same number of paths


@exercise(
    "11.1",
    "paths",
    numbers=lambda rng: dict(zip("Lj", map(int, rng.choice(GRIDS)))),
    hints=[
        "Fill in the grid of L layers and j + 1 steps from its last corner: each entry is the one above plus the one "
        "after it.",
        "A path makes j steps to the right and L − 1 upwards: in how many orders? j + L − 1 moves, L − 1 of them up.",
    ],
)
def _(paths: Any, n: Numbers) -> None:
    """Predict how many paths lead through a stack."""
    L, j = n["L"], n["j"]
    cells = [RNNCell(1, 1, "linear", rng=0, dtype=np.float64) for _ in range(L)]
    for cell in cells:
        assign(cell.W_x, np.ones((1, 1)))
        assign(cell.W_h, np.ones((1, 1)))
    with Tape() as tape:
        x = tape.watch(np.zeros((j + 1, 1, 1)))
        loss = ops.sum(Stack(cells)(x)[0][-1])
    right = tape.gradient(loss, x)[0].item()
    mistakes = {
        "that is the number of boxes in the grid, L·(j + 1); asked for are ways through it": L * (j + 1),
        "that is one layer too many: from x_s to the first layer there is one way, and then L − 1 climbs": math.comb(
            j + L, L
        ),
        "that is one layer too few: L layers have L − 1 climbs between them": math.comb(j + L - 2, L - 2),
        "that is one step too few: from s to s + j there are j steps": math.comb(j + L - 2, L - 1),
        "that is 2 to the number of moves; but exactly L − 1 of them must go up": 2 ** (j + L - 1),
        "that is L choices at each step; but a path never comes down again": L**j,
        "that lets each climb choose its step freely; but a path is never in layer 3 before layer 2": (j + 1)
        ** (L - 1),
        "that is the length of a path; asked for is how many there are": j + L - 1,
        "one path is what a single layer has": 1,
    }
    same(number(call(paths)), right, mistakes, otherwise="Fill in the grid: check.hint('11.1')")


def _stack_step(
    cells: Sequence[RNNCell],
    x: Any,
    state: Any,
    residual: Callable[[int], bool] = lambda i: i > 0,
    state_of: Callable[[int, Any, Any], Any] = lambda i, state, after: state[i],
    climbs: bool = True,
    kept: str = "own",
    around_all: bool = False,
) -> tuple[Any, Any]:
    """One step of a stack, right, or with a mistake."""
    after: list[Any] = []
    first = x
    for i, cell in enumerate(cells):
        below = x if climbs else first
        out, h = cell.step(below, state_of(i, state, after))
        x = (first if around_all else below) + out if residual(i) else out
        after.append(x if kept == "sum" else h)
    return x, tuple(after)


def _below(i: int, state: Any, after: Any) -> Any:
    return after[i - 1] if i else state[0]


@exercise(
    "11.2",
    "stack_step",
    hints=[
        "A loop over the cells: the output of one is the input of the next, and state[i] belongs to cells[i].",
        "x = x + out for i > 0: what goes up is the sum; what goes into the state is what the cell gave.",
    ],
)
def _(stack_step: Any) -> str:
    """Write one step of a stack with residual connections."""
    rng = np.random.default_rng(112)
    cells = [RNNCell(3, 3, rng=stream, dtype=np.float64) for stream in rng.spawn(3)]
    x, h = rng.standard_normal((2, 3)), rng.standard_normal((3, 2, 3))
    state = tuple([Tensor(part) for part in h])
    right = Stack(cells, residual=[1, 2]).step(Tensor(x), state)
    found = call(stack_step, cells, Tensor(x), state, what="stack_step")
    found = parts(found, "stack_step", "the output", "a tuple with the state of each layer")
    if not isinstance(found[1], tuple | list):
        raise NotYet(f"the second thing must be a tuple with the state of each layer; found {type(found[1]).__name__}")
    if len(found[1]) != 3:
        raise NotYet(f"the state has one entry for each layer, here 3; yours has {len(found[1])}")

    def mistaken(**options: Any) -> Any:
        return _flat(*_stack_step(cells, Tensor(x), state, **options))

    mistakes = {
        "the residual connections are missing: add the input of each upper layer to its output": mistaken(
            residual=lambda i: False
        ),
        "the first layer has a residual connection too; asked for are all but the first": mistaken(
            residual=lambda i: True
        ),
        "only the last layer has a residual connection": mistaken(residual=lambda i: i == 2),
        "every layer reads x itself; a layer's input is the output of the one below": mistaken(climbs=False),
        "layer i starts from the new state of the layer below; each has a state of its own, from the step before":
        mistaken(state_of=_below),
        "all layers start from the first layer's state": mistaken(state_of=lambda i, state, after: state[0]),
        "what goes into the state is the sum; the residual connection goes up, not on in time": mistaken(kept="sum"),
        "what is added is x; a residual connection adds the input of that layer": mistaken(around_all=True),
        "the new states are in the wrong order: the first layer's comes first": _flat(right[0], right[1][::-1]),
        "the state that you return is the one before the step": _flat(right[0], state),
    }  # fmt: skip
    for what, part in (("the output", found[0]), *[("the state", part) for part in found[1]]):
        value: Any = getattr(part, "value", part)
        if np.shape(value) != (2, 3):
            raise NotYet(f"{what} must have shape (2, 3), as x has; a part of it is another thing")
    same(_flat(*found), _flat(*right), mistakes, otherwise="Ask check.hint('11.2')", what="(output, states)")
    return "(Three layers, against the engine's Stack.)"


def _flat(output: Any, state: Any) -> np.ndarray:
    return np.stack([np.asarray(getattr(part, "value", part), float) for part in (output, *state)]).ravel()


def _run(lower: RNNCell, upper: RNNCell, drop: Dropout, x: np.ndarray, where: str = "up") -> np.ndarray:
    """The outputs of two layers with dropout on: up, state, memory, in, out, never, …, or up with one mask."""
    h, g, outputs = lower.zero_state(x.shape[1]), upper.zero_state(x.shape[1]), []
    mask = drop(np.ones((x.shape[1], lower.H))) if where == "one mask" else None
    for x_t in x:
        below, h = lower.step(drop(x_t) if where in ("in", "in and up") else Tensor(x_t), h)
        if where == "state":
            below = h = drop(h)
        elif where == "memory":
            h = drop(h)
        elif where in ("up", "upper state", "in and up", "up and out"):
            below = drop(below)
        elif mask is not None:
            below = below * mask
        out, g = upper.step(below, g)
        if where == "upper state":
            g = drop(g)
        outputs.append((drop(out) if where in ("out", "up and out") else out).value)
    return np.stack(outputs)


@exercise(
    "11.3",
    "mended",
    hints=[
        "In broken, what the lower layer carries on to the next step has been dropped too.",
        "Two names for two things: out, h = lower.step(x_t, h). Drop out, leave h.",
    ],
)
def _(mended: Any) -> None:
    """Find the bug: dropout on the way through time."""
    rng = np.random.default_rng(113)
    lower, upper = [RNNCell(4, 4, rng=stream, dtype=np.float64) for stream in rng.spawn(2)]
    x = rng.standard_normal((6, 2, 4))

    def drop() -> Dropout:
        return Dropout(0.4, rng=11)

    used = drop()
    found = call(mended, lower, upper, used, x)
    mistakes = {
        "the lower layer's state is still dropped on its way to the next step": _run(lower, upper, drop(), x, "state"),
        "only the state is dropped, and what goes up is not: the other way round": _run(
            lower, upper, drop(), x, "memory"
        ),
        "nothing is dropped at all; what goes up from the lower layer must be": _run(lower, upper, drop(), x, "never"),
        "the inputs are dropped; what goes up from the lower layer must be": _run(lower, upper, drop(), x, "in"),
        "the outputs of the upper layer are dropped; dropout stands between the layers": _run(
            lower, upper, drop(), x, "out"
        ),
        "the inputs are dropped too; here dropout stands between the layers only": _run(
            lower, upper, drop(), x, "in and up"
        ),
        "the outputs of the upper layer are dropped too; here dropout stands between the layers only": _run(
            lower, upper, drop(), x, "up and out"
        ),
        "one mask serves all steps; here each step draws a new one": _run(lower, upper, drop(), x, "one mask"),
        "the upper layer's state is dropped too": _run(lower, upper, drop(), x, "upper state"),
    }
    same(found, _run(lower, upper, drop(), x), mistakes, "the outputs", "Ask check.hint('11.3')")
