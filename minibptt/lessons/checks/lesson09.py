"""Lesson 9, padding and streams: the engine's masks, means and streams say what is right. Read after ../answers.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...cells import RNNCell
from ...losses import mse
from ...sequence import unroll
from ...streams import stream_batches
from ..answers import array, call, parts, same
from ..registry import NotYet, Numbers, exercise


def _draw_rows(rng: np.random.Generator) -> Numbers:
    return {
        "lengths": [int(T) for T in rng.permutation([5, 3, 2])],
        "e": [int(e) for e in rng.permutation([1, 3, 4])],
    }


@exercise(
    "9.1",
    "masked_mean",
    numbers=_draw_rows,
    hints=["Every real step counts once, in whichever row it is.", "Add up T_b·e_b² and divide by the sum of the T_b."],
)
def _(masked_mean: Any, n: Numbers) -> None:
    """Predict a masked mean."""
    T, e = np.array(n["lengths"]), np.array(n["e"], float)
    errors = np.broadcast_to(e, (6, 3))
    right = mse(errors, np.zeros((6, 3)), lengths=T).item()
    total, rows = float(T @ e**2), e**2
    mistakes = {
        "this is the mean of the rows' means: a short row weighs as much as a long one in it": rows.mean(),
        "this divides by all 6·3 places; padding is not counted": total / 18,
        "this is the sum; it is still to be divided by the number of real steps": total,
        "this divides by the number of rows": total / 3,
        "the root is taken of it; asked for is the mean of the squares": (total / T.sum()) ** 0.5,
        "these are errors, not squared": float(T @ e) / T.sum(),
        "the error is squared after the mean; square each one first": (float(T @ e) / T.sum()) ** 2,
        "this divides by the 6 steps": total / 6,
        "this divides by the longest length": total / T.max(),
    }
    same(call(masked_mean), right, mistakes, "the mean", "Σ over real steps, divided by how many there are")


@exercise(
    "9.2",
    "padded_step",
    points=2,
    hints=["np.where(real[:, None], …, …) chooses row by row.", "The output of a padded row is 0, its state is h."],
)
def _(padded_step: Any) -> str:
    """Write a padded step."""
    cell = RNNCell(3, 2, rng=9, dtype=np.float64)
    W_x, W_h, b = (p.value for p in (cell.W_x, cell.W_h, cell.b))

    def step(x: np.ndarray, h: np.ndarray) -> np.ndarray:
        return np.tanh(x @ W_x + h @ W_h + b)

    rng = np.random.default_rng(92)
    for padding in (0.0, np.nan):
        x, h, real = rng.standard_normal((4, 3)), rng.standard_normal((4, 2)), np.array([True, False, True, False])
        x[~real] = padding
        out, new = (part.value for part in unroll(cell, x[None], h, mask=real[None]))
        out, here = out[0], real[:, None]
        found = parts(call(padded_step, step, x, h, real), "padded_step", "the output", "the next state")
        for what, yours in zip(("the output", "the next state"), found):
            array(np.nan_to_num(yours) if isinstance(yours, np.ndarray) else yours, what)
            holds_nan = bool(np.isnan(np.asarray(yours, float)).any())
            if holds_nan:
                raise NotYet(f"{what} holds NaN from the padding: 0 · NaN is NaN. Choose with np.where, row by row")
        moved = step(np.nan_to_num(x), h)
        same(
            found[1],
            new,
            {
                "the state of a padded row becomes 0: it must pass through as it was": np.where(here, new, 0),
                "the padded rows take a step: even with the input 0 the bias and W_h move the state": moved,
                "nothing moves: real rows must take their step": h,
                "it is the other way round: real is True where the step is real": np.where(here, h, moved),
                "a padded row has its old state added to its new one": np.where(here, new, moved + h),
                "the rows of `real` are taken for columns: real[:, None] stands beside (B, H)": new.T,
            },
            "the next state",
            "Real rows: step(x_t, h); padded rows: h",
        )
        same(
            found[0],
            out,
            {
                "the output of a padded row is its state; it must be 0": new,
                "the output is the new state in all rows; it must be 0 where the row is padded": moved,
                "the output is 0 in all rows": np.zeros_like(out),
            },
            "the output",
        )
    return "(With zeros and with NaN in the padding.)"


@exercise(
    "9.3",
    "windows",
    points=2,
    hints=[
        "tokens[: B·L].reshape(B, L) has a stretch of the text in each row; time first is its transpose.",
        "y is the same layout of tokens[1 : B·L + 1]: made from the text, not from x. Then cut both every k steps.",
    ],
)
def _(windows: Any) -> str:
    """Write the layout of a stream."""
    for N, B, k in ((24, 3, 4), (26, 3, 5), (17, 2, 3), (12, 1, 5)):
        tokens = np.arange(N) * 7 % 101
        right = list(stream_batches(tokens, batch=B, steps=k))
        found = call(windows, tokens, B, k)
        where, L = f"with {N} tokens, B = {B}, k = {k}: ", (N - 1) // B
        if found is None:
            raise NotYet("windows returns None: is a return missing?")
        if not isinstance(found, list | tuple) or any(not isinstance(w, list | tuple) or len(w) != 2 for w in found):
            raise NotYet("windows must return a list of pairs (x, y)")
        pairs = [(array(x, "x"), array(y, "y")) for x, y in found]
        rows = tokens[: B * L].reshape(B, L)
        if pairs and B > 1 and pairs[0][0].shape == right[0][0].shape[::-1] != right[0][0].shape:
            raise NotYet(where + "this is (B, k), rows first; time comes first: (k, B)")
        if sum(len(x) for x, y in pairs if x.shape == y.shape == (len(x), B)) == L - 1:
            raise NotYet(
                where + f"each row has {L - 1} steps, and there is text for {L}: y is made from the rows, so that the "
                "last token of a row starts no step. Make y from the text, one token on"
            )
        if L % k and len(pairs) == len(right) - 1:
            raise NotYet(where + f"the tail is dropped: the last {L % k} steps of each row make a shorter window")
        if len(pairs) != len(right):
            raise NotYet(
                where + f"there are {len(right)} windows, {L} steps a row in steps of {k}; yours are {len(pairs)}"
            )
        for i, ((x, y), (its_x, its_y)) in enumerate(zip(pairs, right)):
            a, b = i * k, min(i * k + k, L)
            apart = tokens[: B * L].reshape(L, B)[a:b]
            cut = tokens[: N // B * B].reshape(B, N // B)[:, :-1].T[a:b]
            after = tokens[a * B : b * B].reshape(B, b - a).T
            same(
                x,
                its_x,
                {
                    where + "consecutive tokens stand side by side, in different rows; a row goes on in time": apart,
                    where + "row 1 goes on where row 0 ends, and the next window after that: in this order the state "
                    "of row b comes from another place in the text": after,
                    where + "x is one token too late; that is y": its_y,
                    where
                    + "row 1 starts a token late: y is made from the rows, so that the last token of a row starts "
                    "no step. Make y from the text, one token on": cut,
                },
                f"{where}x of window {i}",
                "Each row is a stretch of L tokens, and window i has its steps i·k to i·k + k",
            )
            last = np.append(rows[:, 1:], rows[:, :1], axis=1).T[a:b]
            same(
                y,
                its_y,
                {
                    where + "y is x itself; it is one token on": its_x,
                    where
                    + "the last target of a window is its own first token: y is rolled inside the window": np.roll(
                        its_x, -1, axis=0
                    ),
                    where + "the last target of a row is its own first token; it is the token that comes next in the "
                    "text": last,
                    where + "y is one token back; the target comes after x": np.roll(tokens, 1)[: B * L]
                    .reshape(B, L)
                    .T[a:b],
                },
                f"{where}y of window {i}",
            )
    return "(Four layouts, against stream_batches.)"
