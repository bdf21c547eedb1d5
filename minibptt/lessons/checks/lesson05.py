"""Lesson 5, carry, cut, reset: the loops are run again with each mistake, by the engine. Read after ../answers.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import ops
from ...cells import LSTMCell
from ...layers import Embedding, Linear, Sequential
from ...losses import cross_entropy, mse
from ...nest import leaves
from ...parameters import assign, parameter
from ...recurrent import LSTM
from ...sequence import unroll
from ...states import reset
from ...tape import Tape, TapeError, cut
from ...tensor import Tensor
from ..answers import Mistakes, array, call, mapping, number, same
from ..registry import NotYet, Numbers, exercise

WAYS: dict[str, Callable[[Any], Any]] = {"carry": lambda h: h, "cut": cut, "reset": reset}
Windows = list[tuple[np.ndarray, np.ndarray]]


def _draw_unit(rng: np.random.Generator) -> Numbers:
    a, x1, x2 = rng.permutation([2, 5, 7])
    return {"w": int(rng.integers(3, 6)), "a": int(a), "x1": int(x1), "x2": int(x2)}


@exercise(
    "5.1",
    "across",
    numbers=_draw_unit,
    hints=[
        "h₂ = w·h₁ + x₂ depends on w twice: directly, with derivative h₁, and through h₁.",
        "A cut keeps the number h₁ and takes away the second way. After a reset h₁ counts as 0, both ways.",
    ],
)
def _(across: Any, n: Numbers) -> None:
    """Predict value and gradient of a carry, a cut and a reset."""
    answer = mapping(call(across), tuple(WAYS), "what across returns")
    right = {}
    for name, between in WAYS.items():
        weight = parameter(float(n["w"]))
        with Tape() as tape:
            h1 = weight * float(n["a"]) + float(n["x1"])
            h2 = weight * between(h1) + float(n["x2"])
        right[name] = np.array([h2.item(), float(tape.gradient(h2, weight))])
    w, a, x1, x2 = (float(n[name]) for name in ("w", "a", "x1", "x2"))
    values: dict[str, Mistakes] = {
        "carry": {
            "a is missing: the first step starts from h₀ = a": w * x1 + x2,
            "that is h₁; h₂ is one step on": w * a + x1,
            "that is what h₂ is after a reset": x2,
        },
        "cut": {
            "a cut keeps the value of h₁; you have started from 0, which is a reset": x2,
            "that is h₁; h₂ is one step on": w * a + x1,
        },
        "reset": {
            "a reset starts from 0; you have kept the value of h₁": w * (w * a + x1) + x2,
            "a reset starts from 0, not from h₀ = a": w * a + x2,
        },
    }
    gradients: dict[str, Mistakes] = {
        "carry": {
            "this is the cut's: carried, w also acts through h₁": w * a + x1,
            "w·∂h₁/∂w is there, but the direct term h₁ is missing": w * a,
            "h₁ depends on w with derivative a, and that is then multiplied by w": w * a + x1 + a,
            "that is w·h₁, and the derivative of w·h₁ by w is asked for: a product rule": w * (w * a + x1),
        },
        "cut": {
            "this is the carry's: nothing has been cut": right["carry"][1],
            "a cut is not a reset: h₁ is a number still, and w multiplies it": 0,
            "that way is the one that is cut; what stays is the direct one": w * a,
            "h₁ counts as a number, so that ∂h₁/∂w = a is not in it": a,
        },
        "reset": {
            "after a reset w multiplies 0 in step 2": w * a + x1,
            "after a reset neither h₁ nor its past counts; this is the carry's": right["carry"][1],
        },
    }
    for name, expected in right.items():
        yours = array(answer[name], f"{name}: (h₂, ∂h₂/∂w)", (2,))
        if np.array_equal(yours[::-1], expected):
            raise NotYet(f"{name}: the two are swapped; h₂ comes first, then ∂h₂/∂w")
        for what, one, is_right, mistakes in zip(
            ("h₂", "∂h₂/∂w"), yours, expected, (values[name], gradients[name]), strict=True
        ):
            try:
                same(one, is_right, mistakes, what, otherwise="check.hint('5.1')")
            except NotYet as wrong:
                raise NotYet(f"{name}, {what}: {wrong}") from None


@exercise(
    "5.2",
    "window_gradients",
    points=2,
    hints=[
        "state = model.zero_state(B) before the loop; x.shape is (k, B, D).",
        "In the loop: with mb.Tape() as tape: out, state = model(x, mb.cut(state)); then tape.gradient.",
    ],
)
def _(window_gradients: Any) -> str:
    """Write the loop over the windows, carried and cut."""
    rng = np.random.default_rng(52)
    model = Sequential(LSTM(2, 3, rng=rng, dtype=np.float64), Linear(3, 1, rng=rng, dtype=np.float64))
    windows = [(rng.standard_normal((k, 2, 2)), rng.standard_normal((k, 2, 1))) for k in (4, 4, 3)]
    try:
        found = call(window_gradients, model, list(windows), mse)
    except TapeError as error:
        if "another tape" not in str(error):
            raise
        if str(error).startswith("c"):
            raise NotYet("h is cut and c is not: an LSTM's state is both. mb.cut(state) takes all of it") from None
        raise NotYet(
            "you forgot to cut: a window's state comes with its past, from a tape that is done. PyTorch would say "
            '"Trying to backward through the graph a second time"'
        ) from None
    if found is None:
        raise NotYet("window_gradients returns None: is a return missing?")
    if not isinstance(found, list | tuple):
        raise NotYet(f"window_gradients must return a list, one gradient a window; it returned {type(found).__name__}")
    if len(found) != len(windows):
        tail = ": the last one, shorter, counts too" if len(found) == len(windows) - 1 else ""
        raise NotYet(f"there are {len(windows)} windows, and you return {len(found)} of their gradients{tail}")
    names = list(model.parameters())
    yours = [mapping(one, tuple(names), f"the gradient of window {i + 1}") for i, one in enumerate(found)]
    flat = np.concatenate([_flat(one) for one in yours])
    right = _gradients(model, windows, cut)
    by_steps = right.reshape(3, -1) * np.array([[4], [4], [3]]) / 11
    same(
        flat,
        right,
        {
            "each window starts from the zero state, which is a reset; the state is to be carried": lambda: _gradients(
                model, windows, lambda state: reset(state)
            ),
            "h is carried and c starts from 0 in each window: an LSTM's state is both": lambda: _gradients(
                model, windows, lambda state: _parts(state, cut, reset)
            ),
            "c is carried and h starts from 0 in each window: an LSTM's state is both": lambda: _gradients(
                model, windows, lambda state: _parts(state, reset, cut)
            ),
            "nothing is cut: these go back to the first window, on one long tape": lambda: _on_one_tape(model, windows),
            "each loss is added to those before: the gradient of a window is that of its own loss": lambda: np.cumsum(
                right.reshape(3, -1), axis=0
            ),
            "each is divided by the number of windows; there is no mean over windows here": right / 3,
            "each is weighted by its window's steps; there is no mean over windows here": by_steps,
        },
        "the list of gradients",
        otherwise="The state of one window's end is where the next begins: check.hint('5.2')",
    )
    return "(Windows of 4, 4 and 3 steps, two rows.)"


def _flat(gradients: Any) -> np.ndarray:
    return np.concatenate([np.ravel(g) for g in gradients.values()])


def _parts(state: Any, of_h: Callable[[Any], Any], of_c: Callable[[Any], Any]) -> Any:
    """The state of a model with one LSTM, its h and c each treated in their own way."""
    (((h, c),),) = state
    return (((cut(of_h(h)), cut(of_c(c))),),)


def _gradients(model: Any, windows: Windows, between: Callable[[Any], Any]) -> np.ndarray:
    state, found = model.zero_state(2), []
    for x, y in windows:
        with Tape() as tape:
            out, state = model(x, between(state))
            loss = mse(out, y)
        found.append(_flat(tape.gradient(loss, model)))
    return np.concatenate(found)


def _on_one_tape(model: Any, windows: Windows) -> np.ndarray:
    state, losses = model.zero_state(2), []
    with Tape() as tape:
        for x, y in windows:
            out, state = model(x, state)
            losses.append(mse(out, y))
    return np.concatenate([_flat(tape.gradient(loss, model)) for loss in losses])


@exercise(
    "5.3",
    "evaluate",
    hints=[
        "Windows have different numbers of targets: add up sums, count targets, divide once.",
        "mb.cross_entropy(logits, y, count=1) is the sum over the window.",
    ],
)
def _(evaluate: Any) -> str:
    """Write the evaluation with a carried state."""
    rng = np.random.default_rng(53)
    layers = Embedding(5, 3, rng=rng, dtype=np.float64), LSTM(3, 6, rng=rng, dtype=np.float64)
    model = Sequential(*layers, Linear(6, 5, rng=rng, dtype=np.float64))
    for one in model.parameters().values():
        assign(one, rng.normal(0, 2, one.shape))  # far from uniform, so that what was read matters
    ids = rng.integers(0, 5, (12, 3))
    windows = [(ids[a:b], ids[a + 1 : b + 1]) for a, b in ((0, 4), (4, 8), (8, 11))]
    carried, fresh = (_losses(model, windows, between) for between in (WAYS["carry"], reset))
    counts = np.array([y.size for _, y in windows])
    full = counts == counts.max()
    mistakes = {
        "this starts every window from the zero state, which is a reset": fresh.sum() / counts.sum(),
        "this is a mean of means: the last window is shorter and weighs as much as the others": np.mean(
            carried / counts
        ),
        "this starts every window from the zero state, and is a mean of means": np.mean(fresh / counts),
        "the last, shorter window is left out": carried[full].sum() / counts[full].sum(),
        "this is the sum over all targets; divide by their number": carried.sum(),
        "this is the loss of a window; divide by the number of targets, not of windows": carried.sum() / len(windows),
        "this divides by the number of steps; each step has a target in every row": carried.sum() * 3 / counts.sum(),
        "this is the sum of the windows' means": np.sum(carried / counts),
        "this is the last window's loss alone": carried[-1] / counts[-1],
        "this is e to the mean, the perplexity; the mean is asked for": np.exp(carried.sum() / counts.sum()),
        "this is in bits, divided by log 2; leave the loss as mb.cross_entropy gives it": carried.sum()
        / counts.sum()
        / np.log(2),
        "this divides twice: mb.cross_entropy is a mean already; with count=1 it is a sum": np.sum(carried / counts)
        / counts.sum(),
        "this is the first window's loss alone: is the return in the loop?": carried[0] / counts[0],
    }
    yours = number(call(evaluate, model, list(windows)), "evaluate(model, windows)")
    same(yours, carried.sum() / counts.sum(), mistakes, otherwise="check.hint('5.3')")
    return "(Windows of 4, 4 and 3 steps; the number is that of one window of 11.)"


def _losses(model: Any, windows: Windows, between: Callable[[Any], Any]) -> np.ndarray:
    """The sum of the losses in each window."""
    state, found = model.zero_state(3), []
    for x, y in windows:
        logits, state = model(x, between(state))
        found.append(cross_entropy(logits, y, count=1).item())
    return np.array(found)


@exercise(
    "5.4",
    "next_state",
    hints=[
        "mb.cut and mb.reset both take the whole state.",
        "mb.reset(…, rows=new) leaves the other rows as they are.",
    ],
)
def _(next_state: Any) -> str:
    """Find the bug: a reset of some rows, of h and c, and a cut."""
    rng = np.random.default_rng(54)
    cell, x = LSTMCell(2, 3, rng=rng, dtype=np.float64), rng.standard_normal((4, 4, 2))
    new = np.array([False, True, False, False])
    with Tape():
        _, state = unroll(cell, x)
    try:
        with Tape():  # the next window's
            found = call(next_state, state, new)
            for one in found if isinstance(found, tuple | list) else ():
                ops.sum(one) if isinstance(one, Tensor) else None  # one that has a past elsewhere is refused here
    except TapeError as error:
        name = str(error)[:1]
        raise NotYet(
            f"{name} is used with its past, which is on a tape that is done: cut {name} first, before anything else "
            "is done to it under the next window's tape"
        ) from None
    if not isinstance(found, tuple | list) or len(found) != 2 or not all(isinstance(one, Tensor) for one in found):
        raise NotYet("next_state must return the state in the form in which it was given: (h, c), two tensors")
    values = [array(one, name, (4, 3)) for one, name in zip(found, "hc")]
    before = [one.value for _, one in leaves(state)]
    kept = [np.array_equal(value, was) for value, was in zip(values, before)]
    right = [reset(one, rows=new).value for one in before]
    wrong = [not np.array_equal(value, one) for value, one in zip(values, right)]
    if all(kept):
        raise NotYet("nothing is reset: row 1, where a document begins, keeps what it knew of the old one")
    if any(wrong):
        for name, other, is_kept in zip("hc", "ch", kept):
            if is_kept and not wrong["hc".index(other)]:
                raise NotYet(f"{other} is reset in row 1, and {name} is not: the old document lives on in {name}")
        if all(np.array_equal(value, one) for value, one in zip(values, right[::-1])):
            raise NotYet("h and c are swapped: return (h, c)")
        if not any(value.any() for value in values):
            raise NotYet("every row is reset; only row 1 has a new document, the others go on")
        if all(np.array_equal(v, reset(was, rows=~new).value) for v, was in zip(values, before)):
            raise NotYet("the other rows are reset: `new` is true where a document begins")
        raise NotYet("the values are not those of a reset in row 1 that leaves the other rows alone")
    return "(Row 1 starts afresh, h and c; the others go on, cut.)"
