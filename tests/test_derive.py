"""Derivations: their terms against the engine, SymPy and copies; their formulas against their numbers; their look."""

import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strict_cupy import DeviceArray

import minibptt as mb
from minibptt.commands.derive import LinearCell
from minibptt.derivations.backflow import Backflow
from minibptt.derivations.expressions import Apply, Number, Symbol, evaluated, text
from minibptt.derivations.lines import Line
from minibptt.derivations.symbols import Symbols
from minibptt.listing import plain_ascii

f64 = np.float64
DETAILS = ["step", "gate", "operation"]


class TwoPart(mb.Cell):
    """A cell of a user's own: a state of two parts in a dict, a name given twice, an output of its own."""

    def __init__(self):
        rng = np.random.default_rng(3)
        self.W, self.U = mb.parameter(rng.normal(size=(2, 3))), mb.parameter(rng.normal(size=(3, 3)))
        self.decay, self.V = mb.parameter(rng.uniform(size=3)), mb.parameter(rng.normal(size=(3, 2)))

    def zero_state(self, batch):
        return {"memory": mb.zeros((batch, 3)), "fast": mb.zeros((batch, 3))}

    def step(self, x, state):
        memory, fast = state["memory"], state["fast"]
        new = x @ self.W + fast @ self.U
        new = mb.tanh(new)
        memory = mb.sigmoid(self.decay) * memory + new * 0.5
        return (memory * new) @ self.V, {"memory": memory, "fast": mb.maximum(new, memory)}


CELLS = {
    "linear": lambda: LinearCell(),
    "rnn": lambda: mb.RNNCell(2, 3, rng=1, dtype=f64),
    "relu": lambda: mb.RNNCell(2, 3, "relu", rng=1, dtype=f64),
    "lstm": lambda: mb.LSTMCell(2, 3, rng=2, dtype=f64),
    "gru after": lambda: mb.GRUCell(2, 3, rng=3, dtype=f64),
    "gru before": lambda: mb.GRUCell(2, 2, reset="before", rng=4, dtype=f64),
    "two parts": TwoPart,
}
OPTIONS = {
    "plain": {},
    "cuts": {"cut_every": 2},
    "masks, resets and cuts": {
        "lengths": [5, 3], "resets": [[0, 0], [1, 0], [0, 0], [0, 1], [0, 0]], "cut_every": 1,
    },
}  # fmt: skip


def recorded(cell, options=None, x=None, state=None, tape=None):
    """(tape, loss) of five steps of two rows."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((5, 2, 1 if isinstance(cell, LinearCell) else 2)) * 0.7 if x is None else x
    with tape or mb.Tape() as tape:
        outputs, last = mb.unroll(cell, x, state, **(options or {}))
        target = rng.standard_normal(outputs.shape)
        first = last["memory"] if isinstance(last, dict) else last[-1] if isinstance(last, tuple) else last
        loss = mb.mse(outputs, target) + 0.1 * mb.sum(first * first)
    return tape, loss


def toy():
    """DESIGN's toy: T = 4, the last step padding, a cut before every step."""
    cell = LinearCell()
    x, y = np.array([1.0, 2.0, 3.0, 0.0]).reshape(4, 1, 1), np.array([4.0, 6.0, 8.0, 0.0]).reshape(4, 1, 1)
    with mb.Tape() as tape:
        outputs, _ = mb.unroll(cell, x, lengths=[3], cut_every=1)
        loss = mb.sum(outputs - y)
    return cell, tape, loss


# --- the terms -------------------------------------------------------------------------------------------------


def test_the_toy_has_the_terms_worked_by_hand_cut_and_mended():
    # h = 5, 18, 47; ∂L/∂h_t = 1 each where cut, and 7, 3, 1 where mended (w_h = 2): times h_{t−1} = 0, 5, 18.
    cell, tape, loss = toy()
    cut, mended = (mb.derive(tape, loss, cell.w_h, through_cuts=c) for c in (False, True))
    assert [(t.step, t.layer, t.term.item()) for t in cut.terms] == [
        (4, None, 0), (3, None, 18), (2, None, 5), (1, None, 0),
    ]  # fmt: skip
    assert [t.term.item() for t in mended.terms] == [0, 18, 15, 0]
    assert cut.total.item() == 23 and mended.total.item() == 33
    x = mb.derive(tape, loss, cell.w_x, through_cuts=True)
    assert [t.term.item() for t in x.terms] == [0, 3, 6, 7] and x.total.item() == 16


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", CELLS)
def test_the_terms_of_every_parameter_are_the_engine_s_by_step_and_add_up_to_its_gradient(name, options):
    cell = CELLS[name]()
    tape, loss = recorded(cell, OPTIONS[options])
    cuts = (False, True, 0.5, lambda cut: 1.5 if cut.step == 3 else 1.0) if tape.cuts else (False,)
    for through_cuts in cuts:
        by_step = tape.gradient_by_step(loss, cell, through_cuts=through_cuts)
        for parameter_name, parameter in cell.named_parameters():
            for detail in DETAILS:
                d = mb.derive(tape, loss, parameter, through_cuts=through_cuts, detail=detail)
                gradient = tape.gradient(loss, parameter, through_cuts=through_cuts)
                scale = 1e-12 * (1 + np.abs(gradient).max())
                np.testing.assert_allclose(sum(t.term for t in d.terms), gradient, rtol=0, atol=scale)
                np.testing.assert_allclose(d.total, gradient, rtol=0, atol=scale)
                assert [t.step for t in d.terms] == sorted(by_step, reverse=True)
                for t in d.terms:
                    np.testing.assert_allclose(t.term, by_step[t.step][parameter_name], rtol=0, atol=scale)


@pytest.mark.parametrize("name", CELLS)
def test_an_initial_state_and_a_watched_input_have_terms_by_step_too(name):
    cell = CELLS[name]()
    shape = (5, 2, 1 if name == "linear" else 2)
    tape = mb.Tape()
    x = tape.watch(np.random.default_rng(1).standard_normal(shape), "x")
    state = tape.watch(mb.nest.map_nest(lambda h: np.full(h.shape, 0.3), cell.zero_state(2)))
    tape, loss = recorded(cell, {"lengths": [5, 3], "cut_every": 2}, x, state, tape)
    for through_cuts in (False, True):
        d = mb.derive(tape, loss, x, through_cuts=through_cuts)
        gradient = tape.gradient(loss, x, through_cuts=through_cuts)
        assert [t.step for t in d.terms] == [5, 4, 3, 2, 1]
        for t in d.terms:  # what step t adds falls on x_t alone
            expected = np.zeros(shape)
            expected[t.step - 1] = gradient[t.step - 1]
            np.testing.assert_allclose(t.term, expected, rtol=0, atol=1e-13)
        for _, h in mb.nest.leaves(state):
            d = mb.derive(tape, loss, h, through_cuts=through_cuts)
            gradient = tape.gradient(loss, h, through_cuts=through_cuts)
            assert [t.step for t in d.terms] == [1] and np.abs(gradient).max() > 0
            np.testing.assert_allclose(d.total, gradient, rtol=0, atol=1e-13)
    assert "back through" in str(mb.derive(tape, loss, x))


@pytest.mark.parametrize("name", CELLS)
def test_a_state_in_the_middle_has_terms_from_the_loss_and_from_the_step_after(name):
    cell = CELLS[name]()
    for options in OPTIONS.values():
        tape, loss = recorded(cell, options)
        for state in [s for s in tape.notes if s.steps == (2, 2)]:
            for through_cuts in (False, 0.5, True):
                d = mb.derive(tape, loss, state.tensor, through_cuts=through_cuts)
                gradient = tape.gradient(loss, state.tensor, through_cuts=through_cuts)
                np.testing.assert_allclose(sum((t.term for t in d.terms), 0 * gradient), gradient, rtol=0, atol=1e-13)
                np.testing.assert_allclose(d.total, gradient, rtol=0, atol=1e-13)
                assert {t.step for t in d.terms} <= {None, 2, 3} and str(d)


def test_layers_before_and_after_the_steps_are_told_apart_by_step_or_by_none():
    rng = np.random.default_rng(0)
    model = mb.Sequential(
        mb.Linear(2, 3, rng=1, dtype=f64), mb.RNN(3, 3, layers=2, engine="tape", rng=2, dtype=f64),
        mb.Linear(3, 1, rng=3, dtype=f64),
    )  # fmt: skip
    x, y = rng.standard_normal((4, 2, 2)), rng.standard_normal((4, 2, 1))
    with mb.Tape() as tape:
        outputs, _ = model(x, cut_every=2, lengths=[4, 2])
        loss = mb.mse(outputs, y, lengths=[4, 2])
    for name, parameter in model.named_parameters():
        for through_cuts in (False, True):
            for detail in DETAILS:
                d = mb.derive(tape, loss, parameter, through_cuts=through_cuts, detail=detail)
                gradient = tape.gradient(loss, parameter, through_cuts=through_cuts)
                np.testing.assert_allclose(sum(t.term for t in d.terms), gradient, rtol=0, atol=1e-13)
                steps = [t.step for t in d.terms]
                assert steps == ([None] if name.startswith("2.") else [4, 3, 2, 1]), (name, steps)
                assert len(str(d)) > 100 and d.latex() and d._repr_html_()
    # A copy of the first layer at each step is the other way to get its terms.
    W = model.parameters()["0.W"]
    d = mb.derive(tape, loss, W, through_cuts=True)
    for t in d.terms:
        copies = [mb.parameter(W.value) for _ in range(4)]
        with mb.Tape() as apart:
            before = mb.stack([x[s] @ copies[s] + model[0].b for s in range(4)])
            outputs, _ = mb.Sequential(model[1], model[2])(before, lengths=[4, 2])
            value = mb.mse(outputs, y, lengths=[4, 2])
        np.testing.assert_allclose(t.term, apart.gradient(value, copies[t.step - 1]), rtol=0, atol=1e-13)


def sympy_step(sp, kind):
    """One step of a scalar cell in SymPy: step(parameters, x, state), the state being a list."""
    sigma = lambda v: 1 / (1 + sp.exp(-v))  # noqa: E731

    def step(p, x, state):
        h = state[0]
        if kind == "linear":
            h = p["w_x"][0] * x + p["b_x"][0] + p["w_h"][0] * h + p["b_h"][0]
            return [h]
        if kind == "rnn":
            return [sp.tanh(x * p["W_x"][0] + h * p["W_h"][0] + p["b"][0])]
        if kind == "lstm":
            i, f, g, o = [x * p["W_x"][k] + h * p["W_h"][k] + p["b"][k] for k in range(4)]
            c = sigma(f) * state[1] + sigma(i) * sp.tanh(g)
            return [sigma(o) * sp.tanh(c), c]
        r = sigma(x * p["W_x"][0] + h * p["W_h"][0] + p["b"][0])
        z = sigma(x * p["W_x"][1] + h * p["W_h"][1] + p["b"][1])
        u = r * (h * p["W_h"][2] + p["b_hn"][0]) if kind == "gru" else r * h * p["W_h"][2]
        n = sp.tanh(x * p["W_x"][2] + p["b"][2] + u)
        return [(1 - z) * n + z * h]

    return step


SCALAR = {
    "linear": LinearCell,
    "rnn": lambda: mb.RNNCell(1, 1, rng=1, dtype=f64),
    "lstm": lambda: mb.LSTMCell(1, 1, rng=2, dtype=f64),
    "gru": lambda: mb.GRUCell(1, 1, rng=3, dtype=f64),
    "gru before": lambda: mb.GRUCell(1, 1, reset="before", rng=4, dtype=f64),
}


@pytest.mark.parametrize("kind", SCALAR)
def test_sympy_s_derivative_of_the_unrolled_expression_gives_the_same_terms(kind):
    sp = pytest.importorskip("sympy", reason="SymPy is not installed: scalar cells are not compared with it")
    cell = SCALAR[kind]()
    T = 3
    x, y = [0.5, -1.2, 0.8][:T], [0.1, 0.4, -0.3][:T]
    with mb.Tape() as tape:
        outputs, _ = mb.unroll(cell, np.reshape(x, (T, 1, 1)), cut_every=T - 1)
        loss = mb.mse(outputs, np.reshape(y, (T, 1, 1)))
    step, values = sympy_step(sp, kind), {}
    copies = []
    for s in range(T):  # a copy of every parameter for each step
        copies.append({})
        for name, p in cell.named_parameters():
            copies[s][name] = [sp.Symbol(f"{name}_{k}_at_{s}", real=True) for k in range(p.size)]
            values.update(zip(copies[s][name], p.value.reshape(-1).tolist()))
    for through_cuts in (False, True):
        state = [sp.Integer(0)] * (2 if kind == "lstm" else 1)
        unrolled = 0
        held = {}
        for s in range(T):
            if s == T - 1 and not through_cuts:  # a cut: the value stays, as a constant
                constants = [sp.Symbol(f"cut_{k}", real=True) for k in range(len(state))]
                before = sp.lambdify(list(values), state, "math", cse=True)(*values.values())
                held = dict(zip(constants, before))
                state = constants
            state = step(copies[s], x[s], state)
            unrolled += (state[0] - y[s]) ** 2 / T
        every = [c for at in copies for elements in at.values() for c in elements]
        numbers = {**values, **held}
        worked = sp.lambdify(list(numbers), [sp.diff(unrolled, c) for c in every], "math", cse=True)
        expected = dict(zip(every, worked(*numbers.values())))
        for name, p in cell.named_parameters():
            d = mb.derive(tape, loss, p, through_cuts=through_cuts)
            assert [t.step for t in d.terms] == [3, 2, 1][-T:]
            for t in d.terms:
                derivatives = [expected[c] for c in copies[t.step - 1][name]]
                np.testing.assert_allclose(t.term.reshape(-1), derivatives, rtol=1e-11, atol=1e-13)


# --- the formulas ----------------------------------------------------------------------------------------------


def value_of(e, known):
    """A formula worked out on arrays. known: by label, the array."""
    if isinstance(e, Number):
        return np.float64(e.value)
    if isinstance(e, Symbol):
        return known[e.label]
    if e.op == "where":
        condition = known[e.args[0].label][:, None]
        return np.where(condition, *[value_of(part, known) for part in e.args[1:]])
    if e.op == "words":
        pytest.skip(e.args[0].name)
    args = [value_of(part, known) for part in e.args]
    if e.op == "list":
        shape = next(a.shape for a in args if a.ndim)
        return np.concatenate([np.broadcast_to(a, shape if a.ndim == 0 else a.shape) for a in args], -1)
    if e.op == "Σ":
        return args[0].sum(axis=0)
    functions = {
        "+": np.add, "−": np.subtract, "·": np.multiply, "/": np.divide, "@": np.matmul, "^": np.power,
        "T": np.transpose, "neg": np.negative, "tanh": np.tanh, "σ": lambda v: 1 / (1 + np.exp(-v)),
        ">": np.greater, "<": np.less,
        "=": np.equal, "maximum": np.maximum, "relu": lambda v: np.maximum(v, 0),
    }  # fmt: skip
    return functions[e.op](*args)


@pytest.mark.parametrize("detail", DETAILS)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", CELLS)
def test_every_formula_that_is_shown_gives_the_engine_s_numbers(name, options, detail):
    cell = CELLS[name]()
    tape, loss = recorded(cell, OPTIONS[options])
    checked = 0
    for parameter in cell.parameters().values():
        d = mb.derive(tape, loss, parameter, through_cuts=0.5, detail=detail)
        flow = Backflow(tape, loss, parameter, 0.5)
        symbols = Symbols(tape, every=detail == "operation")
        known, slots = {}, {}
        for place in flow.places:  # a value that stands before a cut has the symbol of what stands after it
            for record in place.records:
                for out in record.outputs:
                    known[symbols.of(out.slot).label] = out.value
                    slots[symbols.of(out.slot).label] = out.slot
        known |= {p.name: p.value for p in cell.parameters().values()}
        rng = np.random.default_rng(5)
        x = rng.standard_normal((5, 2, 1 if name == "linear" else 2)) * 0.7
        given = OPTIONS[options]
        for t in range(5):
            call = tape.calls[t]
            known[f"x{'₀₁₂₃₄₅'[t + 1]}"] = mb.to_numpy(call.x)
            known[f"real{'₀₁₂₃₄₅'[t + 1]}"] = np.arange(5)[t] < np.array(given.get("lengths", [5, 5]))
            known[f"reset{'₀₁₂₃₄₅'[t + 1]}"] = np.array(given.get("resets", np.zeros((5, 2))))[t].astype(bool)
        np.testing.assert_array_equal(known["x₁"].shape, x[0].shape)
        for label, z in zip(cell.names_of(cell.zero_state(2)), [z for _, z in mb.nest.leaves(cell.zero_state(2))]):
            known[f"{label.split('.')[-1]}₀"] = z.value
        for label, slot in slots.items():
            if slot in flow.adjoints:
                known[f"∂L/∂{label}"] = flow.adjoints[slot]
        cuts = {cut.slot for cut in tape.cuts}
        for record in tape.records:  # the adjoint of a state is that before the cut
            for out in record.outputs:
                if out.slot in flow.adjoints and out.slot not in cuts:
                    known[f"∂L/∂{symbols.of(out.slot).label}"] = flow.adjoints[out.slot]
        terms = {t.step: t.term for t in d.terms}
        for block in d.blocks:
            for line in block.lines:
                e = line.right[0]
                step = block.steps[0] if block.steps else None
                if line.kind in ("equation", "where") and isinstance(line.left, Symbol):
                    if step != block.steps[1] or _hard(e):
                        continue
                    np.testing.assert_allclose(value_of(e, known), known[line.left.label], rtol=1e-12, atol=1e-14)
                elif line.kind == "term" and step == block.steps[1]:
                    if _hard(e) or len(line.right) < 2:
                        continue
                    found = np.reshape(value_of(e, known), -1)
                    np.testing.assert_allclose(
                        np.broadcast_to(found, terms[step].size), terms[step].reshape(-1), rtol=1e-10, atol=1e-13,
                        err_msg=text(e),
                    )  # fmt: skip
                    checked += 1
                elif line.kind == "adjoint" and len(line.right) > 1 and not _hard(e) and step == block.steps[1]:
                    found = value_of(e, known)
                    np.testing.assert_allclose(
                        found, known[line.left.label], rtol=1e-10, atol=1e-13, err_msg=text(e)
                    )  # fmt: skip
    assert checked >= 3 * len(cell.parameters())


def _hard(e):
    """Is there something in a formula that only moves numbers about?"""
    if not isinstance(e, Apply):
        return False
    moving = e.op in ("words", "label") or e.op.startswith(("piece", "split", "stack", "sum"))
    return moving or any(map(_hard, e.args))


@pytest.mark.parametrize("kind", SCALAR)
def test_the_local_derivatives_of_scalar_cells_are_central_differences_of_the_equations(kind):
    cell = SCALAR[kind]()
    with mb.Tape() as tape:
        outputs, _ = mb.unroll(cell, np.reshape([0.5, -1.2, 0.8], (3, 1, 1)), state=None)
        loss = mb.mse(outputs, outputs.value * 0 + 0.2)
    seen = 0
    for parameter in cell.parameters().values():
        for block in mb.derive(tape, loss, parameter, detail="gate").blocks:
            equations = {line.left: line.right[0] for line in block.lines if line.kind == "equation"}
            for line in block.lines:
                if line.kind != "local":
                    continue
                y, a = line.left.args
                up, down = (_moved(equations[y], a, 1e-6), _moved(equations[y], a, -1e-6))
                if up is None or down is None:
                    continue
                assert line.right[-1].value == pytest.approx((up - down) / 2e-6, rel=1e-7, abs=1e-9)
                seen += 1
    assert seen > 5


def _moved(e, a, by):
    def put(e):
        if isinstance(e, Symbol):
            return Number(e.value + by * (e == a)) if e.value is not None else e
        return Apply(e.op, tuple(map(put, e.args))) if isinstance(e, Apply) else e

    return evaluated(put(e))


def test_the_derivative_that_is_shown_is_the_line_of_the_docstring(monkeypatch):
    from minibptt.derivations import written
    from minibptt.dispatch import OPERATIONS

    cell = mb.RNNCell(1, 1, rng=0, dtype=f64)
    tape, loss = recorded(cell, x=np.ones((2, 1, 1)))
    assert "∂h₂/∂a₂ = 1 − h₂²" in str(mb.derive(tape, loss, cell.W_h, detail="gate"))
    monkeypatch.setattr(OPERATIONS["tanh"], "__doc__", "y = tanh x;  ∂y/∂x = 7·y.")
    written._lines.cache_clear()
    assert "∂h₂/∂a₂ = 7·h₂" in str(mb.derive(tape, loss, cell.W_h, detail="gate"))
    written._lines.cache_clear()


def formulas(depth=3):
    """Trees of numbers: sums, products, powers, signs."""
    leaf = st.integers(-4, 4).map(Number)
    if not depth:
        return leaf
    below = formulas(depth - 1)
    infix = st.tuples(st.sampled_from("+−·/^"), below, below).map(lambda t: Apply(t[0], t[1:]))
    return leaf | below | infix | below.map(lambda e: Apply("neg", (e,)))


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(e=formulas())
def test_a_formula_has_the_brackets_that_it_needs(e):
    assume(evaluated(e) is not None and abs(evaluated(e)) < 1e9)
    code = text(e).replace("−", "-").replace("·", "*").replace("²", "**2").replace("^", "**")
    assert eval(code) == pytest.approx(evaluated(e), rel=1e-9, abs=1e-9)


def test_products_of_matrices_and_of_elements_are_told_apart_by_brackets():
    g, W, f = Symbol("g"), Symbol("W"), Symbol("f")
    product = Apply("@", (g, Apply("T", (W,))))
    assert text(Apply("·", (product, f))) == "(g @ Wᵀ)·f"
    assert text(Apply("@", (Apply("·", (g, f)), W))) == "(g·f) @ W"
    assert text(Apply("·", (f, product))) == "f·(g @ Wᵀ)" and text(Apply("+", (product, f))) == "g @ Wᵀ + f"
    assert text(Apply("·", (Number(3), Number(-2)))) == "3·(−2)" and text(Apply("−", (f, Number(-2)))) == "f − (−2)"
    assert text(Apply("T", (Apply("+", (g, f)),))) == "(g + f)ᵀ"


# --- the symbols -----------------------------------------------------------------------------------------------


def test_values_have_the_names_that_the_cell_gives_them():
    tape, loss = recorded(cell := TwoPart())
    shown = str(mb.derive(tape, loss, cell.U))
    for part in ("memory₅ = σ(decay)·memory₄ + new₅·0.5", "fast₅ = maximum(new₅, memory₅)",
                 "new₅ = tanh(new′₅)", "new′₅ = x₅ @ W + fast₄ @ U"):  # fmt: skip
        assert part in shown, part
    assert not re.search("v[₀-₉]", shown)
    lstm = mb.LSTMCell(2, 3, rng=0)
    tape, loss = recorded(lstm, x=np.ones((2, 2, 2), np.float32))
    shown = str(mb.derive(tape, loss, lstm.b))
    for part in ("c₂ = f₂·c₁ + i₂·g₂", "h₂ = o₂·tanh(c₂)", "z_i₂, z_f₂, z_g₂, z_o₂ = split(", "f₁·c₀"):
        assert part in shown, part


SOURCELESS = """
class Hidden(mb.Cell):
    def __init__(self):
        self.w = mb.parameter([.5])
        self.nonlinearity = lambda v: mb.tanh(v)
    def zero_state(self, batch):
        return mb.zeros((batch, 1))
    def step(self, x, h):
        inner = self.w * h + x
        h = self.nonlinearity(inner)
        return h, h
"""


def test_a_cell_without_source_has_names_too_and_a_step_that_cannot_be_taken_again_falls_back():
    space = {"mb": mb}
    exec(SOURCELESS, space)
    cell = space["Hidden"]()
    tape, loss = recorded(cell, x=np.ones((3, 1, 1)))
    assert "inner₃ = w·h₂ + x₃" in str(mb.derive(tape, loss, cell.w))

    left = [None] * 3

    class Once(space["Hidden"]):
        def step(self, x, h):
            left.pop()  # an IndexError at the fourth call
            return super().step(x, h)

    cell = Once()
    tape, loss = recorded(cell, x=np.ones((3, 1, 1)))
    d = mb.derive(tape, loss, cell.w)
    assert "h₃ = tanh(w·h₂ + 1)" in str(d)  # by the operations alone
    np.testing.assert_allclose(d.total, tape.gradient(loss, cell.w), rtol=1e-6)


def test_a_loop_of_ones_own_and_a_tape_without_a_clock_are_derived_too():
    w = mb.parameter([0.5], "w", dtype=f64)
    with mb.Tape() as tape:
        h = mb.zeros((1, 1))
        for t in (1, 2, 3):
            with tape.at(t):
                h = w * h + float(t)
                tape.state("h", h)
        loss = mb.sum(h * h)
    d = mb.derive(tape, loss, w)
    assert [t.step for t in d.terms] == [3, 2] or [t.step for t in d.terms] == [3, 2, 1]
    assert "h₃ = w·h₂ + 3" in str(d) and d.total == pytest.approx(tape.gradient(loss, w))
    with mb.Tape() as tape:
        loss = mb.sum(mb.tanh(w * 2.0) * w)
    for detail in DETAILS:
        d = mb.derive(tape, loss, w, detail=detail)
        assert d.total == pytest.approx(tape.gradient(loss, w)) and len(str(d).splitlines()) > 4
    with mb.Tape() as tape:  # a long chain that nobody names is not written out inside itself
        h = w
        for _ in range(2000):
            h = mb.tanh(h) + h * 0.0
        loss = mb.sum(h)
    assert mb.derive(tape, loss, w).total == pytest.approx(tape.gradient(loss, w))


class Noisy(mb.Cell):
    """Draws, counts and prints at every step."""

    def __init__(self):
        self.w, self.rng, self.count = mb.parameter([0.5]), np.random.default_rng(0), 0
        self.drop = mb.Dropout(0.5, rng=1)

    def zero_state(self, batch):
        return mb.zeros((batch, 1))

    def step(self, x, h):
        self.count += 1
        print("step", self.count)
        noise = self.rng.standard_normal()
        h = self.drop(self.w * h + x) + noise
        return h, h


def test_a_derivation_changes_nothing_on_the_tape_in_the_cell_or_on_the_screen(capsys):
    import sys

    cell = Noisy()
    tape, loss = recorded(cell, {"cut_every": 2}, np.ones((4, 2, 1), np.float32))
    before = (len(tape.records), dict(tape.leaves), list(tape.cuts), tape.slots, str(tape))
    generators = (cell.rng.bit_generator.state, cell.drop.rng.bit_generator.state, cell.count)
    gradient = tape.gradient(loss, cell)
    capsys.readouterr()
    trace = sys.gettrace()
    first, second = str(mb.derive(tape, loss, cell.w)), str(mb.derive(tape, loss, cell.w))
    assert first == second and capsys.readouterr().out == "" and sys.gettrace() is trace
    assert before == (len(tape.records), dict(tape.leaves), list(tape.cuts), tape.slots, str(tape))
    assert generators == (cell.rng.bit_generator.state, cell.drop.rng.bit_generator.state, cell.count)
    assert gradient == tape.gradient(loss, cell)


def test_a_trimmed_tape_is_derived_as_far_as_it_reaches_and_its_calls_are_given_up():
    cell = mb.RNNCell(1, 1, rng=0, dtype=f64)
    with mb.Tape() as tape:
        _, h = mb.unroll(cell, np.ones((6, 1, 1)))
        tape.keep_last(3)
        loss = mb.sum(h)
    assert [call.steps for call in tape.calls] == [(4, 4), (5, 5), (6, 6)]
    d = mb.derive(tape, loss, cell.W_h)
    np.testing.assert_allclose(d.total, tape.gradient(loss, cell.W_h), rtol=1e-14)
    assert [t.step for t in d.terms] == [6, 5, 4]


def test_parameters_of_one_name_in_two_layers_are_told_apart():
    model = mb.RNN(1, 1, layers=2, engine="tape", rng=0, dtype=f64)
    with mb.Tape() as tape:
        outputs, _ = model(np.ones((2, 1, 1)))
        loss = mb.sum(outputs)
    shown = str(mb.derive(tape, loss, model.cells[0].W_h))
    assert "∂L/∂0.W_h" in shown and "·1.W_x" in shown and "step 2, layer 0" in shown
    assert "(loss and later layers)" in shown


def test_a_derivation_runs_on_the_arrays_of_a_device(xp):
    cell = mb.LSTMCell(1, 2, rng=0)
    x = mb.to_backend(np.ones((3, 2, 1), np.float32))
    with mb.Tape() as tape:
        outputs, _ = mb.unroll(cell, x, lengths=[3, 2], cut_every=2)
        loss = mb.mse(outputs, outputs.value * 0 + 1)
    d = mb.derive(tape, loss, cell.W_h)
    assert type(d.total) is type(cell.W_h.value) and isinstance(d.total, xp.ndarray | DeviceArray)
    np.testing.assert_allclose(mb.to_numpy(d.total), mb.to_numpy(tape.gradient(loss, cell.W_h)), rtol=1e-5, atol=1e-8)
    assert "c₃" in str(d) and d.latex() and d.html()


# --- how it looks ------------------------------------------------------------------------------------------------


def test_the_toy_fits_on_one_screen_cut_mended_and_both():
    cell, tape, loss = toy()
    cut, mended = (mb.derive(tape, loss, cell.w_h, through_cuts=c) for c in (False, True))
    for shown in (cut, mended, cut.beside(mended)):
        lines = str(shown).splitlines()
        assert len(lines) <= 40 and max(map(len, lines)) <= 100
    for part in ("h₃ = w_x·x₃ + b_x + w_h·h₂ + b_h = 3·3 + 1 + 2·18 + 1 = 47", "∂h₃/∂w_h = h₂ = 18",
                 "∂h₃/∂h₂ = w_h = 2",
                 "∂L/∂w_h += ∂L/∂h₃·h₂ = 1·18 = 18", "∂L/∂h₂ ← ∂L/∂h₃·w_h = 1·2 = 2   ✂ dropped (cut before step 3)",
                 "total 23", "padding: h₄ = h₃; nothing is added", "∂L/∂w_h = 0 + 18 + 5 + 0 = 23"):  # fmt: skip
        assert part in str(cut), part
    assert "∂L/∂h₂ = 1 (loss)\n" in str(cut)
    for part in ("∂L/∂h₂ = 1 (loss) + 2 (step 3) = 3", "to step 2 (cut mended)", "0 + 18 + 15 + 0 = 33"):
        assert part in str(mended), part
    both = str(cut.beside(mended, ("cut", "mended")))
    assert "0 + 18 + 5 + 0 = 23" in both and "0 + 18 + 15 + 0 = 33" in both and both.count("h₃ = w_x·x₃") == 1


def test_the_equals_signs_of_a_step_stand_below_each_other_in_unicode_and_ascii():
    cell, tape, loss = toy()
    shown = str(mb.derive(tape, loss, cell.w_h))
    ascii_ = plain_ascii(shown)
    assert ascii_.isascii() and "?" not in ascii_ and "8< dropped" in ascii_ and "dL/dw_h" in ascii_
    at = [re.search(r" (=|\+=|←) ", line).start() for line in shown.splitlines() if "₃" in line and "h₄" not in line][
        1:6
    ]
    assert len(set(at)) == 1


def test_a_factor_on_a_cut_is_said_and_a_state_from_an_earlier_tape_too():
    cell = LinearCell()
    with mb.Tape():
        _, h = mb.unroll(cell, np.ones((2, 1, 1)))
    with mb.Tape() as tape:
        outputs, _ = mb.unroll(cell, np.ones((2, 1, 1)), mb.cut(h), cut_every=1)
        loss = mb.sum(outputs)
    shown = str(mb.derive(tape, loss, cell.w_h, through_cuts=3.0))
    assert "to step" in shown and "times 3 at the cut" in shown and "at the factor 3" in shown
    # ∂L/∂h₂ = 1, so 2 arrives at the cut, 6 goes on, and 2·(1 + 6) = 14 arrives before the first step.
    assert "14   ✂ arrives at the cut before step" in shown and "whose past is not on this tape" in shown


def test_a_long_tape_shows_its_ends():
    cell = LinearCell()
    with mb.Tape() as tape:
        outputs, _ = mb.unroll(cell, np.ones((60, 1, 1)) * 1e-3)
        loss = mb.sum(outputs)
    d = mb.derive(tape, loss, cell.w_x)
    assert "… 20 steps left out …" in str(d) and "left out" not in d.text(most=100) and len(d.terms) == 60


HOSTILE = r"<b>&\evil{}$%#_^~é</b>"


def test_names_and_words_are_escaped_in_html_and_latex():
    w = mb.parameter([0.5], HOSTILE, dtype=f64)
    with mb.Tape() as tape:
        with tape.at(1, layer=HOSTILE):
            h = w * 2.0
            tape.state("h<i>", h)
        loss = mb.sum(h * h)
    d = mb.derive(tape, loss, w)
    for page in (d._repr_html_(), d.html(), d.beside(d)._repr_html_()):
        body = page.replace("<b>", "!").split("</style>")[1]
        assert "!" not in body and "<i>" not in body and "&lt;b&gt;&amp;" in body
    assert r"\evil" not in d.latex() and "$" not in d.latex().replace(r"\$", "")
    assert_math(d)


READ = set()  # lines that were read already


def assert_math(d):
    """Each line of the LaTeX, without the alignment, is read by matplotlib's mathtext."""
    mathtext = pytest.importorskip("matplotlib.mathtext")
    parser = mathtext.MathTextParser("path")
    first, *lines, last = d.latex().splitlines()
    assert first == r"\begin{align*}" and last == r"\end{align*}" and lines
    assert all(line.endswith(r" \\") for line in lines[:-1]) and not lines[-1].endswith("\\")
    for line in lines:
        assert line.count("{") == line.count("}") and len(re.findall(r"(?<!\\)&", line)) == 1
        assert line.isascii()
        read = re.sub(r"[\d.]+", "1", re.sub(r"(?<!\\)&", "", line.removesuffix(r" \\")))
        if read not in READ:
            READ.add(read)
            parser.parse(f"${read}$")


@pytest.mark.parametrize("detail", DETAILS)
@pytest.mark.parametrize("name", CELLS)
def test_the_latex_of_every_cell_parses_line_by_line(name, detail):
    cell = CELLS[name]()
    x = np.random.default_rng(1).standard_normal((3, 2, 1 if name == "linear" else 2))
    tape, loss = recorded(cell, {"lengths": [3, 2], "resets": [[0, 0], [1, 0], [0, 0]], "cut_every": 1}, x)
    for parameter in list(cell.parameters().values())[:: 1 if detail == "step" else 2]:
        assert_math(mb.derive(tape, loss, parameter, detail=detail))


def test_the_html_is_well_formed_folds_by_step_and_names_its_rows():
    from html.parser import HTMLParser

    class Balanced(HTMLParser):
        open_, seen = [], []

        def handle_starttag(self, tag, attrs):
            self.seen.append((tag, dict(attrs)))
            if tag not in ("meta", "br"):
                self.open_.append(tag)

        def handle_endtag(self, tag):
            assert self.open_.pop() == tag

    cell, tape, loss = toy()
    d = mb.derive(tape, loss, cell.w_h)
    for page in (d.html(), d.beside(mb.derive(tape, loss, cell.w_h, through_cuts=True)).html()):
        reader = Balanced()
        reader.open_, reader.seen = [], []
        reader.feed(page)
        assert not reader.open_
        tags = [tag for tag, _ in reader.seen]
        assert tags.count("details") == tags.count("summary") == 4 and "table" in tags
        assert all(a.get("scope") == "row" for tag, a in reader.seen if tag == "th")
        assert ("html", {"lang": "en"}) in reader.seen and "h<sub>3</sub>" in page and "color-scheme" in page


def test_lines_are_data_too():
    cell, tape, loss = toy()
    d = mb.derive(tape, loss, cell.w_h)
    kinds = {line.kind for block in d.blocks for line in block.lines if isinstance(line, Line)}
    assert kinds == {"equation", "local", "adjoint", "term", "cut"}
    assert [block.title for block in d.blocks] == ["step 4", "step 3", "step 2", "step 1"]
    assert repr(d) == "Derivation(∂L/∂w_h, 4 terms, 3 cuts, closed)"


# --- errors ------------------------------------------------------------------------------------------------------


def test_what_cannot_be_derived_says_what_to_do():
    cell, tape, loss = toy()
    with pytest.raises(TypeError, match=r"one of its parameters.*w_x, b_x, w_h, b_h"):
        mb.derive(tape, loss, cell)
    with pytest.raises(TypeError, match="one at a time"):
        mb.derive(tape, loss, [cell.w_x, cell.w_h])
    with pytest.raises(TypeError, match=r"tape\.watch"):
        mb.derive(tape, loss, np.ones(3))
    with pytest.raises(TypeError, match="takes a tape first"):
        mb.derive(loss, tape, cell.w_h)
    with pytest.raises(ValueError, match="'step', 'gate', 'operation', found 'steps'"):
        mb.derive(tape, loss, cell.w_h, detail="steps")
    with pytest.raises(ValueError, match="must be a scalar"):
        mb.derive(tape, tape.records[-2].outputs[0], cell.w_h)
    with pytest.raises(TypeError, match="finite number"):
        mb.derive(tape, loss, cell.w_h, through_cuts="both")
    with pytest.raises(ValueError, match="the same gradient"):
        mb.derive(tape, loss, cell.w_h).beside(mb.derive(tape, loss, cell.w_x))
    model = mb.RNN(1, 1, rng=0)
    with mb.Tape() as tape:
        loss = mb.sum(model(np.ones((2, 1, 1)))[0])
    with pytest.raises(mb.TapeError, match="engine='tape'"):
        mb.derive(tape, loss, model.cells[0].W_h)


def test_what_the_loss_does_not_reach_has_a_zero_and_says_so():
    _, tape, loss = toy()
    other = mb.parameter([1.0, 2.0], "other")
    d = mb.derive(tape, loss, other)
    assert d.terms == [] and d.total.tolist() == [0, 0] and "does not depend on it" in str(d)
    assert_math(d)


def test_print_tape_calls_the_values_inside_a_cell_by_the_names_of_its_step_and_adds_no_record():
    lstm = mb.LSTM(1, 1, rng=0, engine="tape")
    with mb.Tape() as tape:
        out, _ = lstm(np.ones((2, 1, 1)), lengths=[1])
        before = len(tape.records)
        shown = str(tape)
        assert len(tape.records) == before
        mb.sum(out)
    for line in ("z_i₁, z_f₁, z_g₁, z_o₁ = split", "f₁ = sigmoid(z_f₁)", "h₂ = where(h′₂, h₁)", "outputs = stack(h₁,"):
        assert line in shown
    assert "v₅ = add(v₂, v₄)" in shown  # what `step` gives no name


def test_print_tape_shows_values_of_a_cell_that_cannot_take_its_step_again_by_their_places():
    class Once(LinearCell):
        calls = 0

        def step(self, x, h):
            if type(self).calls:
                raise RuntimeError
            type(self).calls += 1
            total = self.w_x * x + self.w_h * h
            return total, total

    with mb.Tape() as tape:
        mb.unroll(Once(), np.ones((1, 1, 1)))
    assert "h₁ = add(v" in str(tape)
