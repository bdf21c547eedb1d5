"""A cell over time: padding, resets, cuts, initial states, bad input, and the clock."""

import gc
import weakref
from typing import NamedTuple

import numpy as np
import pytest
from toys import Scalar

import minibptt as mb
from minibptt.nest import leaves, map_nest, rebuild

f64 = np.float64


def wave(*shape, k=0):
    """½·sin(k + 1), ½·sin(k + 2), … in `shape`."""
    return (0.5 * np.sin(np.arange(np.prod(shape, dtype=int)) + 1 + k)).reshape(shape)


def rnn(D=2, H=2, b=0.4):
    """A tanh cell with large, fixed weights: W_x and W_h = 2·wave, b = wave + b."""
    cell = mb.RNNCell(D, H, dtype=f64)
    for p, value in [(cell.W_x, 2 * wave(D, H, k=1)), (cell.W_h, 2 * wave(H, H, k=2)), (cell.b, wave(H, k=3) + b)]:
        mb.assign(p, value)
    return cell


class ScalarFrom(Scalar):
    """The same from a learnable h₀ = 2, the same for all rows."""

    def __init__(self, w=0.5):
        super().__init__(w)
        self.h0 = mb.parameter([2.0], dtype=f64)

    def zero_state(self, batch):
        return self.h0 * mb.ones((batch, 1))


class State(NamedTuple):
    h: mb.Tensor
    c: mb.Tensor


FORMS = {
    "tuple": lambda h, c: (h, c),
    "list": lambda h, c: [h, c],
    "dict": lambda h, c: {"h": h, "m": c},
    "namedtuple": State,
    "nested": lambda h, c: {"a": (h,), "b": [{"c": c}]},
}


class Pair(mb.Cell):
    """A state of two parts, in any form: c_t = v·c_{t−1} + x_t;  h_t = tanh(w·h_{t−1} + c_t)."""

    def __init__(self, form="tuple"):
        self.w, self.v, self.form = mb.parameter([0.7], dtype=f64), mb.parameter([0.9], dtype=f64), form

    def zero_state(self, batch):
        return FORMS[self.form](mb.zeros((batch, 1)), mb.zeros((batch, 1)))

    def step(self, x, state):
        h, c = [part for _, part in leaves(state)]
        c = self.v * c + x
        h = mb.tanh(self.w * h + c)
        return h, FORMS[self.form](h, c)


class Tokens(mb.Cell):
    """h_t = tanh(E[id_t] + h_{t−1} @ W): token ids come straight into the cell."""

    def __init__(self, V=5, H=2):
        self.E, self.W = mb.parameter(wave(V, H)), mb.parameter(wave(H, H, k=4))

    def zero_state(self, batch):
        return mb.zeros((batch, self.W.shape[0]))

    def step(self, ids, h):
        h = mb.tanh(mb.embedding(self.E, ids=ids) + h @ self.W)
        return h, h


def everything(cell, x, state=None, **options):
    """Outputs, last state and all gradients, by name, of a loss that uses every output and the last state."""
    tokens = np.asarray(x).dtype.kind == "i"
    with mb.Tape() as tape:
        x = x if tokens else tape.watch(x)
        first = tape.watch(map_nest(np.asarray, cell.zero_state(x.shape[1]) if state is None else state))
        out, last = mb.unroll(cell, x, first, **options)
        loss = mb.sum(out * out)
        for i, (_, part) in enumerate(leaves(last)):
            loss = loss + mb.sum(part * wave(*part.shape, k=i))
    gradients = {"d" + name: g for name, g in tape.gradient(loss, cell).items()}
    if not tokens:
        gradients["dx"] = tape.gradient(loss, x)
    starts = {f"dstart{i}": tape.gradient(loss, part) for i, (_, part) in enumerate(leaves(first))}
    ends = {f"last{i}": part.value for i, (_, part) in enumerate(leaves(last))}
    return {"out": out.value} | ends | gradients | starts


def assert_same(found, expected, tolerance=0.0, skip=()):
    """Equal to the bit, or to a tolerance; nan is equal to nothing."""
    assert set(found) == set(expected)
    for name in set(found) - set(skip):
        if tolerance:
            np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=tolerance, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name, strict=True)
        assert np.isfinite(found[name]).all(), name


# --- padding ---------------------------------------------------------------------------------------------------

T, LENGTHS = 5, [5, 2, 0, 3]
REAL = np.arange(T)[:, None] < LENGTHS
CELLS = {"rnn": lambda: rnn(), "pair": lambda: Pair()}


def padded(cell, fill):
    """A batch of four rows for `cell`, with `fill` at the padded steps."""
    D = 2 if isinstance(cell, mb.RNNCell) else 1
    return np.where(REAL[..., None], wave(T, 4, D), fill)


@pytest.mark.parametrize("fill", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("cell", CELLS)
def test_what_stands_in_the_padding_changes_nothing_to_the_bit(cell, fill):
    cell = CELLS[cell]()
    for options in (
        {},
        {"cut_every": 2},
        {"resets": [[0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 1, 1, 0], [0] * 4]},
    ):
        clean, dirty = (everything(cell, padded(cell, f), lengths=LENGTHS, **options) for f in (0.0, fill))
        assert_same(dirty, clean)


@pytest.mark.parametrize("fill", [-1, 5, 2**62])
def test_impossible_token_ids_in_the_padding_change_nothing_to_the_bit(fill):
    ids = np.arange(T * 4).reshape(T, 4) % 5
    clean, dirty = (everything(Tokens(), np.where(REAL, ids, f), lengths=LENGTHS) for f in (0, fill))
    assert_same(dirty, clean)
    assert_same(everything(Tokens(), np.where(REAL, ids, fill), mask=REAL), clean)


@pytest.mark.parametrize("fill", [-1, 5, 2**62])
def test_impossible_token_ids_in_the_padding_never_reach_an_embedding_layer(fill):
    model = mb.Sequential(mb.Embedding(5, 3, rng=0), mb.RNNCell(3, 2, rng=1), mb.Linear(2, 4, rng=2))
    ids, answers = np.arange(T * 4).reshape(T, 4) % 5, []
    for f in (0, fill):
        with mb.Tape() as tape:
            out, (h,) = model(np.where(REAL, ids, f), lengths=LENGTHS)
            loss = mb.sum(out * out)
        answers.append({"out": out.value, "h": h.value, **tape.gradient(loss, model)})
    assert_same(answers[1], answers[0])


def test_a_padded_step_passes_the_state_through_and_outputs_exactly_zero():
    x = np.array([1.0, 2.0, np.nan, np.nan]).reshape(4, 1, 1)
    cell = ScalarFrom()
    with mb.Tape() as tape:
        out, h = mb.unroll(cell, x, lengths=[2])
        loss = mb.sum(out)
    assert out.value.ravel().tolist() == [2.0, 3.0, 0.0, 0.0]  # ½·2 + 1, ½·2 + 2
    assert h.item() == 3.0
    assert tape.adjoints(loss)["h"].ravel().tolist() == [1.5, 1.0, 0.0, 0.0]
    assert tape.gradient(h, cell.h0).item() == 0.25  # w², not w⁴: two steps, not four


def test_a_padded_step_outputs_zero_where_the_cell_itself_would_give_infinity():
    class Inverse(Scalar):
        """y_t = w / (x_t − x_{t−1})."""

        def step(self, x, h):
            return self.w / (x - h), 0 * h + x

    with np.errstate(divide="ignore"):  # the padded step sees the one real input again
        out, h = mb.unroll(Inverse(), np.full((2, 1, 1), 4.0), lengths=[1])
    assert out.value.ravel().tolist() == [0.125, 0.0] and h.item() == 4.0


def test_sums_of_inputs_stay_after_the_last_real_step():
    x = np.array([1.0, 2.0, 3.0, 9.0, 9.0]).reshape(5, 1, 1)
    out, h = mb.unroll(Scalar(1.0), x, mask=[[1], [1], [1], [0], [0]])
    assert out.value.ravel().tolist() == [1.0, 3.0, 6.0, 0.0, 0.0]
    assert h.item() == 6.0


def test_three_padded_rows_have_the_states_and_gradients_worked_out_without_padding():
    real = np.arange(4) < np.array([4, 1, 2])[:, None]  # (B, T)
    x = np.where(real[..., None], wave(3, 4, 2), np.nan)
    right = np.swapaxes(x, 0, 1), {"lengths": [4, 1, 2]}
    left = np.full((4, 3, 2), np.nan), {"mask": np.flip(real, axis=1).T}
    for b, n in enumerate([4, 1, 2]):
        left[0][4 - n :, b] = x[b, :n]
    for inputs, options in (right, left):
        cell = rnn()
        with mb.Tape() as tape:
            inputs = tape.watch(inputs)
            _, h = mb.unroll(cell, inputs, **options)
            loss = mb.sum(h)
        dx = tape.gradient(loss, inputs)
        expected = {
            "h": [
                [0.3769703967446047, 0.024898583366408586],
                [0.39256281816506394, 0.20740146076613017],
                [-0.4423540641480428, -0.43525390598428143],
            ],
            "W_h": [[-0.8311226297156837, -1.0836865809249299], [-0.5907028078043081, -0.8978479360541526]],
            "b": [1.4339629996132, 1.2603327226210237],
            "dx": -0.8120333884741826,
        }
        found = {"h": h.value, "W_h": tape.gradient(loss, cell.W_h), "b": tape.gradient(loss, cell.b), "dx": dx.sum()}
        assert_same(found, expected, 1e-13)
        assert np.isfinite(dx).all() and (dx[np.isnan(inputs.value)] == 0).all()


def test_the_gradient_at_padded_inputs_is_exactly_zero():
    for cell in (rnn(), Pair()):
        dx = everything(cell, padded(cell, np.nan), lengths=LENGTHS)["dx"]
        assert (dx[~REAL] == 0).all() and (dx[REAL] != 0).all()


def test_a_row_without_a_real_step_keeps_its_initial_state_and_passes_its_whole_gradient_to_it():
    cell, x = rnn(), padded(rnn(), np.nan)
    found = everything(cell, x, wave(4, 2), lengths=LENGTHS)
    assert (found["out"][:, 2] == 0).all() and (found["dx"][:, 2] == 0).all()
    np.testing.assert_array_equal(found["last0"][2], wave(4, 2)[2])
    np.testing.assert_array_equal(found["dstart0"][2], wave(4, 2)[2])  # the loss weights the last state by wave


def test_a_batch_of_nothing_but_padding_gives_zeros():
    for x in (np.full((3, 2, 2), np.nan), np.full((3, 2, 2), np.inf)):
        found = everything(rnn(), x, wave(2, 2), lengths=[0, 0])
        start = {"last0": wave(2, 2), "dstart0": wave(2, 2)}
        assert_same(found, {name: start.get(name, np.zeros_like(a)) for name, a in found.items()})


@pytest.mark.parametrize("more", [1, 4])
def test_the_amount_of_padding_changes_nothing_to_the_bit(more):
    for cell in (rnn(), Pair()):
        x = padded(cell, np.nan)
        longer = np.concatenate([x, np.full((more, *x.shape[1:]), np.nan)])
        less, found = everything(cell, x, lengths=LENGTHS), everything(cell, longer, lengths=LENGTHS)
        assert_same(found, less, skip=["out", "dx"])
        for name in ("out", "dx"):
            np.testing.assert_array_equal(found[name][:T], less[name])
            assert (found[name][T:] == 0).all()


def test_a_padded_batch_equals_its_rows_run_alone():
    for cell in (rnn(), Pair()):
        x = padded(cell, np.nan)
        found, sums = everything(cell, x, lengths=LENGTHS), {}
        weights = {f"last{i}": wave(*found[f"last{i}"].shape, k=i) for i in range(2) if f"last{i}" in found}
        for b, n in enumerate(LENGTHS):
            if not n:
                continue
            with mb.Tape() as tape:
                row = tape.watch(x[:n, b : b + 1])
                out, last = mb.unroll(cell, row)
                loss = mb.sum(out * out)
                for i, (_, part) in enumerate(leaves(last)):
                    loss = loss + mb.sum(part * weights[f"last{i}"][b])
            np.testing.assert_allclose(found["out"][:n, b], out.value[:, 0], atol=1e-12)
            np.testing.assert_allclose(found["dx"][:n, b], tape.gradient(loss, row)[:, 0], atol=1e-12)
            for i, (_, part) in enumerate(leaves(last)):
                np.testing.assert_allclose(found[f"last{i}"][b], part.value[0], atol=1e-12)
            for name, g in tape.gradient(loss, cell).items():
                sums["d" + name] = sums.get("d" + name, 0) + g
        assert_same({name: found[name] for name in sums}, sums, 1e-12)


def test_lengths_and_a_mask_together_leave_what_both_call_real():
    cell, holes = rnn(), np.ones((T, 4), bool)
    holes[1, 0] = holes[0, 3] = False
    x = np.where((REAL & holes)[..., None], wave(T, 4, 2), np.nan)
    both = everything(cell, x, lengths=LENGTHS, mask=holes)
    assert_same(both, everything(cell, x, mask=REAL & holes))
    assert (both["out"][1, 0] == 0).all() and (both["out"][2, 0] != 0).all()


def test_a_mask_of_floats_or_bools_or_ints_is_the_same_mask():
    cell, x = rnn(), padded(rnn(), np.nan)
    expected = everything(cell, x, mask=REAL)
    for mask in (REAL.astype(float), REAL.astype(int), REAL.tolist(), mb.Tensor(REAL.astype(float))):
        assert_same(everything(cell, x, mask=mask), expected)


# --- resets ----------------------------------------------------------------------------------------------------


def test_a_reset_lets_neither_value_nor_gradient_cross():
    x, resets = wave(4, 2, 1), np.array([[0, 0], [0, 0], [1, 0], [0, 0]])
    cell = Pair()
    with mb.Tape() as tape:
        x, start = tape.watch(x), tape.watch((np.full((2, 1), 0.3), np.full((2, 1), -0.4)))
        out, (h, c) = mb.unroll(cell, x, start, resets=resets)
        late = mb.sum(out[2:] * wave(2, 2, 1, k=3)) + mb.sum(h) + mb.sum(c)
        row = tape.watch(x.value[2:, :1])
        alone, (h_alone, c_alone) = mb.unroll(cell, row)
        late_alone = mb.sum(alone * wave(2, 2, 1, k=3)[:, :1]) + mb.sum(h_alone) + mb.sum(c_alone)
    np.testing.assert_array_equal(out.value[2:, 0], alone.value[:, 0])
    assert (h.value[0], c.value[0]) == (h_alone.value[0], c_alone.value[0])
    dx = tape.gradient(late, x)
    assert (dx[:2, 0] == 0).all() and (dx[:2, 1] != 0).all()
    np.testing.assert_array_equal(dx[2:, 0], tape.gradient(late_alone, row)[:, 0])
    for g in tape.gradient(late, start):
        assert g[0] == 0 and g[1] != 0


@pytest.mark.parametrize("form", FORMS)
def test_a_reset_takes_every_part_of_the_state_to_zero(form):
    x = np.ones((3, 1, 1))
    _, state = mb.unroll(Pair(form), x, FORMS[form](np.full((1, 1), 5.0), np.full((1, 1), 7.0)), resets=[[0], [0], [1]])
    h, c = [part.item() for _, part in leaves(state)]
    assert (h, c) == (np.tanh(1.0), 1.0)  # c = 0 + 1; h = tanh(0 + c)


def test_a_reset_falls_at_padded_steps_too():
    x = np.array([1.0, 2.0, np.nan, 4.0]).reshape(4, 1, 1)
    options = {"mask": [[1], [1], [0], [1]], "resets": [[0], [0], [1], [0]]}
    with mb.Tape() as tape:
        h0 = tape.watch(np.full((1, 1), 2.0))
        out, h = mb.unroll(Scalar(), x, h0, **options)
        last = mb.sum(out[3])
    assert out.value.ravel().tolist() == [2.0, 3.0, 0.0, 4.0] and h.item() == 4.0  # without the reset 5.5
    assert tape.gradient(last, h0).item() == 0.0
    _, h = mb.unroll(Scalar(), x[:3], h0.value, mask=options["mask"][:3], resets=options["resets"][:3])
    assert h.item() == 0.0


def test_a_reset_before_the_first_step_puts_the_zero_state_in_the_place_of_a_given_one():
    given = np.full((2, 1), 2.0)
    out, _ = mb.unroll(Scalar(), np.ones((1, 2, 1)), given, resets=[[1, 0]])
    assert out.value.ravel().tolist() == [1.0, 2.0]
    cell = ScalarFrom()  # whose zero state is the learnable h₀ = 2
    with mb.Tape() as tape:
        out, _ = mb.unroll(cell, np.ones((1, 2, 1)), np.full((2, 1), 6.0), resets=[[1, 0]])
        loss = mb.sum(out)
    assert out.value.ravel().tolist() == [2.0, 4.0]
    assert tape.gradient(loss, cell.h0).tolist() == [0.5]


# --- chunks and cuts -------------------------------------------------------------------------------------------


def forward_mode(xs, k, w=0.5, h=2.0):
    """(Σ h_t, its derivative by w, by h₀) where derivatives stop every k steps, carried forward by hand."""
    loss = loss_w = loss_h0 = h_w = 0.0
    h_h0 = 1.0
    for t, x in enumerate(xs):
        if t and t % k == 0:
            h_w = h_h0 = 0.0
        h, h_w, h_h0 = w * h + x, h + w * h_w, w * h_h0
        loss, loss_w, loss_h0 = loss + h, loss_w + h_w, loss_h0 + h_h0
    return loss, loss_w, loss_h0


SIX = np.arange(1.0, 7.0).reshape(6, 1, 1)
BY_K = [(1, 25.875, 0.5), (2, 31.5, 0.75), (3, 34.875, 0.875), (6, 38.8125, 0.984375)]


def cut_on_one_tape(cell, k):
    with mb.Tape() as tape:
        out, h = mb.unroll(cell, SIX, cut_every=k)
        loss = mb.sum(out)
    return out.value, h, loss.item(), tape.gradient(loss, cell)


def mended_on_a_finely_cut_tape(cell, k):
    with mb.Tape() as tape:
        out, h = mb.unroll(cell, SIX, cut_every=1)
        loss = mb.sum(out)
    assert [cut.step for cut in tape.cuts] == [2, 3, 4, 5, 6]
    return out.value, h, loss.item(), tape.gradient(loss, cell, through_cuts=lambda cut: (cut.step - 1) % k != 0)


def in_chunks(cell, k):
    outputs, total, gradients, h = [], 0.0, [], None
    for s in range(0, 6, k):
        with mb.Tape() as tape:
            out, h = mb.unroll(cell, SIX[s : s + k], mb.cut(h) if s else None)
            loss = mb.sum(out)
        outputs.append(out.value)
        total += loss.item()
        gradients.append(tape.gradient(loss, cell))
    return np.concatenate(outputs), h, total, sum(gradients[1:], gradients[0])


def by_schedule(cell, k):
    out, h = mb.unroll(cell, SIX)
    return out.value, h, mb.sum(out).item(), mb.bptt(cell, SIX, None, lambda out, y: mb.sum(out), mb.tbptt(k))


@pytest.mark.parametrize("way", [cut_on_one_tape, mended_on_a_finely_cut_tape, in_chunks, by_schedule])
@pytest.mark.parametrize("k, dw, dh0", BY_K)
def test_chunks_of_k_have_the_forward_numbers_of_the_whole_and_their_own_gradient(k, dw, dh0, way):
    """h_t = ½·h_{t−1} + t from h₀ = 2: exact in binary, worked by hand."""
    out, h, total, gradients = way(ScalarFrom(), k)
    assert out.ravel().tolist() == [2.0, 3.0, 4.5, 6.25, 8.125, 10.0625]
    assert (h.item(), total) == (10.0625, 33.9375)
    assert (gradients["w"].item(), gradients["h0"].item()) == (dw, dh0)


@pytest.mark.parametrize("length", range(1, 8))
@pytest.mark.parametrize("k", [1, 2, 3, 4, 9])
def test_a_tail_of_any_length_is_trained_on(length, k):
    xs = wave(7)[:length]
    cell = ScalarFrom()
    with mb.Tape() as tape:
        out, _ = mb.unroll(cell, xs.reshape(-1, 1, 1), cut_every=k)
        loss = mb.sum(out)
    found = loss.item(), tape.gradient(loss, cell.w).item(), tape.gradient(loss, cell.h0).item()
    np.testing.assert_allclose(found, forward_mode(xs, k), rtol=0, atol=1e-14)
    assert len(tape.cuts) == (length - 1) // k


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 8])
def test_chunks_that_carry_the_state_have_the_same_forward_numbers_as_the_whole_to_the_bit(k):
    """Rows 1 to 3 have chunks in which they have no real step."""
    resets = np.zeros((T, 4), bool)
    resets[3, 0] = resets[1, 1] = True
    for cell in (rnn(), Pair()):
        x = padded(cell, np.nan)
        whole, last = mb.unroll(cell, x, lengths=LENGTHS, resets=resets)
        state, outputs = cell.zero_state(4), []
        for s in range(0, T, k):
            here = np.clip(np.array(LENGTHS) - s, 0, len(x[s : s + k]))
            out, state = mb.unroll(cell, x[s : s + k], mb.cut(state), lengths=here, resets=resets[s : s + k])
            outputs.append(out.value)
        np.testing.assert_array_equal(np.concatenate(outputs), whole.value)
        for (_, found), (_, expected) in zip(leaves(state), leaves(last), strict=True):
            np.testing.assert_array_equal(found.value, expected.value)
        on_one_tape, _ = mb.unroll(cell, x, lengths=LENGTHS, resets=resets, cut_every=k)
        np.testing.assert_array_equal(on_one_tape.value, whole.value)


def test_a_masked_last_step_of_a_chunk_still_cuts_the_state():
    """x = 1, –, 3, 4, cut before step 3: h = 2, 2, 4, 6 from h₀ = 2.

    dh₁/dw = h₀ = 2. Cut: dh₃/dw = h₂ = 2, dh₄/dw = h₃ + ½·2 = 5; the sum is 9. Mended: dh₃/dw = h₂ + ½·2 = 3,
    dh₄/dw = 4 + ½·3 = 5.5; the sum is 10.5.
    """
    cell, x = ScalarFrom(), np.array([1.0, np.nan, 3.0, 4.0]).reshape(4, 1, 1)
    with mb.Tape() as tape:
        out, h = mb.unroll(cell, x, mask=[[1], [0], [1], [1]], cut_every=2)
        loss = mb.sum(out)
        late = mb.sum(out[2:])
    assert out.value.ravel().tolist() == [2.0, 0.0, 4.0, 6.0] and h.item() == 6.0
    numbers = [
        [tape.gradient(of, p, through_cuts=m).item() for p in (cell.w, cell.h0)]
        for m, of in [(False, loss), (True, loss), (False, late), (True, late)]
    ]
    assert numbers == [[9.0, 0.5], [10.5, 0.875], [7.0, 0.0], [8.5, 0.375]]
    ((cut, adjoint),) = tape.dropped(loss).items()
    assert (cut.step, adjoint.item()) == (3, 0.75)  # w + w²


def test_a_masked_first_step_of_a_chunk_passes_on_the_state_that_was_cut():
    """x = 1, 2, –, 4, cut before step 3: h = 2, 3, 3, 5.5. dh₄/dw = h₃ = 3, and ½·dh₂/dw = ½·(2 + ½·2) where mended."""
    cell, x = ScalarFrom(), np.array([1.0, 2.0, np.nan, 4.0]).reshape(4, 1, 1)
    with mb.Tape() as tape:
        out, _ = mb.unroll(cell, x, mask=[[1], [1], [0], [1]], cut_every=2)
        loss = mb.sum(out[3])
    assert out.value.ravel().tolist() == [2.0, 3.0, 0.0, 5.5]
    numbers = [[tape.gradient(loss, p, through_cuts=m).item() for p in (cell.w, cell.h0)] for m in (False, True)]
    assert numbers == [[3.0, 0.0], [4.5, 0.125]]
    ((cut, adjoint),) = tape.dropped(loss).items()
    assert (cut.step, adjoint.item()) == (3, 0.5)


def test_a_row_that_is_padded_through_a_whole_chunk_is_cut_at_both_its_ends():
    cell, x = ScalarFrom(), np.array([1.0, np.nan, np.nan, 4.0]).reshape(4, 1, 1)
    with mb.Tape() as tape:
        out, _ = mb.unroll(cell, x, mask=[[1], [0], [0], [1]], cut_every=1)
        loss = mb.sum(out[3])
    assert out.value.ravel().tolist() == [2.0, 0.0, 0.0, 5.0]
    assert tape.gradient(loss, cell.w).item() == 2.0  # h₃ = h₁ = 2 alone
    assert tape.gradient(loss, cell.w, through_cuts=True).item() == 3.0  # and w·h₀ = 1 more
    assert [d.item() for d in tape.dropped(loss).values()] == [0.0, 0.0, 0.5]


class Linear(mb.Cell):
    """h_t = w_x·x_t + b_x + w_h·h_{t−1} + b_h."""

    def __init__(self, dtype):
        for name, value in dict(w_x=3.0, b_x=1.0, w_h=2.0, b_h=1.0).items():
            setattr(self, name, mb.parameter([value], dtype=dtype))

    def zero_state(self, batch):
        return mb.zeros((batch, 1))

    def step(self, x, h):
        h = self.w_x * x + self.b_x + self.w_h * h + self.b_h
        return h, h


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_smallest_cell_cut_at_every_step_has_the_numbers_worked_by_hand(dtype):
    cell = Linear(dtype)
    x = np.array([1.0, 2.0, 3.0, 0.0]).reshape(4, 1, 1)
    y = np.array([4.0, 6.0, 8.0, 0.0]).reshape(4, 1, 1)
    with mb.Tape() as tape:
        out, h = mb.unroll(cell, x, lengths=[3], cut_every=1)
        loss = mb.sum(out - y)
    assert loss.item() == 52.0 and out.value.ravel().tolist() == [5.0, 18.0, 47.0, 0.0] and h.item() == 47.0
    assert out.dtype == h.dtype == loss.dtype == dtype
    cut, full = tape.gradient(loss, cell), tape.gradient(loss, cell, through_cuts=True)
    assert {name: g.tolist() for name, g in cut.items()} == dict(w_x=[6.0], b_x=[3.0], w_h=[23.0], b_h=[3.0])
    assert {name: g.tolist() for name, g in full.items()} == dict(w_x=[16.0], b_x=[11.0], w_h=[33.0], b_h=[11.0])
    assert all(g.dtype == dtype for g in [*cut.values(), *full.values()])
    adjoints = {m: tape.adjoints(loss, through_cuts=m)["h"] for m in (False, True)}
    assert adjoints[True].shape == (4, 1, 1) and adjoints[True].dtype == dtype
    assert adjoints[True].ravel().tolist() == [7.0, 3.0, 1.0, 0.0]
    assert adjoints[False].ravel().tolist() == [1.0, 1.0, 1.0, 0.0]
    dropped = tape.dropped(loss)
    assert [(c.step, c.name, d.item()) for c, d in dropped.items()] == [(2, "h", 2.0), (3, "h", 2.0), (4, "h", 0.0)]
    assert all(not d.any() for d in tape.dropped(loss, through_cuts=True).values())


def test_a_state_of_two_parts_is_cut_in_both():
    x, cell = np.ones((2, 1, 1)), Pair()
    with mb.Tape() as tape:
        x = tape.watch(x)
        out, _ = mb.unroll(cell, x, cut_every=1)
        loss = mb.sum(out[1])
    assert len(tape.cuts) == 2
    assert tape.gradient(loss, x)[0].item() == 0.0
    h1, c2 = np.tanh(1.0), 1.9
    slope = 1 - np.tanh(0.7 * h1 + c2) ** 2
    np.testing.assert_allclose(tape.gradient(loss, cell.v), [slope * 1.0], rtol=1e-14)  # c₁ = 1
    by_h, by_c = slope * 0.7 * (1 - h1**2), slope * 0.9
    np.testing.assert_allclose(tape.gradient(loss, x, through_cuts=True)[0].item(), by_h + by_c, rtol=1e-14)


def test_cutting_after_a_tensor_was_used_leaves_the_old_use_as_it_was():
    for function, of_a, of_b in [(lambda b: mb.sum(b), 2.0, 1.0), (lambda b: mb.sum(b * b), 24.0, 12.0)]:
        with mb.Tape() as tape:
            a = tape.watch(np.full(2, 3.0))
            b = 2 * a
            before = function(b)
            d = mb.cut(b)
            after = function(d)
            both = before + after
        assert d is not b and d.value.tolist() == b.value.tolist() == [6.0, 6.0]
        assert tape.gradient(before, a).tolist() == [of_a] * 2
        assert tape.gradient(after, a).tolist() == [0.0] * 2
        assert tape.gradient(after, d).tolist() == [of_b] * 2
        assert tape.gradient(after, a, through_cuts=True).tolist() == [of_a] * 2
        assert tape.gradient(both, a).tolist() == [of_a] * 2


def test_the_past_of_a_cut_state_is_released_with_its_tape():
    cell, state, past = rnn(), None, []
    gc.disable()
    try:
        for _ in range(3):
            with mb.Tape() as tape:
                out, state = mb.unroll(cell, wave(4, 3, 2), mb.cut(state))
            past.append(weakref.ref(tape.records[0].outputs[0]))
            del tape, out
        state = mb.cut(state)
        assert [ref() for ref in past] == [None] * 3
    finally:
        gc.enable()


def test_a_state_carried_to_a_new_tape_without_a_cut_is_an_error_that_names_cut():
    cell = rnn()
    with mb.Tape():
        _, h = mb.unroll(cell, wave(2, 3, 2))
    with mb.Tape(), pytest.raises(mb.TapeError, match=r"h₂ .*mb\.cut\(state\)"):
        mb.unroll(cell, wave(2, 3, 2), h)


# --- a recurrent net by hand ------------------------------------------------------------------------------------


def test_a_loss_at_every_step_has_the_gradient_of_full_bptt():
    x, h0, G = wave(4, 3, 2), wave(3, 2, k=4), wave(4, 3, 2, k=5)
    cell = rnn(b=0.0)
    with mb.Tape() as tape:
        x, h0 = tape.watch(x), tape.watch(h0)
        out, h = mb.unroll(cell, x, h0)
        loss = mb.sum(out * G)
    expected = {
        "L": -0.21288227045605163,
        "h_T": [
            [-0.07716182648550944, -0.5939099978501676],
            [0.4855059191218983, -0.13134076438107395],
            [-0.43513633037744937, 0.345875821164818],
        ],
        "W_x": [[-0.48737246655321675, 1.464554785514042], [-1.3416181191951746, 1.1290739875143208]],
        "W_h": [[0.20655428410967533, -0.2579122506298449], [0.5271888681609936, -0.5454233466834795]],
        "b": [-0.1016717276120113, 0.052661844767880384],
        "h0": [
            [-0.5418909207270576, 0.2665930258588467],
            [0.20754860845328732, -0.2718280551092684],
            [0.34862687958810973, 0.020467181054148298],
        ],
        "x_sum": -0.05857150447785686,
        "x_1": [
            [-0.3308069925623992, -0.25476283543327793],
            [0.2837626885514308, -0.059484705097361174],
            [0.03516526948845604, 0.341562544369684],
        ],
    }
    dx, dh0 = tape.gradient(loss, (x, h0))
    found = {"L": loss.value, "h_T": h.value, "h0": dh0, "x_sum": dx.sum(), "x_1": dx[0]}
    assert_same(found | dict(tape.gradient(loss, cell)), expected, 1e-13)


def test_a_loss_of_the_last_output_alone_reaches_every_earlier_step():
    W_x, W_h, b = (mb.parameter(v) for v in (2.0, 3.0, 0.5))
    with mb.Tape() as tape:
        h = h0 = tape.watch(np.array(-1.0, dtype=np.float32))
        for t, x in enumerate((1.0, -2.0), start=1):
            with tape.at(t):
                h = W_x * x + W_h * h + b
    assert h.item() == -5.0
    assert [g.item() for g in tape.gradient(h, (W_x, W_h, b, h0))] == [1.0, -3.5, 4.0, 9.0]  # the last step: −2, −½, 1


# --- states ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_a_state_may_be_any_nesting_and_comes_back_in_its_own_form(form):
    cell, x = Pair(form), padded(Pair(), np.nan)
    resets = np.zeros((T, 4), bool)
    resets[2, 0] = True
    options = {"lengths": LENGTHS, "resets": resets, "cut_every": 2}
    _, last = mb.unroll(cell, x, **options)
    assert type(last) is type(cell.zero_state(4))
    assert [path for path, _ in leaves(last)] == [path for path, _ in leaves(cell.zero_state(4))]
    assert_same(everything(cell, x, **options), everything(Pair(), x, **options))
    with mb.Tape() as tape:
        out, _ = mb.unroll(cell, x, **options)
        loss = mb.sum(out)
    paths = [path for path, _ in leaves(cell.zero_state(4))]
    assert set(tape.adjoints(loss)) == {f"state.{path}" for path in paths}


WRONG_RESULTS = {
    "nothing": (lambda h: None, "NoneType"),
    "the output alone": (lambda h: h, "Tensor"),
    "three things": (lambda h: (h, h, h), "tuple"),
    "a list": (lambda h: [h, h], "list"),
    "a bare array": (lambda h: (h.value, h), "tuple"),
}


@pytest.mark.parametrize("what", WRONG_RESULTS)
def test_a_step_that_returns_something_else_than_output_and_state_is_an_error(what):
    result, found = WRONG_RESULTS[what]

    class Wrong(Scalar):
        def step(self, x, h):
            return result(self.w * h + x)

    with pytest.raises(TypeError, match=rf"Wrong\.step must return \(output, next state\).*returned {found}"):
        mb.unroll(Wrong(), np.ones((2, 1, 1)))


def test_a_cell_without_its_two_methods_says_which_one_is_missing():
    class Empty(mb.Cell):
        pass

    with pytest.raises(TypeError, match=r"Empty has no zero_state\(batch\)"):
        mb.unroll(Empty(), np.ones((2, 1, 1)))
    with pytest.raises(TypeError, match=r"Empty has no step\(x, state\)"):
        mb.unroll(Empty(), np.ones((2, 1, 1)), np.ones((1, 1)))


def test_the_gradient_of_an_initial_state_for_all_rows_is_the_sum_over_the_batch():
    rows = [
        [0.8216017767104191, 0.7506315449256661],
        [0.4541659014847085, 0.6741951589546462],
        [0.44822627937899934, 0.7497202356472766],
    ]
    total = [1.723993957574127, 2.174546939527589]
    for shape, expected in {(2,): total, (1, 2): [total], (3, 2): rows}.items():
        cell = rnn()
        mb.assign(cell.b, np.zeros(2))
        h0 = mb.parameter(np.broadcast_to(wave(2, k=4), shape))
        with mb.Tape() as tape:
            _, h = mb.unroll(cell, wave(2, 3, 2), h0)
            loss = mb.sum(h)
        assert tape.gradient(loss, h0).shape == shape
        np.testing.assert_allclose(tape.gradient(loss, h0), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("shape", [(2,), (1, 2)])
def test_an_initial_state_for_all_rows_goes_through_padding_resets_and_cuts(shape):
    cell, x = rnn(), padded(rnn(), np.nan)
    resets = np.zeros((T, 4), bool)
    resets[0, 3] = resets[2, 0] = True
    options = {"lengths": LENGTHS, "resets": resets, "cut_every": 3}
    small, big = (everything(cell, x, np.broadcast_to(wave(2), s).copy(), **options) for s in (shape, (4, 2)))
    big["dstart0"] = big["dstart0"].sum(axis=0).reshape(shape)
    assert_same(small, big, 1e-14)


def test_a_short_last_batch_starts_from_a_zero_state_of_its_own_size():
    cell, x = rnn(), wave(4, 5, 2)
    whole, _ = mb.unroll(cell, x)
    for rows in (slice(0, 3), slice(3, 5)):
        out, h = mb.unroll(cell, x[:, rows])
        assert h.shape == (rows.stop - rows.start, 2)
        np.testing.assert_allclose(out.value, whole.value[:, rows], rtol=0, atol=1e-14)


def test_float32_stays_float32_whatever_it_meets():
    cell = mb.RNNCell(2, 3, rng=0)
    options = {"lengths": [4, 2], "resets": np.eye(4, 2), "cut_every": 2}
    for x in (wave(4, 2, 2), np.ones((4, 2, 2), int), np.ones((4, 2, 2)).tolist()):
        with mb.Tape() as tape:
            out, h = mb.unroll(cell, x, **options)
            loss = mb.sum(out * out)
        assert {out.dtype, h.dtype, loss.dtype, *[g.dtype for g in tape.gradient(loss, cell).values()]} == {
            np.dtype(np.float32)
        }


def test_nothing_that_the_caller_gave_is_changed():
    cell, x, state = rnn(), padded(rnn(), np.nan), wave(4, 2, k=7)
    mask, lengths, resets = REAL.copy(), np.array(LENGTHS), np.roll(REAL, 1)
    given = [x, state, mask, lengths, resets, *[p.value for p in cell.parameters().values()]]
    before = [a.copy() for a in given]
    h0, parts = mb.Tensor(state), {"h": state}
    with mb.Tape() as tape:
        out, h = mb.unroll(cell, x, h0, mask=mask, lengths=lengths, resets=resets, cut_every=2)
        loss = mb.sum(out * out)
        seed = np.ones(out.shape)
        first, second = (tape.gradient(out, cell, seed=seed) for _ in range(2))
        values = [r.outputs[0].value.copy() for r in tape.records]
        tape.gradient(loss, cell, through_cuts=True)
    for a, b in zip(given, before):
        np.testing.assert_array_equal(a, b)
    assert h0.value is state and h0.name is None and list(parts) == ["h"] and (seed == 1).all()
    assert_same(dict(first), dict(second))
    for record, value in zip(tape.records, values):
        np.testing.assert_array_equal(record.outputs[0].value, value)
    out.value[...] = 0  # outputs are no views of the state
    assert h.value.any()


def test_states_are_snapshots_and_a_seed_stays_as_it_was():
    class Driven(mb.Cell):
        """h_t = tanh(x_t + h_{t−1} @ W_h)."""

        def __init__(self):
            self.W_h = mb.parameter(2 * wave(2, 2, k=2))

        def step(self, x, h):
            h = mb.tanh(x + h @ self.W_h)
            return h, h

    cell, G = Driven(), np.swapaxes(wave(2, 3, 2, k=5), 0, 1).copy()
    seed = G.copy()
    with mb.Tape() as tape:
        h0 = tape.watch(wave(2, 2, k=4))
        out, _ = mb.unroll(cell, wave(3, 2, 2), h0)
    for _ in range(2):
        dW, dh0 = tape.gradient(out, (cell.W_h, h0), seed=seed)
        found = {"dW": dW, "dh0": dh0, "h1": out.value[0], "h3": out.value[2]}
        expected = {
            "dW": [[0.15051821279480587, 0.22995833857959933], [-0.05989204766968177, 0.14322606862818835]],
            "dh0": [[-0.0252449479719192, 0.2659560763603517], [0.01713656578286541, 0.3409222486230283]],
            "h1": [[0.4518663045424206, 0.6944724379587961], [-0.34295963128788626, -0.6441453490716205]],
            "h3": [[0.5774238947574946, 0.45678907504938726], [-0.801046908963647, -0.7675143209902946]],
        }
        assert_same(found, expected, 1e-13)
        np.testing.assert_array_equal(seed, G)


# --- bad input -------------------------------------------------------------------------------------------------

x322 = np.zeros((3, 2, 2))
BAD = {
    "no steps": (dict(x=np.zeros((0, 2, 2))), ValueError, ["T ≥ 1", "(0, 2, 2)"]),
    "no rows": (dict(x=np.zeros((3, 0, 2))), ValueError, ["B ≥ 1", "(3, 0, 2)"]),
    "one axis": (dict(x=np.zeros(3)), ValueError, ["(T, B, …)", "(3,)"]),
    "a number": (dict(x=3.0), ValueError, ["(T, B, …)", "()"]),
    "lengths too long": (dict(lengths=[4, 1]), ValueError, ["between 0 and T = 3", "1 … 4"]),
    "lengths negative": (dict(lengths=[-1, 2]), ValueError, ["between 0 and T = 3", "-1 … 2"]),
    "lengths of three rows": (dict(lengths=[1, 2, 3]), ValueError, ["2 whole numbers", "(3,)"]),
    "lengths a number": (dict(lengths=3), ValueError, ["2 whole numbers", "found 3"]),
    "lengths of floats": (dict(lengths=[1.0, 2.0]), ValueError, ["2 whole numbers", "float64"]),
    "lengths of bools": (dict(lengths=[True, True]), ValueError, ["2 whole numbers", "bool"]),
    "mask batch first": (dict(mask=np.ones((2, 3))), ValueError, ["mask", "(T, B) = (3, 2)", "(2, 3)"]),
    "mask with three axes": (dict(mask=np.ones((3, 2, 1))), ValueError, ["mask", "(3, 2)", "(3, 2, 1)"]),
    "mask with twos": (dict(mask=np.full((3, 2), 2)), ValueError, ["mask", "true and false", "int64"]),
    "mask with nan": (dict(mask=np.full((3, 2), np.nan)), ValueError, ["mask", "true and false", "float64"]),
    "resets of one axis": (dict(resets=[0, 1]), ValueError, ["resets", "(T, B) = (3, 2)", "(2,)"]),
    "resets with halves": (dict(resets=np.full((3, 2), 0.5)), ValueError, ["resets", "true and false", "float64"]),
    "cut_every 0": (dict(cut_every=0), ValueError, ["cut_every", "at least 1", "found 0"]),
    "cut_every -1": (dict(cut_every=-1), ValueError, ["cut_every", "at least 1", "found -1"]),
    "cut_every 1.5": (dict(cut_every=1.5), TypeError, ["cut_every", "whole number", "1.5"]),
    "cut_every True": (dict(cut_every=True), TypeError, ["cut_every", "whole number", "True"]),
    "state of three rows": (dict(state=np.zeros((3, 4))), ValueError, ["'h'", "(3, 4)", "batch of 2", "(2, 4)"]),
    "state too wide": (dict(state=np.zeros((2, 5))), ValueError, ["'h'", "(2, 5)", "(2, 4)"]),
    "state of three axes": (dict(state=np.zeros((1, 2, 4))), ValueError, ["'h'", "(1, 2, 4)", "(2, 4)"]),
    "state of two parts": (dict(state=(np.zeros((2, 4)),) * 2), ValueError, ["RNNCell", "1 part", "with 2"]),
    "inputs too wide": (dict(x=np.zeros((3, 2, 5))), ValueError, ["RNNCell", "D = 2", "(3, 2, 5)"]),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_an_error_that_says_what_was_found_and_what_was_expected(what):
    change, kind, words = BAD[what]
    arguments = {"x": x322} | change
    with mb.Tape() as tape, pytest.raises(kind) as error:
        mb.unroll(mb.RNNCell(2, 4, rng=0, dtype=f64), **arguments)
    assert [word for word in words if word not in str(error.value)] == []
    assert tape.step is None


# --- the clock -------------------------------------------------------------------------------------------------


def test_every_record_knows_its_step_and_the_outer_step_comes_back():
    cell = rnn()
    with mb.Tape() as tape:
        x = tape.watch(wave(3, 2, 2))
        with tape.at(7):
            mb.unroll(cell, x, cut_every=2)
            assert tape.step == 7
        assert tape.step is None
    steps = [(r.op, r.steps) for r in tape.records]
    one = ["matmul", "matmul", "add", "add", "tanh"]
    assert steps[1:] == [
        *[(op, (1, 1)) for op in one],
        *[(op, (2, 2)) for op in one],
        ("cut", (3, 3)),
        *[(op, (3, 3)) for op in one],
        ("stack", (1, 3)),
    ]
    (cut,) = tape.cuts
    assert (cut.step, cut.name, cut.layer) == (3, "h", None)


def test_the_clock_comes_back_after_an_unroll_inside_a_step_and_after_an_error():
    class Inner(Scalar):
        pass

    class Outer(Scalar):
        def __init__(self):
            super().__init__()
            self.inner, self.seen = Inner(), []

        def step(self, x, s):
            tape = self.tape
            out, _ = mb.unroll(self.inner, np.ones((2, 1, 1)))
            self.seen.append(tape.step)
            s = self.w * s + out[1] * x
            return s, s

    cell = Outer()
    with mb.Tape() as cell.tape:
        mb.unroll(cell, np.ones((3, 1, 1)))
    assert cell.seen == [1, 2, 3] and cell.tape.step is None
    own = [r.steps for r in cell.tape.records if r.op == "getitem"]
    assert own == [(1, 1), (2, 2), (3, 3)]

    class Broken(Scalar):
        def step(self, x, h):
            raise RuntimeError("no")

    with mb.Tape() as tape:
        with pytest.raises(RuntimeError, match="no"), tape.at(4):
            mb.unroll(Broken(), np.ones((3, 1, 1)))
        assert tape.step is None


def test_layers_of_a_sequential_are_known_by_their_place():
    model = mb.Sequential(Scalar(), mb.tanh, mb.Sequential(mb.tanh, Scalar()))
    with mb.Tape() as tape:
        with tape.at(5, layer="net"):
            out, _ = model(np.ones((3, 2, 1)), cut_every=2)
            assert (tape.step, tape.layer) == (5, "net")
        loss = mb.sum(out)
    assert {r.layer for r in tape.records} >= {"net.0", "net.1", "net.2.0", "net.2.1"}
    assert {r.steps for r in tape.records if r.layer == "net.1"} == {(1, 3)}
    assert [(c.layer, c.step) for c in tape.cuts] == [("net.0", 3), ("net.2.1", 3)]
    adjoints = tape.adjoints(loss)
    assert {key: a.shape for key, a in adjoints.items()} == {"net.0.h": (3, 2, 1), "net.2.1.h": (3, 2, 1)}


def test_a_rebuilt_state_keeps_its_form():
    state = {"a": (1, [2]), "b": State(3, 4), "n": None}
    assert rebuild(state, [5, 6, 7, 8]) == {"a": (5, [6]), "b": State(7, 8), "n": None}


def test_an_initial_state_given_as_an_array_adapts_to_the_weights():
    cell, x, h0 = mb.RNNCell(2, 3, rng=0), np.ones((4, 2, 2)), np.ones((2, 3))
    for start in (h0, mb.cut(h0), h0.astype(np.float32), np.ones((2, 3), int)):
        with mb.Tape() as tape:
            out, h = mb.unroll(cell, x, start)
            loss = mb.sum(out)
        assert out.dtype == h.dtype == tape.gradient(loss, cell)["W_h"].dtype == np.float32
    model = mb.Sequential(cell)
    assert model(x, (h0,))[0].dtype == np.float32
    g = mb.bptt(cell, x, None, lambda out, y: mb.sum(out), mb.tbptt(2), state=h0)
    assert g["W_h"].dtype == np.float32


class Dict(mb.Cell):
    """The next state comes back with its keys in another order. c_t = v·c_{t−1} + x_t; h_t = w·h_{t−1} + c_t."""

    def __init__(self, flip):
        self.w, self.v, self.flip = mb.parameter([0.5], dtype=f64), mb.parameter([0.25], dtype=f64), flip

    def zero_state(self, batch):
        return {"h": mb.zeros((batch, 1)), "c": mb.ones((batch, 1))}

    def step(self, x, state):
        c = self.v * state["c"] + x
        h = self.w * state["h"] + c
        return h, {"c": c, "h": h} if self.flip else {"h": h, "c": c}


def test_the_order_of_the_keys_of_a_dict_of_states_does_not_matter():
    x, resets = np.arange(1.0, 7.0).reshape(3, 2, 1), [[0, 0], [1, 0], [0, 0]]
    answers = []
    for flip in (False, True):
        for given in (None, {"h": np.full((2, 1), 5.0), "c": np.full((2, 1), 7.0)}):
            if given and flip:
                given = {"c": given["c"], "h": given["h"]}
            cell = Dict(flip)
            with mb.Tape() as tape:
                out, last = mb.unroll(cell, x, given, lengths=[3, 0], resets=resets)
                loss = mb.sum(out) + mb.sum(last["c"])
            adjoints = tape.adjoints(loss)
            parts = adjoints["state.h"], adjoints["state.c"]
            answers.append([out.value, last["h"].value, last["c"].value, tape.gradient(loss, cell.v), *parts])
    for a, b in zip(answers[:2], answers[2:]):
        for u, v in zip(a, b, strict=True):
            np.testing.assert_array_equal(u, v)


@pytest.mark.parametrize("form", ["another part", "a number", "an array", "nothing"])
@pytest.mark.parametrize("lengths", [None, [1, 0]])
def test_a_step_that_returns_a_state_of_another_form_is_an_error(form, lengths):
    class Wrong(Scalar):
        def step(self, x, h):
            h = self.w * h + x
            return h, {"another part": (h, h), "a number": 1.0, "an array": h.value, "nothing": None}[form]

    with mb.Tape(), pytest.raises(TypeError, match=r"Wrong\.step"):
        mb.unroll(Wrong(), np.ones((3, 2, 1)), lengths=lengths)


def test_resets_need_a_zero_state():
    class NoZero(mb.Cell):
        def __init__(self):
            self.w = mb.parameter([0.5], dtype=f64)

        step = Scalar.step

    with pytest.raises(TypeError, match=r"NoZero has no zero_state\(batch\)"):
        mb.unroll(NoZero(), np.ones((3, 1, 1)), np.ones((1, 1)), resets=[[0], [1], [0]])


def test_a_cell_without_parameters_has_zero_gradients_in_a_batch_of_padding():
    class Sum(mb.Cell):
        def zero_state(self, batch):
            return mb.zeros((batch, 1))

        def step(self, x, h):
            return h + x, h + x

    with mb.Tape() as tape:
        x = tape.watch(np.ones((3, 2, 1)))
        out, _ = mb.unroll(Sum(), x, lengths=[0, 0])
        loss = mb.sum(out)
    assert (tape.gradient(loss, x) == 0).all()


def test_the_state_that_was_given_keeps_its_name():
    class Still(Scalar):
        def step(self, x, h):
            return self.w * x, h

    h0, learnt = mb.zeros((2, 1)), mb.parameter(np.ones((2, 1)))
    for given in (h0, learnt):
        with mb.Tape():
            mb.unroll(Still(), np.ones((3, 2, 1)), given)
        assert given.name is None and given.steps is None


def test_two_states_of_one_name_and_different_shapes_are_an_error_that_says_what_to_do():
    inner = rnn()

    class Nested(mb.Cell):
        def zero_state(self, batch):
            return mb.zeros((batch, 1))

        def step(self, x, h):
            out, _ = mb.unroll(inner, np.ones((2, 1, inner.D)))
            h = h + mb.sum(out) + x
            return h, h

    with mb.Tape() as tape:
        out, _ = mb.unroll(Nested(), np.ones((2, 1, 1)))
        loss = mb.sum(out)
    with pytest.raises(mb.TapeError, match="two states are called 'h'"):
        tape.adjoints(loss)
