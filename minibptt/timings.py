"""What `benchmark` found: timings with where they come from, a table, CSV, and a simple model fitted to them.

Read after backend.py.
"""

from __future__ import annotations

import csv
import datetime
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from .backend import device_of, name_of
from .module import check_number, check_path


@dataclass(frozen=True)
class Timing:
    """One measurement. median, low, high: seconds, low and high being the quartiles; runs: over how many.

    launches, flops: of a step. The rest says what was measured and where it ran. recorded: read from a file.
    """

    backend: str
    cell: str
    H: int
    D: int
    B: int
    T: int
    dtype: str
    runs: int
    median: float
    low: float
    high: float
    launches: int
    flops: float
    device: str = ""
    machine: str = ""
    python: str = ""
    libraries: str = ""
    date: str = ""
    recorded: bool = field(default=False, compare=False)

    @property
    def place(self) -> str:
        """CPU or GPU, as figures call it."""
        return {"numpy": "CPU", "cupy": "GPU"}.get(self.backend, self.backend) + (
            " (recorded)" if self.recorded else ""
        )

    @property
    def calls(self) -> str:
        """What asking for one operation is called: NumPy has no launches, but its calls cost something too."""
        return "calls of NumPy" if self.backend == "numpy" else "launches"


@dataclass(frozen=True)
class Fit:
    """time = launches · launch + flops · flop, in seconds; error: the root mean square of the relative error."""

    launch: float
    flop: float
    error: float

    def seconds(self, launches: float, flops: float) -> float:
        return launches * self.launch + flops * self.flop

    def bound_by_launches(self, launches: float, flops: float) -> bool:
        """Whether launching takes more of the time than arithmetic."""
        return launches * self.launch > flops * self.flop


@dataclass(frozen=True)
class Benchmark:
    """Timings, what was missing (why, by backend) and a title. Made by `benchmark`, `sweep` and `read`."""

    rows: tuple[Timing, ...]
    missing: dict[str, str] = field(default_factory=dict)
    title: str = ""

    def with_recorded(self, other: Benchmark) -> Benchmark:
        """These timings, and those of `other` of backends that were not measured here, marked as recorded."""
        here = {row.backend for row in self.rows}
        added = [replace(row, recorded=True) for row in other.rows if row.backend not in here]
        return replace(self, rows=(*self.rows, *added))

    def fit(self, backend: str) -> Fit | None:
        """The model fitted to the timings of a backend, to their relative errors; None for fewer than three.

        The two costs cannot be negative. For all cells at once.
        """
        rows = [row for row in self.rows if row.backend == backend]
        if len(rows) < 3:
            return None
        A = np.array([[row.launches / row.median, row.flops / row.median] for row in rows])
        scale = np.sqrt((A**2).sum(axis=0))
        scale[scale == 0] = 1
        best = _nonnegative(A / scale) / scale
        return Fit(float(best[0]), float(best[1]), float(np.sqrt(((A @ best - 1) ** 2).mean())))

    def table(self) -> str:
        """A line for each measurement, and what was missing."""
        head = f"{'cell':6}{'H':>6}{'B':>5}{'T':>6}  {'where':17}{'ms a step':>12}  {'middle half':17}"
        head += f"{'launches':>9}{'GFLOP':>9}"
        lines = [self.title] if self.title else []
        lines += [head, "─" * len(head)]
        for r in self.rows:
            half = f"{r.low * 1e3:.3g} … {r.high * 1e3:.3g}"
            lines.append(
                f"{r.cell:6}{r.H:>6}{r.B:>5}{r.T:>6}  {r.place:17}{r.median * 1e3:>12.3f}  {half:17}{r.launches:>9}"
                f"{r.flops / 1e9:>9.3g}"
            )
        for backend in dict.fromkeys(row.backend for row in self.rows):
            fit = self.fit(backend)
            first = next(row for row in self.rows if row.backend == backend)
            if fit:
                speed = f"{1e-9 / fit.flop:.3g} GFLOP/s" if fit.flop else "arithmetic too little to see"
                when = f", recorded {first.date}, {first.libraries}" if first.recorded else ""
                lines.append(
                    f"{first.place}: about {fit.launch * 1e6:.3g} µs for each of its {first.calls}, {speed} (the model "
                    f"is off by {fit.error:.0%}); {first.device}{when}"
                )
        lines += [f"Not measured: {why}" for why in self.missing.values()]
        return "\n".join(lines)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Every measurement with machine, device, libraries, versions and date."""
        check_path("to_csv: the path", path)
        names = [f.name for f in fields(Timing) if f.name != "recorded"]
        with open(path, "w", newline="", encoding="utf-8") as file:
            out = csv.DictWriter(file, names, extrasaction="ignore")
            out.writeheader()
            out.writerows(asdict(row) for row in self.rows if not row.recorded)


def read(path: str | os.PathLike[str]) -> Benchmark:
    """The timings of a file that `to_csv` wrote. ValueError where it is no such file, or cannot be read.

    Numbers that no measurement gives are refused with their line and column: a file may have been edited.
    """
    check_path("read: the path", path)
    name = Path(path).name
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [f.name for f in fields(Timing) if f.name not in ("recorded", *(reader.fieldnames or ()))]
            if reader.fieldnames and missing:
                raise ValueError(f"{name} is no file of timings that minibptt wrote: it has no column {missing[0]}")
            rows = [_timing(f"{name}, line {reader.line_num}", line) for line in reader]
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{name} is no file of timings that minibptt wrote ({error})") from None
    if not rows:
        raise ValueError(f"{name} holds no timings")
    return Benchmark(tuple(rows))


def _timing(where: str, line: Mapping[str, str | None]) -> Timing:
    """A line of a file. ValueError for what no measurement gives; H and D are 0 where a model has none."""
    values: dict[str, Any] = {}
    for f in fields(Timing):
        if f.name == "recorded":
            continue
        what, text = f"{where}, column {f.name}", line[f.name]
        if text is None or (not text and f.name in ("backend", "cell", "dtype")):
            raise ValueError(f"{what}: there is nothing")
        if f.type == "str":
            values[f.name] = text
            continue
        try:
            values[f.name] = value = int(text) if f.type == "int" else float(text)
        except ValueError:
            kind = "a whole number" if f.type == "int" else "a number"
            raise ValueError(f"{what} must be {kind}, found {text!r:.80}") from None
        check_number(what, value, 1 if f.name in ("B", "T", "runs") else 0, above=f.name in ("median", "low", "high"))
    found = Timing(**values)
    if not found.low <= found.median <= found.high:
        raise ValueError(f"{where}: low ≤ median ≤ high does not hold: {found.low:g}, {found.median:g}, {found.high:g}")
    return found


def where_it_ran(library: ModuleType) -> dict[str, Any]:
    """What a measurement must say of itself: device, machine, Python, libraries and the date."""
    libraries = [f"numpy {np.__version__}"]
    if library is not np:
        libraries.append(f"{name_of(library)} {library.__version__}")
    return {
        "device": device_of(library),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "libraries": ", ".join(libraries),
        "date": datetime.date.today().isoformat(),
    }


def _nonnegative(A: np.ndarray) -> np.ndarray:
    """The x ≥ 0 of two numbers that brings A @ x closest to ones: in the open, or on one of the two edges."""
    ones = np.ones(len(A))
    found: list[np.ndarray] = []
    inner = np.linalg.lstsq(A, ones, rcond=None)[0]
    if (inner >= 0).all():
        found.append(inner)
    for i in range(2):
        x = np.zeros(2)
        x[i] = max(0.0, float(A[:, i] @ ones) / (float(A[:, i] @ A[:, i]) or 1.0))
        found.append(x)
    return min(found, key=lambda x: float(((A @ x - ones) ** 2).sum()))
