"""The gradients of a schedule one by one.

At frozen weights their sum is Σ w·C; with weights that move they are those of a loop written out by hand: a tape for
each window, from the state that was kept at its start.
"""

import copy
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strict_cupy import counter
from test_truncation import LOSSES, assert_close, make_model, squares
from toys import Scalar

import minibptt as mb
from minibptt.plans import Factors
from minibptt.sequence import real_steps

f64 = np.float64


def explicit_model(rng):
    return mb.Sequential(
        mb.LSTM(2, 3, rng=rng, dtype=f64),
        mb.GRU(3, 2, layers=2, rng=rng, dtype=f64),
        mb.Linear(2, 3, rng=rng, dtype=f64),
    )


MODELS = {"tape": make_model, "explicit": explicit_model}


def mse_on_a_part(outputs, y, mask=None, count=None):
    """A loss of one's own that can be asked on a part of the steps."""
    return mb.mse(outputs, y, mask=mask, count=count) * 2.0


ALL_LOSSES = LOSSES | {"count": (mse_on_a_part, LOSSES["mse"][1])}


def draw_schedule(data, T):
    k1, k2 = data.draw(st.integers(1, T + 1), "k1"), data.draw(st.integers(1, T + 1), "k2")
    losses = data.draw(st.sampled_from(["new", "last"]), "losses")
    offset = data.draw(st.integers(0, k1 - 1), "offset")
    schedules = [mb.tbptt(k1, k2, offset, losses), mb.tbptt(k1, offset=offset), mb.artbp(0.3), mb.full()]
    return data.draw(st.sampled_from([*schedules, mb.recompute(min(k1, T))]), "schedule")


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_at_frozen_weights_the_updates_add_up_to_bptt_and_to_the_weighted_contributions(data):
    T, B = data.draw(st.integers(1, 7), "T"), data.draw(st.integers(1, 3), "B")
    schedule = draw_schedule(data, T)
    name = data.draw(st.sampled_from(sorted(ALL_LOSSES)), "loss")
    (loss, make_target), rng = ALL_LOSSES[name], np.random.default_rng(data.draw(st.integers(0, 99), "seed"))
    model = MODELS[data.draw(st.sampled_from(sorted(MODELS)), "engine")](np.random.default_rng(rng.integers(1000)))
    x, y = rng.standard_normal((T, B, 2)), make_target(rng, T, B)
    options = {
        "lengths": data.draw(st.none() | st.lists(st.integers(0, T), min_size=B, max_size=B), "lengths"),
        "mask": rng.random((T, B)) < 0.7 if data.draw(st.booleans(), "mask") else None,
        "resets": rng.random((T, B)) < 0.3 if data.draw(st.booleans(), "resets") else None,
    }
    steps = list(mb.updates(model, x, y, loss, schedule, rng=5, **options))
    found = sum((g for _, g in steps), 0)
    by_bptt = mb.bptt(model, x, y, loss, schedule, rng=5, **options)
    real = real_steps(T, B, options["lengths"], options["mask"])
    if real is not None and not real.any():  # there is nothing to compare
        assert found.norm() == by_bptt.norm() == 0
        return
    c = mb.contributions(model, x, y, loss, **options)
    weighted = c.gradient(schedule, 5)
    size = 1 + weighted.norm()
    assert_close(found, by_bptt, 1e-12 * size)
    assert_close(found, weighted, 1e-11 * size)

    plan = schedule.plan(T, 5)
    assert len(steps) == len(plan.updates)
    values = [value.item() for value, _ in steps]
    if name == "not a sum over steps":
        np.testing.assert_allclose(values, c.loss, rtol=1e-11)  # the whole loss each time
    elif sum(len(update.losses) for update in plan.updates) == T:
        assert sum(values) == pytest.approx(c.loss, rel=1e-11, abs=1e-14)


# --- weights that move ------------------------------------------------------------------------------------------------

# For T = 7 by hand: where each window starts and ends, and the first loss that it owns (from 0).
WINDOWS = {
    mb.tbptt(3): [(0, 3, 0), (3, 6, 3), (6, 7, 6)],
    mb.tbptt(2, 5): [(0, 2, 0), (0, 4, 2), (1, 6, 4), (2, 7, 6)],
    mb.tbptt(4, 2): [(2, 4, 2), (5, 7, 5)],
    mb.tbptt(2, 5, losses="last"): [(0, 2, 1), (0, 4, 3), (1, 6, 5), (2, 7, 6)],
    mb.tbptt(1, 3): [(0, 1, 0), (0, 2, 1), (0, 3, 2), (1, 4, 3), (2, 5, 4), (3, 6, 5), (4, 7, 6)],
}


def descend(model, gradients, rate=0.1):
    for name, p in model.named_parameters():
        mb.assign(p, p.value - rate * gradients[name])


def by_hand(cell, x, y, windows, whole):
    """(loss, gradients) of each window by a loop of one's own, and the last state; the weights move after each.

    whole: the loss is `squares` of the newest outputs of all steps; else it is the mean squared error of the owned
    steps, divided by the number of all.
    """
    B = x.shape[1]
    states, reached, answers = {0: cell.zero_state(B)}, 0, []
    newest = mb.unroll(cell, x)[0].value.copy()
    for start, end, first in windows:
        while reached < start:  # a gap
            out, states[reached + 1] = mb.unroll(cell, x[reached : reached + 1], states[reached])
            newest[reached] = out.value[0]
            reached += 1
        with mb.Tape() as tape:
            h, outputs = mb.cut(states[start]), []
            for t in range(start, end):
                out, h = mb.unroll(cell, x[t : t + 1], h)
                outputs.append(out)
                states[t + 1] = h
            outputs = mb.concatenate(outputs)
            if whole:
                # What stands before the owned steps is as new as the window, but belongs to other updates.
                before = mb.cut(outputs[: first - start])
                mine = mb.concatenate([newest[:start], before, outputs[first - start :], newest[end:]])
                loss = squares(mine, y)
            else:
                error = outputs[first - start :] - y[first:end]
                loss = mb.sum(error * error) * (1 / y.size)
        newest[start:end] = outputs.value
        reached = end
        answers.append((loss.item(), tape.gradient(loss, cell)))
        descend(cell, answers[-1][1])
    return answers, states[end]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("schedule", list(WINDOWS), ids=str)
def test_with_weights_that_move_the_updates_are_those_of_a_loop_by_hand(schedule, whole):
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((7, 2, 2)), rng.standard_normal((7, 2, 3))
    make = lambda: mb.LSTMCell(2, 3, rng=0, dtype=f64)  # noqa: E731
    expected, last = by_hand(make(), x, y, WINDOWS[schedule], whole)
    for cell, model in [(c := make(), c), ((layer := mb.LSTM(2, 3, rng=1, dtype=f64)).cells[0], layer)]:
        for p, q in zip(cell.parameters().values(), make().parameters().values()):
            mb.assign(p, q.value)  # the same weights; a layer runs by the explicit engine
        run = mb.updates(model, x, y, squares if whole else mb.mse, schedule)
        assert len(expected) == len(WINDOWS[schedule])
        for (loss, gradients), (value, wanted) in zip(run, expected, strict=True):
            assert loss.item() == pytest.approx(value, rel=1e-12)
            for g, w in zip(gradients.values(), wanted.values(), strict=True):
                np.testing.assert_allclose(g, w, rtol=0, atol=1e-12)
            descend(model, gradients)
        state = run.state if model is cell else run.state[0]
        for h, g in zip(state, last):
            np.testing.assert_allclose(h.value, g.value, rtol=1e-12)


def test_no_stale_gradient_stands_between_overlapping_windows():
    # h_t = w·h_{t−1}, w = .2, h₀ = .9: dh₃/dw = 3·w²·h₀ = .108. Gradients kept on the states of an earlier window and
    # added to would make it .288.
    x, last = np.zeros((3, 1, 1)), lambda out, y, count: mb.sum(out)
    steps = list(mb.updates(Scalar(0.2), x, x, last, mb.tbptt(1, 3, losses="last"), state=[[0.9]]))
    found = [g["w"][0] for _, g in steps]
    assert found == pytest.approx([0.9, 2 * 0.2 * 0.9, 0.108], rel=1e-14)
    # With a weight that is set between the updates, window 3 knows nothing but its value now, w = .5: 3·w²·h₀ = .675.
    cell = Scalar(0.2)
    run = mb.updates(cell, x, x, last, mb.tbptt(1, 3, losses="last"), state=[[0.9]])
    for loss, gradients in run:
        found = loss.item(), gradients["w"][0]
        mb.assign(cell.w, [0.5])
    assert found == pytest.approx((0.5**3 * 0.9, 0.675), rel=1e-14)


def test_both_readings_of_the_loss_in_overlapping_windows_while_the_weight_moves():
    # h_t = w·h_{t−1} + x_t from h₀ = 2, x = 1 … 5, windows 1–2, 2–4, 3–5; w is ½, then ¼, then 1.
    def uses(w, before, start, t):
        """(h_t, dh_t/dw) of a window that begins after `start` steps with the state `before`."""
        h, d = before, 0.0
        for step in range(start + 1, t + 1):
            h, d = w * h + step, h + w * d
        return h, d

    x, summed = np.arange(1.0, 6.0).reshape(5, 1, 1), lambda out, y, count: mb.sum(out)
    h1 = uses(0.5, 2.0, 0, 1)[0]
    h2 = uses(0.25, h1, 1, 2)[0]
    windows = [(0.5, 2.0, 0, [1, 2]), (0.25, h1, 1, [3, 4]), (1.0, h2, 2, [5])]
    for losses in ("new", "last"):
        cell = Scalar()
        run = mb.updates(cell, x, x, summed, mb.tbptt(2, 3, losses=losses), state=[[2.0]])
        for (w, before, start, steps), after in zip(windows, (0.25, 1.0, 1.0)):
            steps = steps if losses == "new" else steps[-1:]
            loss, gradients = next(run)
            assert loss.item() == sum(uses(w, before, start, t)[0] for t in steps)
            assert gradients["w"][0] == sum(uses(w, before, start, t)[1] for t in steps)
            mb.assign(cell.w, [after])


# --- memory and time ----------------------------------------------------------------------------------------------


class Counting(mb.Cell):
    """h_t = w·h_{t−1} + x_t, which counts its steps and notes how long the open tape is."""

    def __init__(self):
        self.w = mb.parameter([0.5], dtype=f64)
        self.steps, self.records = 0, 0

    def zero_state(self, batch):
        return mb.zeros((batch, 1))

    def step(self, x, h):
        self.steps += 1
        tape = mb.tape.open_tape()
        self.records = max(self.records, len(tape.records) if tape else 0)
        h = self.w * h + x
        return h, h


def test_nothing_is_run_before_it_is_asked_for():
    cell, x = Counting(), np.ones((9, 1, 1))
    run = mb.updates(cell, x, x, mb.mse, mb.tbptt(3))
    assert cell.steps == 0 and iter(run) is run
    for done in (3, 6, 9):
        next(run)
        assert cell.steps == done
    cell.steps = 0
    run = mb.updates(cell, x, x, squares, mb.tbptt(3))
    assert cell.steps == 0
    next(run)
    assert cell.steps == 9 + 3  # a loss of all outputs wants to see them once


@pytest.mark.parametrize(
    "schedule", [mb.tbptt(5), mb.tbptt(2, 5), mb.tbptt(7, 5), mb.tbptt(1, 5, losses="last")], ids=str
)
def test_the_tape_and_the_stored_states_are_as_long_for_a_long_sequence_as_for_a_short_one(schedule):
    longest = []
    for T in (50, 500):
        cell, x = Counting(), np.ones((T, 1, 1))
        run = mb.updates(cell, x, x, mb.mse, schedule)
        stored = 0
        for _ in run:
            stored = max(stored, len(run._pieces._stored))
        longest.append((cell.records, stored))
    assert longest[0] == longest[1] and longest[0][0] <= 2 * 5 + 1 and longest[0][1] <= 5 + 1
    full = Counting()
    list(mb.updates(full, x, x, mb.mse, mb.full()))
    assert full.records > 500  # so the tape is what is counted


@pytest.mark.parametrize("schedule", [mb.tbptt(1), mb.tbptt(1, 20), mb.tbptt(100), mb.artbp(0.01)], ids=str)
def test_the_plan_of_a_long_sequence_is_small(schedule):
    T = 300_000
    plan = schedule.plan(T, 0)
    kept = {id(update.factors): len(update.factors.exceptions) for update in plan.updates}
    assert sum(kept.values()) <= len(plan.updates) + 1  # a number or two for each update, not T
    cell, x = Counting(), np.broadcast_to(1.0, (T, 1, 1))
    run = mb.updates(cell, x, x, mb.mse, schedule, rng=0)
    next(run), next(run)
    assert cell.steps == sum(update.losses.stop - update.start for update in plan.updates[:2])


def test_factors_are_equal_to_a_tuple_of_the_same_numbers():
    factors = Factors(5, 2.0, ((0, 1.0), (3, 0.0)))
    numbers = (1.0, 2.0, 2.0, 0.0, 2.0)
    assert (
        factors == numbers and numbers == factors and hash(factors) == hash(numbers) and factors == Factors.of(numbers)
    )
    assert tuple(factors) == numbers and len(factors) == 5 and factors[1:4] == numbers[1:4]
    assert [factors[i] for i in range(-5, 5)] == [*numbers, *numbers]
    assert factors != (1.0, 2.0, 2.0, 0.0, 1.0) and factors != [*numbers] and Factors(2) != Factors(3)
    assert Factors(3, 1.0, ((1, 1.0),)) == Factors(3) == Factors(3, 0.0, tuple((s, 1.0) for s in range(3)))
    with pytest.raises(IndexError):
        factors[5]
    with pytest.raises(AttributeError):
        factors.default = 1.0


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=1, max_size=9))
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_what_factors_are_asked_is_what_one_reads_in_the_numbers(numbers):
    for default in (0.0, 1.0, 2.0):
        factors = Factors(len(numbers), default, tuple((s, f) for s, f in enumerate(numbers) if f != default))
        assert factors == tuple(numbers)
        for s in range(len(numbers)):
            closed = [i for i in range(s + 1) if numbers[i] == 0]
            assert factors.last_closed(s) == (closed[-1] if closed else None)
            for end in range(s, len(numbers) + 1):
                assert factors.all_open(s, end) == all(f == 1 for f in numbers[s:end])


# --- dropout ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", [mb.tbptt(3), mb.tbptt(2, 5), mb.tbptt(4, 2), mb.recompute(3), mb.full()], ids=str)
def test_a_window_that_is_run_again_has_the_masks_of_the_first_run(schedule):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((8, 2, 2)), rng.standard_normal((8, 2, 3))
    drop = mb.Dropout(0.5, rng=4)
    plain = mb.RNN(2, 3, rng=0, dtype=f64)
    model = mb.Sequential(plain, drop)
    twin = copy.deepcopy(drop.rng)
    kept = (twin.random((8, 2, 3)) >= 0.5) / 0.5
    # Dropout behind the last layer is a loss that masks the outputs.
    masked = lambda outputs, y: mb.mse(outputs * kept, y)  # noqa: E731
    expected = list(mb.bptt(plain, x, y, masked, schedule).values())
    start = drop.rng.bit_generator.state

    def check(gradients):
        for g, e in zip(gradients.values(), expected, strict=True):
            np.testing.assert_allclose(g, e, rtol=0, atol=1e-13)
        assert drop.rng.bit_generator.state == twin.bit_generator.state  # as after one run
        drop.rng.bit_generator.state = start

    check(mb.bptt(model, x, y, mb.mse, schedule, dropout=True))
    check(sum((g for _, g in mb.updates(model, x, y, mb.mse, schedule)), 0))
    check(sum((g for _, g in mb.updates(model, x, y, lambda out, y: mb.mse(out, y), schedule)), 0))
    off = mb.bptt(model, x, y, mb.mse, schedule)
    assert drop.rng.bit_generator.state == start and drop.training
    model.eval()
    assert_close(sum((g for _, g in mb.updates(model, x, y, mb.mse, schedule)), 0), off, 1e-13)
    assert drop.rng.bit_generator.state == start


def test_between_updates_the_generators_stand_where_the_sequence_stands():
    drop = mb.Dropout(0.5, rng=4)
    model, x = mb.Sequential(mb.RNN(2, 3, rng=0), drop), np.ones((8, 2, 2), np.float32)
    twin = copy.deepcopy(drop.rng)
    run = mb.updates(model, x, np.zeros((8, 2, 3)), lambda out, y: mb.mse(out, y), mb.tbptt(2, 3))
    next(run), next(run)
    twin.random((4, 2, 3))
    assert drop.rng.bit_generator.state == twin.bit_generator.state


# --- the loss and the state ---------------------------------------------------------------------------------------


def test_a_loss_with_count_is_asked_on_the_owned_steps_with_the_number_of_real_entries():
    asked = []

    def loss(outputs, y, mask=None, count=None):
        asked.append((outputs.shape, np.asarray(y).tolist(), mask.tolist(), count))
        return mb.mse(outputs, y, mask=mask, count=count)

    x = np.ones((4, 2, 1))
    y = np.arange(8.0).reshape(4, 2, 1)
    list(mb.updates(Scalar(), x, y, loss, mb.tbptt(3), lengths=[4, 1]))
    assert asked == [
        ((3, 2, 1), y[:3].tolist(), [[True, True], [True, False], [True, False]], 5),
        ((1, 2, 1), y[3:].tolist(), [[True, False]], 5),
    ]
    asked.clear()
    list(mb.updates(Scalar(), x, y.tolist(), loss, mb.tbptt(3), lengths=[0, 0]))  # no real step: nothing to divide by
    assert [one[-1] for one in asked] == [1, 1]
    # A count that the caller has fixed stays: the loss is then one of all outputs.
    fixed = partial(mb.mse, count=2)
    found = sum((g for _, g in mb.updates(Scalar(), x, y, fixed, mb.tbptt(3))), 0)
    assert_close(found, 4 * mb.bptt(Scalar(), x, y, mb.mse, mb.tbptt(3)), 1e-12)


def test_the_loss_has_no_past_and_no_share_in_what_comes_later():
    x, cell = np.arange(1.0, 7.0).reshape(6, 1, 1), Scalar()
    run = mb.updates(cell, x, None, lambda out, y: out[1, 0], mb.tbptt(2, 3))
    first, _ = next(run)
    with mb.Tape() as tape:
        assert (first * mb.parameter([1.0], dtype=f64)).mark is tape.mark and first.mark is None
    mb.assign(cell.w, [1.5])
    second, _ = next(run)
    # h₂ = w·h₁ + 2 with h₁ = 1, before and after the weight has changed.
    assert (first.item(), second.item()) == (2.5, 3.5)


@pytest.mark.parametrize("make", [mb.LSTM, mb.GRU], ids=["LSTM", "GRU"])
def test_the_state_goes_from_call_to_call(make):
    rng = np.random.default_rng(0)
    model = mb.Sequential(make(2, 3, layers=2, rng=0, dtype=f64), mb.Linear(3, 1, rng=1, dtype=f64))
    x, y = rng.standard_normal((12, 2, 2)), rng.standard_normal((12, 2, 1))
    whole = list(mb.updates(model, x, y, mb.mse, mb.tbptt(3)))
    state, parts = None, []
    for t in range(0, 12, 6):
        run = mb.updates(model, x[t : t + 6], y[t : t + 6], mb.mse, mb.tbptt(3), state=state)
        assert run.state is None if t == 0 else run.state is not None  # nothing was run yet
        parts += list(run)
        state = run.state
    for (loss, g), (value, expected) in zip(parts, whole, strict=True):
        assert loss.item() / 2 == pytest.approx(value.item(), rel=1e-12)  # half as many entries to divide by
        assert_close(0.5 * g, expected, 1e-13)
    _, final = model(x)
    for h, g in zip(mb.nest.leaves(state), mb.nest.leaves(final), strict=True):
        np.testing.assert_allclose(h[1].value, g[1].value, rtol=1e-12)
        assert h[1].mark is None


def test_the_state_after_an_update_is_the_one_at_the_end_of_its_window():
    x = np.arange(1.0, 8.0).reshape(7, 1, 1)
    run = mb.updates(Scalar(), x, x, mb.mse, mb.tbptt(2, 3), state=[[2.0]])
    assert run.state.item() == 2.0
    for _, t in zip(run, (2, 4, 6, 7), strict=True):
        expected = mb.unroll(Scalar(), x[:t], [[2.0]])[1].item()
        assert run.state.item() == expected
    assert next(run, None) is None and next(run, None) is None


def test_a_learnable_initial_state_learns_in_the_windows_that_reach_it():
    class WithStart(Scalar):
        def __init__(self):
            super().__init__()
            self.h0 = mb.parameter([2.0], dtype=f64)

    cell, x = WithStart(), np.arange(1.0, 7.0).reshape(6, 1, 1)
    total = lambda out, y, count: mb.sum(out)  # noqa: E731
    steps = [g["h0"].item() for _, g in mb.updates(cell, x, x, total, mb.tbptt(3), state=cell.h0)]
    assert steps == [0.875, 0.0]


def test_what_does_not_fit_is_an_error_when_updates_is_called():
    x, y, cell = np.ones((4, 2, 1)), np.ones((4, 2, 1)), Scalar()
    with pytest.raises(TypeError, match=r"schedules are made by .* found 'full'"):
        mb.updates(cell, x, y, mb.mse, "full")
    with pytest.raises(TypeError, match=r"schedules are made by .* found 8"):
        mb.bptt(cell, x, y, mb.mse, 8)
    with pytest.raises(ValueError, match=r"\(T, B, …\).*found shape \(4,\)"):
        mb.updates(cell, np.ones(4), y, mb.mse, mb.full())
    with pytest.raises(TypeError, match="found None"):
        mb.updates(cell, None, y, mb.mse, mb.full())
    for wrong, words in [
        (y[:3], r"found shape \(3, 2, 1\)"),
        (None, "found None"),
        (y[:, :1], r"found shape \(4, 1, 1\)"),
    ]:
        with pytest.raises(ValueError, match=rf"y must be \(T, B, …\) = \(4, 2, …\); {words}"):
            mb.updates(cell, x, wrong, mb.mse, mb.tbptt(2))
    with pytest.raises(TypeError, match="the loss must be a function"):
        mb.updates(cell, x, y, None, mb.tbptt(2))
    for name, flags in [("lengths", [1]), ("mask", np.ones((3, 2))), ("resets", np.ones((4, 3)))]:
        with pytest.raises(ValueError, match=name):
            mb.updates(cell, x, y, mb.mse, mb.tbptt(2), **{name: flags})
    with pytest.raises(ValueError, match="inside the loss"):
        scale = mb.parameter([2.0], "scale", dtype=f64)
        next(mb.updates(cell, x, y, lambda out, y, count: mb.sum(out * scale), mb.tbptt(2)))


def test_a_model_that_keeps_its_state_to_itself_is_refused():
    class Hidden(mb.Module):
        def __init__(self):
            self.cell = mb.RNNCell(1, 2, rng=0, dtype=f64)

        def __call__(self, x):
            return mb.unroll(self.cell, x)[0]

    x, y = np.ones((4, 2, 1)), np.ones((4, 2, 2))
    for schedule in (mb.tbptt(2), mb.recompute(2)):
        with pytest.raises(ValueError, match="Hidden keeps its state to itself"):
            next(mb.updates(Hidden(), x, y, mb.mse, schedule))
    assert len(list(mb.updates(Hidden(), x, y, mb.mse, mb.full()))) == 1


def test_an_update_waits_for_no_device(xp):
    model = mb.Sequential(mb.LSTM(2, 3, rng=0), mb.Linear(3, 1, rng=1))
    opt = mb.Adam(model)
    x, y = (mb.to_backend(np.ones((8, 2, n), np.float32)) for n in (2, 1))
    for schedule in (mb.tbptt(2, 3), mb.recompute(2)):
        for loss in (mb.mse, lambda out, y: mb.mse(out, y)):
            counter.reset()
            for _, gradients in mb.updates(model, x, y, loss, schedule):
                opt.step(gradients)
            assert (counter.syncs, counter.to_host) == (0, 0)


NO_GRADIENT = [
    (mb.tanh, TypeError, "found function: put it among the layers of a Sequential"),
    (mb.LSTM, TypeError, "found the class LSTM: call it"),
    ("lstm", TypeError, "must be a cell, a layer or another Module, found str"),
    (None, TypeError, "found NoneType"),
    (mb.Dropout(0.5, rng=0), ValueError, "Dropout has no parameters: there is no gradient"),
    (mb.Sequential(mb.tanh), ValueError, "Sequential has no parameters"),
]


@pytest.mark.parametrize("ask", ["bptt", "updates", "compare", "contributions"])
def test_what_has_no_gradient_is_refused_by_name_wherever_a_model_is_asked_for(ask):
    x, more = np.ones((4, 2, 1)), [] if ask == "contributions" else [mb.tbptt(2)]
    for model, kind, words in NO_GRADIENT:
        with pytest.raises(kind, match=words):
            getattr(mb, ask)(model, x, x, mb.mse, *more)


def test_a_loss_that_is_complex_or_does_not_depend_on_the_outputs_is_refused_in_words():
    model, x = mb.Linear(1, 1, rng=0, dtype=f64), np.ones((4, 2, 1))
    imaginary = mb.Linear(1, 1, rng=0, dtype=np.complex128)
    for first in (lambda *a: mb.bptt(*a, mb.tbptt(2)), lambda *a: next(mb.updates(*a, mb.tbptt(2))), mb.contributions):
        with pytest.raises(ValueError, match="the loss does not depend on the outputs"):
            first(model, x, x, lambda out, y: mb.sum(mb.Tensor(y)))
        with pytest.raises(TypeError, match="the loss is complex"):
            first(imaginary, x, x, squares)


def test_a_state_that_still_has_its_past_is_refused_as_everywhere():
    model, x = mb.RNN(2, 3, rng=0, dtype=f64), np.ones((4, 1, 2))
    with mb.Tape():
        _, state = model(x)
    for ask in (mb.bptt, mb.updates, mb.contributions):
        arguments = (model, x, np.zeros((4, 1, 3)), mb.mse) + (() if ask is mb.contributions else (mb.tbptt(2),))
        with pytest.raises(mb.TapeError, match="made on another tape"):
            ask(*arguments, state=state)
        ask(*arguments, state=mb.cut(state))


@pytest.mark.parametrize("error", [ArithmeticError("the third is bad"), KeyboardInterrupt()])
def test_after_an_error_inside_an_update_the_next_one_is_an_error_and_no_silent_end(error):
    model, rng, asked = make_model(np.random.default_rng(0)), np.random.default_rng(1), []

    def loss(outputs, y, count=None):
        asked.append(len(asked))
        if len(asked) == 3:
            raise error
        return mb.mse(outputs, y, count=count)

    x, y = rng.standard_normal((8, 2, 2)), LOSSES["mse"][1](rng, 8, 2)
    run = mb.updates(model, x, y, loss, mb.tbptt(2))
    next(run), next(run)
    with pytest.raises(type(error)):
        next(run)
    for _ in range(2):  # and it stays so
        with pytest.raises(RuntimeError, match=rf"after 2 of 4 \({type(error).__name__}.*Begin anew with updates"):
            list(run)
    good = mb.updates(model, x, y, mb.mse, mb.tbptt(2))
    assert len(list(good)) == 4 and list(good) == []  # the true end stays one
