"""The unrolled network as a picture: time from left to right, layers bottom up. Read after steps.py."""

from __future__ import annotations

from typing import Any

from ..asking import ThroughCuts
from ..listing import counted
from ..tape import Tape
from ..tensor import Tensor
from ..unrolled import Unrolled, unrolled
from .network import Scale
from .operations import fits, operations
from .steps import Steps
from .style import check_axes, check_takes, slide


def tape(
    tape: Tape,
    loss: Tensor | None = None,
    ax: Any = None,
    through_cuts: ThroughCuts = False,
    detail: str | None = None,
) -> Any:
    """Draw what the tape holds: time from left to right, layers bottom up, the backward pass below the forward one.

    With a loss, backward edges have the width and the colour of the adjoint's norm: the one that leads to h_t shows
    ‖∂L/∂h_t‖, and at a cut ✂ the one that ends there shows what was dropped, with its norm. The width grows with the
    norm, the colour with its logarithm. Padded steps are faint, and where rows are reset the edges have a gap (dashed
    where it is only some of the rows).
    detail: "operation", every record a node with its value; or "step", a node for each step, layer and state. Default:
    "operation" up to 4 steps, where the operations have room. through_cuts: as for `Tape.gradient`.
    Returns the Axes. TapeError for an empty tape, for detail "step" where no state was noted, and for a loss that is
    not on the tape; ValueError for another detail.
    """
    check_takes("tape", tape, Tape, "a tape first")
    if detail not in (None, "operation", "step"):
        raise ValueError(f'detail must be "operation" or "step", found {detail!r}')
    check_axes("tape", ax)
    if detail == "operation" or (detail is None and fits(tape)):
        return operations(tape, loss, ax, through_cuts)
    found = unrolled(tape, loss, through_cuts=through_cuts)
    own = ax is None
    if own:
        figure = slide()
        ax = figure.add_axes((0.085, 0.16, 0.81 if loss is not None else 0.89, 0.75))
    drawing = Steps(found, ax, None if loss is None else Scale(_norms(found)))
    drawing.draw()
    ax.set_title(_title(found, loss is not None, tape), fontsize=15, pad=10)
    if own and drawing.scale is not None:
        drawing.scale.bar(ax.figure, (0.925, 0.2, 0.014, 0.62), "‖adjoint‖")
    return ax


def _norms(found: Unrolled) -> list[float]:
    seen = [float(v) for row in found.rows if row.adjoints is not None for v in row.adjoints]
    return seen + [cut.dropped for cut in found.cuts if cut.dropped is not None]


def _title(found: Unrolled, back: bool, tape: Tape) -> str:
    n = len(found.steps)
    words = counted(n, "step")
    layers = len({row.layer for row in found.rows})
    words += f", {layers} layers" if layers > 1 else ""
    words += f", {counted(len(tape.cuts), 'cut')}" if tape.cuts else ""
    return f"The unrolled network{' and its backward pass' if back else ''}: {words}"
