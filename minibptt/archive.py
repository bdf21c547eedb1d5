"""A file of named arrays and a header that is either whole or refused. Read after backend.py.

It is an .npz without pickle: `header.json`, one .npy for each array, and `SHA256SUMS` over all of them, as the tool
sha256sum writes it. It is written beside its place and put there in one step, so a process that is killed at
any moment leaves the last good one; what was damaged since is never taken for data.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

FORMAT, VERSION = "minibptt checkpoint", 1  # every later version keeps the two entries below, so that this can be read
HEADER, SUMS = "header.json", "SHA256SUMS"


class CheckpointError(ValueError):
    """A checkpoint that is missing, damaged, of a later format, or that does not fit; nothing was changed."""


def write_archive(path: str | os.PathLike[str], parts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write parts, which JSON can hold, and arrays. CheckpointError where it cannot be written."""
    header = json.dumps({"format": FORMAT, "version": VERSION, "parts": parts}).encode()
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        sums = _add(archive, HEADER, lambda to: to.write(header))
        for name, array in arrays.items():
            write = lambda to, array=array: np.lib.format.write_array(to, array, allow_pickle=False)  # noqa: E731
            sums += _add(archive, f"{name}.npy", write, large=array.nbytes > 2**30)
        archive.writestr(zipfile.ZipInfo(SUMS), sums)


def read_archive(path: str | os.PathLike[str]) -> tuple[Mapping[str, Any], Mapping[str, np.ndarray]]:
    """The parts and the arrays that were written. CheckpointError for whatever is wrong with the file."""
    try:
        file = open(path, "rb")  # noqa: SIM115
    except FileNotFoundError:
        raise CheckpointError(f"there is no checkpoint {path}") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None
    with file:
        try:
            entries = _checked_entries(file)
            header = json.loads(entries.pop(HEADER))
            if header["format"] != FORMAT:
                raise ValueError("another format")
            if header["version"] <= VERSION:
                return header["parts"], {n.removesuffix(".npy"): _array(entries.pop(n)) for n in [*entries]}
        except Exception as error:  # damage can show anywhere: in the archive, its names, its sizes
            raise CheckpointError(
                f"{path} is damaged, or no checkpoint of minibptt ({type(error).__name__}: {error})"
            ) from error
    raise CheckpointError(
        f"{path} is a checkpoint of format version {header['version']}, from a later minibptt; this one reads versions "
        f"up to {VERSION}: install a newer minibptt"
    )


def _array(data: bytes) -> np.ndarray:
    return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)


def _checked_entries(file: BinaryIO) -> dict[str, bytes]:
    """The entries by name, all of which have their checksum. Any exception where something is wrong."""
    with zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
        # Nothing is compressed and nothing can be larger than the file: damaged sizes ask for no memory.
        if any(info.compress_type != zipfile.ZIP_STORED for info in infos):
            raise ValueError("it is compressed")
        if sum(info.file_size for info in infos) > os.fstat(file.fileno()).st_size:
            raise ValueError("an entry is larger than the file")
        entries = {info.filename: archive.read(info) for info in infos}
    sums = entries.pop(SUMS).decode("ascii")
    if sums != "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in entries.items()):
        raise ValueError("a checksum is wrong")
    return entries


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write into; it takes the place of `path` at the end, in one step and only if all went well.

    Until then it is `.NAME.tmp` in the same folder, which a later call replaces where this one was killed.
    """
    target = Path(os.path.realpath(path))  # the file that a link leads to, not the link
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # the bytes are on the disk before the name is
        os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise CheckpointError(f"{path} could not be written: {error.strerror or error}") from error
        raise
    with contextlib.suppress(OSError):  # not every system opens a folder
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _add(archive: zipfile.ZipFile, name: str, write: Any, large: bool = False) -> str:
    """Write one entry; its line for SHA256SUMS."""
    with archive.open(zipfile.ZipInfo(name), "w", force_zip64=large) as entry:  # dated 1980: equal content, equal file
        to = _Summed(entry)
        write(to)
    return f"{to.sum.hexdigest()}  {name}\n"


class _Summed:
    """A file to write into that works out the checksum of what passes."""

    def __init__(self, file: Any):
        self.file, self.sum = file, hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sum.update(data)
        return self.file.write(data)
