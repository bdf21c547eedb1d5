"""On a device: the same numbers as on the CPU, no wait and no copy in a training step, one kernel a step.

Everything runs on the strict stand-in; `xp` adds CuPy where there is a device.
"""

import copy
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from stray_copies import STRAY, clean
from strict_cupy import DeviceArray, counted, counter
from strict_cupy import xp as strict

import minibptt as mb
from minibptt.benchmark import training_step
from minibptt.cells.kernels import fusing, unfused
from minibptt.nest import leaves

T, B, D, H = 7, 3, 4, 5
LAYERS = {
    "rnn": lambda **o: mb.RNN(D, H, **o),
    "relu": lambda **o: mb.RNN(D, H, "relu", **o),
    "linear": lambda **o: mb.RNN(D, H, "linear", **o),
    "lstm": lambda **o: mb.LSTM(D, H, **o),
    "gru": lambda **o: mb.GRU(D, H, **o),
    "gru before": lambda **o: mb.GRU(D, H, reset="before", **o),
}
# Launches for each step of time: a product and a kernel forward, the same backward; twice for the reset before.
PER_STEP = dict.fromkeys(LAYERS, 4) | {"gru before": 8}
SITUATIONS = {
    "plain": {},
    "lengths": {"lengths": [7, 4, 0]},
    "resets": {"resets": np.arange(T * B).reshape(T, B) % 5 == 2},
    "cuts": {"cut_every": 3},
    "all": {"lengths": [7, 4, 1], "resets": np.arange(T * B).reshape(T, B) % 4 == 1, "cut_every": 2},
}


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def passes(layer, library, dtype, **options):
    """Outputs, states, every gradient and every adjoint, as NumPy arrays, by name."""
    model = layer(rng=1, dtype=dtype).to(library)
    x, G, G_end = (numbers(*s, seed=i).astype(dtype) for i, s in enumerate([(T, B, D), (T, B, H), (B, H)]))
    with mb.use_backend(library), mb.Tape() as tape:
        inputs = tape.watch(mb.to_backend(x))
        start = tape.watch(mb.to_backend(numbers(B, H, seed=5).astype(dtype)))
        zero = model.zero_state(B)
        states = tuple([(start, *h[1:]) if isinstance(h, tuple) else start for h in zero])
        outputs, after = model(inputs, states, **options)
        last = after[0][-1] if isinstance(after[0], tuple) else after[0]
        loss = mb.sum(outputs * mb.to_backend(G)) + mb.sum(last * mb.to_backend(G_end))
    found = {"outputs": outputs, "last": last}
    for through in (False, 0.5, True):
        gradients, dx, dh = tape.gradient(loss, [model, inputs, start], through_cuts=through)
        found |= {f"{name} {through}": g for name, g in gradients.items()} | {f"x {through}": dx, f"h0 {through}": dh}
        found |= {f"adjoint {k} {through}": v for k, v in tape.adjoints(loss, through_cuts=through).items()}
        found |= {f"dropped {i} {through}": v for i, v in enumerate(tape.dropped(loss, through_cuts=through).values())}
    return {name: mb.to_numpy(value) for name, value in found.items()}


@pytest.mark.parametrize("dtype, within", [(np.float64, 1e-11), (np.float32, 2e-5)])
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_gives_the_numbers_of_the_cpu(xp, layer, situation, dtype, within):
    here, there = (passes(LAYERS[layer], library, dtype, **SITUATIONS[situation]) for library in (xp, np))
    assert set(here) == set(there) and len(here) >= 20
    for name, expected in there.items():
        assert here[name].dtype == dtype, name
        assert_allclose(here[name], expected, rtol=within, atol=within * 5, err_msg=name)


@pytest.mark.parametrize("layer", LAYERS)
def test_with_and_without_kernels_a_layer_gives_the_same_numbers(xp, layer):
    found = passes(LAYERS[layer], xp, np.float64, **SITUATIONS["all"])
    with unfused():
        for name, expected in passes(LAYERS[layer], xp, np.float64, **SITUATIONS["all"]).items():
            assert_allclose(found[name], expected, rtol=1e-11, atol=1e-11, err_msg=name)


@pytest.mark.parametrize("layer", ["rnn", "lstm", "gru"])
def test_a_layer_whose_outputs_nobody_uses_goes_back_from_its_state(xp, layer):
    found = []
    for library in (xp, np):
        model = LAYERS[layer](rng=1, dtype=np.float64).to(library)
        with mb.use_backend(library), mb.Tape() as tape:
            _, after = model(mb.to_backend(numbers(T, B, D)))
            loss = mb.sum(after[0][0] if isinstance(after[0], tuple) else after[0])
        found.append({name: mb.to_numpy(g) for name, g in tape.gradient(loss, model).items()})
    for name in found[1]:
        assert_allclose(found[0][name], found[1][name], rtol=1e-11, atol=1e-12, err_msg=name)


def training(layers, dropout=0.0, kind=mb.LSTM, dtype=np.float32):
    with mb.use_backend(strict):
        stack = kind(D, H, layers=layers, dropout=dropout, rng=0, dtype=dtype)
        model = mb.Sequential(stack, mb.Linear(H, 2, rng=1, dtype=dtype))
        x, y = mb.to_backend(numbers(T, B, D).astype(dtype)), mb.to_backend(numbers(T, B, 2, seed=1).astype(dtype))
        return model, mb.Adam(model), x, y, model.zero_state(B)


@pytest.mark.parametrize("engine", ["explicit", "tape"])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_training_step_of_each_cell_waits_for_nothing_and_copies_nothing(layer, engine):
    with mb.use_backend(strict):
        model = mb.Sequential(LAYERS[layer](rng=0, engine=engine), mb.Linear(H, 2, rng=1))
        optimiser, state = mb.Adam(model), model.zero_state(B)
        x, y = (mb.to_backend(numbers(T, B, n).astype(np.float32)) for n in (D, 2))
        clean(model, optimiser, x, y, state)
        _, counts = counted(lambda: clean(model, optimiser, x, y, state))
    assert counts.pop("launches") > 4 * T
    assert counts == {"to_host": 0, "to_device": 0, "syncs": 0}


def test_a_stack_with_dropout_copies_its_mask_and_nothing_else():
    model, *rest = training(3, dropout=0.5)
    clean(model, *rest)
    _, counts = counted(lambda: clean(model, *rest))
    assert (counts["to_host"], counts["syncs"]) == (0, 0)
    assert counts["to_device"] == 2  # one mask for each place between two layers: drawn on the host
    model.eval()
    _, counts = counted(lambda: clean(model, *rest))
    assert (counts["to_host"], counts["syncs"], counts["to_device"]) == (0, 0, 0)


def test_token_ids_are_one_copy_for_each_use():
    with mb.use_backend(strict):
        model = mb.Sequential(mb.Embedding(9, D, rng=0), mb.GRU(D, H, rng=1), mb.Linear(H, 9, rng=2))
        ids, state = np.arange(T * B).reshape(T, B) % 9, model.zero_state(B)

        def step():
            with mb.Tape() as tape:
                loss = mb.cross_entropy(model(ids, state)[0], ids)
            return tape.gradient(loss, model)

        _, counts = counted(step)
    assert (counts["to_host"], counts["syncs"], counts["to_device"]) == (0, 0, 2)


def launches(layer, steps):
    with mb.use_backend(strict):
        model, x = LAYERS[layer](rng=0), mb.to_backend(numbers(steps, B, D).astype(np.float32))
        return counted(partial(training_step, model, x))[1]["launches"]


@pytest.mark.parametrize("layer", LAYERS)
def test_a_step_is_one_product_and_one_launch_forward_and_backward(layer):
    assert (launches(layer, 12) - launches(layer, 7)) / 5 == PER_STEP[layer]


@pytest.mark.parametrize("layer", LAYERS)
def test_without_fusing_a_step_takes_more_launches_and_fusing_comes_back(layer):
    fused = launches(layer, 7)
    with pytest.raises(ZeroDivisionError), unfused():
        assert launches(layer, 7) >= fused + 7
        1 / 0  # noqa: B018
    assert launches(layer, 7) == fused


def test_kernels_run_on_a_device_in_real_single_and_double_precision_only():
    assert fusing(strict, np.float32) and fusing(strict, np.float64)
    assert not fusing(np, np.float32) and not fusing(strict, np.complex128) and not fusing(strict, np.float16)


def test_the_complex_step_goes_through_the_explicit_passes_on_a_device(xp):
    cell = mb.LSTMCell(2, 3, rng=0, dtype=np.float64)
    x = mb.to_backend(numbers(4, 2, 2))
    mb.check_gradient(lambda: mb.sum(mb.unroll(cell, x, engine="explicit")[0]), cell, method="complex step")


# --- moving a model, its state and its optimiser ------------------------------------------------------------------


def test_model_state_and_optimiser_move_and_training_goes_on_with_the_same_numbers(xp):
    runs = []
    for moves in (False, True):
        model = mb.Sequential(mb.LSTM(D, H, layers=2, rng=0, dtype=np.float64).to("numpy"), mb.Linear(H, 2, rng=1))
        for _, p in model.named_parameters():
            p.value = mb.to_numpy(p.value).astype(np.float64)
        optimiser, losses = mb.Adam(model), []
        with mb.use_backend("numpy"):
            state = model.zero_state(B)
        place = np
        for i in range(6):
            if moves and i in (2, 4):
                place = xp if i == 2 else np
                assert model.to(place) is model and optimiser.to(place) is optimiser
                state = mb.to_backend(state, place)
            x, y = (mb.to_backend(numbers(T, B, n, seed=i), place) for n in (D, 2))
            loss, state = clean(model, optimiser, x, y, state)
            assert type(loss.value) is place.ndarray
            losses.append(loss.item())
        runs.append(losses)
        assert optimiser.t == 6 and optimiser.skipped == 0
    assert_allclose(runs[1], runs[0], rtol=1e-10)
    assert runs[0][0] != runs[0][-1]


def test_moving_keeps_every_bit_and_brings_constants_along():
    class Scaled(mb.Module):
        def __init__(self):
            self.W = mb.parameter(numbers(3))
            self.scale, self.shift = numbers(3, seed=1), mb.Tensor(numbers(3, seed=2), "shift")
            self.inner = [mb.Linear(2, 2, rng=0)]

        def __call__(self, x):
            return self.W * self.scale * x + self.shift

    model = Scaled()
    expected, parameter = mb.to_numpy(model(numbers(3))), model.W
    before = {name: p.value.copy() for name, p in model.named_parameters()}
    model.to(strict)
    assert model.W is parameter and type(model.scale) is type(model.shift.value) is DeviceArray
    assert model.shift.name == "shift"
    assert {type(p.value) for p in model.parameters().values()} == {DeviceArray}
    assert_array_equal(mb.to_numpy(model(strict.asarray(numbers(3)))), expected)
    counter.reset()
    model.to(strict)
    assert (counter.to_host, counter.to_device) == (0, 0)  # it is there already
    model.to("numpy")
    for name, p in model.named_parameters():
        assert_array_equal(p.value, before[name])
        assert not p.value.flags.writeable


def test_a_tape_that_recorded_a_model_elsewhere_refuses():
    p = mb.Linear(2, 2, rng=0)
    with mb.Tape() as tape:
        loss = mb.sum(p(np.ones((1, 2))))
    p.to(strict)
    with pytest.raises(mb.TapeError, match="has changed"):
        tape.gradient(loss, p)


@pytest.mark.parametrize("nest", [lambda h: (h, (h, [h])), lambda h: {"a": h, "b": (h,)}, lambda h: [h]])
def test_a_state_moves_whatever_its_form(nest):
    state = nest(mb.Tensor(numbers(B, H), "h"))
    there = mb.to_backend(state, strict)
    parts = [h for _, h in leaves(there)]
    assert {type(h.value) for h in parts} == {DeviceArray} and {h.name for h in parts} == {"h"}
    assert type(there) is type(state)
    back = mb.to_backend(there, "numpy")
    for (path, h), (other, g) in zip(leaves(back), leaves(state)):
        assert path == other
        assert_array_equal(h.value, g.value)


def test_a_device_is_known_by_the_name_that_errors_give_it():
    state = mb.LSTM(2, 3, rng=0).zero_state(2)
    there = mb.to_backend(state, strict.__name__)
    assert all(type(h.value) is DeviceArray for _, h in leaves(there))
    with pytest.raises(TypeError, match=r"to_numpy takes one tensor; .* mb.to_backend\(state, 'numpy'\)"):
        mb.to_numpy(there)


def test_to_backend_says_what_is_wrong_and_changes_nothing():
    model = mb.Linear(2, 2, rng=0)
    for move in (model.to, mb.SGD(model, 0.1).to, lambda name: mb.to_backend((np.ones(2),), name)):
        with pytest.raises(mb.BackendError, match="unknown backend 'torch'"):
            move("torch")
    assert type(model.W.value) is np.ndarray


def test_a_checkpoint_knows_no_device(tmp_path):
    model, optimiser, x, y, state = training(2)
    _, state = clean(model, optimiser, x, y, state)
    mb.save(tmp_path / "there", model, optimiser=optimiser, state=state)
    here = mb.Sequential(mb.LSTM(D, H, layers=2, rng=7), mb.Linear(H, 2, rng=8))
    its = mb.Adam(here)
    rest = mb.load(tmp_path / "there", here, optimiser=its)
    assert {type(h.value) for _, h in leaves(rest["state"])} == {np.ndarray}
    one, _ = clean(model, optimiser, x, y, state)
    two, _ = clean(here, its, mb.to_numpy(x), mb.to_numpy(y), rest["state"])
    assert one.item() == pytest.approx(two.item(), rel=1e-6)
    mb.save(tmp_path / "again", here, optimiser=its, state=rest["state"])
    rest = mb.load(tmp_path / "again", model, optimiser=optimiser)
    assert {type(h.value) for _, h in leaves(rest["state"])} == {DeviceArray}
    for name, p in here.parameters().items():
        assert_array_equal(mb.to_numpy(model.parameters()[name]), p.value)


# --- what meets must be in one place ------------------------------------------------------------------------------


def test_a_step_with_arrays_of_two_libraries_names_what_is_elsewhere():
    model, optimiser, x, y, state = training(1)
    with mb.Tape() as tape:
        loss = mb.mse(model(x, state)[0], y)
    gradients = tape.gradient(loss, model)
    on_host = mb.Gradients({name: mb.to_numpy(g) for name, g in gradients.items()})
    with pytest.raises(
        mb.BackendError, match=r"Adam: the gradient of 0\.0\.W_x is a numpy array, the parameter a standin"
    ):
        optimiser.step(on_host)
    model.to("numpy")
    with pytest.raises(mb.BackendError, match=r"Adam: m of 0\.0\.W_x is a standin array, the parameter a numpy"):
        optimiser.step(on_host)


MIXED = {
    "mse": lambda m, x, y, h: mb.mse(m(x, h)[0], mb.to_numpy(y)),
    "the layer's input": lambda m, x, y, h: m(mb.to_numpy(x), h),
    "the state": lambda m, x, y, h: m(x, mb.to_backend(h, "numpy")),
    "lengths": lambda m, x, y, h: m(x, h, lengths=mb.to_backend(np.array([1, 1, 1]), strict)),
    "mask": lambda m, x, y, h: m(x, h, mask=mb.to_backend(np.ones((T, B), bool), strict)),
    "resets": lambda m, x, y, h: m(x, h, resets=mb.to_backend(np.ones((T, B), bool), strict)),
    "cross_entropy": lambda m, x, y, h: mb.cross_entropy(m(x, h)[0], mb.to_backend(np.zeros((T, B), int), strict)),
    "the seed": lambda m, x, y, h: gradient_with_seed(m, x, h),
    "assign": lambda m, x, y, h: mb.assign(m.layers[1].W, np.zeros((H, 2))),
}
NAMES = {
    "mse": "subtract: input 1 .* input 2",
    "the layer's input": r"(LSTMCell|where|matmul): input 1 \(an array\) is a numpy",
    "the state": "initial state 'h' of layer 0.* is a numpy array",
    "lengths": "lengths must be on the host",
    "mask": "mask must be on the host",
    "resets": "resets must be on the host",
    "cross_entropy": "cross_entropy: the target must be on the host",
    "the seed": "the seed is a numpy array",
    "assign": "assign: W is a standin array, its new value a numpy one",
}


def gradient_with_seed(m, x, h):
    with mb.Tape() as tape:
        outputs, _ = m(x, h)
    return tape.gradient(outputs, m, seed=np.zeros(outputs.shape, np.float32))


@pytest.mark.parametrize("what", MIXED)
def test_mixed_arrays_are_an_error_that_names_the_operation_and_the_operand(what):
    model, _, x, y, state = training(1)
    with pytest.raises(mb.BackendError, match=NAMES[what]):
        MIXED[what](model, x, y, state)


# --- the exercises ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stray", STRAY, ids=lambda f: f.__name__)
def test_a_stray_copy_shows_in_the_counts(stray):
    with mb.use_backend(strict):
        model = mb.Sequential(mb.RNN(D, H, rng=0), mb.RNN(H, 2, rng=1))
        optimiser, state = mb.Adam(model), tuple([h[0] for h in model.zero_state(B)])
        x, y = (mb.to_backend(numbers(T, B, n).astype(np.float32)) for n in (D, 2))
        flat = Flat(model)
    clean(flat, optimiser, x, y, state)
    _, counts = counted(lambda: clean(flat, optimiser, x, y, state))
    assert (counts["to_host"], counts["syncs"], counts["to_device"]) == (0, 0, 0)
    _, counts = counted(lambda: stray(flat, optimiser, x, y, state))
    assert {name: counts[name] for name in STRAY[stray]} == STRAY[stray]


class Flat(mb.Module):
    """A model whose state is a flat tuple of tensors."""

    def __init__(self, model):
        self.model = model

    def named_parameters(self):
        return self.model.named_parameters()

    def __call__(self, x, state):
        outputs, after = self.model(x, tuple([(h,) for h in state]))
        return outputs, tuple([h[0] for h in after])


# --- one seed, two places (weights, data, dropout) -----------------------------------------------------------------


def test_one_seed_gives_the_same_weights_and_masks_everywhere(xp):
    there = mb.LSTM(D, H, layers=2, dropout=0.5, rng=7, dtype=np.float64)
    with mb.use_backend("numpy"):
        here = mb.LSTM(D, H, layers=2, dropout=0.5, rng=7, dtype=np.float64)
    for name, p in here.parameters().items():
        assert_array_equal(mb.to_numpy(there.parameters()[name]), p.value)
    x = numbers(T, B, D)
    for _ in range(2):
        assert_allclose(mb.to_numpy(there(mb.to_backend(x))[0]), mb.to_numpy(here(x)[0]), rtol=1e-12, atol=1e-12)
    # By hand, from NumPy's own generator: standard_normal(3) of seed 7, as host draws and a copy give it.
    drawn = mb.to_backend(np.random.default_rng(7).standard_normal(3), xp)
    assert_array_equal(mb.to_numpy(drawn), [0.0012301533574825742, 0.2987455375084699, -0.2741378553622176])


def test_a_model_that_was_copied_and_moved_is_the_same_model():
    model = mb.GRU(D, H, rng=0)
    twin = copy.deepcopy(model).to(strict)
    for name, p in model.named_parameters():
        assert_array_equal(p.value, mb.to_numpy(twin.parameters()[name]))
        assert type(p.value) is np.ndarray
