"""A derivation as aligned text, in Unicode or ASCII. Read after lines.py."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from ..listing import counted, printable
from .expressions import Number, text
from .lines import Block, Line

WIDTH, MARGIN = 100, 9


def heading(d: Any) -> list[str]:
    """What is derived, of which loss, with which cuts."""
    return [f"{d.title}, from the last step back", f"L = {text(d.formula)} = {text(d.value)}", d.cuts_in_words]


def right_side(line: Line, short: bool = False) -> str:
    """Everything to the right of the first relation. short: without what the note has in brackets."""
    right = " = ".join(dict.fromkeys(map(text, line.right)))
    note = line.note.split(" (")[0] if short else line.note
    right += f"   {note}" if note else ""
    said = line.total is None or (line.total == line.right[-1] and not isinstance(line.total, Number))
    return right if said else f"{right}   total\N{NO-BREAK SPACE}{text(line.total)}"  # type: ignore[arg-type]


def plain(d: Any, most: int = 40) -> str:
    """The whole derivation. most: blocks that are shown; of more, the first and the last ones."""
    lines = [*heading(d), ""]
    for block in some(d.blocks, most):
        lines += [block] if isinstance(block, str) else _block(block, block.lines)
    lines += [_set("", Line("cut", line.left, "=", line.right, f"✂ {line.note}"), 0)[0] for line in d.leading]
    return "\n".join(printable(line).rstrip() for line in [*lines, "", *wrapped(closing(d), 8)]).rstrip()


def closing(d: Any) -> str:
    """The sum of the terms."""
    return f"{text(d.wrt_adjoint)} = {' = '.join(dict.fromkeys(map(text, d.sum_of_terms)))}"


def some(blocks: Sequence[Block], most: int) -> list[Block | str]:
    """At most so many blocks, and a line where some are left out."""
    if len(blocks) <= most:
        return list(blocks)
    half = most // 2
    return [*blocks[:half], f"… {counted(len(blocks) - 2 * half, 'step')} left out …", *blocks[-half:]]


def wrapped(line: str, indent: int, width: int = WIDTH) -> list[str]:
    """A line in pieces of at most `width`, the later ones indented; not broken inside brackets where that can be."""
    tied, round_, square = "", 0, 0
    for scissors in ("✂", "8<"):
        line = line.replace(f"{scissors} ", f"{scissors}\N{NO-BREAK SPACE}")
    for i, character in enumerate(line):
        round_ += (character == "(") - (character == ")")
        square += (character == "[") - (character == "]")
        inside = round_ > 0 or (square > 0 and line[i - 1] != ",")
        tied += "\N{NO-BREAK SPACE}" if character == " " and inside else character
    for candidate in (tied, line):
        pieces = textwrap.wrap(
            candidate, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
        )
        if all(len(piece) <= width for piece in pieces):
            break
    return [piece.replace("\N{NO-BREAK SPACE}", " ") for piece in pieces]


def _set(margin: str, line: Line, width: int) -> list[str]:
    """A line with its left side flush right, so that the relations stand below each other."""
    head = f"{margin:{MARGIN}}{printable(text(line.left)):>{width}} {printable(line.relation)} "
    room = max(30, WIDTH - len(head))
    first, *rest = wrapped(printable(right_side(line)), 2, room) or [""]
    return [head + first, *[" " * len(head) + more for more in rest]]


def _block(block: Block, lines: Sequence[Line]) -> list[str]:
    width = max([len(printable(text(line.left))) for line in lines], default=0)
    out = []
    title = block.title if len(block.title) < MARGIN else ""
    if not title:
        out.append(block.title)
    for note in block.notes:
        out += wrapped(f"{title:{MARGIN}}{note}", MARGIN)
        title = ""
    for line in lines:
        out += _set(title, line, width)
        title = ""
    return out


def beside(left: Any, right: Any, titles: tuple[str, str], most: int = 40) -> str:
    """Two derivations of one gradient: what they share over the whole width, what differs in two columns."""
    column = (WIDTH - MARGIN - 3) // 2
    out = [*heading(left)[:2], "", _columns(titles[0], titles[1], column)[0], ""]
    for a, b in zip_longest(some(left.blocks, most), some(right.blocks, most)):
        out += _pair(a, b, column) if isinstance(a, Block) and isinstance(b, Block) else [str(a)]
    out += ["", *_columns(closing(left), closing(right), column)]
    return "\n".join(line.rstrip() for line in out)


def _pair(a: Block, b: Block, column: int) -> list[str]:
    known = {(line.kind, text(line.left)): line for line in b.lines}
    ours = {(line.kind, text(line.left)) for line in a.lines}
    width = max([len(printable(text(line.left))) for line in [*a.lines, *b.lines] if line.kind in _SHARED], default=0)
    out: list[str] = [*wrapped(f"{a.title:{MARGIN}}{'; '.join(a.notes)}", MARGIN)] if a.notes else []
    title = "" if a.notes else a.title
    pairs = [(line, known.get((line.kind, text(line.left)))) for line in a.lines]
    pairs += [(None, line) for line in b.lines if (line.kind, text(line.left)) not in ours]  # type: ignore[misc]
    for one, other in pairs:
        if one is not None and (one == other or one.kind in _SHARED):
            out += _set(title, one, width)
        else:
            texts = [
                "" if line is None else f"{text(line.left)} {line.relation} {right_side(line, True)}"
                for line in (one, other)
            ]
            out += _columns(texts[0], texts[1], column, title)
        title = ""
    return out


_SHARED = frozenset(("equation", "where", "local"))


def _columns(left: str, right: str, column: int, title: str = "") -> list[str]:
    sides = [wrapped(printable(" ".join(side.split())), 4, column) for side in (left, right)]
    lines = [f"{printable(a):{column}} | {b}" for a, b in zip_longest(*sides, fillvalue="")]
    return [f"{title if not i else '':{MARGIN}}{line}".rstrip() for i, line in enumerate(lines)]
