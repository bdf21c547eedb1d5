"""The gradient by lag: how far back it comes from, in signed shares, which add up, and in norms, which do not.

Read after ../contributions.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from ..contributions import Contributions
from ..listing import counted
from .style import BLUE, GREY, HURTS, ORANGE, bare, check_axes, check_takes, flat, numbered, signed_shares, slide


def lags(c: Contributions, ax: Any = None) -> Any:
    """The share by lag as bars with its running sum as a line, and below it the norm by lag on a log axis.

    The running sum up to lag K − 1 is what a window of K steps keeps, tbptt(1, K); it may pass 1 or fall below 0.
    ax: two Axes, one for the upper panel alone, or None for a new figure. Returns the Axes.
    ValueError where the full gradient is zero.
    """
    check_takes("lags", c, Contributions, "what mb.contributions gives")
    check_axes("lags", ax, (1, 2))
    signed_shares(c)
    if ax is None:
        figure = slide(layout="constrained")
        ax = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
        figure.suptitle("How far back the gradient comes from", fontsize=17)
    panels = flat(ax)
    _shares(panels[0], c)
    if len(panels) > 1:
        _norms(panels[1], c)
    for panel in panels:
        bare(panel)
        panel.set_xlim(-0.6, c.T - 0.4)
        gap = max(np.diff(numbered(c.T)), default=1)
        panel.xaxis.set_major_locator(FixedLocator(range(0, c.T, int(gap))))
    panels[-1].set_xlabel("lag t − s (steps); a window of K steps keeps the lags 0 to K − 1", fontsize=14)
    return ax


def _shares(ax: Any, c: Contributions) -> None:
    share, lag = c.share_by_lag, np.arange(c.T)
    total = np.cumsum(share)
    hurts = share < 0
    if not hurts.all():
        ax.bar(lag[~hurts], share[~hurts], color=BLUE, width=0.8, label="share of a lag: helps")
    if hurts.any():
        hatch = HURTS if c.T <= 64 else None  # beyond that bars are too thin for one, and hang below 0 anyway
        ax.bar(lag[hurts], share[hurts], color=ORANGE, width=0.8, hatch=hatch, label="share of a lag: hurts")
    ax.plot(lag, total, color="black", marker="o", markersize=4, linewidth=1.8, label="running sum")
    ax.axhline(1, color=GREY, linestyle="--", linewidth=1.2, zorder=1)
    ax.axhline(0, color=GREY, linewidth=1.2, zorder=1)
    low, high = min(0.0, share.min(), total.min()), max(1.0, share.max(), total.max())
    room = 0.14 * (high - low)
    ax.set_ylim(low - room * (low < 0), high + room)
    if total.min() < -0.02:
        _extreme(ax, total, int(total.argmin()), below=True)
    if total.max() > 1.02:
        _extreme(ax, total, int(total.argmax()), below=False)
    ax.set_ylabel("share of the gradient", fontsize=14)
    ax.set_title("Share by lag, and its running sum: what a window keeps", fontsize=15)
    ax.legend(fontsize=12, frameon=False)


def _extreme(ax: Any, total: np.ndarray, lag: int, below: bool) -> None:
    """The worst window, or the one that overshoots most, in words at its point."""
    words = f"{counted(lag + 1, 'step')}: {total[lag]:.2f}".replace("-", "−")
    side = "left" if lag < 0.2 * len(total) else "right" if lag > 0.8 * len(total) else "center"
    ax.annotate(words, (lag, total[lag]), xytext=(0, -7 if below else 7), textcoords="offset points", ha=side,
                va="top" if below else "bottom", fontsize=12)  # fmt: skip


def _norms(ax: Any, c: Contributions) -> None:
    norm, lag = c.norm_by_lag, np.arange(c.T)
    zero = norm <= norm.max() * 1e-16  # beyond that it is rounding, and would stretch the axis
    ax.plot(lag, np.where(zero, np.nan, norm), color=GREY, marker="s", markersize=4, linewidth=1.4)
    ax.set_yscale("log")
    near = norm[~zero].max() < 1000 * norm[~zero].min()
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if near else (1,), numticks=8))
    if near:
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_locator(NullLocator())
    if zero.any():
        floor = ax.get_ylim()[0]
        ax.plot(lag[zero], np.full(zero.sum(), floor), "v", color=GREY, markersize=9, clip_on=False, label="0")
        ax.set_ylim(bottom=floor)
        ax.legend(fontsize=12, frameon=False, loc="lower left")
    ax.set_ylabel("Σ ‖C[t, t − lag]‖", fontsize=14)
    ratio = c.norms.sum() / c.full.norm()
    ax.set_title(f"Norm by lag. Norms mislead, shares don't: sum of norms / norm of sum = {ratio:.3g}", fontsize=15)
