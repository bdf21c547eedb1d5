"""A derivation as HTML: a fragment for a notebook, or a page. Read after text.py.

Steps fold (<details>); each line is a row of a table, whose header is its left side. Colours come from the page around
it, so that it shows in light and in dark.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Any

from .expressions import text
from .lines import Block, Line
from .text import closing, right_side, some

_STYLE = """<style>
.minibptt-derivation { font: 14px/1.6 system-ui, sans-serif; max-width: 100%; overflow-x: auto; }
.minibptt-derivation table { border-collapse: collapse; margin: .2em 0 .6em 1em; background: transparent; }
.minibptt-derivation th, .minibptt-derivation td { border: 0; padding: .1em .4em; vertical-align: top;
  text-align: left; font: 14px/1.6 ui-monospace, "DejaVu Sans Mono", monospace;
  background: transparent; color: inherit; }
.minibptt-derivation th { text-align: right; white-space: nowrap; font-weight: normal; }
.minibptt-derivation tr.term th, .minibptt-derivation tr.term td { font-weight: bold; }
.minibptt-derivation tr.where th, .minibptt-derivation tr.where td, .minibptt-derivation .aside { opacity: .8; }
.minibptt-derivation tr.cut, .minibptt-derivation tr.mended { outline: 1px dashed currentColor; }
.minibptt-derivation tr.cut { background: rgba(214, 94, 0, .16); }
.minibptt-derivation summary { cursor: pointer; font-weight: bold; }
.minibptt-derivation summary .aside { font-weight: normal; }
.minibptt-derivation .pair { display: flex; flex-wrap: wrap; gap: 0 2em; }
.minibptt-derivation .pair > * { flex: 1 1 28em; min-width: 0; }
.minibptt-derivation sub { font-size: .75em; line-height: 0; }
.minibptt-derivation .scissors { font-family: "DejaVu Sans", "Segoe UI Symbol", sans-serif; }
</style>"""


def fragment(d: Any) -> str:
    """For a notebook."""
    said = f"{_loss(d)}. {d.cuts_in_words}."
    head = f"<p><strong>{_shown(d.title)}</strong>, from the last step back. {_shown(said)}</p>"
    blocks = [_folded(b, _summary(b), _table(b)) for b in some(d.blocks, 60)]
    leading = [_table_of(d.leading, "before the tape")] if d.leading else []
    return _wrapped([head, *blocks, *leading, f"<p><strong>{_shown(closing(d))}</strong></p>"])


def pair(left: Any, right: Any, titles: tuple[str, str]) -> str:
    """Two derivations of one gradient side by side, step by step."""
    head = f"<p><strong>{_shown(left.title)}</strong>, from the last step back. {_shown(_loss(left))}.</p>"
    rows = [_side_by_side(*[f"<p><strong>{_shown(t)}</strong></p>" for t in titles])]
    for a, b in zip(some(left.blocks, 60), some(right.blocks, 60)):
        rows.append(_folded(a, "", _side_by_side(_table(a), _table(b))))
    rows.append(_side_by_side(*[f"<p><strong>{_shown(closing(d))}</strong></p>" for d in (left, right)]))
    return _wrapped([head, *rows])


def page(body: str, title: str) -> str:
    """A page of its own, light or dark as the reader's system is."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
        f"<title>{html.escape(title)}</title></head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _wrapped(parts: Sequence[str]) -> str:
    return "\n".join(['<div class="minibptt-derivation">', _STYLE, *parts, "</div>"])


def _side_by_side(a: str, b: str) -> str:
    return f'<div class="pair"><div>{a}</div><div>{b}</div></div>'


def _loss(d: Any) -> str:
    return f"L = {text(d.formula)} = {text(d.value)}"


def _folded(block: Block | str, aside: str, body: str) -> str:
    if isinstance(block, str):
        return f"<p>{_shown(block)}</p>"
    aside = f' <span class="aside">{_shown(aside)}</span>' if aside else ""
    return f"<details open><summary>{_shown(block.title)}{aside}</summary>{body}</details>"


def _total(block: Block | str) -> str:
    totals = [line.total for line in block.lines if line.total is not None] if isinstance(block, Block) else []
    return f"running total {text(totals[-1])}" if totals else ""


def _summary(block: Block | str) -> str:
    """What a folded step still says: its term and the total."""
    terms = [line for line in block.lines if line.kind == "term"] if isinstance(block, Block) else []
    said = [f"adds {text(line.right[-1])}" for line in terms]
    return "; ".join([*said, _total(block)] if said else [])


def _table(block: Block | str) -> str:
    if isinstance(block, str):
        return ""
    notes = "".join(f"<p>{_shown(note)}</p>" for note in block.notes)
    return notes + _table_of(block.lines, block.title)


def _table_of(lines: Sequence[Line], title: str) -> str:
    if not lines:
        return ""
    rows = [
        f'<tr class="{_kind(line)}"><th scope="row">{_shown(text(line.left))}</th>'
        f"<td>{_shown(line.relation)}</td><td>{_shown(_right(line))}</td></tr>"
        for line in lines
    ]
    return f'<table aria-label="{html.escape(title)}">{"".join(rows)}</table>'


def _kind(line: Line) -> str:
    return "mended" if line.kind == "cut" and "✂" not in line.note else line.kind


def _right(line: Line) -> str:
    return right_side(line).replace("   ", "\N{NO-BREAK SPACE}\N{NO-BREAK SPACE} ")


def _shown(words: str) -> str:
    """Any text, escaped, with steps as real subscripts."""
    digits = str.maketrans("₀₁₂₃₄₅₆₇₈₉₋", "0123456789-")
    words = re.sub("[₀-₉₋]+", lambda m: f"<sub>{m[0].translate(digits)}</sub>", html.escape(words))
    return words.replace("✂", '<span class="scissors" role="img" aria-label="cut">✂</span>')
