"""Types of arguments that only the scripts of this folder ask for; the others are in minibptt.commands.arguments."""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Callable
from pathlib import Path

from minibptt.commands.arguments import whole
from minibptt.commands.output import shown


def at_least(least: int) -> Callable[[str], int]:
    """The type of a whole number that is not smaller."""
    return lambda text: whole(text, least)


def folder(text: str) -> Path:
    """A folder to write into, which need not be there yet."""
    path = Path(text)
    there = next(one for one in (path, *path.absolute().parents) if os.path.exists(one))
    if not os.path.isdir(there):
        raise argparse.ArgumentTypeError(f"cannot write to the folder {shown(path)}: {shown(there)} is a file")
    if not os.access(there, os.W_OK):
        raise argparse.ArgumentTypeError(f"cannot write to the folder {shown(path)}: {shown(there)} is read-only")
    return path


def csv_rows(*columns: str) -> Callable[[str], list[dict[str, str]]]:
    """The type of a CSV file with at least these columns, and a line: its lines by column."""

    def rows(text: str) -> list[dict[str, str]]:
        try:
            with open(text, newline="", encoding="utf-8") as file:
                found = list(csv.DictReader(file))
        except OSError as error:
            raise argparse.ArgumentTypeError(f"cannot read {shown(text)}: {error.strerror}") from None
        except (csv.Error, UnicodeDecodeError) as error:
            raise argparse.ArgumentTypeError(f"{shown(text)} is no CSV file: {error}") from None
        missing = [column for column in columns if not found or found[0].get(column) is None]
        if missing:
            what = "has no line of numbers" if not found else f"has no column {', '.join(missing)}"
            raise argparse.ArgumentTypeError(f"{shown(text)} {what}: give a file that this script wrote")
        return found

    return rows
