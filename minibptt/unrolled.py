"""A tape as an unrolled network: a row for each state of each layer, a column for each step, the cuts between them.

This is what `plots.tape` draws where it draws no single operation. It reads what the tape notes of the states, so it
serves both engines and loops of one's own. Numbers only: norms are over rows and units together. Read after tape.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .asking import State, ThroughCuts, check_through_cuts, factor_of, no_states
from .backend import to_numpy
from .sweep import Cut
from .tape import Tape
from .tensor import Tensor

MOST_NUMBERS = 2  # a state of so many elements is shown in numbers, a larger one by its norm


@dataclass(frozen=True, eq=False)
class Row:
    """One state over time, an entry for each of its n columns.

    columns: where they stand; they are the steps, unless a second sequence follows the first on one tape. norms: of
    the values. texts: the values where in_numbers, else their norms. real: the fraction of the batch that is real at
    the step. resets: the fraction that started afresh before it. adjoints: ‖∂L/∂h_t‖, None without a loss.
    """

    key: str
    layer: str | None
    name: str
    columns: np.ndarray
    steps: np.ndarray
    norms: np.ndarray
    texts: list[str]
    in_numbers: bool
    real: np.ndarray
    resets: np.ndarray
    adjoints: np.ndarray | None


@dataclass(frozen=True, eq=False)
class Crossing:
    """A cut, at the boundary before `column` of row number `row`.

    factor: what the adjoint is multiplied by there. dropped: the norm of what went no further, None without a loss.
    """

    cut: Cut
    row: int
    column: int
    factor: float
    dropped: float | None


@dataclass(frozen=True, eq=False)
class Unrolled:
    """rows: bottom up, layer by layer as the tape met them, the first state of a layer on top of its others.

    between: (lower, upper) for each two layers of which one feeds the other with no third between them.
    """

    rows: list[Row]
    cuts: list[Crossing]
    between: list[tuple[str | None, str | None]]

    @property
    def steps(self) -> dict[int, int]:
        """The step of each column."""
        return {int(c): int(s) for row in self.rows for c, s in zip(row.columns, row.steps)}


def unrolled(tape: Tape, loss: Tensor | None = None, *, through_cuts: ThroughCuts = False) -> Unrolled:
    """The states of `tape` by row and column, its cuts, and with a loss the adjoints and what each cut dropped.

    Arguments and errors as for `Tape.adjoints`: TapeError where no state was noted.
    """
    if not tape.notes:
        raise no_states()
    check_through_cuts(through_cuts)
    adjoints = {} if loss is None else tape.adjoints(loss, through_cuts=through_cuts)
    notes: dict[str, list[State]] = {}
    for note in tape.notes:
        notes.setdefault(note.key, []).append(note)
    layers: dict[str | None, list[str]] = {}
    for key in notes:
        layers.setdefault(key.rpartition(".")[0] or None, []).insert(0, key)
    places = {key: _columns(of_key) for key, of_key in notes.items()}
    keys = [key for of_layer in layers.values() for key in of_layer]
    rows = [_row(key, notes[key], places[key], adjoints.get(key)) for key in keys]
    dropped = {} if loss is None else tape.dropped(loss, through_cuts=through_cuts)
    cuts = []
    for cut in tape.cuts:
        key = f"{cut.layer}.{cut.name}" if cut.layer else str(cut.name)
        source = next((k for k in keys for note in notes[k] if cut.source in _slots(note, tape)), key)
        if source in keys:
            column = _column_of(cut, notes[source], places[source], tape)
            lost = norm(dropped[cut]) if cut in dropped else None
            cuts.append(Crossing(cut, keys.index(source), column, factor_of(cut, through_cuts), lost))
    return Unrolled(rows, cuts, _between(tape, list(layers)))


def norm(array: Any) -> float:
    """The Euclidean norm of all elements."""
    return float(np.linalg.norm(to_numpy(array).ravel().astype(np.float64)))


def number(value: float, digits: int = 3) -> str:
    """A number in at most so many digits."""
    text = f"{value:.{digits}g}"
    if 0 < abs(value) < 1e-3:
        digits_of, _, power = f"{value:.{digits - 1}e}".partition("e")
        text = f"{float(digits_of):g}e{int(power)}"
    return text.replace("e+0", "e").replace("e+", "e").replace("-", "−")


def text_of(value: Any, most: int = MOST_NUMBERS) -> str:
    """The numbers where there are at most `most`, else the norm."""
    array = to_numpy(value)
    return ", ".join(map(number, array.ravel())) if array.size <= most else number(norm(array))


def _columns(notes: list[State]) -> list[int]:
    """The first column of each note: its first step, or what follows on the note before where the clock went back."""
    found: list[int] = []
    shift, last = 0, 0
    for note in notes:
        first, end = note.steps
        if found and first + shift <= last:
            shift = last + 1 - first
        found.append(first + shift)
        last = end + shift
    return found


def _row(key: str, notes: list[State], places: list[int], adjoints: Any) -> Row:
    values: list[Any] = []
    columns: list[int] = []
    steps: list[int] = []
    real: list[float] = []
    resets: list[float] = []
    for note, place in zip(notes, places):
        array = to_numpy((note.kept if note.kept is not None else note.tensor).value)
        values += list(array if note.stacked else array[None])
        n = note.steps[1] - note.steps[0] + 1 if note.stacked else 1
        columns += range(place, place + n)
        steps += range(note.steps[1] + 1 - n, note.steps[1] + 1)
        real += _fractions(note.real, n, 1.0)
        resets += _fractions(note.resets, n, 0.0)
    layer, _, name = key.rpartition(".")
    return Row(
        key,
        layer or None,
        name,
        np.array(columns),
        np.array(steps),
        np.array([norm(value) for value in values]),
        [text_of(value) for value in values],
        all(value.size <= MOST_NUMBERS for value in values),
        np.array(real),
        np.array(resets),
        None if adjoints is None else np.array([norm(adjoint) for adjoint in to_numpy(adjoints)]),
    )


def _fractions(flags: Any, n: int, default: float) -> list[float]:
    """For each of n steps the fraction of the rows whose flag is set."""
    return [default] * n if flags is None else to_numpy(flags).reshape(n, -1).mean(axis=1).tolist()


def _slots(note: State, tape: Tape) -> set[int]:
    return {x.slot for x in (note.tensor, note.kept) if x is not None and x.mark is tape.mark}


def _column_of(cut: Cut, notes: list[State], places: list[int], tape: Tape) -> int:
    """The column that stands after a cut of a state."""
    if cut.source == -1:  # inside a record of many steps, whose states were placed before its cuts
        inside = [(n, p) for n, p in zip(notes, places) if n.stacked and max(_slots(n, tape)) < cut.slot]
        note, place = inside[-1]
        return place + (cut.step or 1) - note.steps[0]
    for note, place in zip(notes, places):
        if cut.source in _slots(note, tape) and not note.stacked:
            return place + 1
    after = [p for n, p in zip(notes, places) if n.steps[0] >= (cut.step or 1) and max(_slots(n, tape)) > cut.slot]
    return after[0] if after else cut.step or 1


def _between(tape: Tape, layers: list[str | None]) -> list[tuple[str | None, str | None]]:
    known: dict[str | None, str | None] = {}

    def home(layer: str | None) -> str | None:
        """The layer with a state that a record belongs to."""
        if layer not in known:
            inside = [x for x in layers if x is not None and layer is not None and f"{layer}.".startswith(f"{x}.")]
            known[layer] = max(inside, key=len, default=None)
        return known[layer]

    found: dict[tuple[str | None, str | None], None] = {}
    below: dict[int, frozenset[str | None]] = {}  # by slot: the layers that it last came through
    for record in tape.records:
        here = home(record.layer)
        came: frozenset[str | None] = frozenset().union(*[below.get(s, frozenset()) for s in record.inputs if s])
        if here is not None:
            found.update({(layer, here): None for layer in came if layer != here})
            came = frozenset([here])
        below.update({out.slot: came for out in record.outputs})
    return list(found)
