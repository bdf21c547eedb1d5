"""One training step of a recurrent layer, minibptt beside whatever of PyTorch, JAX and HIPS autograd is installed.

    python benchmarks/peers.py [--cells lstm gru rnn] [--rounds 3] [--out FOLDER]

Forward and backward of all parameters and inputs, float32, on the CPU. Each system runs in a process of its own, the
processes in turn and several times over; a figure is the median over rounds of a process's median. The floor is the
matrix products alone, which no implementation can do without. Prints times and ratios; writes peers.csv and peers.png.
"""

from __future__ import annotations

import argparse
import csv
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from arguments import folder

from minibptt.commands.arguments import positive

SHAPES = [(100, 1, 64, 64), (100, 32, 128, 128), (50, 64, 256, 256)]  # T, B, D, H
GATES = {"lstm": 4, "gru": 3, "rnn": 1}
Step = Callable[[], object]


def data(T: int, B: int, D: int, H: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs x (T, B, D) and what the loss asks of the outputs (T, B, H)."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((T, B, D)).astype(np.float32), rng.standard_normal((T, B, H)).astype(np.float32)


def weights(G: int, D: int, H: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng, bound = np.random.default_rng(1), H**-0.5
    return tuple(rng.uniform(-bound, bound, s).astype(np.float32) for s in ((D, G * H), (H, G * H), (G * H,)))


def floor(cell: str, T: int, B: int, D: int, H: int) -> Step:
    x, _ = data(T, B, D, H)
    W_x, W_h, _ = weights(GATES[cell], D, H)
    W_hT, x = np.ascontiguousarray(W_h.T), x.reshape(T * B, D)
    dz_all, h_all = np.ones((T * B, W_h.shape[1]), np.float32), np.ones((T * B, H), np.float32)
    h, z = np.ones((B, H), np.float32), np.empty((B, W_h.shape[1]), np.float32)

    def step() -> None:
        _ = x @ W_x
        for _ in range(T):
            np.matmul(h, W_h, out=z)
        for _ in range(T):
            np.matmul(z, W_hT, out=h)
        _ = x.T @ dz_all, h_all.T @ dz_all, dz_all @ W_x.T

    return step


def minibptt(cell: str, T: int, B: int, D: int, H: int, engine: str) -> Step:
    import minibptt as mb

    x, G = data(T, B, D, H)
    layer = {"lstm": mb.LSTM, "gru": mb.GRU, "rnn": mb.RNN}[cell](D, H, engine=engine, rng=0)

    def step() -> object:
        with mb.Tape() as tape:
            inputs = tape.watch(x)
            outputs, _ = layer(inputs)
            loss = mb.sum(outputs * G)
        return tape.gradient(loss, [layer, inputs])

    return step


def torch_layer(cell: str, T: int, B: int, D: int, H: int) -> Step:
    import torch

    x, G = (torch.tensor(a) for a in data(T, B, D, H))
    x.requires_grad_()
    layer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[cell](D, H)

    def step() -> None:
        layer.zero_grad()
        x.grad = None
        layer(x)[0].backward(G)

    return step


def torch_cells(cell: str, T: int, B: int, D: int, H: int) -> Step:
    import torch

    x, G = (torch.tensor(a) for a in data(T, B, D, H))
    x.requires_grad_()
    one = {"lstm": torch.nn.LSTMCell, "gru": torch.nn.GRUCell, "rnn": torch.nn.RNNCell}[cell](D, H)

    def step() -> None:
        one.zero_grad()
        x.grad = None
        h = torch.zeros(B, H)
        state = (h, h) if cell == "lstm" else h
        loss = 0
        for t in range(T):
            state = one(x[t], state)
            loss = loss + ((state[0] if cell == "lstm" else state) * G[t]).sum()
        loss.backward()

    return step


def equations(xp, sigmoid, cell: str, H: int, x, state, W_x, W_h, b):
    """One step of a cell in any NumPy-like library: (h_t, next state)."""
    if cell == "rnn":
        h = xp.tanh(x @ W_x + state @ W_h + b)
        return h, h
    if cell == "lstm":
        h, c = state
        z = x @ W_x + h @ W_h + b
        c = sigmoid(z[:, H : 2 * H]) * c + sigmoid(z[:, :H]) * xp.tanh(z[:, 2 * H : 3 * H])
        h = sigmoid(z[:, 3 * H :]) * xp.tanh(c)
        return h, (h, c)
    a, u = x @ W_x + b, state @ W_h
    r, z = sigmoid(a[:, :H] + u[:, :H]), sigmoid(a[:, H : 2 * H] + u[:, H : 2 * H])
    h = (1 - z) * xp.tanh(a[:, 2 * H :] + r * u[:, 2 * H :]) + z * state
    return h, h


def jax_scan(cell: str, T: int, B: int, D: int, H: int) -> Step:
    import jax

    x, G = data(T, B, D, H)
    zero = jax.numpy.zeros((B, H))

    def loss(parameters, x):
        step = lambda state, x: equations(jax.numpy, jax.nn.sigmoid, cell, H, x, state, *parameters)[::-1]  # noqa: E731
        outputs = jax.lax.scan(step, (zero, zero) if cell == "lstm" else zero, x)[1]
        return (outputs * G).sum()

    gradient, parameters = jax.jit(jax.grad(loss, argnums=(0, 1))), weights(GATES[cell], D, H)
    return lambda: jax.block_until_ready(gradient(parameters, x))


def hips_autograd(cell: str, T: int, B: int, D: int, H: int) -> Step:
    import autograd
    import autograd.numpy as anp

    x, G = data(T, B, D, H)
    sigmoid = lambda v: 0.5 * (anp.tanh(0.5 * v) + 1)  # noqa: E731

    def loss(parameters, x):
        zero, total = np.zeros((B, H), np.float32), 0.0
        state = (zero, zero) if cell == "lstm" else zero
        for t in range(T):
            h, state = equations(anp, sigmoid, cell, H, x[t], state, *parameters)
            total = total + anp.sum(h * G[t])
        return total

    gradient, parameters = autograd.grad(loss, argnum=(0, 1)), weights(GATES[cell], D, H)
    return lambda: gradient(parameters, x)


SYSTEMS: dict[str, Callable[[str, int, int, int, int], Step]] = {
    "floor": floor,
    "minibptt explicit": lambda *a: minibptt(*a, engine="explicit"),
    "minibptt tape": lambda *a: minibptt(*a, engine="tape"),
    "PyTorch layer": torch_layer,
    "PyTorch cells": torch_cells,
    "JAX scan": jax_scan,
    "HIPS autograd": hips_autograd,
}
MISSING = 3  # exit code of a child whose system is not installed


def measure(system: str, cell: str, shape: tuple[int, int, int, int]) -> float:
    """In this process: the median seconds of a step, over about a second and a half."""
    step = SYSTEMS[system](cell, *shape)
    for _ in range(3):
        step()
    times: list[float] = []
    end = time.perf_counter() + 1.5
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 300):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def in_turn(cell: str, shape: tuple[int, int, int, int], rounds: int) -> dict[str, float]:
    """The median over rounds of each system that is installed, each time in a process of its own."""
    seen: dict[str, list[float]] = {}
    for _ in range(rounds):
        for system in SYSTEMS:
            command = [sys.executable, __file__, "--one", system, "--cells", cell, "--shape", *map(str, shape)]
            child = subprocess.run(command, capture_output=True, text=True)
            if child.returncode == 0:
                seen.setdefault(system, []).append(float(child.stdout))
            elif child.returncode != MISSING:
                print(f"{system}: {child.stderr.strip().splitlines()[-1]}", file=sys.stderr)
    return {system: statistics.median(times) for system, times in seen.items()}


def draw(results: list[tuple[str, tuple[int, ...], dict[str, float]]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 1.2 + 0.9 * len(results)), layout="constrained")
    ax = figure.subplots()
    marks = dict(zip(SYSTEMS, ["k|", "o", "s", "^", "v", "D", "x"]))
    colours = ["black", "#0072B2", "#56B4E9", "#D55E00", "#E69F00", "#009E73", "#555555"]
    for row, (_, _, times) in enumerate(results):
        for (system, mark), colour in zip(marks.items(), colours):
            if system in times:
                label = system if row == 0 else None
                ax.plot(times[system] * 1e3, row, mark[-1], color=colour, markersize=11, label=label)
    ax.set_yticks(range(len(results)), [f"{cell.upper()} {shape}" for cell, shape, _ in results])
    ax.invert_yaxis()
    ax.set_xscale("log")
    ax.set_xlabel("milliseconds for one training step (log scale; left is faster)", fontsize=13)
    ax.set_title("Forward and backward of one layer (T, B, D, H), float32, CPU", fontsize=15)
    ax.grid(axis="x", alpha=0.3)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=4, frameon=False, fontsize=11)
    figure.savefig(path, dpi=120)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", nargs="+", choices=sorted(GATES), default=["lstm", "gru", "rnn"])
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--out", type=folder, default=Path("."))
    parser.add_argument("--one", choices=list(SYSTEMS), help=argparse.SUPPRESS)
    parser.add_argument("--shape", nargs=4, type=positive, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.one and not options.shape:
        parser.error("argument --one: give --shape T B D H too")
    if options.one:
        try:
            print(measure(options.one, options.cells[0], tuple(options.shape)))
        except ImportError:
            sys.exit(MISSING)
        return
    results = []
    for cell in options.cells:
        for shape in SHAPES:
            times = in_turn(cell, shape, options.rounds)
            results.append((cell, shape, times))
            ours, least = times["minibptt explicit"], times["floor"]
            row = ", ".join(f"{s} {t * 1e3:.2f} ms ({t / ours:.2f} × ours)" for s, t in times.items())
            print(f"{cell} {shape}: {ours / least:.2f} × the floor. {row}", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    with open(options.out / "peers.csv", "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["cell", "T", "B", "D", "H", "system", "milliseconds", "over_floor", "machine", "python", "numpy"])
        for cell, shape, times in results:
            for system, t in times.items():
                about = [platform.processor() or platform.machine(), platform.python_version(), np.__version__]
                out.writerow([cell, *shape, system, f"{t * 1e3:.4f}", f"{t / times['floor']:.3f}", *about])
    draw(results, options.out / "peers.png")
    print(f"Written to {options.out}: peers.csv, peers.png")


if __name__ == "__main__":
    main()
