"""The benchmark's systems do the same work, as far as they are installed; speed is not tested here."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

spec = importlib.util.spec_from_file_location("peers", Path(__file__).parent.parent / "benchmarks" / "peers.py")
peers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(peers)
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
