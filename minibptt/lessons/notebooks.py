"""The course's notebooks: where they are, what they are called, copying them, and reading the code of any notebook.

It needs no other file.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSIONS = ("student", "instructor")
INSTALL = "minibptt"  # what pip is asked for in the first cell on Colab
_NUMBER = re.compile(r"(\d\d)_\w+")


def folder() -> Path:
    """The folder lessons/, in an installed package or at the top of a clone. FileNotFoundError where neither is."""
    package = Path(__file__).resolve().parent
    for place in (package / "files", package.parents[1] / "lessons"):
        if (place / "student").is_dir():
            return place
    raise FileNotFoundError("the lessons are not part of this installation; install minibptt again, with pip")


@dataclass(frozen=True)
class Lesson:
    """A lesson in the folder. number: 2; name: "02_linear_by_hand"; minutes: for one who does the exercises."""

    number: int
    name: str
    title: str
    minutes: int | None
    gpu: bool

    def path(self, version: str) -> Path:
        """The notebook, for students or for instructors."""
        return folder() / version / f"{self.name}.ipynb"


def lessons() -> list[Lesson]:
    """All lessons, in order."""
    found = []
    for path in sorted((folder() / "student").glob("*.ipynb")):
        notebook = read(path)
        about = notebook["metadata"]["minibptt"]
        gpu = "accelerator" in notebook["metadata"]
        found.append(Lesson(int(about["lesson"]), path.stem, about["title"], about.get("minutes"), gpu))
    return found


def copy(out: Path, version: str = "student", install: str = INSTALL) -> tuple[list[Path], list[Path]]:
    """Write the notebooks of one version into the folder `out`: (written, left as they were because they are there).

    install: what their first cell gives to pip on Colab, if not the package by its name.
    """
    if version not in VERSIONS:
        raise ValueError(f"version must be {' or '.join(VERSIONS)}, found {version!r}")
    if out.exists() and not out.is_dir():
        raise ValueError(f"cannot copy the lessons to {out}: it is a file. Give a folder")
    out.mkdir(parents=True, exist_ok=True)
    written, left = [], []
    for lesson in lessons():
        target = out / f"{lesson.name}.ipynb"
        if target.exists():
            left.append(target)
            continue
        text = lesson.path(version).read_text(encoding="utf-8")
        if install != INSTALL:
            text = text.replace(_given_to_pip(INSTALL), _given_to_pip(install))
        temporary = target.with_suffix(".part")
        temporary.write_text(text, encoding="utf-8", newline="\n")
        os.replace(temporary, target)
        written.append(target)
    return written, left


def _given_to_pip(install: str) -> str:
    """The end of the first cell's command, as it stands in the notebook's JSON; the bare name stands elsewhere too."""
    return json.dumps(f'"-q", {json.dumps(install)}]')[1:-1]


class NoNotebook(ValueError):
    """A file that cannot be read as a notebook: one line that says why."""


def read(path: Path) -> dict[str, Any]:
    """A notebook of format 4 as it is in its file. NoNotebook where it is none."""
    try:
        notebook = json.loads(path.read_bytes())
    except OSError as error:
        raise NoNotebook(f"cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise NoNotebook(f"is not a notebook: it is not JSON ({type(error).__name__})") from None
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise NoNotebook("is not a notebook: it has no list of cells (format 4 is needed)")
    if not all(isinstance(cell, dict) and _source(cell) is not None for cell in notebook["cells"]):
        raise NoNotebook("is not a notebook: a cell has no source")
    if not isinstance(notebook.get("metadata"), dict):
        notebook["metadata"] = {}
    return notebook


def code_of(notebook: dict[str, Any]) -> list[tuple[int, str]]:
    """(place of the cell, counted from 1, its code) for every code cell; what only Jupyter understands is left out."""
    cells = enumerate(notebook["cells"], 1)
    return [(place, _plain(_source(cell) or "")) for place, cell in cells if cell.get("cell_type") == "code"]


def lesson_of(notebook: dict[str, Any], path: Path) -> int | None:
    """Which lesson a notebook is, by its metadata, the checks that it calls, or its file's name; None: unknown."""
    about = notebook["metadata"].get("minibptt")
    if isinstance(about, dict) and str(about.get("lesson", "")).isdigit():
        return int(about["lesson"])
    calls = re.findall(r"check\.exercise\(\s*[\"'](\d+)\.\d+", "\n".join(code for _, code in code_of(notebook)))
    if calls:
        return int(calls[0])
    name = _NUMBER.search(path.stem)
    return int(name[1]) if name else None


def _source(cell: dict[str, Any]) -> str | None:
    source = cell.get("source")
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        return "".join(source)
    return source if isinstance(source, str) else None


def _plain(code: str) -> str:
    """Code without magics and shell commands: `%matplotlib inline` becomes `pass`, a cell of `%%bash` nothing."""
    first = code.lstrip().split("\n", 1)[0]
    if first.startswith("%%"):
        if not first.startswith(("%%time", "%%capture")):
            return ""
        code = code.replace(first, "", 1)
    return re.sub(r"^(\s*)[%!].*$", r"\1pass", code, flags=re.MULTILINE)
