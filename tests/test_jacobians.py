"""∂h_t/∂h_s and the LSTM's highway against closed forms, a numerical difference and PyTorch."""

import numpy as np
import pytest

import minibptt as mb
from minibptt.jacobians import highway, state_jacobians


def sequence(T, B, D, seed=0):
    return np.random.default_rng(seed).standard_normal((T, B, D))


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


@pytest.mark.parametrize("engine", ["tape", "explicit"])
def test_of_a_linear_cell_they_are_powers_of_the_recurrent_weights(engine):
    layer = mb.RNN(2, 3, "linear", engine=engine, rng=0, dtype=np.float64)
    J = state_jacobians(layer, sequence(6, 2, 2), t=5, row=1)
    W = layer.cells[0].W_h.value.T  # rows are vectors here: ∂h_t[i]/∂h_{t−1}[j] = W_h[j, i]
    assert J.shape == (5, 3, 3)
    for s in range(1, 6):
        np.testing.assert_allclose(J[s - 1], np.linalg.matrix_power(W, 5 - s), atol=1e-14)


def by_hand(cell, x, of, by):
    """∂of_t/∂by_s of an LSTM cell of one unit, for every s: c_t = f c + i g, h_t = o tanh c."""
    W_x, W_h, b = (p.value.ravel() for p in (cell.W_x, cell.W_h, cell.b))
    h = c = 0.0
    steps = []
    for x_t in x:
        i, f, g, o = (z(x_t * W_x[k] + h * W_h[k] + b[k]) for k, z in enumerate((sigmoid, sigmoid, np.tanh, sigmoid)))
        c_prev, c = c, f * c + i * g
        di, df, dg, do = i * (1 - i) * W_h[0], f * (1 - f) * W_h[1], (1 - g**2) * W_h[2], o * (1 - o) * W_h[3]
        dc_dh, dc_dc, dh_dc = df * c_prev + di * g + i * dg, f, o * (1 - np.tanh(c) ** 2)
        steps.append((np.array([[dh_dc * dc_dh + do * np.tanh(c), dh_dc * dc_dc], [dc_dh, dc_dc]]), dh_dc))
        h = o * np.tanh(c)
    total, found = np.eye(2), []
    for M, dh_dc in reversed(steps):
        # At its own step a change of c comes through h too.
        found.append(total @ np.array([[1.0, dh_dc], [0.0, 1.0]]))
        total = total @ M
    return [float(m["hc".index(of), "hc".index(by)]) for m in reversed(found)]


@pytest.mark.parametrize("engine", ["tape", "explicit"])
@pytest.mark.parametrize("of, by", [("h", "h"), ("c", "c"), ("h", "c"), ("c", "h")])
def test_of_a_scalar_lstm_they_are_what_the_product_of_its_steps_gives(engine, of, by):
    layer = mb.LSTM(1, 1, engine=engine, rng=3, dtype=np.float64)
    x = sequence(7, 1, 1)
    J = state_jacobians(layer, x, of=of, by=by)
    # ∂h_t/∂c_t and ∂c_t/∂h_t within the last step: h_t comes from c_t, and c_t does not come from h_t.
    np.testing.assert_allclose(J.ravel(), by_hand(layer.cells[0], x.ravel(), of, by), atol=1e-13)


def test_a_central_difference_agrees():
    # Move the state after step s, and run the rest.
    layer, x, s = mb.GRU(2, 3, rng=1, dtype=np.float64), sequence(6, 1, 2), 2
    (h_s,) = layer(x[:s])[1]
    J = state_jacobians(layer, x)
    for j in range(3):
        moved = [h_s.value + sign * 1e-6 * np.eye(3)[j] for sign in (1, -1)]
        up, down = (layer(x[s:], (h,))[1][0].value for h in moved)
        np.testing.assert_allclose(J[s - 1][:, j], ((up - down) / 2e-6)[0], atol=1e-9)


def test_the_topmost_layer_is_meant_unless_one_is_named_and_the_row_alone_counts():
    model = mb.Sequential(mb.LSTM(2, 3, layers=2, rng=0, dtype=np.float64), mb.Linear(3, 2, rng=1, dtype=np.float64))
    x = sequence(5, 4, 2)
    J = state_jacobians(model, x, row=2)
    np.testing.assert_array_equal(J, state_jacobians(model, x, of="0.1.h", row=2))
    np.testing.assert_allclose(J, state_jacobians(model, x[:, 2:3]), atol=1e-15)
    assert not np.allclose(J, state_jacobians(model, x, of="0.0.h", row=2))
    lower = state_jacobians(model, x, of="0.1.h", by="0.0.h", row=2)
    assert np.abs(lower).max() > 1e-3
    state = model(x[:2])[1]
    a = state_jacobians(model, x[2:], state=state, row=2)
    np.testing.assert_allclose(a, J[2:], atol=1e-14)


def test_the_forget_gates_are_those_of_the_equations_and_their_products_the_direct_path():
    layer = mb.LSTM(2, 3, layers=2, rng=0, dtype=np.float64)
    x = sequence(6, 2, 2)
    found = highway(layer, x, row=1)
    below, _ = mb.unroll(layer.cells[0], x)
    h = np.zeros(3)
    out, _ = mb.unroll(layer.cells[1], below.value)
    W_x, W_h, b = (layer.cells[1].by_gate(p)["f"] for p in (layer.cells[1].W_x, layer.cells[1].W_h, layer.cells[1].b))
    for t in range(6):
        np.testing.assert_allclose(found.f[t], sigmoid(below.value[t, 1] @ W_x + h @ W_h + b), atol=1e-14)
        h = out.value[t, 1]
    for s in range(6):
        np.testing.assert_allclose(found.direct[s], np.prod(found.f[s + 1 :], axis=0), atol=1e-15)
    assert found.full.shape == (6, 3, 3)
    np.testing.assert_allclose(found.full, state_jacobians(layer.cells[1], below.value, of="c", row=1), atol=1e-14)


def test_without_recurrent_weights_the_direct_path_is_the_only_one():
    layer = mb.LSTM(2, 3, rng=0, dtype=np.float64)
    mb.assign(layer.cells[0].W_h, np.zeros((3, 12)))
    found = highway(layer, sequence(5, 1, 2), t=4)
    np.testing.assert_allclose(found.full, [np.diag(d) for d in found.direct], atol=1e-15)


def test_pytorch_gives_the_same():
    torch = pytest.importorskip("torch")
    cell = mb.GRUCell(2, 3, rng=0, dtype=np.float64)
    theirs = torch.nn.GRUCell(2, 3, dtype=torch.float64)
    with torch.no_grad():
        for mine, name in ((cell.W_x, "weight_ih"), (cell.W_h, "weight_hh"), (cell.b, "bias_ih")):
            getattr(theirs, name).copy_(torch.tensor(mine.value.T.copy() if mine.ndim > 1 else mine.value))
        theirs.bias_hh.zero_()
        theirs.bias_hh[6:] = torch.tensor(cell.b_hn.value)
    x, s = sequence(5, 1, 2), 2
    h = torch.zeros(1, 3, dtype=torch.float64)
    for x_t in x[:s]:
        h = theirs(torch.tensor(x_t), h)

    def rest(h):
        for x_t in x[s:]:
            h = theirs(torch.tensor(x_t), h)
        return h[0]

    expected = torch.autograd.functional.jacobian(rest, h.detach()).numpy()[:, 0]
    np.testing.assert_allclose(state_jacobians(cell, x)[s - 1], expected, atol=1e-12)


def test_what_is_not_there_is_an_error_that_says_what_is():
    layer, x = mb.LSTM(1, 2, rng=0), sequence(4, 2, 1)
    with pytest.raises(ValueError, match="no state 'z'; the states are h, c"):
        state_jacobians(layer, x, of="z")
    with pytest.raises(ValueError, match="a step from 1 to T = 4, found 5"):
        state_jacobians(layer, x, t=5)
    with pytest.raises(ValueError, match="no row 2"):
        state_jacobians(layer, x, row=2)
    with pytest.raises(ValueError, match="no layer 1"):
        highway(layer, x, layer=1)
    with pytest.raises(TypeError, match="found GRU"):
        highway(mb.GRU(1, 2, rng=0), x)


@pytest.mark.parametrize("engine", ["tape", "explicit"])
def test_a_state_that_is_not_finite_is_named_with_its_step(engine):
    layer, x = mb.LSTM(3, 4, engine=engine, rng=0), sequence(6, 2, 3).astype(np.float32)
    x[3, 0, 1] = np.nan
    for draw in (state_jacobians, mb.plots.jacobians):
        with pytest.raises(ValueError, match=r"step 4: the state '[hc]' is not finite .*give t= an earlier step"):
            draw(layer, x)
        draw(layer, x, t=3)
        draw(layer, x, row=1)
    for draw in (highway, mb.plots.highway):
        with pytest.raises(ValueError, match="step 4: the state"):
            draw(layer, x)
        draw(layer, x, t=3)


@pytest.mark.parametrize("engine", ["tape", "explicit"])
def test_derivatives_that_grow_past_the_type_are_told_from_states_that_do(engine):
    # h = W_h h, from 0 on zeros: every state is 0, and ∂h_t/∂h_s = 10^(12·(t − s)) passes float32 after 4 steps.
    layer = mb.RNN(1, 1, "linear", engine=engine, rng=0)
    mb.assign(layer.cells[0].W_h, np.array([[1e12]], np.float32))
    mb.assign(layer.cells[0].b, np.zeros(1, np.float32))
    x = np.zeros((9, 1, 1), np.float32)
    for draw in (state_jacobians, mb.plots.jacobians):
        with pytest.raises(ValueError, match=r"of t = 9 is not finite at s = 5, .* over 4 steps .* past float32"):
            draw(layer, x)
    assert state_jacobians(layer, x, t=4)[0].item() == pytest.approx(1e36)


@pytest.mark.parametrize("model", [mb.Linear(3, 4, rng=0), mb.Sequential(mb.Linear(3, 4, rng=0))])
def test_a_model_without_a_state_has_no_jacobians_and_says_so(model):
    for draw in (state_jacobians, mb.plots.jacobians):
        with pytest.raises(ValueError, match=f"{type(model).__name__} has no state.*give a cell"):
            draw(model, sequence(4, 2, 3))


def test_what_is_no_model_has_no_jacobians_either():
    with pytest.raises(TypeError, match=r"the model must be a cell.*found int"):
        mb.plots.jacobians(3, sequence(4, 2, 3))
