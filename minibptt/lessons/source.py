"""Lessons from their sources: `minibptt lessons build`. For those who write lessons; needs the extra `lessons`.

A source is lessons/NN_name.py in percent format, a Python file that runs from top to bottom:

    # %% [markdown] minutes=40       the first cell; gpu=true asks Colab for a GPU
    # # 2. A linear RNN by hand      its first line is the title
    # %% exercise="2.1"              for students: functions that raise NotImplementedError("Exercise 2.1: …")
    # %% solution="2.1"              for instructors, in the place of the stub right before it
    # %% [markdown] teacher=true     for instructors only
    # %%                             for both

A first cell that installs the package on Colab is put before them. The same source gives the same bytes.
Read after notebooks.py.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

from .notebooks import INSTALL, VERSIONS

_NAME = re.compile(r"(\d\d)_[a-z0-9_]+")
KNOWN = {"minutes", "gpu", "exercise", "solution", "teacher"}
COLAB = f"""# Installs the package, on Colab only. While it is not on PyPI: minibptt lessons copy DIR --install git+URL
import importlib.util
import subprocess
import sys

if "google.colab" in sys.modules and importlib.util.find_spec("minibptt") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "{INSTALL}"], check=True)"""


class SourceError(ValueError):
    """A source that is not as the top of this file says: the file, the cell and what is wrong."""


def sources(folder: Path) -> list[Path]:
    """The sources in a folder, in order."""
    return sorted(path for path in folder.glob("*.py") if _NAME.fullmatch(path.stem))


def built(path: Path) -> dict[str, str]:
    """{"student": the notebook's text, "instructor": …} of one source. SourceError, or ImportError without jupytext."""
    nbformat, cells = _cells(path)
    paired = _paired(cells, path.name)
    first = cells[0].metadata
    number, title = path.stem[:2], cells[0].source.split("\n")[0].lstrip("# ").strip()
    if cells[0].cell_type != "markdown" or not title.startswith(f"{int(number)}. "):
        raise SourceError(f'{path.name}: the first cell must be markdown and start with "# {int(number)}. Title"')
    notebooks = {}
    for version in VERSIONS:
        about = {"lesson": number, "title": title.split(". ", 1)[1], "version": version}
        metadata: dict[str, Any] = {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
            "minibptt": about | ({"minutes": first["minutes"]} if "minutes" in first else {}),
        }
        if any(cell.metadata.get("gpu") for cell in cells):
            metadata |= {"accelerator": "GPU", "colab": {"gpuType": "T4"}}
        notebook = nbformat.v4.new_notebook(metadata=metadata)
        for place, (stub, solution) in enumerate([(None, None), *paired]):
            cell = nbformat.v4.new_code_cell(COLAB) if stub is None else stub
            if version == "instructor" and solution is not None:
                cell = solution
            if version == "student" and cell.metadata.get("teacher"):
                continue
            exercise = cell.metadata.get("exercise") or cell.metadata.get("solution")
            new = nbformat.v4.new_code_cell if cell.cell_type == "code" else nbformat.v4.new_markdown_cell
            about = {"minibptt": {"exercise": exercise}} if exercise else {}
            notebook.cells.append(new(cell.source, metadata=about, id=f"lesson-{number}-{place:03d}"))
        nbformat.validate(notebook)
        notebooks[version] = nbformat.writes(notebook, version=nbformat.NO_CONVERT) + "\n"
    return notebooks


def build(folder: Path) -> tuple[list[Path], list[Path]]:
    """Make the notebooks of all sources: (those that are new or changed, those without a source, which are removed)."""
    changed, stale = differing(folder)
    for path, text in changed.items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode())
    for path in stale:
        path.unlink()
    return list(changed), stale


def differing(folder: Path) -> tuple[dict[Path, str], list[Path]]:
    """({notebook that is not as its source says: what it should be}, notebooks without a source)."""
    made = {
        folder / version / f"{path.stem}.ipynb": text
        for path in sources(folder)
        for version, text in built(path).items()
    }
    changed = {path: text for path, text in made.items() if not path.exists() or path.read_bytes() != text.encode()}
    there = [path for version in VERSIONS for path in sorted((folder / version).glob("*.ipynb"))]
    return changed, [path for path in there if path not in made]


def _cells(path: Path) -> tuple[Any, list[Any]]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # theirs, at import
            import jupytext
            import nbformat
    except ImportError:
        raise ImportError("making notebooks needs jupytext: pip install 'minibptt[lessons]'") from None
    cells = jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent").cells
    if not cells:
        raise SourceError(f"{path.name} has no cells")
    for cell in cells:
        cell.metadata.pop("lines_to_next_cell", None)  # jupytext's own
        unknown = sorted(set(cell.metadata) - KNOWN)
        if unknown:
            raise SourceError(f"{path.name}: a cell says {unknown[0]}; known are {', '.join(sorted(KNOWN))}")
    return nbformat, cells


def _paired(cells: list[Any], file: str) -> list[tuple[Any, Any]]:
    """(cell, None) for a cell of both versions, (stub, solution) for an exercise."""
    pairs: list[tuple[Any, Any]] = []
    for cell in cells:
        solves, stub = cell.metadata.get("solution"), pairs[-1][0] if pairs else None
        if solves is None:
            pairs.append((cell, None))
        elif stub is None or stub.metadata.get("exercise") != solves or pairs[-1][1] is not None:
            raise SourceError(f"{file}: the solution of exercise {solves} must come right after its stub")
        else:
            pairs[-1] = (stub, cell)
    for stub, solution in pairs:
        name = stub.metadata.get("exercise")
        if name is not None and solution is None:
            raise SourceError(f"{file}: exercise {name} has no solution cell right after it")
        if name is not None and f'NotImplementedError("Exercise {name}: ' not in stub.source:
            raise SourceError(
                f'{file}: the stub of exercise {name} must raise NotImplementedError("Exercise {name}: …")'
            )
    return pairs
