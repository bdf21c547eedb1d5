"""Schedules, and the gradient that they give by really cutting the tape.

The oracle is the matrix C[t, s] = ∂L_t/∂θ_s, from a tape that is never cut and whose parameters are a separate
copy at each step. What a schedule gives must be Σ w[t, s]·C[t, s].
"""

import dataclasses
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import Scalar

import minibptt as mb
from minibptt.cutting import realise

f64 = np.float64


def blocks(T, k, offset=0):
    """w of chunks of k, from its definition: t and s ≤ t in one chunk, the first cut at `offset` (0: at k)."""
    first = offset or k
    chunk = [0 if t < first else 1 + (t - first) // k for t in range(T)]
    return np.array([[float(s <= t and chunk[s] == chunk[t]) for s in range(T)] for t in range(T)])


# --- plans -----------------------------------------------------------------------------------------------------


def test_full_bptt_is_one_update_with_no_boundary_closed():
    plan = mb.full().plan(4)
    (update,) = plan.updates
    assert (update.losses, update.factors, update.start) == (range(4), (1.0,) * 4, 0)
    np.testing.assert_array_equal(mb.full().coverage(4), np.tri(4))


@pytest.mark.parametrize(
    "T, k, offset, chunks",
    [
        (6, 2, 0, ["01", "23", "45"]),
        (7, 3, 0, ["012", "345", "6"]),
        (8, 3, 0, ["012", "345", "67"]),
        (7, 3, 1, ["0", "123", "456"]),
        (7, 3, 2, ["01", "234", "56"]),
        (3, 1, 0, ["0", "1", "2"]),
        (3, 3, 0, ["012"]),
        (3, 8, 0, ["012"]),
        (3, 8, 2, ["01", "2"]),
        (3, 8, 5, ["012"]),
        (1, 1, 0, ["0"]),
    ],
)
def test_chunks_fall_where_k_and_the_offset_put_them(T, k, offset, chunks):
    plan = mb.tbptt(k, offset=offset).plan(T)
    assert ["".join(map(str, update.losses)) for update in plan.updates] == chunks
    starts = [int(chunk[0]) for chunk in chunks[1:]]
    factors = tuple(0.0 if s in starts else 1.0 for s in range(T))
    assert all(update.factors == factors and update.start == update.losses.start for update in plan.updates)
    assert plan.shared_factors() == factors


@pytest.mark.parametrize("T", range(1, 12))
def test_coverage_is_block_diagonal_for_every_k_offset_and_tail(T):
    for k in range(1, T + 3):
        for offset in range(k):
            schedule = mb.tbptt(k, offset=offset)
            np.testing.assert_array_equal(schedule.coverage(T), blocks(T, k, offset))
            owned = [t for update in schedule.plan(T).updates for t in update.losses]
            assert owned == list(range(T))
        if k >= T:
            np.testing.assert_array_equal(mb.tbptt(k).coverage(T), np.tri(T))


def test_the_mean_number_of_steps_kept_for_each_loss():
    assert mb.tbptt(10).coverage(100).sum() / 100 == 5.5
    assert mb.full().coverage(100).sum() / 100 == 50.5
    assert mb.tbptt(1).coverage(100).sum() / 100 == 1.0
    w = np.mean([schedule.coverage(100) for schedule in mb.tbptt(4).over_offsets(100)], axis=0)
    by_lag = [np.diagonal(w, -j)[10:-10].mean() for j in range(6)]
    assert by_lag == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]  # over all offsets lag j survives with 1 − j/k


def test_a_k_is_judged_over_all_its_offsets_and_full_bptt_over_one():
    assert [s.offset for s in mb.tbptt(3).over_offsets(7)] == [0, 1, 2]
    assert mb.tbptt(7).over_offsets(7) == (mb.tbptt(7),)
    assert mb.tbptt(9, offset=4).over_offsets(7) == (mb.tbptt(9),)
    assert mb.full().over_offsets(7) == (mb.full(),)


def test_a_schedule_is_immutable_and_equal_to_one_of_the_same_numbers():
    schedule = mb.tbptt(8, offset=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        schedule.k = 4
    assert schedule == mb.tbptt(8, 8, offset=3) == mb.tbptt(np.int64(8), offset=np.int64(3)) != mb.tbptt(8)
    assert len({schedule, mb.tbptt(8, offset=3), mb.full(), mb.full()}) == 2
    assert [str(s) for s in (schedule, mb.tbptt(8), mb.full())] == ["k=8, offset 3", "k=8", "full"]


def test_bad_numbers_are_errors_that_say_what_was_found():
    for k in (0, -1):
        with pytest.raises(ValueError, match=f"k1 must be at least 1, found {k}"):
            mb.tbptt(k)
    for k in (1.5, True, "8", None):
        with pytest.raises(TypeError, match=f"k1 must be a whole number, found {k!r}"):
            mb.tbptt(k)
    for offset in (1.5, True, None):
        with pytest.raises(TypeError, match=f"offset must be a whole number, found {offset!r}"):
            mb.tbptt(4, offset=offset)
    for offset in (-1, 4):
        with pytest.raises(ValueError, match=rf"offset .* from 0 to k1 − 1 = 3, found {offset!r}"):
            mb.tbptt(4, offset=offset)
    for schedule in (mb.full(), mb.tbptt(2)):
        with pytest.raises(ValueError, match="T must be at least 1, found 0"):
            schedule.plan(0)


def test_a_description_is_of_the_offset_that_the_schedule_has():
    assert mb.tbptt(4, offset=2).describe(7).steps_kept == (1, 2, 1, 2, 3, 4, 1)
    assert mb.tbptt(4).describe(7).steps_kept == (1, 2, 3, 4, 1, 2, 3)
    assert mb.tbptt(4, offset=2).describe(7).survival == mb.tbptt(4).describe(7).survival  # over all offsets


# --- the gradient ----------------------------------------------------------------------------------------------


class Leaky(mb.Cell):
    """A state of two parts and two gates' worth of work: c_t = a·c_{t−1} + x_t @ U; h_t = tanh(c_t + h_{t−1} @ W)."""

    state_names = ("h", "c")

    def __init__(self, D, H, rng):
        self.U, self.W = (mb.parameter(rng.uniform(-0.9, 0.9, s)) for s in ((D, H), (H, H)))
        self.a = mb.parameter(rng.uniform(0.5, 0.9, H))

    def zero_state(self, batch):
        return mb.zeros((batch, self.a.size)), mb.zeros((batch, self.a.size))

    def step(self, x, state):
        h, c = state
        c = self.a * c + x @ self.U
        h = mb.tanh(c + h @ self.W)
        return h, (h, c)


def make_model(rng):
    """Two cells, the second with a state of two parts, and a readout."""
    return mb.Sequential(mb.RNNCell(2, 3, rng=rng, dtype=f64), Leaky(3, 2, rng), mb.Linear(2, 3, rng=rng, dtype=f64))


def squares(outputs, y, mask=None):
    """A loss that cannot be split into steps: the square of a sum over all outputs, times a mean of squares."""
    return mb.sum(outputs * y) ** 2 + mb.mse(outputs, y, mask=mask)


LOSSES = {
    "mse": (mb.mse, lambda rng, T, B: rng.standard_normal((T, B, 3))),
    "cross_entropy": (mb.cross_entropy, lambda rng, T, B: rng.integers(0, 3, (T, B))),
    "not a sum over steps": (squares, lambda rng, T, B: rng.standard_normal((T, B, 3))),
}


def contributions(models, x, seeds, real, resets, state):
    """C[t][s], a Gradients each: the loss of step t by the copy of the model that is used at step s.

    Written out step by step, with no cut and without `unroll`; seeds[t] = ∂L/∂outputs[t].
    """
    B = x.shape[1]
    first, second, _ = models[0].layers
    with mb.Tape() as tape:
        h, (g, c) = state or (first.zero_state(B), second.zero_state(B))
        outputs = []
        for t, model in enumerate(models):
            start, going = resets[t][:, None], real[t][:, None]
            h, g, c = (mb.where(start, 0, part) for part in (h, g, c))
            y, new_h = model.layers[0].step(np.where(going, x[t], 0), h)
            y, (new_g, new_c) = model.layers[1].step(y, (g, c))
            h, g, c = (mb.where(going, new, old) for new, old in ((new_h, h), (new_g, g), (new_c, c)))
            outputs.append(mb.where(going, model.layers[2](y), 0))
    assert not tape.cuts
    return [[tape.gradient(out, model, seed=seed) for model in models] for out, seed in zip(outputs, seeds)]


def finely_cut(model, x, y, loss, factors, state, options):
    """The gradient of a tape cut before every step, with the boundary before index s at factors[s]."""
    with mb.Tape() as tape:
        outputs, _ = model(x, state, cut_every=1, **options)
        mask = options.get("mask")
        value = loss(outputs, y) if mask is None else loss(outputs, y, mask=mask)
    return tape.gradient(value, model, through_cuts=lambda cut: factors[cut.step - 1])


def assert_close(found, expected, tolerance):
    """tolerance 0: to the bit."""
    assert list(found) == list(expected)
    for name, g in found.items():
        np.testing.assert_allclose(g, expected[name], rtol=0, atol=tolerance, err_msg=name)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_real_cuts_a_finely_cut_tape_and_the_weighted_contributions_agree(data):
    T, B = data.draw(st.integers(1, 7), "T"), data.draw(st.integers(1, 3), "B")
    k = data.draw(st.integers(1, T + 2), "k")
    offset = data.draw(st.integers(0, k - 1), "offset")
    loss, make_target = LOSSES[data.draw(st.sampled_from(sorted(LOSSES)), "loss")]
    rng = np.random.default_rng(data.draw(st.integers(0, 99), "seed"))
    lengths = data.draw(st.none() | st.lists(st.integers(0, T), min_size=B, max_size=B), "lengths")
    has_holes, has_resets, has_state = (data.draw(st.booleans(), name) for name in ("mask", "resets", "state"))

    seed = int(rng.integers(1000))
    model, *copies = [make_model(np.random.default_rng(seed)) for _ in range(T + 1)]
    x, y = rng.standard_normal((T, B, 2)), make_target(rng, T, B)
    real = np.arange(T)[:, None] < (np.full(B, T) if lengths is None else lengths)
    holes = rng.random((T, B)) < (0.3 if has_holes else 0)
    real = real & ~holes
    x = np.where(real[..., None], x, np.nan)
    resets = rng.random((T, B)) < (0.3 if has_resets else 0)
    state = None
    if has_state:
        state = tuple(mb.Tensor(rng.standard_normal((B, n))) for n in (3, 2, 2))
        state = state[0], state[1:]
    options = {"lengths": lengths, "mask": ~holes if has_holes else None, "resets": resets if has_resets else None}

    schedule = mb.tbptt(k, offset=offset)
    by_cuts = mb.bptt(model, x, y, loss, schedule, state=state, **options)
    options = {"mask": None if real.all() else real, "resets": options["resets"]}
    factors = schedule.plan(T).shared_factors()
    by_factors = finely_cut(model, x, y, loss, factors, state, options)

    outputs, _ = model(x, state, **options)
    with mb.Tape() as tape:
        outputs = tape.watch(outputs)
        value = loss(outputs, y) if options["mask"] is None else loss(outputs, y, mask=real)
    C = contributions(copies, x, tape.gradient(value, outputs), real, resets, state)
    w = blocks(T, k, offset)
    weighted = sum((float(w[t, s]) * C[t][s] for t in range(T) for s in range(T)), 0 * C[0][0])
    size = 1 + weighted.norm()
    assert_close(by_cuts, weighted, 1e-12 * size)
    assert_close(by_factors, weighted, 1e-12 * size)


@pytest.mark.parametrize("kept", [0.0, 0.5, 1.0, 2.0])
def test_factors_on_the_boundaries_multiply_along_the_way_back(kept):
    """h_t = w·h_{t−1} + x_t with L = h₄: dL/dw = Σ_s w^(4−s)·h_{s−1}, each at the product of the factors after s."""

    cell, x, h0 = Scalar(), np.array([1.0, 2.0, 3.0, 4.0]).reshape(4, 1, 1), np.full((1, 1), 2.0)
    with mb.Tape() as tape:
        out, _ = mb.unroll(cell, x, h0, cut_every=1)
        loss = mb.sum(out[3])
    h, f = [2.0, 2.0, 3.0, 4.5], {2: 3.0, 3: kept, 4: 0.25}  # f[t]: on the way back from step t to t − 1
    expected = h[3] + f[4] * (0.5 * h[2] + f[3] * (0.25 * h[1] + f[2] * 0.125 * h[0]))
    assert tape.gradient(loss, cell.w, through_cuts=lambda cut: f[cut.step]).item() == expected


@pytest.mark.parametrize("k", [6, 7, 50])
def test_a_k_of_at_least_t_is_full_bptt_to_the_bit(k):
    rng = np.random.default_rng(0)
    model, x, y = make_model(rng), rng.standard_normal((6, 3, 2)), rng.standard_normal((6, 3, 3))
    for options in ({}, {"lengths": [6, 2, 0]}):
        with mb.Tape() as tape:
            outputs, _ = model(x, **options)
            loss = mb.mse(outputs, y, **options)
        expected = tape.gradient(loss, model)
        for schedule in (mb.full(), mb.tbptt(k)):
            found = mb.bptt(model, x, y, mb.mse, schedule, **options)
            for name, g in found.items():
                np.testing.assert_array_equal(g, expected[name], strict=True)


def test_the_tail_is_trained_on_and_losses_are_divided_once():
    """T = 5, k = 2: with y = 0 the readout's bias gets Σ over all five steps of 2·b/5, tail included."""

    class Still(mb.Cell):
        def __init__(self):
            self.b = mb.parameter([3.0], dtype=f64)

        def zero_state(self, batch):
            return mb.zeros((batch, 1))

        def step(self, x, h):
            return self.b + 0 * x, h

    for k in (1, 2, 3, 4, 5):
        g = mb.bptt(Still(), np.ones((5, 1, 1)), np.zeros((5, 1, 1)), mb.mse, mb.tbptt(k))
        assert g["b"].item() == pytest.approx(6.0, abs=1e-15)


def test_the_updates_of_a_plan_come_one_by_one_and_add_up():
    rng = np.random.default_rng(1)
    model, x, y = make_model(rng), rng.standard_normal((7, 2, 2)), rng.standard_normal((7, 2, 3))
    with mb.Tape() as tape:
        outputs = tape.watch(model(x)[0])
        loss = mb.mse(outputs, y)
    parts = list(realise(model, x, tape.gradient(loss, outputs), mb.tbptt(3).plan(7)))
    assert len(parts) == 3
    assert_close(parts[0] + parts[1] + parts[2], mb.bptt(model, x, y, mb.mse, mb.tbptt(3)), 0)


def test_token_ids_and_their_padding_go_through_a_schedule():
    model = mb.Sequential(
        mb.Embedding(5, 3, rng=0, dtype=f64), mb.RNNCell(3, 4, rng=1, dtype=f64), mb.Linear(4, 5, rng=2, dtype=f64)
    )
    ids, real = np.arange(12).reshape(6, 2) % 5, np.arange(6)[:, None] < [6, 2]
    answers = [
        mb.bptt(
            model, np.where(real, ids, i), np.where(real, ids[::-1], i), mb.cross_entropy, mb.tbptt(2), lengths=[6, 2]
        )
        for i in (0, -1, 2**40)
    ]
    for answer in answers[1:]:
        for name, g in answer.items():
            np.testing.assert_array_equal(g, answers[0][name])
    assert answers[0].norm() > 0


def test_float32_models_give_float32_gradients():
    model = mb.Sequential(mb.RNNCell(2, 3, rng=0), mb.Linear(3, 1, rng=1))
    g = mb.bptt(model, np.ones((5, 2, 2)), np.ones((5, 2, 1)), mb.mse, mb.tbptt(2), lengths=[5, 3])
    assert {a.dtype for a in g.values()} == {np.dtype(np.float32)}


def test_a_loss_that_is_no_finite_scalar_is_an_error():
    model, x = mb.RNNCell(2, 3, rng=0), np.ones((4, 1, 2))
    for loss, words in [
        (lambda out, y: out * out, r"scalar tensor, found shape \(4, 1, 3\)"),
        (lambda out, y: 1.0, "scalar tensor, found float"),
        (lambda out, y: mb.sum(out) * np.inf, "the loss is -?inf"),
    ]:
        with pytest.raises(ValueError, match=words):
            mb.bptt(model, x, None, loss, mb.tbptt(2))


def test_a_model_without_a_state_is_guarded_from_padding_too():
    layer, real = mb.Linear(2, 3, rng=0, dtype=f64), np.arange(4)[:, None] < [4, 2]
    x, y = np.ones((4, 2, 2)), np.zeros((4, 2, 3))
    answers = [
        mb.bptt(layer, np.where(real[..., None], x, fill), y, mb.mse, mb.tbptt(2), lengths=[4, 2])
        for fill in (0, np.nan)
    ]
    for name, g in answers[0].items():
        np.testing.assert_array_equal(g, answers[1][name])


def test_a_learnable_initial_state_gets_its_gradient_by_a_schedule():
    """h_t = ½·h_{t−1} + t from h₀ = 2: ∂/∂h₀ is ½ + ¼ + … over the first chunk."""

    class WithStart(Scalar):
        def __init__(self):
            super().__init__()
            self.h0 = mb.parameter([2.0], dtype=f64)

    cell, x = WithStart(), np.arange(1.0, 7.0).reshape(6, 1, 1)
    for k, dw, dh0 in [(1, 25.875, 0.5), (2, 31.5, 0.75), (3, 34.875, 0.875), (6, 38.8125, 0.984375)]:
        g = mb.bptt(cell, x, None, lambda out, y: mb.sum(out), mb.tbptt(k), state=cell.h0)
        assert (g["w"].item(), g["h0"].item()) == (dw, dh0)


def test_a_sequence_of_one_axis_is_an_error_that_says_so():
    with pytest.raises(ValueError, match=r"\(T, B, …\).*found shape \(4,\)"):
        mb.bptt(Scalar(), np.ones(4), None, mb.mse, mb.full())


# --- windows and random cuts ----------------------------------------------------------------------------------------


def staircase(T, k1, k2, offset, losses):
    """w by the definition: an update at each end, back through k2 steps, owning the new losses or the last."""
    w, before = np.zeros((T, T)), 0
    for end in [e for e in range(1, T + 1) if e == T or (e >= max(offset, 1) and (e - offset) % k1 == 0)]:
        for t in range(before, end):
            if losses == "new" or t == end - 1:
                start = before if k1 == k2 else end - k2  # with k1 = k2, chunks: a short tail does not overlap
                for s in range(t + 1):
                    w[t, s] = s >= start and t >= start
        before = end
    return w


@pytest.mark.parametrize("losses", ["new", "last"])
def test_windows_are_a_staircase_for_every_k1_k2_offset_and_tail(losses):
    for T in range(1, 9):
        for k1 in range(1, T + 2):
            for k2 in range(1, T + 2):
                for offset in range(k1):
                    schedule = mb.tbptt(k1, k2, offset, losses)
                    np.testing.assert_array_equal(
                        schedule.coverage(T), staircase(T, k1, k2, offset, losses), err_msg=str(schedule)
                    )
                    window = max(u.losses.stop - u.start for u in schedule.plan(T).updates)
                    assert window <= max(k2, k1 if k2 == k1 else 0) or k2 > T


def test_the_mean_steps_kept_are_those_of_the_table():
    # T = 100, losses of the last k1 steps at each update: the table is reproduced by counting.
    for (k1, k2), mean in {(10, 10): 5.50, (1, 10): 9.55, (5, 10): 7.75, (10, 20): 14.50}.items():
        assert mb.tbptt(k1, k2).describe(100).mean_steps_kept == mean
    assert mb.full().describe(100).mean_steps_kept == 50.5


def test_describe_says_what_is_kept_and_what_is_never_reached():
    d = mb.tbptt(4).describe(100)
    assert d.survival[:6] == pytest.approx((1, 0.75, 0.5, 0.25, 0, 0), abs=0.01) and d.longest == 4 and d.updates == 25
    short = mb.tbptt(4, 1).describe(12)
    assert short.unreached == 9 and short.steps_kept == (0, 0, 0, 1) * 3 and "9 losses never reached" in str(short)
    assert mb.tbptt(4, 8, losses="last").describe(12).unreached == 9
    drawn = mb.artbp(0.25).describe(200, rng=1)
    assert drawn.survival[0] == 1 and abs(drawn.survival[2] - 0.75**2) < 0.03


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_windows_and_random_cuts_by_real_cuts_and_by_mending_equal_the_weighted_contributions(data):
    T, B = data.draw(st.integers(1, 7), "T"), data.draw(st.integers(1, 3), "B")
    k1, k2 = data.draw(st.integers(1, T + 1), "k1"), data.draw(st.integers(1, T + 1), "k2")
    losses = data.draw(st.sampled_from(["new", "last"]), "losses")
    schedule = data.draw(
        st.sampled_from([mb.tbptt(k1, k2, k1 // 2, losses), mb.tbptt(k1, k2, losses=losses), mb.artbp(0.3)]), "schedule"
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 99), "seed"))
    seed = int(rng.integers(1000))
    model, *copies = [make_model(np.random.default_rng(seed)) for _ in range(T + 1)]
    loss, make_target = LOSSES["not a sum over steps"]
    x, y = rng.standard_normal((T, B, 2)), make_target(rng, T, B)
    real, resets = rng.random((T, B)) < 0.8, rng.random((T, B)) < 0.2
    options = {"mask": None if real.all() else real, "resets": resets}

    by_cuts = mb.bptt(model, x, y, loss, schedule, rng=7, **options)
    outputs, _ = model(x, **options)
    with mb.Tape() as tape:
        outputs = tape.watch(outputs)
        value = loss(outputs, y) if options["mask"] is None else loss(outputs, y, mask=real)
    C = contributions(copies, x, tape.gradient(value, outputs), real, resets, None)
    if isinstance(schedule, type(mb.artbp(0.3))):
        factors = schedule.plan(T, 7).updates[0].factors
        assert set(factors[1:]) <= {0.0, 1 / 0.7}
        w = np.array([[np.prod(factors[s + 1 : t + 1]) if s <= t else 0 for s in range(T)] for t in range(T)])
    else:
        w = staircase(T, k1, k2, schedule.offset, losses)
    weighted = sum((float(w[t, s]) * C[t][s] for t in range(T) for s in range(T)), 0 * C[0][0])
    assert_close(by_cuts, weighted, 1e-11 * (1 + weighted.norm()))

    full = sum((C[t][s] for t in range(T) for s in range(t + 1)), 0 * C[0][0])
    if full.norm() and not isinstance(schedule, type(mb.artbp(0.3))):
        row = mb.compare(model, x, y, loss, [schedule], measure=False, **options).rows[0]
        plans = schedule.over_offsets(T)
        if schedule in plans:
            found = row.values["error"][plans.index(schedule)]
            assert found == pytest.approx(weighted.relative_error(full), rel=1e-9, abs=1e-12)


def test_overlapping_windows_have_no_stale_gradients_and_both_readings_of_the_loss():
    # h_t = w·h_{t−1} + x_t, w = ½, h₀ = 2, x = 1 … 5: what the last k2 uses of w give each loss, by hand.
    h = [2.0]
    for v in range(1, 6):
        h.append(0.5 * h[-1] + v)
    uses = lambda t, n: sum(0.5**j * h[t - 1 - j] for j in range(min(n, t)))  # noqa: E731
    x = np.arange(1.0, 6.0).reshape(5, 1, 1)
    total = lambda out, y: mb.sum(out)  # noqa: E731
    found = mb.bptt(Scalar(), x, None, total, mb.tbptt(2, 3), state=[[2.0]])["w"][0]
    # updates after steps 2, 4, 5: windows 1–2, 2–4, 3–5; each loss reaches back to the start of its window.
    assert found == pytest.approx(uses(1, 1) + uses(2, 2) + uses(3, 2) + uses(4, 3) + uses(5, 3), rel=1e-14)
    found = mb.bptt(Scalar(), x, None, total, mb.tbptt(2, 3, losses="last"), state=[[2.0]])["w"][0]
    assert found == pytest.approx(uses(2, 2) + uses(4, 3) + uses(5, 3), rel=1e-14)


def test_random_truncation_is_unbiased():
    """Over many draws the mean is the full gradient, within the spread of the weights (Tallec and Ollivier 2017)."""
    T, p, n = 8, 0.2, 20_000
    rng = np.random.default_rng(0)
    w = np.mean([mb.artbp(p).coverage(T, rng) for _ in range(n)], axis=0)
    for lag in range(T):
        variance = (1 - p) ** -lag - 1  # E w² − 1, E w² = (1 − p)·(1/(1 − p))² for each boundary
        entries = np.diagonal(w, -lag)
        assert np.abs(entries - 1).max() <= 4.5 * np.sqrt(variance / n) + 1e-12


def test_random_truncation_has_the_means_and_deviations_of_the_influence_balancing_table():
    """n = 23, A = ½·I + ½·superdiagonal: ∂s₀/∂θ at the fixed point is −6 (set-up of arXiv 1702.05043)."""
    n, T = 23, 400
    A = 0.5 * np.eye(n) + 0.5 * np.eye(n, k=1)
    u, row, terms = np.array([1.0] * 10 + [-1.0] * 13), np.eye(n)[0], []
    for _ in range(T):
        terms.append(row @ u)
        row = row @ A
    terms = np.array(terms)  # what the step j back gives of ∂s₀/∂θ
    sums = np.cumsum(terms)
    for K, value in {
        1: 1,
        10: 10,
        19: 16.476,
        30: 9.870,
        40: 0.566,
        41: -0.219,
        50: -4.753,
        60: -5.897,
        100: -6.0,
    }.items():
        assert round(sums[K - 1], 3) == value
    # The same from the schedule's own weights: the last loss of a window of K steps.
    weights = mb.tbptt(50, 50).coverage(100)[99][::-1]
    assert round(float(weights @ terms[:100]), 3) == -4.753
    rng = np.random.default_rng(1)
    for c, mean, deviation in [(0.05, -5.84, 41), (0.02, -5.97, 18.2), (0.01, -5.994, 11.6)]:
        draws = 4000
        factors = np.where(rng.random((draws, T - 1)) < c, 0, 1 / (1 - c))
        w = np.concatenate([np.ones((draws, 1)), np.cumprod(factors, axis=1)], axis=1)
        estimate = w @ terms
        assert abs(estimate.mean() + 6) <= 4 * estimate.std() / np.sqrt(draws) and abs(mean + 6) < 0.2
        if c < 0.05:  # heavy tails beyond
            assert estimate.std() == pytest.approx(deviation, rel=0.15)
    schedule = mb.artbp(0.02)
    w = np.array([schedule.coverage(120, rng)[119][::-1] for _ in range(200)])
    assert abs((w @ terms[:120]).mean() - sums[119]) <= 4 * 18.2 / np.sqrt(200)


@pytest.mark.parametrize("p", [1.0, -0.1, float("nan"), "half"])
def test_a_probability_outside_its_range_is_an_error(p):
    with pytest.raises(TypeError if p == "half" else ValueError, match="p_cut must be"):
        mb.artbp(p)
    with pytest.raises(ValueError, match="losses must be"):
        mb.tbptt(2, 4, losses="first")


def test_a_parameter_inside_the_loss_is_refused():
    scale = mb.parameter([2.0], "scale", dtype=f64)
    for function in (mb.bptt, lambda *a: mb.compare(*a[:4], [a[4]], measure=False)):
        with pytest.raises(ValueError, match="inside the loss"):
            function(Scalar(), np.ones((3, 1, 1)), None, lambda out, y: mb.sum(out * scale), mb.tbptt(2))


def test_describing_many_offsets_holds_one_matrix_of_weights_at_a_time():
    T = 300
    tracemalloc.start()
    described = mb.tbptt(60).describe(T)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30 * T * T  # bytes; the 60 offsets in booleans alone would be 60·T²
    kept = np.mean([blocks(T, 60, offset) for offset in range(60)], axis=0)
    np.testing.assert_allclose(described.survival, [np.diagonal(kept, -lag).mean() for lag in range(T)], rtol=1e-12)
    with pytest.raises(TypeError, match="T must be a whole number, found '9'"):
        mb.tbptt(4).describe("9")


def test_a_probability_may_be_any_real_number():
    assert mb.artbp(np.float32(0.25)) == mb.artbp(0.25) == mb.artbp(np.float16(0.25))
    assert mb.artbp(np.int64(0)) == mb.artbp(0)
