"""How a state depends on earlier states: singular values by lag, and the LSTM's highway. Read after ../jacobians.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from ..jacobians import highway as the_highway
from ..jacobians import state_jacobians
from ..unrolled import number
from .style import BLUE, GREEN, GREY, LOOKS, ORANGE, bare, check_axes, flat, numbered, slide


def jacobians(
    model: Any, x: Any, state: Any = None, ax: Any = None, t: int | None = None, of: str = "h", row: int = 0
) -> Any:
    """The largest, the median and the smallest singular value of ∂h_t/∂h_s by lag t − s, on a log axis.

    The arguments are those of `minibptt.jacobians.state_jacobians`. A value that is lost in the rounding of the largest
    one at its lag is left out. Returns the Axes. ValueError for a step, row or state that is not there, and for a state
    or derivative that is not finite.
    """
    check_axes("jacobians", ax)
    J = state_jacobians(model, x, t, of=of, state=state, row=row)
    values = np.linalg.svd(J[::-1], compute_uv=False).astype(np.float64)  # (lags, H), the largest first
    values[values <= values[:, :1] * 4 * J.shape[1] * np.finfo(J.dtype).eps] = np.nan
    if ax is None:
        ax = slide().add_axes((0.09, 0.11, 0.88, 0.78))
    lag, H = np.arange(len(J)), J.shape[1]
    chosen = {"largest": 0, "median": H // 2, "smallest": H - 1} if H > 1 else {"the only one": 0}
    for (label, i), (colour, marker, style) in zip(chosen.items(), LOOKS):
        ax.plot(lag, values[:, i], color=colour, marker=marker, linestyle=style, linewidth=2, label=label,
                markersize=4 if len(J) > 40 else 8)  # fmt: skip
    _by_lag(ax, len(J))
    name = of.rpartition(".")[2]
    ax.set_ylabel(f"singular values of ∂{name}_t/∂{name}_s", fontsize=14)
    ax.set_title(f"What is left of {name}_s in {name}_t: t = {len(J)}, {H} unit{'s' * (H > 1)}", fontsize=16, pad=10)
    ax.legend(fontsize=13, frameon=False, title="singular value", title_fontsize=12)
    return ax


def highway(
    model: Any, x: Any, state: Any = None, ax: Any = None, t: int | None = None, layer: int = -1, row: int = 0
) -> Any:
    """The forget gates of an LSTM over time, and below what their product leaves of c_s beside the whole ∂c_t/∂c_s.

    The upper panel has the mean over units and the range from least to largest. In the lower one the direct path is
    Π f_r of the unit that forgets least, the largest singular value of that path alone; the line beside it is the
    largest singular value of ∂c_t/∂c_s with the paths through h too. ax: two Axes, or None for a new figure.
    The other arguments are those of `minibptt.jacobians.highway`. Returns the two Axes.
    """
    check_axes("highway", ax, (2,))
    found = the_highway(model, x, t, layer=layer, state=state, row=row)
    if ax is None:
        figure = slide(layout="constrained")
        ax = figure.subplots(2, 1, height_ratios=[1, 1.4])
        figure.suptitle("The LSTM's highway", fontsize=17)
    upper, lower = flat(ax)
    T = len(found.f)
    steps, lag = np.arange(1, T + 1), np.arange(T)
    size = 4 if T > 40 else 7
    upper.fill_between(steps, found.f.min(axis=1), found.f.max(axis=1), color=BLUE, alpha=0.2, linewidth=0,
                       label="least to largest unit")  # fmt: skip
    upper.plot(
        steps, found.f.mean(axis=1), color=BLUE, marker="o", markersize=size, linewidth=2, label="mean over units"
    )
    upper.set_ylim(0, 1.03)
    upper.set_xlim(0.4, T + 0.6)
    upper.set_xticks(numbered(T, 25))
    upper.set_xlabel("step t", fontsize=13)
    upper.set_ylabel("forget gate f_t", fontsize=14)
    upper.set_title("The factor of the direct path at each step", fontsize=15)
    upper.legend(fontsize=12, frameon=False, ncols=2, loc="lower right")
    bare(upper)
    whole = np.linalg.norm(found.full[::-1], 2, axis=(1, 2))
    lower.plot(lag, found.direct[::-1].max(axis=1), color=GREEN, marker="^", linestyle="--", markersize=size,
               linewidth=2, label="direct path: largest Π f")  # fmt: skip
    lower.plot(lag, np.where(whole > 0, whole, np.nan), color=ORANGE, marker="s", markersize=size, linewidth=2,
               label="every path: ‖∂c_t/∂c_s‖, the largest singular value")  # fmt: skip
    _by_lag(lower, T)
    lower.set_ylabel("what is left of c_s in c_t", fontsize=14)
    lower.set_title(f"From c_s to c_t, t = {T}", fontsize=15)
    lower.legend(fontsize=12, frameon=False)
    return ax


def _by_lag(ax: Any, T: int) -> None:
    ax.set_yscale("log")
    ax.axhline(1, color=GREY, linestyle=":", linewidth=1.2, zorder=1)
    low, high = ax.get_ylim()
    near = high < 1000 * low
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if near else (1,), numticks=10))
    if near:
        ax.yaxis.set_major_formatter(lambda value, _: number(value))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_locator(MaxNLocator(20, integer=True))
    ax.set_xlim(-0.5, max(T - 0.5, 0.5))
    ax.set_xlabel("lag t − s (steps)", fontsize=14)
    bare(ax)
