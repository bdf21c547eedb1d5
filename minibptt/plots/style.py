"""What the figures have in common: colours, step numbers, names of symbols, saving. Read after ../contributions.py.

Colours are those of Okabe and Ito (2008), which colour-blind readers can tell apart; markers, line styles and hatches
carry the same difference in grey.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence, ValuesView
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..contributions import Contributions

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#555555"
PINK, YELLOW = "#CC79A7", "#E69F00"
HURTS = "----"  # the hatch of a bar that hurts
# One look for each line of a figure: colour, marker, line style.
LOOKS: list[tuple[str, str, Any]] = [
    (BLUE, "o", "-"),
    (ORANGE, "s", "--"),
    (GREEN, "^", "-."),
    ("black", "D", ":"),
    (PINK, "P", (0, (7, 2))),
    (YELLOW, "X", (0, (3, 1, 1, 1, 1, 1))),
]


def slide(height: float = 7.2, **options: Any) -> Figure:
    """An empty figure of a slide's width that belongs to no window."""
    return Figure(figsize=(12.8, height), **options)


def check_axes(what: str, ax: Any, numbers: Sequence[int] = (), why: str = "") -> None:
    """What was given as `ax` can be drawn into: None, for a new figure, or Axes of matplotlib.

    numbers: how many it may be, in any sequence; (): one, by itself. why: what the errors add. TypeError for anything
    else, ValueError for another number of them.
    """
    if ax is None:
        return
    several = flat(ax).tolist() if numbers else [ax]
    words = f"plots.{what} draws into {' or '.join(map(str, numbers)) or 'one'} Axes{why}"
    wrong = [one for one in several if not isinstance(one, Axes)]
    if wrong:
        raise TypeError(
            f"{words}: give ax=None for a new figure, or what matplotlib's subplots() returns; "
            f"found {type(wrong[0]).__name__}"
        )
    if numbers and len(several) not in numbers:
        raise ValueError(f"{words}; found {len(several)}")


def flat(ax: Any) -> np.ndarray:
    """Axes one after the other: of one, of any sequence or array of them, and of a dict's values()."""
    return np.ravel(np.array(list(ax) if isinstance(ax, ValuesView) else ax, object))


def check_takes(what: str, given: Any, kind: type, words: str) -> None:
    """TypeError where `given` is not what plots.`what` draws. words: what that is, such as "what mb.compare gives"."""
    if not isinstance(given, kind):
        found = f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
        raise TypeError(f"plots.{what} takes {words}; found {found}")


def numbered(T: int, most: int = 13) -> list[int]:
    """The steps of 1 … T that get a number: all of them, every other one, or 1 and the multiples of 5, 10, 20, …"""
    gaps = (gap * 10**power for power in range(9) for gap in (1, 2, 5))
    gap = next(gap for gap in gaps if gap * most >= T)
    return list(range(1, T + 1, gap)) if gap <= 2 else [1, *range(gap, T + 1, gap)]


def visible(symbol: str) -> str:
    """One symbol as something to look at: ␣ for a space, \\n for a new line, � for any other control character."""
    if symbol == " ":
        return "␣"
    if symbol.isprintable():
        return symbol
    escaped = repr(symbol)[1:-1]
    return escaped if len(escaped) == 2 else "�"


def signed_shares(c: Contributions) -> np.ndarray:
    """P[t, s]. ValueError where the full gradient is zero, or not finite, so that no pair has a share of it."""
    if not np.isfinite(c.share).all():
        found = "zero" if c.full.norm() == 0 else "not finite"
        raise ValueError(
            f"there is no share to draw: the full gradient is {found}. Take another batch or loss, or other weights"
        )
    return c.share


def bare(ax: Any, size: float = 12) -> None:
    """No frame at the top and at the right; step numbers that can be read from the last row."""
    ax.tick_params(labelsize=size)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def save(ax: Any, path: Any, dpi: int = 150) -> None:
    """Write the figure that `ax` (an Axes or an array of them) belongs to."""
    first: Any = ax if hasattr(ax, "figure") else next(iter(np.ravel(np.array(ax, object))), None)
    if not hasattr(first, "figure"):
        raise TypeError(f"plots.save takes what a function of plots returns, Axes; found {type(ax).__name__}")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name in letters that the font lacks
        first.figure.savefig(path, dpi=dpi)
