"""Losses: means over what is real, and over nothing else."""

import math

import numpy as np
import pytest

import minibptt as mb


def wave(*shape, k=0):
    """½·sin(k + 1), ½·sin(k + 2), … in `shape`."""
    return (0.5 * np.sin(np.arange(np.prod(shape, dtype=int)) + 1 + k)).reshape(shape)


def ask(loss, x, *arguments, **options):
    """(the loss, its gradient by x)."""
    with mb.Tape() as tape:
        x = tape.watch(x)
        value = loss(x, *arguments, **options)
    return value.item(), tape.gradient(value, x)


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


# --- cross-entropy ---------------------------------------------------------------------------------------------


def test_a_masked_mean_divides_by_the_real_steps_alone():
    """Two rows of three and one real steps; the mean over all six places would be 0.868, of row means 1.343."""
    logits, target = wave(2, 3, 4).swapaxes(0, 1), [[1, 0], [2, 0], [3, 0]]
    row = [-0.18981481694346697, 0.0800495928173067, 0.06752423665969333, 0.042240987466466956]
    for options in ({"lengths": [3, 1]}, {"mask": [[1, 1], [1, 0], [1, 0]]}):
        loss, g = ask(mb.cross_entropy, logits, target, **options)
        assert loss == pytest.approx(1.3025079502969448, abs=1e-15)
        np.testing.assert_allclose(g[:, 1], [row, [0.0] * 4, [0.0] * 4], rtol=0, atol=1e-15)
        assert (g[1:, 1] == 0).all()


@pytest.mark.parametrize("T", [1, 10, 100])
def test_uniform_logits_cost_log_v_at_any_length(T):
    for V in (1, 2, 26):
        logits, target = np.full((100, 2, V), 7.0), np.arange(200).reshape(100, 2) % V
        loss, _ = ask(mb.cross_entropy, logits, target, lengths=[T, 0])
        assert loss == pytest.approx(math.log(V), abs=1e-14)


@pytest.mark.parametrize("shape", [(7,), (5, 3), (4, 2, 3), ()])
def test_the_gradient_of_cross_entropy_is_softmax_minus_one_hot_over_the_count(shape):
    V = 5
    logits = 8 * wave(*shape, V)
    target = np.arange(math.prod(shape)).reshape(shape) % V
    loss, g = ask(mb.cross_entropy, logits, target)
    count, p = math.prod(shape), softmax(logits)
    np.testing.assert_allclose(g, (p - np.eye(V)[target]) / count, rtol=0, atol=1e-14)
    picked = np.take_along_axis(p, target[..., None], axis=-1)
    assert loss == pytest.approx(-np.log(picked).mean(), abs=1e-14)


def test_masked_cross_entropy_has_that_gradient_at_real_steps_and_exact_zeros_elsewhere():
    logits, target = wave(4, 3, 6), np.arange(12).reshape(4, 3) % 6
    real = np.arange(4)[:, None] < [4, 0, 2]
    _, g = ask(mb.cross_entropy, logits, target, lengths=[4, 0, 2])
    np.testing.assert_allclose(g[real], ((softmax(logits) - np.eye(6)[target]) / 6)[real], rtol=0, atol=1e-14)
    assert (g[~real] == 0).all()


def test_logits_of_minus_infinity_are_allowed():
    logits = np.array([[0.0, 0.0, -np.inf], [-np.inf, 5.0, -np.inf]])
    loss, g = ask(mb.cross_entropy, logits, [0, 1])
    assert loss == pytest.approx(math.log(2) / 2, abs=1e-15)
    np.testing.assert_allclose(g, [[-0.25, 0.25, 0.0], [0.0, 0.0, 0.0]], rtol=0, atol=1e-15)
    loss, g = ask(mb.cross_entropy, logits, [2, 1])  # an answer that was ruled out
    assert loss == math.inf
    np.testing.assert_allclose(g, [[0.25, 0.25, -0.5], [0.0, 0.0, 0.0]], rtol=0, atol=1e-15)


def test_huge_logits_neither_overflow_nor_lose_the_answer():
    loss, g = ask(mb.cross_entropy, np.array([[1e300, 0.0], [-1e300, 0.0]]), [0, 0])
    assert loss == 5e299 and g.tolist() == [[0.0, 0.0], [-0.5, 0.5]]


# --- mean squared error ----------------------------------------------------------------------------------------


def test_a_masked_mean_of_squares_divides_by_entries_not_by_steps():
    loss, g = ask(mb.mse, np.zeros((3, 2, 2)), np.ones((3, 2, 2)), lengths=[3, 1])
    assert loss == 1.0  # divided by the four real steps it would be 2
    assert g[:, 1].tolist() == [[-0.25, -0.25], [0.0, 0.0], [0.0, 0.0]]
    assert ask(mb.mse, np.zeros((3, 2)), np.ones((3, 2)), lengths=[3, 1])[0] == 1.0
    assert ask(mb.mse, np.zeros((3, 2, 4, 5)), np.ones((3, 2, 4, 5)), lengths=[3, 1])[0] == 1.0


def test_the_gradient_of_a_mean_of_squares_is_twice_the_error_over_the_count():
    prediction, target = np.array([[1.0, 2.0], [3.0, 5.0]]), [[0, 0], [1, 1]]
    loss, g = ask(mb.mse, prediction, target)
    assert loss == 6.25 and g.tolist() == [[0.5, 1.0], [1.0, 2.0]]  # (1 + 4 + 4 + 16) / 4
    with mb.Tape() as tape:
        target = tape.watch(np.array(target, float))
        value = mb.mse(prediction, target)
    assert tape.gradient(value, target).tolist() == [[-0.5, -1.0], [-1.0, -2.0]]


def test_a_column_against_a_row_of_numbers_is_an_error_and_no_broadcast():
    for prediction, target in [((4, 1), (4,)), ((4,), (4, 1)), ((4, 1), (1, 4)), ((4,), ()), ((2, 3), (3,))]:
        with pytest.raises(ValueError, match="must be the same; reshape") as error:
            mb.mse(np.zeros(prediction), np.zeros(target))
        assert str(prediction) in str(error.value) and str(target) in str(error.value)


# --- both ------------------------------------------------------------------------------------------------------

T, B, V = 7, 3, 4
LENGTHS = np.array([7, 0, 5])
REAL = np.arange(T)[:, None] < LENGTHS
CASES = {
    "cross_entropy": (mb.cross_entropy, wave(T, B, V), np.arange(T * B).reshape(T, B) % V, 12),
    "mse": (mb.mse, wave(T, B, V), wave(T, B, V, k=9), 48),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("fill", [np.nan, np.inf, -np.inf, 1e300])
def test_what_stands_at_padded_places_is_never_seen(name, fill):
    loss, prediction, target, _ = CASES[name]
    clean, g_clean = ask(loss, prediction, target, lengths=LENGTHS)
    dirty = np.where(REAL[..., None], prediction, fill)
    ids = name == "cross_entropy"
    for hidden in (-1, V, 2**62) if ids else (fill,):
        target = np.where(REAL if ids else REAL[..., None], target, hidden)
        for options in ({"lengths": LENGTHS}, {"mask": REAL}, {"mask": REAL, "lengths": LENGTHS}):
            value, g = ask(loss, dirty, target, **options)
            assert value == clean
            np.testing.assert_array_equal(g, g_clean)
    assert (g[~REAL] == 0).all() and (g[REAL] != 0).all()


@pytest.mark.parametrize("name", CASES)
def test_a_batch_without_a_real_step_has_the_loss_zero_and_zero_gradients(name):
    loss, prediction, target, _ = CASES[name]
    for options in ({"lengths": [0] * B}, {"mask": np.zeros((T, B))}):
        value, g = ask(loss, np.full_like(prediction, np.nan), target, **options)
        assert value == 0.0 and (g == 0).all()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("k", [1, 2, 3, 7])
def test_chunks_that_divide_by_the_count_of_the_whole_add_up_to_the_whole(name, k):
    loss, prediction, target, count = CASES[name]
    whole, g_whole = ask(loss, prediction, target, lengths=LENGTHS)
    total, pieces = 0.0, []
    for s in range(0, T, k):
        here = slice(s, s + k)
        value, g = ask(loss, prediction[here], target[here], mask=REAL[here], count=count)
        total, pieces = total + value, [*pieces, g]
    assert total == pytest.approx(whole, abs=1e-14)
    np.testing.assert_allclose(np.concatenate(pieces), g_whole, rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", CASES)
def test_a_mask_that_is_true_everywhere_changes_nothing(name):
    loss, prediction, target, _ = CASES[name]
    plain, masked = ask(loss, prediction, target), ask(loss, prediction, target, mask=np.ones((T, B)))
    assert plain[0] == masked[0]
    np.testing.assert_array_equal(plain[1], masked[1])


@pytest.mark.parametrize("name", CASES)
def test_float32_stays_float32(name):
    loss, prediction, target, _ = CASES[name]
    w = mb.parameter(prediction, dtype=np.float32)
    for options in ({}, {"lengths": LENGTHS}, {"mask": REAL.astype(float), "count": np.float64(5)}):
        with mb.Tape() as tape:
            value = loss(w, target, **options)
        assert value.dtype == tape.gradient(value, w).dtype == np.float32
    assert mb.parameter(prediction).dtype == loss(mb.parameter(prediction), target).dtype == np.float64


@pytest.mark.parametrize("name", CASES)
def test_what_was_given_is_not_changed(name):
    loss, prediction, target, _ = CASES[name]
    mask = REAL.copy()
    before = [a.copy() for a in (prediction, target, mask)]
    ask(loss, prediction, target, mask=mask)
    for a, b in zip((prediction, target, mask), before):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", CASES)
def test_a_count_that_is_not_positive_is_an_error(name):
    loss, prediction, target, _ = CASES[name]
    for count in (0, -1, math.nan):
        with pytest.raises(ValueError, match=f"{name}: count must be positive and finite, found {count}"):
            loss(prediction, target, count=count)
    with pytest.raises(TypeError, match=f"{name}: count must be a number, found 'a'"):
        loss(prediction, target, count="a")


@pytest.mark.parametrize("name", CASES)
def test_padding_words_that_do_not_fit_are_errors(name):
    loss, prediction, target, _ = CASES[name]
    with pytest.raises(ValueError, match=r"\(T, B\) = \(7, 3\), found \(3, 7\)"):
        loss(prediction, target, mask=REAL.T)
    with pytest.raises(ValueError, match="between 0 and T = 7, found 0 … 8"):
        loss(prediction, target, lengths=[8, 0, 1])
    flat = (prediction[0, 0], target[0, 0])
    with pytest.raises(ValueError, match=rf"{name}: lengths and mask need sequences"):
        loss(*flat, mask=[1])


BAD_TARGETS = {
    "an id of V": (lambda t: np.where(t == 1, V, t), ValueError, ["target 4 at (0, 1)", "outside 0 … 3", "5 such"]),
    "an id of −1": (lambda t: t - 1, ValueError, ["target -1 at (0, 0)", "outside 0 … 3"]),
    "floats": (lambda t: t.astype(float), TypeError, ["integers", "float64"]),
    "bools": (lambda t: t > 1, TypeError, ["integers", "bool"]),
    "one-hots": (lambda t: np.eye(V, dtype=int)[t], ValueError, ["(7, 3, 4)", "shape (7, 3)"]),
    "batch first": (lambda t: t.T, ValueError, ["(3, 7)", "shape (7, 3)"]),
    "one number": (lambda t: t[0, 0], ValueError, ["found ()", "shape (7, 3)"]),
}


@pytest.mark.parametrize("what", BAD_TARGETS)
def test_targets_of_cross_entropy_that_are_no_ids_are_errors(what):
    change, kind, words = BAD_TARGETS[what]
    _, logits, target, _ = CASES["cross_entropy"]
    with pytest.raises(kind, match="cross_entropy") as error:
        mb.cross_entropy(logits, change(target))
    assert [word for word in words if word not in str(error.value)] == []


def test_an_impossible_id_at_a_real_step_is_an_error_under_a_mask_too():
    _, logits, target, _ = CASES["cross_entropy"]
    with pytest.raises(ValueError, match=r"target 9 at \(4, 2\)"):
        mb.cross_entropy(logits, np.where((np.arange(T) == 4)[:, None], 9, target), mask=REAL & [False, True, True])


@pytest.mark.parametrize("T, B, K", [(3, 2, 4), (3, 3, 3)])
def test_a_mask_over_steps_and_rows_covers_every_target_of_a_step(T, B, K):
    rng = np.random.default_rng(0)
    logits, target, mask = rng.normal(size=(T, B, K, 5)), rng.integers(0, 5, (T, B, K)), rng.random((T, B)) < 0.6
    expected = mb.cross_entropy(logits[mask], target[mask]).item()
    assert mb.cross_entropy(logits, target, mask=mask).item() == pytest.approx(expected, rel=1e-14)


def test_a_mask_needs_targets_with_time_and_rows():
    with pytest.raises(ValueError, match="lengths and mask need sequences"):
        mb.cross_entropy(np.zeros((3, 3)), np.zeros(3, int), mask=np.ones((3, 3)))
