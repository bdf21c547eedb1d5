"""Training by a truncation schedule: the gradients of its updates one by one, the weights free to move in between.

Read after cutting.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .cutting import by_updates
from .given import as_schedule
from .gradients import Gradients
from .module import Rng, check_model
from .objective import Objective, objective
from .pieces import Pieces
from .plans import Plan
from .sequence import flags, real_steps, sequence_input
from .tensor import Tensor
from .truncation import Schedule


class Updates(Iterator[tuple[Tensor, Gradients]]):
    """(loss, gradients) of each update in turn; each is worked out when it is asked for. Made by `updates`.

    plan: what the schedule gives for this sequence. whole: whether each update's loss is that of the whole sequence,
    and not the part on the steps that the update owns. After an error inside an update, Ctrl-C included, the run is
    over: the next one asked for is a RuntimeError, and no silent end.
    """

    def __init__(self, pieces: Pieces, objective: Objective, plan: Plan):
        self._pieces, self.plan, self.whole = pieces, plan, objective.whole
        self._steps: Iterator[Any] = by_updates(pieces, objective, plan)
        self._done, self._failed = 0, ""

    def __next__(self) -> tuple[Tensor, Gradients]:
        if self._failed:
            raise RuntimeError(
                f"an error ended these updates after {self._done} of {len(self.plan.updates)} ({self._failed}): they "
                "cannot go on. Begin anew with updates(…), on the steps that are left or on all of them"
            )
        try:
            found = next(self._steps)
        except StopIteration:
            raise
        except BaseException as error:  # Ctrl-C too: a second `for` must not take this for the end
            self._failed = " ".join(f"{type(error).__name__}: {error}".split())  # its text alone: it holds the tape
            raise
        self._done += 1
        return found

    @property
    def state(self) -> Any:
        """The state after the last step that was reached so far, without a past, for the next call's `state`."""
        return self._pieces.state


def updates(
    model: Any,
    x: Any,
    y: Any,
    loss: Callable[..., Tensor],
    schedule: Schedule | Any,
    *,
    state: Any = None,
    lengths: Any = None,
    mask: Any = None,
    resets: Any = None,
    rng: Rng = None,
) -> Updates:
    """(loss, gradients) for each update of `schedule` over the sequence x, by real cuts; change the weights in between.

        run = mb.updates(model, x, y, mb.mse, mb.tbptt(4, 16), state=state)
        for loss, gradients in run:
            opt.step(gradients)
        state = run.state

    Memory is that of one window. Windows that overlap are run again with the weights as they are now, from the state at
    their start, the newest that was seen there. At frozen weights the sum of the gradients is that of `bptt`.

    A loss with a keyword `count` (`mse`, `cross_entropy`) is asked on the steps that the update owns, as
    loss(outputs[a:b], y[a:b], count=…), also with mask=… where there is padding; count is the number of real target
    entries of the whole sequence, to be divided by, so that these parts add up to the whole loss; y is (T, B, …). Any
    other loss is a function of all outputs: the sequence is run once without a tape at the start, and each update asks
    the loss on the newest outputs that are known and uses the part of the gradient that falls on its own steps; the
    loss is then that of the whole sequence. It is a scalar tensor, which is not read here.

    Dropout is as the model has it. schedule: or an array of weights (T, T) whose rows are products of factors. rng: for
    a schedule that draws its cuts. Other arguments as for `bptt`. TypeError for what is no schedule or no model;
    ValueError for shapes that do not fit, for weights that no cuts can give, for a parameter inside the loss, and for a
    model that keeps its state to itself or has no parameters.
    """
    check_model(model)
    schedule, x = as_schedule(schedule), sequence_input(x)
    T, B = x.shape[:2]
    real = real_steps(T, B, lengths, mask)
    plan, pieces = schedule.plan(T, rng), Pieces(model, x, state, real, flags("resets", resets, T, B))
    return Updates(pieces, objective(loss, y, real, T, B), plan)
