"""Lesson 12, CPU against GPU: the crossover, an honest clock, stray copies, a pool. No exercise needs a device.

Read after clocks.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ... import backend, standin
from ...benchmark import flops_of
from ...benchmark import timed as honest
from ...listing import counted
from ...losses import mse
from ...nest import leaves
from ...optim import SGD
from ...recurrent import LSTM
from ...states import zero_state
from ...tape import Tape, cut
from ...tensor import Tensor
from ..answers import array, call, number, parts, same
from ..registry import NotYet, Numbers, exercise
from .clocks import CLOCKS, Device


def _draw_costs(rng: np.random.Generator) -> Numbers:
    return {
        "B": int(rng.choice([6, 10, 12, 20])),
        "cpu_us": int(rng.integers(15, 30)),
        "gpu_us": int(rng.integers(40, 90)),
        "cpu_gflops": 10 * int(rng.integers(6, 20)),
        "gpu_gflops": 1000 * int(rng.integers(3, 9)),
    }


@exercise(
    "12.1",
    "crossover",
    numbers=_draw_costs,
    hints=[
        "time = µs · 10⁻⁶ + 48·B·H² / (GFLOP/s · 10⁹), once for the CPU and once for the GPU.",
        "48·B·H²·(1/cpu − 1/gpu)·10⁻⁹ = (gpu_us − cpu_us)·10⁻⁶; solve for H.",
    ],
)
def _(crossover: Any, n: Numbers) -> None:
    """Predict the size at which CPU and GPU take the same time."""
    B, ahead = n["B"], (n["gpu_us"] - n["cpu_us"]) * 1e-6
    a_second = 1e-9 * (1 / n["cpu_gflops"] - 1 / n["gpu_gflops"])  # what an operation costs more on the CPU
    of_one = flops_of(LSTM(64, 64, rng=0), 1, B) / 64**2  # 48·B, counted from the weights
    right = (ahead / (of_one * a_second)) ** 0.5
    mistakes = {
        "the root is missing: that is H²": right**2,
        "B is missing: each row is in the products": right * B**0.5,
        "that is with 2 operations for each weight; a step goes forward, back to the inputs and to the weights": right
        * 3**0.5,
        "that is with 4H² weights: an LSTM with D = H has W_x and W_h, 8H²": right * 2**0.5,
        "that is with 2H² weights: an LSTM has four gates, 8H²": right * 2,
        "the GPU's arithmetic is left out; it costs little, and not nothing": (ahead * n["cpu_gflops"] * 1e9 / of_one)
        ** 0.5,
        "the CPU's µs are left out: it does not ask for nothing either": (n["gpu_us"] * 1e-6 / (of_one * a_second))
        ** 0.5,
        "µs or GFLOP are not in the units of the other: a µs is 1e-6 s, a GFLOP 1e9 operations": right * 1000**0.5,
        "the µs are not in seconds: a µs is 1e-6 s": right * 1e3,
        "GFLOP/s are not in operations a second: a GFLOP is 1e9 of them": right / 10**4.5,
        "both are in thousands of what they are: a µs is 1e-6 s, a GFLOP 1e9 operations": right / 1000**0.5,
        "the GPU's arithmetic is added; on the other side of the equation its sign is minus": (
            ahead / (of_one * 1e-9 * (1 / n["cpu_gflops"] + 1 / n["gpu_gflops"]))
        )
        ** 0.5,
        "GFLOP/s are subtracted; what is subtracted is the time of an operation, 1/GFLOP/s": (
            ahead * (n["gpu_gflops"] - n["cpu_gflops"]) * 1e9 / of_one
        )
        ** 0.5,
        "that is with the 20 steps of the lesson; the µs here are those of one step": right / 20**0.5,
    }
    same(number(call(crossover)), right, mistakes, tolerance=1e-3, otherwise="Ask check.hint('12.1')")


@exercise(
    "12.2",
    "timed",
    hints=[
        "Five lines: warm up, wait, start the clock, work, wait; then read the clock.",
        "Without a wait before the start, what was launched before is in the time; without one before the end, the "
        "time is that of asking.",
    ],
)
def _(timed: Any) -> None:
    """Write a clock that measures what the device does."""
    for seed in range(3):
        device = Device(seed)
        found = device.time_by(lambda *a: call(timed, *a, what="timed"))
        if not device.calls:
            raise NotYet("timed never calls work()")
        right = Device(seed).time_by(lambda w, s, c: honest(w, s, clock=c, least=1, most=1, warm_up=1)[0])
        mistakes: dict[str, Any] = {says: Device(seed).time_by(clock) for says, clock in CLOCKS.items()}
        mistakes["that is in milliseconds; seconds are asked for"] = right * 1e3
        mistakes["the sign is wrong: the time now, minus the time at the start"] = -right
        yours = number(found, "what timed returns")
        if abs(yours - right) > 0.05 * right:  # a mean over some calls asks ahead of the device, and is a little less
            same(yours, right, mistakes, "the time", "Ask check.hint('12.2')")


ALL, BUT_THE_FIRST, BUT_THE_LAST = slice(None), slice(1, None), slice(None, -1)


def _echo(
    model: Any,
    optimiser: Any,
    x: Any,
    state: Any,
    cut_it: bool = True,
    judged: slice = BUT_THE_FIRST,
    targets: slice = BUT_THE_LAST,
    step: bool = True,
) -> tuple[Any, Any]:
    """A training step that leaves nothing: outputs[t] is to be x[t − 1]; or one with a mistake."""
    with Tape() as tape:
        outputs, state = model(x, cut(state) if cut_it else zero_state(model, x.shape[1]))
        loss = mse(outputs[judged], x[targets])
    if step:
        optimiser.step(tape.gradient(loss, model))
    return loss, state


def _train(step: Callable[..., Any]) -> tuple[list[Any], dict[str, np.ndarray], dict[str, int]]:
    """Losses and weights of four steps on the stand-in, and what the last one asked of the host."""
    x = backend.to_backend(np.random.default_rng(123).standard_normal((4, 6, 2, 3)), standin.xp)
    model = LSTM(3, 3, rng=0, dtype=np.float64).to(standin.xp)
    optimiser, state, losses = SGD(model, lr=0.5), zero_state(model, 2), []
    for i in range(4):
        found, counts = standin.counted(partial(step, model, optimiser, x[i], state))
        loss, state = parts(found, "mended", "the loss", "the state after it")
        losses.append(loss)
        if any(not isinstance(h, Tensor) or not isinstance(h.value, standin.DeviceArray) for _, h in leaves(state)):
            raise NotYet("the state after the step must be where the model is: return it as the model gave it")
    return losses, {name: backend.to_numpy(p) for name, p in model.named_parameters()}, counts


@exercise(
    "12.3",
    "mended",
    hints=[
        "mb.cut(state) takes the past away and leaves the numbers where they are. So does a slice of an array.",
        "The targets are x[:-1]. The loss can be returned as it is; who wants to print it may ask, now and then.",
    ],
)
def _(mended: Any) -> str:
    """Find three stray copies between the device and the host."""
    with backend.use_backend("numpy"):
        losses, weights, counts = _train(lambda *a: call(mended, *a, what="mended"))
        right = _train(_echo)
        reset = _train(partial(_echo, cut_it=False))
        unshifted = _train(partial(_echo, judged=ALL, targets=ALL))
        later = _train(partial(_echo, targets=BUT_THE_FIRST))
        unmoved = _train(partial(_echo, step=False))
    mistakes = {
        "the state before is not used: that is a reset. Cut it": _numbers(*reset[:2]),
        "the targets are the inputs of the same step; broken's are those of the step before": _numbers(*unshifted[:2]),
        "the targets are x[1:], the inputs of the same step; those of the step before are x[:-1]": _numbers(*later[:2]),
        "the weights do not change: optimiser.step is missing": _numbers(*unmoved[:2]),
    }
    same(_numbers(losses, weights), _numbers(*right[:2]), mistakes, "the training", "Ask check.hint('12.3')")
    to_host, to_device = counts["to_host"], counts["to_device"]
    left = []
    if to_device >= 2:
        left.append("the state goes to the host and back, its two parts: mb.cut leaves it where it is")
    if to_device % 2:
        left.append("the targets are made on the host: x[:-1] is on the device already")
    if to_host > to_device:
        left.append("the loss is made a number at each step, and the program waits for it: return it as it is")
    if left:
        raise NotYet(f"the numbers are right; {to_host} + {to_device} copies are left: {'; and '.join(left)}")
    if counts["syncs"] or to_host:
        waits = counted(counts["syncs"], "time")
        raise NotYet(f"the numbers are right, and the program still waits for the device {waits} a step")
    return "No copy and no wait is left."


def _numbers(losses: list[Any], weights: dict[str, np.ndarray]) -> np.ndarray:
    values = [array(loss, "the loss", ()) for loss in losses]
    return np.concatenate([np.array(values), *[weights[name].ravel() for name in sorted(weights)]])


def _draw_sizes(rng: np.random.Generator) -> Numbers:
    a, b = (int(v) for v in rng.choice(np.arange(3, 12), 2, replace=False))
    return {"a": a, "b": b, "d": max(a, b) + int(rng.integers(2, 9))}


@exercise(
    "12.4",
    "pool",
    numbers=_draw_sizes,
    hints=[
        "Write down after each line which blocks the pool holds, and which of them somebody uses.",
        "c is given the block that a had. The block that b had is kept, and is too small for d.",
    ],
)
def _(pool: Any, n: Numbers) -> None:
    """Predict what a memory pool holds, and what is live in it."""
    held = standin.Pool()

    def new(mebibytes: int) -> np.ndarray:
        block = np.empty(mebibytes * 2**20, np.uint8)
        held.take(block)
        return block

    a, b = new(n["a"]), new(n["b"])
    del a
    c = new(n["a"])
    del b
    d = new(n["d"])
    right = [held.total_bytes() / 2**20, held.used_bytes() / 2**20]
    del c, d
    (reserved, live), every = right, n["a"] * 2 + n["b"] + n["d"]
    found = array(call(pool), "what pool returns", (2,))
    mistakes = {
        "reserved and live are swapped": [live, reserved],
        "a pool keeps what was freed: reserved is more than what is live": [live, live],
        "b was deleted: it is kept, and not live": [reserved, reserved],
        "c takes the block that a had; nothing new is reserved for it": [every, live],
        "b's block is too small for d, which takes a new one": [n["a"] + n["b"], live],
        "c is live too: only a and b were deleted": [reserved, n["d"]],
        "nothing is given back, and nothing is live that was deleted": [every, every],
        "that is in bytes; MiB are asked for": [reserved * 2**20, live * 2**20],
    }
    same(found, right, mistakes, "the answer", "Ask check.hint('12.4')")
