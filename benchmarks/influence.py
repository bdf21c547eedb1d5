"""Influence balancing: training by windows that are too short goes the wrong way.

    python benchmarks/influence.py [--updates 3000] [--windows 1 10 50 100] [--out FOLDER]

n = 23 units, one parameter θ from ½, whose optimum is −1/6; learning rate 1e-4, an update every K steps from the loss
½(s₀ − 1)² of the last of them alone, the state carried on (Tallec and Ollivier 2017, the set-up of arXiv 1702.05043).
Prints θ and the loss after the last update, beside what the recurrence gives when it is worked out by itself. Draws
what a window of K steps keeps of the gradient at the fixed point, influence.png.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from arguments import folder

import minibptt as mb
from minibptt.commands.arguments import positive
from minibptt.tasks import InfluenceBalancing

# θ after 3000 updates, worked out from the linear recurrence and the coefficient of each window.
EXPECTED = {1: 3.2597, 10: 1.4e7, 50: -0.16654, 100: -0.1666533}


def half_square(outputs: mb.Tensor, y: object, count: float) -> mb.Tensor:
    """½(s₀ − 1)², of the steps that it is asked on."""
    error = outputs - 1.0
    return 0.5 * mb.sum(error * error)


def train(K: int, updates: int, rate: float = 1e-4) -> tuple[float, float]:
    """(θ, the loss of the last update) after so many updates."""
    cell, x, last = InfluenceBalancing(), np.zeros((updates * K, 1, 1)), mb.zeros(())
    for loss, gradients in mb.updates(cell, x, x, half_square, mb.tbptt(K, losses="last")):
        mb.assign(cell.theta, cell.theta.value - rate * gradients["theta"])
        last = loss
    return cell.theta.item(), last.item()


def last_loss(outputs: mb.Tensor, y: object) -> mb.Tensor:
    """½(s₀ − 1)² of the last step alone."""
    return half_square(outputs[-1], y, 1)


def at_the_fixed_point(T: int = 100) -> mb.Contributions:
    """The contributions to the gradient of the last loss, where the state no longer moves."""
    cell = InfluenceBalancing()
    with mb.no_tape():
        _, fixed = mb.unroll(cell, np.zeros((1000, 1, 1)))
    return mb.contributions(cell, np.zeros((T, 1, 1)), None, last_loss, state=fixed)


def draw(path: Path) -> None:
    """What a window of K steps keeps of the gradient: the running sum of the share by lag."""
    axes = mb.plots.lags(at_the_fixed_point())
    axes[0].figure.suptitle("Influence balancing: up to K = 40 a window points the wrong way", fontsize=16)
    mb.plots.save(axes, path)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=positive, default=3000)
    parser.add_argument("--windows", type=positive, nargs="+", default=[1, 10, 50, 100])
    parser.add_argument("--out", type=folder, default=Path("docs"), metavar="FOLDER")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    draw(options.out / "influence.png")
    for K in options.windows:
        theta, loss = train(K, options.updates)
        known = f", expected {EXPECTED[K]:.7g}" if options.updates == 3000 and K in EXPECTED else ""
        print(f"K = {K}: θ = {theta:.7g}{known}; loss {loss:.2g}", flush=True)


if __name__ == "__main__":
    main()
