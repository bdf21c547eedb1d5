"""Full BPTT in segments that are run again: the gradient of the whole tape, in the memory of a segment."""

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_truncation import assert_close, make_model, squares
from test_updates import Counting, explicit_model, mse_on_a_part

import minibptt as mb
from minibptt.cutting import accumulate

f64 = np.float64


def by_one_tape(model, x, y, loss, state=None, **options):
    with mb.Tape() as tape:
        outputs, _ = model(x, state, **options)
        value = loss(outputs, y) if "mask" not in options else loss(outputs, y, mask=options["mask"])
    return tape.gradient(value, model)


class WithStart(mb.Sequential):
    """Any layers, with an initial state that is learnt."""

    def __init__(self, layers, start):
        super().__init__(*layers)
        self.start = start

    def children(self):
        yield from super().children()
        yield "start", self.start


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_the_gradient_is_that_of_one_tape_over_everything(data):
    T, B = data.draw(st.integers(1, 9), "T"), data.draw(st.integers(1, 3), "B")
    segments = data.draw(st.none() | st.integers(1, T), "segments")
    rng = np.random.default_rng(data.draw(st.integers(0, 99), "seed"))
    model = data.draw(st.sampled_from([make_model, explicit_model]), "engine")(rng)
    loss = data.draw(st.sampled_from([squares, mb.mse]), "loss")
    x, y = rng.standard_normal((T, B, 2)), rng.standard_normal((T, B, 3))
    real, resets = rng.random((T, B)) < 0.8, rng.random((T, B)) < 0.2
    state = mb.nest.map_nest(lambda h: mb.Tensor(rng.standard_normal(h.shape)), model.zero_state(B))
    if data.draw(st.booleans(), "learnt"):
        state = mb.nest.map_nest(lambda h: mb.parameter(h.value), state)
        model = WithStart(model.layers, state)
    options = {"mask": real, "resets": resets}
    expected = by_one_tape(model, x, y, loss, state, **options)
    found = mb.bptt(model, x, y, loss, mb.recompute(segments), state=state, **options)
    assert_close(found, expected, 1e-12 * (1 + expected.norm()))
    if data.draw(st.booleans(), "one by one"):
        run = mb.updates(model, x, y, mse_on_a_part, mb.recompute(segments), state=state, **options)
        ((_, found),) = run
        assert_close(found, by_one_tape(model, x, y, mse_on_a_part, state, **options), 1e-12 * (1 + found.norm()))
        for (_, h), (_, g) in zip(
            mb.nest.leaves(run.state), mb.nest.leaves(model(x, state, **options)[1]), strict=True
        ):
            np.testing.assert_allclose(h.value, g.value, rtol=1e-12)


def test_float32_stays_float32_and_lengths_are_taken():
    model = mb.Sequential(mb.LSTM(2, 8, layers=2, rng=0), mb.Linear(8, 1, rng=1))
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((20, 3, 2)).astype(np.float32), rng.standard_normal((20, 3, 1)).astype(np.float32)
    full, found = (mb.bptt(model, x, y, mb.mse, s, lengths=[20, 11, 0]) for s in (mb.full(), mb.recompute(6)))
    assert found.relative_error(full) < 1e-6 and {g.dtype for g in found.values()} == {np.dtype(np.float32)}


def test_a_linear_recurrence_has_the_gradient_worked_by_hand():
    # h_t = w·h_{t−1} + x_t, L = Σ h_t: with w = ½, h₀ = 2, x = 1 … 6 it is 38.8125, and for h₀ .984375.
    cell, x = Counting(), np.arange(1.0, 7.0).reshape(6, 1, 1)
    cell.h0 = mb.parameter([[2.0]], dtype=f64)
    for segments in (1, 2, 4, 6):
        cell.steps = 0
        g = mb.bptt(cell, x, None, lambda out, y: mb.sum(out), mb.recompute(segments), state=cell.h0)
        assert (g["w"].item(), g["h0"].item()) == (38.8125, 0.984375)
        assert cell.steps == (6 if segments == 1 else 12)  # two forward passes at most


@pytest.mark.parametrize("engine", ["tape", "explicit"])
def test_dropout_has_the_same_masks_when_a_segment_is_run_again(engine):
    rng = np.random.default_rng(0)
    recurrent = mb.LSTM(2, 4, layers=3, dropout=0.4, rng=0, dtype=f64, engine=engine)
    model = mb.Sequential(recurrent, mb.Dropout(0.3, rng=5), mb.Linear(4, 3, rng=1, dtype=f64))
    twin = copy.deepcopy(model)
    x, y = rng.standard_normal((9, 2, 2)), rng.standard_normal((9, 2, 3))
    expected = by_one_tape(twin, x, y, mb.mse)
    assert_close(mb.bptt(model, x, y, mb.mse, mb.recompute(4), dropout=True), expected, 1e-13)
    assert_close(mb.bptt(model, x, y, mb.mse, mb.full(), dropout=True), by_one_tape(twin, x, y, mb.mse), 1e-13)
    for one, two in zip(model.layers[0].dropouts, twin.layers[0].dropouts):
        assert one.rng.bit_generator.state == two.rng.bit_generator.state  # as after one run each


class Odd(mb.Cell):
    """A state that is a dict of a tensor, one that is passed through, and a counter of steps that has no adjoint."""

    def __init__(self):
        self.w = mb.parameter([[0.5, 0.1], [-0.3, 0.7]], dtype=f64)

    def zero_state(self, batch):
        return {"h": mb.zeros((batch, 2)), "kept": (mb.ones((batch, 2)),), "n": mb.Tensor(np.zeros((batch, 1), int))}

    def step(self, x, state):
        h = mb.tanh(state["h"] @ self.w + x * state["kept"][0]) + 0.1 * state["h"]
        n = mb.Tensor(state["n"].value + 1)
        return h, {"h": h, "kept": state["kept"], "n": n}


def test_states_of_any_form_go_through():
    rng = np.random.default_rng(0)
    x, y, cell = rng.standard_normal((7, 2, 2)), rng.standard_normal((7, 2, 2)), Odd()
    full = mb.bptt(cell, x, y, mb.mse, mb.full())
    for segments in (2, 3, 7):
        assert_close(mb.bptt(cell, x, y, mb.mse, mb.recompute(segments)), full, 1e-14)
    cell.kept = mb.parameter([[0.3, 0.4]] * 2, dtype=f64)
    state = {**cell.zero_state(2), "kept": (cell.kept,)}  # the adjoint is passed on through every segment
    full = mb.bptt(cell, x, y, mb.mse, mb.full(), state=state)
    assert_close(mb.bptt(cell, x, y, mb.mse, mb.recompute(3), state=state), full, 1e-14)
    run = mb.updates(cell, x, y, mb.mse, mb.recompute(3))
    list(run)
    assert run.state["n"].value.tolist() == [[7], [7]]


def test_the_tape_is_as_long_as_a_segment():
    x, lengths = np.ones((60, 1, 1)), {}
    for segments in (1, 4, 10, 60):
        cell = Counting()
        mb.bptt(cell, x, x, mb.mse, mb.recompute(segments))
        lengths[segments] = cell.records
    steps = {1: 60, 4: 15, 10: 6, 60: 1}
    assert lengths == {n: 2 * (most - 1) for n, most in steps.items()}  # before the last step, two records each


def test_its_plan_is_that_of_full_bptt_and_it_says_what_it_does():
    assert mb.recompute(3).plan(7) == mb.full().plan(7)
    np.testing.assert_array_equal(mb.recompute(3).coverage(7), np.tri(7))
    assert [str(mb.recompute(n)) for n in (8, None)] == [
        "full, recomputed in 8 segments",
        "full, recomputed in √T segments",
    ]
    assert [mb.recompute().plan(T).segments for T in (1, 2, 3, 100, 1000)] == [1, 1, 2, 10, 32]
    for T, n, longest in [(7, 3, 3), (8, 4, 2), (7, 7, 1), (100, 32, 4)]:
        plan = mb.recompute(n).plan(T)
        lengths = np.diff(plan.bounds)
        assert plan.bounds[0] == 0 and lengths.sum() == T and lengths.max() == longest and lengths.min() >= longest - 1
        assert mb.recompute(n).describe(T).longest == longest and mb.full().describe(T).longest == T
    assert mb.recompute(np.int64(3)) == mb.recompute(3) != mb.recompute()


def test_segments_that_do_not_fit_are_errors():
    with pytest.raises(ValueError, match="segments must be at least 1, found 0"):
        mb.recompute(0)
    with pytest.raises(TypeError, match=r"segments must be a whole number, found 2\.5"):
        mb.recompute(2.5)
    with pytest.raises(ValueError, match="8 segments need at least as many steps, found T = 7"):
        mb.recompute(8).plan(7)


def test_compare_measures_the_memory_of_a_segment():
    rng = np.random.default_rng(0)
    model = mb.Sequential(mb.LSTM(4, 32, rng=0, dtype=f64), mb.Linear(32, 1, rng=1, dtype=f64))
    x, y = rng.standard_normal((256, 4, 4)), rng.standard_normal((256, 4, 1))
    full, segments = mb.compare(model, x, y, mb.mse, [mb.full(), mb.recompute(16)]).rows
    assert (full.longest, segments.longest) == (256, 16)
    assert segments.values["error"] == full.values["error"] == (0.0,)
    assert segments.peak_bytes < full.peak_bytes / 4
    assert segments.seconds > 0


def test_accumulate_takes_its_plan():
    rng = np.random.default_rng(0)
    model, x, seeds = explicit_model(rng), rng.standard_normal((9, 2, 2)), rng.standard_normal((9, 2, 3))
    full, parts = (accumulate(model, x, seeds, schedule.plan(9)) for schedule in (mb.full(), mb.recompute(4)))
    assert_close(parts, full, 1e-13)


def test_it_runs_where_the_arrays_are(xp):
    model = mb.Sequential(mb.GRU(2, 3, rng=0), mb.RNNCell(3, 2, rng=1), mb.Linear(2, 1, rng=2))
    x, y = (mb.to_backend(np.linspace(-1, 1, 12 * n, dtype=np.float32).reshape(6, 2, n)) for n in (2, 1))
    full, parts = (mb.bptt(model, x, y, mb.mse, s, lengths=[6, 3]) for s in (mb.full(), mb.recompute(3)))
    assert parts.relative_error(full) < 1e-6
