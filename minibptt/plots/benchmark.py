"""CPU against GPU: time of a training step over a size, with the crossover and what each regime is bound by.

Read after ../timings.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from ..benchmark import crossover
from ..timings import Benchmark, Fit, Timing
from .style import BLUE, GREY, LOOKS, ORANGE, bare, check_axes, check_takes, flat, slide

NAMES = {"H": "hidden units H", "B": "rows B", "T": "steps T"}


def benchmark(result: Benchmark, over: str = "H", ax: Any = None) -> Any:
    """Milliseconds for one training step over H, B or T: a panel for each combination of the other two, at most four.

    Blue is the CPU, orange the GPU, a line style for each cell; bars are the middle half of the runs. Shaded is where
    the model fitted to the GPU's timings (without them, the CPU's) is bound by launches. ax: an array of Axes, or None.
    Returns the array of Axes. ValueError for another `over` and where there is nothing to draw.
    """
    check_takes("benchmark", result, Benchmark, "what mb.benchmark or sweep gives")
    if over not in NAMES:
        raise ValueError(f"over must be one of {', '.join(NAMES)}, found {over!r}")
    unknown = [row.cell for row in result.rows if getattr(row, over) < 1]
    if unknown:
        raise ValueError(f"{over} of {unknown[0]} is not known, so there is no place for it on an axis of {over}")
    rest = [name for name in NAMES if name != over]
    panels = sorted({tuple(getattr(row, name) for name in rest) for row in result.rows})[:4]
    if not panels:
        raise ValueError("there is no timing to draw")
    check_axes("benchmark", ax, (len(panels),), ", one for each panel")
    figure = None
    if ax is None:
        figure = slide(6.6, layout="constrained")
        ax = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    axes = flat(ax)
    for one, fixed in zip(axes, panels):
        rows = [row for row in result.rows if tuple(getattr(row, name) for name in rest) == fixed]
        _panel(one, result, rows, over)
        one.set_title(", ".join(f"{name} = {value}" for name, value in zip(rest, fixed)), fontsize=14)
    axes[0].set_ylabel("milliseconds for one training step", fontsize=14)
    axes[0].set_ylim(top=axes[0].get_ylim()[1] * 4)  # room for the words at the top
    handles = {label: handle for one in axes for handle, label in zip(*one.get_legend_handles_labels())}
    if figure is not None:
        figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=4, fontsize=12,
                      frameon=False)  # fmt: skip
        figure.suptitle(_title(result), fontsize=15, parse_math=False)
    return axes


def _title(result: Benchmark) -> str:
    dates = {row.place: f", {row.date}" if row.recorded else "" for row in result.rows}
    devices = {row.place: f"{row.place}: {row.device}{dates[row.place]}" for row in result.rows}
    lines = [result.title or "A training step on CPU and GPU"]
    if not any(row.backend == "cupy" for row in result.rows):
        lines = [result.title or "A training step on the CPU (no GPU was measured)"]
    return "\n".join([*lines, "   ".join(devices.values())])


def _panel(ax: Any, result: Benchmark, rows: list[Timing], over: str) -> None:
    cells = list(dict.fromkeys(row.cell for row in result.rows))
    backends = sorted({row.backend for row in rows}, key=lambda name: name == "numpy")  # the device first
    sizes = sorted({getattr(row, over) for row in rows})
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    lines: dict[tuple[str, str], list[Timing]] = {}
    for cell in cells:
        for backend in backends:
            line = sorted([r for r in rows if r.cell == cell and r.backend == backend], key=lambda r: getattr(r, over))
            if line:
                lines[cell, backend] = line
                _line(ax, line, over, cell, cells.index(cell))
        cpu, gpu = (lines.get((cell, backend), []) for backend in ("numpy", backends[0]))
        if cpu and gpu and backends[0] != "numpy":
            _crossover(ax, cpu, gpu, over)
    fit, first = result.fit(backends[0]), next(iter(lines.values()))
    if fit and fit.flop and len(sizes) > 1:
        _regimes(ax, fit, first, over, (sizes[0], sizes[-1]))
    ax.xaxis.set_major_locator(FixedLocator(sizes))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    ax.set_xlim(sizes[0] / 1.3, sizes[-1] * 1.3)
    ax.set_xlabel(NAMES[over], fontsize=14)
    bare(ax)


def _line(ax: Any, line: list[Timing], over: str, cell: str, number: int) -> None:
    _, marker, style = LOOKS[number % len(LOOKS)]
    x, y = [getattr(row, over) for row in line], np.array([row.median for row in line])
    bars = np.array([[row.median - row.low, row.high - row.median] for row in line]).T
    colour = BLUE if line[0].backend == "numpy" else ORANGE
    fill = colour if line[0].backend == "numpy" else "white"  # in grey printing hollow is the GPU
    ax.errorbar(x, y * 1e3, bars * 1e3, color=colour, marker=marker, linestyle=style, linewidth=2.2, markersize=8,
                markerfacecolor=fill, capsize=4, zorder=4, label=f"{cell.upper()}, {line[0].place}")  # fmt: skip


def _crossover(ax: Any, cpu: list[Timing], gpu: list[Timing], over: str) -> None:
    """A star where the GPU becomes faster, if it does so between two sizes that both have."""
    both = {getattr(row, over): row.median for row in cpu}
    pairs = [(getattr(row, over), both[getattr(row, over)], row.median) for row in gpu if getattr(row, over) in both]
    if len(pairs) < 2:
        return
    at = crossover(*zip(*pairs))
    if math.isfinite(at) and at > pairs[0][0]:
        height = math.exp(np.interp(math.log(at), *np.log([(size, seconds) for size, _, seconds in pairs]).T)) * 1e3
        ax.plot([at], [height], "*", color="black", markersize=17, zorder=6, label="from here on the GPU is faster")
        ax.annotate(f"{over} ≈ {at:.0f}", (at, height), xytext=(0, -22), textcoords="offset points", ha="center",
                    fontsize=12, zorder=6)  # fmt: skip


def _regimes(ax: Any, fit: Fit, line: list[Timing], over: str, ends: tuple[float, float]) -> None:
    """Shade where launching takes most of the time, by the model, for the first cell."""
    sizes = np.array([getattr(row, over) for row in line], dtype=float)
    ratio = np.log([max(row.flops * fit.flop, 1e-30) / (row.launches * fit.launch or 1e-30) for row in line])
    low, high = ends[0] / 1.3, ends[1] * 1.3
    if (ratio < 0).all():
        edge = high
    elif (ratio > 0).all():
        edge = low
    else:
        edge = float(np.exp(np.interp(0, ratio, np.log(sizes))))
    where = f"{line[0].cell.upper()} on the {line[0].place}"
    if edge > low:
        ax.axvspan(low, edge, color=GREY, alpha=0.13, linewidth=0, zorder=0)
        _word(ax, f"{where} bound by {line[0].calls}", low, edge)
    if edge < high:
        _word(ax, f"{where} bound by arithmetic", edge, high)


def _word(ax: Any, text: str, low: float, high: float) -> None:
    if high / low > 1.5:
        words = (
            text.replace(" bound", "\nbound") if high / low > 3 else text.replace(" on", "\non").replace(" b", "\nb")
        )
        ax.text(math.sqrt(low * high), 0.985, words, transform=ax.get_xaxis_transform(), ha="center", va="top",
                fontsize=11, color=GREY)  # fmt: skip
