"""Calling somebody's own forward and backward pass: the contract, and whether what comes back keeps it.

Nothing here knows whether a gradient is right: see verdict.py. What breaks the contract is a `Broken`, in the
terms of whoever wrote the pass. Read after by_hand.py.
"""

from __future__ import annotations

import copy
import inspect
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..backend import to_numpy
from .by_hand import GATES, Arrays, Case


class Broken(Exception):
    """The contract is broken; says how."""


@dataclass(frozen=True)
class Contract:
    """What the two functions take and return, by name. step: one step, not a whole sequence."""

    like: str
    step: bool
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    seeds: tuple[str, ...]

    @classmethod
    def of(cls, forward: Callable[..., Any], like: str, step: bool) -> Contract:
        """For the LSTM over a sequence c0 is one of the arguments where `forward` takes it."""
        state = ["h_prev"] if step else ["h0"]
        if like == "lstm" and (step or _takes_c0(forward)):
            state.append("c_prev" if step else "c0")
        weights = ["W_x", "W_h", "b", *(["b_hn"] if like == "gru" else [])]
        gives = ("h", "c")[: len(state)] if step else ("out",)
        seeds = tuple("d" + name for name in gives)
        return cls(like, step, ("x", *state, *weights), gives, seeds)

    @property
    def returns(self) -> tuple[str, ...]:
        return tuple("d" + name for name in self.takes)

    @property
    def signatures(self) -> tuple[str, str]:
        """How `forward` and `backward` are called, for messages."""
        return (
            f"{', '.join(self.gives)}, cache = forward({', '.join(self.takes)})",
            f"{', '.join(self.returns)} = backward({', '.join(self.seeds)}, cache)",
        )

    def inputs(self, case: Case) -> Arrays:
        """The arguments of `forward` by their names here; a single step has no time axis."""
        found = {"x": case.x[0] if self.step else case.x, "h0": case.h0, "h_prev": case.h0, "c0": case.c0}
        found |= {"c_prev": case.c0, "W_x": case.W_x, "W_h": case.W_h, "b": case.b, "b_hn": case.b_hn}
        return {name: found[name] for name in self.takes}

    def adjoints(self, case: Case) -> Arrays:
        """The adjoints that `backward` takes."""
        found = {"dout": case.dout, "dh": case.dout[0], "dc": case.dc}
        return {name: found[name] for name in self.seeds}

    def named(self, arrays: Arrays) -> Arrays:
        """What the tape or by_hand.py gives for the sequence, by the names here."""
        if not self.step:
            return {name: arrays[name] for name in (*self.gives, *self.returns) if name in arrays}
        others = {"h": "out", "dh_prev": "dh0", "dc_prev": "dc0"}
        found = {name: arrays.get(others.get(name, name)) for name in (*self.gives, *self.returns)}
        return {name: a[0] if name in ("h", "dx") else a for name, a in found.items() if a is not None}


def _takes_c0(forward: Callable[..., Any]) -> bool:
    """Are there six arguments that must be given, x, h0, c0, W_x, W_h and b, and not five?"""
    try:
        parameters = inspect.signature(forward).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is p.empty for p in parameters) == 6


class Forward(NamedTuple):
    """What `forward` gave, in float64, its cache, and the arrays that it was called with.

    coarsest: the smallest float type among what it was given and what it gave.
    """

    arrays: Arrays
    cache: Any
    inputs: Arrays
    coarsest: np.dtype


class Student:
    """The two functions under their contract, for arrays of `dtype`. Every call gets copies of its own."""

    def __init__(self, forward: Callable[..., Any], backward: Callable[..., Any], contract: Contract, dtype: np.dtype):
        self.functions, self.contract = (forward, backward), contract
        self.coarsest_given = min(dtype, np.dtype(np.float64), key=lambda dtype: dtype.itemsize)
        for function, name, many in zip(
            self.functions, ("forward", "backward"), (contract.takes, (*contract.seeds, 0))
        ):
            try:
                signature = inspect.signature(function)
            except (TypeError, ValueError):  # some built-in callables have none
                continue
            try:
                signature.bind(*many)
            except TypeError:
                wanted = contract.signatures[name == "backward"]
                raise Broken(f"{name} is called as {wanted}; yours takes {signature}") from None

    def forward(self, case: Case) -> Forward:
        inputs = _copies(self.contract.inputs(case))
        result = self._call(0, list(inputs.values()))
        self._same(inputs, self.contract.inputs(case), "forward")
        *arrays, cache = self._parts(result, (*self.contract.gives, "cache"), "forward", 0)
        T, B, H = case.dout.shape
        shapes = [("T, B, H", (T, B, H))] if not self.contract.step else [("B, H", (B, H))] * len(arrays)
        checked = self._checked(arrays, self.contract.gives, shapes, "forward")
        return Forward(_in_float64(checked), cache, inputs, _coarsest(checked, self.coarsest_given))

    def backward(self, case: Case, before: Forward) -> tuple[Arrays, np.dtype]:
        """What `backward` gives, and the smallest float type up to here. Broken where it changes what it was given."""
        seeds = _copies(self.contract.adjoints(case))
        result = self._call(1, [*seeds.values(), before.cache])
        self._same(seeds, self.contract.adjoints(case), "backward")
        self._same(before.inputs, self.contract.inputs(case), "backward")
        arrays = self._parts(result, self.contract.returns, "backward", 1)
        letters = _letters(self.contract)
        shapes = [(letters[name], array.shape) for name, array in before.inputs.items()]
        checked = self._checked(arrays, self.contract.returns, shapes, "backward")
        return _in_float64(checked), _coarsest(checked, before.coarsest)

    def run(self, case: Case) -> tuple[Arrays, np.dtype]:
        """Both, all results by name, and the coarsest float type."""
        before = self.forward(case)
        grads, coarsest = self.backward(case, before)
        return before.arrays | grads, coarsest

    def uses_up_the_cache(self, case: Case) -> bool:
        """Does `backward` answer otherwise when it is called again with the same cache?"""
        before = self.forward(case)
        first = _copies(self.backward(case, before)[0])
        try:
            again, _ = self.backward(case, before)
        except Broken:
            return True
        return any(not np.array_equal(first[name], again[name]) for name in first)

    def _call(self, which: int, arguments: list[Any]) -> Any:
        name = ("forward", "backward")[which]
        try:
            with np.errstate(all="ignore"):  # what becomes infinite or nan is found in the results
                return self.functions[which](*arguments)
        except Exception as error:
            lines = traceback.extract_tb(error.__traceback__)
            code = getattr(inspect.unwrap(self.functions[which]), "__code__", None)
            own = [line for line in lines if code and line.filename == code.co_filename] or lines[1:]
            where = f" in line {own[-1].lineno}" + (f": {own[-1].line}" if own[-1].line else "") if own else ""
            raise Broken(f"{name} raised {type(error).__name__} ({error}){where}") from error

    def _same(self, used: Arrays, before: Arrays, name: str) -> None:
        changed = [n for n in used if not np.array_equal(used[n], before[n], equal_nan=True)]
        if changed:
            raise Broken(
                f"{name} changes {' and '.join(changed)} in place; work on a copy "
                f"({changed[0]}.copy()), or write a = a + b where a += b changes the caller's array"
            )

    def _parts(self, result: Any, names: Sequence[str], name: str, which: int) -> list[Any]:
        wanted = self.contract.signatures[which]
        if not isinstance(result, tuple | list):
            raise Broken(f"{name} must return {len(names)} results, {wanted}; found {_kind(result)}")
        if len(result) != len(names):
            raise Broken(f"{name} must return {len(names)} results, {wanted}; found {len(result)}")
        return list(result)

    def _checked(self, arrays: list[Any], names: Sequence[str], shapes: list[Any], name: str) -> Arrays:
        found = {}
        for one, array, (letters, shape) in zip(names, arrays, shapes):
            found[one] = _numbers(one, array)
            if found[one].shape != shape:
                hint = _shape_hint(found[one].shape, shape, letters)
                raise Broken(f"{one} must have shape ({letters}) = {shape}; found {found[one].shape}{hint}")
        for one, array in found.items():
            bad = np.argwhere(~np.isfinite(array))
            if len(bad):
                place = bad[-1] if one == "dx" and not self.contract.step else bad[0]  # the backward pass starts last
                step = f", step {place[0] + 1}" if one in ("out", "dx") and not self.contract.step else ""
                value = array[tuple(place)]
                raise Broken(f"{one}{place.tolist()} is {value}{step}; {name} must give finite numbers")
        return found


def _in_float64(arrays: Arrays) -> Arrays:
    return {name: array.astype(np.float64) for name, array in arrays.items()}


def _coarsest(arrays: Arrays, given: np.dtype) -> np.dtype:
    """The smallest float type of these arrays and of what was there before."""
    return min([given, *(array.dtype for array in arrays.values())], key=lambda dtype: dtype.itemsize)


def _copies(arrays: Arrays) -> Arrays:
    return {name: copy.copy(array) for name, array in arrays.items()}


def _kind(x: Any) -> str:
    return f"an array of shape {x.shape}" if isinstance(x, np.ndarray) else "None" if x is None else type(x).__name__


def _numbers(name: str, x: Any) -> np.ndarray:
    if x is None:
        raise Broken(f"{name} is None; an array of numbers belongs there")
    try:
        array = to_numpy(x)
    except (TypeError, ValueError):
        raise Broken(f"{name} is a {type(x).__name__} that makes no array of numbers") from None
    if array.dtype.kind in "iub":
        raise Broken(
            f"{name} has dtype {array.dtype}, which cuts fractions off: make it with dtype=float, or np.zeros_like(x)"
        )
    if array.dtype.kind != "f":
        raise Broken(f"{name} has dtype {array.dtype}; real numbers (float32 or float64) belong there")
    return array


def _letters(contract: Contract) -> dict[str, str]:
    G = len(GATES[contract.like])
    wide = "H" if G == 1 else f"{G}H"
    state = dict.fromkeys(("h0", "c0", "h_prev", "c_prev"), "B, H")
    x = "B, D" if contract.step else "T, B, D"
    return state | {"x": x, "W_x": f"D, {wide}", "W_h": f"H, {wide}", "b": f"{wide},", "b_hn": "H,"}


def _shape_hint(found: tuple[int, ...], wanted: tuple[int, ...], letters: str) -> str:
    if len(found) == len(wanted) == 2 and found == wanted[::-1]:
        return ": it is transposed"
    if len(found) == len(wanted) == 3 and found == (wanted[1], wanted[0], wanted[2]):
        return ": time comes first here, then the batch"
    if len(found) == len(wanted) == 3 and found == (wanted[0] + 1, *wanted[1:]):
        return ": the initial state is none of the outputs"
    if len(wanted) == 1 and len(found) > 1 and found[-1:] == wanted:
        return ": sum over all other axes" if max(found[:-1]) > 1 else ": one axis, so no keepdims"
    if len(wanted) == 2 and len(found) == 3 and found[1:] == wanted:
        return ": only one of them belongs there, after or before all steps"
    return ""
