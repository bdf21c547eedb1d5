"""The matrix C as a picture: what each pair of a loss step and a source step is worth. Read after contributions.py."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, SymLogNorm
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from ..contributions import Contributions
from ..given import as_schedule
from ..module import Rng
from ..truncation import Plan, Schedule
from .style import BLUE, GREY, HURTS, ORANGE, bare, check_axes, check_takes, signed_shares, slide, visible
from .triangle import DASHES, axes_of_steps, draw_cuts, edges, outline, upper

MOST_SYMBOLS = 48


def contributions(
    c: Contributions,
    schedule: Schedule | Any = None,
    ax: Any = None,
    symbols: Sequence[str] = "",
    targets: Sequence[str] = "",
    rng: Rng = 0,
) -> Any:
    """The signed shares P[t, s] as a triangle: source step across, loss step down; blue helps, orange hurts.

    schedule: its kept pairs are outlined, its cuts drawn, and what it loses is faded; or an array of weights, as for
    `bptt`. rng: for one that draws its cuts, of which one draw is shown. symbols, targets: one character for each step,
    along the source and the loss axis where T ≤ 48. ax: the triangle alone in it; None: a new figure, with the sums
    over each source and each loss step at the margins. The colours are linear within 1 % of the end of their scale and
    logarithmic beyond; pairs that hurt by more than that carry a minus, for grey print. Returns the triangle's Axes.
    ValueError where the full gradient is zero, TypeError for what is no schedule.
    """
    check_takes("contributions", c, Contributions, "what mb.contributions gives")
    check_axes("contributions", ax)
    share = signed_shares(c)
    schedule = None if schedule is None else as_schedule(schedule)
    plan = None if schedule is None else schedule.plan(c.T, rng)
    w = np.tril(np.ones_like(share)) if plan is None else plan.coverage()
    title = "Share of the gradient by pair of steps"
    if plan is not None:
        title += f": {schedule} keeps {float((w * share).sum()):.2f}"
    if ax is None:
        figure = slide()
        grid = figure.add_gridspec(
            2, 2, width_ratios=[7, 1], height_ratios=[1, 5], left=0.105, right=0.98, bottom=0.145, top=0.915,
            wspace=0.05, hspace=0.05,
        )  # fmt: skip
        ax = figure.add_subplot(grid[1, 0])
        _margin(figure.add_subplot(grid[0, 0], sharex=ax), w * share, (1 - w) * share, plan, across=True)
        _margin(figure.add_subplot(grid[1, 1], sharey=ax), w * share, (1 - w) * share, plan, across=False)
        figure.suptitle(title, fontsize=17, y=0.975)
        lost = "lost: faded, empty bars"
    else:
        lost = "lost: faded"
        ax.set_title(title, fontsize=15 if _wide(ax) else 12)
    axes_of_steps(ax, c.T)
    _cells(ax, share)
    outline(ax, ~upper(c.T), colors="#bbbbbb", linewidths=0.8, zorder=2)
    if plan is not None:
        _truncated(ax, w, plan, lost)
    _names(ax.xaxis, symbols, c.T)
    _names(ax.yaxis, targets, c.T)
    ax.set_xlabel("source step s, where the parameters are used", fontsize=14)
    ax.set_ylabel("loss step t", fontsize=14)
    return ax


def _cells(ax: Any, share: np.ndarray) -> None:
    """The colours, a minus in each cell that hurts, and the scale of the colours in the empty corner."""
    T, most = len(share), float(np.abs(share).max())
    power = 10.0 ** math.floor(math.log10(most))
    end = next(m for m in (power, 2 * power, 5 * power, 10 * power) if m >= most)
    colours = LinearSegmentedColormap.from_list("helps and hurts", [ORANGE, "#f7f7f7", BLUE])
    norm = SymLogNorm(end / 100, vmin=-end, vmax=end)
    mesh = ax.pcolormesh(edges(T), edges(T), np.ma.array(share, mask=upper(T)), cmap=colours, norm=norm)
    t, s = np.nonzero(np.tril(share) < -end / 100)
    half = 0.3 if T <= MOST_SYMBOLS else 0.22
    minus = [((s + 1 - half, t + 1), (s + 1 + half, t + 1)) for t, s in zip(t, s)]
    ax.add_collection(LineCollection(minus, colors="black", linewidths=min(2.5, max(0.5, 40 / T)), label="hurts"))
    corner = ax.inset_axes([0.46, 0.94, 0.5, 0.035])
    ticks = end * np.array([-1, -0.1, 0, 0.1, 1] if _wide(ax) else [-1, 0, 1])
    bar = ax.figure.colorbar(mesh, cax=corner, orientation="horizontal", ticks=ticks)
    bar.ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))
    bar.ax.xaxis.set_minor_locator(NullLocator())
    bar.ax.tick_params(labelsize=12 if _wide(ax) else 10)
    words = ["share P[t, s]:", "blue helps, orange with a minus hurts"]
    bar.set_label((" " if _wide(ax) else "\n").join(words), fontsize=12 if _wide(ax) else 9)


def _wide(ax: Any) -> bool:
    """Whether there is room for words: at least half a slide."""
    return bool(ax.bbox.width / ax.figure.dpi > 6.5)


def _truncated(ax: Any, w: np.ndarray, plan: Plan, words: str) -> None:
    """What is lost is faded, what is kept outlined, and the cuts are drawn."""
    T = len(w)
    lost = np.ma.array(np.ones_like(w), mask=(w != 0) | upper(T))
    ax.pcolormesh(edges(T), edges(T), lost, cmap="gray", vmin=0, vmax=1, alpha=0.62)
    outline(ax, w != 0, colors="black", linewidths=1.4 if T <= MOST_SYMBOLS else 0.9, zorder=3, label="kept")
    draw_cuts(ax, plan, scissors=24 if T <= 16 else 18)
    keys = [
        Patch(facecolor="none", edgecolor="black", linewidth=1.4, label="kept"),
        Patch(facecolor="#e4e4e4", edgecolor="#bbbbbb", label=words),
        Line2D([], [], color="black", linewidth=2.6, linestyle=DASHES, label="cut"),
    ]
    ax.legend(handles=keys, loc="upper right", bbox_to_anchor=(0.97, 0.8), fontsize=12, frameon=False)


def _names(axis: Any, names: Sequence[str], T: int) -> None:
    """The symbol of each step beside the axis, the step numbers behind them."""
    if not names or T > MOST_SYMBOLS:
        return
    ax, across = axis.axes, axis.axis_name == "x"
    room = (ax.bbox.width if across else ax.bbox.height) / ax.figure.dpi * 72 / T  # points for each step
    columns = 1 if across or room >= 12 else 2  # where rows are narrow, symbols stand in two columns by turns
    size = min(14.0, max(4.0, (0.95 if across else 0.85) * room * columns))
    axis.remove_overlapping_locs = False  # a step has its symbol and its number
    shown = [visible(name) for name in names[:T]]
    axis.set_ticks(range(1, len(shown) + 1), shown, minor=True)
    axis.set_tick_params(which="minor", length=0, pad=3, labelsize=size)
    for i, tick in enumerate(axis.get_minor_ticks()):
        tick.label1.set_parse_math(False)  # a $ is a $
        if i % columns:
            tick.set_pad(3 + 1.3 * size)
    axis.set_tick_params(which="major", length=0, pad=8 + 1.4 * size * columns)


def _margin(ax: Any, kept: np.ndarray, lost: np.ndarray, plan: Plan | None, across: bool) -> None:
    """The sum of shares of each step as bars: solid what is kept, empty what is lost."""
    steps = np.arange(1, len(kept) + 1)
    kept, lost = (part.sum(axis=0 if across else 1) for part in (kept, lost))
    draw, length, base = (ax.bar, "height", "bottom") if across else (ax.barh, "width", "left")
    colours = [BLUE if value >= 0 else ORANGE for value in kept]
    bars = draw(steps, **{length: kept}, color=colours, label="kept")
    _hatch(bars, kept)
    if plan is not None:
        onto = np.where(kept * lost > 0, kept, 0)  # one bar if the two agree in sign, else one each way from zero
        empty = draw(steps, **{length: lost, base: onto}, color="white", label="lost", linewidth=0.9,
                    edgecolor=[BLUE if value >= 0 else ORANGE for value in lost])  # fmt: skip
        _hatch(empty, lost)
    bare(ax)
    if across:
        ax.axhline(0, color=GREY, linewidth=1)
        ax.yaxis.set_major_locator(MaxNLocator(3))
        ax.tick_params(labelbottom=False, bottom=False, which="both")
        ax.set_ylabel("sum of\nshares", fontsize=12)
    else:
        ax.axvline(0, color=GREY, linewidth=1)
        ax.xaxis.set_major_locator(MaxNLocator(2))
        ax.tick_params(labelleft=False, left=False, which="both")
        ax.set_xlabel("sum of\nshares", fontsize=12)
    ax.set_label("by source step" if across else "by loss step")


def _hatch(bars: Any, values: np.ndarray) -> None:
    for bar, value in zip(bars, values):
        if value < 0 and len(values) <= MOST_SYMBOLS:
            bar.set_hatch(HURTS)
