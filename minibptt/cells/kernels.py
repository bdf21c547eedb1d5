"""The element-wise part of a step of each explicit cell, forward and backward, as one kernel for a device.

On a device what costs is the launch, several microseconds each; a dozen ufuncs a step are a dozen launches. Here a step
is one matrix product and one launch (two of each for the GRU whose reset stands before its product). A body is the
equations of the cell's file on one element, in plain C, where `/` and literals must not turn float into double: whole
numbers only. NumPy has no launches; there the cells' ufuncs, in place and in blocks, are faster. Read after
explicit.py, with lstm.py beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..backend import Array, elementwise_kernel

_on = [True]

# σ(x) = ½ + ½ tanh(x/2) never overflows. A comparison keeps NaN where relu would hide it.
PREAMBLE = """
#define sigmoid(x) ((T)0.5 + (T)0.5 * tanh((T)0.5 * (x)))
#define relu(x) ((x) < 0 ? (T)0 : (x))
"""


class Kernel:
    """`kernel(xp, H, *arrays)`: one launch over the B·H elements of the arrays, which hold blocks of H columns.

    given: what is read; changed: what is read and written; made: what is written. Each is a dict from an array's name
    to the names of its blocks in the body, "-" for one that it does not need; arrays are given in this order, the last
    being (B, H). A name in `columns` is of an array (H,), which all rows share. All arrays are of one float type and
    C-contiguous.
    """

    def __init__(
        self,
        name: str,
        body: str,
        given: Mapping[str, str],
        changed: Mapping[str, str] | None = None,
        made: Mapping[str, str] | None = None,
        columns: tuple[str, ...] = (),
    ):
        changed, made = changed or {}, made or {}
        self.name, self.body, self.n_given = name, body, len(given)
        self.inputs = ", ".join([f"raw T {array}_" for array in given] + ["int32 H"])
        self.outputs = ", ".join([f"raw T {array}_" for array in (*changed, *made)])
        load, store = [], []
        for array, blocks in {**given, **changed, **made}.items():
            names = blocks.split()
            for block, variable in enumerate(names):
                if variable == "-":
                    continue
                place = f"{array}_[row * {len(names)} * H + {block} * H + col]"
                if array in columns:
                    place = f"{array}_[col]"
                load.append(f"T {variable}" + (";" if array in made else f" = {place};"))
                if array not in given:
                    store.append(f"{place} = {variable};")
        # The block hides CuPy's own i and n, which are gates here.
        lines = ["const int row = i / H;", "const int col = i % H;", "{", *load, *_statements(body), *store, "}"]
        self.operation = "\n".join(lines)

    def __call__(self, xp: Any, H: int, *arrays: Array) -> None:
        launch = elementwise_kernel(xp, self.inputs, self.outputs, self.operation, f"minibptt_{self.name}", PREAMBLE)
        launch(*arrays[: self.n_given], H, *arrays[self.n_given :], size=arrays[-1].size)


def _statements(body: str) -> list[str]:
    return [f"{statement.strip()};" for statement in body.split(";") if statement.strip()]


def fusing(xp: Any, dtype: Any) -> bool:
    """Whether the cells run by kernels: on a device, in real single or double precision, unless switched off."""
    return _on[0] and xp is not np and np.dtype(dtype) in (np.float32, np.float64)


@contextmanager
def unfused() -> Iterator[None]:
    """Inside, the cells on a device run by one launch for each operation, as on NumPy: to see what fusing saves."""
    before, _on[0] = _on[0], False
    try:
        yield
    finally:
        _on[0] = before


RNN_FORWARD = {
    φ: Kernel(f"rnn_{φ}_forward", body, {"a": "a"}, changed={"h": "h"})
    for φ, body in {"tanh": "h = tanh(a + h);", "relu": "h = relu(a + h);", "linear": "h = a + h;"}.items()
}

RNN_BACKWARD = {
    φ: Kernel(
        f"rnn_{φ}_backward", f"dh += dy; da = {body};", {"dy": "dy", "h": "h"}, changed={"dh": "dh"}, made={"da": "da"}
    )
    for φ, body in {"tanh": "dh * (1 - h * h)", "relu": "dh * (h > 0)", "linear": "dh"}.items()
}

LSTM_FORWARD = Kernel(
    "lstm_forward",
    """
    i = sigmoid(i + q_i);
    f = sigmoid(f + q_f);
    g = tanh(g + q_g);
    o = sigmoid(o + q_o);
    c = f * c_prev + i * g;
    tanh_c = tanh(c);
    h = o * tanh_c;
    """,
    given={"q": "q_i q_f q_g q_o", "c_prev": "c_prev"},
    changed={"A": "i f g o"},
    made={"tanh_c": "tanh_c", "c": "c", "h": "h"},
)

LSTM_BACKWARD = Kernel(
    "lstm_backward",
    """
    dh += dy;
    dc += dh * o * (1 - tanh_c * tanh_c);
    dz_i = dc * g * i * (1 - i);
    dz_f = dc * c_prev * f * (1 - f);
    dz_g = dc * i * (1 - g * g);
    dz_o = dh * tanh_c * o * (1 - o);
    dc_prev = dc * f;
    """,
    given={"dy": "dy", "A": "i f g o", "tanh_c": "tanh_c", "c_prev": "c_prev"},
    changed={"dh": "dh", "dc": "dc"},
    made={"dz": "dz_i dz_f dz_g dz_o", "dc_prev": "dc_prev"},
)

GRU_FORWARD = Kernel(  # reset after the product
    "gru_forward",
    """
    r = sigmoid(r + q_r);
    z = sigmoid(z + q_z);
    u = q_n + b_hn;
    n = tanh(n + r * u);
    h = n + z * (h_prev - n);
    """,
    given={"q": "q_r q_z q_n", "h_prev": "h_prev", "b_hn": "b_hn"},
    changed={"A": "r z", "n": "n"},
    made={"u": "u", "h": "h"},
    columns=("b_hn",),
)

# `carry` is dh · z of the step after, which does not go through the product; `part` is that of this step.
GRU_BACKWARD = Kernel(
    "gru_backward",
    """
    dh += carry + dy;
    da_n = dh * (1 - z) * (1 - n * n);
    da_z = dh * (h_prev - n) * z * (1 - z);
    da_r = da_n * u * r * (1 - r);
    du = da_n * r;
    part = dh * z;
    """,
    given={"dy": "dy", "carry": "carry", "A": "r z", "n": "n", "u": "u", "h_prev": "h_prev"},
    changed={"dh": "dh"},
    made={"d": "da_r da_z du", "da_n": "da_n", "part": "part"},
)

GRU_BEFORE_FORWARD = (
    Kernel(
        "gru_before_forward_rz",
        "r = sigmoid(r + q_r); z = sigmoid(z + q_z); rh = r * h_prev;",
        given={"q": "q_r q_z", "h_prev": "h_prev"},
        changed={"A": "r z"},
        made={"rh": "rh"},
    ),
    Kernel(
        "gru_before_forward_n",
        "n = tanh(n + u); h = n + z * (h_prev - n);",
        given={"u": "u", "A": "- z", "h_prev": "h_prev"},
        changed={"n": "n"},
        made={"h": "h"},
    ),
)

GRU_BEFORE_BACKWARD = (
    Kernel(
        "gru_before_backward_n",
        """
        dh += carry + dy;
        da_n = dh * (1 - z) * (1 - n * n);
        da_z = dh * (h_prev - n) * z * (1 - z);
        """,
        given={"dy": "dy", "carry": "carry", "A": "- z", "n": "n", "h_prev": "h_prev"},
        changed={"dh": "dh"},
        made={"da": "- da_z", "da_n": "da_n"},
    ),
    Kernel(
        "gru_before_backward_r",
        "da_r = dm * h_prev * r * (1 - r); part = dm * r + dh * z;",
        given={"dm": "dm", "A": "r z", "h_prev": "h_prev", "dh": "dh"},
        made={"da": "da_r -", "part": "part"},
    ),
)

KERNELS: tuple[Kernel, ...] = (
    *RNN_FORWARD.values(),
    *RNN_BACKWARD.values(),
    LSTM_FORWARD,
    LSTM_BACKWARD,
    GRU_FORWARD,
    GRU_BACKWARD,
    *GRU_BEFORE_FORWARD,
    *GRU_BEFORE_BACKWARD,
)
