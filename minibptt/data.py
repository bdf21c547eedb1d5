"""Real data that is there without a download: texts, Python source with its token types, small images of digits.

It needs no other file.
"""

from __future__ import annotations

import io
import tokenize
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from .module import check_path, check_size

# Modules of plain Python that have been there for long and stay; read one after the other, in this order.
_MODULES = [
    "argparse",
    "textwrap",
    "difflib",
    "calendar",
    "configparser",
    "csv",
    "dataclasses",
    "doctest",
    "fractions",
    "gettext",
    "heapq",
    "inspect",
]


LABELS = ("space", "name", "number", "string", "comment", "operator")  # space: whatever is no token, too


class TaskError(ValueError):
    """A task that cannot be made from what was given: one line that says what was found and what to do."""


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file. TaskError where it is missing, empty, a folder, binary or in another encoding."""
    check_path("read_text: the path", path)
    path = Path(path)
    try:
        with open(path, "rb") as file:
            data = file.read(2**16)
            if b"\0" not in data:  # a device such as /dev/zero has no end
                data += file.read()
    except FileNotFoundError:
        raise TaskError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise TaskError(f"{path} is a folder; a text file is needed") from None
    except OSError as error:
        raise TaskError(f"{path} cannot be read: {error.strerror}") from None
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TaskError(f"{path} is UTF-16. Save it as UTF-8 first")
    if b"\0" in data:
        raise TaskError(f"{path} is not a text file: it has a zero byte at {data.index(0)}")
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise TaskError(
            f"{path} is not UTF-8: byte {data[error.start]:#04x} at {error.start}. Save it as UTF-8 first"
        ) from None
    if not text:
        raise TaskError(f"{path} is empty")
    return text


def standard_library(characters: int = 500_000) -> str:
    """The source of Python's own standard library, its first `characters` characters.

    It is asked from the modules' loaders, so it is found where the library is zipped too. The numbers that a
    model gives on it depend on the Python version.
    """
    check_size("standard_library", characters=characters)
    found, size = [], 0
    for name in _MODULES:
        spec = find_spec(name)
        source = getattr(spec.loader, "get_source", lambda name: None)(name) if spec and spec.loader else None
        if source:
            found.append(source)
            size += len(source)
        if size >= characters:
            break
    if not found:
        raise TaskError("this Python has its standard library without source; give a text with --text FILE")
    return "\n".join(found)[:characters]


def frozen_text() -> str:
    """Prose and code of this project as they once were, in ASCII: a text that never changes again, the same everywhere.

    It is part of the package, and under its licence. The numbers of the lessons come from it; for real work take a text
    of your own.
    """
    from importlib.resources import files

    return files(__package__).joinpath("frozen.txt").read_text(encoding="ascii")


def token_labels(text: str) -> tuple[str, np.ndarray]:
    """(text, labels): Python source and for each character the place in LABELS of the token that it belongs to.

    Keywords are names, and an f-string is one string with all that is inside it, on every Python version. The text
    ends before the first thing that the standard tokenizer cannot read, such as a string that does not end.
    """
    starts = np.cumsum([0, *(len(line) + 1 for line in text.split("\n"))])
    labels = np.zeros(len(text), int)
    kinds = {tokenize.NAME: 1, tokenize.NUMBER: 2, tokenize.STRING: 3, tokenize.COMMENT: 4, tokenize.OP: 5}
    done, outer, depth = 0, 0, 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            first, last = [int(starts[row - 1]) + column for row, column in (token.start, token.end)]
            kind = tokenize.tok_name[token.type]
            if kind in ("FSTRING_START", "TSTRING_START"):  # from Python 3.12 on
                outer = outer if depth else first
                depth += 1
            elif kind in ("FSTRING_END", "TSTRING_END"):
                depth -= 1
                labels[outer:last] = 3
            elif not depth:
                labels[first:last] = kinds.get(token.type, 0)
            if not depth:
                done = min(last, len(text))
    except (tokenize.TokenError, SyntaxError):
        return text[:done], labels[:done]
    return text, labels


def digits() -> tuple[np.ndarray, np.ndarray]:
    """(images (N, 8, 8) in float32 from 0 to 1, classes (N,)) of scikit-learn's digits, which it carries with it.

    TaskError where scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise TaskError("the images of digits come with scikit-learn: pip install 'minibptt[digits]'") from None
    data = load_digits()
    return (data.images / 16).astype(np.float32), np.asarray(data.target, int)
