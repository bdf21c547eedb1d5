"""A gradient derived step by step, from the last step back, as it is written on a blackboard.

Read after derivations/paper.py.

Everything comes from the tape: the equations from its records, the local derivatives from the docstrings of the
operations, the numbers from the backward pass itself. So the derivation cannot disagree with the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import listing
from .asking import TapeError, ThroughCuts, zero_adjoint
from .backend import library_of
from .tape import Tape
from .tensor import Tensor

if TYPE_CHECKING:
    from .derivations.backflow import Backflow
    from .derivations.derivation import Derivation
    from .derivations.lines import Line
    from .derivations.symbols import Symbols

DETAILS = ("step", "gate", "operation")


def derive(
    tape: Tape, loss: Tensor, wrt: Tensor, *, through_cuts: ThroughCuts = False, detail: str = "step"
) -> Derivation:
    """∂loss/∂wrt, derived step by step from the last step back.

    wrt: a parameter, or a tensor on the tape, such as an initial state or a watched input. through_cuts: as for
    `tape.gradient`. detail: "step" (the equations of each step, lines for each part of the state), "gate" (lines for
    every value that the cell names) or "operation" (for every record). `print` shows it; see `Derivation`.
    ValueError for a loss that is no scalar; TypeError for a module or several tensors; TapeError where the tape holds a
    layer as one record (engine="explicit").
    """
    # Here, not above, so that `import minibptt` stays quick: few programs derive.
    from .derivations.backflow import Backflow
    from .derivations.derivation import Derivation
    from .derivations.expressions import Symbol
    from .derivations.lines import Term
    from .derivations.paper import Paper
    from .derivations.symbols import Symbols

    if not isinstance(tape, Tape):
        raise TypeError(f"derive takes a tape first, derive(tape, loss, wrt); found {type(tape).__name__}")
    if detail not in DETAILS:
        raise ValueError(f"detail must be one of {', '.join(map(repr, DETAILS))}, found {detail!r}")
    if isinstance(loss, Tensor) and loss.size != 1:
        raise ValueError(f"the loss must be a scalar, found shape {loss.shape}: sum it, as with mb.sum(loss)")
    if not isinstance(wrt, Tensor):
        raise TypeError(_one_tensor(wrt))
    for record in tape.records:
        if record.inner is not None:
            raise TapeError(
                f"{record.op} is on this tape as one record of many steps, in which nothing can be derived step by "
                "step: run it with engine='tape', which records every operation"
            )
    flow = Backflow(tape, loss, wrt, through_cuts)
    symbols, every = Symbols(tape), Symbols(tape, every=True) if detail == "operation" else None
    terms: dict[Any, Term] = {}
    xp = library_of(wrt.value)
    for i, part in flow.parts.items():
        key = step, layer = flow.places[i].step, flow.places[i].layer
        terms[key] = Term(step, layer, terms[key].term + part if key in terms else xp.array(part))
    total = zero_adjoint(wrt)
    for term in terms.values():
        total = total + term.term
    return Derivation(
        symbols.of(flow.slot) if flow.slot is not None else Symbol(wrt.label),
        symbols.formula(flow.start) if flow.start in symbols.producer else symbols.of(flow.start),
        loss.value,
        [flow.factors[cut.slot] for cut in tape.cuts if cut.slot in flow.factors],
        list(terms.values()),
        total,
        Paper(flow, every or symbols, detail).blocks(),
        detail,
        _cuts_before_the_tape(flow, symbols),
    )


def _one_tensor(wrt: Any) -> str:
    found = f"derive explains the gradient of one tensor; found {type(wrt).__name__}"
    if hasattr(wrt, "named_parameters"):
        names = [name for name, _ in wrt.named_parameters()]
        some = ", ".join(names[:6]) + (", …" if len(names) > 6 else "")
        return f"{found}. Pass one of its parameters, model.parameters()[name]; the names are {some or '(none)'}"
    if wrt is None or isinstance(wrt, str | dict):
        return f"{found}. Pass the parameter itself, model.parameters()[name]"
    return f"{found}. Pass one at a time" if isinstance(wrt, list | tuple) else f"{found}. Watch it: x = tape.watch(x)"


def _cuts_before_the_tape(flow: Backflow, symbols: Symbols) -> list[Line]:
    """Cuts whose past is not on this tape, at which something arrives."""
    from .derivations.lines import Line, shown
    from .derivations.paper import bare_adjoint

    return [
        Line("cut", bare_adjoint(symbols, cut.slot), "=", (shown(flow.adjoints[cut.slot]),),
             f"arrives at the cut before step {cut.step}, whose past is not on this tape")
        for cut in flow.tape.cuts
        if cut.source is None and cut.slot in flow.adjoints
    ]  # fmt: skip


def names_of_values(tape: Tape) -> Mapping[int, str]:
    """By slot, what the values that are no leaves are called, for `print(tape)`."""
    from .derivations.symbols import labels

    return labels(tape)


listing.value_names = names_of_values
