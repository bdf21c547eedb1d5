"""Does a character LSTM, after a few minutes, know more of Python's source than three characters in a row tell?

    python benchmarks/characters.py [--updates 6000] [--hidden 128] [--out FOLDER] [--quick] [--redraw CSV]

The text is the source of Python's standard library (about 660,000 characters of modules that `minibptt.data` names);
its last tenth is held out. The LSTM learns from the rest in windows of 64 steps and 32 rows, the state carried and cut
between windows, by Adam (2e-3, falling to 0 in a straight line), the gradient's norm clipped at 1. It is judged with
its state carried over 16 rows of the held-out text. Nothing was chosen by the held-out text.

The baselines are n-gram models, n = 1, 2, 3, p(c | the n − 1 characters before), counted on the same text. For each
order the smoothing that does best on the last tenth of the training text, the counts coming from the nine tenths
before, is taken out of four kinds and a grid of their one number; the counts are then made on all of it:

    add-k               (n(hc) + k) / (n(h) + k·V)
    Witten-Bell κ       (n(hc) + κ·d(h)·p(c | h′)) / (n(h) + κ·d(h))             d(h): how many different c follow h
    discount D          (max(n(hc) − D, 0) + D·d(h)·p(c | h′)) / n(h)            h′: h without its first character
    Kneser-Ney D        the same, but below the highest order n(hc) counts in how many different contexts hc stood

All numbers are bits per character. Writes characters.csv, characters.png and characters.txt, a sample. Set
OPENBLAS_NUM_THREADS=1: products as small as these gain nothing from threads.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from arguments import csv_rows, folder

import minibptt as mb
from minibptt.commands.arguments import positive
from minibptt.data import standard_library
from minibptt.tasks import character_ids

Row = dict[str, str]
FIELDS = ["model", "updates", "seconds", "train_bits", "held_out_bits", "about"]
GRID = {
    "add-k": (1e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0),
    "Witten-Bell κ": (0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0),
    "discount D": (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99),
    "Kneser-Ney D": (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99),
}


# --- n-grams -----------------------------------------------------------------------------------------------------


def counted(ids: np.ndarray, V: int, n: int) -> np.ndarray:
    """How often each run of n ids occurs, (V, …, V)."""
    runs = sum(ids[i : len(ids) - n + 1 + i] * V ** (n - 1 - i) for i in range(n))
    return np.bincount(runs, minlength=V**n).reshape((V,) * n).astype(float)


def ngram(ids: np.ndarray, V: int, n: int, kind: str, number: float) -> np.ndarray:
    """p(c | the n − 1 ids before), (V, …, V), the last axis being c."""
    counts = counted(ids, V, n)
    if kind == "add-k":
        return (counts + number) / (counts.sum(-1, keepdims=True) + number * V)
    p = np.full(V, 1 / V)
    for order in range(1, n + 1):
        c = counted(ids, V, order)
        if kind == "Kneser-Ney D" and order < n:
            c = (counted(ids, V, order + 1) > 0).sum(0).astype(float)
        total, different = c.sum(-1, keepdims=True), (c > 0).sum(-1, keepdims=True)
        if kind == "Witten-Bell κ":
            kept, given = c, number * different
            total = total + given
        else:
            kept, given = np.maximum(c - number, 0), number * different
        p = np.where(total > 0, (kept + given * p) / np.maximum(total, 1e-300), p)  # p: of h′, for every first of h
    return p


def bits(p: np.ndarray, ids: np.ndarray) -> float:
    """The mean of −log₂ p over the ids that have all n − 1 before them."""
    n = p.ndim
    with np.errstate(divide="ignore"):
        return float(-np.log2(p[tuple(ids[i : len(ids) - n + 1 + i] for i in range(n))]).mean())


def best_smoothing(ids: np.ndarray, V: int, n: int) -> tuple[str, float]:
    """The kind and its number that do best on the last tenth of the ids, counted on the nine tenths before."""
    end = len(ids) * 9 // 10
    found = {(kind, x): bits(ngram(ids[:end], V, n, kind, x), ids[end:]) for kind in GRID for x in GRID[kind]}
    return min(found, key=found.__getitem__)


def baselines(learnt: np.ndarray, held_out: np.ndarray, V: int, say: Callable[[str], None] = print) -> list[Row]:
    rows = []
    for n, name in enumerate(("unigram", "bigram", "trigram"), 1):
        kind, x = best_smoothing(learnt, V, n)
        p = ngram(learnt, V, n, kind, x)
        row = {"model": name, "train_bits": f"{bits(p, learnt):.4f}", "held_out_bits": f"{bits(p, held_out):.4f}"}
        rows.append(row | {"about": f"{kind} = {x:g}"})
        say(f"{name}: {row['held_out_bits']} bits per character, {kind} = {x:g}")
    return rows


# --- the LSTM ----------------------------------------------------------------------------------------------------


def learn(
    learnt: np.ndarray, held_out: np.ndarray, V: int, H: int, updates: int, say: Callable[[str], None] = print
) -> tuple[mb.Module, list[Row]]:
    """(the model, the learning curve at 25 moments)."""
    model = mb.Sequential(mb.Embedding(V, 32, rng=1), mb.LSTM(32, H, rng=2), mb.Linear(H, V, rng=3))
    optimiser, state, rows, seconds, lr = mb.Adam(model, lr=2e-3), None, [], 0.0, 2e-3
    stream = mb.stream_batches(learnt, batch=32, steps=64)
    judge = mb.stream_batches(held_out, batch=16, steps=64)
    moments = sorted({round(updates * i / 25) for i in range(1, 26)} - {0})
    for before, done in zip([0, *moments], moments):
        optimiser.lr = lr * (1 - before / updates)
        start = time.perf_counter()
        result = mb.train(
            model, stream, mb.cross_entropy, mb.full(), optimiser, updates=done - before, state=state,
            read_every=done - before, progress=False,
        )  # fmt: skip
        state, seconds = result.state, seconds + time.perf_counter() - start
        found = mb.evaluate(model, judge)
        row = {"model": f"LSTM (H = {H})", "updates": str(done), "seconds": f"{seconds:.1f}"}
        rows.append(row | {"train_bits": f"{result.loss / math.log(2):.4f}", "held_out_bits": f"{found.bits:.4f}"})
        say(f"{done} updates, {seconds:.0f} s: learnt {rows[-1]['train_bits']}, held out {found.bits:.4f}")
        if result.stopped:
            break
    for every in (256, 64):
        found = mb.evaluate(model, judge, reset_every=every)
        row = {"model": f"LSTM (H = {H}), state zero every {every} steps", "updates": str(done)}
        rows.append(row | {"held_out_bits": f"{found.bits:.4f}"})
    return model, rows


# --- what is written ---------------------------------------------------------------------------------------------


def draw(rows: list[Row], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.8, 7.2), layout="constrained")
    ax = figure.subplots()
    curve = [row for row in rows if row["updates"] and row["train_bits"]]
    x = [float(row["updates"]) for row in curve]
    for key, colour, marker, line, label in [
        ("train_bits", "#56B4E9", "s", "--", "LSTM, on the text that it learns from (mean since the last mark)"),
        ("held_out_bits", "#0072B2", "o", "-", "LSTM, on the held-out text"),
    ]:
        y = [float(row[key]) for row in curve]
        ax.plot(x, y, color=colour, marker=marker, linestyle=line, linewidth=2.4, markersize=8, label=label)
    last = float(curve[-1]["held_out_bits"])
    ax.annotate(f"LSTM\n{last:.2f}", (x[-1], last), xytext=(14, 0), textcoords="offset points", va="center",
                fontsize=15, color="#0072B2")  # fmt: skip
    lowest = min(float(row[key]) for row in rows for key in ("train_bits", "held_out_bits") if row[key])
    for name, line in (("unigram", ":"), ("bigram", "-."), ("trigram", "-")):
        value = next(float(row["held_out_bits"]) for row in rows if row["model"] == name)
        ax.axhline(value, color="#D55E00" if name == "trigram" else "#555555", linestyle=line, linewidth=2)
        ax.annotate(f"{name}\n{value:.2f}", (1, value), xycoords=("axes fraction", "data"), xytext=(8, 0),
                    textcoords="offset points", va="center", fontsize=15,
                    color="#D55E00" if name == "trigram" else "#333333")  # fmt: skip
    ax.set_ylim(lowest - 0.15, None)
    ax.set_xlim(0, x[-1] * 1.08)
    ax.set_xlabel("updates of 64 steps and 32 rows", fontsize=15)
    ax.set_ylabel("bits per character", fontsize=15)
    ax.tick_params(labelsize=14)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.legend(fontsize=14, frameon=False, loc="upper right", bbox_to_anchor=(0.99, 0.9))
    minutes = float(curve[-1]["seconds"]) / 60
    ax.set_title(
        f"A character {curve[0]['model']} beside n-gram models, on Python's source: {minutes:.1f} minutes on a CPU\n"
        "n-grams on the held-out text, each with the smoothing that is best on text set aside from the training text",
        fontsize=15,
    )
    figure.savefig(path, dpi=100)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=positive, default=6000)
    parser.add_argument("--hidden", type=positive, default=128, metavar="H")
    parser.add_argument("--out", type=folder, default=Path("."))
    parser.add_argument("--quick", action="store_true", help="seconds: 30,000 characters, H = 16, 50 updates")
    parser.add_argument(
        "--redraw", type=csv_rows(*FIELDS[:5]), metavar="CSV", help="train nothing: the figure from this file"
    )
    options = parser.parse_args(argv)
    if options.redraw and not {"unigram", "bigram", "trigram"} < {row["model"] for row in options.redraw}:
        parser.error("argument --redraw: the file has no LSTM, or not all of unigram, bigram and trigram")
    options.out.mkdir(parents=True, exist_ok=True)
    if options.redraw:
        draw(options.redraw, options.out / "characters.png")
        return
    if options.quick:
        options.updates, options.hidden = 50, 16
    symbols, ids = character_ids(standard_library(30_000 if options.quick else 10**6))
    end = len(ids) - len(ids) // 10
    learnt, held_out, V = ids[:end], ids[end:], len(symbols)
    print(f"{len(learnt):,} characters to learn from, {len(held_out):,} held out, {V} distinct")
    rows = baselines(learnt, held_out, V)
    model, curve = learn(learnt, held_out, V, options.hidden, options.updates)
    rows += curve
    with open(options.out / "characters.csv", "w", newline="", encoding="utf-8") as file:
        out = csv.DictWriter(file, FIELDS, restval="")
        out.writeheader()
        out.writerows(rows)
    draw([dict.fromkeys(FIELDS, "") | row for row in rows], options.out / "characters.png")
    start = [symbols.index(c) for c in "\n    def "]
    drawn = mb.sample(model, start, 600, temperature=0.7, rng=0)
    text = "    def " + "".join(symbols[i] for i in drawn)
    (options.out / "characters.txt").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
