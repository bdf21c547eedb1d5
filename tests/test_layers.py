"""Modules and their names, tied weights, layers, Sequential, the plain recurrent cell, and where numbers come from."""

import numpy as np
import pytest
from toys import Scalar

import minibptt as mb

f64 = np.float64


def wave(*shape, k=0):
    """½·sin(k + 1), ½·sin(k + 2), … in `shape`."""
    return (0.5 * np.sin(np.arange(np.prod(shape, dtype=int)) + 1 + k)).reshape(shape)


# --- modules ---------------------------------------------------------------------------------------------------


def test_parameters_are_found_in_attributes_lists_dicts_and_modules_and_named_by_their_path():
    class Net(mb.Module):
        def __init__(self):
            self.first = mb.parameter([1.0])
            self.layers = [mb.Linear(2, 3, rng=0), mb.Linear(3, 2, bias=False, rng=0)]
            self.extra = {"g": mb.parameter([2.0]), "pair": (mb.parameter([3.0]), "no parameter")}
            self.size, self.nothing = 3, None

    net = Net()
    assert list(net.parameters()) == ["first", "layers.0.W", "layers.0.b", "layers.1.W", "extra.g", "extra.pair.0"]
    assert net.first.name == "first" and net.layers[0].W.name == "W"
    assert net.parameters()["layers.1.W"] is net.layers[1].W


def test_a_parameter_keeps_the_name_that_it_was_given():
    class Net(mb.Module):
        def __init__(self, w):
            self.weight = w

    assert Net(mb.parameter([1.0], name="own")).weight.name == "own"
    shared = mb.parameter([1.0])
    assert (Net(shared).weight.name, Net(shared).weight is shared) == ("weight", True)


def test_the_layers_of_a_sequential_are_named_by_place_also_inside_one_another():
    model = mb.Sequential(mb.Embedding(4, 2), mb.tanh, mb.Sequential(mb.RNNCell(2, 3), mb.Linear(3, 4)))
    assert list(model.parameters()) == ["0.W", "2.0.W_x", "2.0.W_h", "2.0.b", "2.1.W", "2.1.b"]


def test_a_cell_used_in_two_places_is_one_parameter_with_the_sum_of_both_gradients():
    class Scale(mb.Module):
        def __init__(self, w):
            self.w = mb.parameter([w], dtype=f64)

        def __call__(self, x):
            return self.w * x

    one = Scale(3.0)
    tied, untied = mb.Sequential(one, one), mb.Sequential(Scale(3.0), Scale(3.0))
    answers = []
    for model in (tied, untied):
        with mb.Tape() as tape:
            out, _ = model(np.full((1, 1, 1), 5.0))
        answers.append(tape.gradient(out, model))
    assert {name: g.tolist() for name, g in answers[0].items()} == {"0.w": [30.0]}  # y = w²·x; dy/dw = 2·w·x
    assert {name: g.tolist() for name, g in answers[1].items()} == {"0.w": [15.0], "1.w": [15.0]}


def test_an_embedding_that_is_the_output_layer_too_has_one_gradient_from_both_uses():
    class Tied(mb.Module):
        def __init__(self, E, out):
            self.E, self.out = mb.parameter(E), mb.parameter(out)
            if out is E:
                self.out = self.E

        def __call__(self, ids):
            return mb.tanh(mb.embedding(self.E, ids=ids)) @ self.out.T

    E, ids, target = wave(4, 3), [[0, 1], [1, 3]], [[1, 2], [2, 0]]
    answers = []
    for model in (Tied(E, E), Tied(E, E.copy())):
        with mb.Tape() as tape:
            loss = mb.cross_entropy(model(ids), target)
        answers.append(tape.gradient(loss, model))
    tied, untied = answers
    assert list(tied) == ["E"] and list(untied) == ["E", "out"]
    np.testing.assert_allclose(tied["E"], untied["E"] + untied["out"], rtol=0, atol=1e-14)
    assert untied["E"][2].tolist() == [0.0] * 3  # id 2 is never read, only predicted
    assert (tied["E"][2] != 0).all()


def test_one_adam_step_moves_a_tied_weight_once():
    class Tied(mb.Module):
        def __init__(self):
            self.a = self.b = mb.parameter([1.0], dtype=f64)

    model = Tied()
    mb.Adam(model, lr=0.1, eps=0.0).step(mb.Gradients({"a": np.array([4.0])}))
    assert model.b.value.tolist() == [0.9]


# --- layers ----------------------------------------------------------------------------------------------------


def test_linear_is_a_product_on_the_last_axis_and_a_bias():
    layer = mb.Linear(2, 3, dtype=f64)
    mb.assign(layer.W, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    mb.assign(layer.b, [10.0, 20.0, 30.0])
    with mb.Tape() as tape:
        y = layer(np.array([[[1.0, 0.0]], [[2.0, -1.0]]]))
        loss = mb.sum(y * [1.0, 10.0, 100.0])
    assert y.value.tolist() == [[[11.0, 22.0, 33.0]], [[8.0, 19.0, 30.0]]]
    g = tape.gradient(loss, layer)
    assert g["W"].tolist() == [[3.0, 30.0, 300.0], [-1.0, -10.0, -100.0]]
    assert g["b"].tolist() == [2.0, 20.0, 200.0]
    assert layer([1.0, 0.0]).value.tolist() == [11.0, 22.0, 33.0]


def test_linear_without_a_bias_has_one_parameter():
    layer = mb.Linear(2, 1, bias=False, rng=0)
    assert list(layer.parameters()) == ["W"]
    np.testing.assert_array_equal(layer(np.eye(2)).value, layer.W.value)


def test_an_embedding_takes_rows_and_adds_up_the_gradients_of_repeated_ids():
    layer = mb.Embedding(3, 2, dtype=f64)
    mb.assign(layer.W, [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    with mb.Tape() as tape:
        y = layer([[2, 0], [2, 2]])
        loss = mb.sum(y * np.array([[[1.0, 1.0], [10.0, 10.0]], [[100.0, 100.0], [1000.0, 2000.0]]]))
    assert y.value.tolist() == [[[5.0, 6.0], [1.0, 2.0]], [[5.0, 6.0], [5.0, 6.0]]]
    assert tape.gradient(loss, layer.W).tolist() == [[10.0, 10.0], [0.0, 0.0], [1101.0, 2101.0]]


def test_an_embedding_refuses_ids_that_are_no_rows():
    layer = mb.Embedding(3, 2, rng=0)
    with pytest.raises(TypeError, match="ids must be integers, found float64"):
        layer([0.0, 1.0])
    for ids, found in ([0, 3], r"id 3 at \(1,\)"), ([[0], [-1]], r"id -1 at \(1, 0\)"):
        with pytest.raises(ValueError, match=rf"{found} is outside 0 … 2"):
            layer(ids)


@pytest.mark.parametrize(
    "make",
    [lambda n: mb.Linear(n, 2), lambda n: mb.Linear(2, n), lambda n: mb.Embedding(n, 2), lambda n: mb.RNNCell(2, n)],
)
def test_sizes_are_whole_numbers_of_at_least_one(make):
    for n in (0, -1):
        with pytest.raises(ValueError, match=f"at least 1, found {n}"):
            make(n)
    for n in (1.5, True, "3"):
        with pytest.raises(TypeError, match=f"whole number, found {n!r}"):
            make(n)


# --- Sequential ------------------------------------------------------------------------------------------------


def model_of_two_cells():
    return mb.Sequential(
        mb.Linear(2, 3, rng=0, dtype=f64),
        mb.tanh,
        mb.RNNCell(3, 4, rng=1, dtype=f64),
        mb.Sequential(mb.RNNCell(4, 3, "linear", rng=2, dtype=f64), mb.sigmoid),
        mb.Linear(3, 2, rng=3, dtype=f64),
    )


def test_sequential_is_its_layers_one_after_the_other():
    model, x = model_of_two_cells(), wave(5, 2, 2)
    first, _, a, (b, _), last = model.layers[0], *model.layers[1:3], model.layers[3].layers, model.layers[4]
    y, h_a = mb.unroll(a, mb.tanh(first(x)))
    y, h_b = mb.unroll(b, y)
    out, state = model(x)
    np.testing.assert_array_equal(out.value, last(mb.sigmoid(y)).value)
    np.testing.assert_array_equal(state[0].value, h_a.value)
    np.testing.assert_array_equal(state[1][0].value, h_b.value)


def test_sequential_hands_each_layer_its_own_state_and_returns_it_in_the_same_form():
    model, x = model_of_two_cells(), wave(6, 2, 2)
    assert [s.shape for s in (model.zero_state(2)[0], *model.zero_state(2)[1])] == [(2, 4), (2, 3)]
    whole, end = model(x)
    state, outputs = model.zero_state(2), []
    for s in (0, 4):
        out, state = model(x[s : s + 4], mb.cut(state))
        outputs.append(out.value)
    np.testing.assert_allclose(np.concatenate(outputs), whole.value, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(state[0].value, end[0].value)
    assert type(state) is type(state[1]) is tuple and len(state[1]) == 1
    again, _ = model(x[4:], [None, mb.cut(state[1])])  # None: the zero state for that layer
    assert again.shape == (2, 2, 2)


def test_sequential_gives_a_state_only_to_layers_that_have_one():
    model = mb.Sequential(mb.Linear(2, 2, rng=0), mb.tanh)
    assert model.zero_state(3) == () and model(wave(2, 3, 2))[1] == ()


def test_sequential_refuses_a_state_of_another_form_and_things_that_are_no_layers():
    model, x = model_of_two_cells(), wave(2, 2, 2)
    for state, found in [((None,), "1 entry"), ((None,) * 3, "3 entries"), (np.zeros((2, 2, 4)), "ndarray")]:
        with pytest.raises(ValueError, match=rf"has a state: 2; found {found}"):
            model(x, state)
    with pytest.raises(ValueError, match=r"has shape \(3, 4\); for a batch of 2 rows it must be \(2, 4\)"):
        model(x, (np.zeros((3, 4)), None))
    with pytest.raises(ValueError, match="at least one layer"):
        mb.Sequential()
    with pytest.raises(TypeError, match=r"layer 1 \(int\)"):
        mb.Sequential(mb.tanh, 3)
    with pytest.raises(ValueError, match=r"\(T, B, …\), time first; found shape \(4,\)"):
        model(np.zeros(4))


def test_padded_outputs_are_zero_so_that_an_unmasked_loss_gets_no_gradient_from_padding():
    model, lengths = model_of_two_cells(), [4, 1, 0]
    real = np.arange(5)[:, None] < lengths
    x = np.where(real[..., None], wave(5, 3, 2), np.nan)
    with mb.Tape() as tape:
        x = tape.watch(x)
        out, _ = model(x, lengths=lengths)
        plain = mb.sum((out - 1) ** 2)
        masked = mb.sum(mb.where(real[..., None], (out - 1) ** 2, 0))
        count = mb.sum(out)
    assert (out.value[~real] == 0).all() and (out.value[real] != 0).all()
    for name, g in tape.gradient(plain, model).items():
        np.testing.assert_array_equal(g, tape.gradient(masked, model)[name])
    assert tape.gradient(count, model.layers[-1].b).tolist() == [5.0, 5.0]  # once for each real step
    assert (tape.gradient(plain, x)[~real] == 0).all() and (tape.gradient(plain, x)[real] != 0).all()


def test_a_padded_batch_through_a_model_equals_its_rows_run_alone():
    model, lengths, rows = model_of_two_cells(), [5, 2, 3], []
    x = np.where((np.arange(5)[:, None] < lengths)[..., None], wave(5, 3, 2), np.nan)
    with mb.Tape() as tape:
        out, state = model(x, lengths=lengths, cut_every=2)
        together = tape.gradient(mb.sum(out * out), model)
    for b, n in enumerate(lengths):
        with mb.Tape() as tape:
            alone, end = model(x[:n, b : b + 1], cut_every=2)
            rows.append(tape.gradient(mb.sum(alone * alone), model))
        np.testing.assert_allclose(out.value[:n, b], alone.value[:, 0], rtol=0, atol=1e-12)
        np.testing.assert_allclose(state[1][0].value[b], end[1][0].value[0], rtol=0, atol=1e-12)
    for name, g in together.items():
        np.testing.assert_allclose(g, sum(row[name] for row in rows), rtol=0, atol=1e-12)


def test_resets_and_cuts_reach_every_layer():
    model, x = model_of_two_cells(), wave(4, 1, 2)
    with mb.Tape() as tape:
        x = tape.watch(x)
        cut, _ = model(x, cut_every=2)
        reset, state = model(x, model.zero_state(1), resets=[[0], [0], [1], [0]])
        late = mb.sum(cut[2:])
        late_reset = mb.sum(reset[2:])
    assert [(c.layer, c.step) for c in tape.cuts] == [("2", 3), ("3.0", 3)]
    assert (tape.gradient(late, x)[:2] == 0).all() and (tape.gradient(late, x, through_cuts=True)[:2] != 0).all()
    assert (tape.gradient(late_reset, x)[:2] == 0).all()
    alone, end = model(x.value[2:])
    np.testing.assert_allclose(reset.value[2:], alone.value, rtol=0, atol=1e-14)
    np.testing.assert_allclose(state[1][0].value, end[1][0].value, rtol=0, atol=1e-14)


# --- the plain recurrent cell ------------------------------------------------------------------------------------

SLOPES = {"tanh": lambda h: 1 - h**2, "relu": lambda h: 1.0 * (h > 0), "linear": np.ones_like}
FUNCTIONS = {"tanh": np.tanh, "relu": lambda a: np.maximum(a, 0), "linear": lambda a: a}


def rnn_by_hand(x, h0, W_x, W_h, b, G, nonlinearity):
    """Outputs, then the gradients of Σ G·h by x, h₀, W_x, W_h and b, step by step from the last one back."""
    h = [h0]
    for x_t in x:
        h.append(FUNCTIONS[nonlinearity](x_t @ W_x + h[-1] @ W_h + b))
    dx, dW_x, dW_h, db, dh = np.zeros_like(x), np.zeros_like(W_x), np.zeros_like(W_h), np.zeros_like(b), 0 * h0
    for t in reversed(range(len(x))):
        da = (G[t] + dh) * SLOPES[nonlinearity](h[t + 1])
        dx[t], dh = da @ W_x.T, da @ W_h.T
        dW_x, dW_h, db = dW_x + x[t].T @ da, dW_h + h[t].T @ da, db + da.sum(axis=0)
    return np.stack(h[1:]), dx, dh, dW_x, dW_h, db


@pytest.mark.parametrize("nonlinearity", FUNCTIONS)
def test_the_recurrent_cell_equals_a_backward_pass_written_by_hand(nonlinearity):
    T, B, D, H = 12, 3, 4, 5
    cell = mb.RNNCell(D, H, nonlinearity, rng=0, dtype=f64)
    assert list(cell.parameters()) == ["W_x", "W_h", "b"]
    assert [p.shape for p in cell.parameters().values()] == [(D, H), (H, H), (H,)]
    x, h0, G = 3 * wave(T, B, D), wave(B, H, k=3), wave(T, B, H, k=5)
    with mb.Tape() as tape:
        x_t, h_t = tape.watch(x), tape.watch(h0)
        out, h = mb.unroll(cell, x_t, h_t)
        loss = mb.sum(out * G)
    expected = rnn_by_hand(x, h0, *[p.value for p in cell.parameters().values()], G, nonlinearity)
    found = out.value, *tape.gradient(loss, (x_t, h_t, cell.W_x, cell.W_h, cell.b))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(h.value, out.value[-1])
    if nonlinearity == "relu":
        assert 0.2 < (out.value == 0).mean() < 0.8  # both sides of the kink were tried


@pytest.mark.parametrize("nonlinearity", ["tanh", "linear"])
def test_the_complex_step_agrees_through_two_hundred_steps(nonlinearity):
    cell = mb.RNNCell(2, 4, nonlinearity, rng=3, dtype=f64)
    x, G = wave(200, 2, 2), wave(200, 2, 4, k=5)
    check = mb.check_gradient(lambda: mb.sum(mb.unroll(cell, x)[0] * G), cell, coordinates=6)
    assert check.method == "complex step" and check.error <= 1e-11


def test_an_unknown_nonlinearity_is_an_error_that_lists_the_known_ones():
    with pytest.raises(ValueError, match="one of tanh, relu, linear, found 'gelu'"):
        mb.RNNCell(2, 2, "gelu")


# --- where numbers come from -------------------------------------------------------------------------------------

LAYERS = {
    "RNNCell": (lambda **o: mb.RNNCell(3, 4, **o), 0.5),
    "Linear": (lambda **o: mb.Linear(4, 3, **o), 0.5),
    "Embedding": (lambda **o: mb.Embedding(3, 4, **o), 1.0),
}


def values(layer):
    return [p.value for p in layer.parameters().values()]


@pytest.mark.parametrize("name", LAYERS)
def test_the_same_seed_gives_the_same_numbers_and_leaves_the_global_generator_alone(name):
    make, bound = LAYERS[name]
    np.random.seed(99)  # noqa: NPY002
    layers = [make(rng=0), make(rng=0), make(rng=np.random.default_rng(0)), make(rng=np.int64(0))]
    for layer in layers[1:]:
        for a, b in zip(values(layers[0]), values(layer), strict=True):
            np.testing.assert_array_equal(a, b)
    for other in (make(rng=1), make()):
        assert any((a != b).any() for a, b in zip(values(layers[0]), values(other)))
    assert all((np.abs(a) <= bound).all() and np.unique(a).size == a.size for a in values(layers[0]))
    assert np.random.random() == np.random.RandomState(99).random()  # noqa: NPY002


@pytest.mark.parametrize("name", LAYERS)
def test_parameters_are_float32_unless_told_otherwise_and_the_same_numbers_in_float64(name):
    make, _ = LAYERS[name]
    small, big = make(rng=0), make(rng=0, dtype=f64)
    assert {a.dtype for a in values(small)} == {np.dtype(np.float32)}
    assert {a.dtype for a in values(big)} == {np.dtype(f64)}
    for a, b in zip(values(small), values(big)):
        np.testing.assert_array_equal(a, b.astype(np.float32))


def test_one_generator_given_to_two_layers_goes_on_between_them():
    rng = np.random.default_rng(0)
    a, b = mb.Linear(2, 2, rng=rng), mb.Linear(2, 2, rng=rng)
    assert (a.W.value != b.W.value).all()


def test_the_zero_state_has_the_dtype_of_the_weights():
    for dtype in (np.float32, f64):
        h = mb.RNNCell(2, 3, dtype=dtype).zero_state(4)
        assert (h.shape, h.dtype, h.value.any()) == ((4, 3), dtype, False)


def test_a_seed_that_is_no_whole_number_is_an_error():
    for rng in (True, 1.5, "0"):
        with pytest.raises(TypeError, match=r"rng must be an int or a numpy\.random\.Generator"):
            mb.Linear(2, 2, rng=rng)


def test_a_layer_between_cells_never_sees_the_zeros_of_padded_steps():
    """log 0 = −∞ there would give 0·∞ in the gradient of the weights behind it."""
    x = np.where((np.arange(3)[:, None] < [3, 1])[..., None], 1.0, np.nan)
    model = mb.Sequential(Scalar(), mb.log, mb.Linear(1, 2, rng=0, dtype=f64))
    with mb.Tape() as tape:
        out, _ = model(x, lengths=[3, 1])
        loss = mb.sum(out)
    assert np.isfinite(out.value).all() and (out.value[1:, 1] == 0).all()
    assert all(np.isfinite(g).all() for g in tape.gradient(loss, model).values())
