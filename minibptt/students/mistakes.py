"""The mistakes that people make in a forward or backward pass through time, each as a fault of by_hand.py.

A mistake is recognised by doing it: where a pass gives the numbers of a fault, to rounding, it has that fault.
Read after by_hand.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, combinations, permutations
from typing import NamedTuple

from .by_hand import GATES, Fault

NAMES = {
    "lstm": {"i": "input gate", "f": "forget gate", "g": "candidate g", "o": "output gate"},
    "gru": {"r": "reset gate", "z": "update gate", "n": "candidate n"},
}
NAMES["gru-before"] = NAMES["gru"]
OTHERS = {"ifog": "CS231n", "igfo": "TensorFlow 1", "iofg": "ONNX", "zrn": "Keras and ONNX"}


class Mistake(NamedTuple):
    """What "looks like …" says, and the fault that does it."""

    says: str
    fault: Fault


def gate_name(like: str, gate: str) -> str:
    return NAMES.get(like, {}).get(gate, gate)


# --- in the forward pass ----------------------------------------------------------------------------------------------


def forward_mistakes(like: str) -> Iterator[Mistake]:
    """The known mistakes of a forward pass."""
    yield Mistake("the bias b is not added", {"b": "missing"})
    yield Mistake("h0 is not used: the first step starts from zero", {"h0": "zero"})
    yield Mistake("the state is not carried: every step starts from h0", {"h_prev": "stuck"})
    yield Mistake("out holds the state before each step, h_{t−1}, not the one after it", {"out": "before"})
    yield Mistake(
        "out holds the last state at every step: one array was stored T times and changed in place", {"out": "last"}
    )
    if like == "rnn":
        for how, says in _ACTIVATIONS.items():
            yield Mistake(says.format("tanh", "h_t"), {"tanh": how})
        yield Mistake("W_h is transposed: h_prev @ W_hᵀ, where h_prev @ W_h belongs", {"W_h": "transposed"})
        return
    for order in _orders(like):
        yield Mistake(_wrong_order(like, order), {"order": order})
    if like == "lstm":
        for how, says in _ACTIVATIONS.items():
            yield Mistake(says.format("tanh", "the candidate g"), {"g": how})
            yield Mistake(says.format("tanh", "h_t = o·tanh(c_t)"), {"tanh c": how})
        yield Mistake("c is not carried: every step starts from c0", {"c_prev": "stuck"})
        yield Mistake("both are lost: every step starts from h0 and c0", {"c_prev": "stuck", "h_prev": "stuck"})
        yield Mistake("c_{t−1} goes into the gates, where h_{t−1} belongs", {"h_prev": "c"})
        yield Mistake("out holds c_t, where h_t belongs", {"out": "c"})
        yield Mistake("1 is added to the forget gate's pre-activation; here it is part of b", {"f + 1": True})
        yield Mistake("the forget gate is 1 − i, where f belongs", {"f": "1 − i"})
        for q, says in {"i": "input gate", "f": "forget gate", "o": "output gate"}.items():
            yield Mistake(f"the {says} is missing", {q: "missing"})
        return
    for how, says in _ACTIVATIONS.items():
        yield Mistake(says.format("tanh", "the candidate n"), {"n": how})
    yield Mistake("z and 1 − z are swapped: h_t = (1 − z)·n + z·h_{t−1} belongs here", {"z swapped": True})
    yield Mistake("the reset gate is missing: r does not enter n", {"reset": "missing"})
    if like == "gru":
        yield Mistake(
            "r multiplies h_{t−1} before the product with W_hn: that is like='gru-before'", {"reset": "before"}
        )
        yield Mistake("b_hn is not added", {"b_hn": "missing"})
        yield Mistake("b_hn stands outside r · (h_{t−1} @ W_hn + b_hn)", {"reset": "not b_hn"})
    else:
        yield Mistake("r multiplies h_{t−1} @ W_hn, after the product: that is like='gru'", {"reset": "after"})


_ACTIVATIONS = {
    "missing": "{0} is missing in {1}",
    "sigmoid": "the sigmoid stands where {0} belongs, in {1}",
    "relu": "relu stands where {0} belongs, in {1}",
    "twice": "{0} is applied twice in {1}",
}


# --- in the backward pass ---------------------------------------------------------------------------------------------


def backward_mistakes(like: str, T: int, B: int) -> Iterator[Mistake]:
    """The known mistakes of a backward pass over T steps and B rows, the likeliest first."""
    if like == "rnn":
        yield from _rnn()
    elif like == "lstm":
        yield from _lstm(T)
    else:
        yield from _gru(like)
    yield from _between_steps() if T > 1 else ()
    yield from _rnn_between_steps() if T > 1 and like == "rnn" else ()
    yield from _paths(like)
    yield from _sums(like, T, B)


def _sigmoid(q: str, gate: str) -> Iterator[Mistake]:
    right = f"{q}·(1−{q})"
    says = {
        "missing": f"the {gate}'s derivative {right} is missing",
        "function": f"the {gate}'s derivative {right} is missing: σ({q}) stands in its place",
        "at z": f"the {gate}'s derivative is taken at the pre-activation: z·(1−z), where {right} belongs",
        "twice": f"the sigmoid is applied twice in the {gate}'s derivative: σ({q})·(1−σ({q})), where {right} belongs",
        "y": f"a factor of the {gate}'s derivative is missing: {q}, where {right} belongs",
        "1 − y": f"a factor of the {gate}'s derivative is missing: 1−{q}, where {right} belongs",
        "the other": f"the {gate} has tanh's derivative: 1−{q}², where {right} belongs",
        "minus": f"the sign of the {gate}'s gradient is flipped",
    }
    yield from (Mistake(text, {f"{q}'": how}) for how, text in says.items())


def _tanh(key: str, what: str, y: str, z: str) -> Iterator[Mistake]:
    """key: of the fault; what: whose derivative; y: the value of tanh; z: what it is taken of."""
    right = f"1−{y}²"
    says = {
        "missing": f"{what} derivative {right} is missing",
        "function": f"{what} derivative {right} is missing: tanh({y}) stands in its place",
        "at z": f"{what} derivative is taken at the pre-activation: 1−{z}², where {right} belongs",
        "twice": f"tanh is applied twice in {what} derivative: 1−tanh²({y}), where {right} belongs",
        "not squared": f"{what} derivative is not squared: 1−{y}, where {right} belongs",
        "plus": f"the sign inside {what} derivative is flipped: 1+{y}², where {right} belongs",
        "the other": f"{what} derivative is the sigmoid's: {y}·(1−{y}), where {right} belongs",
        "minus": f"the sign of {what} derivative is flipped: it is 1−{y}²",
    }
    yield from (Mistake(text, {key: how}) for how, text in says.items())


def _rnn() -> Iterator[Mistake]:
    yield from _tanh("a'", "tanh's", "h_t", "a_t")
    yield Mistake(
        "tanh's derivative is taken at the step before: 1−h_{t−1}², where 1−h_t² belongs", {"1 − h_prev²": True}
    )


def _rnn_between_steps() -> Iterator[Mistake]:
    brackets = "da = (dout[t] + dh_next)·(1−h_t²), with the brackets"
    yield Mistake(f"dout[t] does not go through tanh: {brackets}", {"not through tanh": "own"})
    yield Mistake(f"dh_next does not go through tanh: {brackets}", {"not through tanh": "carried"})
    yield Mistake("dh_next is dh @ W_hᵀ, where da @ W_hᵀ belongs: tanh is left out", {"dh_next": "dh @ W_hᵀ"})
    yield Mistake("dh_next is da, where da @ W_hᵀ belongs", {"dh_next": "da"})
    late = "h counts as x does, but it has h0 in front: for the step with index t, h_t is h[t + 1] and h_{t−1} is h[t]"
    yield Mistake(late, {"h late": True})
    yield Mistake(f"{late}; and the loop stops before step 1", {"h late": True, "steps": "not first"})


def _lstm(T: int) -> Iterator[Mistake]:
    for q in "fio":
        yield from _sigmoid(q, NAMES["lstm"][q])
    yield from _tanh("g'", "the candidate's", "g", "z")
    yield from _tanh("tanh c'", "the cell's", "tanh(c_t)", "c_t")
    yield Mistake("c_t stands where c_{t−1} belongs, in the forget gate's gradient", {"c in df": "c_t"})
    yield Mistake("c0 stands where c_{t−1} belongs, in the forget gate's gradient", {"c in df": "c0"})
    yield Mistake("c_t stands where tanh(c_t) belongs, in the output gate's gradient", {"c in do": True})
    yield Mistake("dc stands where dh belongs, in the output gate's gradient", {"dc in do": True})
    yield Mistake("the adjoints of h and of c are swapped in what is returned", {"h and c": "swapped"})
    yield Mistake("o is missing in dc += dh · o · (1−tanh²(c_t))", {"dc without o": True})
    yield Mistake("dc += dh · o · (1−tanh²(c_t)) is missing: only dc from the step after is used", {"own dc": "lost"})
    yield Mistake("the input gate's gradient has i where g belongs", {"i for g": True})
    yield Mistake("the candidate's gradient has g where i belongs", {"g for i": True})
    yield Mistake("i and g are swapped in the gradients of i and g", {"i for g": True, "g for i": True})
    lost = "the carry is lost: dc from the step after is not added to dh · o · (1−tanh²(c_t))"
    early = "dc_prev = dc · f is taken before dh · o · (1−tanh²(c_t)) is added to dc"
    yield Mistake(lost, {"dc": "lost"})
    yield Mistake(lost if T > 1 else early, {"dc_prev": "own lost"})  # over a sequence nothing is ever carried
    yield Mistake("the carry is lost: neither dh nor dc from the step after is added", {"dc": "lost", "dh": "lost"})
    yield Mistake("the sign of the carry dc is flipped", {"dc": "minus"})
    yield Mistake("the forget gate is missing on the way back: dc_prev = dc · f", {"dc_prev": "without f"})


def _gru(like: str) -> Iterator[Mistake]:
    for q in "rz":
        yield from _sigmoid(q, NAMES[like][q])
    yield from _tanh("n'", "the candidate's", "n", "a_n")
    yield Mistake("z and 1−z are swapped in the backward pass", {"da_n": "z", "dh_prev": "1 − z"})
    yield Mistake("z stands where 1−z belongs, in the candidate's gradient", {"da_n": "z"})
    yield Mistake("1−z stands where z belongs, in dh_prev = dh · z + …", {"dh_prev": "1 − z"})
    yield Mistake("h_t stands where h_{t−1} belongs, in the update gate's gradient", {"h in da_z": "h_t"})
    yield Mistake("h_{t−1} is missing in the update gate's gradient dh · (h_{t−1} − n)", {"h in da_z": "missing"})
    yield Mistake("n is missing in the update gate's gradient dh · (h_{t−1} − n)", {"n in da_z": "missing"})
    yield Mistake("the direct path is lost: dh · z is not added to dh_prev", {"dh·z": "lost"})
    yield Mistake("the path through the gates is lost: dh_prev is dh · z alone", {"dh·W": "lost"})
    if like == "gru":
        yield Mistake("r is missing on the way to W_hn: du = da_n · r", {"du": "without r"})
        yield Mistake("r is missing in db_hn, the sum of da_n · r", {"du in db_hn": "without r"})
        yield Mistake(
            "b_hn is missing in the reset gate's gradient da_n · (h_{t−1} @ W_hn + b_hn)", {"u without b_hn": 1}
        )
        yield Mistake(
            "h_{t−1} stands where h_{t−1} @ W_hn + b_hn belongs, in the reset gate's gradient", {"h for u": 1}
        )
        yield Mistake("this is the backward pass of the other reset, like='gru-before'", {"reset": "before"})
    else:
        yield Mistake("h_{t−1} stands where r · h_{t−1} belongs, in dW_hn", {"h for r·h": True})
        yield Mistake("r is missing in dh_prev += (da_n @ W_hnᵀ) · r", {"dm·r": "without r"})
        yield Mistake("(da_n @ W_hnᵀ) · r is not added to dh_prev", {"dm·r": "lost"})
        yield Mistake(
            "this is the backward pass of the other reset, like='gru'", {"reset": "after", "u without b_hn": 1}
        )


def _between_steps() -> Iterator[Mistake]:
    """What goes wrong between the steps."""
    yield Mistake("the carry is lost: dh from the step after is not added to dout[t]", {"dh": "lost"})
    yield Mistake("the sign of the carry dh is flipped", {"dh": "minus"})
    yield Mistake("only dout of the last step is used", {"dout": "last"})
    yield Mistake("dout is gone through from the first step to the last", {"dout": "reversed"})
    yield Mistake("the loop goes from the first step to the last", {"steps": "forward"})
    yield Mistake("dh_next is added up over the steps, where each step replaces it", {"dh_next": "added up"})
    yield Mistake("only the last step is gone through", {"steps": "last"})
    yield Mistake("only the last step is gone through, and dh0 is zero", {"steps": "last", "dh0": "zero"})
    yield Mistake("the last step is left out", {"steps": "not last"})
    yield Mistake("the first step is left out: the loop stops before step 1", {"steps": "not first"})
    yield Mistake("every step uses what the last one kept: one cache was stored T times", {"kept": "last"})
    yield Mistake("dx is in the order of the backward loop, the last step first", {"dx order": "reversed"})


def _paths(like: str) -> Iterator[Mistake]:
    """What goes wrong where an adjoint goes through the weights, and at the initial state."""
    yield Mistake("dh0 is the gradient of h_1: the way back through step 1 is missing", {"dh0 is": "dh_1"})
    yield Mistake("dh0 is not filled in: it is zero", {"dh0": "zero"})
    yield Mistake("h_t stands where h_{t−1} belongs, in dW_h", {"h in dW_h": "h_t"})
    yield Mistake("h0 stands where h_{t−1} belongs, in dW_h", {"h in dW_h": "h0"})
    for W, result in (("W_h", "dh_prev"), ("W_x", "dx")):
        if like != "rnn":
            yield Mistake(f"{W} is not transposed, gate by gate, in {result}", {W: "not transposed"})
        yield Mistake(f"{W} is {'' if like == 'rnn' else 'reshaped, '}not transposed, in {result}", {W: "reshaped"})
        yield Mistake(f"d{W} is transposed", {f"d{W}": "transposed"})


def _sums(like: str, T: int, B: int) -> Iterator[Mistake]:
    """What goes wrong where the parts of the steps are added up, and in the results as a whole."""
    names = ["dW_x", "dW_h", "db", *(["db_hn"] if like == "gru" else [])]
    means = {"over B": "the batch"} if T == 1 else {"over T": "time"} if B == 1 else _MEANS
    left = {"only first": "step 1", "only last": "the last step"} if T > 1 else {}
    for some in sorted(chain(*(combinations(names, n + 1) for n in range(len(names)))), key=len):
        what, are = _and(some), "is" if len(some) == 1 else "are"
        for how, step in left.items():
            text = f"{what} {are} overwritten at each step, not added up: only the part of {step} is left"
            yield Mistake(text, dict.fromkeys(some, how))
        for how, over in means.items():
            bias = "the bias's gradient " if some == ("db",) else ""
            yield Mistake(f"{bias}{what} {are} averaged over {over}, not summed", dict.fromkeys(some, how))
        yield Mistake(f"the sign of {what} is flipped", dict.fromkeys(some, "minus"))
        yield Mistake(f"{what} {are} not filled in: zero", dict.fromkeys(some, "zero"))
    yield Mistake("db is one sum over everything, where each column is summed over the rows", {"db": "over all"})
    states = ["dh0", *(["dc0"] if like == "lstm" else [])]
    for name in ("dx", *states):
        yield Mistake(f"the sign of {name} is flipped", {name: "minus"})
    for how, over in means.items():
        yield Mistake(
            f"every gradient is averaged over {over}, not summed", dict.fromkeys([*names, "dx", *states], how)
        )
    yield Mistake("dx is not filled in: it is zero", {"dx": "zero"})
    yield Mistake("every sign is flipped", dict.fromkeys([*names, "dx", *states], "minus"))
    for bound in (1, 5):
        yield Mistake(f"the gradients are clipped to ±{bound}: clip them after the check", {"clip": bound})
    for order in _orders(like):
        yield Mistake(_wrong_order(like, order), {"order": order})
        yield Mistake(_wrong_order(like, order) + ", in dW_x, dW_h and db", {"order in dW": order})


def _and(names: Sequence[str]) -> str:
    return " and ".join([*([", ".join(names[:-1])] if len(names) > 1 else []), names[-1]])


_MEANS = {"over B": "the batch", "over T": "time", "over both": "batch and time"}


def _orders(like: str) -> Iterator[str]:
    gates = GATES[like]
    yield from ("".join(p) for p in permutations(gates) if "".join(p) != gates)


def _wrong_order(like: str, order: str) -> str:
    known = f" (the order of {OTHERS[order]})" if order in OTHERS else ""
    return f"the gates stand in the order {', '.join(order)}{known}, where {', '.join(GATES[like])} belongs"
