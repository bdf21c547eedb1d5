"""Lesson 1, the chain rule on a tape: the engine's tape says what is right. Read after ../answers.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...parameters import parameter
from ...tape import Tape
from ...tensor import Tensor
from ..answers import array, call, mapping, number, same
from ..registry import NotYet, Numbers, exercise


def _draw_neuron(rng: np.random.Generator) -> Numbers:
    x, w, b, y = rng.choice([3, 4, 5]), rng.choice([0.25, 0.5]), rng.choice([-0.5, 0.25]), rng.choice([1.5, -1.5])
    return {"x": float(x), "w": float(w), "b": float(b), "y": float(y)}


@exercise(
    "1.1",
    "dL_dw",
    numbers=_draw_neuron,
    hints=[
        "Four factors: of the square, of the difference, of tanh, of w·x.",
        "tanh' a = 1 − tanh² a, and h is tanh a.",
    ],
)
def _(dL_dw: Any, n: Numbers) -> None:
    """Predict the derivative of one neuron's loss."""
    x, w, b, y = n["x"], n["w"], n["b"], n["y"]
    weight = parameter([w], dtype=np.float64)
    with Tape() as tape:
        e = ops.tanh(weight * x + b) - y
        loss = ops.sum(e * e)
    right = tape.gradient(loss, weight).item()
    h = np.tanh(w * x + b)
    mistakes = {
        "the sign: e is h − y, not y − h": -right,
        "the factor 2 of the square is missing": right / 2,
        "that is ∂L/∂b: the last factor, ∂(w·x)/∂w, is missing": right / x,
        "the last factor is ∂(w·x)/∂w = x, not w": right / x * w,
        "tanh' is missing": 2 * (h - y) * x,
        "tanh of tanh: h is tanh a already, so tanh' a = 1 − h²": 2 * (h - y) * (1 - np.tanh(h) ** 2) * x,
        "tanh' is 1 − h, where 1 − h² belongs": 2 * (h - y) * (1 - h) * x,
        "e is missing: the derivative of e² is 2e": 2 * (1 - h**2) * x,
        "that is the loss itself": loss.item(),
    }  # fmt: skip
    says = "Multiply the derivatives one by one: check.hint('1.1')"
    same(number(call(dL_dw)), right, mistakes, otherwise=says, tolerance=1e-4)  # a number off a calculator will do


@exercise(
    "1.2",
    "backward",
    hints=["The product rule: (u·v)' = u'·v + u·v'.", "tanh a + a·(1 − tanh² a), and then g."],
)
def _(backward: Any) -> None:
    """Write the backward pass of a·tanh(a)."""
    rng = np.random.default_rng(12)
    value, g = rng.standard_normal((3, 2)), rng.standard_normal((3, 2))
    a = parameter(value)
    with Tape() as tape:
        y = a * ops.tanh(a)
    right = tape.gradient(y, a, seed=g)
    yours = array(call(backward, value, g), "∂L/∂a", value.shape)
    h = np.tanh(value)
    mistakes = {
        "g is missing: what arrives from the loss multiplies everything": h + value * (1 - h**2),
        "a way from a to y is missing: the one through tanh": g * h,
        "a way from a to y is missing: the one through the first factor": g * value * (1 - h**2),
        "the derivatives are multiplied; the product rule adds two terms": g * h * value * (1 - h**2),
        "tanh' is missing in the second term": g * (h + value),
        "g multiplies only the first term": g * h + value * (1 - h**2),
        "g multiplies only the second term": h + g * value * (1 - h**2),
        "tanh' a is 1 − tanh² a; here it is 1 − tanh a": g * (h + value * (1 - h)),
    }
    same(yours, right, mistakes, "∂L/∂a", "Ask check.hint('1.2')")


def _case(rng: np.random.Generator) -> tuple[list[Any], dict[str, float]]:
    """Records of L = (u·v)·u with u = w·x, v = u·x, and the adjoints by the engine's tape; z is not in the loss."""
    w0, x0 = (float(v) for v in rng.uniform(1, 2, 2))
    w, x = parameter([w0], dtype=np.float64), parameter([x0], dtype=np.float64)
    with Tape() as tape:
        u = w * x
        v = u * x
        z = v * v
        p = u * v
        loss = ops.sum(p * u)
    del z
    tensors: dict[str, Tensor] = {"w": w, "x": x, "u": u, "v": v, "p": p, "L": loss}
    value = {name: tensor.item() for name, tensor in tensors.items()}
    records = [
        ("u", [("w", value["x"]), ("x", value["w"])]),
        ("v", [("u", value["x"]), ("x", value["u"])]),
        ("z", [("v", value["v"]), ("v", value["v"])]),
        ("p", [("u", value["v"]), ("v", value["u"])]),
        ("L", [("p", value["u"]), ("u", value["p"])]),
    ]
    found = tape.gradient(loss, [w, x, u, v, p])
    return records, {"L": 1.0} | {name: float(g.item()) for name, g in zip("wxuvp", found)}


@exercise(
    "1.3",
    "sweep",
    hints=[
        "What is in adjoint[name] when a second record hands something to the same name?",
        "Add: adjoint.get(name, 0.0) + …",
    ],
)
def _(sweep: Any) -> None:
    """Find the bug: what arrives at a value that is used twice."""
    chain = [("a", [("w", 3.0)]), ("b", [("a", 2.0)]), ("L", [("b", 5.0)])]
    found = _adjoints(sweep, chain, "L", ("w", "a", "b"))
    if not any(found.values()):
        raise NotYet("every adjoint is 0: the sweep must begin with ∂L/∂L = 1 for the loss")
    if found["w"] != 30:
        raise NotYet(
            "it is wrong for a chain already, L ← b ← a ← w: go through the records from the last to the first"
        )
    records, right = _case(np.random.default_rng(13))
    found = _adjoints(sweep, records, "L", tuple("wxuvp"))
    wrong = [name for name in "pvuxw" if abs(found[name] - right[name]) > 1e-9 * abs(right[name])]
    if not wrong:
        return
    last, first = _by(records, lambda before, new: new), _by(records, lambda before, new: before)
    name = wrong[0]
    if all(abs(found[n] - last[n]) < 1e-9 for n in wrong):
        raise NotYet(f"{name} is used twice, and the second adjoint that arrives overwrites the first: add them")
    if all(abs(found[n] - first[n]) < 1e-9 for n in wrong):
        raise NotYet(f"{name} is used twice, and only the first adjoint that arrives is kept: add them")
    raise NotYet(f"∂L/∂{name} is not right where {name} is used twice. The adjoints that arrive at a value are added")


def _adjoints(sweep: Any, records: list[Any], loss: str, names: tuple[str, ...]) -> dict[str, float]:
    found = call(sweep, records, loss)
    if isinstance(found, dict):
        found = {name: found[name] for name in found if name in names}
    return {
        name: number(value, f"adjoint of {name}") for name, value in mapping(found, names, "what sweep returns").items()
    }


def _by(records: list[Any], rule: Any) -> dict[str, float]:
    """The sweep with another rule for what is there already."""
    adjoint = {"L": 1.0}
    for output, inputs in reversed(records):
        for name, derivative in inputs:
            new = derivative * adjoint.get(output, 0.0)
            adjoint[name] = rule(adjoint[name], new) if name in adjoint else new
    return adjoint
