"""Evaluation: the loss of the whole sequence, with the state carried or reset, and by position."""

import functools
import math

import numpy as np
import pytest

import minibptt as mb
from minibptt.sampling import draw

TOKENS = np.random.default_rng(0).integers(0, 5, 3 * 23 + 1)  # three rows of 23 steps


def model_of(dropout=0.0):
    return mb.Sequential(
        mb.Embedding(5, 4, rng=0, dtype=np.float64),
        mb.GRU(4, 6, layers=2, dropout=dropout, rng=1, dtype=np.float64),
        mb.Linear(6, 5, rng=2, dtype=np.float64),
    )


def stream_of(steps, batch=3):
    return mb.stream_batches(TOKENS, batch=batch, steps=steps)


def each_step(model, reset_every=None):
    """The loss at each step of the whole sequence, worked out on its own: (23,)."""
    x, y = TOKENS[:69].reshape(3, 23).T, TOKENS[1:70].reshape(3, 23).T
    found = []
    for a in range(0, 23, reset_every or 23):
        outputs = model(x[a : a + (reset_every or 23)])[0].value
        p = np.exp(outputs) / np.exp(outputs).sum(-1, keepdims=True)
        found += [-np.log(np.take_along_axis(q, ids[:, None], 1)).mean() for q, ids in zip(p, y[a:])]
    return np.array(found)


@pytest.mark.parametrize("reset_every", [None, 1, 4, 5, 7, 23, 100])
@pytest.mark.parametrize("steps", [1, 4, 5, 23, 50])
def test_the_loss_is_that_of_the_whole_sequence_however_long_the_windows_are(steps, reset_every):
    model = model_of()
    found = mb.evaluate(model, stream_of(steps), reset_every=reset_every)
    expected, k = each_step(model, reset_every), min(reset_every or steps, 23)
    assert found.loss == pytest.approx(expected.mean(), rel=1e-12) and found.targets == 69
    assert found.bits == pytest.approx(expected.mean() / math.log(2), rel=1e-12)
    by_position = [expected[i::k].mean() for i in range(k)]
    np.testing.assert_allclose(found.by_position, by_position, rtol=1e-12)


def test_it_changes_nothing(xp):
    model, stream = model_of(dropout=0.5), stream_of(5)
    next(stream)
    drop = model[1].dropouts[0]
    before = drop.rng.bit_generator.state
    one, two = mb.evaluate(model, stream), mb.evaluate(model, stream)
    assert one.loss == two.loss and stream.position == 5 and drop.rng.bit_generator.state == before
    assert drop.training and one.loss == mb.evaluate(model.eval(), stream).loss


def test_an_iterator_is_read_from_where_it_stands():
    model = model_of()
    rows = functools.partial(lambda: iter(TOKENS[:69].reshape(3, 23).T))
    whole = each_step(model)
    found = mb.evaluate(model, mb.stream_batches(rows(), batch=3, steps=5), windows=2)
    assert found.loss == pytest.approx(whole[:10].mean(), rel=1e-12) and found.targets == 30
    stream = mb.stream_batches(rows(), batch=3, steps=5)
    assert mb.evaluate(model, stream).targets == 66
    with pytest.raises(ValueError, match="nothing left to evaluate"):
        mb.evaluate(model, stream)


@pytest.mark.parametrize("options", [{"reset_every": 10**15}, {"reset_every": 10**30}, {"steps": 10**15}])
def test_nothing_is_made_larger_than_the_stream(options):
    model, whole = model_of(), each_step(model_of())
    steps, reset_every = options.get("steps", 5), options.get("reset_every")
    rows = iter(TOKENS[:69].reshape(3, 23).T)
    for stream, n in ((stream_of(steps), 23), (mb.stream_batches(rows, batch=3, steps=steps), 22)):
        found = mb.evaluate(model, stream, reset_every=reset_every)
        np.testing.assert_allclose(found.by_position, whole[:n], rtol=1e-12)
        assert found.loss == pytest.approx(whole[:n].mean(), rel=1e-12)
        assert (found.by_position if found.by_position.base is None else found.by_position.base).size <= 64


def test_the_loss_is_asked_once_for_each_position_of_a_window():
    """A window of 10 steps with the state zero at every third: positions 0, 1, 2, in the first window from 0."""
    asked = []

    def loss(outputs, y):
        asked.append(len(y))
        assert outputs.shape[:2] == y.shape
        return mb.cross_entropy(outputs, y)

    found = mb.evaluate(model_of(), stream_of(10), loss, reset_every=3)
    assert asked == [4, 3, 3, 4, 3, 3, 1, 1, 1]
    assert found.loss == pytest.approx(each_step(model_of(), 3).mean(), rel=1e-12)


@pytest.mark.parametrize("error", [ArithmeticError("bad"), KeyboardInterrupt()])
def test_the_stream_stands_where_it_stood_after_an_error_too(error):
    model, stream, asked = model_of(dropout=0.5), stream_of(5), []
    next(stream), next(stream)

    def loss(outputs, y):
        asked.append(1)
        if len(asked) == 12:
            raise error
        return mb.cross_entropy(outputs, y)

    with pytest.raises(type(error)):
        mb.evaluate(model, stream, loss)
    assert stream.position == 10 and model.training and model[1].dropouts[0].training


def test_other_losses_and_targets_of_more_numbers():
    x = np.random.default_rng(1).standard_normal((41, 2))
    y = np.random.default_rng(2).standard_normal((41, 3))
    model = mb.Sequential(mb.RNN(2, 3, rng=0, dtype=np.float64))
    found = mb.evaluate(model, mb.stream_batches(x, batch=2, steps=7, targets=y), mb.mse)
    outputs, _ = model(x[:40].reshape(2, 20, 2).swapaxes(0, 1))
    assert found.loss == pytest.approx(((outputs.value.swapaxes(0, 1).reshape(40, 3) - y[:40]) ** 2).mean(), rel=1e-12)
    assert found.targets == 120 and "state carried" in str(found)
    cold = mb.evaluate(model, mb.stream_batches(x, batch=2, steps=7, targets=y), mb.mse, reset_every=7)
    assert "zero every 7 steps" in str(cold)


def test_what_cannot_be_evaluated_says_so():
    with pytest.raises(TypeError, match="made by stream_batches, found ndarray"):
        mb.evaluate(model_of(), TOKENS)
    for wrong in ({"reset_every": 0}, {"windows": 0}):
        with pytest.raises(ValueError, match="must be at least 1"):
            mb.evaluate(model_of(), stream_of(5), **wrong)


# --- sampling ----------------------------------------------------------------------------------------------------


def test_each_id_is_drawn_from_the_softmax_of_what_stood_before():
    model, rng = model_of(), np.random.default_rng(7)
    found = list(mb.sample(model, [1, 2, 3], 20, rng=7, temperature=0.7))
    ids = [1, 2, 3]
    for i in found:  # the whole sequence anew for each, from the beginning
        logits = model(np.array(ids)[:, None])[0].value[-1, 0] / 0.7
        p = np.exp(logits) / np.exp(logits).sum()
        assert i == np.searchsorted(np.cumsum(p), rng.random(), side="right")
        ids.append(i)
    assert len(found) == 20 and len(set(found)) > 1
    assert found == list(mb.sample(model, [1, 2, 3], 20, rng=7, temperature=0.7))


def test_the_frequencies_are_those_of_the_softmax():
    logits, rng, n = np.array([0.0, 1.0, -np.inf, 2.0]), np.random.default_rng(0), 20_000
    for temperature in (0.5, 1.0, 3.0):
        p = np.exp(logits / temperature) / np.exp(logits / temperature).sum()
        seen = np.bincount([draw(logits, temperature, rng) for _ in range(n)], minlength=4) / n
        assert (abs(seen - p) <= 6 * (p * (1 - p) / n) ** 0.5).all() and seen[2] == 0
    assert {draw(logits, 0, rng) for _ in range(9)} == {3} == {draw(logits.astype(np.float32), 1e-12, rng)}


def test_sampling_works_on_the_device_and_leaves_the_model_alone(xp):
    model = model_of(dropout=0.5)
    first = list(mb.sample(model, [0], 8, rng=1))
    assert first == list(mb.sample(model, [0], 8, rng=1)) and model.training
    with mb.use_backend("numpy"):
        assert first == list(mb.sample(model_of(), [0], 8, rng=1))


def test_what_cannot_be_sampled_says_so():
    for start, options, words in [
        ([], {}, "one or more ids"),
        ([[1]], {}, "one or more ids"),
        ([1], {"temperature": -1}, "at least 0"),
        ([1], {"temperature": float("nan")}, "at least 0"),
        ([1], {"length": 0}, "at least 1"),
        ([7], {}, "7"),
    ]:
        with pytest.raises((ValueError, IndexError), match=words):
            list(mb.sample(model_of(), start, **{"length": 3, **options}))


def test_a_model_whose_outputs_are_nan_draws_nothing():
    for temperature in (0, 1):
        with pytest.raises(ValueError, match="outputs are NaN"):
            draw(np.array([0.0, np.nan, 1.0]), temperature, np.random.default_rng(0))


def test_a_function_without_a_state_may_give_arrays_and_get_an_empty_state():
    x = np.arange(12.0)[:, None]
    found = mb.evaluate(lambda x: x + 1, mb.stream_batches(x, batch=2, steps=3, targets=x), mb.mse)
    assert found.loss == 1.0
    outputs, state = mb.sequence.run(lambda x: x + 1, x[:, None], ())
    assert state is None and outputs.shape == (12, 1, 1)
    with pytest.raises(TypeError, match="has no state"):
        mb.sequence.run(lambda x: x + 1, x[:, None], (x[0],))
