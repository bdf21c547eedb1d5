"""Weights of PyTorch, Keras and TensorFlow 1, gate by gate, and as safetensors.

Each library's equations stand here once more, in a few lines of NumPy, in its own layout and gate order.
"""

import builtins
import itertools

import numpy as np
import pytest

import minibptt as mb
from minibptt import weights
from minibptt.backend import library_of

D, H, T, B = 3, 4, 5, 2


def σ(a):
    return 1 / (1 + np.exp(-a))


def sequence(seed=0):
    return np.random.default_rng(seed).standard_normal((T, B, D))


def draw(*shape, seed=[0]):  # noqa: B006
    seed[0] += 1
    return np.random.default_rng(seed[0]).standard_normal(shape)


# --- the other libraries' equations ----------------------------------------------------------------------------


def keras_lstm(x, kernel, recurrent_kernel, bias):
    """keras.layers.LSTM: z = x·kernel + h·recurrent_kernel + bias, in the order i, f, c, o."""
    h = c = np.zeros((B, H))
    for x_t in x:
        z0, z1, z2, z3 = np.split(x_t @ kernel + h @ recurrent_kernel + bias, 4, axis=1)
        i, f, o = σ(z0), σ(z1), σ(z3)
        c = f * c + i * np.tanh(z2)
        h = o * np.tanh(c)
        yield h


def keras_gru(x, kernel, recurrent_kernel, bias, reset_after):
    """keras.layers.GRU: the order z, r, h; h = z·h + (1 − z)·hh."""
    h = np.zeros((B, H))
    input_bias, recurrent_bias = bias if reset_after else (bias, np.zeros(3 * H))
    for x_t in x:
        x_z, x_r, x_h = np.split(x_t @ kernel + input_bias, 3, axis=1)
        if reset_after:
            r_z, r_r, r_h = np.split(h @ recurrent_kernel + recurrent_bias, 3, axis=1)
            z, r = σ(x_z + r_z), σ(x_r + r_r)
            hh = np.tanh(x_h + r * r_h)
        else:
            z, r = σ(x_z + h @ recurrent_kernel[:, :H]), σ(x_r + h @ recurrent_kernel[:, H : 2 * H])
            hh = np.tanh(x_h + (r * h) @ recurrent_kernel[:, 2 * H :])
        h = z * h + (1 - z) * hh
        yield h


def tf1_lstm(x, kernel, bias, forget_bias):
    """BasicLSTMCell: [x, h]·kernel + bias, in the order i, j, f, o; the forget bias is added when it runs."""
    h = c = np.zeros((B, H))
    for x_t in x:
        i, j, f, o = np.split(np.concatenate([x_t, h], 1) @ kernel + bias, 4, axis=1)
        c = c * σ(f + forget_bias) + σ(i) * np.tanh(j)
        h = np.tanh(c) * σ(o)
        yield h


def tf1_gru(x, gates_kernel, gates_bias, candidate_kernel, candidate_bias):
    """GRUCell: r, u from [x, h]; the candidate from [x, r·h]; h = u·h + (1 − u)·c."""
    h = np.zeros((B, H))
    for x_t in x:
        r, u = np.split(σ(np.concatenate([x_t, h], 1) @ gates_kernel + gates_bias), 2, axis=1)
        c = np.tanh(np.concatenate([x_t, r * h], 1) @ candidate_kernel + candidate_bias)
        h = u * h + (1 - u) * c
        yield h


def outputs_of(layer, x):
    return layer(x)[0].value


def test_keras_lstm_gives_the_outputs_of_its_equations():
    arrays, layer = [draw(D, 4 * H), draw(H, 4 * H), draw(4 * H)], mb.LSTM(D, H, dtype=np.float64)
    weights.from_keras(layer, arrays)
    np.testing.assert_allclose(outputs_of(layer, sequence()), [*keras_lstm(sequence(), *arrays)], rtol=1e-12)
    again = weights.to_keras(layer)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(arrays, again, strict=True))


@pytest.mark.parametrize("reset_after", [True, False])
def test_keras_gru_gives_the_outputs_of_its_equations(reset_after):
    arrays = [draw(D, 3 * H), draw(H, 3 * H), draw(2, 3 * H) if reset_after else draw(3 * H)]
    layer = mb.GRU(D, H, reset="after" if reset_after else "before", dtype=np.float64)
    weights.from_keras(layer, dict(zip(["kernel", "recurrent_kernel", "bias"], arrays)))
    expected = [*keras_gru(sequence(), *arrays, reset_after)]
    np.testing.assert_allclose(outputs_of(layer, sequence()), expected, rtol=1e-12)
    again = [*keras_gru(sequence(), *weights.to_keras(layer), reset_after)]
    np.testing.assert_allclose(again, expected, rtol=1e-12)


@pytest.mark.parametrize("forget_bias", [1.0, 0.0, 0.3])
def test_tensorflow_1_lstm_gives_the_outputs_of_its_equations_with_its_forget_bias(forget_bias):
    kernel, bias = draw(D + H, 4 * H), draw(4 * H)
    layer = mb.LSTMCell(D, H, dtype=np.float64)
    named = {"rnn/basic_lstm_cell/kernel:0": kernel, "rnn/basic_lstm_cell/bias:0": bias, "dense/kernel:0": draw(4, 4)}
    with pytest.raises(
        ValueError, match=r"kernel may be any of rnn/basic_lstm_cell/kernel:0, dense/kernel:0: give pre"
    ):
        weights.from_tf1(layer, named)
    weights.from_tf1(layer, named, prefix="rnn", forget_bias=forget_bias)
    expected = [*tf1_lstm(sequence(), kernel, bias, forget_bias)]
    np.testing.assert_allclose(mb.unroll(layer, sequence())[0].value, expected, rtol=1e-12)
    again = weights.to_tf1(layer, forget_bias)
    np.testing.assert_allclose([*tf1_lstm(sequence(), **again, forget_bias=forget_bias)], expected, rtol=1e-12)


def test_tensorflow_1_gru_gives_the_outputs_of_its_equations():
    arrays = [draw(D + H, 2 * H), draw(2 * H), draw(D + H, H), draw(H)]
    names = ["gates/kernel", "gates/bias", "candidate/kernel", "candidate/bias"]
    layer = mb.GRU(D, H, reset="before", dtype=np.float64)
    weights.from_tf1(layer, {f"rnn/gru_cell/{name}": array for name, array in zip(names, arrays)})
    np.testing.assert_allclose(outputs_of(layer, sequence()), [*tf1_gru(sequence(), *arrays)], rtol=1e-12)
    again = weights.to_tf1(layer)
    assert list(again) == names and all(a.tobytes() == b.tobytes() for a, b in zip(arrays, again.values()))


def test_the_gates_stand_where_each_library_has_them():
    """Fixed numbers: gate k of the LSTM's bias is k, and so on, written out by hand."""
    lstm, gru = mb.LSTMCell(1, 1, rng=0), mb.GRUCell(1, 1, rng=0)
    mb.assign(lstm.b, [10, 20, 30, 40])  # i f g o
    mb.assign(gru.b, [1, 2, 3])  # r z n
    mb.assign(gru.b_hn, [4])
    assert weights.to_torch(lstm)["bias_ih"].tolist() == [10, 20, 30, 40]
    assert weights.to_keras(lstm)[2].tolist() == [10, 20, 30, 40]
    assert weights.to_tf1(lstm)["bias"].tolist() == [10, 30, 19, 40]  # i j f o, and f + 1 when it runs
    assert weights.to_torch(gru)["bias_ih"].tolist() == [1, 2, 3]
    assert weights.to_torch(gru)["bias_hh"].tolist() == [0, 0, 4]
    assert weights.to_keras(gru)[2].tolist() == [[2, 1, 3], [0, 0, 4]]  # z r h
    before = mb.GRUCell(1, 1, reset="before", rng=0)
    mb.assign(before.b, [1, 2, 3])
    assert weights.to_keras(before)[2].tolist() == [2, 1, 3]
    assert {k: v.tolist() for k, v in weights.to_tf1(before).items() if "bias" in k} == {
        "gates/bias": [1, 2],
        "candidate/bias": [3],
    }
    layer = mb.LSTMCell(1, 1, rng=0)
    weights.from_tf1(layer, {"kernel": np.zeros((2, 4)), "bias": np.array([1.0, 2.0, 3.0, 4.0])})
    assert layer.b.value.tolist() == [1, 4, 2, 4]
    weights.from_torch(gru, {f"{k}_{h}": np.full(s, n) for h, n in (("ih", 1.0), ("hh", 2.0))
                             for k, s in (("weight", (3, 1)), ("bias", 3))})  # fmt: skip
    assert gru.b.value.tolist() == [3, 3, 1] and gru.b_hn.value.tolist() == [2]


# --- there and back --------------------------------------------------------------------------------------------

MAKERS = {
    "rnn": lambda **o: mb.RNN(D, H, layers=2, **o),
    "lstm": lambda **o: mb.LSTM(D, H, layers=3, **o),
    "gru": lambda **o: mb.GRU(D, H, layers=2, **o),
    "gru before": lambda **o: mb.GRU(D, H, layers=2, reset="before", **o),
    "one layer": lambda **o: mb.LSTM(D, H, **o),
    "rnn cell": lambda **o: mb.RNNCell(D, H, **o),
    "lstm cell": lambda **o: mb.LSTMCell(D, H, **o),
    "gru cell": lambda **o: mb.GRUCell(D, H, **o),
    "linear": lambda **o: mb.Linear(D, H, **o),
    "no bias": lambda **o: mb.Linear(D, H, bias=False, **o),
    "embedding": lambda **o: mb.Embedding(D, H, **o),
}
LACKING = {("torch", "gru before"), ("tf1", "gru"), ("tf1", "gru cell")}


def bits(layer):
    return {name: mb.to_numpy(p).tobytes() for name, p in layer.named_parameters()}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("library, name", [*itertools.product(["torch", "keras", "tf1"], MAKERS)])
def test_every_layer_goes_out_and_comes_back_to_the_bit(library, name, dtype, xp):
    layer, other = (MAKERS[name](rng=seed, dtype=dtype) for seed in (0, 1))
    for p in layer.parameters().values():
        value = mb.to_numpy(p).copy()
        value.flat[:3] = [-0.0, 1e-42, 1 / 3]
        mb.assign(p, xp.asarray(value))
    give, take = getattr(weights, f"to_{library}"), getattr(weights, f"from_{library}")
    options = {"forget_bias": 0.0} if library == "tf1" else {}
    if (library, name) in LACKING:
        for call in (lambda: give(layer), lambda: take(layer, {})):
            with pytest.raises(ValueError, match=r"needs reset='(before|after)'; this one has"):
                call()
        return
    theirs = give(layer, **options)
    arrays = theirs if library == "keras" else list(theirs.values())
    assert all(type(a) is np.ndarray and a.flags.c_contiguous and a.flags.writeable for a in arrays)
    assert all(a.dtype == dtype for a in arrays)
    take(other, theirs, **options)
    assert bits(layer) == bits(other) and all(library_of(p.value) is xp for _, p in other.named_parameters())
    for array in arrays:  # copies: nothing that is done to them is seen here
        array[...] = 0
    assert bits(layer) == bits(other)


def test_the_forget_bias_of_one_comes_back_to_the_bit_where_it_can_and_else_to_its_rounding():
    layer, other = mb.LSTMCell(1, 50, rng=0), mb.LSTMCell(1, 50, rng=1)
    b = layer.b.value.copy()
    layer.by_gate(b)["f"][:] = np.linspace(0.5, 2, 50)
    mb.assign(layer.b, b)
    weights.from_tf1(other, weights.to_tf1(layer))
    assert bits(layer) == bits(other)
    layer.by_gate(b)["f"][:] = np.linspace(-3, 0.4, 50)
    mb.assign(layer.b, b)
    weights.from_tf1(other, weights.to_tf1(layer))
    np.testing.assert_allclose(other.b.value, b, rtol=0, atol=2**-22)


def test_layers_without_bias_get_zeros():
    layer = mb.LSTM(D, H, layers=2, rng=0)
    weights.from_torch(layer, {k: v for k, v in weights.to_torch(layer).items() if "weight" in k})
    assert not layer.cells[0].b.value.any() and not layer.cells[1].b.value.any()
    for gru in (mb.GRU(D, H, rng=0), mb.GRU(D, H, reset="before", rng=0)):
        weights.from_keras(gru, weights.to_keras(gru)[:2])
        assert not gru.cells[0].b.value.any()


# --- PyTorch itself --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("layers", [1, 3])
def test_a_layer_from_pytorch_gives_its_outputs_and_goes_back(name, layers):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(D, H, layers, dtype=torch.float64)
    model = torch.nn.ModuleDict({"body": theirs, "head": torch.nn.Linear(H, 2, dtype=torch.float64)})
    x = sequence()
    body, head = getattr(mb, name)(D, H, layers=layers, dtype=np.float64), mb.Linear(H, 2, dtype=np.float64)
    with pytest.raises(ValueError, match=r"no place in this .* for body\.bias_hh_l0.*give prefix="):
        weights.from_torch(body, model.state_dict())
    weights.from_torch(body, model.state_dict(), prefix="body.")
    weights.from_torch(head, model.state_dict(), "head.")

    def run(theirs):
        with torch.no_grad():
            return model["head"](theirs(torch.from_numpy(x))[0]).numpy()

    expected = run(theirs)
    np.testing.assert_allclose(head(body(x)[0]).value, expected, rtol=1e-12, atol=1e-14)
    other = getattr(torch.nn, name)(D, H, layers, dtype=torch.float64)
    other.load_state_dict({k: torch.from_numpy(v) for k, v in weights.to_torch(body).items()})
    np.testing.assert_allclose(run(other), expected, rtol=1e-12, atol=1e-14)


def test_cells_embeddings_and_half_precision_from_pytorch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.manual_seed(0)
    x, h = (draw(B, n) for n in (D, H))
    for name, makes in (("RNNCell", mb.RNNCell), ("GRUCell", mb.GRUCell), ("LSTMCell", mb.LSTMCell)):
        theirs, ours = getattr(torch.nn, name)(D, H, dtype=torch.float64), makes(D, H, dtype=np.float64)
        weights.from_torch(ours, theirs.state_dict())
        lstm = name == "LSTMCell"
        there = torch.from_numpy(h)
        with torch.no_grad():
            expected = theirs(torch.from_numpy(x), (there, there) if lstm else there)
        got = ours.step(x, (mb.Tensor(h), mb.Tensor(h)) if lstm else mb.Tensor(h))[0].value
        np.testing.assert_allclose(got, (expected[0] if lstm else expected).numpy(), rtol=1e-12)
        theirs.load_state_dict({k: torch.from_numpy(v) for k, v in weights.to_torch(ours).items()})
    theirs, ours = torch.nn.Embedding(D, H, dtype=torch.bfloat16), mb.Embedding(D, H)
    weights.from_torch(ours, theirs.state_dict())
    assert np.array_equal(ours.W.value, theirs.weight.detach().float().numpy()) and ours.W.dtype == np.float32
    for options in (dict(bidirectional=True), dict(proj_size=2)):
        with pytest.raises(ValueError, match=r"no place in this LSTM.*bidirectional and projected layers"):
            weights.from_torch(mb.LSTM(D, H), torch.nn.LSTM(D, H, **options).state_dict())


# --- what does not fit -----------------------------------------------------------------------------------------


WRONG = {
    "PyTorch's into Keras's": (
        lambda layer: weights.from_keras(layer, [np.ones((16, 3)), np.ones((16, 4)), np.ones(16)]),
        r"kernel is \(3, 16\) in Keras, found \(16, 3\); that is the shape of PyTorch's weight_ih of an LSTM",
    ),
    "Keras's into PyTorch's": (
        lambda layer: weights.from_torch(
            layer,
            dict(
                weight_ih_l0=np.ones((3, 16)),
                weight_hh_l0=np.ones((4, 16)),
                bias_ih_l0=np.ones(16),
                bias_hh_l0=np.ones(16),
            ),
        ),
        r"weight_ih is \(16, 3\) in PyTorch, found \(3, 16\); that is the shape of Keras's kernel of an LSTM",
    ),
    "a GRU's": (
        lambda layer: weights.from_keras(layer, [np.ones((3, 12)), np.ones((4, 12)), np.ones((2, 12))]),
        r"bias is \(16,\) in Keras, found \(2, 12\); that is the shape of Keras's bias of a GRU",
    ),
    "TensorFlow's into Keras's": (
        lambda layer: weights.from_keras(layer, [np.ones((7, 16)), np.ones((7, 16)), np.ones(16)]),
        r"recurrent_kernel .* found \(7, 16\); that is the shape of TensorFlow 1's kernel of an LSTM",
    ),
    "more units": (
        lambda layer: weights.from_keras(layer, [np.ones((3, 20)), np.ones((5, 20)), np.ones(20)]),
        r"recurrent_kernel is \(4, 16\) in Keras, found \(5, 20\); it would fit D = 3, H = 5",
    ),
    "more inputs": (
        lambda layer: weights.from_tf1(layer, {"kernel": np.ones((9, 16)), "bias": np.ones(16)}),
        r"kernel is \(7, 16\) in TensorFlow 1, found \(9, 16\); it would fit D = 5, H = 4",
    ),
    "nothing known": (
        lambda layer: weights.from_keras(layer, [np.ones((3, 16)), np.ones((4, 16)), np.ones((5, 5, 5))]),
        r"bias is \(16,\) in Keras, found \(5, 5, 5\)$",
    ),
    "one bias": (
        lambda layer: weights.from_torch(
            layer, dict(weight_ih_l0=np.ones((16, 3)), weight_hh_l0=np.ones((16, 4)), bias_ih_l0=np.ones(16))
        ),
        r"bias_hh is missing, \(16,\)",
    ),
    "integers": (
        lambda layer: weights.from_keras(layer, [np.ones((3, 16), int), np.ones((4, 16)), np.ones(16)]),
        "kernel must be of floats, found int64",
    ),
    "too few": (lambda layer: weights.from_keras(layer, [np.ones((3, 16))]), "takes 3 arrays .* found 1"),
    "another name": (lambda layer: weights.from_keras(layer, {"kernle": 1}), "no place for kernle; expected kernel"),
    "a layer more": (
        lambda layer: weights.from_torch(layer, weights.to_torch(mb.LSTM(3, 4, layers=2))),
        "no place in this LSTM for bias_hh_l1",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_says_what_it_looks_like_and_changes_nothing(name):
    layer = mb.LSTM(3, 4, rng=0)
    before, (call, words) = bits(layer), WRONG[name]
    with pytest.raises(ValueError, match=words):
        call(layer)
    assert bits(layer) == before


def test_a_cell_that_is_used_twice_takes_equal_weights_only():
    cell = mb.LSTMCell(3, 3, rng=0)
    stack, before = mb.Stack([cell] * 2), bits(cell)
    weights.from_torch(stack, weights.to_torch(mb.Stack([mb.LSTMCell(3, 3, rng=1)] * 2)))
    assert bits(cell) == bits(mb.LSTMCell(3, 3, rng=1)) != before
    with pytest.raises(ValueError, match="layers 0 and 1 are one cell"):
        weights.from_torch(stack, weights.to_torch(mb.LSTM(3, 3, layers=2, rng=2)))
    assert bits(cell) == bits(mb.LSTMCell(3, 3, rng=1))


def test_a_module_in_place_of_its_weights_says_what_to_give():
    with pytest.raises(TypeError, match=r"module.state_dict\(\) gives it, found LSTM"):
        weights.from_torch(mb.LSTM(3, 4), mb.LSTM(3, 4))
    with pytest.raises(TypeError, match=r"get_weights\(\) gives, found NoneType"):
        weights.from_keras(mb.LSTM(3, 4), None)


def test_a_gru_of_the_other_reset_and_other_modules_are_told_apart():
    after, before = mb.GRU(3, 4, rng=0), mb.GRU(3, 4, reset="before", rng=0)
    with pytest.raises(
        ValueError, match=r"found \(12,\); that is the shape of Keras's bias of a GRU of reset='before'"
    ):
        weights.from_keras(after, weights.to_keras(before))
    with pytest.raises(ValueError, match=r"found \(2, 12\); that is the shape of Keras's bias of a GRU$"):
        weights.from_keras(before, weights.to_keras(after))
    with pytest.raises(ValueError, match=r"kernel is \(3, 4\) in Keras, found \(4, 3\); it looks transposed"):
        weights.from_keras(mb.Linear(3, 4), [np.ones((4, 3)), np.ones(4)])
    with pytest.raises(TypeError, match=r"found Sequential.*one at a time"):
        weights.to_torch(mb.Sequential(after))
    mixed = mb.LSTM(4, 4, layers=2)
    mixed.cells = (mixed.cells[0], mb.GRUCell(4, 4))
    with pytest.raises(TypeError, match=r"one at a time"):
        weights.to_torch(mixed)
    with pytest.raises(ValueError, match="for 2 layers give a list"):
        weights.from_keras(mb.LSTM(3, 4, layers=2), {})


# --- gates -----------------------------------------------------------------------------------------------------


def test_split_gates_shows_views_of_every_gate(xp):
    cell = mb.LSTMCell(D, H, rng=0)
    gates = mb.split_gates(cell)
    assert list(gates) == ["i", "f", "g", "o"] and list(gates["f"]) == ["W_x", "W_h", "b"]
    assert (mb.to_numpy(gates["f"]["b"]) == 1).all() and gates["o"]["W_x"].shape == (D, H)
    assert np.array_equal(mb.to_numpy(gates["g"]["W_h"]), mb.to_numpy(cell.W_h)[:, 2 * H : 3 * H])
    gru = mb.split_gates(mb.Sequential(mb.GRU(D, H, rng=0), mb.Linear(H, 1)))
    assert set(gru["n"]) == {"W_x", "W_h", "b", "b_hn"} and set(gru["z"]) == {"W_x", "W_h", "b"}
    if xp is np:
        assert np.shares_memory(gates["f"]["W_x"], cell.W_x.value)
        with pytest.raises(ValueError, match="read-only"):
            gates["f"]["b"][:] = 0


def test_split_gates_names_several_cells_in_order_and_splits_gradients_too():
    model = mb.Sequential(mb.LSTM(D, H, layers=2, rng=0), mb.GRU(H, 2, rng=1), mb.RNN(2, 2, rng=2))
    found = mb.split_gates(model)
    assert list(found) == ["0.0", "0.1", "1.0"] and found["1.0"]["r"]["W_x"].shape == (H, 2)
    layer = mb.LSTM(D, H, rng=0)
    with mb.Tape() as tape:
        loss = mb.sum(layer(sequence())[0])
    gradients = tape.gradient(loss, layer)
    split = mb.split_gates(layer, gradients)
    assert np.array_equal(split["o"]["b"], gradients["0.b"][3 * H :])
    with pytest.raises(ValueError, match="RNNCell has no gates"):
        mb.split_gates(mb.RNNCell(1, 2))


# --- safetensors -----------------------------------------------------------------------------------------------


def test_safetensors_hold_a_model_by_name_and_store_a_transposed_view_right(tmp_path, xp):
    numpy_ = pytest.importorskip("safetensors.numpy", reason="the package safetensors is not installed")
    model, other = mb.Sequential(mb.LSTM(D, D, rng=0), mb.Linear(D, D, rng=1)), None
    W = np.arange(D * D, dtype=np.float32).reshape(D, D).T
    mb.assign(model[1].W, xp.asarray(W))
    if xp is np:
        assert not model[1].W.value.flags.c_contiguous
    weights.save_safetensors(tmp_path / "m.safetensors", model)
    plain = numpy_.load_file(tmp_path / "m.safetensors")  # by the package's own reader
    assert np.array_equal(plain["1.W"], W) and set(plain) == set(model.parameters())
    other = mb.Sequential(mb.LSTM(D, D, rng=5), mb.Linear(D, D, rng=6))
    found = weights.load_safetensors(tmp_path / "m.safetensors", other)
    assert bits(model) == bits(other) and np.array_equal(found["1.W"], W)
    weights.save_safetensors(tmp_path / "t.safetensors", weights.to_torch(model[0]))
    layer = mb.LSTM(D, D, rng=7)
    weights.from_torch(layer, weights.load_safetensors(tmp_path / "t.safetensors"))
    assert bits(layer) == bits(model[0])


def test_safetensors_that_do_not_fit_or_are_damaged_are_refused(tmp_path):
    pytest.importorskip("safetensors", reason="the package safetensors is not installed")
    path, model = tmp_path / "m.safetensors", mb.Linear(D, H, rng=0, dtype=np.float64)
    weights.save_safetensors(path, mb.Sequential(mb.Linear(D, H, rng=1), mb.Linear(H, H, rng=2)))
    before = bits(model)
    with pytest.raises(mb.CheckpointError) as error:
        weights.load_safetensors(path, model)
    assert "missing: W, (3, 4) float64" in str(error.value) and "unexpected: 1.b, (4,) float32" in str(error.value)
    weights.save_safetensors(path, mb.Linear(D, H, rng=1))
    with pytest.raises(mb.CheckpointError, match=r"different: b is \(4,\) float32, expected \(4,\) float64"):
        weights.load_safetensors(path, model)
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(mb.CheckpointError, match="damaged"):
            weights.load_safetensors(path)
    with pytest.raises(mb.CheckpointError, match="cannot be read"):
        weights.load_safetensors(tmp_path / "absent")
    assert bits(model) == before


def test_without_the_package_safetensors_an_error_says_what_to_install(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("safetensors"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    for call in (
        lambda: weights.save_safetensors(tmp_path / "a", {}),
        lambda: weights.load_safetensors(tmp_path / "a"),
    ):
        with pytest.raises(mb.CheckpointError, match=r"pip install 'minibptt\[safetensors\]'"):
            call()
