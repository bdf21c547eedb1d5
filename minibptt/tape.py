"""The tape: what was computed, in order, and what can be asked of it. Read after sweep.py.

An operation is recorded when a tape is open and one of its inputs is a parameter, was watched, or was itself
recorded on that tape. `tape.gradient(loss, wrt)` goes through the records from the last to the first, hands
each record the adjoint of its output, and adds what its rule returns to the adjoints of its inputs. First
derivatives only: a gradient is a plain array, which no tape records.

The tape has a clock: each record knows the time steps and the layer that it belongs to. A cut is a record
too, an identity whose adjoint is multiplied by a factor: 0 closes it, 1 mends it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from .backend import Array, BackendError, is_array, library_of, name_of
from .gradients import Gradients
from .listing import wengert
from .nest import leaves, map_nest
from .sweep import Cut, Record, Rule, UsedOffTheClock, sweep
from .tensor import Parameter, Steps, Tensor, float_array, made, tensors


class TapeError(RuntimeError):
    """A question that this tape cannot answer: a tensor, loss or parameter that is not as it was recorded."""


class _Open(threading.local):
    tape: Tape | None = None  # the innermost open tape of this thread


_open = _Open()


ThroughCuts = bool | float | Callable[[Cut], float]


class _State(NamedTuple):
    """A state that was noted: see `Tape.state`."""

    key: str
    steps: tuple[int, int]
    tensor: Tensor
    kept: Tensor | None
    real: Array
    stacked: bool


class Tape:
    """Records operations while it is open: `with mb.Tape() as tape:`.

    records: the operations in order. leaves: the parameters and watched tensors, by slot. cuts: where it was
    cut. Everything on it is released with it. Arrays that are no tensors are held, not copied: to change one in
    place before the gradient is asked for changes the gradient.
    """

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.leaves: dict[int, Tensor] = {}
        self.cuts: list[Cut] = []
        self.mark = object()  # what its tensors carry, so that they know their tape without holding it
        self._parameters: dict[int, tuple[Parameter, int, Array]] = {}  # id → parameter, slot, value then
        self._states: list[_State] = []
        self._slots = 0
        self._trimmed = False
        self._steps: Steps = None
        self._before = 0  # what a clock inside is ahead of: see `shifted`
        self._layer: str | None = None
        self._outer: list[Tape | None] = []

    def __enter__(self) -> Tape:
        self._outer.append(_open.tape)
        _open.tape = self
        return self

    def __exit__(self, *exception: object) -> None:
        _open.tape = self._outer.pop()

    def __repr__(self) -> str:
        return f"Tape({len(self.records)} records, {len(self.cuts)} cuts)"

    def __str__(self) -> str:
        return wengert(self)

    # --- the clock -----------------------------------------------------------------------------------------

    @property
    def step(self) -> int | None:
        """The step that the clock stands at (the last one of a range), or None."""
        return self._steps[1] if self._steps else None

    @property
    def layer(self) -> str | None:
        return self._layer

    @property
    def states(self) -> tuple[str, ...]:
        """The states that were noted, each once: "h", or "1.h" for layer "1"."""
        return tuple(dict.fromkeys(state.key for state in self._states))

    @contextmanager
    def at(self, step: int | None = None, last: int | None = None, *, layer: str | None = None) -> Iterator[Tape]:
        """Records made inside belong to step `step` (or to the range `step` to `last`) and to `layer`.

        What is not given stays as it is outside; afterwards all is as it was.
        """
        before = self._steps, self._layer
        if step is not None:
            self._steps = (step + self._before, (step if last is None else last) + self._before)
        if layer is not None:
            self._layer = layer
        try:
            yield self
        finally:
            self._steps, self._layer = before

    @contextmanager
    def shifted(self, steps: int) -> Iterator[Tape]:
        """Inside, the clock counts from `steps` + 1 where it is set to 1: for a sequence that is run in pieces."""
        before, self._before = self._before, steps
        try:
            yield self
        finally:
            self._before = before

    # --- recording -----------------------------------------------------------------------------------------

    def slot_of(self, tensor: Tensor) -> int | None:
        """The place of `tensor` on this tape, None for a constant. TapeError where it is on another tape."""
        if tensor.mark is self.mark:
            return tensor.slot
        if isinstance(tensor, Parameter):
            known = self._parameters.get(id(tensor))
            if known is None:
                self._parameters[id(tensor)] = known = (tensor, self._new_slot(), tensor.value)
                self.leaves[known[1]] = tensor
            elif known[2] is not tensor.value:
                raise _changed(tensor)
            return known[1]
        if tensor.mark is not None:
            raise TapeError(
                f"{tensor.label} was made on another tape and is used on this one, which does not know its past. "
                "To carry its value on without the past, write mb.cut(state) before you use it. (PyTorch's words "
                'for the same mistake: "Trying to backward through the graph a second time".)'
            )
        return None

    def record(
        self,
        op: str,
        inputs: Sequence[int | None],
        constants: Sequence[Any],
        values: tuple[Array, ...],
        rule: Rule | None,
        steps: Steps = None,
        weak: bool = False,
        several: bool = False,
        inner: Sequence[Cut] | None = None,
    ) -> tuple[Tensor, ...]:
        """Put one operation on the tape and return its outputs. The clock's step, where it stands, wins.

        inner: for a record of many steps, the cuts inside it (see `sweep.Record`).
        """
        steps = self._steps or steps
        first, self._slots = self._slots + 1, self._slots + len(values)
        outputs = tuple([made(value, weak, self.mark, first + i, steps) for i, value in enumerate(values)])
        self.records.append(Record(op, inputs, constants, outputs, rule, steps, self._layer, several, inner))
        self.cuts.extend(inner or ())
        return outputs

    def place(self, value: Array, name: str, steps: Steps) -> Tensor:
        """A tensor with a place of its own on the tape, for what stands inside a record of many steps."""
        return Tensor(value, name, False, self.mark, self._new_slot(), steps)

    def _new_slot(self) -> int:
        self._slots += 1
        return self._slots

    def watch(self, x: Any, name: str | None = None) -> Any:
        """The same value as a tensor of this tape, so that its gradient can be asked for: `x = tape.watch(x)`.

        x: an array, number or tensor, or any nesting of tuples, lists and dicts of them; lists of nothing but
        numbers are an array. TypeError for arrays of integers, which have no derivative.
        """
        if not isinstance(x, dict) and all(isinstance(leaf, Real) for _, leaf in leaves(x)):
            return self._leaf(x, name)
        return map_nest(lambda leaf: self._leaf(leaf, name), x)

    def _leaf(self, x: Any, name: str | None, steps: Steps = None) -> Tensor:
        if isinstance(x, Tensor) and (x.mark is self.mark or x.is_parameter):
            return x
        value = x.value if isinstance(x, Tensor) else x
        if not isinstance(x, Tensor) or value.dtype.kind not in "fc":
            value = float_array(value, what="watch")  # a copy, so that the caller may use the buffer again
        weak, known = (x.weak, x.name) if isinstance(x, Tensor) else (False, None)
        leaf = Tensor(value, name or known, weak, self.mark, self._new_slot(), steps or self._steps)
        self.leaves[leaf.slot] = leaf
        return leaf

    def state(
        self, name: str, tensor: Tensor, kept: Tensor | None = None, real: Array = None, *, stacked: bool = False
    ) -> None:
        """Say that `tensor` is the state called `name` after the step that the clock stands at.

        `unroll` does this; in a loop of one's own it makes `adjoints` know the state. kept, real: where some rows
        are padded, the state that is carried on, and which rows are real, in a shape that broadcasts over it.
        stacked: the tensor is the states after all the steps that the clock stands at, (T, B, H).
        TapeError where the clock stands at no step.
        """
        if self._steps is None:
            raise TapeError(f"the clock does not stand at a step: call state({name!r}, …) inside `with tape.at(t):`")
        for one in (tensor, kept):
            if one is not None and one.mark is self.mark:  # what the caller made elsewhere keeps its name
                one.name, one.steps = one.name or name, one.steps or self._steps
        key = f"{self._layer}.{name}" if self._layer else name
        self._states.append(_State(key, self._steps, tensor, kept, real, stacked))

    def cut_tensor(self, tensor: Tensor) -> Tensor:
        """A leaf with the value of `tensor`, the boundary between the two being kept. `cut` calls this."""
        past = tensor.mark is self.mark or tensor.is_parameter
        source = self.slot_of(tensor) if past else None
        # Without a clock, a state from an earlier tape stands before this tape's first step: h₀.
        after = tensor.steps[1] if past and tensor.steps else 0
        step = self._steps[0] if self._steps else after + 1
        value = _own_buffer(tensor.value)
        if source is None:
            new = self._leaf(Tensor(value, tensor.name, tensor.weak), None, (step - 1, step - 1))
        else:
            (new,) = self.record("cut", (source,), (), (value,), None, weak=tensor.weak)
            new.name, new.steps = tensor.name, (step - 1, step - 1)
        self.cuts.append(Cut(step, self._layer, source, new))
        return new

    def keep_last(self, steps: int) -> None:
        """Drop the records that are older than the last `steps` steps by the clock.

        Gradients then reach back no further: a sliding window, for weights that stay as they are. A record of many
        steps (engine="explicit") stays whole as long as its last step does. Where
        weights move between overlapping windows, recompute the window from the state stored at its start.
        ValueError for steps < 1.
        """
        if steps < 1:
            raise ValueError(f"keep_last needs at least 1 step, found {steps}")
        now = self.step or max((r.steps[1] for r in self.records if r.steps), default=0)
        oldest = now - steps + 1
        self.records = [r for r in self.records if r.steps is None or r.steps[1] >= oldest]
        self._states = [s for s in self._states if s.steps[1] >= oldest]
        self.leaves = {slot: x for slot, x in self.leaves.items() if x.steps is None or x.steps[1] >= oldest - 1}
        kept = self._on_tape()
        self.cuts = [c for c in self.cuts if c.slot in kept]
        self._trimmed = True

    def _on_tape(self) -> set[int]:
        """The slots of all leaves, and of all outputs and inner cuts of the records that are kept."""
        outputs = (out.slot for record in self.records for out in record.outputs)
        return {*self.leaves, *outputs, *(cut.slot for record in self.records for cut in record.inner or ())}

    # --- asking --------------------------------------------------------------------------------------------

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
        slots = {self._parameters[id(p)][1]: name for name, p in module.named_parameters() if id(p) in self._parameters}
        apart: dict[int, dict[int, Array]] = {slot: {} for slot in slots}
        try:
            self._sweep(loss, seed, through_cuts, list(slots), apart)
        except UsedOffTheClock as error:
            raise TapeError(f"{slots[error.slot]} is used in {error.where}: run the model one step at a time") from None
        steps = sorted({step for parts in apart.values() for step in parts})
        zero = {name: self._zeros(parameter) for name, parameter in module.named_parameters()}
        return {
            step: Gradients(zero | {slots[slot]: parts[step] for slot, parts in apart.items() if step in parts})
            for step in steps
        }

    @staticmethod
    def _zeros(tensor: Tensor) -> Array:
        return library_of(tensor.value).zeros(tensor.shape, dtype=tensor.dtype)

    def adjoints(self, loss: Tensor, seed: Any = None, *, through_cuts: ThroughCuts = False) -> dict[str, Array]:
        """∂L/∂h_t for every state that was noted: {"h": (T, B, H)}, or {"1.h": …} for layer "1".

        Index 0 is the first step on the tape; two unrolls on one tape follow each other, unless their layers differ.
        Arguments and errors as for `gradient`; TapeError where no state was noted.
        """
        if not self._states:
            raise TapeError(
                "no states are noted on this tape. unroll notes them; in a loop of your own call "
                "tape.state('h', h) at each step"
            )
        tensors = [x for s in self._states for x in (s.tensor, s.kept) if x is not None and x.mark is self.mark]
        found = self._sweep(loss, seed, through_cuts, [x.slot for x in tensors])
        rows: dict[str, list[Array]] = {}
        for key, _, tensor, kept, real, stacked in self._states:
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
        factors = self._factors(through_cuts)
        found = self._sweep(loss, seed, through_cuts, [cut.slot for cut in self.cuts])
        return {cut: self._answer(cut.tensor, found) * (1 - factors.get(cut.slot, 0.0)) for cut in self.cuts}

    def _factors(self, through_cuts: ThroughCuts) -> dict[int, float]:
        """The factor of each cut that has a past, by the slot of what the cut returned."""
        factors: dict[int, float] = {}
        for cut in self.cuts:
            if cut.source is not None:
                factor = through_cuts(cut) if callable(through_cuts) else through_cuts
                if not isinstance(factor, Real | np.bool_) or not abs(float(factor)) < float("inf"):
                    raise TypeError(f"through_cuts must give finite numbers; for {cut} it gave {factor!r}")
                factors[cut.slot] = float(factor)
        return factors

    def _sweep(
        self,
        loss: Tensor,
        seed: Any,
        through_cuts: ThroughCuts,
        wanted: Sequence[int],
        apart: dict[int, dict[int, Array]] | None = None,
    ) -> dict[int, Array]:
        """The adjoints of the slots in `wanted` that `loss` reaches, after every check."""
        start, seed = self._slot_of_loss(loss), self._seed(loss, seed)
        for parameter, _, value in self._parameters.values():
            if parameter.value is not value:
                raise _changed(parameter)
        return sweep(self.records, self.cuts, self._factors(through_cuts), start, seed, wanted, apart, self.leaves)

    def _slot_of_loss(self, loss: Tensor) -> int:
        if not isinstance(loss, Tensor):
            raise TypeError(f"the loss must be a tensor, found {type(loss).__name__}")
        if loss.mark is not self.mark and id(loss) not in self._parameters:
            raise TapeError(
                f"the loss ({loss.label}) is not on this tape: it was computed outside `with Tape():` or on another "
                "tape, or none of its inputs is a parameter or was watched"
            )
        slot = self.slot_of(loss)
        assert slot is not None
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

    def _slots_of(self, wrt: Any) -> Iterator[int | None]:
        """The slots of all tensors in `wrt`; None for a parameter that this tape never met."""
        if isinstance(wrt, Tensor):
            if wrt.mark is not self.mark and not wrt.is_parameter:
                raise TapeError(
                    f"{wrt.label} is neither a parameter nor on this tape. To ask for the gradient of an input, use "
                    "what watch returns: x = tape.watch(x)"
                )
            yield wrt.slot if wrt.mark is self.mark else self._parameters.get(id(wrt), (None, None))[1]
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
            slot = wrt.slot if wrt.mark is self.mark else self._parameters.get(id(wrt), (None, None))[1]
            xp = library_of(wrt.value)
            if slot in found:
                return xp.array(found[slot])
            return self._zeros(wrt)
        if hasattr(wrt, "named_parameters"):
            return Gradients({name: self._answer(p, found) for name, p in wrt.named_parameters()})
        return tuple([self._answer(one, found) for one in wrt])


def _changed(parameter: Parameter) -> TapeError:
    return TapeError(
        f"{parameter.label} has changed since this tape recorded it, so its gradients would mix two values. Ask for "
        "gradients before you assign, and record the next step on a new tape"
    )


def _own_buffer(value: Array) -> Array:
    """The value without a share in a larger buffer, which it would keep in memory."""
    return value if getattr(value, "base", None) is None else value.copy()


@contextmanager
def no_tape() -> Iterator[None]:
    """Inside, nothing is recorded (also as a decorator). Nests, and ends well after an exception."""
    outer, _open.tape = _open.tape, None
    try:
        yield
    finally:
        _open.tape = outer


def open_tape() -> Tape | None:
    """The tape that records now, or None."""
    return _open.tape


def cut(state: Any) -> Any:
    """The same values with no past: PyTorch's detach, JAX's stop_gradient.

    state: a tensor, or any nesting of tuples, lists and dicts of them; the same shape of thing comes back, of
    new tensors that share no larger buffer. What was given stays as it was. On an open tape the boundary is
    kept in `tape.cuts`, where `through_cuts` can mend it.

    Cut the state, never the loss: where a masked step hides the state from the loss, cutting what the loss
    depends on leaves a way around.
    """
    return map_nest(_cut_one, tensors(state))


def _cut_one(tensor: Tensor) -> Tensor:
    if _open.tape is not None and tensor.dtype.kind in "fc":
        return _open.tape.cut_tensor(tensor)
    return Tensor(_own_buffer(tensor.value), tensor.name, tensor.weak)
