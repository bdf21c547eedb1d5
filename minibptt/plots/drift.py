"""float32 against float64 over time steps, as a figure. Read after ../drift.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..drift import Drift
from .style import GREY, LOOKS, bare, check_axes, check_takes, slide


def drift(found: Drift | dict[str, Drift], ax: Any = None) -> Any:
    """The relative difference of the outputs at each step, a line for each model: `mb.plots.drift(mb.drift(model, x))`.

    found: one, or several by name. ax: Axes, or None for a new figure. Returns the Axes. A difference of exactly 0 has
    no place on the log axis and is left out. ValueError where there is nothing to draw.
    """
    check_axes("drift", ax)
    several = found if isinstance(found, dict) else {getattr(found, "title", ""): found}
    for one in several.values():
        check_takes("drift", one, Drift, "what mb.drift gives, one or a dict of them")
    if not several:
        raise ValueError("plots.drift: the dict is empty: give what mb.drift found, by name")
    lines = {name: np.where(d.outputs > 0, d.outputs, np.nan) for name, d in several.items()}
    if not any(np.isfinite(line).any() for line in lines.values()):
        raise ValueError("there is no difference to draw: float32 and float64 give the same numbers here")
    if ax is None:
        ax = slide(layout="constrained").subplots()
    for (name, line), (colour, marker, style) in zip(lines.items(), LOOKS * len(lines)):
        every = max(1, len(line) // 16)
        ax.plot(range(1, len(line) + 1), line, color=colour, marker=marker, linestyle=style, markevery=every,
                linewidth=2.2, markersize=7, label=name)  # fmt: skip
    ax.set_yscale("log")
    half = float(np.finfo(np.float32).eps) / 2
    ax.axhline(half, color=GREY, linestyle=":", linewidth=1.5)
    ax.annotate("one rounding of float32, 2⁻²⁴", (1, half), xycoords=("axes fraction", "data"), xytext=(-4, -4),
                textcoords="offset points", ha="right", va="top", color=GREY, fontsize=12)  # fmt: skip
    ax.set_title("Where float32 leaves float64", fontsize=16)
    ax.set_xlabel("step t", fontsize=14)
    ax.set_ylabel("relative difference  ‖y₃₂ − y₆₄‖ / ‖y₆₄‖", fontsize=14)
    ax.grid(axis="y", alpha=0.25)
    bare(ax)
    if any(lines):
        ax.legend(fontsize=12, frameon=False)
    return ax
