"""What `minibptt.compare` found, as a figure: kept share and relative error against the length of the window.

Read after ../report.py.
"""

from __future__ import annotations

import math
from textwrap import fill
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from ..report import Comparison, Row
from ..truncation import Chunks, Full
from .style import BLUE, GREEN, GREY, ORANGE, check_axes, check_takes, flat


def compare(result: Comparison, ax: Any = None) -> Any:
    """Kept share and relative error against the chunk length k: the mean over offsets, the band from least to
    largest, and a dot for each offset.

    ax: two Axes, or None for a new figure at the size of a slide. Returns the two Axes.
    ValueError where there is nothing to draw.
    """
    check_takes("compare", result, Comparison, "what mb.compare gives")
    check_axes("compare", ax, (2,))
    finite = [r for r in result.rows if all(math.isfinite(v) for v in r.values["share"])]
    rows = sorted((r for r in finite if isinstance(r.schedule, Chunks)), key=lambda r: r.longest)
    others = [r for r in finite if not isinstance(r.schedule, Chunks | Full)]
    if not rows and not others:
        raise ValueError("there is no schedule to draw besides full BPTT, or the full gradient is zero")
    figure = None
    if ax is None:
        figure = Figure(figsize=(12, 6.2), layout="constrained")
        ax = figure.subplots(1, 2)
    left, right = flat(ax)
    _share(rows, others, left)
    _error(rows, others, result, right)
    for axes in (left, right):
        _steps_axis(axes, rows + others, result.T)
    if figure is not None:
        head = "What truncation keeps of the gradient"
        title = f"{head}\n{fill(result.title, 90)}" if result.title else head
        figure.suptitle(title, fontsize=16, parse_math=False)  # a $ in a file's name is a $
    return ax


def _share(rows: list[Row], others: list[Row], ax: Any) -> None:
    if rows:
        _band(ax, rows, "share", BLUE, "o")
    _others(ax, others, "share")
    ax.axhline(1, color=GREY, linestyle="--", linewidth=1.2, zorder=1)
    low, high = ax.get_ylim()
    if low < 0:
        ax.axhline(0, color=GREY, linestyle=":", linewidth=1.2, zorder=1)
    ax.set_ylim(min(low, 0.0), max(high, 1.1))
    ax.annotate("full BPTT", (0.015, 1), xycoords=("axes fraction", "data"), xytext=(0, 5),
                textcoords="offset points", color=GREY, fontsize=12)  # fmt: skip
    ax.set_title("Kept share of the descent", fontsize=15)
    ax.set_ylabel("share  ⟨g, G⟩ / ‖G‖²", fontsize=14)
    _legend(ax)


def _error(rows: list[Row], others: list[Row], result: Comparison, ax: Any) -> None:
    """The relative error on a log axis. An error of exactly 0 has no place there: it is marked at the bottom."""
    ax.set_title("Relative error of the gradient", fontsize=15)
    ax.set_ylabel("error  ‖g − G‖ / ‖G‖", fontsize=14)
    errors = [v for r in rows + others for v in r.values["error"] if v > 0]
    if not errors:
        ax.set_ylim(0, 1)
        ax.annotate("every schedule here is exact", (0.5, 0.5), xycoords="axes fraction", ha="center", fontsize=14)
        return
    low, high = min(*errors, 0.1), max(*errors, 1.2)
    floor = low / (high / low) ** 0.15
    ax.set_yscale("log")
    ax.set_ylim(floor / 1.05, high * (high / low) ** 0.08)  # room for the words above the line at 1
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 1000 else (1,)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda e, _: f"{e:g}"))
    ax.yaxis.set_minor_locator(NullLocator())
    inexact = [r for r in rows if r.spread("error").mean > 0]
    exact = [r.longest for r in rows if r.spread("error").mean == 0]
    if inexact:
        _band(ax, inexact, "error", ORANGE, "s", floor)
    _others(ax, [r for r in others if r.spread("error").mean > 0], "error")
    ax.axhline(1, color=GREY, linestyle=":", linewidth=1.2, zorder=1)
    ax.annotate("as large as the gradient itself", (0.985, 1), xycoords=("axes fraction", "data"), xytext=(0, 3),
                textcoords="offset points", ha="right", va="bottom", color=GREY, fontsize=12)  # fmt: skip
    if exact:
        ax.plot(exact, [floor] * len(exact), "v", color=GREY, markersize=11, clip_on=False, zorder=4)
        ax.annotate("exactly 0", (exact[0], floor), xytext=(-10, 4), textcoords="offset points", ha="right",
                    color=GREY, fontsize=12)  # fmt: skip
    if inexact:
        _first_offset(ax, inexact, result)
    _legend(ax)


def _first_offset(ax: Any, rows: list[Row], result: Comparison) -> None:
    """The error where cuts fall at k, 2k, …; where it rises with k, say so, or it looks like a mistake."""
    error = {r.longest: r.values["error"][0] for r in rows if r.values["error"][0] > 0}
    ax.plot(list(error), list(error.values()), color="black", linestyle=(0, (4, 2)), linewidth=1.3, marker="D",
            markersize=4, zorder=4, label="cuts at k, 2k, … (offset 0)")  # fmt: skip
    rises = [(a, b) for a, b in result.rises() if a.longest in error and b.longest in error]
    for a, b in rises:
        label = "there, a longer window is further off" if (a, b) == rises[0] else None
        ax.plot([a.longest, b.longest], [error[a.longest], error[b.longest]], color="black", linewidth=4, zorder=5,
                solid_capstyle="round", label=label)  # fmt: skip


def _others(ax: Any, rows: list[Row], measure: str) -> None:
    """Windows and random cuts: a point with its range, at the most steps that are ever on the tape."""
    colours, marks = [GREEN, "#CC79A7", "#56B4E9", "#E69F00"], ["^", "P", "X", "*"]
    for i, row in enumerate(rows):
        s = row.spread(measure)
        ax.errorbar([row.longest], [s.mean], [[s.mean - s.low], [s.high - s.mean]], fmt=marks[i % 4], capsize=4,
                    color=colours[i % 4], markersize=10, zorder=6, label=str(row.schedule))  # fmt: skip


def _legend(ax: Any) -> None:
    """Below the axes, where it cannot lie on the data."""
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, fontsize=12, frameon=False)


def _band(ax: Any, rows: list[Row], measure: str, colour: str, marker: str, floor: float = -math.inf) -> None:
    """The mean with its range and a dot for each offset; the range is drawn down to `floor` at the most."""
    ks = [r.longest for r in rows]
    spreads = [r.spread(measure) for r in rows]
    ax.fill_between(ks, [max(s.low, floor) for s in spreads], [s.high for s in spreads], color=colour, alpha=0.18,
                    linewidth=0, label="range over offsets")  # fmt: skip
    for row in rows:
        values = row.values[measure]
        ax.plot([row.longest] * len(values), values, ".", color=colour, alpha=0.45, markersize=4, zorder=2)
    ax.plot(ks, [s.mean for s in spreads], marker=marker, color=colour, linewidth=2.2, markersize=8, zorder=3,
            label="mean over offsets")  # fmt: skip


def _steps_axis(ax: Any, rows: list[Row], T: int) -> None:
    ks = sorted({r.longest for r in rows})
    numbered = ks[-1:]  # every k has a tick; from the longest down, a number where there is room for it
    for k in reversed(ks):
        if k * 1.4 <= numbered[0]:
            numbered.insert(0, k)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_locator(FixedLocator(ks))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda k, _: f"{k:g}" if round(k) in numbered else ""))
    ax.set_xlim(ks[0] / 1.25, ks[-1] * 1.25)
    ax.set_xlabel(f"chunk length k (most steps on the tape), T = {T}", fontsize=13)
    ax.tick_params(labelsize=12)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
