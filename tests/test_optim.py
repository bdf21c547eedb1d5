"""Adam and clipping by the global norm."""

import math

import numpy as np
import pytest

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
    with pytest.raises(ValueError, match="Sequential has no parameters to learn"):
        mb.Adam(mb.Sequential(mb.tanh))


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
