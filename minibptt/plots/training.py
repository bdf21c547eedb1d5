"""How biased truncation is while a model learns: comparisons made at several moments of one training run.

Read after compare.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from ..history import History
from ..measures import MEASURES
from ..report import Comparison
from ..truncation import Full, Schedule
from .style import GREY, LOOKS, bare, check_axes, check_takes, flat, slide

LABELS = {
    "share": "kept share  ⟨g, G⟩ / ‖G‖²",
    "error": "error  ‖g − G‖ / ‖G‖",
    "cosine": "cosine of g and G",
    "norm_ratio": "norm ratio  ‖g‖ / ‖G‖",
    "sign": "fraction of equal signs",
}


def training(history: Any, ax: Any = None, measure: str = "share", schedules: Sequence[Schedule] | None = None) -> Any:
    """A measure over the training steps, a line for each schedule with its band over offsets; below, the loss.

    history: anything whose `moments` are pairs (training steps, Comparison) over the same schedules. measure: a key of
    measures.MEASURES. schedules: which to draw, at most six; default: all but full BPTT, which is the line that they
    are held against. ax: two Axes, one for the upper panel alone, or None for a new figure. Returns the Axes.
    ValueError for no moments, moments whose schedules differ, an unknown measure or schedule, none to draw or more
    than six, and where no value is finite.
    """
    if not hasattr(history, "moments"):
        check_takes("training", history, History, "what mb.compare_training gives")
    check_axes("training", ax, (1, 2))
    moments = sorted(history.moments, key=lambda moment: moment[0])
    if not moments:
        raise ValueError("the history has no moments: there is nothing to draw yet")
    if measure not in MEASURES:
        raise ValueError(f"measure must be one of {', '.join(MEASURES)}; found {measure!r}")
    chosen = _chosen(moments, schedules)
    if ax is None:
        figure = slide(layout="constrained")
        ax = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
        figure.suptitle("Truncation against full BPTT while the model learns", fontsize=17)
        beside = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.02)}
    else:
        beside = {"loc": "best"}
    panels = flat(ax)
    _lines(panels[0], moments, chosen, measure)
    panels[0].legend(fontsize=13, frameon=False, title="schedule, with the\nrange over its offsets\nor draws",
                     title_fontsize=12, **beside)  # fmt: skip
    if len(panels) > 1:
        steps = [step for step, _ in moments]
        panels[1].plot(steps, [found.loss for _, found in moments], color="black", marker="o", markersize=6)
        panels[1].set_ylabel("loss", fontsize=14)
        panels[1].set_title("Loss of the batch that is compared", fontsize=15)
    for panel in panels:
        bare(panel, 13)
        panel.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    panels[-1].set_xlabel("training steps", fontsize=14)
    return ax


def _chosen(moments: list[tuple[int, Comparison]], schedules: Sequence[Schedule] | None) -> list[Schedule]:
    """The schedules to draw, checked."""
    there = [row.schedule for row in moments[0][1].rows]
    for step, found in moments:
        if [row.schedule for row in found.rows] != there:
            raise ValueError(f"the moments must have the same schedules: those after {step} training steps differ")
    names = ", ".join(map(str, there))
    chosen = [s for s in there if not isinstance(s, Full)] if schedules is None else list(schedules)
    for schedule in chosen:
        if schedule not in there:
            raise ValueError(f"the history has no schedule {schedule}; it has {names}")
    if not chosen:
        raise ValueError("there is no schedule to draw besides full BPTT")
    if len(chosen) > len(LOOKS):
        raise ValueError(
            f"{len(chosen)} schedules cannot be told apart in one figure: choose at most {len(LOOKS)} with "
            f"schedules=[…] out of {names}"
        )
    return chosen


def _lines(ax: Any, moments: list[tuple[int, Comparison]], chosen: list[Schedule], measure: str) -> None:
    steps = [step for step, _ in moments]
    some = False
    for schedule, (colour, marker, style) in zip(chosen, LOOKS):
        rows = [next(row for row in found.rows if row.schedule == schedule) for _, found in moments]
        spreads = [row.spread(measure) for row in rows]
        mean, low, high = (np.array([getattr(s, name) for s in spreads]) for name in ("mean", "low", "high"))
        some = some or bool(np.isfinite(mean).any())
        ax.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
        ax.plot(steps, mean, color=colour, marker=marker, linestyle=style, linewidth=2.2, markersize=8,
                label=str(schedule))  # fmt: skip
    if not some:
        raise ValueError(f"there is no {measure} to draw: the full gradient is zero or not finite at every moment")
    exact = 0 if measure == "error" else 1
    ax.axhline(exact, color=GREY, linestyle=(0, (2, 2)), linewidth=1.4, zorder=1, label="full BPTT")
    low, high = ax.get_ylim()
    room = 0.1 * max(high - low, 1e-3)
    ax.set_ylim(min(low, exact - room), max(high, exact + room))
    ax.set_ylabel(LABELS[measure], fontsize=14)
    name = MEASURES[measure].split(":")[0]
    ax.set_title(name[0].upper() + name[1:], fontsize=15)
