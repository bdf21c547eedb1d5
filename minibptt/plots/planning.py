"""Where every operation of a tape stands in its drawing: levels within a step, lanes for what passes a level.

The layers of a drawing of a graph after Sugiyama, Tagawa and Toda (1981), step by step: a node stands one level above
what feeds it, and an edge that passes a level keeps a place in it. Read after ../wiring.py.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from ..wiring import Edge, Node, Wiring

SPAN = 0.78  # how much of a step's column its nodes take; between two columns run the edges from step to step
BAR = 0.62  # the height of a bar, a level of nodes being 1 high


class Plan:
    """Where everything stands. Bands from the bottom up: the steps of a layer, or a bar."""

    def __init__(self, graph: Wiring):
        self.graph = graph
        self.steps = sorted({n.step for n in graph.nodes if n.step is not None}) or [1]
        self.column: dict[int | None, int] = {step: i for i, step in enumerate(self.steps)}
        self.band: dict[Node, Any] = {}  # a layer's name in a tuple, or a node that is a bar
        for node in graph.nodes:
            self.band[node] = (node.layer,) if node.step is not None else node
        self.inside = [n for n in graph.nodes if n.step is not None and n.cut is None]
        self.level: dict[Node, int] = {}
        into: dict[Node, list[Edge]] = defaultdict(list)
        for edge in graph.edges:
            into[edge.end].append(edge)
        for node in self.inside:
            below = [self.level[e.start] for e in into[node] if self._together(e.start, node)]
            self.level[node] = 1 + max(below) if below else 0
        self.levels: dict[Any, int] = defaultdict(int)
        for node in self.inside:
            self.levels[self.band[node]] = max(self.levels[self.band[node]], self.level[node] + 1)
        self.bottom: dict[Any, float] = {}
        self.height = 0.0
        for band in dict.fromkeys(self.band[n] for n in graph.nodes):
            if isinstance(band, tuple) and not self.levels[band]:
                continue
            self.bottom[band] = self.height
            self.height += self.levels[band] if isinstance(band, tuple) else BAR
        self.names = [band[0] for band, levels in self.levels.items() if levels]
        self.x: dict[Node, float] = {}
        self.row: dict[Node, int] = {}  # how many stand side by side with a node
        self.abreast = 1
        self._across(into)

    def _together(self, a: Node, b: Node) -> bool:
        return a.cut is None and a.step is not None and a.step == b.step and self.band[a] == self.band[b]

    def _across(self, into: dict[Node, list[Edge]]) -> None:
        """Order the nodes of each level by the middle of what feeds them; an edge that passes a level gets a place."""
        passing: dict[tuple[Any, Any], list[Any]] = defaultdict(list)  # (band, step) → (start, to level)
        leaves_right, from_left, alike = set(), set(), self._alike()
        for edge in self.graph.edges:
            a, b = edge.start, edge.end
            if b in self.level and self._sideways(edge):
                from_left.add(alike[b])
            if a not in self.level:
                continue
            if self._together(a, b):
                self._longest(passing[self.band[a], a.step], a, self.level[b])
            elif b.cut is not None or (b.step is not None and b.step != a.step):
                leaves_right.add(alike[a])
            else:
                self._longest(passing[self.band[a], a.step], a, self.levels[self.band[a]])
        self.passes: dict[tuple[Node, int], float] = {}
        for band, levels in self.levels.items():
            for step in self.steps:
                column = self.column[step]
                nodes = [n for n in self.inside if self.band[n] == band and n.step == step]
                for level in range(levels):
                    row: list[tuple[float, Node, bool]] = []
                    for n in (n for n in nodes if self.level[n] == level):
                        feeds = [self._feed(e, level, column) for e in into[n]]
                        place = float(np.mean(feeds)) if feeds else column + 0.5
                        # Edges from the step before come in at the left, those to the step after go at the right.
                        place = column - 1.0 if alike[n] in from_left else place
                        row.append((place + (1.0 if alike[n] in leaves_right else 0.0), n, True))
                    for a, to in passing[band, step]:
                        if self.level[a] < level < to:
                            row.append((self.passes.get((a, level - 1), self.x[a]), a, False))
                    row.sort(key=lambda one: one[0])
                    self.abreast = max(self.abreast, len(row))
                    for i, (_, node, real) in enumerate(row):
                        x = column + (1 - SPAN) / 2 + SPAN * (i + 0.5) / len(row)
                        if real:
                            self.x[node], self.row[node] = x, len(row)
                        else:
                            self.passes[node, level] = x

    def _alike(self) -> dict[Node, Any]:
        """What the operations at the same place of every step share, so that all steps are laid out the same way."""
        count: dict[Any, int] = defaultdict(int)
        found = {}
        for node in self.inside:
            assert node.record is not None
            op = node.record.op
            count[self.band[node], node.step, op] += 1
            found[node] = (
                self.band[node],
                op,
                node.formula if op == "where" else count[self.band[node], node.step, op],
            )
        return found

    @staticmethod
    def _longest(found: list[Any], a: Node, to: int) -> None:
        """One lane for all edges from `a`, up to the highest level that one of them goes to."""
        before = next((one for one in found if one[0] is a), None)
        if before is not None:
            found.remove(before)
            to = max(to, before[1])
        found.append((a, to))

    def _sideways(self, edge: Edge) -> bool:
        return edge.start.cut is not None or (edge.start.step is not None and edge.start.step != edge.end.step)

    def _feed(self, edge: Edge, level: int, column: int) -> float:
        if edge.start in self.x and self._together(edge.start, edge.end):
            return self.passes.get((edge.start, level - 1), self.x[edge.start])
        return column + 0.5

    def y(self, node: Node) -> float:
        """The middle of a node or of a bar."""
        band = self.band[node]
        return self.bottom[band] + (self.level[node] + 0.5 if isinstance(band, tuple) else BAR / 2)
