"""What a model, a loss, a figure or a mapping cannot take is refused by name, with what was expected."""

import numpy as np
import pytest

import minibptt as mb
from minibptt.benchmark import sweep

X = np.zeros((6, 2, 3), np.float32)
IDS = np.zeros((6, 2), int)
CELL, LSTM = mb.RNNCell(3, 4, rng=0), mb.LSTMCell(3, 4, rng=0)
MODEL = mb.Sequential(mb.LSTM(3, 4, rng=0), mb.Linear(4, 2, rng=0))
READER = mb.Sequential(mb.Embedding(5, 3, rng=0), mb.RNN(3, 4, rng=0))
LOGITS = np.zeros((6, 2, 5))
THERE = mb.standin.xp.zeros(2)
A_LIST = "generator: make it a list"

SEQUENCES = {
    "objects": (lambda: mb.unroll(CELL, X.astype(object)), TypeError, r"the sequence x .*found object of shape \(6, 2"),
    "texts": (lambda: MODEL(X.astype(str)), TypeError, r"the sequence x .*found <U32 of shape \(6, 2, 3\)"),
    "generator": (lambda: mb.unroll(CELL, (x for x in X)), TypeError, f"the sequence x .*found {A_LIST}"),
    "dict": (lambda: MODEL({"x": X}), TypeError, "the sequence x .*found dict"),
    "None": (lambda: MODEL(None), TypeError, "the sequence x .*found None"),
    "ragged": (lambda: MODEL([[1.0], [2.0, 3.0]]), ValueError, "the sequence x: found a list .*tell the lengths"),
    "lengths": (lambda: mb.unroll(CELL, X, lengths=(n for n in (1, 2))), ValueError, f"each row, found {A_LIST}"),
    "mask": (lambda: mb.unroll(CELL, X, mask=(n for n in (1, 2))), ValueError, f"found {A_LIST}"),
    "one row of ids": (lambda: READER(IDS[:, 0]), ValueError, r"found shape \(6,\)\. One row of ids is x\[:, None\]"),
    "one row": (lambda: mb.unroll(CELL, X[:, 0]), ValueError, r"found shape \(6, 3\)\. One row is x\[:, None\]"),
    "one row of numbers": (lambda: MODEL(X[:, 0, 0]), ValueError, r"one row of single numbers x\[:, None, None\]"),
    "a class": (lambda: mb.unroll(mb.RNNCell, X), TypeError, "the class RNNCell is none: call it, to make a cell"),
    "a class of layers": (lambda: mb.unroll(mb.RNN, X), TypeError, "the class RNN is none: call it"),
    "a model": (lambda: mb.unroll(MODEL, X), TypeError, r"Sequential is none: call it: model\(x\)"),
    "a state of text": (lambda: mb.unroll(CELL, X, "state"), TypeError, "the initial state of RNNCell .*found str"),
    "a state's part": (lambda: mb.unroll(LSTM, X, ("a", "b")), TypeError, "the initial state of LSTMCell .*zero_state"),
    "a state's part in a layer": (lambda: MODEL(X, ((("a", "b"),),)), TypeError, r"state of layer 0\.0 \(LSTMCell"),
    "one part of two": (lambda: mb.unroll(LSTM, X, np.zeros((2, 4))), ValueError, "has 2 parts, found one with 1"),
    "one part too many": (lambda: mb.unroll(CELL, X, (X[0], X[0])), ValueError, "has 1 part, found one with 2"),
    "reset": (lambda: mb.reset("a"), TypeError, "reset: the state must be a tensor"),
}  # fmt: skip


@pytest.mark.parametrize("ask, error, words", SEQUENCES.values(), ids=SEQUENCES)
def test_what_is_no_sequence_and_no_state_is_named(ask, error, words):
    with pytest.raises(error, match=words):
        ask()


def test_what_the_hints_say_works():
    mb.unroll(CELL, X[:, 0][:, None])
    READER(IDS[:, 0][:, None])
    mb.unroll(mb.RNNCell(3, 4), X, [[0.0] * 4] * 2)


LOSSES = {
    "floats": (lambda: mb.cross_entropy(LOGITS, IDS * 1.0), TypeError, r"found float64.*targets.astype\(int\)"),
    "outside": (lambda: mb.cross_entropy(LOGITS, IDS + 7), ValueError, r"target 7 at \(0, 0\) .* \(12 such targets\)"),
    "text": (lambda: mb.cross_entropy(LOGITS, "a"), TypeError, "cross_entropy: targets must be integers, found <U1"),
    "no logits": (lambda: mb.cross_entropy(None, IDS), TypeError, "cross_entropy: the logits: .*found NoneType"),
    "no prediction": (lambda: mb.mse(None, X), TypeError, "mse: the prediction: .*found NoneType"),
    "no target": (lambda: mb.mse(X, None), TypeError, "mse: the target: .*found NoneType"),
    "ids": (lambda: READER(X[..., 0]), TypeError, r"ids must be integers, found float32.*ids.astype\(int\)"),
    "ids on a device": (lambda: mb.embedding(np.ones((3, 2)), THERE), mb.BackendError, "embedding: the ids"),
}  # fmt: skip


@pytest.mark.parametrize("ask, error, words", LOSSES.values(), ids=LOSSES)
def test_a_loss_names_what_it_cannot_take(ask, error, words):
    with pytest.raises(error, match=words):
        ask()


def test_the_cross_entropy_of_nothing_real_is_0_without_a_sign_and_its_gradient_0():
    w = mb.parameter(LOGITS)
    with mb.Tape() as tape:
        loss = mb.cross_entropy(w, IDS, mask=np.zeros((6, 2)))
    assert str(loss.item()) == "0.0"
    assert not tape.gradient(loss, w).any()


def gradients():
    with mb.Tape() as tape:
        loss = mb.mse(MODEL(X)[0], np.ones((6, 2, 2)))
    return tape.gradient(loss, MODEL)


CONTRIBUTIONS = mb.contributions(MODEL, X, np.ones((6, 2, 2)), loss=mb.mse)
WRONG = [None, 3, "a", [], CONTRIBUTIONS.full]
FIGURES = {
    "contributions": (mb.plots.contributions, "what mb.contributions gives"),
    "lags": (mb.plots.lags, "what mb.contributions gives"),
    "schemes": (lambda c: mb.plots.schemes(6, [mb.tbptt(2)], c or []), "what mb.contributions gives"),
    "compare": (mb.plots.compare, "what mb.compare gives"),
    "training": (mb.plots.training, "what mb.compare_training gives"),
    "drift": (mb.plots.drift, "what mb.drift gives, one or a dict of them"),
    "benchmark": (mb.plots.benchmark, "what mb.benchmark or sweep gives"),
    "tape": (mb.plots.tape, "a tape first"),
    "adjoints": (lambda tape: mb.plots.adjoints(tape, None), "a tape first"),
}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: type(wrong).__name__)
@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_says_what_it_takes(name, wrong):
    draw, words = FIGURES[name]
    found = "list" if name == "schemes" and wrong is None else type(wrong).__name__
    with pytest.raises(TypeError, match=f"^plots.{name} takes {words}; found {found}$"):
        draw(wrong)


def test_a_figure_names_a_class_that_was_not_called():
    with pytest.raises(TypeError, match="takes a tape first; found the class Tape"):
        mb.plots.tape(mb.Tape)


MAPPINGS = {
    "None": (lambda g: mb.Gradients(None), TypeError, "arrays by parameter name, a mapping; found NoneType"),
    "a list": (lambda g: mb.Gradients([1, 2]), TypeError, "arrays by parameter name, a mapping; found list"),
    "numbers": (lambda g: mb.Gradients({"a": 3}), TypeError, "'a' is int"),
    "lists": (lambda g: mb.Gradients({"a": [1.0]}), TypeError, "'a' is list"),
    "cosine": (lambda g: g.cosine(None), TypeError, "found NoneType"),
    "share": (lambda g: g.share(None), TypeError, "found NoneType"),
    "times a word": (lambda g: g * "a", TypeError, "scaled by a number; found 'a'"),
    "a word times": (lambda g: "a" * g, TypeError, "scaled by a number; found 'a'"),
    "times None": (lambda g: g * None, TypeError, "scaled by a number; found None"),
    "times an array": (lambda g: g * np.ones(3), TypeError, r"scaled by a number; found an array of shape \(3,\)"),
    "over a word": (lambda g: g / "a", TypeError, "scaled by a number; found 'a'"),
    "gates of nothing": (lambda g: mb.split_gates(None), TypeError, "must be a cell, a layer .*found NoneType"),
    "gates of a class": (lambda g: mb.split_gates(mb.LSTM), TypeError, "found the class LSTM: call it"),
    "gates, a word": (lambda g: mb.split_gates(MODEL, "foo"), TypeError, "as tape.gradient.* gives them.*; found str"),
    "gates, one missing": (lambda g: mb.split_gates(MODEL, {"0.0.W_x": g["0.0.W_x"]}), ValueError, "for '0.0.W_h'"),
    "gates, a shape": (lambda g: mb.split_gates(MODEL, {**g, "1.b": np.ones(9)}), ValueError, r"\(2,\), .* \(9,\)"),
}  # fmt: skip


@pytest.mark.parametrize("ask, error, words", MAPPINGS.values(), ids=MAPPINGS)
def test_gradients_say_what_they_meet(ask, error, words):
    with pytest.raises(error, match=words):
        ask(gradients())


@pytest.mark.parametrize("factor", [2, 0.5, np.float32(0.5), True])
def test_gradients_are_scaled_by_every_kind_of_number(factor):
    g = gradients()
    for found, expected in ((g * factor, g["1.b"] * factor), (g / factor, g["1.b"] / factor)):
        np.testing.assert_allclose(found["1.b"], expected, rtol=1e-6)
        assert found["1.b"].dtype == np.float32


MEASUREMENTS = {
    "backends": (lambda: mb.benchmark(MODEL, X, backends=3), TypeError, r"a list of names, .*'numpy'.*; found 3"),
    "title": (lambda: mb.benchmark(MODEL, X, title=3), TypeError, "title is a text, found 3"),
    "cell": (lambda: mb.benchmark(MODEL, X, cell=3), TypeError, "cell is a text, found 3"),
    "one cell": (lambda: sweep("lstm"), TypeError, r"cells is a list of them, \['lstm'\]; found one alone"),
    "one size": (lambda: sweep(hidden=3), TypeError, r"hidden is a list of them, \[3\]"),
    "an unknown cell": (lambda: sweep(["lstm", "mlp"]), ValueError, "one of 'rnn', 'lstm', 'gru'; found 'mlp'"),
    "no cells": (lambda: sweep([]), ValueError, "nothing to measure, for cells is empty"),
    "no sizes": (lambda: sweep(batches=[], lengths=[]), ValueError, "for batches and lengths is empty"),
    "no size": (lambda: sweep(hidden=[0]), ValueError, "each of hidden must be at least 1, found 0"),
}  # fmt: skip


@pytest.mark.parametrize("ask, error, words", MEASUREMENTS.values(), ids=MEASUREMENTS)
def test_what_cannot_be_measured_is_said_before_anything_is(ask, error, words, monkeypatch):
    monkeypatch.setitem(sweep.__globals__, "timed", None)
    with pytest.raises(error, match=words):
        ask()


def test_gates_of_gradients_are_split_wherever_they_are(xp):
    there = mb.Gradients({name: xp.asarray(mb.to_numpy(g)) for name, g in gradients().items()})
    found = mb.split_gates(MODEL, there)["f"]["b"]
    assert type(found) is xp.ndarray
    np.testing.assert_array_equal(mb.to_numpy(found), mb.to_numpy(there["0.0.b"])[4:8])


def test_a_sum_of_gradients_may_begin_at_numpys_zero_and_a_shape_may_be_a_range():
    g = gradients()
    assert np.int64(0) + g is g and g + np.float32(0) is g
    assert mb.zeros(range(2, 4)).shape == (2, 3)
