"""SGD and Adam, their state, clipping, and gradients that are not finite."""

import math
import re
from fractions import Fraction

import numpy as np
import pytest
from strict_cupy import counter
from strict_cupy import xp as strict

import minibptt as mb


class One(mb.Module):
    def __init__(self, value, dtype=np.float64):
        self.w = mb.parameter(value, dtype=dtype)


def step(opt, **arrays):
    opt.step(mb.Gradients({name: np.array(g, float) for name, g in arrays.items()}))


def test_three_steps_of_adam_have_the_values_worked_by_hand():
    """Gradients 1, −2, 3 with β = 0.9, 0.999, lr = 0.1, ε = 0:

    m = .1, −.11, .201        m̂ = m / (1 − .9^t):    1, −.11/.19, .201/.271
    v = .001, .004999, .013994001   v̂ = v / (1 − .999^t):  1, .004999/.001999, .013994001/.002997001
    """
    model = One([1.0])
    opt, found = mb.Adam(model, lr=0.1, eps=0.0), []
    for g in (1.0, -2.0, 3.0):
        step(opt, w=[g])
        found.append(model.w.item())
    first = 1 - 0.1
    second = first + 0.1 * (0.11 / 0.19) / math.sqrt(0.004999 / 0.001999)
    third = second - 0.1 * (0.201 / 0.271) / math.sqrt(0.013994001 / 0.002997001)
    assert found == pytest.approx([first, second, third], abs=1e-13)
    assert found == pytest.approx([0.9, 0.9366103527035843, 0.9022862446743949], abs=1e-13)


def test_eps_is_added_to_the_root_and_not_under_it():
    model = One([1.0])
    step(mb.Adam(model, lr=1.0), w=[1e-8])
    assert model.w.item() == pytest.approx(0.5, abs=1e-12)  # 1e-8 / (1e-8 + ε)


def test_the_decays_are_those_that_were_given():
    model = One([0.0])
    opt = mb.Adam(model, lr=1.0, betas=(0.5, 0.75), eps=0.0)
    step(opt, w=[1.0])
    step(opt, w=[2.0])  # m̂ = (.25 + 1) / .75, v̂ = (.1875 + 1) / .4375
    assert model.w.item() == pytest.approx(-1 - (1.25 / 0.75) / math.sqrt(1.1875 / 0.4375), abs=1e-14)


def test_every_element_has_its_own_moments_and_an_unused_one_stays():
    model = One([[1.0, 2.0, 3.0]])
    opt = mb.Adam(model, lr=0.1, eps=1e-12)
    for _ in range(3):
        step(opt, w=[[5.0, -0.001, 0.0]])
    np.testing.assert_allclose(model.w.value, [[0.7, 2.3, 3.0]], rtol=0, atol=1e-9)
    assert model.w.value[0, 2] == 3.0


def test_adam_keeps_the_dtype_and_leaves_the_gradients_alone():
    for dtype in (np.float32, np.float64):
        model, g = One([1.0], dtype), np.array([0.25], dtype)
        opt = mb.Adam(model, lr=np.float64(0.1))
        for _ in range(2):
            opt.step(mb.Gradients({"w": g}))
        assert model.w.dtype == dtype and g.tolist() == [0.25] and opt.m["w"].dtype == opt.v["w"].dtype == dtype


@pytest.mark.parametrize(
    "make", [mb.Adam, lambda m: mb.SGD(m, 0.1, momentum=0.5), lambda m: mb.SGD(m, 0.1, momentum=0.5, nesterov=True)]
)
@pytest.mark.parametrize("other", [np.float64, np.float16, np.int64])
def test_moments_have_the_type_of_the_parameter_whatever_the_gradients_have(xp, make, other):
    values = np.array([1.0, -2.0, 3.0])  # the same numbers in every type
    found = []
    for dtype in (np.float32, other):
        model = One(xp.zeros(3, dtype=np.float32), np.float32)
        opt = make(model)
        for sign in (1, -1, 1):
            opt.step(mb.Gradients({"w": xp.asarray((sign * values).astype(dtype))}))
        arrays = [model.w.value, *[getattr(opt, moment)["w"] for moment in opt.moments]]
        assert {a.dtype for a in arrays} == {np.dtype(np.float32)} and opt.t == 3
        opt.restore(opt.state())
        found.append([mb.to_numpy(a).tolist() for a in arrays])
    assert found[0] == found[1]


def test_a_gradient_that_the_type_of_the_parameter_cannot_hold_moves_nothing():
    model = One([1.0], np.float32)
    opt = mb.Adam(model)
    with np.errstate(over="ignore"):
        opt.step(mb.Gradients({"w": np.array([1e300])}))
    assert model.w.item() == 1.0 and opt.skipped == 1 and opt.m["w"].tolist() == [0.0]
    with pytest.raises(TypeError, match="the gradient of w is complex128, the parameter float32"):
        opt.step(mb.Gradients({"w": np.array([1j])}))


@pytest.mark.parametrize("number", [np.float32(0.125), np.float64(0.125), np.float16(0.125), Fraction(1, 8)])
def test_every_kind_of_real_number_is_a_step_size_or_another_setting(number):
    adam = mb.Adam(One([1.0]), lr=number, betas=(number, number), eps=number)
    sgd = mb.SGD(One([1.0]), number, momentum=number)
    found = [adam.lr, *adam.betas, adam.eps, sgd.lr, sgd.momentum]
    assert found == [0.125] * 6 and {type(v) for v in found} == {float}
    g = mb.Gradients({"w": np.array([3.0, 4.0])})
    assert mb.clip_by_global_norm(g, number).norm() == pytest.approx(0.125, rel=1e-15)
    assert mb.clip_by_value(g, number)["w"].tolist() == [0.125, 0.125]


@pytest.mark.parametrize("wrong", [True, np.True_, 1j, np.complex64(1), "0.1", None, math.nan, [0.1], np.array([0.1])])
def test_what_is_no_real_number_is_no_setting_and_neither_is_a_boolean(wrong):
    model = One([1.0])
    for name, make in {
        "lr": lambda: mb.Adam(model, lr=wrong),
        "SGD: lr": lambda: mb.SGD(model, lr=wrong),
        "momentum": lambda: mb.SGD(model, 0.1, momentum=wrong),
        "beta1": lambda: mb.Adam(model, betas=(wrong, 0.9)),
        "beta2": lambda: mb.Adam(model, betas=(0.9, wrong)),
        "eps": lambda: mb.Adam(model, eps=wrong),
        "largest norm": lambda: mb.clip_by_global_norm(mb.Gradients({"w": np.ones(1)}), wrong),
        "largest value": lambda: mb.clip_by_value(mb.Gradients({"w": np.ones(1)}), wrong),
    }.items():
        error, words = (ValueError, ".*") if wrong is math.nan else (TypeError, "a number")
        with pytest.raises(error, match=f"{name}.* must be {words}, found {re.escape(repr(wrong))}"):
            make()
    with pytest.raises(ValueError, match="lr must be positive and finite"):
        mb.Adam(model, lr=10**400)


def test_a_tape_recorded_before_a_step_refuses_to_be_asked_after_it():
    model = One([1.0])
    with mb.Tape() as tape:
        loss = model.w * model.w
    mb.Adam(model).step(tape.gradient(loss, model))
    with pytest.raises(mb.TapeError, match="w has changed"):
        tape.gradient(loss, model)


def test_adam_refuses_gradients_of_another_model_and_then_moves_nothing():
    model = One([1.0])
    opt = mb.Adam(model)
    for names in ([], ["x"], ["w", "x"]):
        with pytest.raises(ValueError, match=r"gradients of .*parameters \['w'\]"):
            step(opt, **{name: [1.0] for name in names})
    assert opt.t == 0 and model.w.item() == 1.0


def test_a_model_without_parameters_cannot_be_trained():
    with pytest.raises(ValueError, match="Sequential has no parameters"):
        mb.Adam(mb.Sequential(mb.tanh))


@pytest.mark.parametrize("clip", [mb.clip_by_global_norm, mb.clip_by_value, mb.check_finite])
@pytest.mark.parametrize("wrong", [[3.0, 4.0], None, np.array([3, 4]), np.array([True]), np.array(["3"])])
def test_a_gradient_that_is_no_array_of_floats_is_refused_by_its_name(clip, wrong):
    g = {"a": np.ones(2), "b": wrong}
    with pytest.raises(TypeError, match=r"the gradient of b (must be an array|is (int64|bool|<U1), and)"):
        clip(g) if clip is mb.check_finite else clip(g, 1.0)


def test_clipping_scales_all_gradients_by_one_factor_down_to_the_given_norm():
    g = mb.Gradients({"a": np.array([3.0, 0.0]), "b": np.array([[4.0]])})
    small = mb.clip_by_global_norm(g, 1.0)
    assert small["a"].tolist() == pytest.approx([0.6, 0.0]) and small["b"].tolist() == [[pytest.approx(0.8)]]
    assert small.norm() == pytest.approx(1.0, abs=1e-15) and small.cosine(g) == pytest.approx(1.0, abs=1e-15)
    assert g.norm() == 5.0


@pytest.mark.parametrize("most", [5.0, 5.0000001, 100.0, math.inf])
def test_clipping_never_scales_up(most):
    g = mb.Gradients({"a": np.array([3.0, 0.0]), "b": np.array([[4.0]])})
    same = mb.clip_by_global_norm(g, most)
    for name in g:
        np.testing.assert_array_equal(same[name], g[name])


def test_clipping_keeps_float32_and_takes_the_norm_in_float64():
    g = mb.Gradients({"a": np.full(4, 1e30, np.float32), "b": np.zeros(2, np.float32)})
    small = mb.clip_by_global_norm(g, 1.0)
    assert small["a"].dtype == np.float32 and small["a"].tolist() == pytest.approx([0.5] * 4, rel=1e-6)


@pytest.mark.parametrize(
    ("dtype", "size"), [(np.float64, 1e200), (np.float64, 4e307), (np.float32, 1e30), (np.float32, 7e37)]
)
def test_gradients_whose_squares_pass_every_number_are_clipped_to_the_norm(xp, dtype, size):
    """‖(3, 0, 4)·s‖ = 5s, so the answer is most·(0.6, 0, 0.8)."""
    for factor in (1.0, -1.0):
        a, b = (np.array(v, dtype) * dtype(size * factor) for v in ([3.0, 0.0], [[4.0]]))
        small = mb.clip_by_global_norm(mb.Gradients({"a": xp.asarray(a), "b": xp.asarray(b)}), 2.0)
        assert {name: g.dtype for name, g in small.items()} == {"a": dtype, "b": dtype}
        found = [*mb.to_numpy(small["a"]), mb.to_numpy(small["b"]).item()]
        assert found == pytest.approx([1.2 * factor, 0.0, 1.6 * factor], rel=16 * float(np.finfo(dtype).eps))


def test_a_large_gradient_is_clipped_beside_a_small_one_of_another_type_and_an_empty_one():
    g = {"a": np.array([-3e200]), "b": np.array([4.0], np.float32), "c": np.zeros((0, 2))}
    small = mb.clip_by_global_norm(mb.Gradients(g), 0.5)
    assert small["a"].tolist() == pytest.approx([-0.5], rel=1e-15) and abs(small["b"].item()) < 1e-38
    assert mb.clip_by_global_norm(mb.Gradients(g), 1e300)["a"].tolist() == [-3e200]
    assert mb.clip_by_global_norm(mb.Gradients({"c": g["c"]}), 1.0)["c"].shape == (0, 2)


def test_ordinary_gradients_are_clipped_to_the_same_bits_as_by_the_plain_formula():
    rng = np.random.default_rng(0)
    for size in (1e-160, 1e-3, 1.0, 1e5, 1e99):
        g = {name: rng.standard_normal(shape) * size for name, shape in {"a": (7, 5), "b": (5,)}.items()}
        norm = math.sqrt(sum([float((v * v).sum()) for v in g.values()]))
        for most in (norm / 3, norm * 2):
            small = mb.clip_by_global_norm(mb.Gradients(g), most)
            for name in g:
                np.testing.assert_array_equal(small[name], g[name] * (1 / max(1.0, norm / most)))


def test_zero_gradients_stay_zero():
    g = mb.clip_by_global_norm(mb.Gradients({"a": np.zeros(3)}), 1.0)
    assert g["a"].tolist() == [0.0] * 3


def test_the_largest_norm_must_be_positive():
    for most in (0, -1.0, math.nan):
        with pytest.raises(ValueError, match=f"must be positive, found {most}"):
            mb.clip_by_global_norm(mb.Gradients({"a": np.ones(1)}), most)


@pytest.mark.parametrize("most", [1.0, 5.0, 1e300, np.inf])
def test_zero_gradients_stay_zero_whatever_the_largest_norm(most):
    g = mb.clip_by_global_norm(mb.Gradients({"a": np.zeros(3)}), most)
    assert g["a"].tolist() == [0.0] * 3


def test_adam_refuses_gradients_of_other_shapes_and_then_moves_nothing():
    layer = mb.Linear(3, 2, rng=0)
    opt = mb.Adam(layer)
    before = layer.W.value
    for shape in ((1, 1), (3, 1), (2,), (3, 2, 1)):
        with pytest.raises(ValueError, match="W"):
            opt.step(mb.Gradients({"W": np.ones(shape, np.float32), "b": np.ones(2, np.float32)}))
    assert opt.t == 0 and layer.W.value is before and opt.m["W"].shape == (3, 2)


# --- SGD ---------------------------------------------------------------------------------------------------------


def test_three_steps_of_sgd_have_the_values_worked_by_hand():
    """Gradients 1, −2, 3, lr 0.1, μ = 0.5: v = 1, −1.5, 2.25; Nesterov moves by g + μ·v = 1.5, −2.75, 4.125."""
    for options, moves in (
        ({}, [1, -2, 3]),
        ({"momentum": 0.5}, [1, -1.5, 2.25]),
        ({"momentum": 0.5, "nesterov": True}, [1.5, -2.75, 4.125]),
    ):
        model = One([1.0])
        opt, found = mb.SGD(model, 0.1, **options), []
        for g in (1.0, -2.0, 3.0):
            step(opt, w=[g])
            found.append(model.w.item())
        assert found == pytest.approx(1 - 0.1 * np.cumsum(moves), abs=1e-15)
        assert opt.t == 3 and opt.skipped == 0


def test_the_step_size_is_not_part_of_the_momentum_and_may_change():
    model = One([0.0])
    opt = mb.SGD(model, 1.0, momentum=0.5)
    step(opt, w=[4.0])
    opt.lr = 0.25
    step(opt, w=[0.0])  # v = 2
    assert model.w.item() == -4.5


@pytest.mark.parametrize("make", [lambda m: mb.SGD(m, 0.1, momentum=0.9), lambda m: mb.Adam(m, 0.1)])
def test_an_optimiser_keeps_float32(make):
    model = One([1.0, 2.0], np.float32)
    opt = make(model)
    for _ in range(2):
        opt.step(mb.Gradients({"w": np.ones(2, np.float32)}))
    assert model.w.dtype == np.float32 and all(opt.state()[f"{m}/w"].dtype == np.float32 for m in opt.moments)


@pytest.mark.parametrize("make", [lambda m: mb.SGD(m, 0.1, momentum=0.9), lambda m: mb.Adam(m, 0.1)])
def test_a_parameter_that_is_a_single_number_learns_as_one_in_an_array_does(make):
    models = One(np.float64(1.0)), One([1.0])
    for model in models:
        opt = make(model)
        for g in (1.0, -3.0, 0.5):
            opt.step(mb.Gradients({"w": np.full(model.w.shape, g)}))
        opt.restore(opt.state())
        opt.step(mb.Gradients({"w": np.full(model.w.shape, 2.0)}))
    assert models[0].w.item() == models[1].w.item() != 1.0 and models[0].w.shape == ()


class Shared(mb.Module):
    """Says that one parameter is two, as no module of ours does."""

    def __init__(self):
        self.w = mb.parameter([1.0])

    def named_parameters(self):
        yield "a", self.w
        yield "b", self.w


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda: mb.SGD(One([1.0]), 0), ValueError, "SGD: lr must be positive and finite, found 0"),
        (lambda: mb.SGD(One([1.0]), 0.1, momentum=1.0), ValueError, "momentum must be at least 0 and below 1"),
        (lambda: mb.SGD(One([1.0]), 0.1, nesterov=True), ValueError, "needs momentum"),
        (lambda: mb.SGD(mb.Sequential(mb.tanh), 0.1), ValueError, "Sequential has no parameters"),
        (lambda: mb.SGD(Shared(), 0.1), ValueError, "a and b are one parameter, which would be moved twice"),
        (lambda: mb.Adam([One([1.0])] * 2), TypeError, "one module, found list.*0.w and 1.w, which are one parameter"),
        (lambda: mb.Adam({"w": 1}), TypeError, "a cell, a layer or another Module, found dict"),
        (lambda: mb.SGD(One, 0.1), TypeError, "found the class One: call it, to make one"),
        (lambda: mb.Adam(One([1.0]), betas=(0.9, 1.0)), ValueError, "beta2 must be at least 0 and below 1, found 1.0"),
        (lambda: mb.Adam(One([1.0]), betas=0.9), TypeError, "betas must be two numbers.*found 0.9"),
        (lambda: mb.Adam(One([1.0]), betas=(0.9, "x")), TypeError, "beta2 must be a number, found 'x'"),
        (lambda: mb.Adam(One([1.0]), eps=-1), ValueError, "eps must be at least 0 and finite, found -1"),
        (lambda: mb.Adam(One([1.0]), eps=None), TypeError, "eps must be a number, found None"),
        (lambda: mb.Adam(One([1.0])).restore(None), TypeError, r"restore takes what state\(\) gave, found NoneType"),
        (lambda: mb.Adam(One([1.0])).step({"w": [1.0]}), TypeError, "the gradient of w must be an array, found list"),
        (lambda: mb.Adam(One([1.0])).step({"v": np.ones(1)}), ValueError, "make one for this model"),
        (lambda: mb.clip_by_global_norm({}, None), TypeError, "largest norm must be a number, found None"),
        (lambda: mb.clip_by_value({}, "x"), TypeError, "largest value must be a number, found 'x'"),
        (lambda: mb.clip_by_global_norm([1], 1.0), TypeError, "takes tape.gradient.*found list"),
        (lambda: mb.clip_by_value(None, 1.0), TypeError, "takes tape.gradient.*found NoneType"),
        (lambda: mb.SGD(One([1.0]), 0.1).step([1.0]), TypeError, "tape.gradient"),
    ],
)
def test_mistakes_are_named(make, error, words):
    with pytest.raises(error, match=words):
        make()


# --- its state in a checkpoint -----------------------------------------------------------------------------------

OPTIMISERS = {
    "sgd": lambda m: mb.SGD(m, 0.1),
    "momentum": lambda m: mb.SGD(m, 0.1, momentum=0.9, nesterov=True),
    "adam": lambda m: mb.Adam(m, 0.1, betas=(0.5, 0.75), eps=1e-3),
}


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_training_that_is_restored_goes_on_to_the_bit_whatever_the_new_optimiser_was_given(kind, xp):
    def train(model, opt, gs):
        for g in gs:
            opt.step(mb.Gradients({"W": xp.asarray(np.full((2, 3), g)), "b": xp.asarray(np.array([g, -g, 1.0]))}))
        return [mb.to_numpy(p.value) for p in model.parameters().values()]

    gs = [1.0, -0.3, 2.0, 0.7, -1.5]
    model = mb.Linear(2, 3, rng=0, dtype=np.float64)
    expected = train(model, OPTIMISERS[kind](model), gs)
    one = mb.Linear(2, 3, rng=0, dtype=np.float64)
    opt = OPTIMISERS[kind](one)
    train(one, opt, gs[:3])
    kept = opt.state()
    assert kept["t"] == 3 and type(kept["t"]) is int and kept["lr"] == 0.1
    kept = {name: np.asarray(mb.to_numpy(value)) for name, value in kept.items()}  # as from a file
    two = mb.Linear(2, 3, rng=5, dtype=np.float64)
    for name, p in one.parameters().items():
        mb.assign(two.parameters()[name], p.value)
    again = {"sgd": lambda m: mb.SGD(m, 9.0), "momentum": lambda m: mb.SGD(m, 9.0, momentum=0.1), "adam": mb.Adam}[
        kind
    ](two)
    again.restore(kept)
    for a, b in zip(train(two, again, gs[3:]), expected):
        np.testing.assert_array_equal(a, b)
    assert again.t == 5 and again.lr == 0.1
    train(one, opt, gs[3:])  # the state that was kept is a copy
    assert set(kept) == set(again.state()) and {f"{m}/{n}" for m in opt.moments for n in ("W", "b")} <= set(kept)


def test_a_state_of_another_optimiser_or_model_is_refused_and_changes_nothing():
    model = One([1.0, 2.0])
    opt = mb.Adam(model, 0.1)
    step(opt, w=[1.0, 2.0])
    kept = opt.state()
    for wrong, error, words in [
        (mb.SGD(model, 0.1).state(), ValueError, "missing .*'beta1'.*unknown .*'momentum'"),
        (kept | {"v/w": np.zeros(3), "lr": 5.0}, ValueError, r"v/w has shape \(3,\), the parameter \(2,\)"),
        (kept | {"v/w": np.zeros(2, np.float32), "lr": 5.0}, TypeError, "v/w is float32, the parameter float64"),
        ({}, ValueError, "missing"),
    ]:
        with pytest.raises(error, match=words):
            opt.restore(wrong)
        assert opt.lr == 0.1 and opt.t == 1 and (opt.m["w"] == kept["m/w"]).all()


# --- gradients that are not finite ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", OPTIMISERS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_not_finite_moves_nothing_and_the_next_step_is_as_if_it_had_not_been(kind, bad, xp):
    def run(gs):
        model = mb.Linear(1, 2, rng=0, dtype=np.float64)
        opt = OPTIMISERS[kind](model)
        for g in gs:
            opt.step(mb.Gradients({"W": xp.asarray(np.array([[1.0, 2.0]])), "b": xp.asarray(np.array([g, 1.0]))}))
        return opt, opt.state() | {name: p.value for name, p in model.named_parameters()}

    for gs in ([bad], [bad, 0.5], [0.5, bad], [0.5, bad, bad, -1.0]):
        (opt, found), (_, expected) = run(gs), run([g for g in gs if np.isfinite(g)])
        assert opt.skipped == sum(not np.isfinite(g) for g in gs)
        for name, value in expected.items():
            np.testing.assert_array_equal(mb.to_numpy(found[name]), mb.to_numpy(value), err_msg=name)


@pytest.mark.parametrize(
    "clip", [lambda g: g, lambda g: mb.clip_by_global_norm(g, 1.0), lambda g: mb.clip_by_value(g, 1.0)]
)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_the_first_parameter_with_a_gradient_that_is_not_finite_is_named_also_after_clipping(clip, bad, xp):
    g = mb.Gradients(
        {"a": xp.asarray(np.ones(2)), "b": xp.asarray(np.array([1.0, bad, bad])), "c": xp.asarray(np.ones(1))}
    )
    with pytest.raises(ValueError, match="the gradient of b is not finite: 2 of its 3 numbers are NaN or infinite"):
        mb.check_finite(clip(g))
    good = mb.Gradients({"a": xp.asarray(np.array([1e300, -7.0]))})
    assert mb.check_finite(good) is good and mb.check_finite(mb.Gradients({})) == {}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("other", [np.float32, np.float64])
def test_no_step_and_no_clipping_waits_for_the_device_and_a_check_waits_once(dtype, other):
    with mb.use_backend(strict):
        model = mb.Linear(2, 2, rng=0, dtype=dtype)
        g = mb.Gradients({name: strict.asarray(np.ones(p.shape, other)) for name, p in model.named_parameters()})
        for opt in (mb.SGD(model, 0.1, momentum=0.9), mb.Adam(model)):
            for _ in range(2):
                counter.reset()
                opt.step(mb.clip_by_value(mb.clip_by_global_norm(g, 1.0), 0.5))
                assert counter.syncs == counter.to_host == counter.to_device == 0
        mb.check_finite(g)
        assert counter.syncs == 1


# --- clipping by value ---------------------------------------------------------------------------------------------


def test_clipping_by_value_brings_each_number_between_the_limits_and_never_scales_up(xp):
    g = mb.Gradients({"a": xp.asarray(np.array([3.0, -0.5, -9.0])), "b": xp.asarray(np.array([[0.0]], np.float32))})
    small = mb.clip_by_value(g, 1.0)
    assert mb.to_numpy(small["a"]).tolist() == [1.0, -0.5, -1.0] and mb.to_numpy(small["b"]).tolist() == [[0.0]]
    assert small["b"].dtype == np.float32 and mb.to_numpy(g["a"]).tolist() == [3.0, -0.5, -9.0]
    for most in (9.0, 1e300, math.inf):
        assert mb.to_numpy(mb.clip_by_value(g, most)["a"]).tolist() == [3.0, -0.5, -9.0]
    for most in (0, -1.0, math.nan):
        with pytest.raises(ValueError, match=f"must be positive, found {most}"):
            mb.clip_by_value(g, most)


def test_an_optimiser_that_does_not_say_how_it_changes_a_parameter_cannot_be_made():
    class Still(mb.optim.Optimiser):
        pass

    with pytest.raises(TypeError, match=r"abstract.*_change"):
        Still(One([1.0]), 0.1)


@pytest.mark.parametrize("change", [lambda g: mb.clip_by_global_norm(g, 0.5), lambda g: g * 0.5, lambda g: (g + g) / 4])
def test_a_parameter_of_one_number_is_clipped_and_moved_like_any_other(change):
    """NumPy's arithmetic makes a number of an array of shape (), and that is a gradient too. ∂(w²/2)/∂w = w = 1."""
    model = One(1.0)
    with mb.Tape() as tape:
        loss = model.w * model.w / 2
    g = change(tape.gradient(loss, model))
    assert mb.check_finite(mb.clip_by_value(mb.clip_by_global_norm(g, 9.0), 9.0))["w"] == 0.5
    mb.SGD(model, lr=1.0).step(g)
    assert model.w.item() == 0.5


def test_a_norm_that_was_worked_out_on_a_device_clips_and_divides(xp):
    """A sum on a device is an array of shape (), and no Python number."""
    g = mb.Gradients({"w": xp.asarray([3.0, 4.0])})
    most = xp.sum(xp.asarray([1.5, 1.0]))
    assert mb.to_numpy(mb.clip_by_global_norm(g, most)["w"]).tolist() == pytest.approx([1.5, 2.0])
    x = mb.to_backend([2.0, 4.0], xp)
    assert mb.mse(x, xp.zeros_like(x), count=xp.sum(xp.ones(4))).item() == pytest.approx((4 + 16) / 4)
