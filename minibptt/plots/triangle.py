"""The triangle of pairs (loss step t, source step s): its axes, what a schedule keeps of it, and where it cuts.

Read after style.py.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.patheffects import withStroke

from ..truncation import Plan
from .style import bare, numbered

Cut = tuple[int, int, int]
DASHES: Any = (0, (1.6, 0.9))  # of a cut: a perforated line


def upper(T: int) -> np.ndarray:
    """Where no pair is: a loss does not reach forward in time, (T, T)."""
    return np.triu(np.ones((T, T), dtype=bool), 1)


def edges(T: int) -> np.ndarray:
    """The edges of the cells; cell s reaches from s − ½ to s + ½, steps being numbered from 1."""
    return np.arange(T + 1) + 0.5


def axes_of_steps(ax: Any, T: int, size: float = 12, most: int = 13) -> None:
    """Source step across, loss step down, both from 1 to T."""
    ax.set_xlim(0.5, T + 0.5)
    ax.set_ylim(T + 0.5, 0.5)
    ax.set_xticks(numbered(T, most))
    ax.set_yticks(numbered(T, most))
    bare(ax, size)


def outline(ax: Any, inside: np.ndarray, **style: Any) -> LineCollection:
    """A line around the cells that are True."""
    T = len(inside)
    padded = np.zeros((T + 2, T + 2), dtype=bool)
    padded[1:-1, 1:-1] = inside
    upright = [((s + 0.5, t - 0.5), (s + 0.5, t + 0.5)) for t, s in np.argwhere(padded[:, 1:] != padded[:, :-1])]
    level = [((s - 0.5, t + 0.5), (s + 0.5, t + 0.5)) for t, s in np.argwhere(padded[1:] != padded[:-1])]
    return ax.add_collection(LineCollection(upright + level, capstyle="projecting", **style))


def cuts(plan: Plan) -> list[Cut]:
    """(s, first, last) for each cut, in steps from 1: the boundary before step s stops the losses first … last.

    It is the first closed boundary that one meets going back from those losses. A boundary that stops losses which do
    not follow each other counts once for each run of them.
    """
    stopped_by: dict[int, set[int]] = {}
    for update in plan.updates:
        for t in update.losses:
            closed = [s for s in range(1, t + 1) if update.factors[s] == 0]
            if closed:
                stopped_by.setdefault(closed[-1] + 1, set()).add(t + 1)
    found = []
    for s, losses in sorted(stopped_by.items()):
        for _, run in groupby(enumerate(sorted(losses)), lambda pair: pair[1] - pair[0]):
            steps = [t for _, t in run]
            found.append((s, steps[0], steps[-1]))
    return found


def draw_cuts(ax: Any, plan: Plan, width: float = 2.6, scissors: float = 18) -> None:
    """A perforated line at each boundary, as long as the losses that it stops, and scissors where there are few."""
    found = cuts(plan)
    lines = [((s - 0.5, first - 0.5), (s - 0.5, last + 0.5)) for s, first, last in found]
    ax.add_collection(LineCollection(lines, colors="white", linewidths=width, zorder=4))
    style = {"colors": "black", "linewidths": width, "linestyles": [DASHES]}
    ax.add_collection(LineCollection(lines, **style, zorder=5, label="cuts"))
    if len(found) <= 16:
        halo = [withStroke(linewidth=2, foreground="white")]
        for s, first, _ in found:  # in the font that is known to have the sign, whatever the reader's settings are
            ax.text(s - 0.5, first - 0.5, "✂", rotation=-90, ha="center", va="bottom", fontsize=scissors, zorder=6,
                    family="DejaVu Sans", clip_on=False, path_effects=halo)  # fmt: skip
