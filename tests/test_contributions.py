"""C[t, s]: against closed forms, against copies of the parameters at each step, and against real cuts."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_truncation import LOSSES, make_model
from test_truncation import contributions as by_copies
from toys import Scalar

import minibptt as mb
from minibptt.apart import one_step_at_a_time
from minibptt.nest import map_nest
from minibptt.parts import parts_of
from minibptt.together import Together

f64 = np.float64
X = np.arange(1.0, 7.0).reshape(6, 1, 1)


def total(outputs, y, mask=None):
    return mb.sum(outputs)


def test_a_linear_cell_has_the_contributions_worked_by_hand():
    # h_t = w·h_{t−1} + x_t, L_t = h_t: C[t, s] = w^(t−s)·h_{s−1}; the whole is 38.8125 (w = ½, h₀ = 2, x = 1 … 6).
    h = [2.0]
    for v in range(1, 7):
        h.append(0.5 * h[-1] + v)
    C = np.array([[0.5 ** (t - s) * h[s] if s <= t else 0 for s in range(6)] for t in range(6)])
    c = mb.contributions(Scalar(), X, None, total, state=[[2.0]])
    np.testing.assert_allclose(c.norms, C, rtol=1e-14)
    np.testing.assert_allclose(c.share, C / 38.8125, rtol=1e-14)
    assert c.full["w"][0] == 38.8125 and c.loss == 33.9375 and c.T == 6
    np.testing.assert_allclose(c.share_by_lag, [np.diagonal(C, -j).sum() / 38.8125 for j in range(6)], rtol=1e-14)
    np.testing.assert_allclose(c.norm_by_lag[1], 0.5 * sum(h[:5]), rtol=1e-14)
    for k, value in {1: 25.875, 2: 31.5, 3: 34.875, 6: 38.8125}.items():
        assert c.gradient(mb.tbptt(k))["w"][0] == pytest.approx(value, rel=1e-14)
        assert c.kept_share(mb.tbptt(k)) == pytest.approx(value / 38.8125, rel=1e-14)


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_every_pair_is_the_gradient_of_a_copy_of_the_parameters_at_that_step(data):
    T, B = data.draw(st.integers(1, 6), "T"), data.draw(st.integers(1, 3), "B")
    rng = np.random.default_rng(data.draw(st.integers(0, 99), "seed"))
    loss, make_target = LOSSES[data.draw(st.sampled_from(sorted(LOSSES)), "loss")]
    seed = int(rng.integers(1000))
    model, *copies = [make_model(np.random.default_rng(seed)) for _ in range(T + 1)]
    x, y = rng.standard_normal((T, B, 2)), make_target(rng, T, B)
    real, resets = rng.random((T, B)) < 0.8, rng.random((T, B)) < 0.2
    assume(real.any())
    options = {"mask": None if real.all() else real, "resets": resets}
    c = mb.contributions(model, x, y, loss, **options)
    outputs, _ = model(x, **options)
    with mb.Tape() as tape:
        outputs = tape.watch(outputs)
        value = loss(outputs, y) if options["mask"] is None else loss(outputs, y, mask=real)
    C = by_copies(copies, x, tape.gradient(value, outputs), real, resets, None)
    G = sum((C[t][s] for t in range(T) for s in range(t + 1)), 0 * C[0][0])
    scale = 1 + G.norm()
    for t in range(T):
        for s in range(T):
            expected = C[t][s].norm() if s <= t else 0
            assert abs(c.norms[t, s] - expected) < 1e-11 * scale
            if G.norm():
                assert abs(c.share[t, s] - (C[t][s].dot(G) / G.dot(G) if s <= t else 0)) < 1e-9
    if G.norm():
        assert c.share.sum() == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("none", [{"lengths": [0, 0]}, {"mask": np.zeros((3, 2), bool)}])
def test_where_no_step_is_real_there_is_nothing_to_compare(none):
    model, x, y = mb.RNN(2, 3, rng=0), np.ones((3, 2, 2)), np.ones((3, 2, 3))
    for ask in (
        lambda: mb.contributions(model, x, y, mb.mse, **none),
        lambda: mb.compare(model, x, y, mb.mse, mb.full(), **none),
    ):
        with pytest.raises(ValueError, match="no step is real"):
            ask()


@pytest.mark.parametrize("engine", ["tape", "explicit"])
def test_the_gradient_of_every_schedule_equals_real_cuts_and_missing_is_the_rest(engine):
    model = mb.Sequential(
        mb.Embedding(7, 4, rng=1, dtype=f64), mb.LSTM(4, 5, layers=2, engine=engine, rng=2, dtype=f64),
        mb.Linear(5, 7, rng=3, dtype=f64),
    )  # fmt: skip
    x, y = np.random.default_rng(1).integers(0, 7, (2, 10, 3))
    options = {"lengths": [10, 4, 7]}
    c = mb.contributions(model, x, y, mb.cross_entropy, **options)
    for schedule in (
        mb.tbptt(3),
        mb.tbptt(2, 5),
        mb.tbptt(4, 2),
        mb.tbptt(3, 6, losses="last"),
        mb.full(),
        mb.artbp(0.3),
    ):
        cut = mb.bptt(model, x, y, mb.cross_entropy, schedule, rng=5, **options)
        assert c.gradient(schedule, rng=5).relative_error(cut) < 1e-11
        kept = c.kept_share(schedule, rng=5)
        assert kept == pytest.approx(cut.share(c.full), abs=1e-12)
        missing = c.missing(schedule, rng=5)
        assert missing.sum() == pytest.approx(1 - kept, abs=1e-12)
        factors = [update.factors for update in schedule.plan(10, 5).updates]
        for s in range(10):
            if all(f[s] == 1 for f in factors) and not isinstance(schedule, type(mb.tbptt(4, 2))):
                assert missing[s] == 0
    gates = [name for name in c.shares_of if name.startswith("gate")]
    without = [name for name in c.full if name.startswith(("0.", "2."))]
    for parts in (list(c.full), gates + without):  # the parameters, or the gates and what has none, are the whole
        np.testing.assert_allclose(sum(c.shares_of[name] for name in parts), c.share, atol=1e-15)
        np.testing.assert_allclose(np.sqrt(sum(c.norms_of[name] ** 2 for name in parts)), c.norms, rtol=1e-13)
    assert len(gates) == 8


MODELS = {
    "rnn": lambda: [mb.RNN(4, 5, "relu", layers=2, rng=1, dtype=f64)],
    "linear": lambda: [mb.RNNCell(4, 5, "linear", rng=1, dtype=f64)],
    "lstm": lambda: [mb.LSTM(4, 5, layers=2, dropout=0.5, rng=1, dtype=f64)],
    "gru": lambda: [mb.GRU(4, 5, layers=2, rng=1, dtype=f64)],
    "stack": lambda: [mb.Stack(mb.RNNCell(4, 3, rng=1, dtype=f64), mb.GRUCell(3, 5, rng=2, dtype=f64))],
    "gru before": lambda: [mb.GRU(4, 5, reset="before", rng=1, dtype=f64), mb.LSTM(5, 5, rng=2, dtype=f64)],
    "linear between": lambda: [mb.LSTMCell(4, 3, rng=1, dtype=f64), mb.Linear(3, 3, rng=2, dtype=f64),
                               mb.RNN(3, 5, rng=3, dtype=f64)],
}  # fmt: skip


@pytest.mark.parametrize("embedded", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_all_losses_taken_back_together_give_what_one_backward_pass_for_each_gives(name, embedded, xp):
    T, B, rng = 9, 3, np.random.default_rng(len(name))
    with mb.use_backend(xp):
        first = [mb.Embedding(7, 4, rng=0, dtype=f64)] if embedded else [mb.Linear(4, 4, bias=False, rng=0, dtype=f64)]
        model = mb.Sequential(*first, *MODELS[name](), mb.Linear(5, 7, rng=4, dtype=f64)).eval()
        x = rng.integers(0, 7, (T, B)) if embedded else mb.to_backend(rng.standard_normal((T, B, 4)))
    y, resets = rng.integers(0, 7, (T, B)), rng.random((T, B)) < 0.2
    state = map_nest(lambda h: h.value + 0.3, model.zero_state(B))
    state = None if name in ("linear", "linear between") else state
    w = np.tril(rng.standard_normal((T, T)))
    for real in (None, rng.random((T, B)) < 0.7):
        for resets in (None, rng.random((T, B)) < 0.2):
            options = {"mask": real, "resets": resets}
            with mb.Tape() as tape:
                outputs, _ = model(x, state, **options)
                loss = mb.cross_entropy(outputs, y, mask=real)
            seeds, G = tape.gradient(loss, outputs), tape.gradient(loss, model)
            together = Together.made(model, x, seeds, state, real, resets)
            apart = one_step_at_a_time(model, x, outputs.value, seeds, state, options)
            assert together.gradient(w).relative_error(apart.gradient(w)) < 1e-13
            for mine, other in zip(together.measure(parts_of(model), G), apart.measure(parts_of(model), G)):
                for part in parts_of(model):
                    np.testing.assert_allclose(mine[part], other[part], rtol=1e-10, atol=1e-17)


def test_a_loss_that_looks_at_padded_outputs_adds_nothing_there():
    rng = np.random.default_rng(0)
    layers = mb.RNN(2, 3, rng=1, dtype=np.float64), mb.Linear(3, 2, rng=2, dtype=np.float64)
    x, y, real = rng.standard_normal((5, 3, 2)), rng.standard_normal((5, 3, 2)), rng.random((5, 3)) < 0.6
    given = mb.Sequential(*layers), x, y, lambda outputs, y, mask=None: mb.sum((outputs - y) * (outputs - y))
    c = mb.contributions(*given, mask=real)
    full = mb.bptt(*given, mb.full(), mask=real)
    assert c.full.relative_error(full) < 1e-14 and c.gradient(np.tri(5)).relative_error(full) < 1e-13
    assert c.share.sum() == pytest.approx(1, rel=1e-13)


def test_the_share_predicts_the_decrease_of_the_loss_for_a_tiny_step():
    rng = np.random.default_rng(0)
    model = mb.Sequential(mb.RNNCell(2, 4, rng=1, dtype=f64), mb.Linear(4, 2, rng=2, dtype=f64))
    x, y = rng.standard_normal((8, 3, 2)), rng.standard_normal((8, 3, 2))
    c = mb.contributions(model, x, y, mb.mse)
    rate = 1e-7
    for schedule in (mb.tbptt(2), mb.full()):
        g = mb.bptt(model, x, y, mb.mse, schedule)
        before = {name: p.value for name, p in model.named_parameters()}
        for name, p in model.named_parameters():
            mb.assign(p, p.value - rate * g[name])
        after = mb.mse(model(x)[0], y).item()
        for name, p in model.named_parameters():
            mb.assign(p, before[name])
        predicted = rate * c.kept_share(schedule) * c.full.dot(c.full)
        assert (c.loss - after) == pytest.approx(predicted, rel=1e-4)


def test_what_a_random_cut_loses_belongs_to_the_closed_boundary_and_not_to_one_that_scales():
    c = mb.contributions(Scalar(), X, None, total, state=[[2.0]])
    schedule = mb.artbp(0.5)
    seed = next(s for s in range(99) if sum(f == 0 for f in schedule.plan(6, s).updates[0].factors) == 1)
    factors, w = schedule.plan(6, seed).updates[0].factors, schedule.coverage(6, seed)
    at = factors.index(0.0)
    gone = c.share[at:, :at].sum()  # every pair across the closed boundary
    missing = c.missing(schedule, seed)
    assert missing[at] == pytest.approx(gone, rel=1e-12) and missing.sum() == pytest.approx(
        ((1 - w) * np.tri(6) * c.share).sum(), rel=1e-12
    )


def test_an_array_of_ones_own_and_what_is_no_weight():
    c = mb.contributions(Scalar(), X, None, total, state=[[2.0]])
    w = np.tri(6) * 0.5
    assert c.gradient(w)["w"][0] == pytest.approx(38.8125 / 2) and c.kept_share(w) == pytest.approx(0.5)
    for wrong, words in [(np.ones((6, 6)), "above the diagonal"), (np.eye(5), "shape"), (np.eye(6) * np.nan, "finite")]:
        with pytest.raises(ValueError, match=words):
            c.gradient(wrong)


def test_the_adjoint_of_a_linear_recurrence_is_a_power_of_its_weights():
    # Pascanu, Mikolov and Bengio 2013: at lag j the adjoint is v @ (W_hᵀ)^j, so it vanishes or explodes by W_h alone.
    T, H, rng = 12, 4, np.random.default_rng(0)
    model, v = mb.RNN(3, H, "linear", rng=1, dtype=f64), rng.standard_normal(H)
    x = rng.standard_normal((T, 1, 3))
    c = mb.contributions(model, x, None, lambda outputs, y: mb.sum(outputs[-1] * v))
    with mb.Tape() as tape:
        loss = mb.sum(model(x)[0][-1] * v)
    adjoints, W = tape.adjoints(loss)["h"][:, 0], model.cells[0].W_h.value
    for lag in range(T):
        expected = v @ np.linalg.matrix_power(W.T, lag)
        np.testing.assert_allclose(adjoints[T - 1 - lag], expected, rtol=1e-12, atol=1e-16)
        assert c.norms_of["0.b"][T - 1, T - 1 - lag] == pytest.approx(np.linalg.norm(expected), rel=1e-12)
    assert not c.norms[: T - 1].any()


def test_with_dropout_the_masks_of_the_sequence_are_those_of_its_steps():
    def made(p):
        return mb.Sequential(mb.LSTM(3, 5, layers=2, dropout=p, rng=1, dtype=f64), mb.Linear(5, 2, rng=2, dtype=f64))

    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((7, 3, 3)), rng.standard_normal((7, 3, 2))
    cut = mb.bptt(made(0.5), x, y, mb.mse, mb.tbptt(3), dropout=True)
    c = mb.contributions(made(0.5), x, y, mb.mse, dropout=True)
    assert c.gradient(mb.tbptt(3)).relative_error(cut) < 1e-12
    without = mb.contributions(made(0.5), x, y, mb.mse)
    assert without.full.relative_error(c.full) > 0.05  # dropout does something, and only where it is asked for
    (row,) = mb.compare(made(0.5), x, y, mb.mse, [mb.tbptt(3)], dropout=True, measure=False).rows
    assert row.values["share"][0] == pytest.approx(c.kept_share(mb.tbptt(3)), rel=1e-12)


class Future(mb.Module):
    """A layer that reads the step after."""

    def __init__(self):
        self.cell = mb.RNNCell(1, 1, rng=0, dtype=f64)

    def zero_state(self, batch):
        return self.cell.zero_state(batch)

    def __call__(self, x, state=None, **options):
        x = np.concatenate([x[1:], x[:1] * 0])
        return mb.unroll(self.cell, x, state, **options)


def test_a_model_that_reads_the_future_and_a_parameter_inside_the_loss_are_refused():
    with pytest.raises(ValueError, match="reads the future"):
        mb.contributions(Future(), X, None, total)
    scale = mb.parameter([2.0], "scale", dtype=f64)
    with pytest.raises(ValueError, match="inside the loss"):
        mb.contributions(Scalar(), X, None, lambda out, y: mb.sum(out * scale))
    model = mb.Sequential(Scalar(), mb.Linear(1, 1, dtype=f64))
    with mb.Tape() as tape:
        loss = mb.sum(model(X)[0])
    with pytest.raises(mb.TapeError, match=r"belongs to no single step: run the model one step at a time"):
        tape.gradient_by_step(loss, model)


class Learnt(Scalar):
    """Its initial state is a parameter."""

    def __init__(self):
        super().__init__()
        self.h_0 = mb.parameter([2.0], dtype=f64)

    def zero_state(self, batch):
        return self.h_0 + mb.zeros((batch, 1))


def test_a_parameter_in_the_initial_state_belongs_to_the_first_step():
    # h_t = w·h_{t−1} + x_t, L = Σ h_t: ∂L_t/∂h₀ = w^t, t = 1 … 6, at step 1.
    c = mb.contributions(Learnt(), X, None, total)
    expected = np.zeros((6, 6))
    expected[:, 0] = 0.5 ** np.arange(1, 7)
    np.testing.assert_allclose(c.norms_of["h_0"], expected, rtol=1e-14)
    resets = np.array([0, 0, 0, 1, 0, 0])[:, None]
    for marks in ({}, {"resets": resets}):
        c = mb.contributions(Learnt(), X, None, total, **marks)
        for schedule in (mb.full(), mb.tbptt(2), mb.tbptt(1, 3), mb.artbp(0.3)):
            cut = mb.bptt(Learnt(), X, None, total, schedule, rng=1, **marks)
            assert c.gradient(schedule, rng=1).relative_error(cut) < 1e-14


@pytest.mark.parametrize(
    ("weights", "kind", "words"),
    [
        (8, ValueError, r"shape \(T, T\) = \(6, 6\), found \(\)"),
        ([[1]], ValueError, r"found \(1, 1\)"),
        (np.ones((6, 6)), ValueError, "0 above the diagonal"),
        (np.tri(6) * np.nan, ValueError, "finite"),
        (np.tri(6) * 1j, TypeError, "real numbers"),
        ("k=2", TypeError, "real numbers"),
    ],
)
def test_weights_that_are_none_are_refused_wherever_they_are_asked_for(weights, kind, words):
    c = mb.contributions(Scalar(), X, None, total)
    gram = c.gram()
    for ask in (c.gradient, c.kept_share, gram.norm, gram.share, gram.error, gram.cosine, gram.norm_ratio):
        with pytest.raises(kind, match=words):
            ask(weights)


def test_what_is_missing_of_an_array_of_weights_is_what_is_missing_of_its_schedule():
    c = mb.contributions(Scalar(), X, None, total)
    np.testing.assert_array_equal(c.missing(mb.tbptt(2).coverage(6)), c.missing(mb.tbptt(2)))
    with pytest.raises(TypeError, match="schedules are made by"):
        c.missing("k=2")
