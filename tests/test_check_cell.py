"""check_cell and check_step: every planted fault is found, placed and named, and nobody who is right is accused."""

import itertools

import numpy as np
import pytest
from students import GATES, pair, step_pair

import minibptt as mb
from minibptt.students import by_hand
from minibptt.students.contract import Contract
from minibptt.students.expected import CELLS, draw, on_the_tape
from minibptt.students.mistakes import backward_mistakes, forward_mistakes

LIKES = list(GATES)

# What is planted in tests/students.py, and words of the name that it must get.
BETWEEN_STEPS = {
    "dh lost": "the carry is lost: dh",
    "last dout": "only dout of the last step",
    "only the last step": "only the last step is gone through",
    "db mean": "averaged over the batch, not summed",
    "overwritten": "dW_h is overwritten at each step",
    "all overwritten": "are overwritten at each step, not added up: only the part of step 1",
    "forward loop": "the loop goes from the first step to the last",
    "dh added up": "dh_next is added up over the steps",
    "db of all": "db is one sum over everything",
    "dx reversed": "the order of the backward loop",
    "dh_1 for dh0": "the way back through step 1 is missing",
    "weights negative": "the sign of dW_x, dW_h",
}
IN_A_STEP = {
    "rnn": {
        "no derivative": "derivative 1−h_t² is missing",
        "tanh twice": "tanh is applied twice",
        "at z": "taken at the pre-activation: 1−a_t²",
        "sign": "the sign of tanh's derivative is flipped",
        "h_t in dW_h": "h_t stands where h_{t−1} belongs, in dW_h",
        "W_h not transposed": "W_h is not transposed, in dh_prev",
        "tanh missing": "tanh is missing in h_t",
    },
    "lstm": {
        "no derivative": "the forget gate's derivative f·(1−f) is missing",
        "sigma of f": "the forget gate's derivative f·(1−f) is missing: σ(f)",
        "at z": "the forget gate's derivative is taken at the pre-activation",
        "c_t": "c_t stands where c_{t−1} belongs",
        "tanh twice": "1−tanh²(tanh(c_t))",
        "at c": "the cell's derivative is taken at the pre-activation: 1−c_t²",
        "dc lost": "the carry is lost: dc",
        "dc in do": "dc stands where dh belongs, in the output gate's gradient",
        "dc without f": "the forget gate is missing on the way back",
        "no derivative of g": "the candidate's derivative 1−g² is missing",
        "no derivative of o": "the output gate's derivative o·(1−o) is missing",
        "sign": "the sign of the output gate's gradient is flipped",
        "back order ifog": "in the order i, f, o, g (the order of CS231n), where i, f, g, o belongs",
        "h_t in dW_h": "h_t stands where h_{t−1} belongs, in dW_h",
        "W_h not transposed": "W_h is reshaped, not transposed, in dh_prev",
        "order ifog": "in the order i, f, o, g (the order of CS231n), where i, f, g, o belongs",
        "tanh missing": "tanh is missing in h_t",
    },
    "gru": {
        "no derivative": "the update gate's derivative z·(1−z) is missing",
        "tanh twice": "tanh is applied twice in the candidate's derivative",
        "h_t in da_z": "h_t stands where h_{t−1} belongs, in the update gate's gradient",
        "sign": "the sign of the update gate's gradient is flipped",
        "direct path lost": "the direct path is lost: dh · z",
        "r missing": "r is missing on the way to W_hn",
        "h_t in dW_h": "h_t stands where h_{t−1} belongs, in dW_h",
        "order zrn": "in the order z, r, n (the order of Keras and ONNX), where r, z, n belongs",
        "reset before": "like='gru-before'",
        "z swapped": "z and 1 − z are swapped",
    },
}
IN_A_STEP["gru-before"] = {name: words for name, words in IN_A_STEP["gru"].items() if name != "reset before"} | {
    "r missing": "h_{t−1} stands where r · h_{t−1} belongs, in dW_hn"
}
PLANTED = [(like, bug, words) for like in LIKES for bug, words in (BETWEEN_STEPS | IN_A_STEP[like]).items()]
PLANTED += [("lstm", "no carry", "neither dh nor dc"), ("rnn", "no carry", "the carry is lost: dh")]


@pytest.mark.parametrize("like, bug, words", PLANTED)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_planted_fault_in_a_sequence_is_named(like, bug, words, dtype):
    for c0 in (False, True) if like == "lstm" else (False,):
        with pytest.raises(mb.GradientError) as caught:
            mb.check_cell(*pair(like, bug, c0=c0), like=like, dtype=dtype)
        check = caught.value.check
        assert not check.ok and words in check.mistake and " or " not in check.mistake
        assert f"looks like {check.mistake}" in str(caught.value)


@pytest.mark.parametrize("like, bug", [(like, bug) for like in LIKES for bug in IN_A_STEP[like]])
def test_a_planted_fault_in_one_step_is_named(like, bug):
    check = mb.check_step(*step_pair(like, bug), like=like, raises=False)
    assert not check.ok and IN_A_STEP[like][bug] in check.mistake and check.where.step is None
    assert "step" not in check.message.splitlines()[0].split(";")[0]


def test_the_cases_that_people_ran_into_are_named_on_the_sizes_on_which_they_did():
    # A tanh RNN with T=4, B=3, D=H=2, and an LSTM with one row, T=3, D=H=2 and a c0.
    sizes = {"D": 2, "H": 2, "raises": False}
    for bug in ("no carry", "h_t in dW_h", "db mean", "only the last step", "tanh twice"):
        assert mb.check_cell(*pair("rnn", bug), like="rnn", T=4, B=3, **sizes).mistake, bug
    for bug in ("sigma of f", "tanh twice", "dc lost", "c_t"):
        check = mb.check_cell(*pair("lstm", bug, c0=True), like="lstm", T=3, B=1, **sizes)
        assert check.mistake and IN_A_STEP["lstm"][bug] in check.mistake


# --- where ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("only", [1, 2, 4, 7])
@pytest.mark.parametrize(
    "like, bug, parameter, gate",
    [
        ("lstm", "no derivative of o", "dW_x", "output gate"),
        ("lstm", "no derivative of g", "dW_x", "candidate g"),
        ("gru", "no derivative", "dW_x", "update gate"),
        ("gru-before", "no derivative", "dW_x", "update gate"),
        ("rnn", "tanh twice", "dx", None),
        ("lstm", "h_t in dW_h", "dW_h", None),
        ("rnn", "h_t in dW_h", "dW_h", None),
    ],
)
def test_a_fault_in_one_step_is_placed_there(like, bug, parameter, gate, only):
    check = mb.check_cell(*pair(like, bug, only=only), like=like, T=7, raises=False)
    assert (check.where.parameter, check.where.gate, check.where.step) == (parameter, gate, only)
    assert check.where.loss_step == only and check.mistake is None
    assert check.message.startswith(f"{parameter} first differs at step {only}" + (f", {gate}: " if gate else ": "))
    assert "no single known mistake" in check.message


def test_the_forget_gate_is_placed_where_the_state_first_reaches_it():
    for c0, step in ((False, 2), (True, 1)):  # c starts at 0, so at step 1 the forget gate has no gradient
        where = mb.check_cell(*pair("lstm", "no derivative", c0=c0), like="lstm", raises=False).where
        assert (where.gate, where.step) == ("forget gate", step)


@pytest.mark.parametrize("like", LIKES)
def test_a_carry_lost_after_one_step_is_placed_before_it(like):
    # dh arriving at step 3 is not added there: the loss of step 4 is the first that shows it.
    check = mb.check_cell(*pair(like, "dh lost", only=3), like=like, T=6, raises=False)
    assert (check.where.step, check.where.loss_step) == (3, 4)


@pytest.mark.parametrize("like, bug", [("lstm", "no derivative"), ("gru", "r missing"), ("rnn", "dh_1 for dh0")])
def test_the_numbers_can_be_seen_again_by_running_the_case_by_hand(like, bug):
    forward, backward = pair(like, bug)
    check = mb.check_cell(forward, backward, like=like, raises=False)
    inputs = dict(check.inputs)
    dout = inputs.pop("dout")
    assert [t + 1 for t in range(5) if dout[t].any()] == [check.where.loss_step]
    names = ["d" + name for name in inputs]
    again = dict(zip(names, backward(dout, forward(*inputs.values())[1])))
    assert again[check.where.parameter][check.where.index] == check.where.yours
    assert check.yours[check.where.parameter][check.where.index] == check.where.yours
    # Another oracle for what was expected: a central difference of Σ out · dout.
    which = {"dh0": "h0"}.get(check.where.parameter, check.where.parameter[1:])
    values = []
    for h in (1e-5, -1e-5):
        moved = {name: array.copy() for name, array in inputs.items()}
        moved[which][check.where.index] += h
        values.append((forward(*moved.values())[0] * dout).sum())
    assert np.isclose((values[0] - values[1]) / 2e-5, check.where.expected, rtol=1e-6)


def test_a_wrong_forward_pass_is_found_before_the_backward_pass_and_at_its_step():
    check = mb.check_cell(*pair("rnn", "tanh missing", only=3), like="rnn", raises=False)
    assert (check.where.parameter, check.where.step, check.where.loss_step) == ("out", 3, None)
    check = mb.check_cell(*pair("lstm", "tanh missing"), like="lstm", raises=False)
    assert (check.where.parameter, check.where.step) == ("out", 1) and "tanh is missing" in check.mistake


def test_a_pass_that_knows_its_sizes_is_placed_too():
    forward, backward = pair("lstm", "no derivative of o")

    def strict(x, h0, W_x, W_h, b):
        assert W_x.shape == (4, 12)
        return forward(x, h0, W_x, W_h, b)

    where = mb.check_cell(strict, backward, like="lstm", raises=False).where
    assert (where.parameter, where.step, where.gate) == ("dx", 1, None)


def test_of_two_faults_the_first_place_is_named_and_no_mistake():
    forward, backward = pair("lstm", "no derivative of o")

    def two(dout, cache):
        *first, db = backward(dout, cache)
        return (*first, db / 3)

    check = mb.check_cell(forward, two, like="lstm", raises=False)
    assert check.mistake is None and "no single known mistake gives these numbers" in check.message
    assert (check.where.gate, check.where.step) == ("output gate", 1)


# --- nobody who is right is accused --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(200))
def test_a_right_pass_is_never_accused(seed):
    rng = np.random.default_rng(seed)
    like, style = LIKES[seed % 4], ("loop", "list", "vectorised")[seed % 3]
    T, B, D, H = (int(n) for n in rng.integers(1, 7, 4))
    dtype, c0 = rng.choice([np.float32, np.float64]), like == "lstm" and bool(rng.integers(2))
    options = {"like": like, "B": B, "D": D, "H": H, "dtype": dtype, "rng": seed}
    check = mb.check_cell(*pair(like, style=style, c0=c0), T=T, **options)
    assert check.ok and check.where is None and check.mistake is None and check.notes == ()
    assert mb.check_step(*step_pair(like), **options).ok


@pytest.mark.parametrize("like", LIKES)
@pytest.mark.parametrize("scale", [10, 30, 200])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_saturated_gates_accuse_nobody(like, scale, dtype):
    for seed in range(5):
        options = {"like": like, "scale": scale, "dtype": dtype, "rng": seed}
        assert mb.check_cell(*pair(like), **options).ok
        assert mb.check_step(*step_pair(like), **options).ok


@pytest.mark.parametrize("like, T, H", [("rnn", 50, 20), ("lstm", 100, 8), ("gru", 60, 6)])
def test_rounding_that_grows_over_many_steps_accuses_nobody(like, T, H):
    for dtype in (np.float32, np.float64):
        assert mb.check_cell(*pair(like), like=like, T=T, H=H, scale=3, dtype=dtype).ok
    assert not mb.check_cell(*pair(like, "sign"), like=like, T=T, H=H, scale=3, dtype=np.float32, raises=False).ok


def test_where_rounding_hides_every_difference_the_check_says_so_and_does_not_pass():
    with pytest.raises(ValueError, match=r"rounding to float32 alone moves it .* Take fewer steps") as caught:
        mb.check_cell(*pair("gru-before"), like="gru-before", T=100, H=8, scale=10, dtype=np.float32)
    assert not isinstance(caught.value, mb.GradientError)


def test_results_in_float32_are_judged_as_such():
    forward, backward = pair("lstm")
    rounded = lambda dout, cache: tuple(g.astype(np.float32) for g in backward(dout, cache))  # noqa: E731
    check = mb.check_cell(forward, rounded, like="lstm")
    assert "float32" in check.message
    wrong = lambda dout, cache: tuple(g.astype(np.float32) * 1.001 for g in backward(dout, cache))  # noqa: E731
    assert not mb.check_cell(forward, wrong, like="lstm", raises=False).ok


@pytest.mark.parametrize(
    "like, bug, sizes",
    [
        ("rnn", "dh lost", {"T": 1}),
        ("lstm", "no carry", {"T": 1}),
        ("gru", "all overwritten", {"T": 1}),
        ("gru", "dx reversed", {"T": 1}),
        ("rnn", "last dout", {"T": 1}),
        ("lstm", "db mean", {"B": 1}),
        ("rnn", "W_h not transposed", {"H": 1}),
        ("lstm", "no derivative", {"T": 1}),  # c0 = 0
    ],
)
def test_a_fault_that_makes_no_difference_is_none(like, bug, sizes):
    assert mb.check_cell(*pair(like, bug), like=like, **sizes).ok
    assert not mb.check_cell(*pair(like, bug), like=like, raises=False).ok


@pytest.mark.parametrize("like", LIKES)
def test_small_sizes_accuse_of_nothing_else(like):
    # Where two mistakes give the same numbers both are named; the planted one is always among them.
    for bug, words in (BETWEEN_STEPS | IN_A_STEP[like]).items():
        for sizes in [(2, 2, 2, 2), (1, 2, 2, 2), (2, 1, 2, 2), (2, 2, 1, 2), (2, 2, 2, 1), (1, 1, 1, 1)]:
            options = dict(zip("TBDH", sizes))
            check = mb.check_cell(*pair(like, bug), like=like, raises=False, **options)
            if not check.ok and check.mistake is None:
                raise AssertionError(f"{bug} with {options}: {check}")
            if min(sizes) == 2:
                assert check.ok or words in check.mistake, (bug, options, check.mistake)


# --- the reference and the table of mistakes -----------------------------------------------------------------------


def some_case(like, T=5, H=3, D=4):
    contract = Contract.of(pair(like, c0=True)[0], like, False)
    return draw(contract, T, 3, D, H, 1.0, np.dtype(np.float64), np.random.default_rng(1))


@pytest.mark.parametrize("like", LIKES)
def test_the_equations_by_hand_agree_with_the_tape(like):
    for T, H, D in [(1, 1, 1), (5, 3, 4), (7, 4, 2)]:
        case = some_case(like, T, H, D)
        out, kept = by_hand.forward(case, {})
        found, right = out | by_hand.backward(case, kept, {}), on_the_tape(case)
        assert found.keys() == right.keys()
        for name in right:
            np.testing.assert_allclose(found[name], right[name], rtol=1e-12, atol=1e-13, err_msg=name)


def differ(a, b):
    return any(a[name].shape != b[name].shape or not np.allclose(a[name], b[name], rtol=1e-7, atol=1e-9) for name in a)


@pytest.mark.parametrize("like", LIKES)
def test_no_two_mistakes_give_the_same_numbers_and_none_the_right_ones(like):
    case = some_case(like, D=3)  # D = H, so that nothing is impossible
    out, kept = by_hand.forward(case, {})
    groups = [
        [("right", out)] + [(m.says, by_hand.forward(case, m.fault)[0]) for m in forward_mistakes(like)],
        [("right", by_hand.backward(case, kept, {}))]
        + [
            (m.says, by_hand.backward(case, kept, m.fault)) for m in backward_mistakes(like, 5, 3) if "±5" not in m.says
        ],
    ]
    for group in groups:
        for (name, a), (other, b) in itertools.combinations(group, 2):
            assert name == other or differ(a, b), f"{name} and {other} cannot be told apart"


def test_every_like_has_a_cell():
    assert list(CELLS) == LIKES == list(by_hand.GATES)


# --- the contract ---------------------------------------------------------------------------------------------------

right_forward, right_backward = pair("lstm")


def forward_with(change):
    return lambda x, h0, W_x, W_h, b: change(*right_forward(x, h0, W_x, W_h, b))


def backward_with(change):
    return lambda dout, cache: change(right_backward(dout, cache))


def spoils(name):
    def forward(x, h0, W_x, W_h, b):
        result = right_forward(x, h0, W_x, W_h, b)
        {"x": x, "h0": h0, "W_h": W_h}[name][:] *= 1.5
        return result

    return forward


def adds_in_place(dout, cache):
    result = right_backward(dout, cache)
    dout[0] += 1
    return result


def changes_the_weights(dout, cache):
    result = right_backward(dout, cache)
    cache[1][...] -= 0.1 * result[2]
    return result


def at(i, value):
    return backward_with(lambda grads: (*grads[:i], value(grads[i]), *grads[i + 1 :]))


def nan_at(array):
    array = array.copy()
    array[2, 1] = np.nan
    return array


def integers(array):
    return array.astype(int)


def index_error(dout, cache):
    return cache[0][99]


@pytest.mark.parametrize(
    "forward, backward, words",
    [
        (forward_with(lambda out, cache: out), right_backward, "forward must return 2 results, out, cache = forward"),
        (forward_with(lambda out, cache: (out, out, cache)), right_backward, "found 3"),
        (forward_with(lambda out, cache: None), right_backward, "found None"),
        (forward_with(lambda out, cache: (None, cache)), right_backward, "out is None"),
        (forward_with(lambda out, cache: (out[-1], cache)), right_backward, r"(T, B, H) = (5, 3, 3); found (3, 3)"),
        (
            forward_with(lambda out, cache: (out[[0, 0, 1, 2, 3, 4]], cache)),
            right_backward,
            "the initial state is none of the outputs",
        ),
        (forward_with(lambda out, cache: (out * np.nan, cache)), right_backward, "out[0, 0, 0] is nan, step 1"),
        (forward_with(lambda out, cache: (out > 0, cache)), right_backward, "out has dtype bool"),
        (forward_with(lambda out, cache: (out + 0j, cache)), right_backward, "complex"),
        (
            forward_with(lambda out, cache: ("text", cache)),
            right_backward,
            "out is a str that makes no array of numbers",
        ),
        (lambda x, h0, W_x, W_h: None, right_backward, "forward is called as out, cache = forward(x, h0, W_x, W_h, b)"),
        (spoils("x"), right_backward, "forward changes x in place"),
        (spoils("h0"), right_backward, "forward changes h0 in place"),
        (spoils("W_h"), right_backward, "forward changes W_h in place"),
        (right_forward, lambda dout: None, "backward is called as dx, dh0, dW_x, dW_h, db = backward(dout, cache)"),
        (right_forward, backward_with(lambda grads: grads[:4]), "5 results, dx, dh0, dW_x, dW_h, db = backward"),
        (right_forward, backward_with(lambda grads: grads[0]), "found an array of shape (5, 3, 4)"),
        (right_forward, backward_with(lambda grads: dict(enumerate(grads))), "found dict"),
        (right_forward, at(1, lambda dh0: None), "dh0 is None"),
        (right_forward, at(0, lambda dx: dx.swapaxes(0, 1)), "found (3, 5, 4): time comes first here"),
        (
            right_forward,
            at(2, lambda dW: dW.T),
            "dW_x must have shape (D, 4H) = (4, 12); found (12, 4): it is transposed",
        ),
        (right_forward, at(4, lambda db: db[None]), "found (1, 12): one axis, so no keepdims"),
        (right_forward, at(4, lambda db: np.ones((3, 12))), "found (3, 12): sum over all other axes"),
        (right_forward, at(1, lambda dh0: np.ones((6, 3, 3))), "only one of them belongs there"),
        (right_forward, at(3, nan_at), "dW_h[2, 1] is nan; backward must give finite numbers"),
        (right_forward, at(3, lambda dW: dW * np.inf), "inf; backward must give finite numbers"),
        (right_forward, at(3, integers), "dW_h has dtype int64"),
        (right_forward, at(0, lambda dx: [dx[0], dx[1][0]]), "dx is a list that makes no array"),
        (right_forward, adds_in_place, "backward changes dout in place"),
        (right_forward, changes_the_weights, "backward changes W_x in place"),
        (right_forward, index_error, "backward raised IndexError (list index out of range) in line"),
    ],
)
def test_a_broken_contract_is_said_in_the_students_terms(forward, backward, words):
    check = mb.check_cell(forward, backward, like="lstm", raises=False)
    assert not check.ok and words in check.message and check.where is None and check.mistake is None
    with pytest.raises(mb.GradientError) as caught:
        mb.check_cell(forward, backward, like="lstm")
    assert caught.value.check.message == check.message


def test_the_line_that_raised_is_quoted_and_the_exception_is_kept():
    with pytest.raises(mb.GradientError, match=r"return cache\[0\]\[99\]") as caught:
        mb.check_cell(right_forward, index_error, like="lstm")
    assert isinstance(caught.value.__cause__, IndexError)


def test_a_cache_that_is_used_up_is_noted_and_no_fault():
    def pops(dout, cache):
        caches, *rest = cache
        kept = [caches.pop() for _ in range(len(caches))][::-1]
        return right_backward(dout, (kept, *rest))

    check = mb.check_cell(right_forward, pops, like="lstm")
    assert check.ok and "cannot be called twice" in check.notes[0] and "note: backward changes the cache" in str(check)


def test_one_buffer_appended_at_every_step_is_named():
    def forward(x, h0, W_x, W_h, b):
        h, out = h0.copy(), []
        for x_t in x:
            h[...] = np.tanh(x_t @ W_x + h @ W_h + b)
            out.append(h)
        return out, None

    check = mb.check_cell(forward, pair("rnn")[1], like="rnn", raises=False)
    assert check.where.step == 1 and "one array was stored T times" in check.mistake


def test_a_naive_sigmoid_that_overflows_is_found_where_it_does_and_warns_of_nothing():
    def forward(x, h0, W_x, W_h, b):
        z = np.exp(x @ W_x)
        return (z / (1 + z))[..., :3], None

    check = mb.check_cell(forward, right_backward, like="lstm", scale=3000, raises=False)
    assert "is nan, step 1; forward must give finite numbers" in check.message


# --- the functions themselves --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change, error, words",
    [
        ({"like": "elman"}, ValueError, "'rnn', 'lstm', 'gru', 'gru-before', found 'elman'"),
        ({"T": 0}, ValueError, "check_cell: T must be at least 1"),
        ({"H": 2.0}, TypeError, "H must be a whole number"),
        ({"dtype": int}, TypeError, "float type"),
        ({"scale": float("nan")}, ValueError, r"check_cell: scale must be positive and below 1.3.*e\+154, found nan"),
        ({"scale": float("inf")}, ValueError, "positive and below .* found inf"),
        ({"scale": 0}, ValueError, "positive and below .* found 0"),
        ({"scale": 1e20, "dtype": np.float32}, ValueError, r"below 1.8.*e\+19, found 1e\+20"),
        ({"scale": "a"}, TypeError, "check_cell: scale must be a number, found 'a'"),
        ({"scale": True}, TypeError, "scale must be a number"),
        ({"forward": None}, TypeError, "forward is a NoneType"),
        ({"rng": "seed"}, TypeError, "rng"),
    ],
)
def test_a_wrong_call_is_refused(change, error, words):
    arguments = {"forward": right_forward, "backward": right_backward, "like": "lstm"} | change
    with pytest.raises(error, match=words):
        mb.check_cell(**arguments)


def test_a_check_that_holds_says_what_was_compared_and_how_well():
    check = mb.check_cell(right_forward, right_backward, like="lstm")
    assert str(check) == repr(check) == check.message
    assert check.message.startswith(
        "forward and backward agree with the tape: lstm, T = 5 steps, B = 3, D = 4, H = 3, float64"
    )
    assert set(check.expected) == {"out", "dx", "dh0", "dW_x", "dW_h", "db"}
    assert list(check.inputs) == ["x", "h0", "W_x", "W_h", "b", "dout"]
    assert "one step" in mb.check_step(*step_pair("gru"), like="gru").message


def test_a_check_runs_on_the_host_whatever_the_backend_and_inside_a_tape(xp):
    with mb.Tape() as tape:
        assert mb.check_cell(right_forward, right_backward, like="lstm").ok
        assert not mb.check_cell(*pair("gru", "sign"), like="gru", raises=False).ok
    assert not tape.records


def test_one_seed_gives_one_message():
    messages = {mb.check_cell(*pair("gru", "sign"), like="gru", rng=3, raises=False).message for _ in range(3)}
    assert len(messages) == 1
    assert mb.check_cell(*pair("gru", "sign"), like="gru", rng=4, raises=False).message not in messages


def test_adjoints_of_the_two_states_in_the_wrong_order_are_named():
    forward, backward = step_pair("lstm")

    def swapped(*given):
        dx, dh_prev, dc_prev, *weights = backward(*given)
        return dx, dc_prev, dh_prev, *weights

    assert (
        "the adjoints of h and of c are swapped" in mb.check_step(forward, swapped, like="lstm", raises=False).mistake
    )
