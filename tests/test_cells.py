"""RNN, LSTM and GRU: both engines against fixed numbers, against each other, and against PyTorch where it is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minibptt as mb
from minibptt.nest import leaves

f64 = np.float64


def waves(*shape, k=0):
    """½ sin(1 + k), ½ sin(2 + k), … in this shape."""
    return (0.5 * np.sin(np.arange(int(np.prod(shape))) + 1 + k)).reshape(shape)


def cell_with(cell, **values):
    for name, value in values.items():
        mb.assign(getattr(cell, name), value)
    return cell


MAKE = {
    "tanh": lambda D, H, **o: mb.RNNCell(D, H, **o),
    "relu": lambda D, H, **o: mb.RNNCell(D, H, "relu", **o),
    "linear": lambda D, H, **o: mb.RNNCell(D, H, "linear", **o),
    "lstm": lambda D, H, **o: mb.LSTMCell(D, H, **o),
    "gru after": lambda D, H, **o: mb.GRUCell(D, H, reset="after", **o),
    "gru before": lambda D, H, **o: mb.GRUCell(D, H, reset="before", **o),
}
ENGINES = ("tape", "explicit")


def nested(cell, state):
    return tuple(state) if len(state) > 1 else state[0]


def ask(cell, x, state, G, engine, through_cuts=False, final=None, **options):
    """(loss, outputs, final state, gradients, dx, d_state, adjoints, dropped) of Σ outputs·G + Σ final·its weights."""
    with mb.Tape() as tape:
        x, state = tape.watch(x), [tape.watch(h) for h in state]
        outputs, after = mb.unroll(cell, x, nested(cell, state), engine=engine, **options)
        after = [h for _, h in leaves(after)]
        loss = mb.sum(outputs * G) if G is not None else mb.sum(after[0]) * 0
        for h, weight in zip(after, final or []):
            loss = loss + mb.sum(h * weight)
    grads, dx, d_state = tape.gradient(loss, [cell, x, state], through_cuts=through_cuts)
    dropped = {repr(cut): d for cut, d in tape.dropped(loss, through_cuts=through_cuts).items()}
    adjoints = tape.adjoints(loss, through_cuts=through_cuts)
    return loss, outputs, after, grads, dx, d_state, adjoints, dropped


# --- fixed numbers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_the_lstm_gives_pytorchs_numbers_in_the_order_i_f_g_o(engine):
    # T = 3, B = 1, D = H = 2, L = Σ h·G, by PyTorch's LSTM. Each usual mistake gives another db.
    T, D, H = 3, 2, 2
    cell = cell_with(
        mb.LSTMCell(D, H, dtype=f64),
        W_x=2 * waves(D, 4 * H, k=1), W_h=2 * waves(H, 4 * H, k=2), b=waves(4 * H, k=3),
    )  # fmt: skip
    state = [waves(1, H, k=4), waves(1, H, k=6)]
    loss, _, _, grads, _, d_state, _, _ = ask(cell, waves(T, 1, D), state, waves(T, 1, H, k=5), engine)
    np.testing.assert_allclose(loss.item(), 0.06167584368365232, rtol=1e-13)
    expected = [
        0.002134469131568265, 0.011548511056840238, 0.007025100781719336, 0.0018463117501269725,
        0.046344654467796016, -0.029323264643151645, 0.0017651484666456763, 0.027989253606628066,
    ]  # fmt: skip
    np.testing.assert_allclose(grads["b"], expected, rtol=1e-12)
    np.testing.assert_allclose(d_state[0], [[0.009443789922750943, -0.012092086051322571]], rtol=1e-12)
    np.testing.assert_allclose(d_state[1], [[0.006981206812724125, 0.05375025020390041]], rtol=1e-12)


# T = 3, B = D = H = 2, L = Σ h·G: "after" by PyTorch's GRU, "before" by autograd of the equations of Cho et al.
GRU = {
    "after": dict(
        loss=0.32852003445977357,
        W_x=[
            [-0.00038057510421101587, 0.01902655953090399, -0.0022154236521780943, 0.02572279370476064,
             -0.017121623558268063, 0.17510535427094953],
            [-0.030219998623471977, -0.0034053066200885676, 0.038822004175016925, 0.014150471337485518,
             -0.16643060588397604, 0.0358844270437091],
        ],
        W_h=[
            [-0.012121300802659662, -0.01983830248723927, -0.02888328223945616, -0.03360637921583853,
             -0.01843771208929515, -0.03594945479749714],
            [-0.004824658486534612, -0.021947970488824586, -0.02475040193959175, -0.041315285782501626,
             -0.011479251962513981, -0.024474121340672117],
        ],
        b=[0.0074613771587413655, -0.03549281402831115, -0.07355035944882574, -0.11769319394403017,
           0.04791621876237184, 0.007986586349030687],
        b_hn=[-0.024685181782300662, 0.04422668268440194],
        h0=[[-0.030136620190292868, 0.12064820309381763], [0.18629386739569564, 0.13824764930775513]],
        x0=[[0.08709024851436521, 0.08231880874381155], [0.04723650209211, 0.005443978463398776]],
    ),
    "before": dict(
        loss=0.33151719247759226,
        W_x=[
            [-0.002157738889658471, 0.0068910774369801845, -0.008061942386822741, 0.03034362067117656,
             -0.03524510232629097, 0.1778421037672831],
            [-0.01690768564947509, -0.005300109284536965, 0.02408876512967166, 0.01651011807423717,
             -0.22753775632446455, 0.03921828288505134],
        ],
        W_h=[
            [-0.013039755196142562, -0.010444702704724381, -0.008917706784687118, -0.01128231777883446,
             -0.0707499036216062, -0.05243902510755447],
            [-0.016154006041494137, -0.01443028990506448, -0.013752570729226296, -0.042102987823754774,
             -0.016294738663530043, -0.03075803755878484],
        ],
        b=[-0.03785345553840635, -0.026106426408293783, -0.09524433375645153, -0.1109227402336464,
           0.022476528595307618, 0.05062945010100649],
        h0=[[0.029210100049325914, 0.15468018076581422], [0.16770033844437265, 0.12308593451393224]],
        x0=[[0.09371828598987572, 0.07454037868872654], [0.023732563521242273, -0.0220819610852511]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("reset", GRU)
def test_both_grus_give_fixed_numbers_in_the_order_r_z_n(reset, engine):
    T, B, D, H = 3, 2, 2, 2
    cell = cell_with(
        mb.GRUCell(D, H, reset=reset, dtype=f64),
        W_x=2 * waves(D, 3 * H, k=1), W_h=2 * waves(H, 3 * H, k=2), b=waves(3 * H, k=3),
        **({"b_hn": waves(H, k=7)} if reset == "after" else {}),
    )  # fmt: skip
    loss, _, _, grads, dx, (dh0,), _, _ = ask(cell, waves(T, B, D), [waves(B, H, k=4)], waves(T, B, H, k=5), engine)
    found = dict(grads) | {"loss": loss.item(), "h0": dh0, "x0": dx[0]}
    assert set(found) == set(GRU[reset])
    for name, expected in GRU[reset].items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-11, atol=1e-16, err_msg=name)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_reset_comes_after_or_before_the_product_and_z_keeps_the_old_state(engine):
    # W_hn swaps the two units; r = (1, 0); z = 0: n alone. After: tanh(r·(h W)) of h = (1, 2); before: tanh((r·h) W).
    for reset, expected in [("after", np.tanh([2.0, 0.0])), ("before", np.tanh([0.0, 1.0]))]:
        cell = mb.GRUCell(1, 2, reset=reset, dtype=f64)
        W_h = np.zeros((2, 6))
        W_h[:, 4:] = [[0, 1], [1, 0]]
        cell_with(cell, W_x=np.zeros((1, 6)), W_h=W_h, b=[100, -100, -100, -100, 0, 0])
        if reset == "after":
            mb.assign(cell.b_hn, [0, 0])
        out, _ = mb.unroll(cell, np.zeros((1, 1, 1)), np.array([[1.0, 2.0]]), engine=engine)
        np.testing.assert_allclose(out.value[0, 0], expected, rtol=1e-12, atol=1e-15)
        mb.assign(cell.b, [100, -100, 100, 100, 0, 0])
        out, _ = mb.unroll(cell, np.zeros((3, 1, 1)), np.array([[1.0, 2.0]]), engine=engine)
        np.testing.assert_allclose(out.value[-1, 0], [1, 2], rtol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_forget_bias_is_a_real_parameter_value_in_the_forget_gate_alone(engine):
    one, other = (mb.LSTMCell(2, 3, forget_bias=bias, rng=0, dtype=f64) for bias in (1.0, 5.0))
    assert one.by_gate(one.b.value)["f"].tolist() == [1, 1, 1] and other.by_gate(other.b)["f"].tolist() == [5, 5, 5]
    for gate in "igo":
        assert np.array_equal(one.by_gate(one.b.value)[gate], other.by_gate(other.b.value)[gate])
    # With all other weights 0 the cell decays by σ(forget bias) a step.
    cell = cell_with(mb.LSTMCell(1, 1, forget_bias=2.0, dtype=f64), W_x=np.zeros((1, 4)), W_h=np.zeros((1, 4)))
    mb.assign(cell.b, cell.b.value * [0, 1, 0, 0])
    _, (h, c) = mb.unroll(cell, np.zeros((3, 1, 1)), (np.zeros((1, 1)), np.ones((1, 1))), engine=engine)
    np.testing.assert_allclose(c.item(), (1 / (1 + np.exp(-2.0))) ** 3, rtol=1e-14)
    np.testing.assert_allclose(h.item(), 0.5 * np.tanh(c.item()), rtol=1e-14)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_recurrence_asked_twice_gives_the_numbers_worked_out_elsewhere(engine):
    # h_t = tanh(x_t + h_{t−1} W_h), T = 3, B = H = 2, L = Σ h·G; adding to dy in place gives another dW_h in the end.
    T, B, H = 3, 2, 2
    cell = cell_with(mb.RNNCell(H, H, dtype=f64), W_x=np.eye(H), W_h=2 * waves(H, H, k=2), b=np.zeros(H))
    G = waves(B, T, H, k=5).transpose(1, 0, 2)
    for _ in range(2):
        _, out, _, grads, _, (dh0,), _, _ = ask(cell, waves(T, B, H), [waves(B, H, k=4)], G, engine)
        expected = [[0.15051821279480587, 0.22995833857959933], [-0.05989204766968177, 0.14322606862818835]]
        np.testing.assert_allclose(grads["W_h"], expected, rtol=1e-12)
        expected = [[-0.0252449479719192, 0.2659560763603517], [0.01713656578286541, 0.3409222486230283]]
        np.testing.assert_allclose(dh0, expected, rtol=1e-12)
        expected = [[0.4518663045424206, 0.6944724379587961], [-0.34295963128788626, -0.6441453490716205]]
        np.testing.assert_allclose(out.value[0], expected, rtol=1e-12)


# --- two engines, one answer ----------------------------------------------------------------------------------------


def agree(one, other, tolerance):
    def close(a, b, name):
        a, b = (np.asarray(getattr(v, "value", v)) for v in (a, b))
        assert a.shape == b.shape and a.dtype == b.dtype, name
        assert np.abs(a - b).max(initial=0) <= tolerance * max(1e-3, np.abs(b).max(initial=0)), name

    for name, a, b in zip("loss outputs final grads dx d_state adjoints dropped".split(), one, other):  # noqa: SIM905
        if isinstance(b, dict | mb.Gradients):
            assert list(a) == list(b), name
            for key in b:
                close(a[key], b[key], f"{name} {key}")
        elif isinstance(b, list | tuple):
            for i, (p, q) in enumerate(zip(a, b, strict=True)):
                close(p, q, f"{name} {i}")
        else:
            close(a, b, name)


@pytest.mark.parametrize("kind", MAKE)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_both_engines_agree_over_shapes_lengths_resets_factors_states_and_losses(kind, data):
    draw = data.draw
    T, B, D, H = (draw(st.integers(1, n)) for n in (7, 4, 3, 4))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    cell = MAKE[kind](D, H, rng=rng, dtype=f64)
    parts = len(list(leaves(cell.zero_state(1))))
    options = {
        "lengths": draw(st.sampled_from([None, rng.integers(0, T + 1, B)])),
        "mask": draw(st.sampled_from([None, rng.random((T, B)) < 0.7])),
        "resets": draw(st.sampled_from([None, rng.random((T, B)) < 0.3])),
        "cut_every": draw(st.sampled_from([None, 1, 2, 3])),
    }
    by_part = lambda cut: 1 if cut.name == "c" else cut.step / 4  # noqa: E731
    through = draw(st.sampled_from([False, True, 0.5, -1.5, lambda cut: cut.step / 4, by_part]))
    G = draw(st.sampled_from([None, rng.standard_normal((T, B, H))]))
    final = draw(st.sampled_from([None, list(rng.standard_normal((parts, B, H))), [rng.standard_normal((B, H))]]))
    shape = draw(st.sampled_from([(B, H), (1, H), (H,)]))
    state, x = [rng.standard_normal(shape) for _ in range(parts)], rng.standard_normal((T, B, D))
    before = [a.copy() for a in (x, *state)]
    one, other = (ask(cell, x, state, G, engine, through, final, **options) for engine in ENGINES)
    agree(one, other, 1e-11)
    assert all(np.array_equal(a, b) for a, b in zip(before, (x, *state)))


@pytest.mark.parametrize("kind", MAKE)
def test_float32_stays_float32_and_agrees_with_float64(kind):
    rng = np.random.default_rng(0)
    x, G = rng.standard_normal((2, 20, 3, 4)).astype(np.float32)
    double = MAKE[kind](4, 4, rng=1, dtype=f64)
    single = cell_with(MAKE[kind](4, 4, rng=1), **{n: p.value for n, p in double.named_parameters()})
    parts = len(list(leaves(single.zero_state(1))))
    for engine in ENGINES:
        state = [np.zeros((3, 4), np.float32)] * parts
        one = ask(single, x, state, G, engine)
        two = ask(double, x.astype(f64), [h.astype(f64) for h in state], G.astype(f64), "tape")
        for a, b in zip((one[1].value, one[4], *one[3].values()), (two[1].value, two[4], *two[3].values())):
            assert a.dtype == np.float32
            assert np.abs(a - b).max() <= 1e-4 * np.abs(b).max()
        out, _ = mb.unroll(single, x.astype(f64), engine=engine)  # data adapts to the weights
        assert out.dtype == np.float32


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("engine", ENGINES)
def test_the_complex_step_agrees_through_two_hundred_steps(kind, engine):
    rng = np.random.default_rng(3)
    cell = MAKE[kind](2, 3, rng=rng, dtype=f64)
    x, G = rng.standard_normal((200, 2, 2)), rng.standard_normal((200, 2, 3))

    def loss():
        out, state = mb.unroll(cell, x, engine=engine, lengths=[200, 170])
        return mb.sum(out * G) + sum(mb.sum(h * h) for _, h in leaves(state))

    method = "central difference" if kind == "relu" else "complex step"
    tolerance = 1e-6 if kind == "relu" else 1e-11
    mb.check_gradient(loss, cell, method=method, tolerance=tolerance, coordinates=12)


@pytest.mark.parametrize("kind", MAKE)
def test_mended_cuts_inside_one_record_give_the_full_gradient_to_the_bit(kind):
    rng = np.random.default_rng(0)
    cell = MAKE[kind](3, 4, rng=0)
    x, G = rng.standard_normal((9, 2, 3)).astype(np.float32), rng.standard_normal((9, 2, 4)).astype(np.float32)
    state = [np.zeros((2, 4), np.float32)] * len(list(leaves(cell.zero_state(1))))
    full = ask(cell, x, state, G, "explicit")
    mended = ask(cell, x, state, G, "explicit", True, cut_every=2)
    assert full[3] == mended[3] and np.array_equal(full[4], mended[4])
    assert all(np.array_equal(a, b) for a, b in zip(full[5], mended[5]))


@pytest.mark.parametrize("kind", MAKE)
def test_the_adjoint_of_what_stands_after_a_cut_is_the_same_in_both_engines(kind):
    cell = MAKE[kind](2, 3, rng=0, dtype=f64)
    x = np.random.default_rng(0).standard_normal((5, 2, 2))
    for through in (False, True, 0.5, lambda cut: float(cut.name == "h")):
        answers = []
        for engine in ENGINES:
            with mb.Tape() as tape:
                out, _ = mb.unroll(cell, x, cut_every=2, engine=engine)
                loss = mb.sum(out * out)
            answers.append(tape.gradient(loss, [cut.tensor for cut in tape.cuts], through_cuts=through))
        assert all(np.abs(a).min() > 0 for a in answers[0])
        for a, b in zip(*answers, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-11)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_nothing_crosses_a_closed_cut_not_even_an_infinite_adjoint(engine):
    cell = cell_with(mb.RNNCell(1, 1, "linear", rng=0), W_h=[[1e20]])
    with mb.Tape() as tape:
        x = tape.watch(np.zeros((6, 1, 1), np.float32))
        _, h = mb.unroll(cell, x, cut_every=3, engine=engine)
        loss = mb.sum(h)
    dx = tape.gradient(loss, x).ravel()
    assert np.isinf(dx[3]) and dx[:3].tolist() == [0, 0, 0]


@pytest.mark.parametrize("engine", ENGINES)
def test_each_part_of_an_initial_state_may_broadcast_in_its_own_way(engine):
    cell, x = mb.LSTMCell(2, 3, rng=0, dtype=f64), waves(4, 2, 2)
    h, c = waves(3), waves(2, 1, k=3)
    _, whole, _, grads, dx, _, _, _ = ask(cell, x, [h + np.zeros((2, 3)), c + np.zeros((2, 3))], waves(4, 2, 3), engine)
    _, out, _, same, dx2, d_state, _, _ = ask(cell, x, [h, c], waves(4, 2, 3), engine)
    np.testing.assert_allclose(out.value, whole.value, rtol=1e-12)
    np.testing.assert_allclose(dx2, dx, rtol=1e-12)
    assert same.relative_error(grads) < 1e-13
    assert [d.shape for d in d_state] == [(3,), (2, 1)]


def test_explicit_passes_are_not_taken_for_a_cell_whose_equations_differ():
    class Doubled(mb.RNNCell):
        def step(self, x, h):
            h, _ = super().step(x, h)
            return 2 * h, h

    class Warm(mb.RNNCell):
        def zero_state(self, batch):
            return mb.ones((batch, self.H))

    x = np.ones((3, 1, 2))
    with pytest.raises(TypeError, match=r"Doubled has a step of its own.*engine='tape'"):
        mb.unroll(Doubled(2, 3, rng=0), x, engine="explicit")
    with pytest.raises(TypeError, match=r"Warm has a zero_state of its own.*engine='tape'"):
        mb.unroll(Warm(2, 3, rng=0), x, resets=np.eye(3, 1), engine="explicit")
    one, other = (mb.unroll(Warm(2, 3, rng=0), x, engine=engine)[0].value for engine in ENGINES)
    np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize("kind", MAKE)
def test_the_passes_by_hand_on_strict_device_arrays_give_the_same_numbers(xp, kind):
    rng = np.random.default_rng(0)
    x, G = rng.standard_normal((5, 3, 2)).astype(np.float32), rng.standard_normal((5, 3, 4)).astype(np.float32)
    with mb.use_backend("numpy"):
        host = MAKE[kind](2, 4, rng=0)
    here = MAKE[kind](2, 4, rng=0)
    results = []
    for cell, put in ((host, np.asarray), (here, xp.asarray)):
        with mb.Tape() as tape:
            out, _ = mb.unroll(cell, put(x), engine="explicit", cut_every=2, lengths=[5, 2, 4], resets=np.eye(5, 3) > 0)
            loss = mb.sum(out * put(G))
        results.append((mb.to_numpy(out), tape.gradient(loss, cell, through_cuts=0.5), tape.adjoints(loss)))
    for a, b in zip(results[0][1].values(), results[1][1].values()):
        np.testing.assert_allclose(mb.to_numpy(b), a, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(results[1][0], results[0][0], rtol=1e-5, atol=1e-7)


# --- the passes themselves ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MAKE)
def test_backward_called_twice_gives_the_same_and_changes_nothing_that_was_given(kind):
    rng = np.random.default_rng(0)
    cell = MAKE[kind](2, 3, rng=0, dtype=f64)
    parts = len(list(leaves(cell.zero_state(1))))
    x, state = rng.standard_normal((4, 2, 2)), [rng.standard_normal((2, 3)) for _ in range(parts)]
    dy, d_final = rng.standard_normal((4, 2, 3)), [rng.standard_normal((2, 3)) for _ in range(parts)]
    real = np.array([[1, 1], [1, 1], [1, 0], [1, 0]], bool)
    given = [x, *state, dy, *d_final, real]
    before = [a.copy() for a in given]
    saved = cell.forward(x, state, real)
    outputs = saved.outputs.copy()
    answers = []
    for _ in range(2):
        p = cell.backward(saved, dy, d_final, {2: 0.5})
        answers.append(
            [p.dx(), *p.d_state, *[q() for q in p.parameters], *p.adjoints, *p.gates.values(), *p.dropped[2]]
        )
    assert all(np.array_equal(a, b) for a, b in zip(*answers))
    assert all(np.array_equal(a, b) for a, b in zip(before, given)) and np.array_equal(outputs, saved.outputs)
    again = cell.forward(x, state, real)
    assert not any(np.shares_memory(a, b) for a, b in zip(saved.states, again.states))


@pytest.mark.parametrize("kind", MAKE)
def test_the_adjoints_of_the_gates_are_those_of_the_pre_activations(kind):
    """db is their sum over time and batch; for each gate apart, by the finite change of its bias at one step."""
    rng = np.random.default_rng(0)
    cell = MAKE[kind](2, 3, rng=0, dtype=f64)
    parts = len(list(leaves(cell.zero_state(1))))
    x, dy = rng.standard_normal((4, 2, 2)), rng.standard_normal((4, 2, 3))
    p = cell.backward(cell.forward(x, [np.zeros((2, 3))] * parts), dy, [None] * parts)
    assert list(p.gates) == list(cell.gates or "a")
    names = list(cell.parameters())
    db = dict(zip(names, [q() for q in p.parameters]))["b"]
    np.testing.assert_allclose(np.concatenate([g.sum((0, 1)) for g in p.gates.values()]), db, rtol=1e-12)


@pytest.mark.parametrize("kind", MAKE)
def test_outputs_that_are_not_used_contribute_exactly_nothing(kind):
    cell = MAKE[kind](2, 3, rng=0, dtype=f64)
    x = np.random.default_rng(0).standard_normal((5, 2, 2))
    with mb.Tape() as tape:
        out, state = mb.unroll(cell, x, engine="explicit")
        _ = out * np.nan  # on the tape, but not in the loss
        last = [h for _, h in leaves(state)][-1]
        loss = mb.sum(last * last)
    assert all(np.isfinite(g).all() for g in tape.gradient(loss, cell).values())


def test_a_parameter_of_one_gate_alone_is_not_taken_apart_by_gate():
    cell = mb.GRUCell(2, 3, rng=0)
    with pytest.raises(ValueError, match=r"\(3,\) does not divide into 3 gates \(r, z, n\) of H = 3 units"):
        cell.by_gate(cell.b_hn)


# --- PyTorch --------------------------------------------------------------------------------------------------------

LAYERS = {"lstm": "LSTM", "gru after": "GRU", "tanh": "RNN", "relu": "RNN"}


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-11), (np.float32, 1e-4)])
def test_both_engines_give_pytorchs_numbers(kind, dtype, tolerance):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; the fixed numbers above stand for it")
    T, B, D, H = 11, 3, 4, 5
    rng = np.random.default_rng(5)
    cell = MAKE[kind](D, H, rng=rng, dtype=dtype)
    options = {"nonlinearity": "relu"} if kind == "relu" else {}
    layer = getattr(torch.nn, LAYERS[kind])(D, H, **options).to(torch.tensor(np.zeros(1, dtype)).dtype)
    with torch.no_grad():
        layer.weight_ih_l0.copy_(torch.tensor(cell.W_x.value.T.copy()))
        layer.weight_hh_l0.copy_(torch.tensor(cell.W_h.value.T.copy()))
        layer.bias_ih_l0.copy_(torch.tensor(cell.b.value.copy()))
        layer.bias_hh_l0.zero_()
        if kind == "gru after":
            layer.bias_hh_l0[2 * H :] = torch.tensor(cell.b_hn.value.copy())
    x, G = rng.standard_normal((T, B, D)).astype(dtype), rng.standard_normal((T, B, H)).astype(dtype)
    parts = len(list(leaves(cell.zero_state(1))))
    state = [rng.standard_normal((B, H)).astype(dtype) for _ in range(parts)]
    weights = [rng.standard_normal((B, H)).astype(dtype) for _ in range(parts)]
    X, S = torch.tensor(x, requires_grad=True), [torch.tensor(h[None], requires_grad=True) for h in state]
    y, after = layer(X, tuple(S) if parts > 1 else S[0])
    after = after if parts > 1 else (after,)
    loss = (y * torch.tensor(G)).sum() + sum((h[0] * torch.tensor(w)).sum() for h, w in zip(after, weights))
    loss.backward()
    expected = {"W_x": layer.weight_ih_l0.grad.T, "W_h": layer.weight_hh_l0.grad.T, "b": layer.bias_ih_l0.grad}
    if kind == "gru after":
        expected["b_hn"] = layer.bias_hh_l0.grad[2 * H :]
    for engine in ENGINES:
        _, outputs, final, grads, dx, d_state, _, _ = ask(cell, x, state, G, engine, final=weights)
        pairs = [(outputs.value, y), (dx, X.grad), *[(grads[n], g) for n, g in expected.items()]]
        pairs += [(a.value, b[0]) for a, b in zip(final, after)] + [(a, b.grad[0]) for a, b in zip(d_state, S)]
        for a, b in pairs:
            b = b.detach().numpy()
            assert np.abs(a - b).max() <= tolerance * np.abs(b).max()
