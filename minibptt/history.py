"""What truncation costs as a model learns: `compare` before, during and after a training. Read after compare.py.

A schedule that is exact enough at the start may not stay so: as the model learns longer lags, the same k loses more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .compare import compare
from .given import as_schedules
from .listing import counted, printable
from .measures import MEASURES
from .module import check_size
from .report import LABELS, MEAN, SPREADS, Comparison
from .tables import blocks, html_table, known, number, shown, write_csv, write_json
from .tensor import Tensor
from .truncation import Schedule


@dataclass(frozen=True)
class History:
    """Comparisons over a training. moments: (steps done, what `compare` found then), in order."""

    moments: tuple[tuple[int, Comparison], ...]
    title: str = ""

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """The schedules that were compared, the same at every moment."""
        return tuple([row.schedule for row in self.moments[0][1].rows]) if self.moments else ()

    def series(
        self, schedule: Schedule | str, measure: str = "share", part: str | None = None
    ) -> tuple[tuple[int, ...], tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
        """(steps done, means, least, largest): one schedule over the training, by the measure of the whole or a part.

        schedule: one of `schedules`, or its name, such as "k=8". ValueError for a schedule, measure or part that there
        is not.
        """
        names = [str(s) for s in self.schedules]
        place = names.index(known("schedule", str(schedule), names))
        spreads = [found.rows[place].spread(measure, part) for _, found in self.moments]
        steps = tuple([done for done, _ in self.moments])
        return (
            steps,
            tuple([s.mean for s in spreads]),
            tuple([s.low for s in spreads]),
            tuple([s.high for s in spreads]),
        )

    def cells(self, measure: str = "share", part: str | None = None) -> tuple[list[str], list[list[str]]]:
        """The means as text: a row for each moment, a column for each schedule, after the steps, the loss and ‖G‖."""
        head = ["steps", "loss", "‖G‖", *map(str, self.schedules)]
        body = [
            [
                str(done),
                f"{found.loss:.4f}",
                f"{found.full_norm:.3g}",
                *(shown(row.spread(measure, part), measure, bare=True) for row in found.rows),
            ]
            for done, found in self.moments
        ]
        return head, body

    def table(self, measure: str = "share", part: str | None = None, width: int = 100) -> str:
        """The table for a terminal: moments down, schedules across; what `width` has no room for goes on below."""
        head, body = self.cells(measure, part)
        return printable("\n".join([*self._heading(measure, part), "", *blocks(head, body, width, first=3)]))

    def _heading(self, measure: str, part: str | None) -> tuple[str, str]:
        what = LABELS[known("measure", measure, LABELS)].capitalize() + (f" of {part}" if part else "")
        title = f"{what} over training" + (f": {self.title}" if self.title else "")
        return title, f"After so many training steps. {MEAN}."

    def _repr_html_(self) -> str:
        return html_table(*self.cells(), ". ".join(self._heading("share", None)))

    def to_csv(self, path: str | Path) -> None:
        """One line for each moment, schedule and part, the whole gradient's part being called "all"."""
        lines = [
            [done, number(found.loss), number(found.full_norm), row.schedule, part or "all", *row.figures(part)]
            for done, found in self.moments
            for row in found.rows
            for part in (None, *row.by_part)
        ]
        write_csv(path, ["training_steps", "loss", "full_norm", "schedule", "part", *SPREADS], lines)

    def to_json(self, path: str | Path) -> None:
        """Everything, each offset and part at every moment included. What is not a finite number stands as null."""
        moments = [{"training_steps": done, **found.data()} for done, found in self.moments]
        write_json(path, {"title": self.title, "measures": MEASURES, "moments": moments})


def compare_training(
    training: Iterable[Any],
    model: Any,
    x: Any,
    y: Any,
    loss: Callable[..., Tensor],
    schedules: Sequence[Schedule],
    *,
    every: int,
    **options: Any,
) -> History:
    """`compare` before the first training step, after every `every` steps, and after the last one.

    training: an iterator of which each next() makes one training step of `model`, usually a generator with a `yield`
    at the end of its loop. x, y: the batch on which the schedules are judged, the same at every moment. options: as
    for `compare`; measure is False unless given, for memory and time do not change with the weights. A schedule that
    draws its cuts is drawn alike at every moment where rng is an int.
    TypeError for what is no iterator; ValueError for every < 1 and for a training that makes no step.
    """
    moments = compared_over(training, model, x, y, loss, schedules, every=every, **options)
    return History(tuple(moments), options.get("title", ""))


def compared_over(
    training: Iterable[Any],
    model: Any,
    x: Any,
    y: Any,
    loss: Callable[..., Tensor],
    schedules: Sequence[Schedule],
    *,
    every: int,
    title: str = "",
    about: dict[str, Any] | None = None,
    measure: bool = False,
    **options: Any,
) -> Iterator[tuple[int, Comparison]]:
    """The moments of `compare_training` as they come, while the model is as it was compared."""
    check_size("compare_training", every=every)
    if not isinstance(training, Iterable):
        hint = ": call it, for it is a function" if callable(training) else ""
        raise TypeError(
            "training must be an iterator of which each next() makes one training step, found "
            f"{type(training).__name__}{hint}"
        )
    schedules = as_schedules(schedules)
    options["measure"] = measure

    def now(done: int) -> tuple[int, Comparison]:
        when = f"after {counted(done, 'training step')}" if done else "before training"
        known = (about or {}) | {"trained_steps": done}
        text = f"{title}, {when}" if title else when
        return done, compare(model, x, y, loss, schedules, title=text, about=known, **options)

    yield now(0)
    done = 0
    for _ in training:
        done += 1
        if done % every == 0:
            yield now(done)
    if not done:
        raise ValueError("the training made no step: its iterator yielded nothing, or was used up before")
    if done % every:
        yield now(done)
