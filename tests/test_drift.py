"""float32 against float64 over time steps: exact where every number is, small where a model forgets; the figure."""

import numpy as np
import pytest
from strict_cupy import xp as strict

import minibptt as mb


def sequence(T, B=3, D=4):
    return np.random.default_rng(0).standard_normal((T, B, D))


def test_where_every_number_is_a_power_of_two_nothing_drifts(xp):
    class Halving(mb.Cell):
        def __init__(self):
            self.w = mb.parameter([0.5])

        def zero_state(self, batch):
            return mb.zeros((batch, 1))

        def step(self, x, h):
            h = self.w * h + x
            return h, h

    x = np.zeros((20, 2, 1))
    x[0] = 1
    found = mb.drift(Halving(), mb.to_backend(x))
    assert found.outputs.tolist() == [0.0] * 20
    with pytest.raises(ValueError, match="no difference to draw"):
        mb.plots.drift(found)


def test_one_rounding_is_found_as_numpy_rounds(xp):
    model = mb.Linear(1, 1, bias=False, rng=0)
    mb.assign(model.W, mb.to_backend(np.array([[0.1]], np.float32)))
    x = np.array([0.3, 0.7, 3.0], np.float32).reshape(3, 1, 1)
    w = np.float32(0.1)
    expected = [abs(float(w * v) - float(w) * float(v)) / (float(w) * float(v)) for v in x.ravel()]
    np.testing.assert_allclose(mb.drift(model, mb.to_backend(x)).outputs, expected, rtol=1e-9)


@pytest.mark.parametrize("layer", [mb.RNN, mb.LSTM, mb.GRU])
def test_a_layer_that_forgets_stays_close_and_a_chaotic_one_leaves(layer):
    x = sequence(150)
    model = layer(4, 16, rng=0)
    before = {name: p.value.copy() for name, p in model.named_parameters()}
    calm = mb.drift(model, x).outputs
    assert calm.shape == (150,) and 1e-9 < calm.max() < 2e-6
    for name, p in model.named_parameters():
        np.testing.assert_array_equal(p.value, before[name])
        assert p.dtype == np.float32
    if layer is mb.RNN:
        wild = mb.RNN(4, 64, rng=0)
        mb.assign(wild.cells[0].W_h, wild.cells[0].W_h.value * 5)
        lost = mb.drift(wild, x).outputs
        assert lost[:3].max() < 1e-5 and lost[-20:].min() > 0.1


def test_lengths_and_a_state_are_taken_along(xp):
    model, x = mb.GRU(4, 5, rng=0, dtype=np.float64), mb.to_backend(sequence(6))
    state = model.zero_state(3)
    found = mb.drift(model, x, state=state, lengths=[4, 3, 1]).outputs
    assert np.isfinite(found[:4]).all() and np.isnan(found[4:]).all()  # padded outputs are 0
    assert found.max(initial=0, where=np.isfinite(found)) > 0


def test_the_figure_has_a_line_for_each_model_and_takes_device_data():
    x = sequence(30)
    several = {"LSTM": mb.drift(mb.LSTM(4, 8, rng=0), x)}
    with mb.use_backend(strict):
        several["on the device"] = mb.drift(mb.LSTM(4, 8, rng=0), mb.to_backend(x))
    ax = mb.plots.drift(several)
    with pytest.raises(ValueError, match="the dict is empty"):
        mb.plots.drift({})
    assert [t.get_text() for t in ax.get_legend().get_texts()] == list(several)
    assert ax.get_yscale() == "log" and ax.get_xlabel() == "step t"
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), several["LSTM"].outputs)
    other = mb.plots.drift(several["LSTM"], ax=ax)
    assert other is ax


@pytest.mark.parametrize("wrong", [3, "h", 0.5])
def test_a_state_that_does_not_fit_says_so(wrong):
    with pytest.raises(ValueError, match=f"the state of LSTM is a tuple .*found {type(wrong).__name__}"):
        mb.drift(mb.LSTM(4, 5, rng=0), sequence(6), state=wrong)
    with pytest.raises(ValueError, match=r"the state of LSTMCell has 2 parts, found one with 1"):
        mb.drift(mb.LSTMCell(4, 5, rng=0), sequence(6), state=3)
    with pytest.raises(TypeError, match=r"Linear has no state .*leave state= out"):
        mb.drift(mb.Linear(4, 5, rng=0), sequence(6), state=wrong)
