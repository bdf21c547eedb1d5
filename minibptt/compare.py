"""What truncation costs: every schedule against full BPTT, on one model and one batch. Read after truncation.py.

All gradients come from one finely cut tape: the forward pass is recorded once, cut before every step, and each
schedule says which of the cuts to mend. Full BPTT is the same tape with all cuts mended. Memory and time come
from a run of each schedule by itself, with a tape that holds one window only.
"""

from __future__ import annotations

import csv
import html
import json
import math
import statistics
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from .backend import synchronize
from .cells import buffers
from .cutting import INSIDE_LOSS, accumulate, call_loss, owned
from .gradients import Gradients
from .listing import columns, printable
from .module import evaluating
from .sequence import real_steps, run, sequence_input
from .tape import Cut, Tape
from .tensor import Tensor
from .truncation import Chunks, Plan, Schedule

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


def compare(
    model: Any,
    x: Any,
    y: Any,
    loss: Callable[..., Tensor],
    schedules: Sequence[Schedule],
    *,
    state: Any = None,
    lengths: Any = None,
    mask: Any = None,
    resets: Any = None,
    measure: bool = True,
    progress: Callable[[int, int], None] | None = None,
    title: str = "",
    about: dict[str, Any] | None = None,
) -> Comparison:
    """Every schedule against full BPTT, at frozen weights; each is judged over all its offsets.

    x: (T, B, …); y: what loss(outputs, y) wants. state, lengths, mask, resets: as for `unroll`; with padding the loss
    is called as loss(outputs, y, mask=…). measure: run each schedule by itself for memory and time too. Dropout is off.
    progress: called with (done, of) as the work goes on. title, about: kept with the result, for its table and JSON.
    ValueError for an empty list of schedules, a loss that is not a finite scalar, and a model whose state cannot be
    cut; TypeError for what is no schedule.
    """
    schedules = [schedules] if isinstance(schedules, Schedule) else list(schedules)
    if not schedules:
        raise ValueError("compare needs at least one schedule, for example [minibptt.tbptt(8)]")
    for schedule in schedules:
        if not isinstance(schedule, Schedule):
            raise TypeError(f"schedules are made by full() and tbptt(k); found {schedule!r}")
    x = sequence_input(x)
    T, B = x.shape[:2]
    options = {"mask": real_steps(T, B, lengths, mask), "resets": resets}
    with evaluating(model), Tape() as tape:
        outputs, _ = run(model, x, state, cut_every=1, **options)
        recorded = len(tape.records)
        value = call_loss(loss, outputs, y, options["mask"])
    # A state that could not be cut would make every schedule look exact.
    if tape.states and not {cut.step for cut in tape.cuts} >= set(range(2, T + 1)):
        raise ValueError(
            f"compare could not cut the state of {type(model).__name__} before every step: it needs zero_state(batch), "
            "and its call must take state and cut_every and hand both to unroll"
        )
    if value.mark is not tape.mark:
        raise ValueError("the loss does not depend on any parameter: there is no gradient to compare")
    seeds = tape.gradient(value, outputs)
    G = tape.gradient(outputs, model, seed=seeds, through_cuts=True)
    after = {slot for record in tape.records[recorded:] for slot in record.inputs}
    if any(leaf.is_parameter and slot in after for slot, leaf in tape.leaves.items()):
        raise ValueError(INSIDE_LOSS)

    plans = [schedule.plans(T) for schedule in schedules]
    total, done, rows = sum(map(len, plans)) + len(plans) * measure, 0, []

    def tick() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    judged = []
    for offsets in plans:
        figures: list[tuple[float, ...]] = []
        for plan in offsets:
            figures.append(_judge(_by_mending(tape, outputs, seeds, model, plan), G))
            tick()
        judged.append({m: tuple(f[i] for f in figures) for i, m in enumerate(MEASURES)})
    loss_value = value.item()
    del tape, outputs, value  # so that they are not in the memory that is measured
    for schedule, offsets, figures_by_measure in zip(schedules, plans, judged):
        longest = max(plan.longest for plan in offsets)
        cost: tuple[int | None, float | None] = (None, None)
        if measure:
            plan = offsets[0]
            with evaluating(model):
                cost = _cost(partial(accumulate, model, x, seeds, plan, state=state, **options))
            tick()
        rows.append(Row(schedule, longest, figures_by_measure, *cost))
    return Comparison(T, B, loss_value, G.norm(), tuple(rows), title, about or {})


def _by_mending(tape: Tape, outputs: Tensor, seeds: Any, model: Any, plan: Plan) -> Gradients:
    """The gradient of a plan from the finely cut tape, whose cut before step s + 1 is the boundary s.

    One backward pass gives all the updates that share their factors; the others take one each.
    """
    shared = plan.shared_factors() is not None and len({t for u in plan.updates for t in u.losses}) == plan.T
    parts = [
        tape.gradient(
            outputs,
            model,
            seed=seeds if shared else owned(seeds, update, 0, plan.T),
            through_cuts=_factor_of(update.factors),
        )
        for update in (plan.updates[:1] if shared else plan.updates)
    ]
    return sum(parts[1:], parts[0])


def _factor_of(factors: Sequence[float]) -> Callable[[Cut], float]:
    def factor(cut: Cut) -> float:
        assert cut.step is not None  # unroll cuts on the clock
        return factors[cut.step - 1]

    return factor


def _judge(g: Gradients, G: Gradients) -> tuple[float, ...]:
    size = G.norm()
    return g.share(G), g.relative_error(G), g.cosine(G), g.norm() / size if size else math.nan


def _cost(work: Callable[[], Gradients], most_seconds: float = 1.0) -> tuple[int, float]:
    """(the most bytes in use above what was in use before, the median time of several runs)."""
    gradients = work()  # a first run to warm up
    times: list[float] = []
    while len(times) < 3 or (len(times) < 9 and sum(times) < most_seconds):
        synchronize(_an_array(gradients))
        start = time.perf_counter()
        gradients = work()
        synchronize(_an_array(gradients))
        times.append(time.perf_counter() - start)
    del gradients
    buffers.clear()  # so that this run pays for its arrays
    running = tracemalloc.is_tracing()
    if not running:
        tracemalloc.start()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    work()
    peak = tracemalloc.get_traced_memory()[1] - before
    if not running:
        tracemalloc.stop()
    return peak, statistics.median(times)


def _an_array(gradients: Gradients) -> Any:
    return next(iter(gradients.values()))


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
