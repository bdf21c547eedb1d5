"""How results become tables: lines that keep to a width, HTML, CSV and JSON. Read after listing.py."""

from __future__ import annotations

import csv
import html
import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .listing import columns, printable
from .module import check_path


@dataclass(frozen=True)
class Spread:
    """A figure over the offsets of a schedule: its mean, its least and its largest value."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.fmean(values), min(values), max(values))


def blocks(head: Sequence[str], body: Sequence[Sequence[str]], width: int, first: int = 1) -> list[str]:
    """A table as lines of at most `width` characters where that can be; numbers flush right.

    Columns that do not fit go on in a further block below, an empty line between, where the first ones stand again.
    """
    rows = [tuple(map(printable, row)) for row in [head, *body]]
    widths = [max(map(len, column)) for column in zip(*rows)]
    groups: list[list[int]] = [[]]
    for i in range(first, len(head)):
        if groups[-1] and sum(widths[j] + 2 for j in [*range(first), *groups[-1], i]) - 2 > width:
            groups.append([])
        groups[-1].append(i)
    lines: list[str] = []
    for group in groups:
        chosen = [*range(first), *group]
        block = columns([tuple([row[i] for i in chosen]) for row in rows], right=tuple(range(1, len(chosen))))
        lines += [*([""] if lines else []), block[0], "─" * max(map(len, block)), *block[1:]]
    return lines


def html_table(head: Sequence[str], body: Sequence[Sequence[str]], caption: str) -> str:
    """A table with its caption; the first cell of each row is its head."""
    th = "".join(f'<th scope="col">{html.escape(c)}</th>' for c in head)
    trs = []
    for first, *rest in body:
        tds = "".join(f"<td>{html.escape(c)}</td>" for c in rest)
        trs.append(f'<tr><th scope="row">{html.escape(first)}</th>{tds}</tr>')
    caption = html.escape(caption)
    return f"<table><caption>{caption}</caption><thead><tr>{th}</tr></thead><tbody>{''.join(trs)}</tbody></table>"


def shown(s: Spread, measure: str, bare: bool = False) -> str:
    """The mean, and unless `bare` the range where there is one; a small error keeps two digits."""

    def text(v: float) -> str:
        if math.isnan(v):
            return "–"
        return f"{v:.2g}" if measure == "error" and 0 < abs(v) < 0.01 else f"{v:.3f}"

    if math.isnan(s.mean) or bare or s.low == s.high:
        return text(s.mean)
    return f"{text(s.mean)} [{text(s.low)} … {text(s.high)}]"


def in_bytes(n: int | None) -> str:
    if n is None:
        return "–"
    return f"{n / 2**20:.1f} MiB" if n >= 2**20 else f"{n / 2**10:.0f} KiB"


def in_ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:.0f} ms"


def known(what: str, found: str, names: Iterable[str]) -> str:
    """`found`, where it is one of the names. ValueError otherwise."""
    names = list(names)
    if found not in names:
        raise ValueError(f"{what} must be one of {', '.join(map(repr, names))}; found {found!r}")
    return found


def number(v: float) -> str:
    """A number in full for a CSV file; empty where it is not finite."""
    return repr(v) if math.isfinite(v) else ""


def nulls(data: Any) -> Any:
    """Any nesting of dicts, lists and tuples of numbers for JSON, with None for what is not a finite number."""
    if isinstance(data, dict):
        return {key: nulls(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [nulls(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def write_csv(path: str | Path, head: Sequence[str], lines: Iterable[Sequence[Any]]) -> None:
    check_path("the path", path)
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *lines])


def write_json(path: str | Path, data: Any, indent: int | None = None) -> None:
    check_path("the path", path)
    text = json.dumps(data, indent=indent, ensure_ascii=False, allow_nan=False, default=str)
    Path(path).write_text(text + "\n", encoding="utf-8")
