"""A long stream as batches whose windows continue each other, row by row, for training with a carried state.

A stream of N tokens is laid out in B rows that each go on in time, and read through a window of k steps:

    row b:   s[b·L] … s[b·L + L − 1]              L = (N − 1) // B inputs
    x, y:    the next k steps of every row, (k, B); y is the token after x in the stream, also at a window's edge

so that the state after one window is the state before the next. The last window is shorter where k does not divide L.
The last target of a row is the first token of the next one, so that all but (N − 1) mod B tokens have their turn.
Read after archive.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .backend import Array, as_array, library_of
from .listing import counted
from .module import check_size


class Stream(ABC):
    """Windows (x, y) of `steps` steps over `batch` rows, each from where the one before ended: see `stream_batches`.

    It is an iterator: a second `for` goes on where the first one stopped, and `seek(0)` starts again. position: the
    steps of each row that were given out so far, to be stored in a checkpoint. left_over: how many targets of the
    stream the layout can't reach (for iterators: how many tokens were read of a step that not all rows had); None where
    nobody knows yet. length: the steps of a row, None where unknown.
    """

    batch: int
    steps: int
    position: int
    length: int | None
    left_over: int | None

    def __iter__(self) -> Stream:
        return self

    @abstractmethod
    def __next__(self) -> tuple[Array, Array]:
        """The next window. StopIteration after the last one."""

    def seek(self, position: int) -> Stream:
        """Go on with the window that starts `position` steps into each row. Returns the stream.

        A stream that never ends and is not resumed need not have it.
        """
        raise TypeError(f"{type(self).__name__} cannot go to a position: give it a method seek(position)")

    def state(self) -> dict[str, Any]:
        """Where the stream stands and how it is laid out, for a checkpoint."""
        return {"position": self.position, "batch": self.batch, "length": self.length}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave. CheckpointError where that was of a stream laid out in another way."""
        from .archive import CheckpointError  # here, so that `import minibptt` stays quick

        if not isinstance(state, Mapping) or not {"position", "batch", "length"} <= set(state):
            raise TypeError(f"a stream is restored from what its state() gave, found {state!r:.80}")
        for name in ("batch", "length"):
            if state[name] != getattr(self, name):
                what = "rows" if name == "batch" else "steps in a row"
                raise CheckpointError(
                    f"this stream has {getattr(self, name)} {what}, that of the checkpoint has {state[name]}: give the "
                    "same data in the same layout"
                )
        self.seek(state["position"])

    def _checked(self, position: Any) -> int:
        if isinstance(position, bool) or not isinstance(position, int | np.integer):
            raise TypeError(f"stream_batches: a position is a whole number of steps, found {position!r}")
        if position < 0 or (self.length is not None and position > self.length):
            most = "" if self.length is None else f" to {self.length}, the steps of a row"
            raise ValueError(f"stream_batches: a position counts steps from 0{most}; found {position}")
        return int(position)

    def __repr__(self) -> str:
        rows = counted(self.batch, "row") + ("" if self.length is None else f" of {counted(self.length, 'step')}")
        left = "" if self.left_over is None else f", {self.left_over} left over"
        return f"Stream({rows}, windows of {self.steps}, at step {self.position}{left})"


def stream_batches(source: Any, *, batch: int, steps: int, targets: Any = None, start: int = 0) -> Stream:
    """A stream in `batch` rows that each go on in time, in windows (x, y) of `steps` steps: x, y (steps, batch, …).

    source, one of
    - an array (N,) of tokens or (N, D) of features, or what becomes one (a list of numbers, bytes); a text, whose
      distinct characters, sorted, are numbered (`symbols`): laid out in rows of (N − 1) // batch steps;
    - a list of `batch` iterators, one for each row, of tokens or of features (D,);
    - an iterator that gives all rows of a step at once: arrays (batch,) or (batch, D);
    - for batch=1 an iterator of single tokens. One endless stream of tokens cannot be laid out in several rows that
      each go on: row 1 would start where row 0 ends.
    Iterators may be endless: only one window is held. They end with the first row that ends.

    y is x one step ahead in the same row. targets: an array (N, …), for an array: y is then targets at the steps of x,
    in rows of N // batch steps. Every target that this layout reaches is given out, the last window being shorter where
    it must; how many it can't reach is `left_over`. start: a position to go on from, as by `seek`; an iterator is read
    up to it. x and y are new arrays in the library of the source.
    ValueError for a stream too short for one target in each row, and for shapes that do not fit.
    """
    check_size("stream_batches", batch=batch, steps=steps)
    rows = isinstance(source, list | tuple) and len(source) > 0 and all(hasattr(s, "__next__") for s in source)
    stream: Stream
    if rows or not (hasattr(source, "__len__") or hasattr(source, "__array__")):
        if targets is not None:
            raise TypeError("stream_batches: targets= goes with an array; an iterator gives x one step ahead as y")
        if not rows and not hasattr(source, "__iter__"):
            raise TypeError(f"stream_batches: a stream is an array or an iterator, found {type(source).__name__}")
        if rows and len(source) != batch:
            raise ValueError(
                f"stream_batches: {counted(len(source), 'iterator')} for batch={batch}: give one for each row"
            )
        stream = IteratorStream(source, batch, steps, rows)
    else:
        stream = ArrayStream(source, targets, batch, steps)
    return stream.seek(start)


class ArrayStream(Stream):
    """Over an array, which is neither copied nor changed, so a memory map is read window by window."""

    symbols: str = ""

    def __init__(self, source: Any, targets: Any, batch: int, steps: int):
        if isinstance(source, str):
            self.symbols = "".join(sorted(set(source)))
            numbers = {symbol: i for i, symbol in enumerate(self.symbols)}
            source = np.array([numbers[symbol] for symbol in source], dtype=np.int64)
        self.tokens = _stream_array("the stream", source)
        N = self.tokens.shape[0]
        if targets is None:
            self.targets, reached = self.tokens[1:], N - 1
        else:
            self.targets, reached = _stream_array("targets", targets), N
            if self.targets.shape[0] != N:
                raise ValueError(
                    f"stream_batches: {counted(N, 'step')} must have as many targets, found {self.targets.shape[0]}"
                )
        self.batch, self.steps, self.position = batch, steps, 0
        self.length = max(reached, 0) // batch
        if not self.length:
            need = batch if targets is not None else batch + 1
            raise ValueError(
                f"stream_batches: a stream of {N} is too short for {counted(batch, 'row')} of one step with a target "
                f"each: give at least {need}, or a smaller batch"
            )
        self.left_over = reached - batch * self.length

    def __next__(self) -> tuple[Array, Array]:
        assert self.length is not None
        a, b = self.position, min(self.position + self.steps, self.length)
        if a >= b:
            raise StopIteration
        self.position = b
        return self._window(self.tokens, a, b), self._window(self.targets, a, b)

    def _window(self, array: Array, a: int, b: int) -> Array:
        """Steps a to b of every row, (b − a, B, …)."""
        assert self.length is not None
        starts = range(0, self.batch * self.length, self.length)
        return library_of(array).stack([array[s + a : s + b] for s in starts], axis=1)

    def seek(self, position: int) -> ArrayStream:
        self.position = self._checked(position)
        return self


class IteratorStream(Stream):
    """Over an iterator of steps; it holds the step that the next window starts with, and no other."""

    length = None

    def __init__(self, source: Any, batch: int, steps: int, rows: bool):
        self.batch, self.steps, self.position = batch, steps, 0
        self.left_over = None
        self._sources: list[Iterator[Any]] = list(source) if rows else [iter(source)]
        self._by_row = rows
        self._last: Array = None  # the input that the next window starts with
        self._shape: tuple[int, ...] | None = None

    def __next__(self) -> tuple[Array, Array]:
        if self._last is None and self.left_over is None:
            self._last = self._read()
        read = [self._last]
        while len(read) <= self.steps and self.left_over is None:
            step = self._read()
            if step is not None:
                read.append(step)
        if len(read) < 2:
            if not self.position:
                raise ValueError("stream_batches: the stream ended before it gave one step and its target")
            raise StopIteration
        self._last, self.position = read[-1], self.position + len(read) - 1
        whole = library_of(read[0]).stack(read)
        return whole[:-1].copy(), whole[1:].copy()

    def _read(self) -> Array | None:
        """All rows of the next step, (batch, …); None at the end."""
        parts: list[Array] = []
        for source in self._sources:
            try:
                parts.append(as_array(next(source), np))
            except StopIteration:
                self.left_over = len(parts)
                return None
        if self._by_row:
            shapes = {part.shape for part in parts}
            if len(shapes) > 1:
                raise ValueError(f"stream_batches: the rows of one step have different shapes: {sorted(shapes)}")
            step = library_of(parts[0]).stack(parts)
        else:
            (step,) = parts
            step = step.reshape(1) if step.ndim == 0 and self.batch == 1 else step
        if step.ndim == 0:
            raise ValueError(
                f"stream_batches: one iterator of single tokens cannot be laid out in batch={self.batch} rows that "
                "each go on in time. Give batch=1, a list of iterators (one for each row), an iterator of arrays "
                "(batch,), or the whole stream as an array"
            )
        if step.dtype.kind not in "biufc":
            raise TypeError(f"stream_batches: the steps must be numbers, found {step.dtype}")
        self._shape = self._shape or (self.batch, *step.shape[1:])
        if step.shape != self._shape:
            raise ValueError(f"stream_batches: a step must have the shape {self._shape}, found {step.shape}")
        return step

    def seek(self, position: int) -> IteratorStream:
        """Read on to `position`. ValueError where that lies behind, or after the end: an iterator does not go back."""
        position = self._checked(position)
        if position < self.position:
            raise ValueError(
                f"stream_batches: an iterator does not go back from step {self.position} to {position}: make it anew "
                "and give start="
            )
        if position and self._last is None:
            self._last = self._read()
        while self.position < position:
            self._last = None if self._last is None else self._read()
            if self._last is None:
                raise ValueError(f"stream_batches: the stream ended at step {self.position}, before {position}")
            self.position += 1
        return self


def _stream_array(what: str, x: Any) -> Array:
    x = (
        np.frombuffer(x, np.uint8)
        if isinstance(x, bytes | bytearray | memoryview)
        else as_array(getattr(x, "value", x), np)
    )
    if x.ndim < 1 or x.dtype.kind not in "biufc":
        raise TypeError(f"stream_batches: {what} must be numbers (N,) or (N, D), found {x.dtype} of shape {x.shape}")
    return x
