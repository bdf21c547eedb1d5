"""What `compare` found, as tables in text and HTML, as CSV and as JSON. Read after measures.py."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from .listing import columns, counted, printable
from .measures import MEASURES, Noise
from .tables import Spread, blocks, html_table, in_bytes, in_ms, known, nulls, number, shown, write_csv, write_json
from .truncation import Chunks, Schedule

LABELS = {
    "share": "kept share",
    "error": "relative error",
    "cosine": "cosine",
    "norm_ratio": "norm ratio",
    "sign": "sign agreement",
}
MEAN = "Mean over offsets or draws"
MEAN_RANGE = f"{MEAN} [least … largest]"
MAIN = ("share", "error", "cosine", "norm_ratio")  # what the table of the whole gradient has room for
SPREADS = [f"{measure}_{figure}" for measure in MEASURES for figure in ("mean", "low", "high")]


@dataclass(frozen=True)
class Row:
    """One schedule: the measures for each offset or draw, and what one run of it cost.

    longest: the most steps on the tape at once. values: of the whole gradient, by measure. by_part: the same by part,
    "1.0.W_x", …, "gate f", …, each against its own part of G. noise: for a schedule that draws its cuts.
    peak_bytes: the most memory above what was in use before. seconds: forward and backward, the median of several
    runs. Both are None where nothing was measured.
    """

    schedule: Schedule
    longest: int
    values: dict[str, tuple[float, ...]]
    peak_bytes: int | None = None
    seconds: float | None = None
    by_part: dict[str, dict[str, tuple[float, ...]]] = field(default_factory=dict)
    noise: Noise | None = None

    def spread(self, measure: str, part: str | None = None) -> Spread:
        """The measure over the offsets, of the whole gradient or of one part. ValueError for a name that is neither."""
        if part is not None:
            known("part", part, self.by_part)
        values = self.values if part is None else self.by_part[part]
        return Spread.of(values[known("measure", measure, values)])

    def figures(self, part: str | None = None) -> list[str]:
        """Mean, least and largest of each measure, in full, under the names SPREADS."""
        spreads = [self.spread(measure, part) for measure in MEASURES]
        return [number(v) for s in spreads for v in (s.mean, s.low, s.high)]


@dataclass(frozen=True)
class Comparison:
    """What `compare` found. T: steps; loss: its value; full_norm: ‖G‖; rows: one for each schedule."""

    T: int
    batch: int
    loss: float
    full_norm: float
    rows: tuple[Row, ...]
    title: str = ""
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the parts: the parameters, then the gates."""
        return tuple(self.rows[0].by_part) if self.rows else ()

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """The table of the whole gradient as text: its head and its rows."""
        head = ["schedule", "steps on tape", *(LABELS[m] for m in MAIN)]
        measured = any(row.seconds is not None for row in self.rows)
        body = []
        for row in self.rows:
            figures = [shown(row.spread(m), m) for m in MAIN]
            cost = [in_bytes(row.peak_bytes), in_ms(row.seconds)] if measured else []
            body.append([str(row.schedule), str(row.longest), *figures, *cost])
        return head + ["memory", "time"] * measured, body

    def table(self, by: str | None = None, measure: str = "share", width: int = 100) -> str:
        """The table for a terminal: schedules down; mean over the offsets, with the range in brackets.

        by: None for the whole gradient, its measures across, with memory and time. "parameter" or "gate": one measure,
        parts across; the name of a part: the measures of that part across. These keep to `width` characters: where the
        ranges do not fit they are left out, and where the means do not fit the columns go on below.
        ValueError for a measure or part that there is not.
        """
        known("measure", measure, LABELS)
        if by is not None:
            return printable("\n".join(self._table_by(by, measure, width)))
        head, body = self.cells()
        lines = columns([tuple(r) for r in [head, *body]], right=(1, 6, 7))
        lines.insert(1, "─" * max(map(len, lines)))
        title = "What truncation keeps of the gradient" + (f": {self.title}" if self.title else "")
        return printable("\n".join([title, self.note(), "", *lines, *self.remarks()]))

    def _table_by(self, by: str, measure: str, width: int) -> list[str]:
        across: dict[str, tuple[str | None, str]]  # by the head of the column: the part, the measure
        if by in ("parameter", "gate"):
            title = f"{LABELS[measure].capitalize()} by {by}"
            across = {"all": (None, measure)} | {part: (part, measure) for part in self._parts_by(by)}
        else:
            part = known("by", by, ("parameter", "gate", *self.parts))
            title = f"What truncation keeps of the gradient of {part}"
            across = {label: (part, m) for m, label in LABELS.items()}
        for bare in (False, True):
            body = [
                [str(row.schedule), *(shown(row.spread(m, part), m, bare) for part, m in across.values())]
                for row in self.rows
            ]
            lines = blocks(["schedule", *across], body, width)
            if "" not in lines and max(map(len, lines)) <= width:
                break
        note = f"{MEAN if bare else MEAN_RANGE}. Each part is judged against its own part of G."
        return [title + (f": {self.title}" if self.title else ""), note, "", *lines]

    def _parts_by(self, by: str) -> list[str]:
        gates = [part for part in self.parts if part.startswith("gate ")]
        if by == "gate" and not gates:
            raise ValueError("there is no cell with gates in this model: ask by='parameter'")
        return gates if by == "gate" else [part for part in self.parts if part not in gates]

    def note(self) -> str:
        """The setting in one line."""
        size = f"T = {counted(self.T, 'step')}, {counted(self.batch, 'row')}"
        return f"{size}, loss {self.loss:.4f}, ‖G‖ = {self.full_norm:.4g}. {MEAN_RANGE}."

    def remarks(self) -> list[str]:
        """What the table itself does not say: where a longer window is further off, and the noise of what is drawn."""
        return [*filter(None, [self.remark()]), *(f"{row.schedule}: {row.noise}" for row in self.rows if row.noise)]

    def rises(self) -> list[tuple[Row, Row]]:
        """The neighbours in k between which the error rises where the cuts fall at k, 2k, … (the first offset)."""
        rows = sorted((r for r in self.rows if isinstance(r.schedule, Chunks)), key=lambda r: r.longest)
        pairs = [(a, b) for a, b in pairwise(rows) if a.longest < b.longest]
        return [(a, b) for a, b in pairs if b.values["error"][0] > a.values["error"][0]]

    def remark(self) -> str:
        """A sentence where a longer window is further off, which is a finding and looks like a mistake; else ""."""
        rises = ", ".join(f"{a.schedule} to {b.schedule}" for a, b in self.rises())
        if not rises:
            return ""
        return (
            f"With cuts at k, 2k, … the error rises from {rises}: where the cuts fall matters as much as how far apart "
            "they are."
        )

    def _repr_html_(self) -> str:
        return html_table(*self.cells(), f"{self.title}. {self.note()}" if self.title else self.note())

    def to_csv(self, path: str | Path, by_part: bool = False) -> None:
        """One line for each schedule, or for each schedule and part. Numbers in full; memory and time vary."""
        head = ["schedule", *(["part"] if by_part else ["steps_on_tape", "offsets"]), *SPREADS]
        lines: list[list[Any]] = []
        if by_part:
            lines = [[r.schedule, part, *r.figures(part)] for r in self.rows for part in r.by_part]
        else:
            head += ["peak_bytes", "seconds", "draws_bias", "draws_standard_error", "draws_deviation"]
            for row in self.rows:
                noise = (
                    (row.noise.bias, row.noise.standard_error, row.noise.deviation) if row.noise else (math.nan,) * 3
                )
                cost = [row.peak_bytes, row.seconds, *map(number, noise)]
                lines.append([row.schedule, row.longest, len(row.values["share"]), *row.figures(), *cost])
        write_csv(path, head, lines)

    def data(self) -> dict[str, Any]:
        """Everything, each offset and part included, in lists, dicts, text and numbers."""
        return {
            "title": self.title,
            "about": self.about,
            "T": self.T,
            "batch": self.batch,
            "loss": self.loss,
            "full_norm": self.full_norm,
            "measures": MEASURES,
            "rows": [
                {
                    "schedule": str(row.schedule),
                    "steps_on_tape": row.longest,
                    "by_offset": nulls(row.values),
                    "by_part": nulls(row.by_part),
                    "noise": nulls(vars(row.noise)) if row.noise else None,
                    "peak_bytes": row.peak_bytes,
                    "seconds": row.seconds,
                }
                for row in self.rows
            ],
        }

    def to_json(self, path: str | Path) -> None:
        """`data()` as a file. What is not a finite number stands as null."""
        write_json(path, self.data(), indent=1)
