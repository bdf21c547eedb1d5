"""The operations: values, derivatives, dtypes and errors, most of it made from the table in op_table.py."""

import functools
import inspect
import re
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from op_table import CASES, TABLE, positive, some

import minibptt as mb
from minibptt import dispatch

SAMPLES = [pytest.param(case, sample, id=f"{case.name}{i}") for case in CASES for i, sample in enumerate(case.samples)]
PAIRS = [pytest.param(case, id=case.name) for case in CASES if len(case.samples[0].inputs) > 1]
ELEMENTWISE = [pytest.param(case, id=case.name) for case in CASES if case.elementwise]
RAW = {name: operation.__wrapped__ for name, operation in dispatch.OPERATIONS.items()}  # function(xp, …) → (y, rule)


def outputs(y):
    return y if isinstance(y, tuple) else (y,)


def weighted(xp, ys):
    """A scalar in which every element of every output counts differently."""
    parts = []
    for i, y in enumerate(outputs(ys)):
        weights = xp.asarray(np.cos(np.arange(y.size) + i + 0.5).reshape(y.shape), dtype=y.dtype)
        parts.append(mb.sum(y * weights))
    return functools.reduce(mb.add, parts)


def value_and_gradients(case, sample, xp, dtype):
    inputs = [mb.parameter(xp.asarray(x, dtype=dtype)) for x in sample.inputs]
    with mb.Tape() as tape:
        ys = case(*inputs, **sample.options_on(xp))
        loss = weighted(xp, ys)
    return [y.value for y in outputs(ys)], list(tape.gradient(loss, inputs))


def gradient(function, *inputs, dtype=np.float64, seed=None):
    """The gradients of function(*parameters), one for each input."""
    inputs = [mb.parameter(x, dtype=dtype) for x in inputs]
    with mb.Tape() as tape:
        y = function(*inputs)
    grads = tape.gradient(y, inputs, seed)
    return grads if len(grads) > 1 else grads[0]


def shapes(x):
    """A name for a test from the shapes among its parameters."""
    return str(x) if isinstance(x, tuple) else ""


def F(*shape, k=0):
    return (0.5 * np.sin(np.arange(int(np.prod(shape))) + 1 + k)).reshape(shape)


# --- the table ---------------------------------------------------------------------------------------------------


def test_every_operation_is_in_the_table():
    assert set(TABLE) == set(dispatch.OPERATIONS)


def test_every_operation_but_indexing_is_public():
    assert [name for name in TABLE if not hasattr(mb, name)] == ["getitem"]


@pytest.mark.parametrize("case, sample", SAMPLES)
def test_an_operation_has_the_value_that_it_has_in_numpy(xp, case, sample):
    ys = case(*[xp.asarray(x) for x in sample.inputs], **sample.options_on(xp))
    expected = outputs(case.numpy(*sample.inputs, **sample.options))
    assert isinstance(ys, tuple) == (case.name in ("split", "unstack"))
    for y, e in zip(outputs(ys), expected, strict=True):
        assert type(y) is mb.Tensor and type(y.value) is xp.ndarray
        assert y.shape == np.shape(e) and y.dtype == np.float64
        assert_allclose(mb.to_numpy(y), e, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("case, sample", SAMPLES)
def test_a_derivative_agrees_with_a_numerical_one(case, sample):
    def loss(*inputs):
        return weighted(np, case(*inputs, **sample.options))

    method, tolerance = ("complex step", 1e-12) if case.smooth else ("central difference", 1e-6)
    check = mb.check_gradient(loss, list(sample.inputs), method=method, tolerance=tolerance)
    assert check.method == method and check.error <= tolerance


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case, sample", SAMPLES)
def test_a_gradient_has_the_shape_dtype_and_library_of_its_operand(xp, case, sample, dtype):
    ys, grads = value_and_gradients(case, sample, xp, dtype)
    assert {y.dtype for y in ys} == {np.dtype(dtype)}
    for g, x in zip(grads, sample.inputs, strict=True):
        assert type(g) is xp.ndarray and g.shape == x.shape and g.dtype == dtype
    numpy_ys, numpy_grads = value_and_gradients(case, sample, np, dtype)
    for mine, numpys in zip([*ys, *grads], [*numpy_ys, *numpy_grads], strict=True):
        assert_allclose(mb.to_numpy(mine), numpys, rtol=1e-12 if dtype == np.float64 else 1e-5, atol=1e-6)


@pytest.mark.parametrize("case, sample", SAMPLES)
def test_a_rule_changes_neither_its_inputs_nor_the_adjoint(case, sample):
    raw = RAW[case.name]
    inputs = [x.copy() for x in sample.inputs]
    y, rule = raw(np, *inputs, **sample.options)
    ys = [np.asarray(one) for one in outputs(y)]
    g = [np.asarray(some(*one.shape)) for one in ys]
    kept = [x.copy() for x in (*inputs, *ys, *g)]
    for array in (*inputs, *ys, *g):
        array.flags.writeable = False  # so that a change raises
    answers = []
    for _ in range(2):
        parts = rule(tuple(g) if isinstance(y, tuple) else g[0])
        answers.append([part() if callable(part) else part for part in parts])
    for first, second in zip(*answers, strict=True):
        assert_array_equal(first, second)
    for array, before in zip((*inputs, *ys, *g), kept, strict=True):
        assert_array_equal(array, before)


@pytest.mark.parametrize("case", PAIRS)
def test_a_constant_operand_is_no_leaf_and_leaves_the_other_gradients_as_they_are(case):
    sample = case.samples[0]
    for i, x in enumerate(sample.inputs):
        inputs = list(sample.inputs)
        inputs[i] = w = mb.parameter(x)
        with mb.Tape() as tape:
            loss = weighted(np, case(*inputs, **sample.options))
        assert len(tape.leaves) == 1
        _, all_of_them = value_and_gradients(case, sample, np, np.float64)
        assert_allclose(tape.gradient(loss, w), all_of_them[i], rtol=1e-14)


def test_an_output_that_nobody_used_counts_as_zero():
    x = mb.parameter(some(3, 2))
    for function in (mb.unstack, lambda x: mb.split(x, 3)):
        with mb.Tape() as tape:
            loss = mb.sum(function(x)[1]) * 2
        assert_array_equal(tape.gradient(loss, x), [[0, 0], [2, 2], [0, 0]])


# --- the equation in the docstring -------------------------------------------------------------------------------

MATHS = {"−": "-", "·": "*", "²": "**2", "^": "**", "½": "0.5", "not ": "1 - "}
NAMES = {"log": np.log, "exp": np.exp, "sign": np.sign, "tanh": np.tanh}


def derivatives_in(docstring):
    """{input: the expression that the docstring gives for ∂y/∂input}."""
    found = re.findall(r"∂\w/∂(\w) = (.+?)(?=;|:|,|\.\s|\.$)", docstring, re.MULTILINE)
    expressions = {}
    for name, text in found:
        for sign, code in MATHS.items():
            text = text.replace(sign, code)
        expressions[name] = re.sub(r"(?<![<>=])=(?!=)", "==", text)
    return expressions


@pytest.mark.parametrize("case", ELEMENTWISE)
def test_the_derivative_in_the_docstring_is_the_one_in_the_rule(case):
    raw = RAW[case.name]
    names = list(inspect.signature(raw).parameters)[1:]
    stated = derivatives_in(raw.__doc__)
    for sample in case.samples:
        shape = np.broadcast_shapes(*[x.shape for x in sample.inputs])
        inputs = [np.broadcast_to(x, shape) for x in sample.inputs]
        y, rule = raw(np, *inputs, **sample.options)
        scope = NAMES | dict(zip(names, inputs)) | {"y": y} | sample.options
        if case.name == "where":
            scope["y"] = inputs[1]  # its value is called z
        for name, part in zip(names, rule(np.ones_like(y)), strict=False):
            assert name in stated, f"the docstring of {case.name} has no line ∂y/∂{name} = …"
            part = part() if callable(part) else part
            assert_allclose(part, np.broadcast_to(eval(stated[name], scope), np.shape(y)), rtol=1e-14, atol=1e-15)


def test_a_tie_has_the_derivative_that_the_docstring_says():
    a, b = np.array([1.0, 2.0]), np.array([2.0, 2.0])
    for name, sign in (("maximum", 1), ("minimum", -1)):
        raw = RAW[name]
        _, rule = raw(np, sign * a, sign * b)
        for part, text in zip(rule(np.ones(2)), derivatives_in(raw.__doc__).values(), strict=True):
            assert_array_equal(part(), eval(text, {"a": sign * a, "b": sign * b}))


# --- errors ------------------------------------------------------------------------------------------------------

BAD = [pytest.param(case, bad, id=f"{case.name}{i}") for case in CASES for i, bad in enumerate(case.bad)]


@pytest.mark.parametrize("as_tensors", [False, True], ids=["arrays", "tensors"])
@pytest.mark.parametrize("case, bad", BAD)
def test_an_error_names_the_operation_and_the_shapes(case, bad, as_tensors):
    inputs = [mb.Tensor(x, f"x{i}") for i, x in enumerate(bad.inputs)] if as_tensors else bad.inputs
    with pytest.raises(bad.error) as error:
        case(*inputs, **bad.options)
    message = str(error.value)
    assert re.search(rf"\b{case.name}\b", message)
    assert all(word in message for word in bad.words), message


def test_an_error_names_the_step_and_the_tensors():
    W, b = mb.parameter(some(2, 3), "W"), mb.parameter(some(4), "b")
    with mb.Tape() as tape, tape.at(7), pytest.raises(ValueError, match=r"^step 7: add\(W \(2, 3\), b \(4,\)\): "):
        W + b


@pytest.mark.parametrize("wrong", ["word", None, {"a": 1}, [[1.0], [1.0, 2.0]]], ids=["word", "None", "dict", "ragged"])
def test_what_is_no_number_is_refused_by_name(xp, wrong):
    for case in CASES:
        sample = case.samples[0]
        for i in range(len(sample.inputs)):
            inputs = [mb.Tensor(xp.asarray(x)) for x in sample.inputs]
            inputs[i] = wrong
            with pytest.raises((TypeError, ValueError), match=rf"^{case.name}\b"):
                case(*inputs, **sample.options_on(xp))


def test_a_list_of_tensors_is_no_array_whose_gradient_is_lost(xp):
    W, b = mb.parameter(xp.asarray([1.0, 2.0])), mb.parameter(xp.asarray([3.0, 4.0]))
    for function in (mb.sum, mb.max, mb.tanh, mb.logsumexp, lambda pair: W * pair, lambda pair: mb.maximum(pair, 0)):
        with mb.Tape(), pytest.raises(TypeError, match="stack"):
            function([W, b])


ONE_BY_ONE = [case for case in CASES if case.name not in ("concatenate", "stack")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_unknown_option_is_refused_by_name(case):
    with pytest.raises(TypeError, match=rf"^{case.name}\(.*colour"):
        case(*case.samples[0].inputs, **case.samples[0].options, colour=1)


@pytest.mark.parametrize("case", ONE_BY_ONE, ids=lambda case: case.name)
def test_a_missing_input_is_named(case):
    with pytest.raises(TypeError, match=rf"^{case.name}: the input '\w' is missing"):
        case(*case.samples[0].inputs[:-1], **case.samples[0].options)


@pytest.mark.parametrize("case", ONE_BY_ONE, ids=lambda case: case.name)
def test_an_argument_too_many_is_not_dropped(case):
    options = [p for p in inspect.signature(RAW[case.name]).parameters.values() if p.kind is p.KEYWORD_ONLY]
    given = [case.samples[0].options.get(p.name, p.default) for p in options]
    with pytest.raises(TypeError, match=rf"^{case.name}\b"):
        case(*case.samples[0].inputs, *given, some(2, 3))


@pytest.mark.parametrize("name", ["concatenate", "stack"])
def test_a_list_without_tensors_cannot_be_joined(name):
    for wrong in ([], (), mb.parameter([1.0])):
        with pytest.raises(ValueError, match=f"{name} takes a list of at least one"):
            getattr(mb, name)(wrong)


def test_options_go_by_position_and_inputs_by_name():
    x = some(2, 3)
    for y, expected in [
        (mb.sum(x, 0), x.sum(0)),
        (mb.sum(x, 0, True), x.sum(0, keepdims=True)),
        (mb.reshape(x, (3, 2)), x.reshape(3, 2)),
        (mb.transpose(x, (1, 0)), x.T),
        (mb.power(2.0, b=x), 2**x),
        (mb.tanh(x=x), np.tanh(x)),
        (mb.split(x, 3, 1)[2], x[:, 2:]),
    ]:
        assert_array_equal(y.value, expected)
    with pytest.raises(TypeError, match=r"^sum\b.*axis"):
        mb.sum(x, 0, axis=1)


# --- the same tensor twice, broadcasting, axes -------------------------------------------------------------------


@pytest.mark.parametrize(
    "function, x, expected",
    [
        (lambda x: mb.sum(x - x), [1.5, -2.0], [0, 0]),
        (lambda x: mb.sum(x + x), [1.5, -2.0], [2, 2]),
        (lambda x: mb.sum(x * x), [1.5, -2.0], [3, -4]),
        (lambda x: mb.sum(x / x), [1.5, -2.0], [0, 0]),
        (lambda x: mb.sum(x * x * x), [1.5, -2.0], [6.75, 12]),
        (lambda x: mb.sum(x @ x), [[1.0, 2.0], [3.0, 4.0]], [[7, 11], [9, 13]]),
        (lambda x: x @ x, [1.5, -2.0], [3, -4]),
        (lambda x: mb.sum(x @ x.T), [[1.0, 2.0], [3.0, 4.0]], [[8, 12], [8, 12]]),
        (lambda x: mb.sum(mb.stack([x, x, x]) ** 2), [1.5, -2.0], [9, -12]),
        (lambda x: mb.sum(mb.concatenate([x, x]) * np.array([1.0, 2.0, 10.0, 20.0])), [1.5, -2.0], [11, 22]),
        (lambda x: mb.sum(mb.where(np.array([True, False]), x, x)), [1.5, -2.0], [1, 1]),
        (lambda x: mb.sum(mb.maximum(x, x)), [3.0, -1.0], [1, 1]),
        (lambda x: mb.sum(mb.minimum(x, x)), [3.0, -1.0], [1, 1]),
        (lambda x: x**x, 2.0, 6.772588722239782),
    ],
)
def test_the_same_tensor_twice_gets_both_parts(function, x, expected):
    assert_allclose(gradient(function, x), expected, rtol=1e-14)


FIVE, NINE = 5, 9


@pytest.mark.parametrize(
    "a_shape, b_shape, function, da, db",
    [
        (
            (5, 1),
            (1, 4),
            mb.multiply,
            [-1.8760863169631048, 0.2589419247675093, 1.5375748423662494, -2.2689938993936543, 1.4286519338679786],
            [-0.09688442569559544, -0.12641934777706762, -0.03972490452499636, 0.08349243274657318],
        ),
        (
            (2, 3, 4),
            (4,),
            mb.add,
            F(2, 3, 4, k=NINE),
            [-0.26936274243491926, -0.24685363891218348, 0.002611561802531581, 0.2496757046398334],
        ),
        (
            (2, 1, 4),
            (3, 1),
            mb.divide,
            [
                [-0.08402282556477875, -0.09909592129411335, -0.023060683989895497, 0.07417643982483932],
                [-0.03666176920861494, -0.10305906426884882, -0.07470433092152876, 0.022333219758371714],
            ],
            [0.16194272138727117, -0.029269328067178704, -0.05671691492905914],
        ),
        (
            (),
            (2, 2),
            mb.subtract,
            -0.8302085993069335,
            [0.2720105554446849, 0.49999510327535174, 0.26828645900021747, -0.21008351841332046],
        ),
        (
            (1,),
            (3,),
            mb.multiply,
            [-2.339543004481124],
            [-0.11444449498409097, -0.21036568597611807, -0.11287763543276817],
        ),
    ],
    ids=shapes,
)
def test_a_repeated_operand_gets_the_sum_over_its_repetitions(a_shape, b_shape, function, da, db):
    seed = F(*np.broadcast_shapes(a_shape, b_shape), k=NINE)
    found = gradient(function, F(*a_shape), F(*b_shape, k=FIVE) + 2, seed=seed)
    for g, expected, shape in zip(found, (da, db), (a_shape, b_shape), strict=True):
        assert g.shape == shape
        assert_allclose(g.ravel(), np.ravel(expected), rtol=1e-12)


def test_a_row_and_a_column_do_not_make_a_square_in_a_loss():
    p, q = mb.parameter([1.0, 2.0, 3.0]), np.array([[1.0], [2.0], [4.0]])
    with pytest.raises(ValueError, match=r"\(3,\).*\(3, 1\)"):
        mb.mse(p, q)
    assert mb.mse(p, q[:, 0]).item() == pytest.approx(1 / 3)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(
    "axis, first, last, total",
    [
        ((0, 2), [0.125, 0.125, 0.125, 0.125, 0.25], 0.375, 6),
        ((1, 2), [1 / 12, 1 / 12, 1 / 12, 1 / 12, 1 / 12], 1 / 6, 3),
        ((-1, 0), [0.125, 0.125, 0.125, 0.125, 0.25], 0.375, 6),
        ((0,), [0.5, 1.0, 1.5, 2.0, 2.5], 6, 78),
        ((-2,), [1 / 3, 2 / 3, 1, 4 / 3, 1 / 3], 8 / 3, 36),
        (-1, [0.25, 0.25, 0.25, 0.25, 0.5], 1.5, 21),
        (None, [1 / 24] * 5, 1 / 24, 1),
    ],
)
def test_a_reduction_hands_its_adjoint_back_along_the_axes_that_it_reduced(axis, first, last, total, keepdims):
    x = np.arange(24.0).reshape(2, 3, 4) / 10
    y = np.mean(x, axis=axis, keepdims=keepdims)
    seed, n = np.arange(1.0, y.size + 1).reshape(y.shape), x.size // y.size
    for function, factor in ((mb.mean, 1), (mb.sum, n)):
        g = gradient(lambda x: function(x, axis=axis, keepdims=keepdims), x, seed=seed)  # noqa: B023
        assert_allclose(g.ravel()[:5], np.multiply(first, factor), rtol=1e-14)
        assert_allclose([g.ravel()[-1], g.sum()], [last * factor, total * factor], rtol=1e-14)
    largest = gradient(lambda x: mb.max(x, axis=axis, keepdims=keepdims), x, seed=seed)
    assert sorted(largest[largest != 0]) == sorted(seed.ravel())
    assert_array_equal(x[largest != 0], np.max(x, axis=axis).ravel())


# --- matrix products, axes in another order ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "a_shape, b_shape, y_shape, da_sum, db_sum, db",
    [
        ((2, 3), (3,), (2,), -0.69903636640, 0.26238010008, [0.13015599003, 0.12610762208, 0.0061164879667]),
        (
            (3,),
            (3, 2),
            (2,),
            -0.00023838219587,
            0.66285939987,
            [0.20812906453, 0.086696436908, 0.22490522697, 0.093684569544, 0.034904560934, 0.01453954099],
        ),
        ((3,), (3,), (), -1.4963567011, 1.4189163148, [0.63110323861, 0.68197307012, 0.10584000604]),
        ((3, 3), (3,), (3,), -0.42768648812, -0.017581776879, [0.040802345212, -0.008450321017, -0.049933801073]),
        (
            (4, 2, 3),
            (3, 2),
            (4, 2, 2),
            -0.01828105028165,
            1.3836597721,
            [0.14623813249, 0.1779106801, 0.29439819077, 0.3706295441, 0.17188991014, 0.2225933145],
        ),
        ((2, 3), (4, 3, 2), (4, 2, 2), -0.019429092353, 1.5224288074, None),
        ((4, 1, 2, 3), (5, 3, 2), (4, 5, 2, 2), -0.057524299573, 1.1572619991, None),
    ],
    ids=shapes,
)
def test_a_matrix_product_of_any_ranks_hands_back_gradients_of_these_ranks(
    a_shape, b_shape, y_shape, da_sum, db_sum, db
):
    a, b = F(*a_shape), F(*b_shape, k=3)
    seed = F(*y_shape, k=7) if y_shape else 1.5
    found_a, found_b = gradient(mb.matmul, a, b, seed=seed)
    assert found_a.shape == a_shape and found_b.shape == b_shape and (a @ b).shape == y_shape
    assert_allclose([found_a.sum(), found_b.sum()], [da_sum, db_sum], rtol=1e-9)
    if db is not None:
        assert_allclose(found_b.ravel(), db, rtol=1e-9)


def test_axes_in_another_order_go_back_by_the_inverse_order():
    g = np.arange(27.0).reshape(3, 3, 3) ** 2
    dx = gradient(lambda x: mb.transpose(x, (1, 2, 0)), np.arange(27.0).reshape(3, 3, 3), seed=g)
    assert_array_equal(dx[0], [[0, 9, 36], [81, 144, 225], [324, 441, 576]])
    dx = gradient(lambda x: mb.transpose(x, (-2, -1, 0)), np.arange(27.0).reshape(3, 3, 3), seed=g)
    assert_array_equal(dx[0], [[0, 9, 36], [81, 144, 225], [324, 441, 576]])
    dx = gradient(
        lambda x: mb.transpose(x, (2, 0, 1)), np.arange(6.0).reshape(1, 2, 3), seed=np.arange(6.0).reshape(3, 1, 2)
    )
    assert_array_equal(dx, [[[0, 2, 4], [1, 3, 5]]])
    dx = gradient(lambda x: x.T, np.arange(6.0).reshape(1, 2, 3), seed=np.arange(6.0).reshape(3, 2, 1))
    assert_array_equal(dx, [[[0, 2, 4], [1, 3, 5]]])


# --- indexing ----------------------------------------------------------------------------------------------------


LOOKUPS = {
    "index": lambda W, ids, xp: W[xp.asarray(ids)],
    "index that is a tensor": lambda W, ids, xp: W[mb.Tensor(xp.asarray(ids))],
    "embedding": lambda W, ids, xp: mb.embedding(W, ids),
}


@pytest.mark.parametrize("look_up", LOOKUPS.values(), ids=LOOKUPS)
def test_a_repeated_index_adds_up(xp, look_up):
    W = mb.parameter(xp.asarray(np.arange(10.0).reshape(5, 2)))
    with mb.Tape() as tape:
        y = look_up(W, np.array([[1, 1, 4], [0, 1, 4]]), xp)
    g = tape.gradient(y, W, xp.asarray(np.arange(1.0, 13).reshape(2, 3, 2)))
    assert_array_equal(mb.to_numpy(g), [[7, 8], [13, 16], [0, 0], [0, 0], [16, 18]])


def test_overlapping_slices_add_up():
    def f(x):
        ten = np.array([10.0, 20.0, 30.0])
        return mb.sum(x[0:3] * np.array([1.0, 2.0, 3.0])) + mb.sum(x[1:4] * ten) + x[-1] * 7 + mb.sum(x[::2]) * 100

    assert_array_equal(gradient(f, np.arange(5.0)), [101, 12, 123, 30, 107])


@pytest.mark.parametrize(
    "index, seed, expected",
    [
        ((slice(None), 1), [1.0, 2.0], [[0, 1, 0], [0, 2, 0]]),
        ((np.arange(2), np.array([2, 0])), [5.0, 6.0], [[0, 0, 5], [6, 0, 0]]),
        ((np.array([1, 1, -1]), np.array([0, 0, 0])), [5.0, 6.0, 7.0], [[0, 0, 0], [18, 0, 0]]),
        ((slice(None), [0, 0]), [[1.0, 2.0], [3.0, 4.0]], [[3, 0, 0], [7, 0, 0]]),
        ([1, 1], [[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]], [[0, 0, 0], [11, 22, 33]]),
        (np.array([[True, False, True], [False, True, False]]), [1.0, 2.0, 3.0], [[1, 0, 2], [0, 3, 0]]),
        ((None, np.int64(1), slice(None, None, -1)), [[1.0, 2.0, 3.0]], [[0, 0, 0], [3, 2, 1]]),
        (slice(5, None), np.zeros((0, 3)), [[0, 0, 0], [0, 0, 0]]),
    ],
    ids=["column", "pairs", "repeated pairs", "repeated columns", "repeated rows", "mask", "reversed", "nothing"],
)
def test_what_was_indexed_goes_back_to_its_place(index, seed, expected):
    assert_array_equal(gradient(lambda x: x[index], np.arange(6.0).reshape(2, 3), seed=seed), expected)


def test_a_negative_and_a_positive_index_of_one_row_add_up():
    assert_array_equal(gradient(lambda x: mb.sum(x[np.array([-1, 3, 0])]), np.arange(4.0)), [1, 0, 0, 2])


def test_an_empty_list_is_an_index_of_nothing():
    assert mb.parameter([1.0, 2.0])[[]].shape == (0,)


def test_picking_puts_the_adjoint_back_at_the_ids(xp):
    x = mb.parameter(xp.asarray(np.arange(6.0).reshape(2, 3)))
    with mb.Tape() as tape:
        y = mb.pick(x, ids=np.array([2, 0]))
    assert_array_equal(mb.to_numpy(y), [2, 3])
    assert_array_equal(mb.to_numpy(tape.gradient(y, x, xp.asarray([5.0, 6.0]))), [[0, 0, 5], [6, 0, 0]])


# --- operators ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function, x, y, dx",
    [
        (lambda x: 6 - x, 2.0, 4, -1),
        (lambda x: 6 / x, 2.0, 3, -1.5),
        (lambda x: 6 * x, 2.0, 12, 6),
        (lambda x: 6 + x, 2.0, 8, 1),
        (lambda x: 2**x, 3.0, 8, 5.545177444479562),
        (lambda x: np.float64(2) ** x, 3.0, 8, 5.545177444479562),
        (lambda x: 0**x, 2.0, 0, 0),
        (lambda x: x**2, -3.0, 9, -6),
        (lambda x: x**2.0, -3.0, 9, -6),
        (lambda x: x ** np.array(2), -3.0, 9, -6),
        (lambda x: x**3, -2.0, -8, 12),
        (lambda x: x**0, 0.0, 1, 0),
        (lambda x: x ** np.array(0.0), 0.0, 1, 0),
        (lambda x: x**1, 0.0, 0, 1),
        (lambda x: x ** np.array(1.0), 0.0, 0, 1),
        (lambda x: x**2, 0.0, 0, 0),
        (lambda x: x**-1, 4.0, 0.25, -0.0625),
        (lambda x: x**0.5, 4.0, 2, 0.25),
        (lambda x: -x, 2.0, -2, -1),
        (lambda x: abs(x), -2.0, 2, -1),
        (lambda x: x**x, 2.0, 4, 6.772588722239782),
        (lambda x: 1 - (2 - (3 - x)), 5.0, -3, -1),
    ],
)
def test_an_operator_has_its_value_and_derivative_on_either_side(function, x, y, dx):
    p = mb.parameter(x, dtype=np.float64)
    with mb.Tape() as tape:
        found = function(p)
    assert found.item() == y
    assert_allclose(tape.gradient(found, p), dx, rtol=1e-15)


OPERATORS = {
    "+": (lambda a, b: a + b, lambda a, t: 1 + 0 * t),
    "-": (lambda a, b: a - b, lambda a, t: -1 + 0 * t),
    "*": (lambda a, b: a * b, lambda a, t: a + 0 * t),
    "/": (lambda a, b: a / b, lambda a, t: -a / t**2),
    "**": (lambda a, b: a**b, lambda a, t: a**t * np.log(a)),
}
LEFT = {
    "array (3,)": np.array([2.0, 4.0, 6.0]),
    "array (3, 3)": positive(3, 3),
    "array of float32": np.array([2.0, 4.0, 6.0], np.float32),
    "array of integers": np.array([2, 4, 6]),
    "array of shape ()": np.array(2.0),
    "list": [2.0, 4.0, 6.0],
    "numpy.float64": np.float64(2),
    "numpy.float32": np.float32(2),
    "numpy.int64": np.int64(2),
    "float": 2.0,
    "int": 2,
}


@pytest.mark.parametrize("left", LEFT.values(), ids=LEFT)
@pytest.mark.parametrize("sign", OPERATORS)
def test_what_stands_left_of_a_tensor_gives_one_tensor(sign, left):
    operate, derivative = OPERATORS[sign]
    t = np.array([1.0, 2.0, 3.0])
    a = np.asarray(left, dtype=np.float64)
    for first, second in ((left, None), (None, left)):
        p = mb.parameter(t)
        with mb.Tape() as tape:
            y = operate(p if first is None else first, p if second is None else second)
        assert type(y) is mb.Tensor and y.dtype == np.float64 and len(tape.records) == 1
        assert_allclose(y.value, operate(t if first is None else a, t if second is None else a), rtol=1e-15)
        if second is None:
            expected = np.broadcast_to(derivative(a, t), y.shape).reshape(-1, 3).sum(0)
            assert_allclose(tape.gradient(y, p, np.ones(y.shape)), expected, rtol=1e-14)


def test_an_array_left_of_a_matrix_product_gives_one_tensor(xp):
    t, vector, matrix = np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0]), positive(3, 3)
    for a, expected in ((vector, vector), (matrix, matrix.sum(0))):
        p = mb.parameter(xp.asarray(t))
        with mb.Tape() as tape:
            y = xp.asarray(a) @ p
            loss = mb.sum(y)
        assert type(y) is mb.Tensor
        assert_allclose(mb.to_numpy(y), a @ t)
        assert_allclose(mb.to_numpy(tape.gradient(loss, p)), expected)


@pytest.mark.parametrize("sign", OPERATORS)
def test_an_array_of_the_same_library_left_of_a_tensor_gives_one_tensor(xp, sign):
    operate, _ = OPERATORS[sign]
    a, t = positive(3), positive(2, 3)
    y = operate(xp.asarray(a), mb.parameter(xp.asarray(t)))
    assert type(y) is mb.Tensor and type(y.value) is xp.ndarray
    assert_allclose(mb.to_numpy(y), operate(a, t), rtol=1e-14)


def test_a_comparison_gives_plain_booleans_on_either_side(xp):
    t, a = mb.parameter(xp.asarray([1.0, 2.0, 3.0])), xp.asarray([2.0, 2.0, 2.0])
    for found, expected in [
        (t < a, [1, 0, 0]),
        (a > t, [1, 0, 0]),
        (t >= 2, [0, 1, 1]),
        (t > t, [0, 0, 0]),
        (a <= t, [0, 1, 1]),
    ]:
        assert type(found) is xp.ndarray and found.dtype == bool
        assert_array_equal(mb.to_numpy(found), np.array(expected, bool))


@pytest.mark.parametrize(
    "name", ["sum", "mean", "max", "prod", "where", "concatenate", "stack", "dot", "transpose", "clip", "linalg.norm"]
)
def test_a_numpy_function_on_a_tensor_points_to_minibptt(name):
    t = mb.parameter([1.0, 2.0])
    arguments = dict(where=(np.ones(2, bool), t, t), concatenate=([t, t],), stack=([t, t],), dot=(t, t), clip=(t, 0, 1))
    with mb.Tape() as tape, pytest.raises(TypeError, match=rf"numpy.{name.split('.')[-1]} .*minibptt"):
        functools.reduce(getattr, name.split("."), np)(*arguments.get(name, (t,)))
    assert not tape.records


@pytest.mark.parametrize("ufunc", [np.exp, np.tanh, np.abs, np.maximum.reduce, np.add.reduce, np.add.at])
def test_a_ufunc_on_a_tensor_is_refused(ufunc):
    t = mb.parameter([1.0, 2.0])
    extra = {np.add.at: ([0], 1.0)}.get(ufunc, ())
    with mb.Tape() as tape, pytest.raises(TypeError, match="use minibptt"):
        ufunc(t, *extra)
    assert not tape.records


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "power", "matmul"])
def test_the_ufuncs_of_the_operators_record_like_the_operators(name):
    a, t = np.array([1.0, 2.0]), mb.parameter([3.0, 4.0], dtype=np.float64)
    for left, right in ((a, t), (t, a), (t, t)):
        with mb.Tape() as tape:
            y = getattr(np, name)(left, right)
        assert [r.op for r in tape.records] == [name]
        assert_allclose(y.value, getattr(np, name)(*[getattr(x, "value", x) for x in (left, right)]))
    with pytest.raises(TypeError, match="use minibptt"):
        a += t


# --- dtypes ------------------------------------------------------------------------------------------------------


def test_a_parameter_is_float32_unless_told_otherwise():
    for value in (1, 2.5, [1, 2], [[1.5]], (1.0, 2), True):
        assert mb.parameter(value).dtype == np.float32
    assert mb.parameter([1, 2], dtype=np.float64).dtype == np.float64
    assert mb.parameter(np.array([1, 2]), dtype=np.float64).dtype == np.float64


def test_a_parameter_keeps_the_float_type_of_its_array(xp):
    for dtype in (np.float32, np.float64):
        assert mb.parameter(xp.ones(2, dtype=dtype)).dtype == dtype
        assert mb.parameter(dtype(2)).dtype == dtype
        assert mb.parameter(mb.parameter([1.0], dtype=dtype)).dtype == dtype
        assert mb.parameter(xp.ones(2, dtype=dtype), dtype=np.float32).dtype == np.float32


# What adapts to the tensors that it meets, made from an array x of the operand's shape.
CONSTANTS = {
    "float": lambda xp, x: 1.5,
    "int": lambda xp, x: 2,
    "bool": lambda xp, x: True,
    "numpy.float64": lambda xp, x: np.float64(1.5),
    "numpy.int64": lambda xp, x: np.int64(2),
    "numpy.bool": lambda xp, x: np.bool_(True),
    "array of shape ()": lambda xp, x: xp.asarray(1.5),
    "list": lambda xp, x: x.tolist(),
    "array of float64": lambda xp, x: xp.asarray(x),
    "array of float32": lambda xp, x: xp.asarray(x, dtype=np.float32),
    "array of float16": lambda xp, x: xp.asarray(x, dtype=np.float16),
    "array of integers": lambda xp, x: xp.asarray(np.ceil(np.abs(x)).astype(int)),
    "array of bytes": lambda xp, x: xp.asarray(np.ceil(np.abs(x)).astype(np.uint8)),
    "mask": lambda xp, x: xp.ones(x.shape, dtype=bool),
    "zeros": lambda xp, x: mb.zeros(x.shape) + 0.5,
    "ones": lambda xp, x: mb.ones(x.shape),
    "full": lambda xp, x: mb.tensor.full(x.shape, 1.5),
    "ones through cut": lambda xp, x: mb.cut(mb.ones(x.shape)),
    "ones through operations": lambda xp, x: mb.exp(mb.ones(x.shape) * 2) / 3,
    "tensor of integers": lambda xp, x: mb.Tensor(xp.asarray(np.ceil(np.abs(x)).astype(int))),
}
NUMBERS = ("float", "int", "bool", "numpy.float64", "numpy.int64", "numpy.bool", "array of shape ()")


@pytest.mark.parametrize("kind", CONSTANTS)
@pytest.mark.parametrize("case", PAIRS)
def test_what_is_no_tensor_adapts_to_the_tensor_that_it_meets(xp, case, kind):
    if kind in NUMBERS and not case.numbers:
        return
    sample = case.samples[0]
    for dtype in (np.float32, np.float64):
        for i, x in enumerate(sample.inputs):
            inputs = [CONSTANTS[kind](xp, np.abs(other)) for other in sample.inputs]
            inputs[i] = p = mb.parameter(xp.asarray(np.abs(x), dtype=dtype))
            with mb.Tape() as tape:
                y = case(*inputs, **sample.options_on(xp))
                g = tape.gradient(weighted(xp, y), p)
            assert y.dtype == dtype and not y.weak
            assert g.dtype == dtype and g.shape == x.shape
            numbers = [np.asarray(mb.to_numpy(one), np.float64) for one in inputs]
            assert_allclose(
                mb.to_numpy(y), case.numpy(*numbers, **sample.options), rtol=1e-2 if dtype == np.float32 else 1e-12
            )


def test_numbers_among_tensors_that_are_stacked_adapt():
    t = mb.parameter(2.0)
    for number in (3, 3.0, np.float64(3), np.array(3.0), mb.ones(()) * 3, True):
        y = mb.stack([t, number])
        assert y.dtype == np.float32 and y.shape == (2,)


def test_nothing_that_starts_in_float32_becomes_float64_on_the_way(xp):
    x, W = xp.asarray(some(3, 4)), mb.parameter(some(4, 4).tolist())
    with mb.Tape() as tape:
        h = mb.zeros((3, 4))
        for _ in range(3):
            h = mb.cut(mb.tanh(x @ W + h) * np.float64(0.5))
            h = mb.where(xp.asarray(np.array([[True], [False], [True]])), h, 0) + mb.softmax(h) ** 2
        loss = mb.mean(mb.logsumexp(h, axis=-1) + mb.sqrt(mb.max(h * h, axis=1)) - np.array(1.0).item())
    assert {out.dtype for record in tape.records for out in record.outputs} == {np.dtype(np.float32)}
    assert tape.gradient(loss, W).dtype == np.float32


def test_two_weak_tensors_stay_weak_and_a_dtype_makes_them_strong():
    weak = mb.zeros((2,)) + mb.ones((2,)) * np.array([1.0, 2.0])
    assert weak.weak and (weak + mb.parameter([1.0, 2.0])).dtype == np.float32
    assert (weak + mb.parameter(np.array([1.0, 2.0]))).dtype == np.float64
    for strong in (mb.zeros(2, np.float64), mb.ones(2, dtype=np.float64), mb.tensor.full(2, 0.5, np.float64)):
        assert not strong.weak and strong.dtype == np.float64
        with pytest.raises(TypeError, match="float64"):
            strong + mb.parameter([1.0, 2.0])


@pytest.mark.parametrize("case", PAIRS)
def test_two_tensors_of_different_float_types_do_not_mix(xp, case):
    sample = case.samples[0]
    for i in range(len(sample.inputs)):
        inputs = [mb.parameter(xp.asarray(x), f"x{j}", np.float64) for j, x in enumerate(sample.inputs)]
        inputs[i] = mb.parameter(xp.asarray(sample.inputs[i]), "W", np.float32)
        with pytest.raises(TypeError) as error:
            case(*inputs, **sample.options_on(xp))
        assert all(word in str(error.value) for word in (f"{case.name}: ", "W is float32", f"x{1 - i} is float64"))


@pytest.mark.parametrize("case", PAIRS)
def test_complex_numbers_never_adapt_down(case):
    if not case.smooth:
        return
    sample = case.samples[0]
    for dtype, both in ((np.float32, np.complex64), (np.float64, np.complex128)):
        for other in (sample.inputs[1] + 1j, mb.Tensor((sample.inputs[1] + 1j).astype(both))):
            y = case(mb.parameter(sample.inputs[0], dtype=dtype), other, **sample.options)
            assert y.dtype == both
    p = mb.parameter([1.0])
    assert (p * 1j).dtype == np.complex64 and (1j * p).dtype == np.complex64
    with pytest.raises(TypeError, match=r"complex128"):
        p * mb.Tensor(np.array([1j]))


@pytest.mark.parametrize("integers", [np.array([1, 2, 3]), np.array([True, False]), np.int64(3), np.uint8(3)])
def test_integers_cannot_be_differentiated(integers):
    with pytest.raises(TypeError, match="integers can't be differentiated"):
        mb.parameter(integers)
    with mb.Tape() as tape:
        for wrong in (integers, mb.Tensor(integers), {"h": (np.atleast_1d(integers),)}):
            with pytest.raises(TypeError, match="integers can't be differentiated"):
                tape.watch(wrong)
    with pytest.raises(TypeError, match="float type"):
        mb.parameter([1, 2], dtype=int)


def test_integers_as_constants_take_no_fraction_from_a_gradient():
    w, x = np.array([0.25, 0.5, 0.75]), np.array([1, 2, 3])
    assert_array_equal(gradient(lambda w: mb.sum(w * x), w), [1, 2, 3])
    assert_array_equal(gradient(lambda w: mb.sum(mb.Tensor(x) * w), w), [1, 2, 3])
    assert_array_equal(gradient(lambda w: mb.sum(w * np.eye(3, dtype=int)[1]), w), [0, 1, 0])
    assert_array_equal(gradient(lambda w: mb.sum(w * (w.value > 0.3)), w), [0, 1, 1])
    assert_array_equal(gradient(lambda x: mb.sum(x * w), x), w)  # numbers told to be floats
    mb.check_gradient(lambda x: mb.sum(x * w), x)


# --- large numbers -----------------------------------------------------------------------------------------------

LARGE = [
    pytest.param(np.float32(1e30), id="1e30 float32"),
    pytest.param(np.float64(1e30), id="1e30 float64"),
    pytest.param(np.finfo(np.float32).max, id="largest float32"),
    pytest.param(np.finfo(np.float64).max, id="largest float64"),
]


def quiet_value_and_gradient(xp, function, x):
    p = mb.parameter(xp.asarray(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with mb.Tape() as tape:
            y = function(p)
        return mb.to_numpy(y), mb.to_numpy(tape.gradient(y, p, xp.ones(y.shape, dtype=y.dtype)))


@pytest.mark.parametrize("M", LARGE)
def test_soft_maxima_never_overflow(xp, M):
    x = np.array([M, -M, 0, 1], M.dtype)
    y, g = quiet_value_and_gradient(xp, mb.sigmoid, x)
    assert_allclose(y, [1, 0, 0.5, 0.7310585786300049], rtol=1e-6)
    assert_allclose(g, [0, 0, 0.25, 0.19661193324148185], rtol=1e-6)
    y, g = quiet_value_and_gradient(xp, mb.softmax, x)
    assert_array_equal(y, [1, 0, 0, 0])
    assert_array_equal(g, 0)
    y, g = quiet_value_and_gradient(xp, mb.logsumexp, x)
    assert y == M
    assert_array_equal(g, [1, 0, 0, 0])
    y, g = quiet_value_and_gradient(xp, mb.log_softmax, x)
    assert y[0] == 0 and y[1] <= -M and y[2] == y[3] == -M
    assert_array_equal(g, [-3, 1, 1, 1])
    y, g = quiet_value_and_gradient(xp, mb.tanh, x)
    assert_allclose(y, [1, -1, 0, 0.7615941559557649], rtol=1e-6)


@pytest.mark.parametrize("M", LARGE)
def test_soft_maxima_of_equal_large_numbers_share(xp, M):
    for x in (np.full(4, M), np.full(4, -M)):
        y, _ = quiet_value_and_gradient(xp, mb.softmax, x)
        assert_array_equal(y, 0.25)
        y, _ = quiet_value_and_gradient(xp, mb.log_softmax, x)
        assert_allclose(y, -np.log(4), rtol=1e-6)
        y, g = quiet_value_and_gradient(xp, mb.logsumexp, x)
        assert y == x[0]
        assert_array_equal(g, 0.25)


@pytest.mark.parametrize("M", LARGE)
def test_the_cross_entropy_never_overflows(xp, M):
    target = np.array([0, 1])
    logits = np.array([[M, 0, 1], [0, M, 1]], M.dtype)
    y, g = quiet_value_and_gradient(xp, lambda x: mb.cross_entropy(x, target), logits)
    assert y == 0
    assert_array_equal(g, 0)
    if np.isfinite(2 * M.item()) and M.item() < 1e38:  # the largest difference is within the range
        y, g = quiet_value_and_gradient(xp, lambda x: mb.cross_entropy(x, target), -logits)
        assert_allclose(y, M, rtol=1e-6)
        assert np.isfinite(g).all()


def test_logits_of_minus_infinity_are_never_chosen(xp):
    x, e = np.array([-np.inf, 0.0, 1.0]), np.e
    for function, value, derivative in [
        (mb.sigmoid, [0, 0.5, e / (1 + e)], [0, 0.25, e / (1 + e) ** 2]),
        (mb.softmax, [0, 1 / (1 + e), e / (1 + e)], [0, 0, 0]),
        (mb.logsumexp, np.log(1 + e), [0, 1 / (1 + e), e / (1 + e)]),
        (mb.log_softmax, [-np.inf, -np.log(1 + e), 1 - np.log(1 + e)], [1, 1 - 3 / (1 + e), 1 - 3 * e / (1 + e)]),
    ]:
        y, g = quiet_value_and_gradient(xp, function, x)
        assert_allclose(y, value, rtol=1e-14)
        assert_allclose(g, derivative, rtol=1e-14, atol=1e-15)


def test_the_log_of_a_sum_of_nothing_but_zeros_is_minus_infinity(xp):
    y, g = quiet_value_and_gradient(xp, mb.logsumexp, np.array([[-np.inf, -np.inf], [0.0, -np.inf]]))
    assert_array_equal(y, [-np.inf, 0])
    assert_array_equal(g, [[0, 0], [1, 0]])


# --- ties and kinks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function, x, expected",
    [
        (mb.max, [2.0, 5.0, 5.0], [0, 0.5, 0.5]),
        (lambda x: mb.sum(mb.max(x, axis=1)), [[1.0, 1.0], [2.0, 1.0]], [[0.5, 0.5], [1, 0]]),
        (lambda x: mb.max(x, axis=(0, 1)), [[7.0, 7.0], [7.0, 7.0]], [[0.25, 0.25], [0.25, 0.25]]),
        (lambda x: mb.sum(mb.relu(x)), [0.0, -1.0, 2.0], [0, 0, 1]),
        (lambda x: mb.sum(mb.abs(x)), [0.0, -0.0, -1.0, 2.0], [0, 0, -1, 1]),
        (lambda x: mb.sum(mb.maximum(x, 3)), [3.0, 2.0, 4.0], [0.5, 0, 1]),
        (lambda x: mb.sum(mb.maximum(3, x)), [3.0, 2.0, 4.0], [0.5, 0, 1]),
        (lambda x: mb.sum(mb.minimum(x, np.array([3.0]))), [3.0, 2.0, 4.0], [0.5, 1, 0]),
        (lambda x: mb.sum(mb.minimum(mb.maximum(x, -1), 1)), [0.5, 1.0, 2.0, -1.0], [1, 0.5, 0, 0.5]),
        (lambda x: mb.sum(mb.sqrt(x)), [0.0, 4.0], [0, 0.25]),
        (lambda x: mb.sqrt(mb.sum(x * x)), [0.0, 0.0], [0, 0]),
        (lambda x: mb.sqrt(mb.sum(x * x)), [3.0, 4.0], [0.6, 0.8]),
    ],
    ids=["max", "rows", "all", "relu", "abs", "maximum", "left", "minimum", "clip", "sqrt", "norm 0", "norm"],
)
def test_a_tie_is_shared_and_a_kink_has_no_slope(function, x, expected):
    assert_allclose(gradient(function, x), expected, rtol=1e-15)


def test_the_gradient_through_a_tie_has_total_mass_one(xp):
    a, b = xp.asarray([1.0, 1.0, 2.0, -3.0]), xp.asarray([1.0, 1.0, 1.0, 4.0])
    for function in (mb.maximum, mb.minimum):
        da, db = gradient(function, a, b, seed=xp.ones(4))
        assert_array_equal(mb.to_numpy(da + db), 1)
    for axis in (None, 0, 1):
        x = xp.asarray([[2.0, 2.0, 1.0], [2.0, 0.0, 1.0]])
        g = mb.to_numpy(gradient(lambda x: mb.sum(mb.max(x, axis=axis)), x))  # noqa: B023
        assert_allclose(np.sum(g, axis=axis), 1)


def test_nan_that_where_hides_gets_and_gives_exactly_zero(xp):
    x, y = xp.asarray([1.0, np.nan]), xp.asarray([np.nan, 3.0])
    dx, dy = gradient(lambda x, y: mb.sum(mb.where(xp.asarray([True, False]), x, y) ** 2), x, y)
    assert_array_equal(mb.to_numpy(dx), [2, 0])
    assert_array_equal(mb.to_numpy(dy), [0, 6])
    seed = xp.asarray([np.nan, np.inf])
    dx, dy = gradient(lambda x, y: mb.where(xp.asarray([True, False]), x, y), x, y, seed=seed)
    assert_array_equal(mb.to_numpy(dx), [np.nan, 0])
    assert_array_equal(mb.to_numpy(dy), [0, np.inf])


# --- the check of gradients --------------------------------------------------------------------------------------


def with_fault(case, which, factor):
    """The operation of `case` with the derivative for input `which` off by a factor."""
    raw = RAW[case.name]

    @functools.wraps(raw)
    def faulty(xp, *inputs, **options):
        y, rule = raw(xp, *inputs, **options)

        def bent(g):
            parts = [part() if callable(part) else part for part in rule(g)]
            parts[which] = parts[which] * factor
            return parts

        return y, bent

    return dispatch.op(faulty)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_derivative_that_is_one_percent_off_is_found(case, monkeypatch):
    monkeypatch.setattr(dispatch, "OPERATIONS", dict(dispatch.OPERATIONS))
    sample = case.samples[0]
    for which in range(len(sample.inputs)):
        for factor in (1, 1.01):
            operation = with_fault(case, which, factor)
            for method in ("complex step", "central difference") if case.smooth else ("central difference",):

                def loss(*inputs, operation=operation):
                    return weighted(np, operation(*inputs, **sample.options))

                if factor == 1:
                    mb.check_gradient(loss, list(sample.inputs), method=method)
                else:
                    with pytest.raises(mb.GradientError, match=rf"^{method}: largest relative error 0\.0"):
                        mb.check_gradient(loss, list(sample.inputs), method=method)


@pytest.mark.parametrize("method", ["complex step", "central difference", "auto"])
@pytest.mark.parametrize("how", ["well", "wrong derivative", "exception", "exception on the tape"])
def test_a_check_leaves_the_parameters_as_they_were(method, how, monkeypatch):
    monkeypatch.setattr(dispatch, "OPERATIONS", dict(dispatch.OPERATIONS))
    wrong = with_fault(TABLE["tanh"], 0, 1.01)
    parameters = [mb.parameter([0.1, 0.2], "W"), mb.parameter(some(2), "b"), mb.parameter(some(1), "c")]
    before = [(p.value, p.value.tobytes(), p.dtype) for p in parameters]
    calls = []

    def loss():
        calls.append(1)
        if how.startswith("exception") and len(calls) > ("tape" not in how):
            raise ZeroDivisionError
        y = functools.reduce(mb.add, parameters)
        return mb.sum(wrong(y) if how == "wrong derivative" else mb.tanh(y))

    if how == "well":
        mb.check_gradient(loss, parameters, method=method)
    else:
        with pytest.raises(mb.GradientError if how == "wrong derivative" else ZeroDivisionError):
            mb.check_gradient(loss, parameters, method=method)
    for p, (value, bits, dtype) in zip(parameters, before, strict=True):
        assert p.value is value and p.value.tobytes() == bits and p.dtype == dtype
        assert not p.value.flags.writeable


def test_a_check_takes_the_complex_step_where_it_can():
    x = some(3)
    assert mb.check_gradient(lambda x: mb.sum(mb.tanh(x)), x).method == "complex step"
    assert mb.check_gradient(lambda x: mb.sum(mb.relu(x)), x).method == "central difference"
    with pytest.raises(TypeError, match="complex"):
        mb.check_gradient(lambda x: mb.sum(mb.relu(x)), x, method="complex step")


def test_a_check_says_where_and_how_much(monkeypatch):
    monkeypatch.setattr(dispatch, "OPERATIONS", dict(dispatch.OPERATIONS))
    wrong = with_fault(TABLE["multiply"], 1, 1.5)
    W, b = mb.parameter([1.0, 2.0], "W"), mb.parameter([3.0, 4.0], "b")
    with pytest.raises(mb.GradientError, match=r"relative error 0\.33 at b\[1\] \(tape 3, numerical 2\)"):
        mb.check_gradient(lambda: mb.sum(wrong(W, b)), [W, b])


def test_a_gradient_of_nan_does_not_pass_a_check():
    with np.errstate(invalid="ignore"), pytest.raises(mb.GradientError, match="nan"):
        mb.check_gradient(lambda x: mb.sum(x**0.5), np.array([-1.0]), method="central difference")


def test_a_check_works_where_the_parameters_are(xp):
    W = mb.parameter(xp.asarray(some(3, 2)), "W", np.float32)
    value = W.value
    for method in ("complex step", "central difference"):
        mb.check_gradient(lambda: mb.sum(mb.tanh(W) ** 2), W, method=method)
    assert W.value is value


# --- what the caller does with its own arrays, and other ends --------------------------------------------------------


def test_buffers_that_the_caller_uses_again_do_not_change_a_gradient():
    W, ids, flags, index = mb.parameter(some(4, 2)), np.array([0, 1, 1]), np.array([True, False]), np.array([3, 3])
    data = np.array([5.0, 7.0])
    with mb.Tape() as tape:
        x = tape.watch(data)
        loss = mb.sum(mb.embedding(W, ids)) + mb.sum(mb.where(flags, W, 0)) + mb.sum(W[index] * 10) + mb.sum(x * x)
        loss = loss + mb.sum(mb.pick(W[:3], ids % 2))
    before = tape.gradient(loss, [W, x])
    ids[:], flags[:], index[:], data[:] = 3, True, 0, 0
    for one, two in zip(before, tape.gradient(loss, [W, x])):
        assert_array_equal(one, two)
    assert_array_equal(before[1], [10, 14])


def test_comparisons_are_element_wise_and_a_tensor_can_be_a_key():
    x, same = mb.Tensor(np.array([0.0, 1.0, 2.0])), mb.Tensor(np.array([0.0, 5.0, 2.0]))
    for found, expected in [
        (x == 0, [1, 0, 0]), (x == same, [1, 0, 1]), (np.zeros(3) == x, [1, 0, 0]), (x != 0, [0, 1, 1]),
        (x > 1, [0, 0, 1]), (x < 1, [1, 0, 0]), (x <= same, [1, 1, 1]), (x >= 1, [0, 1, 1]), (x < same, [0, 1, 0]),
    ]:  # fmt: skip
        assert type(found) is np.ndarray and found.astype(int).tolist() == expected
    assert {x: 1}[x] == 1
    assert_array_equal(mb.where(x == 0, 9.0, x).value, [9, 1, 2])


def test_a_row_of_minus_infinity_has_softmax_0_and_no_gradient(xp):
    x = np.array([[-np.inf, -np.inf], [0.0, 0.0]])
    y, g = quiet_value_and_gradient(xp, mb.softmax, x)
    assert_array_equal(y, [[0, 0], [0.5, 0.5]])
    assert_array_equal(g[0], 0)
    y, _ = quiet_value_and_gradient(xp, mb.log_softmax, x)
    assert_allclose(y, [[-np.inf, -np.inf], [-np.log(2)] * 2])
    y, g = quiet_value_and_gradient(xp, mb.logsumexp, x)
    assert_allclose(y, [-np.inf, np.log(2)])
    assert_array_equal(g, [[0, 0], [0.5, 0.5]])


def test_the_largest_of_nan_is_nan_and_its_gradient_warns_of_nothing(xp):
    y, g = quiet_value_and_gradient(xp, mb.max, np.array([1.0, np.nan]))
    assert np.isnan(y)
    assert_array_equal(g, 0)


def test_pick_checks_its_ids():
    x = np.eye(3)
    assert_array_equal(mb.pick(x, [2, 1, 0]).value, [0, 1, 0])
    for ids, error, words in [
        ([0, 1, 3], ValueError, "id 3 at"),
        ([0.0] * 3, TypeError, "integers"),
        ([0], ValueError, "shape"),
    ]:
        with pytest.raises(error, match=words):
            mb.pick(x, ids)


def test_a_condition_must_be_booleans_or_numbers():
    for wrong in (None, "yes", 1j):
        with pytest.raises(TypeError, match="the condition must be booleans"):
            mb.where(wrong, mb.zeros((2,)), 1.0)
    assert_array_equal(mb.where([1, 0], mb.ones((2,)), 5.0).value, [1, 5])


def test_a_tensor_can_be_filled_with_a_complex_number():
    assert mb.full((2,), 1j).value.tolist() == [1j, 1j] and str(mb.full()) == "full"
    with pytest.raises(TypeError, match="needs both"):
        mb.full((2,))
