"""States between batches: carried on, reset in some rows, checked and named by layer, and read backwards."""

import numpy as np
import pytest
from strict_cupy import xp as strict
from toys import Scalar

import minibptt as mb
from minibptt.nest import leaves

f64 = np.float64


def wave(*shape, k=0):
    """½·sin(k + 1), ½·sin(k + 2), … in `shape`."""
    return (0.5 * np.sin(np.arange(np.prod(shape, dtype=int)) + 1 + k)).reshape(shape)


def model(dtype=f64):
    return mb.Sequential(
        mb.Linear(2, 3, rng=0, dtype=dtype),
        mb.LSTM(3, 4, layers=2, rng=1, dtype=dtype),
        mb.Stack(mb.GRUCell(4, 3, rng=2, dtype=dtype), mb.RNNCell(3, 3, rng=3, dtype=dtype)),
        mb.RNNCell(3, 2, rng=4, dtype=dtype),
    )


# --- reset -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [[1], (1,), np.array([1]), [False, True, False], np.array([0, 1, 0], bool), [1, 1]])
def test_rows_that_are_reset_start_from_zero_and_the_others_go_on(rows):
    m, x = model(), wave(6, 3, 2)
    _, state = m(x[:3])
    with mb.Tape() as tape:
        carried = tape.watch(state)
        out, after = m(x[3:], mb.reset(carried, rows))
        loss = mb.sum(out * wave(*out.shape))
    fresh, fresh_after = m(x[3:, 1:2])
    on, _ = m(x[3:], state)
    np.testing.assert_allclose(out.value[:, 1], fresh.value[:, 0], rtol=0, atol=1e-14)
    np.testing.assert_allclose(out.value[:, [0, 2]], on.value[:, [0, 2]], rtol=0, atol=1e-14)
    for (_, a), (_, b) in zip(leaves(after), leaves(fresh_after), strict=True):
        np.testing.assert_allclose(a.value[1], b.value[0], rtol=0, atol=1e-14)
    for _, h in leaves(carried):
        g = tape.gradient(loss, h)
        assert (g[1] == 0).all() and (g[[0, 2]] != 0).all()
    for (_, a), (_, b) in zip(leaves(mb.reset(state, rows)), leaves(state), strict=True):
        assert (a.value[1] == 0).all() and (b.value[1] != 0).all() and a.name == b.name  # what was given stays


def test_a_reset_of_all_rows_is_the_zero_state_with_no_past_and_knows_no_cut():
    m, x = model(), wave(4, 2, 2)
    with mb.Tape() as tape:
        first = tape.watch(x)
        _, state = m(first)
        out, _ = m(x, mb.reset(state))
        loss = mb.sum(out)
    assert tape.cuts == [] and (tape.gradient(loss, first, through_cuts=True) == 0).all()
    np.testing.assert_array_equal(out.value, m(x)[0].value)
    for (path, a), (zero_path, b) in zip(leaves(mb.reset(state)), leaves(m.zero_state(2)), strict=True):
        assert path == zero_path and (a.value == b.value).all() and a.dtype == b.dtype
    both = mb.reset(mb.reset(state, [0]), [1])
    assert all((h.value == 0).all() for _, h in leaves(both))
    assert mb.reset(()) == () and mb.reset((), [0]) == () and mb.reset(None) is None


def test_an_infinite_state_leaves_nothing_behind_in_a_row_that_is_reset():
    state = {"h": np.array([[np.inf], [2.0]]), "c": [np.array([[np.nan], [3.0]])]}
    found = mb.reset(state, [True, False])
    assert found["h"].value.tolist() == [[0.0], [2.0]] and found["c"][0].value.tolist() == [[0.0], [3.0]]
    assert np.isinf(state["h"][0])


def test_a_reset_between_chunks_is_a_reset_inside_the_sequence():
    m, x, resets = model(), wave(6, 3, 2), np.zeros((6, 3), bool)
    resets[4, [0, 2]] = True
    whole, end = m(x, resets=resets)
    out, state = m(x[:4])
    late, after = m(x[4:], mb.reset(mb.cut(state), [0, 2]))
    np.testing.assert_allclose(np.concatenate([out.value, late.value]), whole.value, rtol=0, atol=1e-14)
    for (_, a), (_, b) in zip(leaves(after), leaves(end), strict=True):
        np.testing.assert_allclose(a.value, b.value, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    "state, rows, error, words",
    [
        (np.zeros((3, 2)), [3], ValueError, "no row 3; rows are numbered 0 to 2"),
        (np.zeros((3, 2)), [-1], ValueError, "no row -1"),
        (np.zeros((3, 2)), [True, False], ValueError, r"booleans for 3 rows must have shape \(3,\), found \(2,\)"),
        (np.zeros((3, 2)), [0.0], TypeError, "row numbers or booleans"),
        ((np.zeros((3, 2)), np.zeros((2, 2))), [0], ValueError, r"\(B, …\) with one B; found 0 \(3, 2\), 1 \(2, 2\)"),
        ((np.zeros(()),), [0], ValueError, r"\(B, …\)"),
    ],
)
def test_rows_that_are_not_there_are_an_error(state, rows, error, words):
    with pytest.raises(error, match=words):
        mb.reset(state, rows)


def test_reset_works_where_the_state_lives(xp):
    m = model()
    _, state = m(xp.asarray(wave(3, 3, 2)))
    with mb.use_backend("numpy"):
        for rows in (None, [0, 2], np.array([True, False, True])):
            for (_, a), (_, b) in zip(leaves(mb.reset(state, rows)), leaves(state), strict=True):
                expected = mb.to_numpy(b).copy()
                expected[slice(None) if rows is None else rows] = 0
                assert type(a.value) is type(b.value)
                np.testing.assert_array_equal(mb.to_numpy(a), expected)
        m(xp.asarray(wave(3, 3, 2)), m.zero_state(3))


# --- a state that does not fit names its layer ---------------------------------------------------------------------

PLACES = {  # where in the model's state, and how an error calls it
    "1.0 (LSTMCell)": lambda bad: (((bad, bad), None), None, None),
    "1.1 (LSTMCell)": lambda bad: ((None, (bad, bad)), None, None),
    "2.0 (GRUCell)": lambda bad: (None, (bad, None), None),
    "2.1 (RNNCell)": lambda bad: (None, (None, bad), None),
    "3 (RNNCell)": lambda bad: (None, None, bad),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("taped", [True, False])
def test_a_state_of_another_shape_batch_or_dtype_names_its_layer(place, taped):
    m, x = model(), wave(4, 2, 2)
    for bad, error, words in [
        (np.zeros((2, 9)), ValueError, r"\(2, 9\)"),
        (np.zeros((5, 1)), ValueError, r"\(5, 1\); for a batch of 2 rows"),
        (mb.zeros((2, 1), np.float32), TypeError, "is float32 and must be float64"),
        ({"h": np.zeros((2, 1))}, ValueError, "found one"),
    ]:
        layer, name = place.split(" ")
        with pytest.raises(error) as caught:
            if taped:
                with mb.Tape():
                    m(x, PLACES[place](bad))
            else:
                m(x, PLACES[place](bad))
        assert f"layer {layer} {name}" in str(caught.value)
        assert caught.match(words)
        with pytest.raises(ValueError, match=r"^the initial state 'h' of RNNCell has shape"):  # the place is forgotten
            mb.unroll(m[3], wave(4, 2, 3), np.zeros((7, 2)))


def test_a_state_on_another_device_names_its_layer():
    with mb.use_backend(strict):
        m, x = model(), strict.asarray(wave(4, 2, 2))
    state = m.zero_state(2)  # on the device of the weights, though new arrays are made on the host again
    m(x, state)
    host = ((state[0][0], tuple(mb.to_numpy(h) for h in state[0][1])), *state[1:])
    with pytest.raises(mb.BackendError, match=r"layer 1\.1 \(LSTMCell\) is a numpy array and must be a standin one"):
        m(x, host)


def test_inputs_of_another_width_name_the_layer_too():
    m = mb.Sequential(mb.Linear(2, 3, rng=0), mb.LSTM(4, 4, rng=1))
    with pytest.raises(
        ValueError, match=r"layer 1.* takes sequences \(T, B, D = 4\), time first; found shape \(4, 2, 3\)"
    ):
        m(wave(4, 2, 2))


def test_a_state_given_as_an_array_and_a_complex_one_still_fit():
    m, x = model(np.float32), wave(3, 2, 2).astype(np.float32)
    state = (None, None, wave(2, 2))  # float64, but an array
    assert m(x, state)[0].dtype == np.float32
    out, _ = mb.unroll(mb.RNNCell(2, 2, rng=0, dtype=f64), wave(3, 2, 2), mb.Tensor(wave(2, 2) + 1e-20j))
    assert out.dtype == np.complex128


# --- initial states that learn, and rows read backwards --------------------------------------------------------------


@pytest.mark.parametrize("engine", ["tape", "explicit"])
def test_a_learnable_state_for_all_rows_in_the_state_of_a_model_has_the_sum_over_the_batch_as_its_gradient(engine):
    rows = [
        [0.8216017767104191, 0.7506315449256661],
        [0.4541659014847085, 0.6741951589546462],
        [0.44822627937899934, 0.7497202356472766],
    ]
    total = [1.723993957574127, 2.174546939527589]
    layer = mb.RNN(2, 2, engine=engine, dtype=f64)
    for p, value in zip(layer.parameters().values(), (2 * wave(2, 2, k=1), 2 * wave(2, 2, k=2), np.zeros(2))):
        mb.assign(p, value)
    for shape, expected in {(2,): total, (1, 2): [total], (3, 2): rows}.items():
        h0 = mb.parameter(np.broadcast_to(wave(2, k=4), shape))
        with mb.Tape() as tape:
            _, ((h,),) = mb.Sequential(layer)(wave(2, 3, 2), ((h0,),))
            loss = mb.sum(h)
        np.testing.assert_allclose(tape.gradient(loss, h0), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("engine", ["tape", "explicit"])
def test_a_padded_row_is_read_backwards_from_its_own_last_step(engine):
    """Reversed with its mask, a batch padded on the right is one padded on the left; the numbers are PyTorch's."""
    x, real = wave(2, 4, 1).swapaxes(0, 1), np.array([[1, 1], [1, 1], [1, 0], [1, 0]], bool)
    x = np.where(real[..., None], x, np.nan)
    directions = []
    for k in (0, 4):  # PyTorch's parameters are (H, D), (H, H), (H,), (H,), filled one after the other
        cell = mb.RNNCell(1, 2, dtype=f64)
        weights = [2 * wave(2, 1, k=k).T, 2 * wave(2, 2, k=k + 1).T, 2 * wave(2, k=k + 2) + 2 * wave(2, k=k + 3)]
        for p, value in zip(cell.parameters().values(), weights):
            mb.assign(p, value)
        directions.append(cell)
    _, forward = mb.unroll(directions[0], x, lengths=[4, 2], engine=engine)
    _, backward = mb.unroll(directions[1], x[::-1], mask=real[::-1], engine=engine)
    prefix = np.stack([x[[3, 2, 1, 0], 0], x[[1, 0, 2, 3], 1]], axis=1)  # only the real prefix of each row reversed
    _, same = mb.unroll(directions[1], prefix, lengths=[4, 2], engine=engine)
    expected = [[-0.9425919083289754, -0.6247753819674265], [-0.9170757386050334, -0.3158730492822369]]
    np.testing.assert_allclose(forward.value, expected, rtol=0, atol=1e-14)
    expected = [[0.9268820647719808, 0.9890877265027966], [0.9845985796265094, 0.9931753706799948]]
    np.testing.assert_allclose(backward.value, expected, rtol=0, atol=1e-14)
    np.testing.assert_allclose(same.value, expected, rtol=0, atol=1e-14)


def test_a_state_of_one_part_may_stand_in_any_cell():
    _, h = mb.unroll(Scalar(), np.ones((2, 3, 1)), mb.reset(np.ones((3, 1)), [1]))
    assert h.value.ravel().tolist() == [1.75, 1.5, 1.75]  # ½·(½·h₀ + 1) + 1
