"""The measures of a gradient by part: worked by hand, and against sums over each part taken one by one."""

import math

import numpy as np
import pytest
import strict_cupy

import minibptt as mb
from minibptt.measures import MEASURES, Judge, RunningNoise
from minibptt.parts import parts_of


def judged(g, G, parts):
    """{"": {measure: value}, part: …} as floats."""
    found = Judge(mb.Gradients(G), parts)(mb.Gradients(g))
    return {part: dict(zip(MEASURES, map(float, figures))) for part, figures in zip(["", *parts], found.T)}


def test_the_five_measures_worked_by_hand():
    # G has four entries that are not 0. g has the sign of the first and the fourth, not of the second, and is 0 at the
    # third; where G is 0 nothing is counted. ⟨g, G⟩ = 6 − 2 + 0 + 8 = 12, ‖G‖² = 9 + 4 + 1 + 16 = 30,
    # ‖g‖² = 4 + 1 + 0 + 4 + 25 = 34, ‖g − G‖² = 1 + 9 + 1 + 4 + 25 = 40.
    G, g = np.array([3.0, -2.0, 1.0, 4.0, 0.0]), np.array([2.0, 1.0, 0.0, 2.0, 5.0])
    found = judged({"a": g}, {"a": G}, {"a": {"a": slice(None)}})
    expected = [12 / 30, math.sqrt(40 / 30), 12 / math.sqrt(30 * 34), math.sqrt(34 / 30), 2 / 4]
    assert found["a"] == found[""]
    assert list(found[""].values()) == pytest.approx(expected, rel=1e-15)


def test_signs_agree_however_small_the_entries_are_and_a_zero_of_g_never_agrees():
    G, g = np.array([1e-300, -1e-300, 1e-300]), np.array([1e-300, -1e-300, -0.0])
    assert judged({"a": g}, {"a": G}, {})[""]["sign"] == pytest.approx(2 / 3)


def slowly(g, G):
    """The measures from flat float64 vectors."""
    g, G = (np.concatenate([a.ravel() for a in arrays]).astype(np.float64) for arrays in (g, G))
    agree = [np.sign(a) == np.sign(b) for a, b in zip(g, G) if b != 0]
    return [
        g @ G / (G @ G),
        np.linalg.norm(g - G) / np.linalg.norm(G),
        g @ G / (np.linalg.norm(g) * np.linalg.norm(G)),
        np.linalg.norm(g) / np.linalg.norm(G),
        np.mean(agree),
    ]


def test_parameters_of_any_shape_and_gates_that_share_them_are_judged_in_one_copy_from_the_device(xp):
    shapes = {"scalar": (), "b": (6,), "W": (4, 6), "K": (2, 3, 6), "b_n": (2,)}
    parts = {name: {name: slice(None)} for name in shapes}
    gates = {
        f"gate {gate}": {name: slice(2 * i, 2 * i + 2) for name in ("b", "W", "K")} for i, gate in enumerate("rzn")
    }
    gates["gate n"]["b_n"] = slice(None)
    rng = np.random.default_rng(0)
    G, g = (
        {name: rng.integers(-3, 4, shape) * rng.random(shape).astype(np.float32) for name, shape in shapes.items()}
        for _ in range(2)
    )
    G, g = ({name: np.asarray(a, dtype=np.float32) for name, a in arrays.items()} for arrays in (G, g))
    on_device = [mb.Gradients({name: mb.to_backend(a) for name, a in arrays.items()}) for arrays in (g, G)]
    judge = Judge(on_device[1], parts | gates)
    strict_cupy.counter.reset()
    found = judge(on_device[0])
    assert strict_cupy.counter.to_host == (1 if xp is strict_cupy.xp else 0)
    wanted = [slowly(g.values(), G.values())]
    for part in (parts | gates).values():
        wanted.append(slowly(*([np.atleast_1d(a[n])[..., cols] for n, cols in part.items()] for a in (g, G))))
    np.testing.assert_allclose(found.T, wanted, rtol=1e-12)


def test_what_G_does_not_have_cannot_be_kept():
    zero, one = {"a": np.zeros(3)}, {"a": np.ones(3)}
    parts = {"a": {"a": slice(None)}}
    nothing, something = judged(zero, zero, parts)["a"], judged(one, zero, parts)["a"]
    assert (nothing["error"], something["error"]) == (0, math.inf)
    for found in (nothing, something):
        assert all(math.isnan(found[m]) for m in ("share", "cosine", "norm_ratio", "sign"))


def test_the_parts_of_an_lstm_add_up_to_the_whole():
    model = mb.LSTM(3, 4, layers=2, rng=0, dtype=np.float64)
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((7, 2, 3)), rng.standard_normal((7, 2, 4))
    G, g = (mb.bptt(model, x, y, mb.mse, schedule) for schedule in (mb.full(), mb.tbptt(2)))
    parts = parts_of(model)
    found = judged(g, G, parts)
    gates = [part for part in parts if part.startswith("gate ")]
    assert len(gates) == 8 and len(parts) - len(gates) == 6
    for names in (gates, set(parts) - set(gates)):
        size = {part: sum((G[n][..., cols] ** 2).sum() for n, cols in parts[part].items()) for part in names}
        assert math.isclose(sum(size.values()), G.dot(G), rel_tol=1e-12)
        for measure, power in (("share", 1), ("error", 2), ("norm_ratio", 2)):
            together = sum(found[part][measure] ** power * size[part] for part in names)
            assert math.isclose(together, found[""][measure] ** power * G.dot(G), rel_tol=1e-12), measure


def test_running_sums_give_the_mean_and_the_variance_of_the_draws(xp):
    rng = np.random.default_rng(0)
    G, draws = rng.standard_normal((2, 3)), rng.standard_normal((5, 2, 3))
    running = RunningNoise(mb.Gradients({"a": mb.to_backend(G)}))
    for g in draws:
        running.add(mb.Gradients({"a": mb.to_backend(g)}))
    noise, size = running.noise(), np.linalg.norm(G)
    variance = draws.var(axis=0, ddof=1).sum() / size**2
    assert noise.n == 5 and math.isclose(noise.variance, variance, rel_tol=1e-12)
    assert math.isclose(noise.bias, np.linalg.norm(draws.mean(axis=0) - G) / size, rel_tol=1e-12)
    assert math.isclose(noise.standard_error, math.sqrt(variance / 5), rel_tol=1e-12)
    assert f"{noise.bias:.3f} ± {noise.standard_error:.3f}" in str(noise)


def test_one_draw_has_no_deviation_and_a_zero_gradient_no_noise():
    for G, deviation_of_bias in ((np.ones(2), 0.0), (np.zeros(2), math.nan)):
        running = RunningNoise(mb.Gradients({"a": G}))
        running.add(mb.Gradients({"a": G}))
        noise = running.noise()
        assert math.isnan(noise.deviation) and repr(noise.bias) == repr(deviation_of_bias)
