"""Every record of a tape as a node: the operations of a step in its column, from what goes in at the bottom upwards.

Records of many steps (a stack of all outputs, the loss) are bars across their steps. Read after planning.py.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path

from ..asking import ThroughCuts
from ..listing import counted
from ..tape import Tape
from ..tensor import Tensor
from ..unrolled import number
from ..wiring import Edge, Node, wiring
from .network import FONT, FORWARD, SCISSORS, Scale, entry, extent, halo, legend, scissors, text_width
from .planning import BAR, SPAN, Plan
from .style import GREY, bare, slide

MOST_STEPS, MOST_LEVELS, MOST_ABREAST = 4, 14, 16


def fits(tape: Tape) -> bool:
    """Whether the operations of `tape` can be read on one slide."""
    steps = [r.steps for r in tape.records if r.steps and r.inner is None]
    if not steps or any(r.inner is not None for r in tape.records):
        return False
    if max(s[1] for s in steps) - min(s[0] for s in steps) >= MOST_STEPS or len(tape.records) > 40 * MOST_STEPS:
        return False
    plan = Plan(wiring(tape))
    return plan.height <= MOST_LEVELS and plan.abreast * len(plan.steps) <= MOST_ABREAST


def operations(tape: Tape, loss: Tensor | None, ax: Any, through_cuts: ThroughCuts) -> Any:
    """See `plots.tape`, which this is with detail="operation"."""
    graph = wiring(tape, loss, through_cuts=through_cuts)
    plan = Plan(graph)
    own = ax is None
    if own:
        figure = _page(plan)
        w, h = figure.get_size_inches()
        left, right = 0.55 + 0.5 * (len(plan.names) > 1), 1.25 if loss is not None else 0.3
        ax = figure.add_axes((left / w, 1.18 / h, 1 - (left + right) / w, 1 - 1.83 / h))
    scale = None
    if loss is not None:
        parts = [e.part for e in graph.edges if e.part is not None]
        scale = Scale([*parts, *[n.dropped for n in graph.nodes if n.dropped is not None]])
    _Drawing(plan, ax, scale).draw()
    title = f"Every operation{' and its backward pass' if scale else ''}: {counted(len(tape.records), 'record')}"
    title += f", {counted(len(tape.cuts), 'cut')}" if tape.cuts else ""
    ax.set_title(title, fontsize=15, pad=8)
    if own and scale is not None:
        scale.bar(ax.figure, (1 - 0.95 / w, 0.2, 0.18 / w, 0.62), "‖adjoint‖")
    return ax


def _page(plan: Plan) -> Any:
    """A slide, or a page large enough for more operations than a slide has room for."""
    figure = slide()
    figure.set_size_inches(
        min(60.0, max(12.8, 0.68 * plan.abreast * len(plan.steps) + 2)), min(40.0, max(7.2, 0.38 * plan.height + 1.75))
    )
    return figure


class _Drawing:
    def __init__(self, plan: Plan, ax: Any, scale: Scale | None):
        self.plan, self.ax, self.scale = plan, ax, scale
        self.first = (
            -0.35 if any(n.cut is not None and plan.column.get(n.step, 1) == 0 for n in plan.graph.nodes) else 0
        )
        ax.set_xlim(self.first, len(plan.steps))
        ax.set_ylim(-0.05, plan.height + 0.05)
        width, height = extent(ax)
        self.across, self.up = width / (len(plan.steps) - self.first), height / (plan.height + 0.1)
        inside = plan.inside
        self.lines = 3 if scale is not None and self.up >= 48 else 2
        # Points per point of font size; the value is bold.
        wide = {n: max(text_width(n.formula, 1.0), 1.15 * text_width(n.value, 1.0)) for n in inside}
        fitting = [(self.across * SPAN / plan.row[n] - 12) / wide[n] for n in inside]
        self.size = max(5.0, min([12.0, 0.74 * self.up / (1.25 * self.lines), *fitting]))
        room = {n: SPAN * self.across / plan.row[n] - 3 for n in inside}
        self.w = {
            n: 0.5 * min(room[n], max(wide[n] * self.size, 30) + 8) / self.across for n in inside
        }  # half of a node
        self.h = 0.5 * (1.3 * self.lines * self.size + 3) / self.up
        self.places = self._cut_places()

    def draw(self) -> None:
        self._columns()
        for edge in self.plan.graph.edges:
            self._edge(edge)
        for node in self.plan.graph.nodes:
            if node in self.plan.level:
                self._node(node)
            elif node.cut is None:
                self._bar(node)
        self._cuts()
        self._frame()

    def _columns(self) -> None:
        """A pale box around the operations of a step in a layer."""
        for band, levels in self.plan.levels.items():
            if not levels:
                continue
            for column in range(len(self.plan.steps)):
                self.ax.add_patch(FancyBboxPatch(
                    (column + 0.08, self.plan.bottom[band] + 0.06), 0.84, levels - 0.12, boxstyle="round,pad=0,"
                    "rounding_size=0.03", facecolor="#F5F5F5", edgecolor="#DDDDDD", zorder=0))  # fmt: skip

    def _cut_places(self) -> dict[Node, tuple[float, float]]:
        """Scissors stand between two columns, at the height at which the state is used."""
        used: dict[Node, list[float]] = defaultdict(list)
        for edge in self.plan.graph.edges:
            if edge.start.cut is not None and edge.end in self.plan.level:
                used[edge.start].append(self.plan.y(edge.end))
        found: dict[Node, tuple[float, float]] = {}
        for node in self.plan.graph.nodes:
            if node.cut is not None:
                column = self.plan.column.get(node.step, 0)
                y = min(used.get(node, [0.5]))
                while any(abs(y - other) < 0.8 and x == column for x, other in found.values()):
                    y += 0.8
                found[node] = (float(column), y)
        return found

    def _ends(self, edge: Edge) -> list[tuple[float, float]]:
        """The points that an edge goes through, from where its value is made to where it is used."""
        plan, a, b = self.plan, edge.start, edge.end
        w, h = self.w, self.h
        if b.cut is not None and a in plan.level:
            return [(plan.x[a] + w[a], plan.y(a)), self.places[b]]
        if a.cut is not None and b in plan.level:
            return [self.places[a], (plan.x[b] - w[b], plan.y(b))]
        if a in plan.level and b in plan.level and a.step == b.step:
            lanes = range(plan.level[a] + 1, plan.level[b] if plan.band[a] == plan.band[b] else plan.level[a] + 1)
            return [
                (plan.x[a], plan.y(a) + h),
                *[(plan.passes[a, i], plan.bottom[plan.band[a]] + i + 0.5) for i in lanes],
                (plan.x[b], plan.y(b) - h),
            ]
        if a in plan.level and b in plan.level:
            return [(plan.x[a] + w[a], plan.y(a)), (plan.x[b] - w[b], plan.y(b))]
        low, high = 0.5 * BAR - 0.08, len(plan.steps) / 2
        if a in plan.level:
            lanes = range(plan.level[a] + 1, plan.levels[plan.band[a]])
            way = [(plan.passes[a, i], plan.bottom[plan.band[a]] + i + 0.5) for i in lanes]
            return [(plan.x[a], plan.y(a) + h), *way, (way[-1][0] if way else plan.x[a], plan.y(b) - low)]
        if a.cut is not None or b.cut is not None:
            x, y = self.places[a if a.cut is not None else b]
            return [(x, y), (x, plan.y(b) - low)] if a.cut is not None else [(x, plan.y(a) + low), (x, y)]
        x = plan.x.get(b, high)
        return [(x, plan.y(a) + low), (x, plan.y(b) - (h if b in plan.level else low))]

    def _edge(self, edge: Edge) -> None:
        points = self._ends(edge)
        sideways = self._is_sideways(edge)
        faint = 0.35 if edge.end.padded and edge.start.padded else 1.0
        shift = 2.2 if self.scale is not None else 0.0  # points; the backward edge beside the forward one
        self._curve(points, sideways, -shift, FORWARD, 1.1, faint, "forward", "-|>")
        if self.scale is not None and edge.part:
            width = self.scale.width(edge.part)
            self._curve(
                points, sideways, shift + width / 4, self.scale.colour(edge.part), width, 1.0, "backward", "<|-"
            )

    def _is_sideways(self, edge: Edge) -> bool:
        a, b = edge.start, edge.end
        return a.cut is not None or b.cut is not None or (None not in (a.step, b.step) and a.step != b.step)

    def _curve(self, points: Any, sideways: bool, shift: float, colour: Any, width: float, alpha: float, label: str,
               style: str) -> None:  # fmt: skip
        """Upright at both ends, or level at both ends for an edge from one step to the next."""
        moved = [
            (x + (0 if sideways else shift / self.across), y + (shift / self.up if sideways else 0)) for x, y in points
        ]
        vertices, codes = [moved[0]], [Path.MOVETO]
        for (x0, y0), (x1, y1) in pairwise(moved):
            if sideways:  # level up to the gap between the columns, down or up within it, level again
                gap = [x for x in (round(x0 + 0.499), round(x1 - 0.499)) if x0 - 1e-9 <= x <= x1 + 1e-9]
                m0, m1 = (min(gap) - 0.08, max(gap) + 0.08) if gap else ((x0 + x1) / 2,) * 2
                m0, m1 = max(x0, m0), min(x1, m1)
                middle = (m0 + m1) / 2
                vertices += [(m0, y0), (middle, y0), (middle, y1), (m1, y1), (x1, y1)]
                codes += [Path.LINETO, *[Path.CURVE4] * 3, Path.LINETO]
            else:
                middle = (y0 + y1) / 2
                vertices += [(x0, middle), (x1, middle), (x1, y1)]
                codes += [Path.CURVE4] * 3
        path = Path(vertices, codes)
        self.ax.add_patch(PathPatch(path, facecolor="none", edgecolor=colour, linewidth=width, alpha=alpha, label=label,
                                    capstyle="butt", zorder=2 if label == "forward" else 3))  # fmt: skip
        x, y = vertices[-1 if label == "forward" else 0]
        if sideways:
            marker = ">" if label == "forward" else "<"
        else:
            marker = "^" if label == "forward" else "v"
        size = 5 if label == "forward" else width + 3
        self.ax.plot([x], [y], marker=marker, color=colour, alpha=alpha, markersize=size, markeredgewidth=0,
                     linestyle="none", zorder=3.5)  # fmt: skip

    def _node(self, node: Node) -> None:
        w, h, x, y = self.w[node], self.h, self.plan.x[node], self.plan.y(node)
        ink = "#AAAAAA" if node.padded else "black"
        named = node.state
        self.ax.add_patch(FancyBboxPatch(
            (x - w, y - h), 2 * w, 2 * h, boxstyle="round,pad=0,rounding_size=0.02", label="node",
            facecolor="white" if node.padded else "#DCEAF5" if named else "white", zorder=5,
            edgecolor=ink if node.padded else GREY, linewidth=1.6 if named else 1.0,
            linestyle=(0, (3, 2)) if node.padded else "-"))  # fmt: skip
        texts = [(node.formula, ink), (node.value, ink)]
        if self.lines == 3:
            texts.append((f"∂ {number(node.adjoint or 0.0)}", "#C9A08A" if node.padded else "#8A3300"))
        for i, (text, colour) in enumerate(texts):
            self.ax.annotate(text, (x, y), xytext=(0, (0.5 * (len(texts) - 1) - i) * 1.25 * self.size), ha="center",
                             va="center", textcoords="offset points", fontsize=self.size, color=colour, zorder=6,
                             family=FONT, fontweight="bold" if i == 1 else "normal")  # fmt: skip

    def _bar(self, node: Node) -> None:
        n = len(self.plan.steps)
        first, last = node.steps or (self.plan.steps[0], self.plan.steps[-1])
        columns = [c for step, c in self.plan.column.items() if step is not None and first <= step <= last] or [
            0,
            n - 1,
        ]
        y, half = self.plan.y(node), 0.5 * BAR - 0.08
        self.ax.add_patch(FancyBboxPatch(
            (min(columns) + 0.08, y - half), max(columns) - min(columns) + 0.84, 2 * half, label="bar", zorder=5,
            boxstyle="round,pad=0,rounding_size=0.03", facecolor="white", edgecolor=GREY, linewidth=1.0))  # fmt: skip
        text = f"{node.formula}   {node.value}"
        if self.scale is not None:
            text += f"   ∂ {number(node.adjoint or 0.0)}"
        room = 0.6 * 2 * half * self.up
        self.ax.text((min(columns) + max(columns) + 1) / 2, y, text, ha="center", va="center_baseline", zorder=6,
                     fontsize=max(5.0, min(11.5, room)), family=FONT)  # fmt: skip

    def _cuts(self) -> None:
        nodes = [n for n in self.plan.graph.nodes if n.cut is not None]
        mended = [n.factor == 1 for n in nodes]
        scissors(self.ax, [self.places[n] for n in nodes], min(20.0, 0.42 * self.up), mended)
        for node, pale in zip(nodes, mended):
            if self.scale is not None and not pale:
                below = -min(16.0, 0.36 * self.up)
                self.ax.annotate(number(node.dropped or 0.0), self.places[node], xytext=(0, below),
                                 textcoords="offset points", ha="center", va="center",
                                 fontsize=min(11.5, self.size + 1),
                                 color="#8A3300", fontweight="bold", zorder=8, path_effects=halo(3), family=FONT,
                                 gid="dropped")  # fmt: skip

    def _frame(self) -> None:
        ax, plan = self.ax, self.plan
        ax.set_xticks([i + 0.5 for i in range(len(plan.steps))], [str(step) for step in plan.steps])
        ax.set_xlabel("step", fontsize=13, labelpad=2)
        layers = [(band[0], plan.bottom[band] + levels / 2) for band, levels in plan.levels.items() if levels]
        several = len(layers) > 1
        ax.set_yticks([y for _, y in layers] if several else [], [f"{name}" for name, _ in layers] if several else [])
        if several:
            ax.set_ylabel("layer", fontsize=13)
        bare(ax, 12)
        ax.spines["left"].set_visible(False)
        ax.tick_params(axis="y", length=0)
        handles = [entry("forward", linestyle="-", color=FORWARD, linewidth=1.1)]
        if self.scale is not None:
            label = f"backward, widest: {number(self.scale.most)}"
            handles.append(entry(label, linestyle="-", color=self.scale.colour(self.scale.most), linewidth=6))
            if self.lines == 3:
                handles.append(entry("∂: norm of the adjoint", color="#8A3300", marker="$∂$", markersize=9))
        if self.places:
            mended = all(node.factor == 1 for node in self.places)
            label = "cut, mended" if mended else "cut, and what it dropped" if self.scale else "cut"
            handles.append(entry(label, marker=SCISSORS, markersize=14,
                                 markeredgewidth=0))  # fmt: skip
        if any(n.padded for n in plan.inside):
            handles.append(entry("padded", marker="s", markersize=10, color="#AAAAAA", markerfacecolor="white"))
        legend(ax, handles)
