"""‖∂L/∂h_t‖ over time: how the backward pass fades, explodes, or ends at a cut. Read after unrolled.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.ticker import LogLocator, NullLocator

from ..asking import ThroughCuts
from ..tape import Tape
from ..tensor import Tensor
from ..unrolled import number, unrolled
from .network import SCISSORS, entry
from .style import GREY, LOOKS, bare, check_axes, check_takes, numbered, slide
from .triangle import DASHES


def adjoints(tape: Tape, loss: Tensor, ax: Any = None, through_cuts: ThroughCuts = False) -> Any:
    """The norm of the adjoint of every state, by step, a line for each layer and state, on a log axis.

    A dashed upright line stands at each cut. Norms are over rows and units; one of exactly 0 is marked at the bottom.
    through_cuts: as for `Tape.gradient`. Returns the Axes. Errors as for `Tape.adjoints`.
    """
    check_takes("adjoints", tape, Tape, "a tape first")
    if loss is None:
        raise TypeError("plots.adjoints takes the loss that was computed on the tape, found None")
    check_axes("adjoints", ax)
    found = unrolled(tape, loss, through_cuts=through_cuts)
    if ax is None:
        ax = slide().add_axes((0.105, 0.11, 0.745, 0.79))
    steps = found.steps
    columns = sorted(steps)
    seen = np.concatenate([row.adjoints for row in found.rows if row.adjoints is not None])
    positive = seen[seen > 0]
    low, high = (positive.min(), positive.max()) if positive.size else (0.1, 1.0)
    room = max(high / low, 10.0) ** 0.06
    floor = low / room**2
    ax.set_yscale("log")
    ax.set_ylim(floor, high * room)
    many = len(columns) > 40
    handles: list[Any] = []
    closed = {(cut.row, cut.column) for cut in found.cuts if cut.factor == 0}
    for number_of_row in reversed(range(len(found.rows))):
        row = found.rows[number_of_row]
        colour, marker, style = LOOKS[len(handles) % len(LOOKS)]
        assert row.adjoints is not None
        values = np.where(row.adjoints > 0, row.adjoints, np.nan)
        # No adjoint goes back across a closed cut or a reset of all rows, so no line does.
        ends = [n for n, c in enumerate(row.columns) if (number_of_row, c) in closed or row.resets[n] == 1]
        for part in np.split(np.arange(len(values)), ends):
            (line,) = ax.plot(row.columns[part], values[part], color=colour, marker=marker, linestyle=style,
                              linewidth=2, markersize=4 if many else 8, label=row.key)  # fmt: skip
        handles.append(line)
        zero = np.isnan(values)
        if zero.any():
            ax.plot(row.columns[zero], np.full(zero.sum(), floor), "v", color=colour, markersize=9, clip_on=False,
                    label=f"{row.key}: 0")  # fmt: skip
    if (seen == 0).any():
        handles.append(entry("exactly 0", marker="v", color=GREY, markersize=9))
    boundaries = sorted({cut.column - 0.5 for cut in found.cuts})
    for place in boundaries:
        ax.axvline(place, color="black", linewidth=1.4, linestyle=DASHES, zorder=1, label="cut")
    if boundaries:
        mended = all(cut.factor == 1 for cut in found.cuts)
        if len(boundaries) <= 40:
            ax.scatter(boundaries, [1.0] * len(boundaries), s=17**2, marker=SCISSORS, clip_on=False, zorder=6,
                       color="#999999" if mended else "black", linewidths=0.2, label="scissors",
                       transform=ax.get_xaxis_transform())  # fmt: skip
        handles.append(entry("cut, mended" if mended else "cut", marker=SCISSORS, markersize=14, markeredgewidth=0))
    ax.set_xlim(min(columns[0] - 0.6, *[b - 0.2 for b in boundaries or [columns[0]]]), columns[-1] + 0.6)
    chosen = numbered(len(columns), 25)
    ax.set_xticks([columns[i - 1] for i in chosen], [str(steps[columns[i - 1]]) for i in chosen])
    near = high < 1000 * low
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if near else (1,), numticks=10))
    if near:
        ax.yaxis.set_major_formatter(lambda value, _: number(value))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("step t", fontsize=14)
    ax.set_ylabel("‖∂L/∂state‖ after step t", fontsize=14)
    ax.set_title("The adjoint of every state over time", fontsize=16, pad=14)
    bare(ax)
    ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=13, frameon=False)
    return ax
