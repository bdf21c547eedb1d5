"""What can be asked of a tape: gradients, adjoints, and what each cut dropped. Read after sweep.py.

Every question is pure: it changes nothing, and asked again it gives the same answer. `Tape` in tape.py, which
records, is a kind of this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from .backend import Array, BackendError, is_array, library_of, name_of
from .gradients import Gradients
from .parameters import Parameter
from .sweep import Cut, Record, UsedOffTheClock, sweep
from .tensor import Tensor


class TapeError(RuntimeError):
    """A question that this tape cannot answer: a tensor, loss or parameter that is not as it was recorded."""


ThroughCuts = bool | float | Callable[[Cut], float]


class State(NamedTuple):
    """A state that was noted: see `Tape.state`. resets: as given there, on the host."""

    key: str
    steps: tuple[int, int]
    tensor: Tensor
    kept: Tensor | None
    real: Array
    stacked: bool
    resets: Array = None


class Call(NamedTuple):
    """One call of a cell's `step` by `unroll`: what it was given, and which slots were made while it ran.

    first, last: the slots after `first` up to `last` are its own. real, resets: (B,) on the host, or None.
    """

    cell: Any
    x: Any
    state: Any
    steps: tuple[int, int]
    layer: str | None
    first: int
    last: int
    real: Any
    resets: Any


class Questions:
    """What a tape holds, and what can be asked of it. `Tape` fills it in, and says what each part is."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.leaves: dict[int, Tensor] = {}
        self.cuts: list[Cut] = []
        self.calls: list[Call] = []
        self.mark = object()  # what its tensors carry, so that they know their tape without holding it
        self._parameters: dict[int, tuple[Parameter, int, Array]] = {}  # id → parameter, slot, value then
        self._states: list[State] = []
        self._trimmed = False

    @property
    def notes(self) -> tuple[State, ...]:
        """What was noted of the states, in order: see `Tape.state`."""
        return tuple(self._states)

    def known_slot(self, tensor: Tensor) -> int | None:
        """The slot of a tensor of this tape, or of a parameter that it met; None for any other."""
        return tensor.slot if tensor.mark is self.mark else self._parameters.get(id(tensor), (None, None))[1]

    def _on_tape(self) -> set[int]:
        """The slots of all leaves, and of all outputs and inner cuts of the records that are kept."""
        outputs = (out.slot for record in self.records for out in record.outputs)
        return {*self.leaves, *outputs, *(cut.slot for record in self.records for cut in record.inner or ())}

    def gradient(self, loss: Tensor, wrt: Any, seed: Any = None, *, through_cuts: ThroughCuts = False) -> Any:
        """∂loss/∂wrt. A pure question: it changes nothing, and asked again it gives the same answer.

        loss: a scalar of this tape, or any tensor of it with `seed`, the adjoint to start from (same shape).
        wrt: a tensor (the answer is an array), a module (a Gradients), or a sequence of these (a tuple).
        through_cuts: False closes the cuts, True mends them (full BPTT, to the bit), a number is the factor
        on each, a function gives the factor of a `Cut`.
        What the loss does not reach gets zeros. TapeError for a loss or tensor that is not on this tape, and
        where a parameter has changed since it was recorded.
        """
        wanted = [slot for slot in self._slots_of(wrt) if slot is not None]
        return self._answer(wrt, self._sweep(loss, seed, through_cuts, wanted))

    def gradient_by_step(
        self, loss: Tensor, module: Any, seed: Any = None, *, through_cuts: ThroughCuts = False
    ) -> dict[int, Gradients]:
        """The gradient apart by the step at which a parameter was used: {3: Gradients, …}, steps counted from 1.

        A step that the loss does not reach is left out. Arguments and errors as for `gradient`; TapeError where a
        parameter is used in a record of many steps, or off the clock: run the model one step at a time.
        """
        met = {name: self.known_slot(p) for name, p in module.named_parameters()}
        slots = {slot: name for name, slot in met.items() if slot is not None}
        apart: dict[int, dict[int, Array]] = {slot: {} for slot in slots}
        try:
            self._sweep(loss, seed, through_cuts, list(slots), apart)
        except UsedOffTheClock as error:
            raise TapeError(f"{slots[error.slot]} is used in {error.where}: run the model one step at a time") from None
        steps = sorted({step for parts in apart.values() for step in parts})
        zero = {name: zero_adjoint(parameter) for name, parameter in module.named_parameters()}
        return {
            step: Gradients(zero | {slots[slot]: parts[step] for slot, parts in apart.items() if step in parts})
            for step in steps
        }

    def adjoints(self, loss: Tensor, seed: Any = None, *, through_cuts: ThroughCuts = False) -> dict[str, Array]:
        """∂L/∂h_t for every state that was noted: {"h": (T, B, H)}, or {"1.h": …} for layer "1".

        Index 0 is the first step on the tape; two unrolls on one tape follow each other, unless their layers differ.
        Arguments and errors as for `gradient`; TapeError where no state was noted.
        """
        if not self._states:
            raise no_states()
        tensors = [x for s in self._states for x in (s.tensor, s.kept) if x is not None and x.mark is self.mark]
        found = self._sweep(loss, seed, through_cuts, [x.slot for x in tensors])
        rows: dict[str, list[Array]] = {}
        for key, _, tensor, kept, real, stacked, _ in self._states:
            array = self._answer(tensor, found)
            xp = library_of(array)
            if kept is not None:
                array = xp.where(real, array, self._answer(kept, found))
            row = rows.setdefault(key, [])
            row.append(array if stacked else array[None])
            if row[-1].shape[1:] != row[0].shape[1:]:
                raise TapeError(
                    f"two states are called {key!r}, one of shape {row[0].shape[1:]} and one of {row[-1].shape[1:]}. "
                    "Tell them apart by layer: `with tape.at(layer='inner'):`"
                )
        return {key: library_of(arrays[0]).concatenate(arrays) for key, arrays in rows.items()}

    def dropped(self, loss: Tensor, seed: Any = None, *, through_cuts: ThroughCuts = False) -> dict[Cut, Array]:
        """For each cut the adjoint that arrived there and went no further: (1 − factor) times the adjoint."""
        factors = self.factors(through_cuts)
        found = self._sweep(loss, seed, through_cuts, [cut.slot for cut in self.cuts])
        return {cut: self._answer(cut.tensor, found) * (1 - factors.get(cut.slot, 0.0)) for cut in self.cuts}

    def all_adjoints(self, loss: Tensor, *, through_cuts: ThroughCuts = False) -> dict[int, Array]:
        """The adjoint of every slot that the loss reaches, not copied: what derivations start from."""
        return self._sweep(loss, None, through_cuts, list(self._on_tape()))

    def factors(self, through_cuts: ThroughCuts) -> dict[int, float]:
        """The factor of each cut that has a past, by the slot of what the cut returned."""
        check_through_cuts(through_cuts)
        return {cut.slot: factor_of(cut, through_cuts) for cut in self.cuts if cut.source is not None}

    def _sweep(
        self,
        loss: Tensor,
        seed: Any,
        through_cuts: ThroughCuts,
        wanted: Sequence[int],
        apart: dict[int, dict[int, Array]] | None = None,
    ) -> dict[int, Array]:
        """The adjoints of the slots in `wanted` that `loss` reaches, after every check."""
        start, seed = self.slot_of_loss(loss), self._seed(loss, seed)
        for parameter, _, value in self._parameters.values():
            if parameter.value is not value:
                raise changed(parameter)
        return sweep(self.records, self.cuts, self.factors(through_cuts), start, seed, wanted, apart, self.leaves)

    def slot_of_loss(self, loss: Tensor) -> int:
        """The slot of a loss. TypeError for what is no tensor, TapeError for one that is not on this tape."""
        if not isinstance(loss, Tensor):
            raise TypeError(f"the loss must be a tensor, found {type(loss).__name__}")
        slot = self.known_slot(loss)
        if slot is None:
            raise TapeError(
                f"the loss ({loss.label}) is not on this tape: it was computed outside `with Tape():` or on another "
                "tape, or none of its inputs is a parameter or was watched"
            )
        if self._trimmed and slot not in self._on_tape():
            raise TapeError(f"the loss ({loss.label}) is older than what keep_last left on this tape")
        return slot

    def _seed(self, loss: Tensor, seed: Any) -> Array:
        xp = library_of(loss.value)
        if loss.dtype.kind == "c":
            raise TypeError(f"the loss ({loss.label}) is complex; gradients are of real losses")
        if seed is None:
            if loss.size != 1:
                raise ValueError(f"the loss must be a scalar, found shape {loss.shape}: sum it, or give seed=")
            return xp.ones(loss.shape, dtype=loss.dtype)
        seed = getattr(seed, "value", seed)
        if is_array(seed) and library_of(seed) is not xp:
            found, wanted = name_of(library_of(seed)), name_of(xp)
            raise BackendError(f"the seed is a {found} array, the loss ({loss.label}) a {wanted} one")
        seed = xp.asarray(seed, dtype=loss.dtype)
        if seed.shape != loss.shape:
            raise ValueError(f"the seed has shape {seed.shape}, the loss ({loss.label}) has shape {loss.shape}")
        return seed

    def slot_of_wrt(self, tensor: Tensor) -> int | None:
        """The slot of what a gradient is asked for: None for a parameter that this tape never met.

        TapeError for what is neither a parameter nor on this tape.
        """
        if tensor.mark is not self.mark and not tensor.is_parameter:
            raise TapeError(
                f"{tensor.label} is neither a parameter nor on this tape. To ask for the gradient of an input, use "
                "what watch returns: x = tape.watch(x)"
            )
        return self.known_slot(tensor)

    def _slots_of(self, wrt: Any) -> Iterator[int | None]:
        """The slots of all tensors in `wrt`; None for a parameter that this tape never met."""
        if isinstance(wrt, Tensor):
            yield self.slot_of_wrt(wrt)
        elif hasattr(wrt, "named_parameters"):
            for _, parameter in wrt.named_parameters():
                yield from self._slots_of(parameter)
        elif isinstance(wrt, list | tuple):
            for one in wrt:
                yield from self._slots_of(one)
        else:
            raise TypeError(
                f"wrt must be a tensor, a module or a sequence of these, found {type(wrt).__name__}. To ask for the "
                "gradient of an array, watch it first: x = tape.watch(x)"
            )

    def _answer(self, wrt: Any, found: dict[int, Array]) -> Any:
        """The adjoints in `found`, copied, in the structure of `wrt`."""
        if isinstance(wrt, Tensor):
            slot = self.known_slot(wrt)
            return library_of(wrt.value).array(found[slot]) if slot in found else zero_adjoint(wrt)
        if hasattr(wrt, "named_parameters"):
            return Gradients({name: self._answer(p, found) for name, p in wrt.named_parameters()})
        return tuple([self._answer(one, found) for one in wrt])


def zero_adjoint(tensor: Tensor) -> Array:
    """The adjoint of what the loss does not reach."""
    return library_of(tensor.value).zeros(tensor.shape, dtype=tensor.dtype)


def check_through_cuts(through_cuts: Any) -> None:
    """TypeError for what gives no factor, on a tape without cuts too."""
    if not callable(through_cuts) and not _is_factor(through_cuts):
        raise TypeError(
            "through_cuts must be False (closed), True (mended), a finite number, or a function from a cut to one; "
            f"found {through_cuts!r}"
        )


def factor_of(cut: Cut, through_cuts: ThroughCuts) -> float:
    """What the adjoint is multiplied by at `cut`; 0 where its past is not on the tape."""
    if cut.source is None:
        return 0.0
    factor = through_cuts(cut) if callable(through_cuts) else through_cuts
    if not _is_factor(factor):
        raise TypeError(f"through_cuts must give finite numbers; for {cut} it gave {factor!r}")
    return float(factor)


def _is_factor(x: Any) -> bool:
    return isinstance(x, Real | np.bool_) and math.isfinite(x)


def no_states() -> TapeError:
    """The error of a tape on which no state was noted."""
    return TapeError(
        "no states are noted on this tape. unroll notes them; in a loop of your own call tape.state('h', h) at each "
        "step, inside `with tape.at(t):`"
    )


def changed(parameter: Parameter) -> TapeError:
    """The error where a parameter is no longer what this tape recorded."""
    return TapeError(
        f"{parameter.label} has changed since this tape recorded it, so its gradients would mix two values. Ask for "
        "gradients before you assign, and record the next step on a new tape"
    )
