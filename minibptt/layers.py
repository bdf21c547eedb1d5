"""Layers for whole sequences, and `Sequential`, which puts cells and layers together. Read after sequence.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import ops
from .backend import library_of
from .module import Module, Rng, check_number, check_size, generator, uniform
from .sequence import fill_padding, hide_padding, real_steps, run, sequence_input
from .states import entries, in_layer, zero_state
from .tensor import Tensor


class Linear(Module):
    """y = x @ W + b, on the last axis: x (…, D), W (D, V), b (V,).

    W and b are drawn from U(−1/√D, 1/√D). rng: an int or a generator. dtype: float32 unless given.
    """

    def __init__(self, D: int, V: int, *, bias: bool = True, rng: Rng = None, dtype: Any = None):
        check_size("Linear", D=D, V=V)
        rng = generator(rng)
        self.W = uniform(rng, D**-0.5, (D, V), dtype)
        if bias:
            self.b = uniform(rng, D**-0.5, (V,), dtype)

    def __call__(self, x: Any) -> Tensor:
        y = ops.matmul(x, self.W)
        return y + self.b if hasattr(self, "b") else y


class Embedding(Module):
    """y = W[ids]: a row of W (V, D) for each token id. ids: host integers of any shape, 0 ≤ id < V.

    W is drawn from U(−1, 1). rng: an int or a generator. dtype: float32 unless given.
    TypeError for ids that are no integers, ValueError for ids out of range.
    """

    def __init__(self, V: int, D: int, *, rng: Rng = None, dtype: Any = None):
        check_size("Embedding", V=V, D=D)
        self.W = uniform(generator(rng), 1.0, (V, D), dtype)

    def __call__(self, ids: Any) -> Tensor:
        return ops.embedding(self.W, ids=ids)


class Dropout(Module):
    """Drops each element with probability p while training and scales the others by 1/(1 − p); off in `eval()`.

    It owns its generator, drawn from step by step, so its masks do not depend on where chunks fall. rng: an int or a
    generator. ValueError for p outside [0, 1).
    """

    def __init__(self, p: float, *, rng: Rng = None):
        self.p, self.rng = check_number("Dropout: p", p, 0, 1), generator(rng)

    def __call__(self, x: Any) -> Tensor:
        x = x if isinstance(x, Tensor) else Tensor(x, weak=True)
        if not self.p or not self.training:
            return x
        kept = (self.rng.random(x.shape) >= self.p) / (1 - self.p)
        return x * library_of(x.value).asarray(kept, dtype=x.dtype)


class Sequential(Module):
    """Layers one after the other: model(x, state) → (outputs, state).

    Cells are unrolled over time; layers with a state of their own get their entry of `state`, a tuple with one
    entry for each of them; plain layers and functions are called on the whole sequence. Parameters are named
    by place: "0.W", "1.W_x".
    """

    def __init__(self, *layers: Any):
        if not layers:
            raise ValueError("Sequential needs at least one layer")
        for i, layer in enumerate(layers):
            if not callable(layer) and not hasattr(layer, "zero_state"):
                raise TypeError(f"Sequential: layer {i} ({type(layer).__name__}) is neither a layer nor a cell")
        self.layers = layers

    def children(self) -> Iterator[tuple[str, Any]]:
        return ((str(i), layer) for i, layer in enumerate(self.layers))

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, i: int) -> Any:
        return self.layers[i]

    def zero_state(self, batch: int) -> tuple[Any, ...]:
        """The zero state of each layer that has one."""
        return tuple([zero_state(layer, batch) for layer in self.layers if hasattr(layer, "zero_state")])

    def __call__(
        self,
        x: Any,
        state: Any = None,
        *,
        lengths: Any = None,
        mask: Any = None,
        resets: Any = None,
        cut_every: int | None = None,
    ) -> tuple[Tensor, tuple[Any, ...]]:
        """(outputs (T, B, …), state), with arguments as for `unroll`. Padded steps output exactly 0."""
        x = sequence_input(x)
        T, B = x.shape[:2]
        real = real_steps(T, B, lengths, mask)
        if real is not None:
            x = fill_padding(x, real)
        stateful = [layer for layer in self.layers if hasattr(layer, "zero_state")]
        expected = f"a tuple, one entry for each layer that has a state: {len(stateful)}"
        states, after = iter(entries(self, state, len(stateful), expected)), []
        for i, layer in enumerate(self.layers):
            with in_layer(i, 1, T):
                if hasattr(layer, "zero_state"):
                    x, new = run(layer, x, next(states), mask=real, resets=resets, cut_every=cut_every)
                    after.append(new)
                    if real is not None:
                        x = fill_padding(x, real)  # the next layer may have a pole at 0
                else:
                    x = layer(x)
        if real is not None:
            x = hide_padding(x, real)
        return x, tuple(after)
