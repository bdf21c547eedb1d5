"""What truncation costs: every schedule against full BPTT, on one model and one batch. Read after cutting.py.

All gradients come from one finely cut tape: the forward pass is recorded once, cut before every step, and each
schedule says which of the cuts to mend. Full BPTT is the same tape with all cuts mended. Memory and time come
from a run of each schedule by itself, with a tape that holds one window only.
"""

from __future__ import annotations

import math
import statistics
import time
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .backend import synchronize
from .cells import buffers
from .cutting import accumulate, call_loss, owned, refuse_parameters_in_the_loss
from .gradients import Gradients
from .module import evaluating
from .report import MEASURES, Comparison, Row
from .sequence import real_steps, run, sequence_input
from .tape import Cut, Tape
from .tensor import Tensor
from .truncation import Plan, Schedule


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
    measure: bool = True,
    progress: Callable[[int, int], None] | None = None,
    title: str = "",
    about: dict[str, Any] | None = None,
) -> Comparison:
    """Every schedule against full BPTT, at frozen weights; each is judged over all its offsets.

    x: (T, B, …); y: what loss(outputs, y) wants. state, lengths, mask, resets: as for `unroll`; with padding the loss
    is called as loss(outputs, y, mask=…). measure: run each schedule by itself for memory and time too. Dropout is off.
    progress: called with (done, of) as the work goes on. title, about: kept with the result, for its table and JSON.
    ValueError for an empty list of schedules, a loss that is not a finite scalar, and a model whose state cannot be
    cut; TypeError for what is no schedule.
    """
    schedules = [schedules] if isinstance(schedules, Schedule) else list(schedules)
    if not schedules:
        raise ValueError("compare needs at least one schedule, for example [minibptt.tbptt(8)]")
    for schedule in schedules:
        if not isinstance(schedule, Schedule):
            raise TypeError(f"schedules are made by full() and tbptt(k); found {schedule!r}")
    x = sequence_input(x)
    T, B = x.shape[:2]
    options = {"mask": real_steps(T, B, lengths, mask), "resets": resets}
    plans = [schedule.plans(T) for schedule in schedules]
    total, done = sum(map(len, plans)) + len(plans) * measure, 0

    def tick() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    with evaluating(model):
        tape, outputs, value = _finely_cut(model, x, y, loss, state, options)
        loss_value, seeds = value.item(), tape.gradient(value, outputs)
        G = tape.gradient(outputs, model, seed=seeds, through_cuts=True)
        figures = [
            [_judge(_by_mending(tape, outputs, seeds, model, plan), G, tick) for plan in offsets] for offsets in plans
        ]
        del tape, outputs, value  # so that they are not in the memory that is measured
        rows = []
        for schedule, offsets, judged in zip(schedules, plans, figures):
            values = dict(zip(MEASURES, zip(*judged)))
            cost: tuple[int | None, float | None] = (None, None)
            if measure:
                cost = _cost(partial(accumulate, model, x, seeds, offsets[0], state=state, **options))
                tick()
            rows.append(Row(schedule, max(plan.longest for plan in offsets), values, *cost))
    return Comparison(T, B, loss_value, G.norm(), tuple(rows), title, about or {})


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
            through_cuts=_factor_of(update.factors),
        )
        for update in (plan.updates[:1] if shared else plan.updates)
    ]
    return sum(parts[1:], parts[0])


def _factor_of(factors: Sequence[float]) -> Callable[[Cut], float]:
    def factor(cut: Cut) -> float:
        assert cut.step is not None  # unroll cuts on the clock
        return factors[cut.step - 1]

    return factor


def _judge(g: Gradients, G: Gradients, tick: Callable[[], None]) -> tuple[float, ...]:
    """The measures of g against full BPTT's gradient G, in the order of MEASURES."""
    tick()
    size = G.norm()
    return g.share(G), g.relative_error(G), g.cosine(G), g.norm() / size if size else math.nan


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
    del gradients
    buffers.clear()  # so that this run pays for its arrays
    running = tracemalloc.is_tracing()
    if not running:
        tracemalloc.start()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    work()
    peak = tracemalloc.get_traced_memory()[1] - before
    if not running:
        tracemalloc.stop()
    return peak, statistics.median(times)


def _an_array(gradients: Gradients) -> Any:
    return next(iter(gradients.values()))
