"""What `compare` found, as a table in text and HTML, as CSV and as JSON."""

from __future__ import annotations

import csv
import html
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from .listing import columns, printable
from .truncation import Chunks, Schedule

MEASURES = {
    "share": "the part of full BPTT's first-order decrease of the loss that is kept: ⟨g, G⟩ / ‖G‖²",
    "error": "the relative error ‖g − G‖ / ‖G‖",
    "cosine": "the cosine between g and G",
    "norm_ratio": "‖g‖ / ‖G‖",
}


@dataclass(frozen=True)
class Spread:
    """A figure over the offsets of a schedule: its mean, its least and its largest value."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.fmean(values), min(values), max(values))


@dataclass(frozen=True)
class Row:
    """One schedule: the four measures for each offset, and what one run of it cost.

    longest: the most steps on the tape at once. peak_bytes: the most memory above what was in use before.
    seconds: forward and backward, the median of several runs. Both are None where nothing was measured.
    """

    schedule: Schedule
    longest: int
    values: dict[str, tuple[float, ...]]
    peak_bytes: int | None = None
    seconds: float | None = None

    def spread(self, measure: str) -> Spread:
        return Spread.of(self.values[measure])


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

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """The table as text: its head and its rows."""
        head = ["schedule", "steps on tape", "kept share", "relative error", "cosine", "norm ratio"]
        measured = any(row.seconds is not None for row in self.rows)
        body = []
        for row in self.rows:
            figures = [_spread(row.spread(m), relative=m == "error") for m in MEASURES]
            cost = [_bytes(row.peak_bytes), _time(row.seconds)] if measured else []
            body.append([str(row.schedule), str(row.longest), *figures, *cost])
        return head + ["memory", "time"] * measured, body

    def table(self) -> str:
        """The table for a terminal: mean over the offsets, with the range in brackets."""
        head, body = self.cells()
        lines = columns([tuple(r) for r in [head, *body]], right=(1, 6, 7))
        lines.insert(1, "─" * max(map(len, lines)))
        head = ["What truncation keeps of the gradient" + (f": {self.title}" if self.title else "")]
        return printable("\n".join([*head, self.note(), "", *lines, *([self.remark()] if self.rises() else [])]))

    def note(self) -> str:
        """The setting in one line."""
        return (
            f"T = {self.T} steps, {self.batch} rows, loss {self.loss:.4f}, ‖G‖ = {self.full_norm:.4g}. "
            "Mean over offsets or draws [least … largest]."
        )

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
        head, body = self.cells()
        th = "".join(f'<th scope="col">{html.escape(c)}</th>' for c in head)
        trs = []
        for first, *rest in body:
            tds = "".join(f"<td>{html.escape(c)}</td>" for c in rest)
            trs.append(f'<tr><th scope="row">{html.escape(first)}</th>{tds}</tr>')
        caption = html.escape(f"{self.title}. {self.note()}" if self.title else self.note())
        return f"<table><caption>{caption}</caption><thead><tr>{th}</tr></thead><tbody>{''.join(trs)}</tbody></table>"

    def to_csv(self, path: str | Path) -> None:
        """One line for each schedule. Numbers in full; bytes and seconds are measurements and vary."""
        names = [f"{m}_{part}" for m in MEASURES for part in ("mean", "low", "high")]
        with open(path, "w", newline="", encoding="utf-8") as file:
            out = csv.writer(file)
            out.writerow(["schedule", "steps_on_tape", "offsets", *names, "peak_bytes", "seconds"])
            for row in self.rows:
                spreads = [row.spread(m) for m in MEASURES]
                figures = [repr(v) if math.isfinite(v) else "" for s in spreads for v in (s.mean, s.low, s.high)]
                offsets = len(row.values["share"])
                out.writerow([row.schedule, row.longest, offsets, *figures, row.peak_bytes, row.seconds])

    def to_json(self, path: str | Path) -> None:
        """Everything, each offset included. What is not a finite number stands as null."""
        data = {
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
                    "by_offset": {m: [_finite(v) for v in vs] for m, vs in row.values.items()},
                    "peak_bytes": row.peak_bytes,
                    "seconds": row.seconds,
                }
                for row in self.rows
            ],
        }
        text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False, default=str)
        Path(path).write_text(text + "\n", encoding="utf-8")


def _spread(s: Spread, relative: bool) -> str:
    def number(v: float) -> str:
        if math.isnan(v):
            return "–"
        return f"{v:.2g}" if relative and 0 < abs(v) < 0.01 else f"{v:.3f}"

    if math.isnan(s.mean):
        return number(s.mean)
    return number(s.mean) + ("" if s.low == s.high else f" [{number(s.low)} … {number(s.high)}]")


def _bytes(n: int | None) -> str:
    if n is None:
        return "–"
    return f"{n / 2**20:.1f} MiB" if n >= 2**20 else f"{n / 2**10:.0f} KiB"


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:.0f} ms"


def _finite(v: float) -> float | None:
    return v if math.isfinite(v) else None
