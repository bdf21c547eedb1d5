"""The tape: what was computed, in order. Read after asking.py, which says what can be asked of it.

An operation is recorded when a tape is open and one of its inputs is a parameter, was watched, or was itself
recorded on that tape. `tape.gradient(loss, wrt)` goes through the records from the last to the first, hands
each record the adjoint of its output, and adds what its rule returns to the adjoints of its inputs. First
derivatives only: a gradient is a plain array, which no tape records.

The tape has a clock: each record knows the time steps and the layer that it belongs to. A cut is a record
too, an identity whose adjoint is multiplied by a factor: 0 closes it, 1 mends it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import Any

from .asking import Call, Questions, State, TapeError, changed
from .backend import Array
from .listing import counted, wengert
from .module import check_size
from .nest import leaves, map_nest
from .parameters import Parameter, float_array
from .sweep import Cut, Record, Rule
from .tensor import Steps, Tensor, made, tensors


class _Open(threading.local):
    tape: Tape | None = None  # the innermost open tape of this thread


_open = _Open()


class Tape(Questions):
    """Records operations while it is open: `with mb.Tape() as tape:`.

    records: the operations in order. leaves: the parameters and watched tensors, by slot. cuts: where it was
    cut. calls: the calls of cells by `unroll`, for derivations. Everything on it is released with it. Arrays that
    are no tensors are held, not copied: to change one in place before the gradient is asked for changes the gradient.
    """

    def __init__(self) -> None:
        super().__init__()
        self._slots = 0
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
        return f"Tape({counted(len(self.records), 'record')}, {counted(len(self.cuts), 'cut')})"

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

        What is not given stays as it is outside; afterwards all is as it was. TypeError for a step that is no whole
        number, ValueError for one below 1.
        """
        before = self._steps, self._layer
        if step is not None:
            last = step if last is None else last
            if not (type(step) is type(last) is int and 1 <= step <= last):  # quick: a sequence asks at every step
                check_size("tape.at", step=step, last=last)
                if last < step:
                    raise ValueError(f"tape.at: last must not be before step {step}, found {last}")
            self._steps = (step + self._before, last + self._before)
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
                raise changed(tensor)
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
        self,
        name: str,
        tensor: Tensor,
        kept: Tensor | None = None,
        real: Array = None,
        *,
        stacked: bool = False,
        resets: Array = None,
    ) -> None:
        """Say that `tensor` is the state called `name` after the step that the clock stands at.

        `unroll` does this; in a loop of one's own it makes `adjoints` know the state. kept, real: where some rows
        are padded, the state that is carried on, and which rows are real, in a shape that broadcasts over it.
        stacked: the tensor is the states after all the steps that the clock stands at, (T, B, H); real is (T, B) then.
        resets: which rows started afresh before the step, (B,), or (T, B) where stacked; drawings show them.
        TapeError where the clock stands at no step.
        """
        if self._steps is None:
            raise TapeError(f"the clock does not stand at a step: call state({name!r}, …) inside `with tape.at(t):`")
        for one in (tensor, kept):
            if one is not None and one.mark is self.mark:  # what the caller made elsewhere keeps its name
                one.name, one.steps = one.name or name, one.steps or self._steps
        key = f"{self._layer}.{name}" if self._layer else name
        self._states.append(State(key, self._steps, tensor, kept, real, stacked, resets))

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

    @property
    def slots(self) -> int:
        """How many places have been given out so far."""
        return self._slots

    def called(self, cell: Any, x: Any, state: Any, first: int, real: Any, resets: Any) -> None:
        """Say that `cell.step` was called with x and state at the step of the clock, after the slot `first`."""
        assert self._steps is not None
        self.calls.append(Call(cell, x, state, self._steps, self._layer, first, self._slots, real, resets))

    def keep_last(self, steps: int) -> None:
        """Drop the records that are older than the last `steps` steps by the clock.

        Gradients then reach back no further: a sliding window, for weights that stay as they are. A record of many
        steps (engine="explicit") stays whole as long as its last step does. Where weights move between overlapping
        windows, recompute the window from the state stored at its start.
        What is dropped counts as a constant, and no error says so. That holds for losses too: of a sum of losses that
        grows with the steps, total = total + loss_t, the older additions are dropped, and the gradient of total is
        that of the last few losses alone. Ask for the gradient of each loss while its records are there, and add up
        the gradients. ValueError for steps < 1.
        """
        check_size("keep_last", steps=steps)
        now = self.step or max((r.steps[1] for r in self.records if r.steps), default=0)
        oldest = now - steps + 1
        self.records = [r for r in self.records if r.steps is None or r.steps[1] >= oldest]
        self._states = [s for s in self._states if s.steps[1] >= oldest]
        self.calls = [c for c in self.calls if c.steps[1] >= oldest]
        self.leaves = {slot: x for slot, x in self.leaves.items() if x.steps is None or x.steps[1] >= oldest - 1}
        kept = self._on_tape()
        self.cuts = [c for c in self.cuts if c.slot in kept]
        self._trimmed = True


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
