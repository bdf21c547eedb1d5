"""Stacks of any cells: their numbers, shared cells, residual connections, dropout, states and names by layer."""

import numpy as np
import pytest
from toys import Scalar

import minibptt as mb
from minibptt.nest import leaves, map_nest
from minibptt.parts import parts_of

f64 = np.float64
T, LENGTHS = 6, [6, 2, 0, 5]
REAL = np.arange(T)[:, None] < LENGTHS


def wave(*shape, k=0):
    """½·sin(k + 1), ½·sin(k + 2), … in `shape`."""
    return (0.5 * np.sin(np.arange(np.prod(shape, dtype=int)) + 1 + k)).reshape(shape)


class Leaky(mb.Cell):
    """A state of two parts, in a dict: h_t = tanh(x_t @ W + a·h_{t−1}), n_t = n_{t−1} + h_t."""

    state_names = ("h", "n")

    def __init__(self, D, H, k=0):
        self.W, self.a = mb.parameter(wave(D, H, k=k)), mb.parameter(wave(H, k=k + 5))

    def zero_state(self, batch):
        return {"h": mb.zeros((batch, self.W.shape[1])), "n": mb.zeros((batch, self.W.shape[1]))}

    def step(self, x, state):
        h = mb.tanh(x @ self.W + self.a * state["h"])
        n = state["n"] + h
        return h + 0.1 * n, {"h": h, "n": n}


CELLS = {
    "rnn": lambda D, H, seed: mb.RNNCell(D, H, rng=seed, dtype=f64),
    "lstm": lambda D, H, seed: mb.LSTMCell(D, H, rng=seed, dtype=f64),
    "gru": lambda D, H, seed: mb.GRUCell(D, H, rng=seed, dtype=f64),
    "gru before": lambda D, H, seed: mb.GRUCell(D, H, reset="before", rng=seed, dtype=f64),
    "own": lambda D, H, seed: Leaky(D, H, k=seed),
}
STACKS = {
    **{f"two {kind}": lambda make=make: mb.Stack(make(2, 3, 0), make(3, 3, 1)) for kind, make in CELLS.items()},
    "mixed": lambda: mb.Stack([CELLS[kind](2, 2, i) for i, kind in enumerate(CELLS)], residual=True),
    "shared": lambda: mb.Stack([CELLS["lstm"](2, 2, 0)] * 3, residual=[1]),
    "nested": lambda: mb.Stack(CELLS["gru"](2, 3, 0), mb.Stack(CELLS["own"](3, 3, 1), CELLS["rnn"](3, 2, 2))),
    "one": lambda: mb.Stack(CELLS["own"](2, 2, 0)),
}
RUNS = {
    "cell": lambda stack, x, state=None, **options: mb.unroll(stack, x, state, **options),
    "layer": lambda stack, x, state=None, **options: stack(x, state, **options),
}


def everything(stack, run, x, **options):
    """Outputs, states, adjoints of all states, and all gradients of a loss that uses every output and last state."""
    with mb.Tape() as tape:
        x = tape.watch(x)
        first = tape.watch(map_nest(lambda h: h.value + wave(*h.shape), stack.zero_state(x.shape[1])))
        out, last = run(stack, x, first, **options)
        loss = mb.sum(out * out)
        for i, (_, part) in enumerate(leaves(last)):
            loss = loss + mb.sum(part * wave(*part.shape, k=i))
    starts = {f"start {path}": tape.gradient(loss, h) for path, h in leaves(first)}
    ends = {f"end {path}": h.value for path, h in leaves(last)}
    dropped = {repr(cut): d for cut, d in tape.dropped(loss).items()}
    through = {f"{name} mended": g for name, g in tape.gradient(loss, stack, through_cuts=True).items()}
    adjoints = {f"adjoint {name}": a for name, a in tape.adjoints(loss).items()}
    found = {"out": out.value, "dx": tape.gradient(loss, x), **tape.gradient(loss, stack)}
    return found | starts | ends | dropped | through | adjoints


def assert_close(found, expected, atol=1e-12):
    assert set(found) == set(expected)
    for name, a in found.items():
        np.testing.assert_allclose(a, expected[name], rtol=0, atol=atol, err_msg=name)


# --- its numbers -------------------------------------------------------------------------------------------------


def test_two_layers_have_the_numbers_of_the_equations_written_out():
    stack = mb.Stack(CELLS["rnn"](2, 3, 0), CELLS["rnn"](3, 3, 1), residual=[1])
    W = [[p.value for p in cell.parameters().values()] for cell in stack.cells]
    x, h, outputs = wave(5, 2, 2), [np.zeros((2, 3)), np.zeros((2, 3))], []
    for x_t in x:
        h[0] = np.tanh(x_t @ W[0][0] + h[0] @ W[0][1] + W[0][2])
        h[1] = np.tanh(h[0] @ W[1][0] + h[1] @ W[1][1] + W[1][2])
        outputs.append(h[0] + h[1])
    for run in RUNS.values():
        out, state = run(stack, x)
        np.testing.assert_allclose(out.value, outputs, rtol=0, atol=1e-14)
        np.testing.assert_allclose([s.value for s in state], h, rtol=0, atol=1e-14)


@pytest.mark.parametrize("kind", STACKS)
@pytest.mark.parametrize("options", [{}, {"lengths": LENGTHS, "cut_every": 2, "resets": np.eye(T, 4, k=-2)}])
def test_step_by_step_and_layer_by_layer_give_the_same_outputs_states_gradients_adjoints_and_drops(kind, options):
    stack, x = STACKS[kind](), np.where(REAL[..., None], wave(T, 4, 2), np.nan)
    x = x if options else np.nan_to_num(x)
    answers = [everything(stack, run, x, **options) for run in RUNS.values()]
    assert_close(*answers)
    for found in answers:
        assert not options or ((found["out"][~REAL] == 0).all() and (found["dx"][~REAL] == 0).all())


@pytest.mark.parametrize("kind", ["mixed", "shared", "nested"])
def test_the_gradient_is_that_of_central_differences(kind):
    stack, x = STACKS[kind](), wave(4, 2, 2)

    def loss():
        out, _ = mb.unroll(stack, x)
        return mb.sum(out * out * wave(*out.shape, k=3))

    with mb.Tape() as tape:
        value = loss()
    for name, g in tape.gradient(value, stack).items():
        p, i = stack.parameters()[name], np.unravel_index(1, g.shape)
        before, found = p.value, []
        for e in (1e-5, -1e-5):
            moved = before.copy()
            moved[i] += e
            mb.assign(p, moved)
            found.append(loss().item())
        mb.assign(p, before)
        assert g[i] == pytest.approx((found[0] - found[1]) / 2e-5, rel=1e-6, abs=1e-9), name


@pytest.mark.parametrize("kind", STACKS)
@pytest.mark.parametrize("run", RUNS)
def test_one_step_at_a_time_chunked_and_whole_give_the_same_numbers(kind, run):
    stack, run = STACKS[kind](), RUNS[run]
    x = np.where(REAL[..., None], wave(T, 4, 2), np.nan)
    whole, end = run(stack, x, lengths=LENGTHS)
    for k in (1, 2, 4, T):  # row 1 has no real step in a chunk of 2 or 4, row 2 nowhere
        state, parts = None, []
        for a in range(0, T, k):
            with mb.Tape():
                out, state = run(stack, x[a : a + k], mb.cut(state), mask=REAL[a : a + k])
            parts.append(out.value)
        np.testing.assert_allclose(np.concatenate(parts), whole.value, rtol=0, atol=1e-12)
        for (path, a), (_, b) in zip(leaves(state), leaves(end), strict=True):
            np.testing.assert_allclose(a.value, b.value, rtol=0, atol=1e-12, err_msg=path)


@pytest.mark.parametrize("kind", STACKS)
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("k", [1, 2, 3, T])
def test_a_padded_batch_in_chunks_sums_to_its_rows_run_alone_in_the_same_chunks(kind, run, k):
    stack, run = STACKS[kind](), RUNS[run]

    def chunks(x, real):
        """The loss and the gradient of Σ out² over all chunks, each on a tape of its own."""
        state, loss, total = None, 0.0, 0
        for a in range(0, len(x), k):
            with mb.Tape() as tape:
                out, state = run(stack, x[a : a + k], mb.cut(state), mask=real[a : a + k])
                value = mb.sum(out * out)
            loss, total = loss + value.item(), total + tape.gradient(value, stack)
        return loss, total

    x = np.where(REAL[..., None], wave(T, 4, 2), np.nan)
    loss, total = chunks(x, REAL)
    rows = [chunks(x[:n, b : b + 1], REAL[:n, b : b + 1]) for b, n in enumerate(LENGTHS) if n]
    assert loss == pytest.approx(sum(value for value, _ in rows), abs=1e-12)
    assert_close(total, sum(g for _, g in rows))
    # The same rows padded on the left: their steps fall into other chunks, so only whole sequences agree.
    if k == T:
        left, real = np.full_like(x, np.nan), REAL[::-1]
        for b, n in enumerate(LENGTHS):
            left[T - n :, b] = x[:n, b]
        value, g = chunks(left, real)
        assert value == pytest.approx(loss, abs=1e-12)
        assert_close(g, total)


# --- a cell used twice -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("run", RUNS)
def test_a_cell_used_twice_is_counted_once_has_the_sum_of_both_gradients_and_is_moved_once(kind, run):
    make, run, x = CELLS[kind], RUNS[run], wave(5, 3, 2)
    shared, apart = mb.Stack([make(2, 2, 0)] * 2), mb.Stack(make(2, 2, 0), make(2, 2, 0))
    grads, ends = [], []
    for stack in (shared, apart):
        with mb.Tape() as tape:
            out, state = run(stack, x)
            loss = mb.sum(out * out)
        grads.append(tape.gradient(loss, stack))
        ends.append([h.value for _, h in leaves(state)])
    assert all(name.startswith("0.") for name in grads[0]) and len(grads[1]) == 2 * len(grads[0])
    for name, g in grads[0].items():
        np.testing.assert_allclose(g, grads[1][name] + grads[1]["1" + name[1:]], rtol=0, atol=1e-13)
    for a, b in zip(*ends, strict=True):  # each use has a state of its own
        np.testing.assert_array_equal(a, b)
    before = {name: p.value for name, p in shared.named_parameters()}
    mb.SGD(shared, lr=0.5).step(grads[0])
    for name, p in shared.named_parameters():
        np.testing.assert_array_equal(p.value, before[name] - 0.5 * grads[0][name])
    assert mb.summary(shared).numbers * 2 == mb.summary(apart).numbers


def test_a_cell_whose_outputs_do_not_fit_its_inputs_cannot_stand_on_itself_and_the_error_says_so():
    with pytest.raises(
        ValueError, match=r"layer 1 \(RNNCell\) takes D = 2 .*layer 0 gives 3.*the cell of layer 0 again"
    ):
        mb.Stack([mb.RNNCell(2, 3)] * 2)
    for run in RUNS.values():
        with pytest.raises(ValueError, match="the cell of layer 0 again"):
            run(mb.Stack([Leaky(2, 3)] * 2), wave(3, 1, 2))


# --- residual connections and dropout ------------------------------------------------------------------------------


def test_a_residual_connection_adds_the_input_and_a_layer_of_zeros_lets_it_through():
    cell = mb.RNNCell(2, 2, rng=0, dtype=f64)
    for p in cell.parameters().values():
        mb.assign(p, np.zeros(p.shape))
    x = np.where(REAL[..., None], wave(T, 4, 2), np.nan)
    for run in RUNS.values():
        with mb.Tape() as tape:
            inputs = tape.watch(x)
            out, _ = run(mb.Stack([cell] * 2, residual=True), inputs, lengths=LENGTHS)
            loss = mb.sum(out * wave(*out.shape))
        np.testing.assert_array_equal(out.value, np.where(REAL[..., None], x, 0))
        np.testing.assert_array_equal(tape.gradient(loss, inputs), np.where(REAL[..., None], wave(*out.shape), 0))


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda: mb.Stack(), ValueError, "at least one cell"),
        (lambda: mb.Stack(mb.RNNCell(2, 2), mb.tanh), TypeError, r"layer 1 \(function\) is no cell"),
        (lambda: mb.Stack(mb.RNNCell(2, 3), mb.LSTMCell(2, 3)), ValueError, "takes D = 2 inputs, and layer 0 gives 3"),
        (lambda: mb.Stack(mb.RNNCell(2, 3), residual=True), ValueError, "D = 2 and H = 3 wide: leave 0 out"),
        (lambda: mb.Stack(mb.RNNCell(2, 2), residual=[1]), ValueError, "there is no layer 1; they are 0 to 0"),
        (lambda: mb.Stack(mb.RNNCell(2, 2), residual=1), TypeError, "a list of layer numbers, found 1"),
        (lambda: mb.Stack(mb.RNNCell(2, 2), residual=None), TypeError, "a list of layer numbers, found None"),
        (lambda: mb.Stack(mb.RNNCell(2, 2), residual=[True]), TypeError, "a list of layer numbers"),
        (lambda: mb.Stack(mb.RNNCell(2, 2), dropout=0.5), ValueError, "no between"),
        (lambda: mb.Stack(mb.RNNCell(2, 2), engine="fast"), ValueError, "'explicit'"),
        (lambda: mb.Stack(Leaky(2, 3), residual=True)(wave(3, 1, 2)), ValueError, r"layer 0 \(Leaky\).*leave 0 out"),
        (lambda: mb.Stack(Leaky(2, 3), engine="explicit")(wave(3, 1, 2)), TypeError, "no explicit passes.*'tape'"),
        (lambda: mb.unroll(mb.Stack(mb.RNNCell(2, 3)), wave(3, 1, 5)), ValueError, r"Stack takes.*D = 2.*\(3, 1, 5\)"),
        (lambda: mb.Stack(mb.RNNCell(2, 3))(wave(3, 1, 2), np.zeros((1, 3))), ValueError, "a tuple of 1 entry,"),
    ],
)
def test_mistakes_are_named(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_dropout_drops_the_same_in_both_orders_and_wherever_chunks_fall_and_never_the_way_around_a_layer():
    def stack():
        return mb.Stack(CELLS["rnn"](2, 2, 0), CELLS["own"](2, 2, 1), CELLS["rnn"](2, 2, 2), dropout=0.5, rng=7)

    x = wave(T, 3, 2)
    whole = stack()(x)[0].value
    np.testing.assert_allclose(mb.unroll(stack(), x)[0].value, whole, rtol=0, atol=1e-14)
    for run in RUNS.values():
        chunked, state, parts = stack(), None, []
        for a in range(0, T, 4):
            out, state = run(chunked, x[a : a + 4], state)
            parts.append(out.value)
        np.testing.assert_allclose(np.concatenate(parts), whole, rtol=0, atol=1e-14)
    model = stack()
    assert not np.array_equal(model(x)[0].value, model(x)[0].value)
    np.testing.assert_array_equal(model.eval()(x)[0].value, mb.Stack(*model.cells)(x)[0].value)
    assert model.dropouts[0].rng is not model.dropouts[1].rng
    nothing = mb.RNNCell(2, 2, rng=0, dtype=f64)
    for p in nothing.parameters().values():
        mb.assign(p, np.zeros(p.shape))
    around = mb.Stack([nothing] * 3, dropout=0.9, residual=True, rng=0)
    np.testing.assert_array_equal(around(x)[0].value, x)


# --- its state, and names by layer ---------------------------------------------------------------------------------


def test_the_state_is_one_entry_for_each_use_of_a_cell_and_an_entry_of_none_is_its_zero_state():
    stack, x = STACKS["mixed"](), wave(3, 2, 2)
    state = stack.zero_state(2)
    assert type(state) is tuple and len(state) == 5 and len(state[1]) == 2 and set(state[4]) == {"h", "n"}
    for run in RUNS.values():
        out, after = run(stack, x, (None, *state[1:]))
        np.testing.assert_array_equal(out.value, run(stack, x)[0].value)
        assert [path for path, _ in leaves(after)] == [path for path, _ in leaves(state)]


def test_records_cuts_and_states_of_a_stack_are_known_by_layer_in_both_orders():
    model = mb.Sequential(mb.Linear(2, 2, rng=0, dtype=f64), STACKS["nested"]())
    seen = []
    for engine in ("tape", None):
        with mb.Tape() as tape:
            if engine:
                with tape.at(layer="1"):
                    mb.unroll(model[1], model[0](wave(4, 1, 2)), cut_every=2)
            else:
                model(wave(4, 1, 2), cut_every=2)
        assert {r.layer for r in tape.records if r.op == "tanh"} >= {"1.1.0"}
        seen.append((set(tape.states), {repr(cut) for cut in tape.cuts}, {cut.layer for cut in tape.cuts}))
    assert seen[0] == seen[1]
    assert seen[0][0] == {"1.0.h", "1.1.0.h", "1.1.0.n", "1.1.1.h"}
    assert "cut(1.1.0.h₂, before step 3)" in seen[0][1] and seen[0][2] == {"1.0", "1.1.0", "1.1.1"}


def test_the_printed_tape_tells_layers_from_steps_and_shows_what_is_shared():
    with mb.Tape() as tape:
        mb.unroll(mb.Stack([mb.RNNCell(1, 1, rng=0)] * 2), np.ones((3, 1, 1)))
    head, *lines = str(tape).splitlines()
    assert "steps 1–3, 2 layers (0, 1)" in head
    assert any("0, 1" in line and "W_x = parameter" in line for line in lines)
    assert any("matmul(0.h₂, W_x)" in line for line in lines)  # layer 1 reads what layer 0 gave at step 2


def test_a_stack_stands_wherever_a_layer_stands():
    x, y = wave(5, 2, 2), wave(5, 2, 2, k=3)
    model = mb.Sequential(STACKS["shared"](), mb.Linear(2, 2, rng=1, dtype=f64))
    full = mb.bptt(model, x, y, mb.mse, mb.full())
    with mb.Tape() as tape:
        loss = mb.mse(model(x)[0], y)
    assert full.relative_error(tape.gradient(loss, model)) < 1e-14
    for schedule in (mb.tbptt(2), mb.tbptt(1, 3)):
        c = mb.contributions(model, x, y, mb.mse)
        assert c.gradient(schedule).relative_error(mb.bptt(model, x, y, mb.mse, schedule)) < 1e-12
    r = mb.compare(model, x, y, mb.mse, [mb.tbptt(5)], measure=False)
    assert r.rows[0].values["error"] == (0.0,)
    assert "gate i" in parts_of(model) and not any(name.startswith("0.1.") for name in parts_of(model))


def test_the_recurrent_layers_are_stacks():
    layer, x = mb.LSTM(2, 3, layers=2, rng=0, dtype=f64), wave(4, 2, 2)
    assert isinstance(layer, mb.Stack) and (layer.D, layer.H) == (2, 3)
    np.testing.assert_allclose(mb.unroll(layer, x)[0].value, layer(x)[0].value, rtol=0, atol=1e-14)
    with mb.Tape() as tape:
        mb.unroll(layer, x, engine="explicit")
    assert [r.op for r in tape.records] == ["LSTMCell", "LSTMCell"]


def test_a_stack_runs_on_the_device_of_its_cells(xp):
    stack = mb.Stack(mb.GRUCell(2, 3, rng=0, dtype=f64), mb.RNNCell(3, 3, rng=1, dtype=f64), residual=[1])
    x = np.where(REAL[..., None], wave(T, 4, 2), np.nan)
    with mb.use_backend("numpy"):
        other = mb.Stack(mb.GRUCell(2, 3, rng=0, dtype=f64), mb.RNNCell(3, 3, rng=1, dtype=f64), residual=[1])
        expected, _ = other(x, lengths=LENGTHS)
        state = stack.zero_state(4)  # on the device of the cells, whatever the backend is now
        for run in RUNS.values():
            out, state = run(stack, xp.asarray(x), state, lengths=LENGTHS)
            state = mb.reset(state)
            np.testing.assert_allclose(mb.to_numpy(out), expected.value, rtol=0, atol=1e-12)


def test_a_cell_keeps_its_own_place_in_an_error_from_inside_a_stack():
    class Wrong(Scalar):
        def step(self, x, h):
            return h

    for run in RUNS.values():
        with pytest.raises(TypeError, match=r"layer 1 \(Wrong\.step\) must return \(output, next state\)"):
            run(mb.Stack(Scalar(), Wrong()), np.ones((2, 1, 1)))


def test_a_single_step_from_a_state_that_does_not_fit_names_the_layer():
    stack = mb.Stack(mb.RNNCell(2, 3, rng=0), mb.LSTMCell(3, 4, rng=1))
    x, state = np.ones((5, 2), np.float32), stack.zero_state(5)
    assert stack.step(x, state)[0].shape == (5, 4)
    with pytest.raises(
        ValueError, match=r"state of layer 1 \(LSTMCell\) must be one of 5 rows, as x is; found shape \(4, 4\)"
    ):
        stack.step(x, (state[0], stack.zero_state(4)[1]))
    with pytest.raises(ValueError, match=r"state of layer 0 \(RNNCell\) .* found None"):
        stack.step(x, None)
