"""Lesson 0, a character model: the first loss, the pairs that windows keep, and the state that goes on.

Read after ../answers.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...asking import TapeError
from ...layers import Embedding, Linear, Sequential
from ...losses import cross_entropy
from ...nest import leaves
from ...recurrent import LSTM
from ...tape import Tape
from ...tensor import Tensor
from ...truncation import tbptt
from ..answers import call, number, same
from ..registry import NotYet, Numbers, exercise


@exercise(
    "0.1",
    "loss_of_knowing_nothing",
    hints=["All V symbols have the same probability, 1/V.", "The loss is −log(1/V). Which logarithm counts in nats?"],
)
def _(loss_of_knowing_nothing: Any) -> str:
    """Predict the loss of a model that knows nothing."""
    for V in (91, 2, 1000):
        yours = number(call(loss_of_knowing_nothing, V))
        right = cross_entropy(np.zeros((1, V)), np.array([0]))
        mistakes = {
            "that is in bits (log₂); nats are natural logarithms": math.log2(V),
            "that is log₁₀; nats are natural logarithms": math.log10(V),
            "the sign: −log p is positive, for p is below 1": -math.log(V),
            "that is the probability of each symbol; the loss is −log of it": 1 / V,
            "that is the chance to be wrong; the loss is −log p of the symbol that comes": 1 - 1 / V,
            "that is the number of symbols; how surprised is one who finds each equally likely?": V,
        }
        same(yours, right, mistakes, otherwise=f"For V = {V}. Ask check.hint('0.1')")
    return "Compare it with the first loss of the training."


def _draw_pairs(rng: np.random.Generator) -> Numbers:
    k = int(rng.integers(5, 8))
    return {"T": 3 * k + int(rng.integers(2, k)), "k": k}  # the last window is shorter; never k windows of k


@exercise(
    "0.2",
    "pairs_kept",
    numbers=_draw_pairs,
    hints=[
        "Draw the triangle of all pairs (t, s) with s ≤ t, and the cuts as lines: what is left are smaller triangles.",
        "A window of k steps keeps k + (k − 1) + … + 1 = k·(k + 1)/2 pairs. How long is the last window?",
    ],
)
def _(pairs_kept: Any, n: Numbers) -> None:
    """Predict how many pairs windows of k steps keep."""
    T, k = n["T"], n["k"]

    def kept(*lengths: int) -> float:
        return float(sum(length * (length + 1) // 2 for length in lengths))

    right = np.count_nonzero(tbptt(k).plan(T).coverage())
    whole, rest = divmod(T, k)
    mistakes = {
        "that is the whole triangle: nothing is cut": kept(T),
        f"that is for {k} windows; asked for are windows of {k} steps": kept(
            *[len(part) for part in np.array_split(np.arange(T), k)]
        ),
        f"the last, shorter window of {rest} steps is missing": kept(*[k] * whole),
        f"the last window has only {rest} steps, not {k}": kept(*[k] * (whole + 1)),
        "a step belongs to the past of its own loss: count the pairs with s = t too": right - T,
        "those are squares; within a window only the pairs with s ≤ t exist": whole * k**2 + rest**2,
        "that is T·k, as if every loss looked back k steps; the first ones in a window look back less": T * k,
    }
    same(number(call(pairs_kept)), right, mistakes, otherwise="Draw the triangle: check.hint('0.2')")


@exercise(
    "0.3",
    "next_state",
    hints=["The training loop further up has it.", "mb.cut takes a state of any form, tuples in tuples too."],
)
def _(next_state: Any) -> None:
    """Find the bug: the state is carried but not cut."""
    streams = np.random.default_rng(3).spawn(3)
    layers = [Embedding(5, 3, rng=streams[0]), LSTM(3, 4, rng=streams[1]), Linear(4, 5, rng=streams[2])]
    model, x = Sequential(*layers), np.arange(10).reshape(5, 2) % 5
    with Tape() as before:
        _, state = model(x)
    with Tape() as tape:
        found = call(next_state, state)
        if found is None:
            raise NotYet("it returns None: is a return missing?")
        yours, right = list(leaves(found)), list(leaves(state))
        if [path for path, _ in yours] != [path for path, _ in right]:
            raise NotYet("it must have the form of the state: for each layer with a state its parts, here h and c")
        past = []
        for name, (_, a), (_, b) in zip("hc", yours, right):
            if not isinstance(a, Tensor):
                raise NotYet(f"{name} is no tensor any more but {type(a).__name__}: cut it, do not take it apart")
            if not np.any(a.value) and np.any(b.value):
                raise NotYet(f"{name} is zero: that is a reset. A cut keeps the value")
            same(a, b, what=name, otherwise="A cut keeps the value as it is")
            past += [name] * (a.mark is before.mark)
        if past == ["h", "c"]:
            raise NotYet("you forgot to cut: this still has the past of the first window")
        if past:
            cut, left = ("h", "c") if past == ["c"] else ("c", "h")
            raise NotYet(f"you cut {cut} but not {left}: an LSTM carries both, and both have a past")
        try:
            model(x, found)
        except TapeError as error:
            raise NotYet(str(error)) from None
    del tape
