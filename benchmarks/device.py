"""Everything that only a GPU can show, in one run of at most three minutes: CuPy 14 on CUDA 12 or 13.

    python benchmarks/device.py [--out FOLDER] [--seconds 170]

1. Parity: outputs, states and every gradient of every cell and layer against NumPy (float64 1e-10, float32 1e-4).
2. One training step captured as a CUDA graph, which refuses every wait and every synchronous copy, and replayed.
3. The training step of minibptt beside PyTorch's layer (cuDNN), where PyTorch with CUDA is installed.
4. CPU against GPU over the cell, H and B, into benchmark.csv, which `minibptt benchmark --recorded` shows elsewhere.

Ends with exit code 1 where something differs, and 2 where there is no device. CuPy 14 does not let cuBLAS be called
while it captures, so in part 2 the products are a plain kernel of this file; its speed says nothing about cuBLAS.
"""

from __future__ import annotations

import argparse
import copy
import csv
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from arguments import folder

import minibptt as mb
from minibptt import backend, plots
from minibptt.benchmark import sweep, timed
from minibptt.commands.arguments import rate
from minibptt.timings import where_it_ran

WITHIN = {np.float64: 1e-10, np.float32: 1e-4}
LAYERS: dict[str, Callable[..., Any]] = {
    "rnn tanh": lambda D, H, **o: mb.RNN(D, H, **o),
    "rnn relu": lambda D, H, **o: mb.RNN(D, H, "relu", **o),
    "rnn linear": lambda D, H, **o: mb.RNN(D, H, "linear", **o),
    "lstm": lambda D, H, **o: mb.LSTM(D, H, **o),
    "gru after": lambda D, H, **o: mb.GRU(D, H, **o),
    "gru before": lambda D, H, **o: mb.GRU(D, H, reset="before", **o),
    "two lstms with dropout": lambda D, H, **o: mb.LSTM(D, H, layers=2, dropout=0.3, **o),
}
PEERS = {"rnn": mb.RNN, "lstm": mb.LSTM, "gru": mb.GRU}
PEER_SHAPES = [(100, 1, 64, 64), (100, 32, 128, 128), (100, 64, 256, 256), (100, 64, 512, 512)]  # T, B, D, H

# y (M, N) = a (M, K) @ b (K, N), all C-contiguous.
PRODUCT = """
const int row = i / N;
const int col = i % N;
T sum = 0;
for (int k = 0; k < K; ++k) sum += a[row * K + k] * b[k * N + col];
y[i] = sum;
"""


# --- 1. parity ------------------------------------------------------------------------------------------------------


def passes(name: str, engine: str, dtype: Any, library: ModuleType, options: dict[str, Any]) -> dict[str, np.ndarray]:
    """Outputs, final state, the gradients of parameters and inputs and the adjoints of the state, on the host."""
    T, B, D, H = 12, 5, 7, 9
    rng = np.random.default_rng(0)
    x, G = rng.standard_normal((T, B, D)).astype(dtype), rng.standard_normal((T, B, H)).astype(dtype)
    with mb.use_backend("numpy"):
        model = LAYERS[name](D, H, rng=1, dtype=dtype, engine=engine)
    model.to(library)
    with mb.use_backend(library), mb.Tape() as tape:
        inputs = tape.watch(mb.to_backend(x))
        outputs, state = model(inputs, **options)
        loss = mb.mse(outputs, mb.to_backend(G))
    found: dict[str, Any] = {"outputs": outputs}
    for i, h in enumerate(part for layer in state for part in (layer if isinstance(layer, tuple) else (layer,))):
        found[f"state {i}"] = h
    for through in (False, True):
        gradients, dx = tape.gradient(loss, [model, inputs], through_cuts=through)
        found |= {f"{key}, cuts mended: {through}": g for key, g in gradients.items()} | {f"x, {through}": dx}
        found |= {f"adjoint of {key}, {through}": a for key, a in tape.adjoints(loss, through_cuts=through).items()}
    return {key: mb.to_numpy(value) for key, value in found.items()}


def parity(library: ModuleType) -> list[tuple[str, str, str, str, float]]:
    """(layer, engine, dtype, situation, the largest difference, relative to the largest number of each array)."""
    resets = np.arange(60).reshape(12, 5) % 7 == 3
    situations: dict[str, dict[str, Any]] = {
        "whole": {},
        "all": {"lengths": [12, 9, 5, 1, 0], "resets": resets, "cut_every": 4},
    }
    rows = []
    for name in LAYERS:
        for engine in ("explicit", "tape"):
            for dtype in WITHIN:
                for situation, options in situations.items():
                    there, here = (passes(name, engine, dtype, where, options) for where in (library, np))
                    worst = max(
                        float(np.abs(there[key] - value).max() / max(np.abs(value).max(), 1e-6))
                        for key, value in here.items()
                    )
                    rows.append((name, engine, np.dtype(dtype).name, situation, worst))
    return rows


# --- 2. a training step as a CUDA graph -----------------------------------------------------------------------------


class WithoutBlas(ModuleType):
    """CuPy, its matrix products being a kernel that can be captured."""

    def __init__(self, cupy: ModuleType):
        super().__init__("cupy")
        self._cupy = cupy
        self._product = cupy.ElementwiseKernel("raw T a, raw T b, int32 K, int32 N", "raw T y", PRODUCT, "product")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cupy, name)

    def dot(self, a: Any, b: Any, out: Any = None) -> Any:
        xp = self._cupy
        (M, K), N = a.shape, b.shape[1]
        y = xp.empty((M, N), dtype=a.dtype) if out is None else out
        self._product(xp.ascontiguousarray(a), xp.ascontiguousarray(b), K, N, y, size=M * N)
        return y

    matmul = dot


@contextmanager
def captured_products(cupy: ModuleType) -> Iterator[ModuleType]:
    """Inside, the arrays of CuPy are multiplied by `WithoutBlas`."""
    proxy = WithoutBlas(cupy)
    backend.register(cupy.ndarray, proxy)
    try:
        with mb.use_backend(proxy):
            yield proxy
    finally:
        backend.register(cupy.ndarray, cupy)


def training_step(model: Any, optimiser: Any, x: Any, y: Any, state: Any) -> Any:
    with mb.Tape() as tape:
        outputs, _ = model(x, state)
        loss = mb.mse(outputs, y)
    optimiser.step(mb.clip_by_global_norm(tape.gradient(loss, model), 1.0))
    return loss


def graph(cupy: ModuleType, cell: str, seconds: float = 0.5) -> tuple[float, float, float]:
    """(the largest difference of any parameter from an ordinary step, seconds of that step, of the replayed graph).

    Raises what CUDA raises where the step waits for the device or copies synchronously.
    """
    T, B, D, H = 50, 32, 64, 64
    model = mb.Sequential(PEERS[cell](D, H, rng=0), mb.Linear(H, 8, rng=1)).to(cupy)
    x, y = (cupy.asarray(np.random.default_rng(n).standard_normal((T, B, n)).astype(np.float32)) for n in (D, 8))
    optimiser, state = mb.Adam(model), model.zero_state(B)
    training_step(model, optimiser, x, y, state)
    stream, pool = cupy.cuda.Stream(non_blocking=True), cupy.cuda.MemoryPool()
    cupy.cuda.get_current_stream().synchronize()
    with captured_products(cupy), stream, cupy.cuda.using_allocator(pool.malloc):
        for _ in range(3):  # compile the kernels, and let the pool reserve what a step needs
            training_step(*copy.deepcopy((model, optimiser)), x, y, state)
        stream.synchronize()
        twin, its = copy.deepcopy((model, optimiser))  # one copy of both, so that they stay together
        stream.synchronize()
        stream.begin_capture(cupy.cuda.runtime.streamCaptureModeThreadLocal)
        try:
            loss = training_step(twin, its, x, y, state)
        except BaseException:
            with suppress(Exception):  # what broke the capture is what matters
                stream.end_capture()
            raise
        captured = stream.end_capture()
        captured.launch(stream)
        stream.synchronize()
        after = {name: p.value for name, p in twin.named_parameters()}  # the graph writes into these
        replayed = float(np.median(timed(lambda: captured.launch(stream), stream.synchronize, seconds=seconds)))
        found = {name: mb.to_numpy(value) for name, value in after.items()}
        assert np.isfinite(float(mb.to_numpy(loss)))
    eager_model, eager_optimiser = copy.deepcopy((model, optimiser))
    training_step(eager_model, eager_optimiser, x, y, state)
    worst = max(float(np.abs(mb.to_numpy(p) - found[name]).max()) for name, p in eager_model.named_parameters())
    step = partial(training_step, eager_model, eager_optimiser, x, y, state)
    eager = float(np.median(timed(step, lambda: mb.synchronize(x), seconds=seconds)))
    return worst, eager, replayed


# --- 3. beside PyTorch's layer --------------------------------------------------------------------------------------


def ours(library: ModuleType, cell: str, T: int, B: int, D: int, H: int, seconds: float) -> float:
    """The median seconds of forward and backward of all parameters and inputs of a layer."""
    rng = np.random.default_rng(0)
    layer = PEERS[cell](D, H, rng=0).to(library)
    x, G = (mb.to_backend(rng.standard_normal((T, B, n)).astype(np.float32), library) for n in (D, H))

    def step() -> Any:
        with mb.Tape() as tape:
            inputs = tape.watch(x)
            outputs, _ = layer(inputs)
        return tape.gradient(outputs, [layer, inputs], seed=G)

    return float(np.median(timed(step, lambda: mb.synchronize(x), seconds=seconds)))


def theirs(cell: str, T: int, B: int, D: int, H: int, seconds: float) -> float:
    """The same of PyTorch's layer on the device, which cuDNN runs. ImportError where there is none."""
    import torch

    if not torch.cuda.is_available():
        raise ImportError("PyTorch is installed without CUDA")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # as CuPy
    layer = {"rnn": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[cell](D, H).cuda()
    x = torch.randn(T, B, D, device="cuda", requires_grad=True)
    G = torch.randn(T, B, H, device="cuda")

    def step() -> None:
        layer.zero_grad()
        x.grad = None
        layer(x)[0].backward(G)

    return float(np.median(timed(step, torch.cuda.synchronize, seconds=seconds)))


# --- all of it ------------------------------------------------------------------------------------------------------


def write(path: Path, names: list[str], rows: list[Any], library: ModuleType) -> None:
    about = where_it_ran(library)
    with open(path, "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow([*names, *about])
        out.writerows([*row, *about.values()] for row in rows)


def check(library: ModuleType, out: Path, seconds: float) -> bool:
    """Run all parts that fit into `seconds`, and say whether every number is as it should be."""
    end, good = time.monotonic() + seconds, True
    out.mkdir(parents=True, exist_ok=True)
    about = where_it_ran(library)
    print(f"{about['device']}; {about['libraries']}; Python {about['python']}", flush=True)

    rows = parity(library)
    write(out / "parity.csv", ["layer", "engine", "dtype", "situation", "largest_difference"], rows, library)
    for name, engine, dtype, situation, worst in rows:
        if not worst <= WITHIN[np.dtype(dtype).type]:
            good = False
            print(f"DIFFERS: {name}, {engine}, {dtype}, {situation}: {worst:.2g}")
    for dtype, bound in WITHIN.items():
        worst = max(row[-1] for row in rows if row[2] == np.dtype(dtype).name)
        print(f"parity, {np.dtype(dtype).name}: largest relative difference {worst:.2g}, allowed {bound:g}", flush=True)

    graphs = []
    for cell in PEERS:
        try:
            worst, eager, replayed = graph(library, cell)
        except Exception as error:
            good = False
            print(f"CAPTURE FAILED: {cell}: {type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)
            continue
        good &= worst <= WITHIN[np.float32]
        graphs.append((cell, worst, eager, replayed))
        print(
            f"graph, {cell}: captured, so nothing waited; largest difference {worst:.2g}; a step {eager * 1e3:.2f} ms, "
            f"replayed {replayed * 1e3:.2f} ms (its products are a plain kernel)",
            flush=True,
        )
    write(out / "graph.csv", ["cell", "largest_difference", "seconds_eager", "seconds_replayed"], graphs, library)

    peers: list[Any] = []
    for cell in PEERS:
        for shape in PEER_SHAPES:
            if time.monotonic() > end - 0.55 * seconds:
                print(f"left out for want of time: {cell} {shape} beside PyTorch")
                continue
            mine = ours(library, cell, *shape, seconds=0.3)
            try:
                other, why = theirs(cell, *shape, seconds=0.3), ""
            except ImportError as error:
                other, why = float("nan"), f" ({error})"
            peers.append((cell, *shape, mine, other, other / mine))
            print(
                f"layer, {cell} (T, B, D, H) = {shape}: minibptt {mine * 1e3:.2f} ms, cuDNN by PyTorch "
                f"{other * 1e3:.2f} ms, ratio {other / mine:.2f}{why}",
                flush=True,
            )
    names = ["cell", "T", "B", "D", "H", "seconds_minibptt", "seconds_pytorch", "pytorch_over_minibptt"]
    write(out / "peers-device.csv", names, peers, library)

    result = None
    for cell in PEERS:
        if time.monotonic() > end - 0.15 * seconds:
            print(f"left out for want of time: CPU against GPU of {cell}")
            continue
        one = sweep([cell], (32, 64, 128, 256, 512), (1, 64), (50,), backends=["numpy", library], seconds=0.15)
        result = one if result is None else type(result)((*result.rows, *one.rows))
        result.to_csv(out / "benchmark.csv")
        plots.save(plots.benchmark(result), out / "benchmark.png")
    if result is not None:
        print(result.table())
    print(f"Written to {out}: {', '.join(sorted(p.name for p in out.iterdir()))}")
    print("Everything as it should be." if good else "NOT everything is as it should be: see above.")
    return good


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=folder, default=Path("minibptt-device"))
    parser.add_argument("--seconds", type=rate, default=170, help="how long all of it may take (default: 170)")
    options = parser.parse_args(arguments)
    try:
        library = backend.library_named("cupy")
    except mb.BackendError as error:
        print(f"There is nothing to check here: {error}", file=sys.stderr)
        return 2
    return 0 if check(library, options.out, options.seconds) else 1


if __name__ == "__main__":
    sys.exit(main())
