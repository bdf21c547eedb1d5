"""What commands write: lines that any terminal can show, and a folder that is written as a whole or not at all.

Read after ../listing.py.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import tempfile
from collections.abc import Collection, Iterator
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from ..listing import printable


def say(text: str, end: str = "\n") -> None:
    """Print in what the terminal can show; a reader who has closed the pipe does not stop the work."""
    try:
        print(printable(text), end=end, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def shown(path: Any) -> str:
    """A path as text that can be written anywhere, whatever bytes the file's name has."""
    return os.fsencode(path).decode("utf-8", "replace")


def version(package: str) -> str:
    try:
        return installed(package)
    except PackageNotFoundError:
        return "not installed"


def check_file(option: str, path: Path) -> None:
    """ValueError where a file could not be written: said before the work that it is to hold, and not after it."""
    start = f"{option} {shown(path)} cannot be written"
    if os.path.isdir(path):  # which raises nothing, whatever the path is
        raise ValueError(f"{start}: it is a folder. Give the name of a file, as {shown(path / 'results.json')}")
    if not os.path.isdir(path.parent):
        raise ValueError(f"{start}: there is no folder {shown(path.parent)}. Give a file in a folder that is there")
    try:
        if not path.exists():
            path.touch()
            path.unlink()
        elif not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise ValueError(f"{start}: {error.strerror}. Give a file in another folder") from None


@contextlib.contextmanager
def output_folder(out: Path, own: Collection[str]) -> Iterator[Path]:
    """A folder to write into; what it holds is moved to `out` at the end, and only if all went well.

    own: every file name that the command may write; those that an earlier run left and this one did not write are
    removed, for they would look like one set with the new ones.
    """
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    if out.exists() and not out.is_dir():
        raise ValueError(f"cannot write to the folder {shown(out)}: it is a file. Give a folder")
    blocked = [name for name in sorted(own) if (out / name).is_dir()]
    if blocked:
        raise ValueError(f"cannot write {shown(out / blocked[0])}: a folder of that name is there")
    try:
        out.mkdir(parents=True, exist_ok=True)
        staging = tempfile.TemporaryDirectory(dir=out, prefix=".unfinished-")
    except OSError as error:
        raise ValueError(f"cannot write to the folder {shown(out)}: {error.strerror}") from None
    try:
        with staging as name:
            yield Path(name)
            new = sorted(path.name for path in Path(name).iterdir())
            for file in new:
                os.replace(Path(name) / file, out / file)
            for stale in set(own) - set(new):
                (out / stale).unlink(missing_ok=True)
    finally:
        for folder in made:  # after a failure: leave no empty folder that was not there before
            with contextlib.suppress(OSError):
                folder.rmdir()
