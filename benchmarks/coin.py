"""Does a window shorter than the lag keep a network from learning it? Not when the state is carried.

    python benchmarks/coin.py [--sizes 16 64] [--seeds 3] [--updates 6000] [--jobs 1] [--out FOLDER] [--quick]

The two-lag coin of r2rt, Styles of Truncated Backpropagation (2016): x_t fair bits, P(y_t = 1) = ½ + ½·x_{t−3} −
¼·x_{t−8}, on a stream that goes on from chunk to chunk. A tanh RNN with a linear readout takes one step of Adam (2e-3)
for each chunk of k steps of 64 rows, in float64. Four ways of training, for every k:

    carry       the state is carried from chunk to chunk and cut in between; everything learns
    reset       every chunk starts from the zero state; everything learns
    frozen      as carry, but W_x, W_h and b of the RNN stay as drawn; only the readout learns (echo state, Jaeger 2001)
    frozen W_h  as carry, but W_h stays as drawn (in the CSV only)

The loss is cross-entropy in nats on chunks not seen before, its mean over the last fifth of the updates. All k make the
same number of updates, so a longer chunk sees more of the stream. Writes coin.csv, one line a run, and coin.png;
--redraw makes the figure again from a CSV. Set OPENBLAS_NUM_THREADS=1: products as small as these gain nothing from
threads.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import platform
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from arguments import csv_rows, folder

import minibptt as mb
from minibptt.commands.arguments import positive

B = 64  # rows of the stream
KS = [1, 2, 3, 4, 5, 8, 10, 16]
RNN = ("0.0.W_x", "0.0.W_h", "0.0.b")
FROZEN = {"carry": (), "reset": (), "frozen": RNN, "frozen W_h": RNN[1:2]}
Row = dict[str, str]


def stream(rng: np.random.Generator, k: int, rows: int = B) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Chunks x (k, rows, 1), y (k, rows) of one endless stream: a chunk's coins look back into the chunks before."""
    bits = rng.integers(0, 2, (8, rows))
    while True:
        bits = np.concatenate([bits[-8:], rng.integers(0, 2, (k, rows))])  # (8 + k, rows)
        p = 0.5 + 0.5 * bits[5:-3] - 0.25 * bits[:-8]
        yield bits[8:, :, None].astype(float), (rng.random((k, rows)) < p).astype(int)


def plateau(lag3: bool, lag8: bool) -> float:
    """The least cross-entropy, in nats, of a predictor that knows x_{t−3}, x_{t−8}, both or neither."""

    def entropy(p: float) -> float:
        return -sum(q * np.log(q) for q in (p, 1 - p) if q)

    ps = np.array([[0.5 + 0.5 * a - 0.25 * b for b in (0, 1)] for a in (0, 1)])  # [x_{t−3}, x_{t−8}]
    known = ps if lag3 else ps.mean(axis=0, keepdims=True)
    known = known if lag8 else known.mean(axis=1, keepdims=True)
    return float(np.mean([entropy(p) for p in known.flat]))


PLATEAUS = {
    "knowing nothing": plateau(False, False),
    "only lag 8": plateau(False, True),
    "only lag 3": plateau(True, False),
    "both lags": plateau(True, True),
}


def best_alone(k: int) -> float:
    """The least mean loss of a predictor that sees nothing before its chunk: its step j (from 0) knows lags ≤ j."""
    return float(np.mean([plateau(j >= 3, j >= 8) for j in range(k)]))


class Learning(mb.Module):
    """The parameters that learn, as a module for the tape and the optimiser."""

    def __init__(self, model: mb.Module, frozen: Sequence[str]):
        self.part = {name: p for name, p in model.named_parameters() if name not in frozen}


def network(H: int, rng: np.random.Generator) -> mb.Sequential:
    return mb.Sequential(mb.RNN(1, H, rng=rng, dtype=np.float64), mb.Linear(H, 2, rng=rng, dtype=np.float64))


def train(model: mb.Sequential, chunks: Iterator[tuple[np.ndarray, np.ndarray]], mode: str, updates: int) -> np.ndarray:
    """The loss of each update, taken before the update."""
    learning = Learning(model, FROZEN[mode])
    optimiser, losses = mb.Adam(learning, lr=2e-3), np.empty(updates)
    state = None
    for i, (x, y) in enumerate(itertools.islice(chunks, updates)):
        if state is None or mode == "reset":
            state = model.zero_state(x.shape[1])
        with mb.Tape() as tape:
            logits, state = model(x, mb.cut(state))
            loss = mb.cross_entropy(logits, y)
        optimiser.step(tape.gradient(loss, learning))
        losses[i] = loss.item()
    return losses


def run(job: tuple[int, int, str, int, int]) -> Row:
    """One line of the CSV. The same seed gives every mode the same weights and, at the same k, the same stream."""
    H, k, mode, seed, updates = job
    weights, bits = np.random.default_rng(seed).spawn(2)
    losses = train(network(H, weights), stream(bits, k), mode, updates)
    last = losses[-max(1, updates // 5) :].mean()
    about = {"minibptt": mb.__version__, "numpy": np.__version__, "python": platform.python_version()}
    about |= {"date": time.strftime("%Y-%m-%d")}
    found = {"H": H, "k": k, "mode": mode, "seed": seed, "loss": f"{last:.5f}", "updates": updates} | about
    return {name: str(value) for name, value in found.items()}


def losses_of(rows: list[Row], H: int, mode: str) -> dict[int, list[float]]:
    """k → the loss of each seed."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if int(row["H"]) == H and row["mode"] == mode:
            found.setdefault(int(row["k"]), []).append(float(row["loss"]))
    return dict(sorted(found.items()))


def table(rows: list[Row]) -> str:
    """Mean over seeds [least … largest], in Markdown."""
    lines = ["| H | k | " + " | ".join(FROZEN) + " | best from the chunk alone |", "|---" * (len(FROZEN) + 3) + "|"]
    for H in sorted({int(row["H"]) for row in rows}):
        by_mode = {mode: losses_of(rows, H, mode) for mode in FROZEN}
        for k in sorted({k for found in by_mode.values() for k in found}):
            cells = [by_mode[mode].get(k, []) for mode in FROZEN]
            text = [f"{np.mean(v):.3f} [{min(v):.3f} … {max(v):.3f}]" if v else "" for v in cells]
            lines.append(f"| {H} | {k} | " + " | ".join(text) + f" | {best_alone(k):.3f} |")
    return "\n".join(lines)


def draw(rows: list[Row], sizes: Sequence[int], path: Path) -> None:
    """A panel for each size: the mean over seeds, the range as a band, the plateaus as lines."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    figure = Figure(figsize=(12.8, 7.2), layout="constrained")
    panels = figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0]
    looks = {
        "reset": ("#D55E00", "s", "--", "reset: each chunk starts from zero"),
        "frozen": ("#555555", "^", ":", "frozen: state carried, only the readout learns"),
        "carry": ("#0072B2", "o", "-", "carry: state carried, everything learns"),
    }
    for ax, H in zip(panels, sizes):
        ks: set[int] = set()
        for mode, (colour, marker, line, label) in looks.items():
            found = losses_of(rows, H, mode)
            ks |= set(found)
            low, high = [min(v) for v in found.values()], [max(v) for v in found.values()]
            ax.fill_between(list(found), low, high, color=colour, alpha=0.15, linewidth=0)
            ax.plot(list(found), [*found.values()], ".", color=colour, markersize=5)
            ax.plot(list(found), [np.mean(v) for v in found.values()], color=colour, marker=marker, linestyle=line,
                    linewidth=2.4, markersize=9, label=label)  # fmt: skip
        alone = "the best that can be read off a chunk alone"
        ax.plot(sorted(ks), [best_alone(k) for k in sorted(ks)], "_", color="black", markersize=22, markeredgewidth=1.6,
                zorder=5, label=alone)  # fmt: skip
        for name, value in PLATEAUS.items():
            ax.axhline(value, color="black", linewidth=0.8, alpha=0.6, zorder=1)
            if ax is panels[-1]:
                ax.annotate(f"{name}\n{value:.4f}", (1.0, value), fontsize=12, va="center",
                            xycoords=("axes fraction", "data"), xytext=(6, 0), textcoords="offset points")  # fmt: skip
        ax.set_xscale("log", base=2)
        ax.set_xlim(min(ks) / 1.25, max(ks) * 1.25)
        ax.xaxis.set_major_locator(FixedLocator(sorted(ks)))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda k, _: f"{k:g}"))
        ax.set_title(f"H = {H} hidden units", fontsize=15)
        ax.set_xlabel("chunk length k (steps that the gradient goes back)", fontsize=13)
        ax.tick_params(labelsize=12)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
    panels[0].set_ylabel("cross-entropy in nats, last fifth of the updates", fontsize=13)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=12,
                  frameon=False)  # fmt: skip
    seeds, updates = len({row["seed"] for row in rows}), rows[0]["updates"]
    figure.suptitle(
        "Two lags, 3 and 8, learnt from chunks of k steps: k limits the gradient, not the memory\n"
        f"tanh RNN, {updates} updates; mean over seeds, a dot for each of the {seeds}, their range as a band",
        fontsize=15,
    )
    figure.savefig(path, dpi=100)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", type=positive, default=[16, 64], metavar="H")
    parser.add_argument("--ks", nargs="+", type=positive, default=KS, metavar="K")
    parser.add_argument("--seeds", type=positive, default=3)
    parser.add_argument("--updates", type=positive, default=6000)
    parser.add_argument("--jobs", type=positive, default=1, help="processes")
    parser.add_argument("--out", type=folder, default=Path("."))
    parser.add_argument("--quick", action="store_true", help="seconds: H = 8, k = 2 and 8, one seed, 300 updates")
    parser.add_argument("--redraw", type=csv_rows("H", "k", "mode", "seed", "loss", "updates"), metavar="CSV",
                        help="train nothing: figure and table from this file")  # fmt: skip
    options = parser.parse_args(argv)
    if options.quick:
        options.sizes, options.ks, options.seeds, options.updates = [8], [2, 8], 1, 300
    there = {row["H"] for row in options.redraw or ()}
    if options.redraw and not {str(H) for H in options.sizes} <= there:
        parser.error(
            f"argument --redraw: the file has the sizes {' '.join(sorted(there, key=int))}: give --sizes of these"
        )
    options.out.mkdir(parents=True, exist_ok=True)
    if options.redraw:
        rows = options.redraw
    else:
        order = itertools.product(options.sizes, options.ks, FROZEN, range(options.seeds))
        rows = train_all([(*job, options.updates) for job in order], options.jobs)
        with open(options.out / "coin.csv", "w", newline="") as file:
            out = csv.DictWriter(file, rows[0])
            out.writeheader()
            out.writerows(rows)
    draw(rows, options.sizes, options.out / "coin.png")
    print(table(rows))


def train_all(jobs: list[tuple[int, int, str, int, int]], processes: int) -> list[Row]:
    pool = ProcessPoolExecutor(processes) if processes > 1 else None
    rows = []
    for row in pool.map(run, jobs) if pool else map(run, jobs):
        rows.append(row)
        print(f"{len(rows)} of {len(jobs)}: H={row['H']} k={row['k']} {row['mode']} {row['loss']}", flush=True)
    return rows


if __name__ == "__main__":
    main()
