"""Everything that takes a model or data takes them where they are: the same answers as on the CPU, and every figure."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from strict_cupy import xp as strict

import minibptt as mb
from minibptt.nest import leaves
from minibptt.weights import split_gates

T, B, D, H = 6, 3, 2, 4
LENGTHS = [6, 4, 2]


def setting(kind="lstm", **options):
    """(model, x, y) on the current backend, the same numbers everywhere; float64."""
    layer = {"rnn": mb.RNN, "lstm": mb.LSTM, "gru": mb.GRU}[kind](D, H, rng=0, dtype=np.float64, **options)
    model = mb.Sequential(layer, mb.Linear(H, 2, rng=1, dtype=np.float64))
    x, y = (np.random.default_rng(i).standard_normal((T, B, n)) for i, n in enumerate((D, 2)))
    return model, mb.to_backend(x), mb.to_backend(y)


class Squared(mb.Cell):
    """A cell of one's own, which contributions take one step at a time."""

    state_names = ("h",)

    def __init__(self):
        self.W, self.V = (mb.parameter(mb.to_backend(np.eye(n, H) / 2)) for n in (D, H))

    def zero_state(self, batch):
        return mb.zeros((batch, H))

    def step(self, x, h):
        h = mb.tanh(x @ self.W + h @ self.V)
        return h, h


def pairs(c):
    by_part = {f"of {part}": norms for part, norms in c.norms_of.items()}
    return {"norms": c.norms, "share": c.share, **c.gradient(mb.tbptt(2)), **by_part}


def of_own_cell():
    model, x, y = mb.Sequential(Squared(), mb.Linear(H, 2, rng=1, dtype=np.float64)), *setting()[1:]
    return pairs(mb.contributions(model, x, y, mb.mse))


def training(kind="lstm", optimiser=mb.Adam, **options):
    model, x, y = setting(kind, layers=2, dropout=0.3)
    opt, state = optimiser(model, lr=0.01, **options), model.zero_state(B)
    for _ in range(3):
        with mb.Tape() as tape:
            outputs, state = model(x, mb.cut(state), lengths=LENGTHS)
            loss = mb.mse(outputs, y, lengths=LENGTHS)
        gradients = mb.clip_by_value(mb.clip_by_global_norm(mb.check_finite(tape.gradient(loss, model)), 1.0), 0.2)
        opt.step(gradients)
    state = mb.reset(state, [1])
    return {"loss": loss, **gradients, **model.parameters(), **{f"state {k}": h for k, h in leaves(state)}} | {
        k: v for k, v in opt.state().items() if not isinstance(v, bool)
    }


def stacked():
    cells = [mb.GRUCell(H, H, rng=0, dtype=np.float64), mb.LSTMCell(H, H, rng=1, dtype=np.float64)]
    stack = mb.Stack(cells, residual=True, rng=3)
    x = mb.to_backend(np.random.default_rng(0).standard_normal((T, B, H)))
    resets = np.arange(T * B).reshape(T, B) % 4 == 1
    with mb.Tape() as tape:
        outputs, state = stack(x, lengths=LENGTHS, resets=resets, cut_every=2)
        loss = mb.sum(outputs * outputs)
    gradients = tape.gradient(loss, stack, through_cuts=lambda cut: 0.25)
    return {"y": outputs, **gradients, **tape.adjoints(loss), **dict(leaves(state))}


def compared():
    model, x, y = setting()
    schedules, options = [mb.tbptt(2), mb.tbptt(1, 3), mb.artbp(0.2)], dict(draws=4, rng=0, measure=False)
    result = mb.compare(model, x, y, mb.mse, schedules, lengths=LENGTHS, **options)
    return {f"{row.schedule} {m}": np.array(values) for row in result.rows for m, values in row.values.items()}


def updated(schedule):
    model, x, y = setting("gru")
    total = mb.bptt(model, x, y, mb.mse, schedule, rng=0)
    for _, gradients in mb.updates(model, x, y, mb.mse, schedule, rng=0):
        mb.SGD(model, lr=0.01).step(gradients)
    return {**total, **{f"after {name}": p for name, p in model.named_parameters()}}


def streamed():
    source = mb.to_backend(np.arange(60.0).reshape(30, 2))
    windows = [part for pair in mb.stream_batches(source, batch=3, steps=4) for part in pair]
    return {f"{i}": part for i, part in enumerate(windows)}


def gates():
    layer = setting("gru")[0].layers[0]
    return {**split_gates(layer), **layer.cells[0].by_gate(layer.parameters()["0.W_x"])}


WORK = {
    "contributions of layers": lambda: pairs(mb.contributions(*setting(), mb.mse, lengths=LENGTHS)),
    "contributions of a cell of one's own": of_own_cell,
    "the Gram matrix": lambda: {"K": mb.contributions(*setting("gru"), mb.mse).gram().K},
    "compare": compared,
    "chunks": lambda: updated(mb.tbptt(2)),
    "windows": lambda: updated(mb.tbptt(1, 3)),
    "randomised": lambda: updated(mb.artbp(0.3)),
    "recompute": lambda: updated(mb.recompute(3)),
    "training with Adam": training,
    "training with SGD": lambda: training("gru", mb.SGD, momentum=0.9, nesterov=True),
    "a stack": stacked,
    "a stream": streamed,
    "gates": gates,
}


@pytest.mark.parametrize("work", WORK)
def test_the_answers_are_those_of_the_cpu(xp, work):
    found = WORK[work]()
    with mb.use_backend("numpy"):
        expected = WORK[work]()
    assert set(found) == set(expected) and expected
    for name, value in expected.items():
        assert_allclose(mb.to_numpy(found[name]), mb.to_numpy(value), rtol=1e-9, atol=1e-12, err_msg=name)


def test_every_figure_and_table_is_made_of_device_data():
    with mb.use_backend(strict):
        model, x, y = setting("lstm")
        schedules = [mb.tbptt(1), mb.tbptt(2), mb.tbptt(1, 3), mb.artbp(0.2)]
        result = mb.compare(model, x, y, mb.mse, schedules, draws=2, rng=0)
        c = mb.contributions(model, x, y, mb.mse)
        optimiser = mb.Adam(model)

        def steps():
            for _ in range(3):
                with mb.Tape() as tape:
                    loss = mb.mse(model(x)[0], y)
                optimiser.step(tape.gradient(loss, model))
                yield

        history = mb.compare_training(steps(), model, x, y, mb.mse, [mb.tbptt(2)], every=1)
        with mb.Tape() as tape:
            outputs, state = model(x, lengths=LENGTHS, cut_every=2)
            loss = mb.mse(outputs, y, lengths=LENGTHS)
        texts = [result.table(), result.table("gate"), history.table(), str(tape), repr(loss), repr(state), repr(model)]
        texts += [repr(tape.gradient(loss, model)), repr(c), str(mb.summary(model)), f"{loss:.3f}"]
    assert all(texts)
    figures = [
        mb.plots.compare(result),
        mb.plots.contributions(c, mb.tbptt(2)),
        mb.plots.lags(c),
        mb.plots.schemes(T, [mb.tbptt(2), mb.full()], c),
        mb.plots.training(history),
    ]
    for axes in figures:
        np.ravel(axes)[0].figure.canvas.draw()


@pytest.mark.parametrize("engine", ["tape", "explicit"])
@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
def test_gradients_are_checked_where_the_model_is(xp, kind, engine):
    model, x, _ = setting(kind, engine=engine)
    mb.check_gradient(lambda: mb.sum(model(x, lengths=LENGTHS, cut_every=None)[0]), model)


def test_weights_come_from_another_library_to_the_device(xp):
    model = mb.LSTM(D, H, rng=0)
    with mb.use_backend("numpy"):
        other = mb.LSTM(D, H, rng=5)
    for (_, p), (_, q) in zip(model.named_parameters(), other.named_parameters()):
        mb.assign(p, mb.to_backend(q))
        assert type(p.value) is xp.ndarray
        np.testing.assert_array_equal(mb.to_numpy(p), q.value)
