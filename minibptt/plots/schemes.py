"""Truncation schemes side by side: each is a weight on the pairs (loss step, source step). Read after truncation.py."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, ListedColormap, LogNorm
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ..contributions import Contributions
from ..given import as_schedules
from ..listing import counted
from ..module import Rng, check_size
from ..truncation import Schedule
from .style import BLUE, check_axes, check_takes, flat, signed_shares, slide
from .triangle import DASHES, axes_of_steps, draw_cuts, edges, outline, upper

LOST = "#e6e6e6"


def schemes(
    T: int, schedules: Sequence[Schedule], c: Contributions | None = None, ax: Any = None, rng: Rng = 0
) -> np.ndarray:
    """A small triangle of the weights w[t, s] for each schedule, with its cuts and the steps that a loss keeps.

    c: contributions over T steps, for the kept share under each. ax: as many Axes as there are schedules, which get
    titles and, at the rim of those given, axis labels; or None for a new figure with up to four in a row, which has a
    legend too: blue is kept, darker for more weight, grey is lost. rng: for schedules that draw their cuts; one draw is
    shown, its weights as shades. Returns the Axes, one for each schedule. ValueError for an empty list or a c of
    another length, TypeError for what is no schedule.
    """
    check_size("schemes", T=T)
    schedules = as_schedules(schedules)
    if not schedules:
        raise ValueError("schemes needs at least one schedule, for example [minibptt.tbptt(4)]")
    if c is not None:
        check_takes("schemes", c, Contributions, "what mb.contributions gives")
    if c is not None and c.T != T:
        raise ValueError(f"the contributions are over {c.T} steps, the schemes over {T}: give schemes(c.T, …, c)")
    check_axes("schemes", ax, (len(schedules),), ", one for each schedule")
    plans = [schedule.plan(T, rng) for schedule in schedules]
    weights = [plan.coverage() for plan in plans]
    panels = _panels(len(plans)) if ax is None else flat(ax)
    colours, norm = _shades(weights)
    for panel, schedule, plan, w in zip(panels, schedules, plans, weights):
        lost = np.ma.array(np.ones((T, T)), mask=(w != 0) | upper(T))
        panel.pcolormesh(edges(T), edges(T), np.ma.array(w, mask=w == 0), cmap=colours, norm=norm)
        panel.pcolormesh(edges(T), edges(T), lost, cmap=ListedColormap([LOST]))
        outline(panel, ~upper(T), colors="#aaaaaa", linewidths=0.8, zorder=2)
        outline(panel, w != 0, colors="black", linewidths=1.2, zorder=3, label="kept")
        draw_cuts(panel, plan, width=2.2, scissors=14)
        axes_of_steps(panel, T, size=11, most=7)
        panel.set_aspect("equal")
        panel.set_title(fill(str(schedule), 24), fontsize=15)
        panel.text(0.99, 0.98, _caption(w, c), transform=panel.transAxes, ha="right", va="top", fontsize=12)
    for panel, left, low in zip(panels, *_at_the_rim(panels)):
        if left:
            panel.set_ylabel("loss step t", fontsize=13)
        if low:
            panel.set_xlabel("source step s", fontsize=13)
    if ax is None:
        _explain(panels, colours, norm, weights)
    return panels


def _at_the_rim(panels: np.ndarray) -> tuple[list[bool], list[bool]]:
    """Whether a panel is the first of its row, and whether it is the last of its column, among those that are drawn.

    Axes that stand in no grid are both.
    """
    places = [panel.get_subplotspec() for panel in panels]
    grid = [(place.rowspan.start, place.colspan.start) for place in places if place is not None]
    left = [p is None or p.colspan.start == min(c for r, c in grid if r == p.rowspan.start) for p in places]
    low = [p is None or p.rowspan.start == max(r for r, c in grid if c == p.colspan.start) for p in places]
    return left, low


def _caption(w: np.ndarray, c: Contributions | None) -> str:
    reached, lost = w != 0, int((w.diagonal() == 0).sum())
    lines = [f"{reached.sum() / len(w):.2f} steps kept"]  # for each loss in the mean, its own step included
    if c is not None:
        lines.append(f"kept share {float((w * signed_shares(c)).sum()):.2f}")
    if lost:
        lines.append(f"{counted(lost, 'loss', 'losses')}\nnever reached")
    return "\n".join(lines)


def _panels(n: int) -> np.ndarray:
    """n square panels on a new figure, up to four in a row."""
    columns = min(n, 4)
    rows = -(-n // columns)
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
    figure = slide(4.8 if rows == 1 and n > 2 else max(7.2, 3.5 * rows), layout=layout)
    return np.array([figure.add_subplot(rows, columns, i + 1) for i in range(n)])


def _shades(weights: list[np.ndarray]) -> tuple[Colormap, LogNorm]:
    """Blue for a weight of 1, paler below and darker above."""
    every = np.concatenate([[1.0, 2.0], *[w[w != 0] for w in weights]])
    norm = LogNorm(every.min(), every.max())
    stops = [(float(norm(1)), BLUE), (1, "#001524")]
    if every.min() < 1:
        stops.insert(0, (0, "#d6e9f5"))
    return LinearSegmentedColormap.from_list("weights", stops), norm


def _explain(panels: np.ndarray, colours: Colormap, norm: LogNorm, weights: list[np.ndarray]) -> None:
    """Title, and what the shades mean."""
    figure = panels[0].figure
    figure.suptitle("What each scheme keeps of the pairs (loss step, source step)", fontsize=17)
    keys = [
        Patch(facecolor=BLUE, edgecolor="black", label="kept, with weight 1"),
        Patch(facecolor=LOST, edgecolor="#aaaaaa", label="lost"),
        Line2D([], [], color="black", linewidth=2.2, linestyle=DASHES, label="cut"),
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=3, fontsize=13, frameon=False,
                  title="steps kept: how far back a loss reaches in the mean, its own step included",
                  title_fontsize=13)  # fmt: skip
    if any(((w != 0) & (w != 1)).any() for w in weights):
        bar = figure.colorbar(ScalarMappable(norm, colours), ax=list(panels), fraction=0.03, pad=0.02)
        bar.ax.yaxis.set_major_locator(LogLocator(2, numticks=9))
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        bar.ax.yaxis.set_minor_locator(NullLocator())
        bar.ax.tick_params(labelsize=11)
        bar.set_label("weight w[t, s]", fontsize=13)
