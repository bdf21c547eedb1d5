"""How a state depends on earlier states: ∂h_t/∂h_s for one row of a batch, and the LSTM's highway.

Read after sequence.py. The matrix ∂h_t/∂h_s is worked out through the tape, one backward pass for each unit of h_t, its
seed a unit vector. Its singular values say by how much a small change of h_s is stretched or shrunk on its way to h_t
(Bengio, Simard and Frasconi 1994; Pascanu, Mikolov and Bengio 2013). Along the LSTM's cell state one path is direct,

    c_t = f_t · c_{t−1} + …        so its factor from c_s to c_t is  Π f_r, r = s + 1 … t,  unit by unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .asking import State
from .backend import host_array, library_of, to_numpy
from .cells import LSTMCell
from .cells.stack import Stack
from .module import check_model, check_whole, first_array
from .nest import leaves, map_nest
from .sequence import run, sequence_input
from .tape import Tape, no_tape
from .tensor import Tensor


def state_jacobians(
    model: Any, x: Any, t: int | None = None, *, of: str = "h", by: str | None = None, state: Any = None, row: int = 0
) -> np.ndarray:
    """∂h_t/∂h_s for s = 1 … t, (t, H, H) on the host: [s − 1, i, j] is the derivative of unit i by unit j.

    model: a cell or a layer or model with a state. x: (T, B, …). t: the later step, 1 to T (default T). of, by: a name
    from `tape.states`, or its last part, "h", which is the one of the topmost layer that has it; by is `of` unless
    given. A state is changed alone: of an LSTM, ∂h_t/∂h_s leaves c_s as it is, and ∂c_t/∂c_s takes the way through h_s
    along. state: the state to start from; row: the row of the batch, from 0.
    ValueError for a model without a state, for a step, row or state that is not there, and where a state or a
    derivative is not finite.
    """
    check_model(model)
    x, state, t = _one_row(x, state, row, t)
    with Tape() as tape, np.errstate(over="ignore", invalid="ignore"):  # what that leads to is looked for below
        _, final = run(model, x, state)
    names, last = tape.states, [h for _, h in leaves(final)]
    if not last:
        raise ValueError(
            f"{type(model).__name__} has no state, so nothing leads from one step to another: give a cell, an RNN, "
            "LSTM or GRU, or a model that has one among its layers"
        )
    if len(names) != len(last):
        raise ValueError(f"{type(model).__name__} has {len(last)} state(s), of which the tape knows {list(names)}")
    key = _named(of, names)
    source = key if by is None else _named(by, names)
    h_t = last[names.index(key)]
    found = []
    for i in range(h_t.size):
        seed = np.zeros(h_t.shape, h_t.dtype)
        seed.flat[i] = 1
        with np.errstate(over="ignore", invalid="ignore"):
            adjoints = tape.adjoints(h_t, library_of(h_t.value).asarray(seed), through_cuts=True)
        found.append(to_numpy(adjoints[source]).reshape(t, -1))
    J = np.stack(found, axis=1)
    if not np.isfinite(J).all():
        raise _not_finite(J, tape, key.rpartition(".")[2], source.rpartition(".")[2])
    return J


def _not_finite(J: np.ndarray, tape: Tape, of: str, by: str) -> ValueError:
    """Says where it begins: at a step whose state is not finite, or else on the way back."""
    bad = [
        (step, note.key)
        for note in tape.notes
        for step, h in _by_step(to_numpy(note.tensor), note)
        if not np.isfinite(h).all()
    ]
    if bad:
        step, key = min(bad, key=lambda found: found[0])
        return ValueError(
            f"step {step}: the state {key!r} is not finite (NaN or infinity), and no derivative after it is. Look at x "
            "at that step, at the initial state and at the weights, or give t= an earlier step"
        )
    t = len(J)
    s = 1 + int(np.flatnonzero(~np.isfinite(J).all(axis=(1, 2)))[-1])
    return ValueError(
        f"∂{of}_t/∂{by}_s of t = {t} is not finite at s = {s}, while all states are: over {t - s} steps the "
        f"derivatives grow past {J.dtype}. Give a smaller t, or a model of float64 or with smaller weights"
    )


def _by_step(values: np.ndarray, note: State) -> list[tuple[int, np.ndarray]]:
    return list(enumerate(values, note.steps[0])) if note.stacked else [(note.steps[1], values)]


@dataclass(frozen=True, eq=False)
class Highway:
    """The LSTM's cell state as a way back. f: the forget gates, (t, H). direct: Π f_r over r = s + 1 … t, (t, H), index
    s − 1, all ones at s = t. full: ∂c_t/∂c_s with every other path, (t, H, H)."""

    f: np.ndarray
    direct: np.ndarray
    full: np.ndarray


def highway(model: Any, x: Any, t: int | None = None, *, layer: int = -1, state: Any = None, row: int = 0) -> Highway:
    """The forget gates of an LSTM on the row `row` of x (T, B, D), their products from s to t, and ∂c_t/∂c_s.

    model: an LSTMCell, or an LSTM of which `layer` is looked at, within itself: its inputs stay as they are. state: to
    start from; for an LSTM a tuple with (h, c) for each layer. TypeError for any other model.
    """
    cells = list(model.cells) if isinstance(model, Stack) else [model]
    if not all(isinstance(cell, LSTMCell) for cell in cells):
        raise TypeError(f"highway takes an LSTMCell or an LSTM, found {type(model).__name__}; of a model, hand in that "
                        "layer and its inputs")  # fmt: skip
    if not -len(cells) <= layer < len(cells):
        raise ValueError(f"there is no layer {layer}: {type(model).__name__} has {len(cells)}")
    layer %= len(cells)
    x, state, t = _one_row(x, state, row, t)
    entries = [None] * len(cells) if state is None else list(state) if isinstance(model, Stack) else [state]
    with no_tape():
        for cell, entry in zip(cells[:layer], entries):
            x, _ = run(cell, x, entry)
    cell, entry = cells[layer], entries[layer]
    value = getattr(x, "value", x)
    home = first_array(cell, value)
    parts = cell.zero_state(1) if entry is None else entry
    before = [getattr(h, "value", h) for _, h in leaves(parts)]
    saved = cell.forward(library_of(home).asarray(value, dtype=home.dtype), before)
    f = to_numpy(cell.by_gate(saved.A)["f"])[:, 0].astype(np.float64)
    later = np.ones((t, f.shape[1]))
    for s in range(t - 2, -1, -1):
        later[s] = later[s + 1] * f[s + 1]
    return Highway(f, later, state_jacobians(cell, x, of="c", state=entry))


def _one_row(x: Any, state: Any, row: int, t: int | None) -> tuple[Any, Any, int]:
    """(the steps 1 to t of one row, the state of that row, t)."""
    x = sequence_input(x)
    T, B = x.shape[:2]
    t = T if t is None else t
    check_whole("the Jacobians", t=t, row=row)
    if not 1 <= t <= T:
        raise ValueError(f"t must be a step from 1 to T = {T}, found {t}")
    if not 0 <= row < B:
        raise ValueError(f"there is no row {row}; rows are numbered 0 to {B - 1}")
    value = getattr(x, "value", x)
    if state is not None:
        state = map_nest(lambda h: _row_of(h, row, B), state)
    return value[:t, row : row + 1], state, t


def _row_of(h: Any, row: int, B: int) -> Tensor:
    value = h.value if isinstance(h, Tensor) else host_array("state", h) if isinstance(h, list) else h
    return Tensor(value[row : row + 1] if value.ndim > 1 and value.shape[0] == B else value, getattr(h, "name", None))


def _named(name: str, names: tuple[str, ...]) -> str:
    """The state of that name, or the topmost one whose last part it is."""
    found = [key for key in names if key == name] or [key for key in names if key.rpartition(".")[2] == name]
    if not found:
        raise ValueError(f"there is no state {name!r}; the states are {', '.join(names)}")
    return found[-1]
