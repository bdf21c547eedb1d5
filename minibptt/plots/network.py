"""What drawings of a tape have in common: the colours of adjoints, scissors, edges, labels. Read after style.py."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.path import Path
from matplotlib.patheffects import withStroke
from matplotlib.textpath import TextPath, text_to_path
from matplotlib.transforms import Affine2D

from ..unrolled import number

FONT = "DejaVu Sans"  # comes with matplotlib, and has ✂, ∂ and the subscripts
WIDEST, THINNEST = 8.0, 0.5  # of backward edges, in points
FORWARD = "#777777"
# Darker is more, so that grey print keeps the order.
ADJOINTS = LinearSegmentedColormap.from_list("adjoints", ["#FBD9B5", "#F0974F", "#D55E00", "#8A3300", "#3D1500"])


def _sign(text: str) -> Path:
    path = TextPath((0, 0), text, size=1, prop=FontProperties(family=FONT))
    (x0, y0), (x1, y1) = path.get_extents().get_points()
    return path.transformed(Affine2D().translate(-(x0 + x1) / 2, -(y0 + y1) / 2).scale(1 / max(x1 - x0, y1 - y0)))


SCISSORS = _sign("✂").transformed(Affine2D().rotate_deg(-90))
BARS = Path([(-0.12, -0.5), (-0.12, 0.5), (0.12, -0.5), (0.12, 0.5)], [Path.MOVETO, Path.LINETO] * 2)  # a reset


class Scale:
    """Width and colour of an adjoint: the width grows with the norm, the colour with its logarithm."""

    def __init__(self, norms: Iterable[float]):
        seen = [v for v in norms if v > 0 and math.isfinite(v)]
        self.most = max(seen, default=1.0)
        least = min(min(seen, default=1.0), self.most / 10)
        self.least = max(least, self.most * 1e-6)
        self.norm = LogNorm(self.least, self.most, clip=True)

    def width(self, value: float) -> float:
        """In points; 0 is no edge, and anything else is at least a hair."""
        return max(THINNEST, WIDEST * min(1.0, value / self.most)) if value > 0 else 0.0

    def colour(self, value: float) -> Any:
        return ADJOINTS(self.norm(value)) if value > 0 else (1.0, 1.0, 1.0, 1.0)

    def bar(self, figure: Any, rect: tuple[float, float, float, float], label: str) -> Any:
        """The scale beside the drawing."""
        cax = figure.add_axes(rect, label="scale")
        bar = figure.colorbar(ScalarMappable(self.norm, ADJOINTS), cax=cax)
        ticks = [self.least * (self.most / self.least) ** (i / 4) for i in range(5)]
        bar.set_ticks(ticks, labels=[number(v, 2) for v in ticks], fontsize=11)
        bar.ax.minorticks_off()
        cax.set_title(label, fontsize=12, pad=8)
        return bar


def lines(ax: Any, segments: Sequence[Any], label: str, **style: Any) -> LineCollection:
    """Lines that can be found again by `label`; empty where there are none."""
    style = {"capstyle": "butt", **style}
    return ax.add_collection(LineCollection(segments, label=label, **style), autolim=False)


def scissors(ax: Any, places: Sequence[tuple[float, float]], size: float, mended: Sequence[bool]) -> None:
    """✂ at each place, in one collection called "cuts"; pale where the cut is mended."""
    if places:
        x, y = np.array(places).T
        colours = ["#999999" if m else "black" for m in mended]
        ax.scatter(x, y, s=size**2, marker=SCISSORS, c=colours, linewidths=0.2, edgecolors=colours, zorder=7,
                   label="cuts")  # fmt: skip


def arrowheads(
    ax: Any, places: Sequence[tuple[float, float]], marker: str, sizes: Any, colours: Any, **more: Any
) -> None:
    if places:
        x, y = np.array(places).T
        ax.scatter(x, y, s=np.square(sizes), marker=marker, c=colours, linewidths=0, **{"zorder": 4, **more})


def halo(width: float = 2.5) -> list[Any]:
    """White around letters, so that a line behind does not run through them."""
    return [withStroke(linewidth=width, foreground="white")]


def text_width(text: str, size: float) -> float:
    """In points."""
    prop = FontProperties(family=FONT, size=size)
    return max(text_to_path.get_text_width_height_descent(line, prop, False)[0] for line in text.split("\n"))


def extent(ax: Any) -> tuple[float, float]:
    """Width and height of `ax` in points."""
    box = ax.get_window_extent()
    return box.width * 72 / ax.figure.dpi, box.height * 72 / ax.figure.dpi


def legend(ax: Any, handles: list[Any], below: float = 42.0) -> None:
    """One line below the axes, or two. below: how far, in points."""
    columns = len(handles) if len(handles) <= 4 else 3
    ax.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -below / extent(ax)[1]), ncols=columns,
              fontsize=12, frameon=False, handlelength=2.2, columnspacing=1.6, borderaxespad=0)  # fmt: skip


def entry(label: str, **style: Any) -> Line2D:
    """What a legend shows for a line or a sign."""
    return Line2D([], [], **{"linestyle": "none", "color": "black", **style}, label=label)
