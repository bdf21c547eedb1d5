"""What is no tape, no loss, no size or no folder is refused in words, before anything is drawn, timed or written."""

import numpy as np
import pytest

import minibptt as mb
from minibptt import tensor
from minibptt.benchmark import sweep, timed
from minibptt.cli import main
from minibptt.data import standard_library
from minibptt.listing import counted
from minibptt.memory import peak_memory
from minibptt.module import check_number
from minibptt.wiring import wiring


@pytest.fixture
def recorded():
    lstm = mb.LSTM(2, 3, rng=0, engine="tape")
    with mb.Tape() as tape:
        out, _ = lstm(np.ones((3, 1, 2)))
        loss = mb.sum(out * out)
    return lstm, tape, out, loss


def test_a_loss_that_is_no_scalar_is_refused_without_advice_that_derive_cannot_follow(recorded):
    lstm, tape, out, _ = recorded
    with pytest.raises(ValueError, match=r"scalar, found shape \(3, 1, 3\): sum it, as with mb.sum"):
        mb.derive(tape, out, next(iter(lstm.parameters().values())))


@pytest.mark.parametrize("wrt", ["W_h", None, {}])
def test_what_cannot_be_watched_is_not_told_to_be_watched(recorded, wrt):
    with pytest.raises(TypeError, match="Pass the parameter itself"):
        mb.derive(recorded[1], recorded[3], wrt)


def test_a_derivation_leaves_out_steps_or_says_why_it_cannot_and_takes_two_titles(recorded):
    lstm, tape, _, loss = recorded
    found = mb.derive(tape, loss, next(iter(lstm.parameters().values())))
    shown = found.text(2)
    assert "… 1 step left out …" in shown and "step 3 " in shown and "step 1 " in shown and "step 2 " not in shown
    for most in (1, 0, -1):
        with pytest.raises(ValueError, match="most must be at least 2"):
            found.text(most)
    with pytest.raises(TypeError, match="most must be a whole number"):
        found.text("all")
    for titles in (("one",), "ab"):
        with pytest.raises(ValueError, match="titles must be two texts"):
            found.beside(found, titles)


def test_figures_say_what_they_take(recorded):
    lstm, tape, _, _ = recorded
    cases = {
        "plots.tape takes a tape": lambda: mb.plots.tape(None),
        "plots.adjoints takes a tape": lambda: mb.plots.adjoints(None, None),
        "plots.adjoints takes the loss": lambda: mb.plots.adjoints(tape, None),
        "plots.drift takes what mb.drift gives": lambda: mb.plots.drift([]),
        "plots.benchmark takes what": lambda: mb.plots.benchmark(None),
        "t must be a whole number": lambda: mb.plots.jacobians(lstm, np.ones((3, 1, 2)), t=1.5),
        "row must be a whole number": lambda: mb.plots.highway(lstm, np.ones((3, 1, 2)), row="0"),
    }
    for message, ask in cases.items():
        with pytest.raises(TypeError, match=message):
            ask()


def test_drift_and_benchmark_say_what_they_take(recorded):
    lstm, x = recorded[0], np.ones((2, 1, 2))
    for ask in (lambda: mb.drift(None, x), lambda: mb.benchmark(None, x)):
        with pytest.raises(TypeError, match="model must be a cell, a layer"):
            ask()
    with pytest.raises(TypeError, match=r"a list of them, \['numpy'\]"):
        mb.benchmark(lstm, x, backends="numpy")
    for seconds in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="seconds must be at least 0 and finite"):
            mb.benchmark(lstm, x, seconds=seconds)


def ones():
    return mb.contributions(mb.RNN(2, 3, rng=0), np.ones((3, 1, 2)), np.ones((3, 1, 3)), mb.mse)


NUMBERS = {
    "dropout between layers": (lambda a: mb.LSTM(3, 4, layers=2, dropout=a), "Dropout: p", -1),
    "Dropout": (lambda a: mb.Dropout(a), "Dropout: p", 1),
    "benchmark": (lambda a: mb.benchmark(mb.RNN(2, 3), np.ones((2, 1, 2)), seconds=a), "benchmark: seconds", -1),
    "timed": (lambda a: timed(int, int, seconds=a), "timed: seconds", -1),
    "artbp": (lambda a: mb.artbp(a), "artbp: p_cut", 1),
    "Gram": (lambda a: ones().gram().artbp_variance(a), "p_cut", 1),
    "gram": (lambda a: ones().gram(most_bytes=a), "gram: most_bytes", 0),
    "sample": (lambda a: mb.sample(mb.RNN(2, 3), [1], 5, temperature=a), "sample: the temperature", -1),
    "check_gradient": (lambda a: mb.check_gradient(mb.sum, [1.0], tolerance=a), "check_gradient: tolerance", -1),
    "explore": (lambda a: mb.explore(ones(), "never.html", most_bytes=a), "explore: most_bytes", -1),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_a_number_is_asked_for_in_the_same_words_everywhere(case, tmp_path, monkeypatch):
    ask, what, outside = NUMBERS[case]
    monkeypatch.chdir(tmp_path)
    for wrong in ("a", None if case != "check_gradient" else 1j, True):
        with pytest.raises(TypeError, match=f"{what} must be a number, found {wrong!r}"):
            ask(wrong)
    for wrong in (outside, float("nan")):
        with pytest.raises(ValueError, match=f"{what} must be (at least 0|positive).*, found {wrong}"):
            ask(wrong)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "ask, what",
    [
        (lambda a: mb.LSTM(2, 3, forget_bias=a), "LSTMCell: forget_bias"),
        (lambda a: mb.weights.to_tf1(mb.LSTM(2, 3), forget_bias=a), "to_tf1: forget_bias"),
        (lambda a: mb.weights.from_tf1(mb.LSTM(2, 3), {}, forget_bias=a), "from_tf1: forget_bias"),
    ],
)
def test_a_bias_may_be_any_finite_number(ask, what):
    for wrong in ("a", None, True):
        with pytest.raises(TypeError, match=f"{what} must be a number, found {wrong!r}"):
            ask(wrong)
    for wrong in (float("nan"), float("inf"), -float("inf")):
        with pytest.raises(ValueError, match=f"{what} must be finite, found {wrong}"):
            ask(wrong)
    mb.LSTM(2, 3, forget_bias=-2)


def test_how_often_and_how_much_are_whole_numbers_of_at_least_1():
    for ask in (lambda n: mb.artbp(0.5).plans(5, draws=n), standard_library):
        for wrong in ("a", 1.5, None):
            with pytest.raises(TypeError, match="must be a whole number, found"):
                ask(wrong)
        with pytest.raises(ValueError, match="must be at least 1, found 0"):
            ask(0)


def test_how_many_coordinates_are_tried_is_a_whole_number_and_not_below_none():
    x = np.array([1.0, 2.0])
    with pytest.raises(ValueError, match="coordinates must be at least 0"):
        mb.check_gradient(mb.sum, x, coordinates=-1)
    with pytest.raises(TypeError, match=r"coordinates must be a whole number, found 1\.5"):
        mb.check_gradient(mb.sum, x, coordinates=1.5)
    assert mb.check_gradient(mb.sum, x, coordinates=0).where == "a random direction"


def test_a_range_has_its_least_number_in_it_and_the_other_end_not():
    assert [check_number("a", x, 1, 2) for x in (1, 1.5)] == [1, 1.5]
    for number, options, words in (
        (2, {}, "at least 1 and below 2, found 2"),
        (0.5, {}, "at least 1 and below 2, found 0.5"),
        (1, {"above": True}, "above 1 and below 2, found 1"),
    ):
        with pytest.raises(ValueError, match=f"a must be {words}"):
            check_number("a", number, 1, 2, **options)
    with pytest.raises(ValueError, match="at least 0 and finite, found inf"):
        check_number("a", float("inf"))
    assert check_number("a", 10**400, infinite=True) == float("inf")


MAKERS = {
    "RNN": lambda **given: mb.RNN(2, 3, **given),
    "LSTM": lambda **given: mb.LSTM(2, 3, **given),
    "GRUCell": lambda **given: mb.GRUCell(2, 3, **given),
    "Linear": lambda **given: mb.Linear(2, 3, **given),
    "Embedding": lambda **given: mb.Embedding(2, 3, **given),
}
TYPED = MAKERS | {
    "parameter": lambda dtype: mb.parameter([1.0], dtype=dtype),
    "parameter of an array": lambda dtype: mb.parameter(np.ones(2), dtype=dtype),
    "zeros": lambda dtype: mb.zeros(2, dtype=dtype),
    "full": lambda dtype: mb.full(2, 1.0, dtype),
    "sweep": lambda dtype: sweep(["rnn"], [2], [1], [2], dtype=dtype, seconds=0),
    "check_cell": lambda dtype: mb.check_cell(print, print, like="rnn", dtype=dtype),
}


@pytest.mark.parametrize("make", TYPED.values(), ids=TYPED)
@pytest.mark.parametrize("wrong", ["foo", object, "U3", ["f4"], "f4,f4"], ids=str)
def test_a_dtype_that_is_no_float_type_is_refused_in_the_same_words_everywhere(make, wrong):
    with pytest.raises(TypeError, match=r"needs a (float type|type of numbers), found dtype=.*: give numpy"):
        make(dtype=wrong)


def test_a_dtype_may_be_given_by_its_name():
    assert mb.parameter([1.0], dtype="float64").dtype == mb.zeros(2, dtype="f8").dtype == np.float64
    assert mb.Linear(2, 3, dtype="float16").W.dtype == np.float16 and mb.zeros(2, dtype=int).dtype == int


@pytest.mark.parametrize("make", [*MAKERS.values(), lambda rng: mb.Dropout(0.5, rng=rng)], ids=[*MAKERS, "Dropout"])
def test_a_seed_below_0_is_refused_in_words(make):
    with pytest.raises(ValueError, match=r"rng must be a seed of at least 0 or a .*Generator, found -1"):
        make(rng=-1)
    make(rng=np.int64(0))


@pytest.mark.parametrize("make", [mb.zeros, mb.ones, lambda shape: tensor.full(shape, 2.0)])
def test_a_shape_is_whole_numbers_of_at_least_0(make):
    for wrong in (None, "a", 2.0, True, (2, 2.5), ("2",), {2}):
        with pytest.raises(TypeError, match=r"a shape is a whole number or a tuple of them.*found"):
            make(wrong)
    for wrong in (-1, (2, -1)):
        with pytest.raises(ValueError, match="a shape has no sizes below 0, found"):
            make(wrong)
    assert [make(good).shape for good in (0, (), [2, np.int32(3)])] == [(0,), (), (2, 3)]
    with pytest.raises(TypeError, match="filled with one number, found 'a'"):
        mb.full(2, "a")


CARRIERS = [
    *[cell(2, 3) for cell in (mb.RNNCell, mb.LSTMCell, mb.GRUCell, mb.RNN, mb.LSTM, mb.GRU)],
    mb.Stack(mb.RNNCell(2, 2), mb.GRUCell(2, 3)),
    mb.Sequential(mb.Linear(2, 2), mb.LSTM(2, 3)),
]


@pytest.mark.parametrize("model", CARRIERS, ids=lambda model: type(model).__name__)
def test_a_zero_state_is_for_a_whole_number_of_rows_of_at_least_1(model):
    for wrong in (2.0, "2", None, True):
        with pytest.raises(TypeError, match=f"zero_state: batch must be a whole number, found {wrong!r}"):
            model.zero_state(wrong)
    for wrong in (0, -1):
        with pytest.raises(ValueError, match=f"zero_state: batch must be at least 1, found {wrong}"):
            model.zero_state(wrong)


def stream():
    return mb.stream_batches(np.arange(40) % 5, batch=2, steps=4)


def speaker():
    return mb.Sequential(mb.Embedding(5, 3), mb.RNN(3, 4), mb.Linear(4, 5))


def training(model=None, loss=mb.cross_entropy, optimiser=None):
    model = model or speaker()
    return mb.train(model, stream(), loss, mb.tbptt(4), optimiser or mb.Adam(model), updates=1, progress=False)


NO_MODEL, NO_LOSS = "the model must be a cell, a layer or another Module, found", "the loss must be a function of"
CALLS = {
    "evaluate no model": (lambda: mb.evaluate(None, stream()), TypeError, f"{NO_MODEL} NoneType"),
    "evaluate a class": (lambda: mb.evaluate(mb.RNN, stream()), TypeError, f"{NO_MODEL} the class RNN: call it"),
    "evaluate no loss": (lambda: mb.evaluate(speaker(), stream(), None), TypeError, NO_LOSS),
    "evaluate a number": (
        lambda: mb.evaluate(speaker(), stream(), lambda outputs, y: 3), ValueError, "return a scalar tensor, found int",
    ),
    "evaluate an array": (
        lambda: mb.evaluate(speaker(), stream(), lambda outputs, y: outputs), ValueError, "scalar tensor, found shape",
    ),
    "sample no model": (lambda: mb.sample(None, [1], 5), TypeError, f"{NO_MODEL} NoneType"),
    "sample a class": (lambda: mb.sample(mb.RNN, [1], 5), TypeError, f"{NO_MODEL} the class RNN"),
    "sample letters": (lambda: mb.sample(speaker(), ["a"], 5), TypeError, "ids, which are whole numbers, found <U1"),
    "train no loss": (lambda: training(loss=None), TypeError, NO_LOSS),
    "train by a class": (lambda: training(optimiser=mb.Adam), TypeError, "found the class Adam"),
    "train another model": (
        lambda: training(optimiser=mb.Adam(mb.RNN(2, 3))), ValueError, "for another model.*Make it for the model that",
    ),
    "restore an empty stream": (lambda: stream().restore({}), TypeError, r"from what its state\(\) gave, found {}"),
    "restore no stream": (lambda: stream().restore(None), TypeError, r"from what its state\(\) gave, found None"),
    "check no function": (
        lambda: mb.check_gradient(None, np.ones(2)), TypeError, "the function must be one that .*, found None",
    ),
    "check by nothing": (lambda: mb.check_gradient(mb.sum, []), ValueError, "nothing to differentiate by"),
    "check by a class": (lambda: mb.check_gradient(mb.sum, mb.RNN), TypeError, f"{NO_MODEL} the class RNN"),
    "check by no parameter": (
        lambda: mb.check_gradient(mb.sum, mb.Sequential(mb.tanh)), ValueError, "Sequential has no parameters",
    ),
    "memory of nothing": (lambda: peak_memory(None), TypeError, r"as peak_memory\(lambda: …\), found None"),
    "time of nothing": (lambda: timed(None, print), TypeError, "timed takes two functions without arguments"),
}  # fmt: skip


@pytest.mark.parametrize("case", CALLS)
def test_what_is_no_model_no_loss_and_no_function_is_named_before_anything_runs(case):
    ask, error, words = CALLS[case]
    with pytest.raises(error, match=words):
        ask()


def test_a_function_without_parameters_can_be_evaluated_and_sampled():
    logits = lambda x: mb.Tensor(np.zeros((*x.shape, 5)))  # noqa: E731
    assert mb.evaluate(logits, stream()).loss == pytest.approx(np.log(5))
    assert list(mb.sample(logits, [1], 3, temperature=0)) == [0, 0, 0]


def test_explore_says_what_it_takes(recorded, tmp_path):
    c = mb.contributions(recorded[0], np.ones((3, 1, 2)), np.ones((3, 1, 3)), loss=mb.mse)
    for what, message in (
        (None, "found NoneType"),
        ([c], "expected Preset, found Contributions; for several moments give a dict"),
        ({"after": 3}, "expected Contributions, found int"),
    ):
        with pytest.raises(TypeError, match=message):
            mb.explore(what, tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


def test_the_shell_says_that_there_is_no_folder_for_a_derivation(tmp_path, capsys):
    assert main(["derive", "--html", str(tmp_path / "none" / "page.html")]) != 0
    assert "there is no such folder" in capsys.readouterr().err


def test_the_drawing_of_every_operation_names_the_gates_and_marks_only_states(recorded):
    nodes = wiring(recorded[1]).nodes
    formulas = [node.formula for node in nodes]
    for formula in ("i₁ = σ", "f₂ = σ", "g₃ = tanh", "o₃ = σ", "h₂ = … · …"):
        assert formula in formulas
    assert {node.formula[0] for node in nodes if node.state} == {"h", "c"}


def test_one_is_counted_in_the_singular_and_none_in_the_plural():
    assert [counted(n, "row") for n in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]
    assert [counted(n, "loss", "losses") for n in (1, 2)] == ["1 loss", "2 losses"]
    x = mb.parameter([2.0])
    with mb.Tape() as tape:
        mb.tanh(x)
    assert str(tape).startswith("Tape: 1 record, 0 cuts") and repr(tape) == "Tape(1 record, 0 cuts)"
    assert str(mb.full().describe(1)).startswith("full, T = 1: 1 update, ")
    with pytest.raises(ValueError, match="in an array of 1 axis"):
        mb.sum(x, axis=1)
    with pytest.raises(ValueError, match=r"\(1 such id\)"):
        mb.embedding(np.ones((2, 3)), ids=[2])
