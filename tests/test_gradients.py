"""The mapping that `tape.gradient(loss, model)` answers with: arithmetic, and the four ways to compare two."""

import math

import numpy as np
import pytest

import minibptt as mb


def grads(w, b, dtype=np.float64):
    return mb.Gradients({"w": np.array(w, dtype), "b": np.array(b, dtype)})


A = grads([[1.0, 2.0], [0.0, 2.0]], [4.0])  # ‖A‖ = 5
B = grads([[2.0, 0.0], [0.0, 0.0]], [1.5])  # ‖B‖ = 2.5, ⟨A, B⟩ = 8
ZERO = grads(np.zeros((2, 2)), [0.0])


def plain(g):
    return {name: array.tolist() for name, array in g.items()}


def test_gradients_are_a_mapping_in_the_order_of_the_parameters():
    assert list(A) == ["w", "b"] and len(A) == 2 and "w" in A and "x" not in A
    assert dict(A)["b"] is A["b"] and A.get("x") is None
    with pytest.raises(KeyError, match="no parameter 'x'; there are w, b"):
        A["x"]
    with pytest.raises(TypeError):
        A["w"] = np.zeros((2, 2))
    assert repr(A) == "Gradients(w 2×2, b 1; norm 5)"


def test_gradients_do_not_follow_the_dict_that_they_were_made_from():
    arrays = {"w": np.ones(2)}
    g = mb.Gradients(arrays)
    arrays["b"] = np.ones(1)
    assert list(g) == ["w"]


def test_gradients_add_subtract_and_scale():
    assert plain(A + B) == {"w": [[3.0, 2.0], [0.0, 2.0]], "b": [5.5]}
    assert plain(A - B) == {"w": [[-1.0, 2.0], [0.0, 2.0]], "b": [2.5]}
    assert plain(2 * A) == plain(A * 2) == {"w": [[2.0, 4.0], [0.0, 4.0]], "b": [8.0]}
    assert plain(A / 2) == {"w": [[0.5, 1.0], [0.0, 1.0]], "b": [2.0]}
    assert plain(-A) == {"w": [[-1.0, -2.0], [0.0, -2.0]], "b": [-4.0]}
    assert plain(A) == {"w": [[1.0, 2.0], [0.0, 2.0]], "b": [4.0]}


def test_a_sum_may_begin_with_zero_on_either_side():
    assert A + 0 == A + 0.0 == 0 + A == sum([A]) == A
    assert sum([A, B]) == A + B
    with pytest.raises(TypeError, match="Gradients meet Gradients; found float"):
        A + 1.0


def test_arithmetic_makes_new_arrays_and_keeps_float32():
    a = grads([1.0], [2.0], np.float32)
    for g in (a + a, a - a, 2 * a, a * 0.5, a / 3, -a):
        assert g["w"].dtype == np.float32 and not np.shares_memory(g["w"], a["w"])
    assert a["w"].item() == 1.0


def test_the_measures_have_the_values_worked_by_hand():
    assert A.norm() == 5.0 and B.norm() == 2.5 and A.dot(B) == B.dot(A) == 8.0
    assert A.cosine(B) == 0.64
    assert B.share(A) == 0.32  # 8 / 25
    assert A.share(B) == 1.28  # 8 / 6.25: a share can exceed 1
    assert (-A).share(A) == -1.0 and (-A).cosine(A) == -1.0
    assert B.relative_error(A) == pytest.approx(math.sqrt(25 + 6.25 - 16) / 5, abs=1e-15)
    assert (2 * A).relative_error(A) == 1.0
    assert A.share(A) == A.cosine(A) == 1.0 and A.relative_error(A) == 0.0


def test_measures_against_zero():
    assert math.isnan(A.cosine(ZERO)) and math.isnan(ZERO.cosine(A)) and math.isnan(A.share(ZERO))
    assert A.relative_error(ZERO) == math.inf and ZERO.relative_error(ZERO) == 0.0
    assert ZERO.relative_error(A) == 1.0 and ZERO.share(A) == 0.0 and ZERO.norm() == 0.0


def test_a_plain_dict_is_compared_with_too():
    other = dict(B)
    assert (A.dot(other), A.cosine(other), B.share(dict(A))) == (8.0, 0.64, 0.32)
    assert B.relative_error(dict(A)) == B.relative_error(A)
    assert plain(A + other) == plain(A + B)


def test_sums_over_elements_are_taken_in_float64():
    ones = mb.Gradients({"w": np.full(1000, 1e-30, np.float32), "b": np.full(1, 1e30, np.float32)})
    assert ones.norm() == pytest.approx(1e30, rel=1e-6)  # in float32 the square is inf
    tiny = mb.Gradients({"w": np.full(100, 1e-30, np.float32)})
    assert tiny.norm() == pytest.approx(1e-29, rel=1e-6)  # in float32 it is 0
    big = mb.Gradients({"w": np.array([4096.0, 1.0], np.float32)})
    assert big.dot(big) == 4096**2 + 1  # in float32 the 1 is lost
    assert type(big.norm()) is type(big.dot(big)) is float


@pytest.mark.parametrize("measure", ["__add__", "__sub__", "dot", "cosine", "relative_error", "share"])
def test_gradients_of_other_parameters_or_shapes_do_not_meet(measure):
    with pytest.raises(ValueError, match=r"different parameters: .*'b', 'w'.*'w'"):
        getattr(A, measure)(mb.Gradients({"w": A["w"]}))
    with pytest.raises(ValueError, match=r"'w' have shapes \(2, 2\) and \(2, 1\)"):
        getattr(A, measure)(mb.Gradients({"w": np.ones((2, 1)), "b": np.ones(1)}))
    with pytest.raises(ValueError, match=r"'b' have shapes \(1,\) and \(\)"):
        getattr(A, measure)({"w": A["w"], "b": np.array(1.0)})


def test_only_gradients_add_and_only_numbers_scale():
    for wrong in (1.0, np.ones(2), [A]):
        with pytest.raises(TypeError, match="Gradients meet Gradients; found"):
            A + wrong
    with pytest.raises(TypeError, match=r"a\.dot\(b\)"):
        A * B


def test_a_tape_answers_with_one_array_for_each_parameter_of_its_shape_and_dtype():
    model = mb.Sequential(mb.Linear(2, 3, rng=0), mb.Linear(3, 1, rng=1))
    with mb.Tape() as tape:
        loss = mb.sum(model.layers[0](np.ones((4, 1, 2))))
    g = tape.gradient(loss, model)
    assert isinstance(g, mb.Gradients)
    assert {name: (a.shape, a.dtype) for name, a in g.items()} == {
        name: (p.shape, p.dtype) for name, p in model.named_parameters()
    }
    assert not g["1.W"].any() and g["0.b"].tolist() == [4.0] * 3  # what the loss does not reach gets zeros


def test_numpy_numbers_scale_gradients_from_both_sides_and_keep_float32():
    g = mb.Gradients({"w": np.array([1.0, 2.0], np.float32)})
    for scaled in (g * np.float64(2), np.float64(2) * g, np.float32(2) * g, np.int64(2) * g, g / np.float64(0.5)):
        assert isinstance(scaled, mb.Gradients)
        assert scaled["w"].tolist() == [2.0, 4.0] and scaled["w"].dtype == np.float32


def test_gradients_are_equal_where_every_bit_is():
    same = grads([[1.0, 2.0], [0.0, 2.0]], [4.0])
    assert same == A and A != B and A != {"W": 1} and A != 3
    assert grads([[1.0, 2.0], [0.0, 2.0]], [4.0 + 1e-15]) != A
