"""What an operation cannot take is said in words of ours: what was found, what was expected, what to do."""

import re

import numpy as np
import pytest

import minibptt as mb
from minibptt.why import ELEMENTWISE

W, V = mb.parameter(np.ones((6, 2, 3)), "W"), mb.parameter(np.ones((6, 2, 2)), "V")
EMPTY = np.zeros((0, 3))
RAGGED = [[1.0], [2.0, 3.0]]
FOREIGN = re.compile(
    "broadcast|inhomogeneous|setting an array|out of bounds|interpreted as|reduction operation|remapped|unpack|iterable"
    "|input array|slice indices|has no len|numpy|newaxis|object is not|must match exactly"
)

CASES = {
    **{name: (lambda name=name: getattr(mb, name)(W, V), "axis −1 has the sizes 3 and 2") for name in ELEMENTWISE},
    "matmul": (lambda: mb.matmul(np.ones((2, 3, 4)), np.ones((3, 4, 2))), "axis −1 has the sizes 2 and 3"),
    "matmul: inner": (lambda: mb.matmul(W, V), r"inner sizes differ: 3 and 2\. .*: transpose one"),
    "matmul: a number": (lambda: mb.matmul(W, 3), "needs at least one axis on each side; for a number use"),
    "where: inputs": (lambda: mb.where(W.value > 0, W, V), r"the condition \(6, 2, 3\), x .* and y \(6, 2, 2\)"),
    "where: condition": (lambda: mb.where([True] * 5, W, W), r"the condition \(5,\), .*sizes 5 and 3"),
    "where: ragged": (lambda: mb.where(RAGGED, W, W), "the condition is a list whose rows have different lengths"),
    "stack: shapes": (lambda: mb.stack([W, W, V]), r"number 3 has \(6, 2, 2\)\. Reshape one"),
    "stack: axis": (lambda: mb.stack([W, W], axis=9), "axis 9 does not exist in an array of 4 axes"),
    "stack: axis a": (lambda: mb.stack([W, W], axis="a"), "axis must be one whole number, found 'a'"),
    "stack: none": (lambda: mb.stack(None), "stack takes a list of at least one tensor, found None"),
    "stack: one": (lambda: mb.stack(W), r"found one alone, of shape \(6, 2, 3\)"),
    "concatenate: sizes": (lambda: mb.concatenate([W, V]), r"number 2 has \(6, 2, 2\): give axis=2"),
    "concatenate: axes": (lambda: mb.concatenate([np.ones(2), np.ones((2, 1))]), "all must have as many axes"),
    "concatenate: numbers": (lambda: mb.concatenate([1.0, 2.0]), "no axis to join numbers along; stack makes one"),
    "concatenate: axis": (lambda: mb.concatenate([W, W], axis=9), "axis 9 does not exist"),
    "concatenate: one": (lambda: mb.concatenate(W), r"found one alone, of shape \(6, 2, 3\)"),
    "concatenate: nothing": (lambda: mb.concatenate([]), "found none"),
    "reshape: word": (lambda: mb.reshape(W, "a"), "a whole number or a tuple of them, found 'a'"),
    "reshape: size": (lambda: mb.reshape(W, (5,)), r"\(6, 2, 3\) has 36 elements, \(5,\) has 5 elements\. Give"),
    "reshape: -1": (lambda: W.reshape(5, -1), "needs a multiple of 5"),
    "reshape: -1, -1": (lambda: W.reshape(-1, -1), "one of them may be −1"),
    "transpose": (lambda: mb.transpose(W, 3), r"such as \(0, 1, 2\), found 3"),
    "split": (lambda: mb.split(W, "a"), "how many equal ones, or a list of the places to cut at; found 'a'"),
    "split: axis": (lambda: mb.split(W, 2, None), "axis must be one whole number, found None"),
    "unstack": (lambda: mb.unstack(W, None), "axis must be one whole number, found None"),
    "softmax: axis": (lambda: mb.softmax(W, 9), "axis 9 does not exist in an array of 3 axes"),
    "log_softmax: axis": (lambda: mb.log_softmax(W, "a"), "found 'a'"),
    "softmax: empty": (lambda: mb.softmax(EMPTY, 0), r"and shape \(0, 3\) has none along axis 0"),
    "logsumexp: empty": (lambda: mb.logsumexp(EMPTY, 0), "give at least one"),
    "max: empty": (lambda: mb.max(EMPTY), "no largest of no elements"),
    "sum: twice": (lambda: mb.sum(W, (0, 0)), r"axis \(0, 0\) names one axis twice"),
    "index: 0.5": (lambda: W[0.5], "found 0.5"),
    "index: floats": (lambda: W[np.array([0.5])], "found an array of float64"),
    "index: outside": (lambda: W[0, [0, 2]], "there is no place 2 on axis 1; its 2 are counted from 0"),
    "index: outside, after ...": (lambda: W[..., -4], "there is no place -4 on axis 2"),
    "index: many": (lambda: W[0, 0, 0, 0], "4 axes are indexed, too many: there are 3"),
    "index: booleans": (lambda: W[:, [True]], r"booleans must have the shape .*\(2,\), found \(1,\)"),
    "index: ragged": (lambda: W[[[0], [1, 2]]], "the index is a list whose rows have different lengths"),
    "index: two ...": (lambda: W[..., 0, ...], "may hold one ..., which stands"),
    "index: two": (lambda: W[[0, 1], [0, 1, 1]], "sizes 2 and 3"),
    "index: true": (lambda: W[True, 7], "no place 7 on axis 0; its 6"),
    "index: true and many": (lambda: W[np.True_, 0, 0, 0, 0], "4 axes are indexed, too many: there are 3"),
    "join: two sizes": (lambda: mb.concatenate([W, np.ones((6, 4, 5))], axis=-1), r"has \(6, 4, 5\): reshape one"),
    "reshape: beside 0": (lambda: mb.reshape(W, (0, -1)), r"beside a size of 0 .*give the size; found \(0, -1\)"),
    "embedding": (lambda: mb.embedding(W, [1]), r"the table must be \(V, D\).*found shape \(6, 2, 3\)"),
    "tanh": (lambda: mb.tanh(RAGGED), "rows have different lengths"),
    "assign": (lambda: mb.assign(W, RAGGED), r"the new value of W, of shape \(6, 2, 3\): found a list whose rows"),
    "to_numpy": (lambda: mb.to_numpy(RAGGED), "pad them to one length"),
    "to_backend": (lambda: mb.to_backend(RAGGED), "pad them to one length"),
    "parameter": (lambda: mb.parameter(RAGGED), "pad them to one length"),
    "lengths": (lambda: mb.mse(V, V.value, lengths=RAGGED), "lengths: found a list whose rows"),
}  # fmt: skip


@pytest.mark.parametrize("ask, words", CASES.values(), ids=CASES)
def test_what_an_operation_cannot_take_is_said_in_our_words(ask, words):
    with pytest.raises((TypeError, ValueError, IndexError), match=words) as error:
        ask()
    assert not FOREIGN.search(str(error.value)), str(error.value)


def test_a_list_of_tensors_may_be_any_iterable():
    assert mb.stack(w for w in [W, W]).shape == (2, 6, 2, 3)


def test_an_operation_of_ones_own_keeps_its_own_words():
    from minibptt.dispatch import OPERATIONS, op

    @op
    def outer(xp, a, b):
        raise ValueError("a and b must be vectors")

    try:
        with pytest.raises(ValueError, match=r"^outer\(W \(6, 2, 3\), V \(6, 2, 2\)\): a and b must be vectors$"):
            outer(W, V)
    finally:
        del OPERATIONS["outer"]


def test_the_words_are_the_same_wherever_the_arrays_are(xp):
    w, v = mb.Tensor(xp.asarray(np.ones((6, 2, 3))), "W"), mb.Tensor(xp.asarray(np.ones((6, 2, 2))), "V")
    flags = xp.asarray(np.ones(5, bool))
    for ask, words in [
        (lambda: w + v, "axis −1 has the sizes 3 and 2"),
        (lambda: mb.matmul(w, 3), "needs at least one axis"),
        (lambda: mb.matmul(w[:2], mb.transpose(w[:3], (0, 2, 1))), "axis −1 has the sizes 2 and 3"),
        (lambda: mb.where(flags, w, w), r"the condition \(5,\)"),
        (lambda: mb.stack([w, v]), "all must have one shape"),
        (lambda: mb.softmax(w, 9), "axis 9 does not exist"),
        (lambda: mb.max(w[:0]), "no largest of no elements"),
        (lambda: w[9], "no place 9 on axis 0"),
        (lambda: w[flags], r"booleans must have the shape .*, \(6,\), found \(5,\)"),
    ]:
        with pytest.raises((ValueError, IndexError), match=words):
            ask()
