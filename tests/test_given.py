"""An array of weights of one's own: cuts give Σ w·C where its rows are products of factors, and refuse the rest."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_truncation import assert_close, make_model, squares
from test_updates import explicit_model
from toys import Scalar

import minibptt as mb
from minibptt.given import from_weights

f64 = np.float64
SCHEDULES = [
    mb.full(), mb.tbptt(3), mb.tbptt(3, offset=1), mb.tbptt(2, 5), mb.tbptt(5, 2), mb.tbptt(2, 4, losses="last"),
    mb.tbptt(1, 3), mb.artbp(0.3),
]  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_the_coverage_of_a_schedule_is_a_schedule_with_the_same_windows(schedule):
    for T in (1, 2, 7, 8):
        w, plan = schedule.coverage(T, 3), schedule.plan(T, 3)
        given = from_weights(w)
        np.testing.assert_allclose(given.coverage(T), w, rtol=1e-14)
        found = [(update.start, update.losses) for update in given.plan(T).updates]
        wanted = {(update.start, update.losses) for update in plan.updates}
        if schedule == mb.tbptt(1, 3):  # the first updates reach back to the start alike, so they are one
            assert found[0] == (0, range(min(3, T))) and set(found[1:]) < wanted
        elif schedule == mb.tbptt(2, 5):
            assert found[0] == (0, range(min(4, T))) and set(found[1:]) < wanted
        else:
            assert set(found) == wanted and len(found) == len(plan.updates)


@settings(max_examples=120, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_rows_of_any_factors_are_realised_by_cuts(data):
    T = data.draw(st.integers(1, 7), "T")
    draw = st.lists(st.sampled_from([0.0, 1.0, 1.0, 1.0, 2.0, 0.3]), min_size=T, max_size=T)
    w, row = np.zeros((T, T)), data.draw(draw)
    for t in range(T):
        row = data.draw(draw) if data.draw(st.booleans(), "another row") else row
        if data.draw(st.integers(0, 4), "reached"):
            w[t, t] = 1
            for s in range(t - 1, -1, -1):
                w[t, s] = w[t, s + 1] * row[s + 1]
    rng = np.random.default_rng(data.draw(st.integers(0, 99), "seed"))
    model = data.draw(st.sampled_from([make_model, explicit_model]), "engine")(rng)
    loss = data.draw(st.sampled_from([squares, mb.mse]), "loss")
    x, y = rng.standard_normal((T, 2, 2)), rng.standard_normal((T, 2, 3))
    options = {"mask": rng.random((T, 2)) < 0.8, "resets": rng.random((T, 2)) < 0.2}
    np.testing.assert_allclose(from_weights(w).coverage(T), w, rtol=1e-12)
    expected = mb.contributions(model, x, y, loss, **options).gradient(w)
    assert_close(mb.bptt(model, x, y, loss, w, **options), expected, 1e-11 * (1 + expected.norm()))
    found = sum((g for _, g in mb.updates(model, x, y, loss, w.tolist(), **options)), 0 * expected)
    assert_close(found, expected, 1e-11 * (1 + expected.norm()))


def test_a_window_that_starts_in_a_gap_passed_long_before_starts_from_the_state_there():
    w = np.zeros((8, 8))
    w[0, 0] = w[5, 5] = 1
    w[7, 2:8] = 1  # begins in the gap between the first two updates
    cell, x = Scalar(), np.arange(1.0, 9.0).reshape(8, 1, 1)
    total = lambda out, y: mb.sum(out)  # noqa: E731
    expected = mb.contributions(cell, x, None, total, state=[[2.0]]).gradient(w)["w"]
    assert mb.bptt(cell, x, None, total, w, state=[[2.0]])["w"] == pytest.approx(expected, rel=1e-14)
    run = mb.updates(cell, x, None, total, w, state=[[2.0]])
    for _ in run:
        mb.assign(cell.w, [0.5])
    assert run.state.item() == mb.unroll(Scalar(), x, [[2.0]])[1].item()


def test_steps_after_the_last_loss_that_is_reached_still_move_the_state():
    x, w = np.arange(1.0, 6.0).reshape(5, 1, 1), np.zeros((5, 5))
    w[1, :2] = 1
    run = mb.updates(Scalar(), x, x, mb.mse, w)
    assert len(list(run)) == 1 and run.state.item() == mb.unroll(Scalar(), x)[1].item()
    nothing = mb.updates(Scalar(), x, x, mb.mse, 0 * w)
    assert list(nothing) == [] and nothing.state.item() == run.state.item()
    assert mb.bptt(Scalar(), x, x, mb.mse, 0 * w)["w"] == 0


@pytest.mark.parametrize(
    "t, s, value, words",
    [
        (2, 2, 0.5, r"\(t, s\) = \(3, 3\), .* is 0.5; a cut leaves"),
        (2, 2, 0.0, r"\(3, 3\), .* is 0;"),
        (3, 1, 0.0, r"\(4, 1\), .* is 1, after a 0 at step 2: nothing crosses a closed boundary"),
    ],
)
def test_what_no_cut_can_give_is_named_by_its_first_pair(t, s, value, words):
    w = np.tri(4)
    w[t, s] = value
    for function in (mb.bptt, mb.updates):
        with pytest.raises(ValueError, match=words + r".*contributions\(model, x, y, loss\).gradient\(w\) takes any"):
            function(Scalar(), np.ones((4, 1, 1)), np.ones((4, 1, 1)), mb.mse, w)
    mb.contributions(Scalar(), np.ones((4, 1, 1)), np.ones((4, 1, 1)), mb.mse).gradient(w)


def test_arrays_that_are_no_weights_are_errors_that_say_so():
    for w, words in [
        (np.ones(3), r"shape \(T, T\), found float64 of shape \(3,\)"),
        (np.ones((3, 2)), r"found float64 of shape \(3, 2\)"),
        (np.ones((0, 0)), r"shape \(0, 0\)"),
        (np.ones((2, 2)), r"\(t, s\) = \(1, 2\), .* is 1.0, above the diagonal"),
        (np.array([[1, 0], [np.nan, 1]]), r"\(2, 1\), .* is nan: weights must be finite"),
        (np.eye(2) * 1j, "found complex128"),
    ]:
        with pytest.raises(ValueError, match=words):
            from_weights(w)
    with pytest.raises(ValueError, match=r"weights are 3 × 3; a sequence of 4 steps needs shape \(4, 4\)"):
        mb.bptt(Scalar(), np.ones((4, 1, 1)), np.ones((4, 1, 1)), mb.mse, np.tri(3))


def test_given_weights_are_a_schedule_like_others():
    one, two = from_weights(np.tri(4)), from_weights(np.tri(4).tolist())
    assert (
        one == two and hash(one) == hash(two) and one != from_weights(np.eye(4)) and str(one) == "given weights 4 × 4"
    )
    x = np.arange(1.0, 5.0).reshape(4, 1, 1)
    result = mb.compare(Scalar(), x, x, mb.mse, [one, from_weights(np.eye(4))])
    assert [row.values["error"][0] == 0 for row in result.rows] == [True, False]
    assert [row.longest for row in result.rows] == [4, 1]
