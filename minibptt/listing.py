"""How things look in text: h₃, ✂, a value in a few characters, and the Wengert list that `print(tape)` shows.

Where the terminal or pipe cannot print these signs, plain ASCII takes their place. Read after backend.py.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .backend import to_numpy

_SUBSCRIPT = str.maketrans("0123456789-", "₀₁₂₃₄₅₆₇₈₉₋")
_ASCII = str.maketrans(
    {
        **{sub: plain for plain, sub in zip("0123456789-", "₀₁₂₃₄₅₆₇₈₉₋")},
        "✂": "8<", "·": "*", "−": "-", "–": "-", "—": "-", "…": "...", "∂": "d", "‖": "|", "≤": "<=", "×": "x",
        "±": "+/-", "←": "<-", "→": "->", "²": "^2", "─": "-", "₋": "-", "′": "'", "°": "o", "ᵀ": ".T",
        "σ": "sigmoid", "Σ": "sum", "½": "1/2", "√": "sqrt", "\N{NO-BREAK SPACE}": " ",
    }
)  # fmt: skip

# What a terminal obeys and does not show: controls but for tab and the ends of lines, and what turns text around.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|\r(?!\n)")


def _no_names(tape: Any) -> Mapping[int, str]:
    return {}


# By slot, what the values that a cell works out in between are called. derive.py, which is read after this file, puts
# its own function here. What is not in the answer is v₁₇.
value_names: Callable[[Any], Mapping[int, str]] = _no_names


def can_print(text: str, stream: Any = None) -> bool:
    """True where `stream` (default: stdout as it is now) can encode `text`."""
    encoding = getattr(sys.stdout if stream is None else stream, "encoding", None)
    try:
        text.encode(encoding or "utf-8")  # no encoding: a stream of text, which holds anything
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def printable(text: str, stream: Any = None) -> str:
    """`text` as it is where the stream can show it, else in ASCII; what has no ASCII form shows as '?'.

    Names and messages may come from strangers: what a terminal would obey, as an escape, is written out, as \\x1b.
    """
    text = _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    if can_print(text, stream):
        return text
    return plain_ascii(text)


def plain_ascii(text: str) -> str:
    """`text` in ASCII; what has no ASCII form shows as '?'."""
    return text.translate(_ASCII).encode("ascii", "replace").decode()


def counted(n: int, one: str, several: str = "") -> str:
    """1, 'row' → '1 row'; 3, 'row' → '3 rows'; 2, 'loss', 'losses' → '2 losses'."""
    return f"{n} {one if n == 1 else several or one + 's'}"


def subscript(name: str, step: int | None) -> str:
    """'h', 3 → 'h₃'."""
    return name if step is None else name + str(step).translate(_SUBSCRIPT)


def brief(value: Any, most: int = 4) -> str:
    """A value in a few characters: the numbers where there are at most `most`, else the shape and the norm."""
    array = to_numpy(value)
    if array.size <= most:
        return np.array2string(array, precision=4, separator=", ").replace("\n", "")
    shape = "×".join(map(str, array.shape))
    if array.dtype.kind not in "fc":
        return f"{array.dtype} {shape}"
    return f"{shape}, ‖·‖ = {np.linalg.norm(array.ravel().astype(complex)):.4g}"


def _constant(value: Any) -> str:
    return "×".join(map(str, value)) if isinstance(value, tuple) else brief(value)


def columns(rows: list[tuple[str, ...]], right: tuple[int, ...] = ()) -> list[str]:
    """Rows of cells as aligned lines; the columns numbered in `right` are set flush right."""
    if not rows:
        return []
    rows = [tuple([printable(cell) for cell in row]) for row in rows]  # before the widths are measured
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]


def span(steps: tuple[int, int] | None) -> str:
    """A range of steps as people write it: '3', '1–4', or nothing."""
    if steps is None:
        return ""
    return str(steps[0]) if steps[0] == steps[1] else f"{steps[0]}–{steps[1]}"


def wengert(tape: Any, most: int = 200) -> str:
    """The list of records of `tape`: step, layer, output, operation, inputs, value; cuts drawn as ✂.

    Values have the names that their cell's `step` gives them, v₁₇ where it gives none.
    A parameter stands with the layers that use it, and a state that another layer made with its name: 0.h₁. Layers and
    steps are counted apart in the first line. A tape of more than `most` records shows its beginning and its
    end, and says how many are left out.
    """
    records = tape.records
    shown = records if len(records) <= most else records[: most // 2] + records[-(most // 2) :]
    names = {slot: leaf.label if leaf.name else subscript("v", slot) for slot, leaf in tape.leaves.items()}
    homes: dict[int, str | None] = {}
    known = value_names(tape)
    for record in records:
        names.update((out.slot, known.get(out.slot, out.label)) for out in record.outputs)
        homes.update((out.slot, record.layer) for out in record.outputs if out.name)
    used: dict[int, dict[str, None]] = {slot: {} for slot in tape.leaves}  # in which layers
    for record in records:
        for slot in record.inputs:
            if slot in used and record.layer:
                used[slot][record.layer] = None
    rows: list[tuple[str, ...]] = [("step", "layer", "record", "value")]
    for slot in sorted({s for r in shown for s in r.inputs if s in tape.leaves}):
        leaf = tape.leaves[slot]
        kind = "parameter" if leaf.is_parameter else "leaf"
        rows.append((span(leaf.steps), ", ".join(used[slot]), f"{names[slot]} = {kind}", brief(leaf.value)))
    skipped = len(rows) + most // 2
    for record in shown:
        if len(rows) == skipped and len(shown) < len(records):
            rows.append(("…", "", f"… {counted(len(records) - len(shown), 'record')} left out …", ""))
        outs = ", ".join(names[out.slot] for out in record.outputs[:4])
        outs += ", …" if len(record.outputs) > 4 else ""
        constants = iter(record.constants)
        args = []
        for slot in record.inputs:
            home = homes.get(slot) if slot is not None else None
            name = _constant(next(constants)) if slot is None else names.get(slot, "(dropped)")
            args.append(f"{home}.{name}" if home and home != record.layer else name)
        args = args if len(args) <= 4 else [*args[:3], "…", args[-1]]
        scissors = "✂ " if record.op == "cut" else ""
        text = f"{scissors}{outs} = {record.op}({', '.join(args)})"
        value = brief(record.outputs[0].value) if len(record.outputs) == 1 else f"{len(record.outputs)} outputs"
        rows.append((span(record.steps), record.layer or "", text, value))
    if not any(row[1] for row in rows[1:]):
        rows = [(row[0], *row[2:]) for row in rows]
    head = f"Tape: {counted(len(records), 'record')}, {counted(len(tape.cuts), 'cut')}"
    steps = [r.steps for r in records if r.steps]
    if steps:
        head += f", steps {span((min(s[0] for s in steps), max(s[1] for s in steps)))}"
    layers = dict.fromkeys(r.layer for r in records if r.layer)
    if layers:
        head += f", {counted(len(layers), 'layer')} ({', '.join(layers)})"
    return printable("\n".join([head, *columns(rows, right=(0,))]))
