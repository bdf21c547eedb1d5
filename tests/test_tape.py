"""The tape: rules 1 to 6 of the design, one section each."""

import copy
import gc
import pickle
import re
import sys
import threading
import weakref

import numpy as np
import pytest

import minibptt as mb


def chain(tape_open, n):
    x = mb.parameter(1.0, "x", dtype=np.float64)
    with tape_open as tape:
        y = x
        for _ in range(n):
            y = y * 1.00001
    return tape, x, y


# --- rule 1: what is recorded, and the loop over it -----------------------------------------------------------------


def test_an_operation_is_recorded_for_parameters_watched_tensors_and_what_came_of_them():
    w, c = mb.parameter([2.0]), mb.Tensor(np.array([3.0], np.float32))
    with mb.Tape() as tape:
        x = tape.watch(np.array([5.0], np.float32))
        assert (c * 2).slot < 0 and len(tape.records) == 0  # constants only
        _ = w * 2, x * 2, (w * c) + c
    assert [r.op for r in tape.records] == ["multiply", "multiply", "multiply", "add"]


def test_without_an_open_tape_nothing_is_recorded_but_values_are_the_same():
    w = mb.parameter([2.0])
    y = mb.tanh(w * 3)
    with mb.Tape() as tape:
        z = mb.tanh(w * 3)
    assert y.value == z.value and y.mark is None and len(tape.records) == 2


def test_a_tensor_that_is_reused_collects_all_its_parts():
    x = mb.parameter(2.0, dtype=np.float64)
    h = mb.parameter([0.3, -0.2], dtype=np.float64)
    with mb.Tape() as tape:
        a = x * x
        y = a * (a * x) + a  # x⁵ + x²
        s = h
        for _ in range(3):
            s = mb.tanh(s) + s * s
        z = mb.sum(s)
    assert tape.gradient(y, x) == 84.0  # 188 where a node is visited on every arrival, 52 in preorder
    np.testing.assert_allclose(tape.gradient(z, h), [4.441611664292779, 0.2670793057826693], rtol=1e-14)


def test_a_chain_of_100000_operations_needs_no_recursion_and_is_freed_with_the_collector_off():
    limit, collecting = sys.getrecursionlimit(), gc.isenabled()
    depth = len(__import__("inspect").stack())
    gc.disable()
    sys.setrecursionlimit(depth + 200)
    try:
        tape, x, y = chain(mb.Tape(), 100_000)
        gradient = tape.gradient(y, x)
        gone = weakref.ref(tape), weakref.ref(y)
        del tape, y
        assert gone[0]() is None and gone[1]() is None
    finally:
        sys.setrecursionlimit(limit)
        if collecting:
            gc.enable()
    np.testing.assert_allclose(gradient, 1.00001**100_000, rtol=1e-9)


def test_an_unrolled_tape_is_freed_with_the_collector_off():
    cell = mb.RNNCell(2, 3, rng=0)
    gc.collect()
    gc.disable()
    try:
        with mb.Tape() as tape:
            out, _ = mb.unroll(cell, np.ones((5, 1, 2)), cut_every=2)
            loss = mb.sum(out * out)
        tape.gradient(loss, cell), tape.adjoints(loss), tape.dropped(loss), str(tape)
        gone = [weakref.ref(t) for r in tape.records for t in r.outputs] + [weakref.ref(tape)]
        del tape, out, loss, _
        assert [r() for r in gone] == [None] * len(gone)
    finally:
        gc.enable()


def test_a_tensor_does_not_keep_its_tape_alive():
    w = mb.parameter([2.0])
    with mb.Tape() as tape:
        y = w * w
    gone = weakref.ref(tape)
    del tape
    assert gone() is None and y.item() == 4.0


def test_gradients_are_plain_arrays_which_no_tape_records():
    w = mb.parameter([2.0])
    with mb.Tape() as tape:
        g = tape.gradient(mb.sum(w * w * w), w)
        assert type(g) is np.ndarray
        before = len(tape.records)
        mb.sum(g * 2.0 * mb.Tensor(g))
    assert len(tape.records) == before


def test_no_tape_ends_well_after_exceptions_nesting_and_as_a_decorator():
    w = mb.parameter(2.0)

    @mb.no_tape()
    def silent():
        return w * 3

    with mb.Tape() as tape:
        with pytest.raises(ZeroDivisionError), mb.no_tape():
            _ = 1 / 0
        with mb.no_tape():
            with mb.no_tape():
                pass
            a = w * 3
        assert (silent().mark, silent().mark, a.mark) == (None, None, None)
        b = w * a
    assert len(tape.records) == 1 and tape.gradient(b, w) == 6.0  # 12 if the inner w were still seen


def test_an_exception_inside_a_tape_closes_it_and_the_outer_one_goes_on():
    w = mb.parameter(2.0)
    with mb.Tape() as outer:
        with pytest.raises(ZeroDivisionError), mb.Tape() as inner:
            _ = w * 3, 1 / 0
        y = w * w
    assert (len(inner.records), len(outer.records)) == (1, 1) and outer.gradient(y, w) == 4.0


def test_each_thread_has_its_own_open_tape():
    w, seen = mb.parameter(2.0), []
    with mb.Tape() as tape:
        thread = threading.Thread(target=lambda: seen.append((w * 3).mark))
        thread.start()
        thread.join()
    assert seen == [None] and tape.records == []


# --- rule 2: the clock ----------------------------------------------------------------------------------------------


def test_records_carry_the_step_the_layer_and_the_range_of_their_inputs():
    w = mb.parameter([2.0], "w")
    with mb.Tape() as tape:
        parts = []
        for t in (1, 2, 3):
            with tape.at(t, layer="0"):
                parts.append(w * t)
        both = mb.stack(parts[1:])
        early = w * w
        with tape.at(1, 3):
            mb.tanh(early)
    assert [r.steps for r in tape.records] == [(1, 1), (2, 2), (3, 3), (2, 3), None, (1, 3)]
    assert [r.layer for r in tape.records] == ["0", "0", "0", None, None, None]
    assert both.steps == (2, 3)


def keeping(steps):
    with mb.Tape() as tape:
        tape.keep_last(steps)


def standing(*steps):
    with mb.Tape() as tape, tape.at(*steps):
        pass


@pytest.mark.parametrize("clock", [keeping, standing, lambda wrong: standing(1, wrong)])
def test_a_step_is_a_whole_number_counted_from_1(clock):
    for wrong in (2.5, "a", True, np.ones(1)):
        with pytest.raises(TypeError, match="must be a whole number, found"):
            clock(wrong)
    for wrong in (0, -1):
        with pytest.raises(ValueError, match=f"must be at least 1, found {wrong}"):
            clock(wrong)
    clock(np.int32(1))
    with pytest.raises(ValueError, match="last must not be before step 3, found 2"):
        standing(3, 2)


def test_the_clock_is_restored_after_nesting_and_after_an_exception():
    with mb.Tape() as tape:
        with tape.at(5):
            with tape.at(1, layer="inner"):
                assert (tape.step, tape.layer) == (1, "inner")
            assert (tape.step, tape.layer) == (5, None)
            with pytest.raises(ZeroDivisionError), tape.at(2):
                _ = 1 / 0
            assert tape.step == 5
        assert tape.step is None


def test_the_printed_tape_names_steps_states_and_cuts(monkeypatch):
    cell = mb.RNNCell(1, 1, "linear", rng=0, dtype=np.float64)
    with mb.Tape() as tape:
        out, _ = mb.unroll(cell, np.ones((3, 1, 1)), cut_every=1)
        mb.sum(out)
    text = str(tape)
    for part in ("W_x = parameter", "✂ h₁ = cut(h₁)", "matmul(h₂, W_h)", "h₃ = add(", "stack(h₁, h₂, h₃)", "2 cuts"):
        assert part in text, f"{part!r} is missing in\n{text}"
    monkeypatch.setattr(sys, "stdout", type("Pipe", (), {"encoding": "ascii"})())
    plain = str(tape)
    assert plain.isascii() and "8< h1 = cut(h1)" in plain


def test_a_long_tape_prints_its_ends():
    tape, _, _ = chain(mb.Tape(), 1000)
    lines = str(tape).splitlines()
    assert len(lines) < 220 and any("800 records left out" in line for line in lines)


# --- rule 3: a pure question ----------------------------------------------------------------------------------------


def test_asked_twice_the_answer_is_the_same_and_no_array_has_changed():
    cell = mb.RNNCell(2, 3, rng=0)
    x = np.random.default_rng(0).standard_normal((4, 2, 2)).astype(np.float32)
    with mb.Tape() as tape:
        out, _ = mb.unroll(cell, x, cut_every=2)
        loss = mb.sum(out * out)
    before = [(o.value.copy(), o.value) for r in tape.records for o in r.outputs]
    one = [tape.gradient(loss, cell, through_cuts=f) for f in (False, True, 0.5)]
    two = [tape.gradient(loss, cell, through_cuts=f) for f in (False, True, 0.5)]
    for a, b in zip(one, two):
        assert all(np.array_equal(a[n], b[n]) for n in a)
    assert all(np.array_equal(copy, now) for copy, now in before)


def test_two_losses_that_share_a_trunk_do_not_disturb_each_other():
    w = mb.parameter(3.0, dtype=np.float64)
    with mb.Tape() as tape:
        h = w * w
        one, two = h * 2, h * h
    assert (tape.gradient(one, w), tape.gradient(two, w), tape.gradient(one, w)) == (12.0, 108.0, 12.0)


def test_an_answer_belongs_to_the_asker():
    w = mb.parameter([1.0, 2.0], dtype=np.float64)
    with mb.Tape() as tape:
        y = w + 0
        loss = mb.sum(y)
    seed = np.ones(2)
    for g in (tape.gradient(loss, w), tape.gradient(y, w, seed=seed), *tape.gradient(loss, [w, y])):
        g += 100  # writable, and nobody else's
    assert seed.tolist() == [1, 1] and tape.gradient(loss, w).tolist() == [1, 1]


def test_wrt_is_a_tensor_a_module_or_a_sequence_and_the_answer_has_its_shape():
    cell = mb.RNNCell(1, 2, rng=0)
    with mb.Tape() as tape:
        x = tape.watch(np.ones((2, 1, 1), np.float32))
        out, h = mb.unroll(cell, x)
        loss = mb.sum(out)
    grads, (dx, dh), both = tape.gradient(loss, [cell, (x, h), [cell]])
    assert isinstance(grads, mb.Gradients) and list(grads) == ["W_x", "W_h", "b"]
    assert dx.shape == (2, 1, 1) and dh.tolist() == [[1, 1]] and list(both[0]) == list(grads)


def test_what_the_loss_does_not_reach_gets_zeros():
    used, unused = mb.parameter([1.0]), mb.parameter([[1.0, 2.0]], dtype=np.float64)
    with mb.Tape() as tape:
        x = tape.watch([5.0])
        loss = mb.sum(used * 2)
        aside = used * 3
    assert tape.gradient(loss, unused).tolist() == [[0, 0]] and tape.gradient(loss, unused).dtype == np.float64
    assert tape.gradient(loss, x) == 0 and tape.gradient(loss, aside) == 0


@pytest.mark.parametrize(
    "wrt, error, words",
    [
        (mb.Tensor(np.ones(1)), mb.TapeError, "neither a parameter nor on this tape"),
        (np.ones(1), TypeError, "tape.watch"),
        ("w", TypeError, "found str"),
        (None, TypeError, "NoneType"),
    ],
)
def test_a_question_about_something_else_is_an_error(wrt, error, words):
    w = mb.parameter([1.0])
    with mb.Tape() as tape:
        loss = mb.sum(w * 2)
    with pytest.raises(error, match=words):
        tape.gradient(loss, wrt)


def test_a_loss_from_elsewhere_is_an_error_that_says_why():
    w = mb.parameter([1.0])
    with mb.Tape() as tape:
        y = w * 2
        constant = mb.sum(mb.zeros((2,)))
    outside = mb.sum(y)
    for loss in (outside, constant):
        with pytest.raises(mb.TapeError, match="not on this tape"):
            tape.gradient(loss, w)
    with pytest.raises(TypeError, match="must be a tensor, found float"):
        tape.gradient(1.0, w)


def test_a_loss_that_is_no_scalar_needs_a_seed_of_its_shape():
    w = mb.parameter([1.0, 2.0])
    with mb.Tape() as tape:
        y = w * w
        one = mb.reshape(mb.sum(y), (1, 1))
    with pytest.raises(ValueError, match=r"scalar, found shape \(2,\)"):
        tape.gradient(y, w)
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        tape.gradient(y, w, seed=[1, 2, 3])
    seeded = tape.gradient(y, w, seed=[1, 10])  # integers adapt
    assert seeded.tolist() == [2, 40] and seeded.dtype == np.float32
    assert tape.gradient(one, w).tolist() == [2, 4]


def test_a_parameter_used_under_two_names_is_one_parameter():
    class Tied(mb.Module):
        def __init__(self):
            self.a = mb.parameter([3.0])
            self.b = self.a

    model = Tied()
    with mb.Tape() as tape:
        loss = mb.sum(model.a * model.b)
    assert dict(tape.gradient(loss, model)) == {"a": 6.0}


# --- rule 4: other tapes, changed parameters ------------------------------------------------------------------------


def test_a_state_from_another_tape_is_an_error_that_names_it_its_step_and_the_cure():
    cell = mb.RNNCell(1, 2, rng=0)
    x = np.ones((3, 1, 1))
    with mb.Tape():
        _, h = mb.unroll(cell, x)
    with mb.Tape(), pytest.raises(mb.TapeError) as caught:
        mb.unroll(cell, x, h)
    for part in ("h₃", "mb.cut(", "Trying to backward through the graph a second time"):
        assert part in str(caught.value)
    with mb.Tape():
        mb.unroll(cell, x, mb.cut(h))  # the cure works


def test_a_tensor_of_an_outer_tape_is_not_for_the_inner_one():
    w = mb.parameter([1.0])
    with mb.Tape():
        y = w * 2
        with mb.Tape(), pytest.raises(mb.TapeError, match="another tape"):
            y * w


def test_a_parameter_that_changed_is_an_error_that_names_it_whether_reached_or_not():
    w, v = mb.parameter([1.0], "w"), mb.parameter([1.0], "v")
    with mb.Tape() as tape:
        loss = mb.sum(w * v)
        mb.assign(v, [2.0])
        with pytest.raises(mb.TapeError, match="v has changed"):
            _ = v * 2
    with pytest.raises(mb.TapeError, match="v has changed"):
        tape.gradient(loss, w)


def test_parameters_change_only_through_assign():
    source = np.array([1.0, 2.0])
    w = mb.parameter(source, "w")
    source[0] = 99
    assert w.value.tolist() == [1, 2]  # a copy
    with pytest.raises(ValueError, match="read-only"):
        w.value[0] = 5
    with pytest.raises(TypeError, match=r"mb\.assign"):
        w -= 1
    new = np.array([3, 4])
    mb.assign(w, new)
    new[0] = 99
    assert w.value.tolist() == [3, 4] and w.dtype == np.float64
    with pytest.raises(ValueError, match=r"shape \(2,\).*shape \(3,\)"):
        mb.assign(w, [1.0, 2.0, 3.0])
    with pytest.raises(TypeError, match="complex"):
        mb.assign(w, np.array([1j, 2]))
    with pytest.raises(TypeError, match="found ndarray"):
        mb.assign(source, 1.0)
    assert w.value.tolist() == [3, 4]


# --- rule 5: cut ----------------------------------------------------------------------------------------------------


def test_cut_keeps_values_and_nesting_and_shares_no_larger_buffer():
    big = np.arange(12.0).reshape(3, 4)
    state = {"h": mb.Tensor(big[1], "h"), "layers": [(mb.Tensor(big[2]), None)], "array": big[0]}
    with mb.Tape():
        new = mb.cut(state)
    assert new["h"].value.tolist() == [4, 5, 6, 7] and new["h"].name == "h" and new["layers"][0][1] is None
    assert isinstance(new["layers"], list) and isinstance(new["layers"][0], tuple)
    for leaf in (new["h"], new["layers"][0][0], new["array"]):
        assert not np.shares_memory(leaf.value, big)
    assert state["h"] is not new["h"] and mb.cut(None) is None


def test_a_named_tuple_stays_one():
    from collections import namedtuple

    State = namedtuple("State", "h c")
    new = mb.cut(State(mb.zeros((1, 2)), mb.ones((1, 2))))
    assert type(new) is State and new.c.value.tolist() == [[1, 1]]


def test_cutting_what_has_children_leaves_them_as_they_were():
    a = mb.parameter([3.0, 3.0])
    with mb.Tape() as tape:
        b = a * 2
        before = mb.sum(b * b)
        c = mb.cut(b)
        after = mb.sum(c * c)
    assert tape.gradient(before, a).tolist() == [24, 24]  # made before the cut: goes on as it was
    assert tape.gradient(after, a).tolist() == [0, 0]
    assert tape.gradient(after, c).tolist() == [12, 12]


def linear_tape(cut_every, w=0.5, T=6):
    """h_t = w·h_{t−1} + x_t, x = 1 … T, h₀ = 2, loss Σ h; each h is used by the next step twice and by the loss."""

    class Line(mb.Cell):
        def __init__(self):
            self.w = mb.parameter(w, dtype=np.float64)

        def zero_state(self, batch):
            return mb.zeros((batch, 1))

        def step(self, x, h):
            h = self.w * h * 0.7 + 0.3 * (self.w * h) + x
            return h * h, h

    cell = Line()
    with mb.Tape() as tape:
        h0 = tape.watch(np.array([[2.0]]), "h")
        out, _ = mb.unroll(cell, np.arange(1.0, T + 1).reshape(T, 1, 1), h0, cut_every=cut_every)
        loss = mb.sum(out)
    return tape, loss, cell, h0


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_mended_cuts_give_the_full_gradient_to_the_bit(k):
    rng = np.random.default_rng(k)
    cell = mb.RNNCell(3, 5, rng=k)
    x, target = rng.standard_normal((2, 9, 4, 3)).astype(np.float32)
    results = []
    for cut_every in (None, k):
        with mb.Tape() as tape:
            out, h = mb.unroll(cell, x, cut_every=cut_every)
            loss = mb.sum((out[:, :, :3] - target) * out[:, :, :3]) + mb.sum(h * h)
        results.append(tape.gradient(loss, cell, through_cuts=True))
        results.append(mb.Gradients(tape.adjoints(loss, through_cuts=True)))
    for a, b in zip(results[:2], results[2:]):
        assert all(np.array_equal(a[n], b[n]) for n in a)
    tape, loss, cell, h0 = linear_tape(None)
    full = tape.gradient(loss, [cell.w, h0])
    tape, loss, cell, h0 = linear_tape(k)
    assert tape.gradient(loss, [cell.w, h0], through_cuts=True) == full


def test_through_cuts_takes_a_factor_or_a_function_of_the_cut():
    tape, loss, cell, _ = linear_tape(1)
    ask = lambda f: float(tape.gradient(loss, cell.w, through_cuts=f))  # noqa: E731
    assert ask(0.0) == ask(False) and ask(1.0) == ask(True) == ask(np.float32(1))
    assert ask(lambda cut: cut.step != 4) not in (ask(True), ask(False))
    # With factor f on every boundary the adjoint of h_{t−j} is (w·f)^j times that of h_t.
    w, f, h, x = 0.5, 0.25, [2.0], range(1, 7)
    for v in x:
        h.append(w * h[-1] + v)
    expected, adjoint = 0.0, 0.0
    for t in range(6, 0, -1):
        adjoint = 2 * h[t] + w * f * adjoint
        expected += adjoint * h[t - 1]
    np.testing.assert_allclose(ask(f), expected, rtol=1e-14)
    for wrong in (None, "half", float("nan"), lambda cut: None):
        with pytest.raises(TypeError, match="finite number"):
            ask(wrong)


@pytest.mark.parametrize("wrong", ["yes", float("nan"), float("inf"), None, 1 + 2j, [True]])
def test_through_cuts_is_checked_on_a_tape_without_cuts_too(wrong):
    tape, loss, cell, _ = linear_tape(None)
    assert not tape.cuts
    for ask in (
        lambda: tape.gradient(loss, cell, through_cuts=wrong),
        lambda: tape.gradient_by_step(loss, cell, through_cuts=wrong),
        lambda: tape.adjoints(loss, through_cuts=wrong),
        lambda: tape.dropped(loss, through_cuts=wrong),
        lambda: mb.derive(tape, loss, cell.w, through_cuts=wrong),
        lambda: mb.plots.adjoints(tape, loss, through_cuts=wrong),
        lambda: mb.plots.tape(tape, through_cuts=wrong, detail="step"),
        lambda: mb.plots.tape(tape, through_cuts=wrong, detail="operation"),
    ):
        with pytest.raises(TypeError, match=r"through_cuts must be False .*; found " + re.escape(repr(wrong))):
            ask()


def test_dropped_adjoints_are_those_that_arrive_and_go_no_further():
    tape, loss, _, _ = linear_tape(2)
    h = [2.0]
    for v in range(1, 7):
        h.append(0.5 * h[-1] + v)
    dropped = tape.dropped(loss)
    assert [(c.step, c.name) for c in dropped] == [(3, "h"), (5, "h")]
    expected = [0.5 * (2 * h[t] + 0.5 * 2 * h[t + 1]) for t in (3, 5)]
    np.testing.assert_allclose([v.item() for v in dropped.values()], expected, rtol=1e-14)
    assert all(v == 0 for v in tape.dropped(loss, through_cuts=True).values())
    half = tape.dropped(loss, through_cuts=0.5)
    np.testing.assert_allclose(list(half.values())[1], 0.5 * expected[1], rtol=1e-14)


def test_a_state_from_an_earlier_tape_becomes_a_leaf_whose_adjoint_can_be_seen():
    tape, _, cell, _ = linear_tape(None)
    h = tape.records[-1].outputs[0] * 0 + 4.0  # some tensor; its past is elsewhere
    with mb.Tape() as tape:
        start = mb.cut(mb.reshape(h, (1, 1)))
        out, _ = mb.unroll(cell, np.ones((1, 1, 1)), start)
        loss = mb.sum(out)
    (cut,) = tape.cuts
    assert cut.source is None and cut.step == 1
    expected = 2 * (0.5 * 4 + 1) * 0.5
    for through in (False, True, 0.5):  # there is no past to mend
        np.testing.assert_allclose(tape.gradient(loss, start, through_cuts=through), expected, rtol=1e-14)
        np.testing.assert_allclose(tape.dropped(loss, through_cuts=through)[cut], expected, rtol=1e-14)


def test_the_state_is_cut_and_not_the_loss():
    """Cutting what the loss depends on would leave a way around where a mask hides the last state."""
    tape, _, cell, _ = linear_tape(3)
    assert [c.name for c in tape.cuts] == ["h"]
    seeds = np.zeros((6, 1, 1))
    seeds[5] = 1  # the last loss alone
    out = next(r.outputs[0] for r in tape.records if r.op == "stack")
    h = [2.0]
    for v in range(1, 7):
        h.append(0.5 * h[-1] + v)
    expected = 2 * h[6] * (h[5] + 0.5 * h[4] + 0.25 * h[3])
    np.testing.assert_allclose(tape.gradient(out, cell.w, seed=seeds), expected, rtol=1e-14)


# --- rule 6: keep_last ----------------------------------------------------------------------------------------------


def test_keep_last_is_a_sliding_window_and_holds_no_more():
    w, k, T = 0.5, 3, 8
    weight = mb.parameter(w, "w", dtype=np.float64)
    states, total = [1.0], 0.0
    with mb.Tape() as tape:
        h = mb.cut(mb.Tensor(np.array(1.0)))
        sizes = []
        for t in range(1, T + 1):
            with tape.at(t):
                h = weight * h + 1.0
                loss = h * 1.0
                total += float(tape.gradient(loss, weight))
            tape.keep_last(k - 1)  # with the next step: k on the tape
            sizes.append(len(tape.records))
            states.append(w * states[-1] + 1)
    assert len(set(sizes[k:])) == 1 and len(tape.leaves) == 1
    expected = sum(w**j * states[t - 1 - j] for t in range(1, T + 1) for j in range(min(k, t)))
    np.testing.assert_allclose(total, expected, rtol=1e-14)
    with pytest.raises(ValueError, match="at least 1"):
        tape.keep_last(0)


def test_adjoints_know_the_states_of_a_loop_of_ones_own():
    w = mb.parameter([[0.5]], dtype=np.float64)
    with mb.Tape() as tape:
        h = mb.Tensor(np.array([[1.0]]))
        with pytest.raises(mb.TapeError, match="no states"):
            tape.adjoints(mb.sum(w * 1))
        for t in (1, 2, 3):
            with tape.at(t):
                h = h @ w
                tape.state("h", h)
        loss = mb.sum(h)
        with pytest.raises(mb.TapeError, match="clock"):
            tape.state("h", h)
    assert tape.adjoints(loss)["h"].ravel().tolist() == [0.25, 0.5, 1.0]


def test_watch_takes_any_nesting_and_refuses_integers():
    with mb.Tape() as tape:
        nest = tape.watch({"a": np.ones(1), "b": (np.ones(2), mb.zeros((1,)))})
        loss = mb.sum(nest["b"][0] * 2)
        assert tape.watch(nest["a"]) is nest["a"]
        with pytest.raises(TypeError, match=r"int64.*can't be differentiated"):
            tape.watch(np.arange(3))
    assert tape.gradient(loss, nest["b"][0]).tolist() == [2, 2]


@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_an_operation_of_several_outputs_may_have_just_one(pieces):
    """A sequence of one step is a tuple of one slice; its adjoint is still a tuple."""
    x = mb.parameter(np.arange(6.0).reshape(pieces, -1))
    seed = np.arange(1.0, 7.0).reshape(pieces, -1)
    for take_apart in (mb.unstack, lambda x: [mb.reshape(p, (-1,)) for p in mb.split(x, pieces)]):
        with mb.Tape() as tape:
            parts = take_apart(x)
            loss = mb.sum(mb.stack([p * p for p in parts]) * seed)
        assert np.array_equal(tape.gradient(loss, x), 2 * x.value * seed)


def test_keep_last_keeps_a_cut_whose_record_it_keeps():
    w = mb.parameter([2.0], "w")
    with mb.Tape() as tape:
        h_0 = mb.cut(w * 1)  # off the clock, so its record stays
        h = h_0
        for t in range(1, 6):
            with tape.at(t):
                h = h * w + h_0
        loss = mb.sum(h)
        tape.keep_last(2)
    assert len(tape.cuts) == 1
    # h_5 = (h_3·w + h_0)·w + h_0 with h_3 = 30: ∂/∂w = 2·h_3·w + h_0, and h_0 = w adds w + 1 where it is mended
    assert tape.gradient(loss, w).item() == 122
    assert tape.gradient(loss, w, through_cuts=True).item() == 125
    assert [g.item() for g in tape.dropped(loss).values()] == [3]


def test_a_loss_that_keep_last_dropped_is_an_error_and_not_zeros():
    w = mb.parameter([2.0], "w")
    with mb.Tape() as tape:
        losses, h = [], w * 1
        for t in range(1, 6):
            with tape.at(t):
                h = h * w
                losses.append(mb.sum(h))
        tape.keep_last(2)
    with pytest.raises(mb.TapeError, match="older than what keep_last left"):
        tape.gradient(losses[0], w)
    assert tape.gradient(losses[-1], w).item() == 64


def test_a_parameter_whose_value_was_set_past_assign_is_an_error_too():
    w = mb.parameter([2.0], "w")
    with mb.Tape() as tape:
        loss = mb.sum(w * w)
    w.value = np.array([5.0], np.float32)
    with pytest.raises(mb.TapeError, match="w has changed"):
        tape.gradient(loss, w)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda w: pickle.loads(pickle.dumps(w))])
def test_a_copied_or_pickled_parameter_is_read_only_and_another_parameter(copied):
    w = mb.parameter([2.0], "w")
    v = copied(w)
    assert v.name == "w" and v is not w and v.value.dtype == w.value.dtype
    with pytest.raises(ValueError, match="read-only"):
        v.value[0] = 1


def test_a_factor_may_be_a_numpy_boolean():
    w = mb.parameter([2.0], "w")
    with mb.Tape() as tape:
        loss = mb.sum(mb.cut(w * 1) * w)
    assert tape.gradient(loss, w, through_cuts=lambda cut: np.True_).item() == 4


def test_a_tensor_can_be_formatted_and_compared_like_a_number():
    x = mb.parameter([1.0, 2.0])
    assert f"{mb.sum(x):.2f}" == "3.00" and f"{x}" == repr(x)
    assert np.allclose(x, [1, 2]) and np.argmax(x) == 1
    with pytest.raises(ValueError, match="exactly one element"):
        f"{x:.2f}"


@pytest.mark.parametrize("nothing", [None, [None, 1.0], "3", ["a"]])
def test_what_is_no_number_makes_neither_parameter_nor_tensor(nothing):
    for make in (mb.parameter, mb.Tensor):
        with pytest.raises(TypeError, match="needs numbers"):
            make(nothing)


def test_an_error_shows_the_shape_of_a_long_list_and_not_the_list():
    with pytest.raises(ValueError, match=r"add\(w \(3,\), \(1000,\)\)"):
        mb.parameter([1.0, 2.0, 3.0], "w") + [0] * 1000
