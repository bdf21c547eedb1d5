"""What truncation costs: every schedule against full BPTT, on one model and one batch.

Read after cutting.py and measures.py.

All gradients come from one finely cut tape: the forward pass is recorded once, cut before every step, and each
schedule says which of the cuts to mend. Full BPTT is the same tape with all cuts mended. Memory and time come
from a run of each schedule by itself, with a tape that holds one window only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .backend import library_of, synchronize
from .cells import buffers
from .cutting import accumulate, factor_of
from .given import as_schedules
from .gradients import Gradients
from .measures import MEASURES, Judge, RunningNoise
from .memory import peak_memory
from .module import Rng, check_model, check_size, evaluating
from .objective import call_loss, owned, refuse_parameters_in_the_loss
from .parts import parts_of
from .sequence import real_steps, run, sequence_input
from .tape import Tape
from .tensor import Tensor
from .truncation import ARTBP, Plan, Schedule

if TYPE_CHECKING:
    from .report import Comparison, Row


def compare(
    model: Any,
    x: Any,
    y: Any,
    loss: Callable[..., Tensor],
    schedules: Sequence[Schedule],
    *,
    state: Any = None,
    lengths: Any = None,
    mask: Any = None,
    resets: Any = None,
    dropout: bool = False,
    draws: int = 32,
    rng: Rng = 0,
    measure: bool = True,
    progress: Callable[[int, int], None] | None = None,
    title: str = "",
    about: dict[str, Any] | None = None,
) -> Comparison:
    """Every schedule against full BPTT of a causal model, at frozen weights; each is judged over all its offsets.

    The whole gradient is judged, and each parameter and each gate by itself; see measures.py and parts.py.
    x: (T, B, …); y: what loss(outputs, y) wants. state, lengths, mask, resets: as for `unroll`; with padding the loss
    is called as loss(outputs, y, mask=…). dropout: leave it as the model has it, one mask serving all schedules;
    it is off otherwise.
    draws: how often a schedule that draws its cuts is drawn, from `rng`; with an int all such schedules start from the
    same random numbers. measure: run each schedule by itself for memory and time too.
    progress: called with (done, of) as the work goes on. title, about: kept with the result, for its table and JSON.
    schedules: one or more, of which each may be an array of weights (T, T) as for `bptt`.
    ValueError for an empty list of schedules, draws below 1, a loss that is not a finite scalar, a model without
    parameters and one whose state cannot be cut; TypeError for what is no schedule or no model.
    """
    from .report import Comparison  # here, so that `import minibptt` stays quick

    check_model(model)
    schedules = as_schedules(schedules)
    if not schedules:
        raise ValueError("compare needs at least one schedule, for example [minibptt.tbptt(8)]")
    check_size("compare", draws=draws)
    x = sequence_input(x)
    T, B = x.shape[:2]
    options = {"mask": real_steps(T, B, lengths, mask), "resets": resets}
    plans = [schedule.plans(T, rng, draws) for schedule in schedules]
    total, done = sum(map(len, plans)) + len(plans) * measure, 0

    def tick() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    with evaluating(model, dropout):
        tape, outputs, value = _finely_cut(model, x, y, loss, state, options)
        loss_value, seeds = value.item(), tape.gradient(value, outputs)
        G = tape.gradient(outputs, model, seed=seeds, through_cuts=True)
        judge, mend = Judge(G, parts_of(model)), partial(_by_mending, tape, outputs, seeds, model)
        rows = [_judged(schedule, several, judge, mend, tick) for schedule, several in zip(schedules, plans)]
        del mend, tape, outputs, value, judge  # so that they are not in the memory that is measured
        for i, several in enumerate(plans if measure else ()):
            peak, seconds = _cost(partial(accumulate, model, x, seeds, several[0], state=state, **options))
            rows[i] = replace(rows[i], peak_bytes=peak, seconds=seconds)
            tick()
    return Comparison(T, B, loss_value, G.norm(), tuple(rows), title, about or {})


def _judged(
    schedule: Schedule,
    plans: Sequence[Plan],
    judge: Judge,
    gradient_of: Callable[[Plan], Gradients],
    tick: Callable[[], None],
) -> Row:
    """What a schedule keeps, over all its plans; how noisy it is where it draws its cuts."""
    from .report import Row

    drawn = isinstance(schedule, ARTBP)
    noise, found = RunningNoise(judge.G), []
    for plan in plans:
        g = gradient_of(plan)
        found.append(judge(g))
        if drawn:
            noise.add(g)
        tick()
    by_part = dict(zip(["", *judge.parts], np.stack(found).T.tolist()))  # by part, measure, plan
    values = {part: dict(zip(MEASURES, map(tuple, figures))) for part, figures in by_part.items()}
    longest = max(plan.longest for plan in plans)
    return Row(schedule, longest, values.pop(""), by_part=values, noise=noise.noise() if drawn else None)


def _finely_cut(
    model: Any, x: Any, y: Any, loss: Callable[..., Tensor], state: Any, options: dict[str, Any]
) -> tuple[Tape, Tensor, Tensor]:
    """(a tape that is cut before every step, the outputs on it, the loss), checked for what cannot be compared."""
    with Tape() as tape:
        outputs, _ = run(model, x, state, cut_every=1, **options)
        recorded = len(tape.records)
        value = call_loss(loss, outputs, y, options["mask"])
    # A state that could not be cut would make every schedule look exact.
    if tape.states and not {cut.step for cut in tape.cuts} >= set(range(2, len(x) + 1)):
        raise ValueError(
            f"compare could not cut the state of {type(model).__name__} before every step: it needs zero_state(batch), "
            "and its call must take state and cut_every and hand both to unroll"
        )
    if value.mark is not tape.mark:
        raise ValueError("the loss does not depend on any parameter: there is no gradient to compare")
    refuse_parameters_in_the_loss(tape, recorded)
    return tape, outputs, value


def _by_mending(tape: Tape, outputs: Tensor, seeds: Any, model: Any, plan: Plan) -> Gradients:
    """The gradient of a plan from the finely cut tape, whose cut before step s + 1 is the boundary s.

    One backward pass gives all the updates that share their factors; the others take one each.
    """
    shared = plan.shared_factors() is not None and len({t for u in plan.updates for t in u.losses}) == plan.T
    parts = [
        tape.gradient(
            outputs,
            model,
            seed=seeds if shared else owned(seeds, update, 0, plan.T),
            through_cuts=factor_of(update),
        )
        for update in (plan.updates[:1] if shared else plan.updates)
    ]
    return sum(parts[1:], parts[0])


def _cost(work: Callable[[], Gradients], most_seconds: float = 1.0) -> tuple[int, float]:
    """(the most bytes in use above what was in use before, the median time of several runs)."""
    gradients = work()  # a first run to warm up
    times: list[float] = []
    while len(times) < 3 or (len(times) < 9 and sum(times) < most_seconds):
        synchronize(_an_array(gradients))
        start = time.perf_counter()
        gradients = work()
        synchronize(_an_array(gradients))
        times.append(time.perf_counter() - start)
    library = library_of(_an_array(gradients))
    del gradients
    buffers.clear()  # so that this run pays for its arrays
    return peak_memory(work, library), float(np.median(times))


def _an_array(gradients: Gradients) -> Any:
    return next(iter(gradients.values()))
