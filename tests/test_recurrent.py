"""The layers RNN, LSTM, GRU and Dropout: stacks, states, engines, and what they refuse."""

import numpy as np
import pytest

import minibptt as mb
from minibptt.nest import leaves

f64 = np.float64
LAYERS = {
    "rnn": mb.RNN,
    "lstm": mb.LSTM,
    "gru": mb.GRU,
    "gru before": lambda *a, **k: mb.GRU(*a, reset="before", **k),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_the_state_is_one_entry_a_layer_and_the_outputs_are_the_last_layers(kind):
    layer = LAYERS[kind](2, 3, layers=3, rng=0)
    x = np.ones((4, 2, 2), np.float32)
    out, state = layer(x)
    assert out.shape == (4, 2, 3) and len(state) == 3 == len(layer.zero_state(2))
    entries = [entry if kind == "lstm" else (entry,) for entry in state]
    assert all(len(e) == (2 if kind == "lstm" else 1) and h.shape == (2, 3) for e in entries for h in e)
    assert np.array_equal(entries[-1][0].value, out.value[-1])
    names = ["0.W_x", "0.W_h", "0.b"] + ["0.b_hn"] * (kind == "gru")
    assert list(layer.parameters())[: len(names)] == names
    assert layer.parameters()["1.W_x"].shape[0] == 3


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("engine", ["tape", "explicit"])
def test_chunks_and_single_steps_give_the_numbers_of_the_whole(kind, engine):
    layer = LAYERS[kind](2, 3, layers=2, engine=engine, rng=0, dtype=f64)
    x = np.random.default_rng(0).standard_normal((7, 2, 2))
    whole, final = layer(x, lengths=[7, 4])
    mask = np.arange(7)[:, None] < [7, 4]
    for k in (1, 2, 3, 7):
        state, parts = None, []
        for start in range(0, 7, k):
            with mb.Tape():
                out, state = layer(x[start : start + k], mb.cut(state), mask=mask[start : start + k])
            parts.append(out.value)
        np.testing.assert_allclose(np.concatenate(parts), whole.value, rtol=1e-12, atol=1e-15)
        for (_, a), (_, b) in zip(leaves(state), leaves(final)):
            np.testing.assert_allclose(a.value, b.value, rtol=1e-12)


@pytest.mark.parametrize("kind", LAYERS)
def test_a_stack_agrees_between_engines_in_gradients_adjoints_and_dropped(kind):
    answers = []
    x = np.random.default_rng(1).standard_normal((6, 3, 2))
    for engine in ("tape", "explicit"):
        model = mb.Sequential(
            LAYERS[kind](2, 3, layers=2, engine=engine, rng=0, dtype=f64), mb.Linear(3, 2, rng=1, dtype=f64)
        )
        with mb.Tape() as tape:
            out, _ = model(x, lengths=[6, 0, 3], cut_every=2)
            loss = mb.sum(out * out)
        dropped = {repr(c): d for c, d in tape.dropped(loss).items()}
        answers.append((tape.gradient(loss, model, through_cuts=0.5), tape.adjoints(loss), dropped))
    (g, adjoints, dropped), (g2, adjoints2, dropped2) = answers
    assert g.relative_error(g2) < 1e-13 and list(adjoints) == list(adjoints2) and set(dropped) == set(dropped2)
    assert set(adjoints) == {f"0.{i}.{s}" for i in (0, 1) for s in ("hc" if kind == "lstm" else "h")}
    for one, other in ((adjoints, adjoints2), (dropped, dropped2)):
        for key in one:
            np.testing.assert_allclose(one[key], other[key], rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("kind", LAYERS)
def test_bptt_and_compare_work_with_both_engines(kind):
    x, y = np.random.default_rng(0).standard_normal((6, 2, 2)), np.random.default_rng(1).standard_normal((6, 2, 3))
    rows = []
    for engine in ("tape", "explicit"):
        layer = LAYERS[kind](2, 3, engine=engine, rng=0, dtype=f64)
        g = mb.bptt(layer, x, y, mb.mse, mb.tbptt(2))
        full = mb.bptt(layer, x, y, mb.mse, mb.full())
        r = mb.compare(layer, x, y, mb.mse, [mb.tbptt(2), mb.tbptt(6)], measure=False)
        np.testing.assert_allclose(r.rows[0].values["share"][0], g.share(full), rtol=1e-12)
        assert r.rows[1].values["error"] == (0.0,)
        rows.append(r.rows[0].values["error"])
    np.testing.assert_allclose(rows[0], rows[1], rtol=1e-10)


def test_the_explicit_engine_is_one_record_a_layer_and_frees_itself():
    import gc
    import weakref

    gc.disable()
    try:
        layer = mb.LSTM(2, 3, layers=2, rng=0)
        with mb.Tape() as tape:
            out, _ = layer(np.ones((50, 1, 2)), cut_every=10)
            loss = mb.sum(out)
        assert [r.op for r in tape.records] == ["LSTMCell", "LSTMCell", "sum"]
        assert [r.steps for r in tape.records] == [(1, 50)] * 3 and len(tape.cuts) == 16
        assert "LSTMCell(" in str(tape)
        tape.gradient(loss, layer), tape.adjoints(loss), tape.dropped(loss)
        gone = [weakref.ref(tape), *[weakref.ref(o) for r in tape.records for o in r.outputs]]
        del tape, out, loss, _
        assert [r() for r in gone] == [None] * len(gone)
    finally:
        gc.enable()


def test_one_seed_is_spread_over_the_layers_and_gives_both_engines_the_same_numbers():
    a, b = mb.LSTM(3, 3, layers=2, rng=7), mb.LSTM(3, 3, layers=2, rng=7, engine="tape")
    for (name, p), (_, q) in zip(a.named_parameters(), b.named_parameters()):
        assert np.array_equal(p.value, q.value), name
    assert not np.array_equal(a.parameters()["0.W_x"].value, a.parameters()["1.W_x"].value)


def test_dropout_stands_between_layers_and_is_off_in_eval():
    x = np.ones((6, 2, 2), np.float32)
    layer = mb.GRU(2, 8, layers=2, dropout=0.5, rng=0)
    plain = mb.GRU(2, 8, layers=2, rng=0)
    assert not np.array_equal(layer(x)[0].value, plain(x)[0].value)
    assert np.array_equal(layer.eval()(x)[0].value, plain(x)[0].value)
    assert layer.train() is layer and not np.array_equal(layer(x)[0].value, layer(x)[0].value)


def test_dropout_keeps_the_mean_draws_new_masks_each_step_and_knows_no_chunks():
    x = np.ones((40, 50, 50), np.float32)
    whole = mb.Dropout(0.25, rng=3)(x).value
    assert set(np.unique(whole).tolist()) == {0.0, np.float32(1 / 0.75)}
    assert abs(whole.mean() - 1) < 4 * np.sqrt(0.25 / 0.75 / x.size) and not np.array_equal(whole[0], whole[1])
    drop = mb.Dropout(0.25, rng=3)
    pieces = [drop(x[i : i + 7]).value for i in range(0, 40, 7)]
    assert np.array_equal(np.concatenate(pieces), whole) and whole.dtype == np.float32
    with mb.Tape() as tape:
        inputs = tape.watch(x)
        y = mb.Dropout(0.25, rng=3)(inputs)
        loss = mb.sum(y)
    assert np.array_equal(tape.gradient(loss, inputs), whole)
    for wrong in (1.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match="Dropout"):
            mb.Dropout(wrong)


def test_compare_and_bptt_run_with_dropout_off_and_leave_it_as_it_was():
    x, y = np.ones((5, 2, 2)), np.zeros((5, 2, 4))
    layer = mb.LSTM(2, 4, layers=2, dropout=0.5, rng=0, dtype=f64)
    one, two = (mb.bptt(layer, x, y, mb.mse, mb.tbptt(2)) for _ in range(2))
    assert one == two and all(m.training for m in layer.modules())
    r = mb.compare(layer, x, y, mb.mse, [mb.tbptt(5)], measure=False)
    assert r.rows[0].values["error"] == (0.0,) and all(m.training for m in layer.modules())


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda: mb.LSTM(2, 3, engine="fast"), ValueError, "'explicit'"),
        (lambda: mb.LSTM(2, 3, layers=0), ValueError, "layers must be at least 1"),
        (lambda: mb.LSTM(2, 3, dropout=0.5), ValueError, "between layers"),
        (lambda: mb.GRU(2, 3, reset="never"), ValueError, "'after'.*'before'"),
        (lambda: mb.GRU(2, 0), ValueError, "H must be at least 1"),
        (lambda: mb.RNN(2, 3, "sin"), ValueError, "nonlinearity"),
        (lambda: mb.LSTM(2, 3)(np.ones((4, 1, 2)), np.zeros((1, 3))), ValueError, "tuple of 1 entry,"),
        (lambda: mb.LSTM(2, 3)(np.ones((4, 1, 2)), [np.zeros((1, 3))]), ValueError, r"2 parts, found one with 1"),
        (lambda: mb.LSTM(2, 3)(np.ones((4, 1, 2)), [(np.zeros((2, 3)),) * 2]), ValueError, r"\(2, 3\)"),
        (lambda: mb.LSTM(2, 3)(np.ones((4, 1, 5))), ValueError, r"5.*2|2.*5"),
        (lambda: mb.unroll(Own(), np.ones((2, 1, 1)), engine="explicit"), TypeError, "use engine='tape'"),
    ],
)
def test_mistakes_are_named(make, error, words):
    with pytest.raises(error, match=words):
        make()


class Own(mb.Cell):
    def zero_state(self, batch):
        return mb.zeros((batch, 1))

    def step(self, x, h):
        return h + x, h + x


@pytest.mark.parametrize("kind", LAYERS)
def test_a_shifted_clock_gives_both_engines_the_same_steps_and_names(kind):
    seen = []
    for engine in ("tape", "explicit"):
        layer = LAYERS[kind](2, 3, engine=engine, rng=0)
        with mb.Tape() as tape, tape.shifted(10):
            out, state = layer(np.ones((4, 1, 2)), cut_every=2)
        seen.append((out.steps, [h.label for _, h in leaves(state)], [repr(cut) for cut in tape.cuts]))
    assert seen[0] == seen[1] and seen[0][0] == (11, 14) and seen[0][1][0] == "h₁₄"
    assert seen[0][2][0] == "cut(h₁₂, before step 13)"


def test_a_complex_input_stays_complex_in_both_engines():
    x = np.full((3, 2, 1), 1j)
    tape, explicit = (mb.RNN(1, 2, "linear", engine=engine, rng=0, dtype=f64)(x)[0] for engine in ("tape", "explicit"))
    assert explicit.dtype == tape.dtype == np.complex128 and abs(explicit.value.imag).min() > 0
    np.testing.assert_allclose(explicit.value, tape.value, rtol=1e-14)
