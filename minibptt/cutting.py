"""The gradient of a schedule by really cutting the tape: memory is that of one window. Read after pieces.py.

`by_updates` goes over a sequence update by update; `bptt` adds its answers up at frozen weights, and `updates` in
updates.py hands them out one by one, so that the weights may move in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

from . import ops
from .backend import library_of
from .given import as_schedule
from .gradients import Gradients
from .module import Rng, check_model, evaluating
from .objective import Known, Objective, OnWhole
from .pieces import Pieces
from .plans import Plan, Update
from .recomputing import recomputed, refuse_hidden_state
from .sequence import flags, real_steps, sequence_input
from .sweep import Cut
from .tape import Tape, cut
from .tensor import Tensor
from .truncation import Schedule


def bptt(
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
    dropout: bool = False,
) -> Gradients:
    """The gradient of loss(outputs, y) by `schedule`, at frozen weights, by cutting the tape between its updates.

    model: a cell, a layer or another Module, and causal: the updates see no step after theirs.
    Each update runs on a tape of its own, so that memory is that of its window; `recompute` gives full BPTT in the
    memory of a segment. The loss is asked once, on the outputs of the whole sequence: L_t is the slice t of
    ∂L/∂outputs, so it may be any function of the outputs; with lengths or a mask it is called as
    loss(outputs, y, mask=…). schedule: or an array of weights (T, T) whose rows are products of factors. rng: for a
    schedule that draws its cuts. dropout: leave it as the model has it; it is off otherwise. Other arguments as for
    `unroll`. TypeError for what is no model or no schedule; ValueError for weights that no cuts can give, for a loss
    that is not finite, for a parameter inside the loss, and for a model that keeps its state to itself or has no
    parameters.
    """
    check_model(model)
    schedule, x = as_schedule(schedule), sequence_input(x)
    T, B = x.shape[:2]
    real = real_steps(T, B, lengths, mask)
    plan = schedule.plan(T, rng)
    with evaluating(model, dropout):
        pieces = Pieces(model, x, state, real, flags("resets", resets, T, B))
        return _sum(by_updates(pieces, OnWhole(loss, y, real, T, once=True), plan), model)


def realise(
    model: Any, x: Any, seeds: Any, plan: Plan, *, state: Any = None, mask: Any = None, resets: Any = None
) -> Iterator[Gradients]:
    """The gradients of the updates of a plan in turn. seeds: ∂L/∂outputs of the whole sequence."""
    T, B = x.shape[:2]
    pieces = Pieces(model, x, state, mask, flags("resets", resets, T, B))
    return (gradients for _, gradients in by_updates(pieces, Known(seeds), plan))


def accumulate(model: Any, x: Any, seeds: Any, plan: Plan, **options: Any) -> Gradients:
    """The sum of the gradients that `realise` gives, added up as they come."""
    return _sum(((None, gradients) for gradients in realise(model, x, seeds, plan, **options)), model)


def by_updates(pieces: Pieces, objective: Objective, plan: Plan) -> Iterator[tuple[Tensor | None, Gradients]]:
    """(loss, gradients) of the updates of a plan in turn, each from a tape that holds its own window only.

    Where windows overlap, each is run again with the weights as they are now, from the state that was stored at its
    start, the newest that was seen there. Where there is a gap between two, the state is carried over it without a
    tape. Nothing is run before it is asked for.
    """
    pieces.begin()
    if objective.whole and plan.updates and not plan.whole:
        pieces.look_ahead(objective.see, plan.longest)
    if plan.segments > 1:
        yield recomputed(pieces, objective, plan)
        return
    needed = Counter([update.start for update in plan.updates])
    for update, inside in zip(plan.updates, _stored_on_the_way(plan.updates)):
        a, b = update.start, update.losses.stop
        for s in [*[s for s in inside if s < a], a]:
            pieces.go_to(s, objective.see)
        loss, gradients = _one(pieces, objective, update, [a, *[s for s in inside if s > a], b])
        needed[a] -= 1
        if not needed[a]:
            del needed[a]
        pieces.keep(needed)
        yield loss, gradients
    pieces.go_to(plan.T, objective.see)


def _one(pieces: Pieces, objective: Objective, update: Update, bounds: list[int]) -> tuple[Tensor | None, Gradients]:
    """(loss, gradients) of one update. bounds: where its window begins, is to be stored inside, and ends."""
    a, b, regular = bounds[0], bounds[-1], update.regular
    stored = pieces.resume(a)
    with Tape() as tape:
        here = cut(stored) if a else stored
        outputs = []
        for p, q in pairwise(bounds):
            with tape.shifted(p):
                if p > a and not regular:
                    with tape.at(1):
                        here = cut(here)
                out, here = pieces.run(p, q, here, None if regular else 1)
            outputs.append(out)
            pieces.store(q, here)
        window = outputs[0] if len(outputs) == 1 else ops.concatenate(outputs)
    if b < pieces.T:
        refuse_hidden_state(tape, here, pieces.model)
    loss, seed = objective.answer(update, window)
    return loss, tape.gradient(window, pieces.model, seed=seed, through_cuts=False if regular else factor_of(update))


def factor_of(update: Update) -> Callable[[Cut], float]:
    """The factor that an update puts on a cut: the cut before step s + 1 is the boundary s."""

    def factor(cut: Cut) -> float:
        assert cut.step is not None  # unroll cuts on the clock
        return update.factors[cut.step - 1]

    return factor


def _stored_on_the_way(updates: tuple[Update, ...]) -> list[list[int]]:
    """For each update, where later ones start whose state is last seen on the way to its end: in its window, or in the
    gap before it. What is at its end is stored anyway."""
    found: list[list[int]] = [[] for _ in updates]
    ends = [0, *[update.losses.stop for update in updates]]
    starts = [update.start for update in updates]
    for later in range(1, len(updates)):
        s = starts[later]
        for u in range(later - 1, -1, -1):
            if s == starts[u] or s >= ends[u + 1]:
                break  # stored already, or at the end of the way so far or behind it
            if s > starts[u] or s > ends[u]:
                found[u].append(s)
                break
    return [sorted(set(starts_inside)) for starts_inside in found]


def _sum(updates: Iterable[tuple[Tensor | None, Gradients]], model: Any) -> Gradients:
    total: Gradients | None = None
    for _, gradients in updates:
        total = gradients if total is None else total + gradients
    if total is None:  # no loss is ever reached
        values = {name: parameter.value for name, parameter in model.named_parameters()}
        return Gradients({name: library_of(value).zeros_like(value) for name, value in values.items()})
    return total
