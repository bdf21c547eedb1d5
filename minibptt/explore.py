"""The page "what does your k throw away?": one HTML file that needs no server, no network and no other file.

What it holds of each moment of training is in stored.py; what it does with it is in page/, plain HTML, CSS and
JavaScript (read page.html, schedule.js, pairs.js, triangle.js, page.js). Here they are put together. Texts are data,
never markup: they stand in JSON in which <, > and & are escaped, the page writes them as text only, and its
Content-Security-Policy allows one script and one style sheet, by their hashes, and nothing from anywhere else.
Read after stored.py.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .contributions import Contributions
from .module import check_number, check_path, unwritable

SCRIPTS = ("schedule.js", "pairs.js", "words.js", "settings.js", "triangle.js", "charts.js", "page.js")
MOST_BYTES = 2_000_000  # of a preset
MOST_STEPS = 256  # of which a cell can still be told from its neighbours

STORED = {
    "full": "Stored is what is needed to work out every truncated gradient, whole and by part; it grows with T².",
    "all": "Stored is a factor Z of the Gram matrix of all pairs, K = ZZᵀ, which grows with T⁴, and of single parts "
    "only the shares: with more, this example would pass {most:.1f} MB.",
    "shares": "Stored are the shares alone: what is needed for cosine, norm ratio, error and variance would pass "
    "{most:.1f} MB. A shorter sequence or fewer rows would fit.",
}


@dataclass(frozen=True)
class Preset:
    """One example of the page.

    moments: the contributions by what their moment of training is called, in its order; all of the same T. symbols,
    targets: T strings each, or one string of T characters, the input and the target of each step; "" for none.
    about: a sentence or two. start: settings to begin with, of {moment, part, scheme, k1, k2, tied, offset, losses, p}.
    """

    name: str
    moments: Mapping[str, Contributions]
    symbols: Sequence[str] = ""
    targets: Sequence[str] = ""
    about: str = ""
    start: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.moments, Mapping):
            raise TypeError(f"the moments of a preset are a dict of contributions, found {type(self.moments).__name__}")
        for c in self.moments.values():
            if not isinstance(c, Contributions):
                raise TypeError(f"the moments of a preset are made by contributions(…), found {type(c).__name__}")
        for name, text in (("name", self.name), ("about", self.about)):
            if not isinstance(text, str):
                raise TypeError(f"{name} must be a string, found {text!r}")
        lengths = {c.T for c in self.moments.values()}
        if len(lengths) != 1:
            raise ValueError(f"the moments of a preset must have one T, found {sorted(lengths) or 'no moment'}")
        (T,) = lengths
        if T > MOST_STEPS:
            raise ValueError(f"the page shows at most {MOST_STEPS} steps, found T = {T}: take a shorter sequence")
        for name, given in (("symbols", self.symbols), ("targets", self.targets)):
            if not hasattr(given, "__len__"):
                raise TypeError(f"{name} must be T = {T} strings, or left out; found {given!r}")
            if len(given) not in (0, T) or not all(isinstance(one, str) for one in given):
                raise ValueError(f"{name} must be T = {T} strings, found {len(given)} of {type(given).__name__}")

    @property
    def T(self) -> int:
        """Steps."""
        return next(iter(self.moments.values())).T


def explore(
    c: Contributions | Mapping[str, Contributions] | Sequence[Preset],
    path: str | Path,
    *,
    symbols: Sequence[str] = "",
    targets: Sequence[str] = "",
    name: str = "this model",
    about: str = "",
    most_bytes: int = MOST_BYTES,
) -> Path:
    """Write the page of `contributions(…)`, of several moments of training by name, or of presets; returns the path.

    symbols, targets, name, about: as for `Preset`. most_bytes: of each preset in the file; what does not fit is left
    out, first the gradients of single parts, then all but the shares, and the page says so.
    ValueError where not even the shares fit, for a full gradient of zero, for symbols that are not T strings, and for a
    path that cannot be written to.
    """
    path = _checked_path(path)
    check_number("explore: most_bytes", most_bytes, above=True)
    if isinstance(c, Contributions):
        c = {"": c}
    given: Any = c.values() if isinstance(c, Mapping) else c
    if not isinstance(given, Iterable) or isinstance(given, str):
        raise TypeError(
            f"explore takes mb.contributions(…), several of them by name, or presets; found {type(c).__name__}"
        )
    wanted = Contributions if isinstance(c, Mapping) else Preset
    given = list(given)
    for one in given:
        if not isinstance(one, wanted):
            hint = "; for several moments give a dict of them by name" if isinstance(one, Contributions) else ""
            raise TypeError(f"explore: expected {wanted.__name__}, found {type(one).__name__}{hint}")
    presets = [Preset(name, c, symbols, targets, about)] if isinstance(c, Mapping) else given
    if not presets:
        raise ValueError("there is no preset to show")
    text = page(presets, most_bytes)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ValueError(f"explore: cannot write to {path}: {error.strerror}. Give another path") from error
    return path


def _checked_path(path: Any) -> Path:
    check_path("explore: the path", path)
    path = Path(path)
    why = unwritable(path)
    if why:
        raise ValueError(f"explore: cannot write to {path}: {why}")
    return path


def page(presets: Sequence[Preset], most_bytes: int = MOST_BYTES) -> str:
    """The whole page as text."""
    from importlib.resources import files  # here, as below, so that `import minibptt` stays quick

    folder = files(__package__) / "page"
    read = {name: (folder / name).read_text(encoding="utf-8") for name in ("page.html", "style.css", *SCRIPTS)}
    script, style = "".join([as_one(read[name]) for name in SCRIPTS]), read["style.css"]
    heads = [{"name": p.name, "T": p.T, "moments": len(p.moments), "start": dict(p.start)} for p in presets]
    data = [as_data("presets", heads)]
    data += [as_data(f"preset-{i}", _content(preset, most_bytes)) for i, preset in enumerate(presets)]
    fields = {
        "policy": f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        "form-action 'none'",
        "title": html.escape("What does your k throw away?"),
        "style": style,
        "script": script,
        "data": "\n".join(data),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda field: fields[field[1]], read["page.html"])


def as_one(module: str) -> str:
    """A JavaScript module as part of one script: names are shared, so its imports go, and the word export."""
    without = re.sub(r"^import [^;]*;\n", "", module, flags=re.MULTILINE)
    return re.sub(r"^export (?=const |function |class )", "", without, flags=re.MULTILINE)


def as_data(name: str, value: Any) -> str:
    """A value as JSON in an element that no browser runs, in ASCII, with nothing in it that could end the element."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return f'<script type="application/json" id="{html.escape(name)}">{text}</script>'


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _content(preset: Preset, most_bytes: int) -> dict[str, Any]:
    from .stored import store

    most = most_bytes // len(preset.moments)
    moments = [{"label": label, **store(c, most)} for label, c in preset.moments.items()]
    worst = max((str(moment["level"]) for moment in moments), key=list(STORED).index)
    return {
        "T": preset.T,
        "about": preset.about,
        "symbols": list(preset.symbols) or None,
        "targets": list(preset.targets) or None,
        "stored": STORED[worst].format(most=most_bytes / 1e6),
        "moments": moments,
    }
