"""The network step by step: a node for each step, layer and state. Read after ../unrolled.py and network.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.patches import FancyBboxPatch

from ..listing import subscript
from ..unrolled import Crossing, Unrolled, number
from .network import (
    BARS,
    FONT,
    FORWARD,
    SCISSORS,
    WIDEST,
    Scale,
    arrowheads,
    entry,
    extent,
    halo,
    legend,
    lines,
    scissors,
    text_width,
)
from .style import BLUE, GREY, bare, numbered

FAINT = 0.25  # how much is left of the colour of a padded step
HIGHEST = 150.0  # a row, in points; more room stays empty above and below


class Steps:
    """A node for each step, layer and state."""

    def __init__(self, found: Unrolled, ax: Any, scale: Scale | None):
        self.found, self.ax, self.scale = found, ax, scale
        self.rows = found.rows
        self.y: list[float] = []  # of each row
        for i, row in enumerate(self.rows):
            gap = 0.0 if i == 0 else 1.0 if row.layer == self.rows[i - 1].layer else 1.45
            self.y.append(self.y[-1] + gap if i else 0.0)
        steps = found.steps
        first, last = min(steps), max(steps)
        first -= any(cut.column == first for cut in found.cuts)
        ax.set_xlim(first - 0.65, last + 0.65)
        width, height = extent(ax)
        self.across = width / (last - first + 1.3)  # points for a step, and for a row
        self.up = min(HIGHEST, height / (self.y[-1] + 1.5))
        middle, half = self.y[-1] / 2, height / self.up / 2
        ax.set_ylim(middle - half, middle + half)
        self.few = self.across >= 24  # room for arrows between the nodes
        self.node = max(3.0, min(0.36 * self.across, 0.42 * self.up, 46.0))
        self.radius = self.node / 2 / self.across if self.few else 0.0
        # How far forward edges lie above the middle of the nodes, and backward ones below.
        self.apart = min(0.13, (0.3 * self.node + 3 if self.few else 11) / self.up) if scale else 0.0
        self.under = max(self.node / 2, (self.apart * self.up + WIDEST / 2) if scale and self.node < 30 else 0) + 2

    def draw(self) -> None:
        self._cells()
        self._edges()
        self._between_layers()
        self._nodes()
        self._cuts()
        self._resets()
        self._frame()

    def _cells(self) -> None:
        """A box around the states of one layer at one step, where there are several."""
        if self.across < 40:
            return
        for layer in dict.fromkeys(row.layer for row in self.rows):
            own = [(row, y) for row, y in zip(self.rows, self.y) if row.layer == layer]
            if len(own) > 1:
                low, high = own[0][1] - 0.47, own[-1][1] + 0.42
                for c in own[0][0].columns:
                    self.ax.add_patch(FancyBboxPatch(
                        (c - 0.33, low), 0.66, high - low, boxstyle="round,pad=0,rounding_size=0.08",
                        facecolor="#F5F5F5", edgecolor="#DDDDDD", zorder=0))  # fmt: skip

    def _edges(self) -> None:
        """From each node to the next one in its row, and back again."""
        cut_at = {(cut.row, cut.column): cut for cut in self.found.cuts}
        shift = self.apart
        ahead: dict[str, list[Any]] = {"forward": [], "forward, some rows": []}
        heads, back, widths, colours, stops = [], [], [], [], []
        for i, (row, y) in enumerate(zip(self.rows, self.y)):
            for n, column in enumerate(row.columns):
                cut, crosses = cut_at.get((i, int(column))), row.resets[n] < 1
                before = column - 1
                if n == 0 and cut is None:
                    continue
                start, end = before + self.radius, column - self.radius
                if crosses:
                    ahead["forward" if row.resets[n] == 0 else "forward, some rows"].append(
                        [(start, y + shift), (end, y + shift)]
                    )
                    heads.append((end, y + shift))
                if self.scale is None or row.adjoints is None or not crosses:
                    continue
                middle = column - 0.5
                whole = 0.0 if n == 0 else float(row.adjoints[n - 1])
                for a, b, value in self._pieces(cut, start, middle, end, whole):
                    if value > 0:
                        back.append([(a, y - shift), (b, y - shift)])
                        widths.append(self.scale.width(value))
                        colours.append(self.scale.colour(value))
                        stops.append((b, y - shift))
        for label, style in (("forward", "-"), ("forward, some rows", (0, (1.5, 1.5)))):
            lines(self.ax, ahead[label], label, colors=FORWARD, linewidths=1.4, linestyles=[style], zorder=2)
        lines(self.ax, back, "backward", colors=colours, linewidths=widths, zorder=3)
        if self.few:
            arrowheads(self.ax, heads, ">", 6.0, FORWARD, label="forward heads")
            arrowheads(self.ax, stops, "<", np.array(widths) + 6, colours, label="backward heads")

    @staticmethod
    def _pieces(cut: Crossing | None, start: float, middle: float, end: float, whole: float) -> list[Any]:
        """(from, to, norm) of the backward edge over one boundary; at a cut what is dropped ends there."""
        if cut is None or cut.factor == 1 or cut.dropped is None:
            return [(end, start, whole)]
        arrived = cut.dropped / abs(1 - cut.factor)
        return [(end, middle, arrived)] + ([(middle, start, whole)] if cut.factor else [])

    def _between_layers(self) -> None:
        """From the topmost state of a layer up to the layer above, at every step."""
        top = {row.layer: (row, y) for row, y in zip(self.rows, self.y)}
        bottom = {row.layer: y for row, y in reversed(list(zip(self.rows, self.y)))}
        up = []
        for lower, upper in self.found.between:
            row, y = top[lower]
            if bottom[upper] > y:
                inside = 0.47 if self.across >= 40 and bottom[upper] != top[upper][1] else self.node / 2 / self.up
                up += [[(c, y + self.node / 2 / self.up), (c, bottom[upper] - inside)] for c in row.columns]
        lines(self.ax, up, "to the layer above", colors=FORWARD, linewidths=1.4 if self.few else 0.5, zorder=1)
        if self.few:
            arrowheads(self.ax, [end for _, end in up], "^", 6.0, FORWARD, label="upward heads")

    def _nodes(self) -> None:
        """Circles with their names inside and their values below, where there is room."""
        inside = self._size([subscript(row.name, int(s)) for row in self.rows for s in row.steps], self.node - 4, 13)
        below = self._size([text for row in self.rows for text in row.texts], 0.86 * self.across, 12)
        below = below if self.up >= 44 else 0
        for row, y in zip(self.rows, self.y):
            alpha = FAINT + (1 - FAINT) * row.real
            adjoints = np.zeros(len(row.columns)) if row.adjoints is None else row.adjoints
            fill = np.array([self.scale.colour(v) if self.scale else (0.86, 0.92, 0.97, 1) for v in adjoints])
            edge = np.tile((0.2, 0.2, 0.2, 1.0), (len(fill), 1))
            paper = np.ones_like(fill)  # mixed with white, so that no edge shines through
            fill, edge = (alpha[:, None] * rgba + (1 - alpha[:, None]) * paper for rgba in (fill, edge))
            self.ax.scatter(row.columns, np.full(len(fill), y), s=self.node**2, c=fill, edgecolors=edge,
                            linewidths=1.2 if self.node > 8 else 0.6, zorder=5, label=f"nodes {row.key}",
                            linestyles=["-" if real == 1 else (0, (2, 1.5)) for real in row.real])  # fmt: skip
            for n, (column, step) in enumerate(zip(row.columns, row.steps)):
                dark = fill[n, :3] @ (0.2126, 0.7152, 0.0722) < 0.45
                ink = "white" if dark else str(0.75 * (1 - alpha[n]))
                if inside:
                    self.ax.text(column, y - 0.01, subscript(row.name, int(step)), ha="center", va="center_baseline",
                                 fontsize=inside, color=ink, zorder=6, family=FONT)  # fmt: skip
                if below:
                    self.ax.annotate(row.texts[n], (column, y), xytext=(0, -self.under),
                                     textcoords="offset points", ha="center", va="top", fontsize=below, zorder=6,
                                     color=str(0.75 * (1 - alpha[n])), path_effects=halo(), family=FONT)  # fmt: skip
        self.valued = bool(below)

    @staticmethod
    def _size(texts: list[str], room: float, most: float, least: float = 8.5) -> float:
        """The font size at which the widest of `texts` has room, 0 where that is too small to be read."""
        size = min(most, room / max(text_width(text, 1.0) for text in texts))
        return size if size >= least else 0.0

    def _cuts(self) -> None:
        found = self.found.cuts
        places = [(cut.column - 0.5, self.y[cut.row]) for cut in found]
        apart = min(np.diff(sorted({x for x, _ in places})), default=99.0) * self.across
        long = 0.45 if apart > 12 else 0.2
        span = [((x, y - long), (x, y + long)) for x, y in places]
        lines(self.ax, span, "cut lines", colors="white", linewidths=3.5, zorder=3.5) if apart > 20 else None
        lines(self.ax, span, "boundaries", colors=GREY, linewidths=1.0, linestyles=[(0, (2, 2))], zorder=3.6)
        size = max(5.0, min(24.0, 0.9 * apart, 0.36 * self.up))
        scissors(self.ax, places, size, [cut.factor == 1 for cut in found])
        lost = [number(cut.dropped) for cut in found if cut.dropped is not None]
        size = self._size(lost, min(0.94 * apart, 90), 11.5) if lost and self.up >= 40 else 0
        for cut, (x, y) in zip(found, places):
            if size and cut.factor != 1 and cut.dropped is not None:
                self.ax.annotate(number(cut.dropped), (x, y), xytext=(0, 0.27 * self.up), textcoords="offset points",
                                 ha="center", va="center", fontsize=size, color="#8A3300", zorder=8,
                                 path_effects=halo(3), family=FONT, gid="dropped")  # fmt: skip

    def _resets(self) -> None:
        places = [
            (column - 0.5 + 0.14 * self.few, y - (0 if self.few else 0.33), share)
            for row, y in zip(self.rows, self.y)
            for column, share in zip(row.columns, row.resets)
            if share
        ]
        if places:
            x, y, share = np.array(places).T
            colours = [(*to_rgb(BLUE), 0.45 + 0.55 * s) for s in share]
            size = min(22.0, 0.5 * self.up) if self.few else min(10.0, 0.3 * self.up)
            self.ax.scatter(x, y, s=size**2, marker=BARS, facecolors="none", edgecolors=colours,
                            linewidths=2.2 if self.few else 1.3, zorder=6.5, label="resets")  # fmt: skip

    def _frame(self) -> None:
        ax, steps = self.ax, self.found.steps
        chosen = numbered(len(steps), 25)
        columns = sorted(steps)
        ax.set_xticks([columns[i - 1] for i in chosen], [str(steps[columns[i - 1]]) for i in chosen])
        ax.set_xlabel("step", fontsize=13, labelpad=2)
        several = len({row.layer for row in self.rows}) > 1
        labels = [f"{row.layer} {row.name}" if several else row.name for row in self.rows]
        ax.set_yticks(self.y, labels)
        if several:
            ax.set_ylabel("layer and state", fontsize=13)
        bare(ax, 12)
        ax.spines["left"].set_visible(False)
        ax.tick_params(axis="y", length=0)
        legend(ax, self._legend())

    def _legend(self) -> list[Any]:
        handles = [entry("forward", linestyle="-", color=FORWARD, linewidth=1.4)]
        if self.scale is not None:
            label = f"backward, widest: {number(self.scale.most)}"
            handles.append(entry(label, linestyle="-", color=self.scale.colour(self.scale.most), linewidth=6))
        if self.valued:
            what = "value" if all(row.in_numbers for row in self.rows) else "norm"
            handles.append(entry(f"below a node: its {what}", marker="o", color=GREY,
                                 markerfacecolor="white", markersize=10))  # fmt: skip
        if self.found.cuts:
            mended = all(cut.factor == 1 for cut in self.found.cuts)
            label = "cut, mended" if mended else "cut" if self.scale is None else "cut, and what it dropped"
            handles.append(entry(label, marker=SCISSORS, markersize=14, markeredgewidth=0))
        if any((row.real < 1).any() for row in self.rows):
            handles.append(entry("padded (paler: more rows)", marker="o", markersize=10, color="#BBBBBB",
                                 markerfacecolor="white"))  # fmt: skip
        if any(row.resets.any() for row in self.rows):
            some = any(((row.resets > 0) & (row.resets < 1)).any() for row in self.rows)
            label = "reset" + (" (edge dashed: of some rows)" if some else "")
            handles.append(entry(label, marker=BARS, markersize=13, color=BLUE, markerfacecolor="none",
                                 markeredgewidth=2))  # fmt: skip
        return handles
