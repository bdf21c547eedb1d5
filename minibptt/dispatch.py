"""`@op`: from a function on arrays that returns a value and its derivative rule to an operation on tensors.

    @op
    def tanh(xp, x):
        y = xp.tanh(x)
        return y, lambda g: (g * (1 - y**2),)

The positional parameters after `xp` are the inputs: tensors, arrays or numbers. What follows the `*` is plain
Python (an axis, a shape). The decorator finds the array library, lets whatever is not a tensor adapt to the
tensors' dtype, and puts the operation on the open tape. A rule returns one adjoint per input: an array, None
for an input that can't have one, or a function that works it out where it is needed. It must hold arrays and
shapes only, never tensors. Read after tape.py.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .backend import BackendError, as_array, current_library, is_array, library_of, name_of
from .nest import leaves
from .tape import Tape, open_tape
from .tensor import Steps, Tensor
from .why import why

OPERATIONS: dict[str, Callable[..., Any]] = {}  # every operation by name; the tests go through this table
_NUMBERS = frozenset((int, float, bool, complex))  # Python numbers adapt to an array's dtype by themselves


def op(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make an operation of `function(xp, *inputs, *, static options) -> (value or values, rule)`."""
    name = function.__name__.strip("_")
    parameters = list(inspect.signature(function).parameters.values())[1:]
    options = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    any_number = any(p.kind is p.VAR_POSITIONAL for p in parameters)

    @functools.wraps(function)
    def operation(*inputs: Any, **static: Any) -> Any:
        given: Any = inputs
        if not any_number and len(inputs) != len(names):
            given, static = _arrange(name, names, options, inputs, static)
        return _apply(function, name, given, static, any_number)

    operation.__name__ = operation.__qualname__ = name
    operation.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            p.replace(kind=p.POSITIONAL_OR_KEYWORD) if p.kind is p.KEYWORD_ONLY and not any_number else p
            for p in parameters
        ]
    )
    OPERATIONS[name] = operation
    return operation


def _arrange(
    name: str, names: list[str], options: list[str], inputs: Sequence[Any], static: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Options given by position, inputs given by name: `sum(x, 0)`, `tanh(x=x)`."""
    extra = inputs[len(names) :]
    if len(extra) > len(options):
        raise TypeError(f"{name} takes {', '.join([*names, *options])}; found {len(inputs)} arguments")
    for option, value in zip(options, extra):
        if option in static:
            raise TypeError(f"{name}: {option} is given twice")
        static[option] = value
    found = list(inputs[: len(names)])
    for missing in names[len(found) :]:
        if missing not in static:
            raise TypeError(f"{name}: the input {missing!r} is missing; it takes {', '.join(names)}")
        found.append(static.pop(missing))
    return found, static


def _apply(
    function: Callable[..., Any], name: str, inputs: Sequence[Any], static: dict[str, Any], all_arrays: bool
) -> Any:
    values, dtype = agreed(name, inputs, all_arrays)
    tape = open_tape()
    first = values[0] if type(values[0]) not in _NUMBERS else next(v for v in values if type(v) not in _NUMBERS)
    xp = library_of(first)
    try:
        y, rule = function(xp, *values, **static)
    except (TypeError, ValueError, IndexError) as error:
        raise _explained(error, name, inputs, values, static, tape) from error
    several = isinstance(y, tuple)
    results = y if several else (y,)
    if type(results[0]) is not xp.ndarray:  # NumPy's reductions give scalars
        results = tuple([xp.asarray(r) for r in results])
    if tape is not None:
        mark = tape.mark
        # Tuples of numbers, because the garbage collector stops watching those: a tape may hold very many.
        slots = tuple(
            [(x.slot if x.mark is mark else tape.slot_of(x)) if isinstance(x, Tensor) else None for x in inputs]
        )
        if any(slots):
            constants = ()
            if None in slots:
                constants = tuple([_constant(v) for v, slot in zip(values, slots) if slot is None])
            steps = None if tape.step is not None else _covered(inputs)
            outputs = tape.record(name, slots, constants, results, rule, steps, dtype is None, several)
            return outputs if several else outputs[0]
    outputs = tuple([Tensor(r, None, dtype is None) for r in results])
    return outputs if several else outputs[0]


def agreed(name: str, inputs: Sequence[Any], all_arrays: bool = False) -> tuple[list[Any], np.dtype | None]:
    """The values of the inputs, in one library and of one dtype; and that dtype, None where no tensor has its own."""
    values: list[Any] = []
    home = dtype = None  # the array type, and the dtype that the tensors agree on
    adapt = False
    for x in inputs:
        if isinstance(x, Tensor):
            value = x.value
            if home is None:
                home = type(value)
            elif type(value) is not home:
                raise _two_libraries(name, inputs)
            if x.weak:
                adapt = True
            elif dtype is None:
                dtype = value.dtype
            elif value.dtype != dtype:
                dtype = _common_dtype(name, inputs)
            values.append(value)
        else:
            values.append(x)
            adapt = adapt or all_arrays or type(x) not in _NUMBERS
    if adapt or home is None:
        values = _conform(name, inputs, values, dtype, all_arrays)
    return values, dtype


def _conform(
    name: str, inputs: Sequence[Any], values: list[Any], dtype: np.dtype | None, all_arrays: bool
) -> list[Any]:
    """Let what is not a tensor, or is a weak one, adapt to `dtype`, the tensors' own (None: there is none).

    all_arrays: make arrays of Python numbers too.
    """
    values = [v.item() if isinstance(v, np.generic) else v for v in values]
    arrays = [v for v in values if is_array(v)]
    xp = library_of(arrays[0]) if arrays else current_library()
    if any(library_of(v) is not xp for v in arrays):
        raise _two_libraries(name, inputs)
    new = []
    for i, (x, v) in enumerate(zip(inputs, values)):
        if type(v) in _NUMBERS and not all_arrays and (arrays or i):
            new.append(v)  # at least one array remains, to find the library by
            continue
        array = _numbers(name, i, v, xp)
        strong = isinstance(x, Tensor) and not x.weak
        if dtype is not None and not strong and array.dtype != dtype:
            target = dtype if array.dtype.kind != "c" else np.result_type(dtype, np.complex64)
            array = array.astype(target)
        new.append(array)
    return new


def _numbers(name: str, i: int, v: Any, xp: Any) -> Any:
    """Input number i as an array of numbers. TypeError for anything else."""
    if isinstance(v, list | tuple) and any(isinstance(leaf, Tensor) for _, leaf in leaves(v)):
        raise TypeError(f"{name}: input {i + 1} is a list of tensors; join them with mb.stack or mb.concatenate")
    try:
        host = v if is_array(v) else as_array(v, np)
    except ValueError as error:
        raise TypeError(f"{name}: input {i + 1} is no array of numbers: {error}") from None
    if host.dtype.kind not in "biufc":
        raise TypeError(f"{name}: input {i + 1} is {type(v).__name__} ({host.dtype}), which is no number")
    return as_array(host) if is_array(v) else xp.asarray(host)


def _common_dtype(name: str, inputs: Sequence[Any]) -> np.dtype:
    """Real and complex tensors of one precision mix (the complex step needs it); other float types don't."""
    tensors = [x for x in inputs if isinstance(x, Tensor) and not x.weak]
    first = tensors[0]
    for x in tensors[1:]:
        if np.zeros(0, first.dtype).real.dtype != np.zeros(0, x.dtype).real.dtype:
            raise TypeError(
                f"{name}: {first.label} is {first.dtype} and {x.label} is {x.dtype}. Two tensors of different float "
                "types do not mix: make both with the same dtype="
            )
    return np.result_type(*[x.dtype for x in tensors])


def real_only(*arrays: Any) -> None:
    """TypeError for complex inputs: an operation with a kink is not complex-differentiable."""
    if any(getattr(x, "dtype", np.dtype(float)).kind == "c" or isinstance(x, complex) for x in arrays):
        raise TypeError("not defined for complex numbers")


def _two_libraries(name: str, inputs: Sequence[Any]) -> BackendError:
    arrays = [(i + 1, x, getattr(x, "value", x)) for i, x in enumerate(inputs)]
    found = [
        f"input {i} ({x.label if isinstance(x, Tensor) else 'an array'}) is a {name_of(library_of(v))} array"
        for i, x, v in arrays
        if is_array(v)
    ]
    return BackendError(f"{name}: {', '.join(found)}. Move one of them with mb.to_backend(x, name)")


def _explained(
    error: Exception,
    name: str,
    inputs: Sequence[Any],
    values: Sequence[Any],
    static: dict[str, Any],
    tape: Tape | None,
) -> Exception:
    """The same kind of error, naming the step, the operation, the shapes that it met and what is wrong with them."""
    where = f"step {tape.step}: " if tape is not None and tape.step is not None else ""
    shapes = [
        f"{x.label} {x.shape}" if isinstance(x, Tensor) else str(getattr(v, "shape", v))
        for x, v in zip(inputs[:8], values)
    ]
    kind = next(k for k in (TypeError, ValueError, IndexError) if isinstance(error, k))
    reason = why(name, values, static) or str(error).removeprefix(f"{name}: ")
    return kind(f"{where}{name}({', '.join(shapes)}): {reason}")


def _constant(value: Any) -> Any:
    """What a record remembers of a constant: a number, a few elements, or else just the shape."""
    if type(value) in _NUMBERS:
        return value
    return value.copy() if type(value) is np.ndarray and value.size <= 4 else value.shape


def _covered(inputs: Sequence[Any]) -> Steps:
    """The range of steps that the inputs cover together."""
    known = [x.steps for x in inputs if isinstance(x, Tensor) and x.steps is not None]
    return (min(s[0] for s in known), max(s[1] for s in known)) if known else None
