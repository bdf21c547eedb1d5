"""minibptt doctor: what is installed, and what works here. Read after output.py."""

from __future__ import annotations

import argparse
import platform
from typing import Any

from ..backend import backend_report
from ..listing import can_print, printable
from .output import version


def add(subparsers: Any) -> None:
    sub = subparsers.add_parser("doctor", help="what is installed and which backends work")
    sub.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    rows = [("minibptt", version("minibptt")), ("Python", f"{platform.python_version()} on {platform.platform()}")]
    rows += [("matplotlib", version("matplotlib"))]
    rows += list(backend_report().items())
    rows += [("text output", "✂ and h₃ can be shown" if can_print("✂ h₃") else "ASCII only")]
    for name, state in rows:
        print(printable(f"{name + ':':13} {state}"))
