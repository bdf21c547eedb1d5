"""A derivation in LaTeX: one align* block, for the package amsmath. Read after text.py."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from ..listing import plain_ascii
from .expressions import INFIX, Apply, Expr, Number, Symbol, inside, symbols, text, without_sign
from .lines import Line

_SPECIAL = {c: f"\\{c}" for c in "{}_$%&#"} | {"\\": r"\backslash ", "^": r"\hat{}", "~": r"\sim "}
_FUNCTIONS = {"tanh", "exp", "log", "max", "min"}
_RELATIONS = {"=": "=", "+=": "{+}{=}", "←": r"\leftarrow "}
_LONG = 100  # characters of a right side that is broken at its = signs


def latex(d: Any) -> str:
    """The whole derivation as an align* block."""
    lines = [
        rf"&\text{{{escaped(d.title + ', from the last step back; ' + d.cuts_in_words)}}}",
        *_aligned("L", "=", [d.formula, d.value]),
    ]
    for block in d.blocks:
        lines.append(rf"&\text{{{escaped('; '.join([block.title, *block.notes]))}}}")
        for line in block.lines:
            lines += _line(line)
    for line in d.leading:
        lines += _line(line)
    lines += _aligned(typeset(d.wrt_adjoint), "=", d.sum_of_terms)
    return "\n".join([r"\begin{align*}", *[line + r" \\" for line in lines[:-1]], lines[-1], r"\end{align*}"])


def _line(line: Line) -> list[str]:
    note = [line.note] if line.note else []
    note += [f"total {text(line.total)}"] if line.total is not None else []
    return _aligned(typeset(line.left), line.relation, list(dict.fromkeys(line.right)), "; ".join(note))


def _aligned(left: str, relation: str, right: Sequence[Expr], note: str = "") -> list[str]:
    parts = [typeset(e) for e in right]
    end = rf"\quad\text{{{escaped(note)}}}" if note else ""
    if sum(map(len, parts)) < _LONG or len(parts) < 2:
        return [f"{left} &{_RELATIONS[relation]} {' = '.join(parts)}{end}"]
    first, *rest = parts
    rows = [f"{left} &{_RELATIONS[relation]} {first}", *[f"&= {part}" for part in rest]]
    return [*rows[:-1], rows[-1] + end]


def escaped(words: str) -> str:
    """Any text as LaTeX's own, in ASCII."""
    words = words.replace("✂ ", "").replace("‖·‖ =", "norm")
    return "".join({**_SPECIAL, "\\": "/", "^": "", "~": "-"}.get(c, c) for c in plain_ascii(words))


def _letters(name: str) -> str:
    """A part of a name: one letter in italics, more upright; Greek letters by name."""
    if len(name) == 1:
        called = unicodedata.name(name, "")
        match = re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER (ALPHA|BETA|GAMMA|DELTA|EPSILON|ZETA|ETA|THETA|IOTA|KAPPA|"
                             r"LAMDA|MU|NU|XI|PI|RHO|SIGMA|TAU|UPSILON|PHI|CHI|PSI|OMEGA)", called)  # fmt: skip
        if match and match[1] == "SMALL":
            return "\\" + match[2].lower().replace("lamda", "lambda") + " "
        if name.isascii() and name.isalpha():
            return name
    plain = name.isascii() and name.replace(".", "").isalnum()
    return rf"\mathrm{{{name}}}" if plain else rf"\text{{{escaped(name)}}}"


def symbol(s: Symbol) -> str:
    """A symbol with its name's own index and its step: z_{i,3}."""
    base, _, index = s.name.replace("°", "").partition("_")
    if not base:
        base, index = s.name.replace("°", ""), ""
    above = r"\circ" if "°" in s.name else r"\prime" * s.primes
    below = ",".join([_letters(index)] * bool(index) + [str(s.step)] * (s.step is not None))
    plain = _letters(base) + (f"^{{{above}}}" if above else "") + (f"_{{{below}}}" if below else "")
    return rf"\frac{{\partial L}}{{\partial {plain}}}" if s.adjoint else plain


def number(value: float) -> str:
    """A number, with its power of ten written out."""
    if value != value or abs(value) == float("inf"):
        return r"\mathrm{nan}" if value != value else r"\infty" if value > 0 else r"-\infty"
    digits, _, power = (f"{value:.4g}" if value else "0").partition("e")
    return rf"{digits} \times 10^{{{int(power)}}}" if power else digits


def typeset(e: Expr) -> str:
    """A formula in LaTeX's math mode."""
    if isinstance(e, Symbol):
        return symbol(e)
    if isinstance(e, Number):
        return number(e.value)
    assert isinstance(e, Apply)
    op, args = e.op, e.args
    if op == "words":
        return rf"\text{{{escaped(args[0].name)}}}"  # type: ignore[attr-defined]
    if op == "label":
        return rf"{typeset(args[0])}\ \text{{({escaped(args[1].name)})}}"  # type: ignore[attr-defined]
    if op == "∂":
        return rf"\frac{{\partial {typeset(args[0])}}}{{\partial {typeset(args[1])}}}"
    if op == "+" and (positive := without_sign(args[1])):
        return f"{typeset(args[0])} - {typeset(positive)}"
    if op == "/":
        return rf"\frac{{{typeset(args[0])}}}{{{typeset(args[1])}}}"
    parts = [typeset(part) for part in args]
    if op in ("list", "tuple"):
        return ", ".join(parts) if op == "tuple" else rf"\left[ {', '.join(parts)} \right]"
    if op in INFIX or op in ("neg", "T"):
        parts = [rf"\left( {part} \right)" if inside(e, i) or _power_of_power(e, i) else part
                 for i, part in enumerate(parts)]  # fmt: skip
        if op == "^":
            return f"{{{parts[0]}}}^{{{parts[1]}}}"
        if op in ("neg", "T"):
            return f"-{parts[0]}" if op == "neg" else rf"{{{parts[0]}}}^{{\top}}"
        single = all(s.value is not None for s in symbols(e))
        sign = {"·": r" \cdot " if single else r" \odot ", "@": r" \, ", "−": " - "}.get(op, f" {op} ")
        return sign.join(parts)
    name, transposed = op.removesuffix("ᵀ"), op.endswith("ᵀ")
    head = r"\sigma" if name == "σ" else r"\sum" if name == "Σ" else rf"\{name}" if name in _FUNCTIONS else None
    head = head or rf"\mathrm{{{escaped(name)}}}".replace(" ", r"\ ")
    above = r"^{\top}" if transposed else ""
    return rf"{head}{above} \left( {', '.join(parts)} \right)"


def _power_of_power(e: Apply, i: int) -> bool:
    """A symbol with a prime, or an adjoint, needs brackets below a power."""
    part = e.args[i]
    return (
        e.op in ("^", "T")
        and i == 0
        and isinstance(part, Symbol)
        and bool(part.primes or part.adjoint or "°" in part.name)
    )
