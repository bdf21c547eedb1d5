"""RNN, LSTM and GRU in plain NumPy, one step at a time, with a place for every mistake. Read after cells/lstm.py.

The equations are those of the cells' own files, in the same symbols. A pass takes a `Fault`, which says where it
departs from them: {} is right, {"f'": "missing"} leaves out the forget gate's derivative. `mistakes.py` holds the
faults that people make. Written to be compared with, not to be fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

Fault = Mapping[str, Any]
Arrays = dict[str, np.ndarray]
GATES = {"rnn": "a", "lstm": "ifgo", "gru": "rzn", "gru-before": "rzn"}  # side by side in W_x, W_h and b


@dataclass(frozen=True)
class Case:
    """What a pass is run on. x: (T, B, D); dout: (T, B, H), the adjoint of the outputs; dc: (B, H), the LSTM's dc_T.

    c0 and dc are None but for the LSTM, b_hn is None but for the GRU with the reset after.
    """

    like: str
    x: np.ndarray
    h0: np.ndarray
    c0: Any
    W_x: np.ndarray
    W_h: np.ndarray
    b: np.ndarray
    b_hn: Any
    dout: np.ndarray
    dc: Any

    def blocks(self, array: np.ndarray, order: str = "") -> Arrays:
        """An array (…, G·H) apart by gate, (…, H) each."""
        order = order or GATES[self.like]
        return dict(zip(order, np.split(array, len(order), axis=-1)))


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 0.5 + 0.5 * np.tanh(0.5 * z)


# The derivative as written from z and y = σ(z) or tanh(z); "" is the right one.
SIGMOID_PRIME: dict[str, Callable[..., Any]] = {
    "": lambda z, y: y * (1 - y),
    "missing": lambda z, y: np.ones_like(y),
    "function": lambda z, y: sigmoid(y),
    "at z": lambda z, y: z * (1 - z),
    "twice": lambda z, y: sigmoid(y) * (1 - sigmoid(y)),
    "y": lambda z, y: y,
    "1 − y": lambda z, y: 1 - y,
    "the other": lambda z, y: 1 - y**2,
    "minus": lambda z, y: -y * (1 - y),
}
TANH_PRIME: dict[str, Callable[..., Any]] = {
    "": lambda z, y: 1 - y**2,
    "missing": lambda z, y: np.ones_like(y),
    "function": lambda z, y: np.tanh(y),
    "at z": lambda z, y: 1 - z**2,
    "twice": lambda z, y: 1 - np.tanh(y) ** 2,
    "not squared": lambda z, y: 1 - y,
    "plus": lambda z, y: 1 + y**2,
    "the other": lambda z, y: y * (1 - y),
    "minus": lambda z, y: -(1 - y**2),
}
# What stands where tanh belongs in a forward pass.
ACTIVATION: dict[str, Callable[..., Any]] = {
    "": np.tanh,
    "missing": lambda z: z,
    "sigmoid": sigmoid,
    "relu": lambda z: np.maximum(z, 0),
    "twice": lambda z: np.tanh(np.tanh(z)),
}


# --- forward --------------------------------------------------------------------------------------------------------


def forward(case: Case, fault: Fault) -> tuple[Arrays, list[SimpleNamespace]]:
    """{"out": (T, B, H), and for the LSTM "c": c_T}, and what each step keeps for the way back."""
    step = {"rnn": _rnn_step, "lstm": _lstm_step}.get(case.like, _gru_step)
    h, c = case.h0, case.c0
    h = np.zeros_like(h) if fault.get("h0") == "zero" else h
    kept, out = [], []
    for x in case.x:
        start = case.h0 if fault.get("h_prev") == "stuck" else c if fault.get("h_prev") == "c" else h
        k = step(case, x, start, case.c0 if fault.get("c_prev") == "stuck" else c, fault)
        kept.append(k)
        out.append(h if fault.get("out") == "before" else k.c if fault.get("out") == "c" else k.h)
        h, c = k.h, k.c
    if fault.get("out") == "last":
        out = [out[-1]] * len(out)
    found = {"out": np.stack(out)}
    return (found if c is None else found | {"c": c}), kept


def _rnn_step(case: Case, x: Any, h: Any, c: Any, fault: Fault) -> SimpleNamespace:
    W_h = case.W_h.T if fault.get("W_h") == "transposed" else case.W_h
    a = x @ case.W_x + h @ W_h + (0 if "b" in fault else case.b)
    return SimpleNamespace(x=x, h_prev=h, z={"a": a}, h=ACTIVATION[fault.get("tanh", "")](a), c=None)


def _lstm_step(case: Case, x: Any, h: Any, c: Any, fault: Fault) -> SimpleNamespace:
    z = case.blocks(x @ case.W_x + h @ case.W_h + (0 if "b" in fault else case.b), fault.get("order", ""))
    z["f"] = z["f"] + (1 if "f + 1" in fault else 0)
    y = {q: sigmoid(z[q]) for q in "ifo"} | {"g": ACTIVATION[fault.get("g", "")](z["g"])}
    f = 1 - y["i"] if fault.get("f") == "1 − i" else 1 if fault.get("f") == "missing" else y["f"]
    i = 1 if fault.get("i") == "missing" else y["i"]
    c_t = f * c + i * y["g"]
    tanh_c = ACTIVATION[fault.get("tanh c", "")](c_t)
    h_t = tanh_c if fault.get("o") == "missing" else y["o"] * tanh_c
    return SimpleNamespace(x=x, h_prev=h, c_prev=c, z=z, y=y, c=c_t, tanh_c=tanh_c, h=h_t)


def _gru_step(case: Case, x: Any, h: Any, c: Any, fault: Fault) -> SimpleNamespace:
    order, W_h = fault.get("order", ""), case.blocks(case.W_h, fault.get("order", ""))
    a = case.blocks(x @ case.W_x + (0 if "b" in fault else case.b), order)
    b_hn = 0 if case.b_hn is None or "b_hn" in fault else case.b_hn
    z = {q: a[q] + h @ W_h[q] for q in "rz"}
    r, u_z = sigmoid(z["r"]), sigmoid(z["z"])
    reset = fault.get("reset", "before" if case.like == "gru-before" else "after")
    u = (r * h) @ W_h["n"] if reset == "before" else h @ W_h["n"] + b_hn
    scaled = {"before": u + b_hn, "after": r * u, "not b_hn": r * (u - b_hn) + b_hn, "missing": u}[reset]
    z["n"] = a["n"] + scaled
    n = ACTIVATION[fault.get("n", "")](z["n"])
    h_t = u_z * n + (1 - u_z) * h if "z swapped" in fault else (1 - u_z) * n + u_z * h
    return SimpleNamespace(x=x, h_prev=h, z=z, y={"r": r, "z": u_z, "n": n}, u=u, h=h_t, c=None)


# --- backward -------------------------------------------------------------------------------------------------------


def backward(case: Case, kept: list[SimpleNamespace], fault: Fault) -> Arrays:
    """{"dx", "dh0", "dc0" (LSTM), "dW_x", "dW_h", "db", "db_hn" (GRU, reset after)}, from case.dout and case.dc."""
    step = {"rnn": _rnn_back, "lstm": _lstm_back}.get(case.like, _gru_back)
    T, B = case.x.shape[:2]
    dh_next = np.zeros_like(case.h0)
    dc_next = dh_next if case.dc is None else case.dc
    dh = dh_next
    found: dict[str, list[np.ndarray]] = {"dW_x": [], "dW_h": [], "db": [], "db_hn": []}
    dx = np.zeros_like(case.x)
    for t in _steps(T, fault):
        k = kept[-1] if fault.get("kept") == "last" else _h_late(kept, t) if "h late" in fault else kept[t]
        own = case.dout[T - 1 - t if fault.get("dout") == "reversed" else t]
        own = own * 0 if fault.get("dout") == "last" and t < T - 1 else own
        dh = own + dh_next * {"": 1, "lost": 0, "minus": -1}[fault.get("dh", "")]
        dc = dc_next * {"": 1, "lost": 0, "minus": -1}[fault.get("dc", "")]
        k.own, carried = own, dh_next
        da, du, dW_h, dh_next, dc_next = step(case, k, dh, dc, fault)
        dh_next = dh_next + (carried if fault.get("dh_next") == "added up" else 0)
        dx[t] = _back_through(case, da, case.W_x, fault.get("W_x", ""))
        for name, part in {"dW_x": k.x.T @ da, "dW_h": dW_h, "db": da.sum(0), "db_hn": du.sum(0)}.items():
            found[name].append(part)
    result = {
        "dx": dx[::-1] if fault.get("dx order") else dx,
        "dh0": {"": dh_next, "dh_1": dh}[fault.get("dh0 is", "")],
    }
    result |= {} if case.c0 is None else {"dc0": dc_next}
    if "h and c" in fault:
        result["dh0"], result["dc0"] = result["dc0"], result["dh0"]
    for name, like in {"dW_x": case.W_x, "dW_h": case.W_h, "db": case.b, "db_hn": case.h0[0]}.items():
        result[name] = _total(case, found[name] or [np.zeros_like(like)], fault.get(name, ""))
    if case.b_hn is None:
        del result["db_hn"]
    if "order in dW" in fault:
        for name in ("dW_x", "dW_h", "db"):
            blocks = case.blocks(result[name])
            result[name] = np.concatenate([blocks[q] for q in fault["order in dW"]], axis=-1)
    for name, array in result.items():
        scale = {"minus": -1, "zero": 0, "over B": 1 / B, "over T": 1 / T, "over both": 1 / (B * T)}
        result[name] = array * scale.get(fault.get(name, ""), 1)
        if "clip" in fault and name.startswith(("dW", "db")):
            result[name] = np.clip(array, -fault["clip"], fault["clip"])
    return result


def _steps(T: int, fault: Fault) -> list[int]:
    steps = list(reversed(range(T)))
    some = {"last": steps[:1], "not last": steps[1:], "not first": steps[:-1], "forward": steps[::-1]}
    return some.get(fault.get("steps", ""), steps)


def _h_late(kept: list[SimpleNamespace], t: int) -> SimpleNamespace:
    """Step t as one finds it who forgets that the array of states has h0 in front; h[−1] is then the last one."""
    before = kept[t - 1].h_prev if t else kept[-1].h
    return SimpleNamespace(**vars(kept[t]) | {"h": kept[t].h_prev, "h_prev": before})


def _total(case: Case, parts: list[np.ndarray], how: str) -> np.ndarray:
    """A parameter's gradient from the parts of its steps, the last step first."""
    if how in ("only first", "only last"):
        return parts[-1] if how == "only first" else parts[0]
    total = sum(parts, np.zeros_like(parts[0]))
    if how == "over all":
        return np.full_like(total, total.sum())
    if how == "transposed":  # block by block
        return np.concatenate([block.T for block in case.blocks(total).values()], axis=-1)
    return total


def _back_through(case: Case, da: np.ndarray, W: np.ndarray, how: str) -> np.ndarray:
    """da @ Wᵀ."""
    if how == "not transposed":  # gate by gate, where the blocks are square
        return sum((d @ w for d, w in zip(case.blocks(da).values(), case.blocks(W).values())), 0 * da[:, : len(W)])
    return da @ (W.reshape(W.shape[::-1]) if how == "reshaped" else W.T)


def _h_for_W_h(case: Case, k: SimpleNamespace, fault: Fault) -> np.ndarray:
    return {"": k.h_prev, "h_t": k.h, "h0": case.h0}[fault.get("h in dW_h", "")]


def _rnn_back(case: Case, k: SimpleNamespace, dh: Any, dc: Any, fault: Fault) -> tuple[Any, ...]:
    prime = TANH_PRIME[fault.get("a'", "")](k.z["a"], k.h_prev if "1 − h_prev²" in fault else k.h)
    beside = {"": 0, "own": k.own, "carried": dh - k.own}[fault.get("not through tanh", "")]
    da = (dh - beside) * prime + beside
    way = _back_through(case, dh if fault.get("dh_next") == "dh @ W_hᵀ" else da, case.W_h, fault.get("W_h", ""))
    return da, da, _h_for_W_h(case, k, fault).T @ da, da if fault.get("dh_next") == "da" else way, dc


def _lstm_back(case: Case, k: SimpleNamespace, dh: Any, dc: Any, fault: Fault) -> tuple[Any, ...]:
    prime = {q: SIGMOID_PRIME[fault.get(f"{q}'", "")](k.z[q], k.y[q]) for q in "ifo"}
    prime["g"] = TANH_PRIME[fault.get("g'", "")](k.z["g"], k.y["g"])
    i, f, g, o = (k.y[q] for q in "ifgo")
    own = dh * (1 if "dc without o" in fault else o) * TANH_PRIME[fault.get("tanh c'", "")](k.c, k.tanh_c)
    carried, dc = dc, dc + (0 if "own dc" in fault else own)
    other = {"": k.c_prev, "c_t": k.c, "c0": case.c0}[fault.get("c in df", "")]
    dz = {
        "i": dc * (i if "i for g" in fault else g) * prime["i"],
        "f": dc * other * prime["f"],
        "g": dc * (g if "g for i" in fault else i) * prime["g"],
        "o": (dc if "dc in do" in fault else dh) * (k.c if "c in do" in fault else k.tanh_c) * prime["o"],
    }
    da = np.concatenate([dz[q] for q in fault.get("order", "ifgo")], axis=-1)
    dc_prev = {"": dc * f, "without f": dc, "own lost": carried * f}[fault.get("dc_prev", "")]
    return da, da, _h_for_W_h(case, k, fault).T @ da, _back_through(case, da, case.W_h, fault.get("W_h", "")), dc_prev


def _gru_back(case: Case, k: SimpleNamespace, dh: Any, dc: Any, fault: Fault) -> tuple[Any, ...]:
    r, z, n = (k.y[q] for q in "rzn")
    keep, new = z, 1 - z
    h = {"": k.h_prev, "h_t": k.h, "missing": 0}[fault.get("h in da_z", "")]
    r_prime, z_prime = (SIGMOID_PRIME[fault.get(f"{q}'", "")](k.z[q], k.y[q]) for q in "rz")
    da_n = dh * (z if "da_n" in fault else new) * TANH_PRIME[fault.get("n'", "")](k.z["n"], n)
    da_z = dh * (h - (0 if "n in da_z" in fault else n)) * z_prime
    h_prev, W, order = _h_for_W_h(case, k, fault), case.blocks(case.W_h), fault.get("order", "rzn")
    W_hr, W_hz, W_hn = (W[q] for q in "rzn")
    dh_prev = dh * (new if "dh_prev" in fault else keep) * (0 if fault.get("dh·z") == "lost" else 1)
    through = "not transposed" if fault.get("W_h") == "not transposed" else ""
    if fault.get("reset", "before" if case.like == "gru-before" else "after") == "before":
        dm = da_n @ (W_hn if through else W_hn.T)
        da_r, du = dm * k.h_prev * r_prime, da_n
        for_n = h_prev if "h for r·h" in fault else r * h_prev
        way = {"": dm * r, "without r": dm, "lost": 0 * dm}[fault.get("dm·r", "")]
    else:
        u = k.h_prev @ W_hn if "u without b_hn" in fault else k.h_prev if "h for u" in fault else k.u
        da_r, du = da_n * u * r_prime, da_n * (1 if fault.get("du") == "without r" else r)
        for_n, way = h_prev, du @ (W_hn if through else W_hn.T)
    da = {"r": da_r, "z": da_z, "n": da_n}
    dW_h = {"r": h_prev.T @ da_r, "z": h_prev.T @ da_z, "n": for_n.T @ du}
    way = way + da_r @ (W_hr if through else W_hr.T) + da_z @ (W_hz if through else W_hz.T)
    if "order" in fault or fault.get("W_h") == "reshaped":
        way = _back_through(
            case, np.concatenate([{**da, "n": du}[q] for q in order], -1), case.W_h, fault.get("W_h", "")
        )
    if fault.get("dh·W") != "lost":
        dh_prev = dh_prev + way
    du_b = da_n if fault.get("du in db_hn") == "without r" else du
    return np.concatenate([da[q] for q in order], -1), du_b, np.concatenate([dW_h[q] for q in order], -1), dh_prev, dc
