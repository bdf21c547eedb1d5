"""The benchmark's systems do the same work, as far as they are installed; speed is not tested here."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest


def load(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent.parent / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


peers, recompute, influence = load("peers"), load("recompute"), load("influence")
SHAPE = (3, 2, 4, 5)


@pytest.mark.parametrize("cell", peers.GATES)
@pytest.mark.parametrize("system", [s for s in peers.SYSTEMS if s == "floor" or s.startswith("minibptt")])
def test_each_system_takes_a_step(system, cell):
    peers.SYSTEMS[system](cell, *SHAPE)()


@pytest.mark.parametrize("cell", peers.GATES)
def test_both_engines_compute_the_same_gradients(cell):
    one, two = (peers.SYSTEMS[f"minibptt {engine}"](cell, *SHAPE)() for engine in ("explicit", "tape"))
    assert one[0].relative_error(two[0]) < 1e-5
    np.testing.assert_allclose(one[1], two[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("cell", peers.GATES)
def test_the_equations_are_those_of_the_cells(cell):
    import minibptt as mb

    T, B, D, H = SHAPE
    layer = {"lstm": mb.LSTM, "gru": mb.GRU, "rnn": mb.RNN}[cell](D, H, rng=0, dtype=np.float64)
    if cell == "gru":
        mb.assign(layer.cells[0].b_hn, np.zeros(H))
    W_x, W_h, b = (layer.parameters()[f"0.{name}"].value for name in ("W_x", "W_h", "b"))
    x = np.random.default_rng(0).standard_normal((T, B, D))
    expected = layer(x)[0].value
    zero = np.zeros((B, H))
    state = (zero, zero) if cell == "lstm" else zero
    for t in range(T):
        h, state = peers.equations(np, lambda v: 1 / (1 + np.exp(-v)), cell, H, x[t], state, W_x, W_h, b)
        np.testing.assert_allclose(h, expected[t], rtol=1e-12)


@pytest.mark.parametrize("engine", ["explicit", "tape"])
def test_recomputing_in_any_number_of_segments_is_the_same_gradient(engine):
    full, *others = (step() for step in recompute.steps(engine, 12, 2, 3, [1, 4, 12]).values())
    assert all(g.relative_error(full) < 1e-5 for g in others) and len(others) == 3


def test_influence_balancing_moves_by_the_coefficient_of_its_window():
    # K = 1: s₀ = ½ + ½ + ½ = 1.5 at the first step, of which θ = ½ sees 1: θ ← ½ − 1e-4·½.
    assert influence.train(1, 1) == pytest.approx((0.5 - 0.5e-4, 0.125), rel=1e-14)
