"""Which array library an array belongs to, and where new arrays are made. Read this file first.

minibptt runs on NumPy (CPU) and CuPy (GPU) from one source. An operation never asks which library is
"active": it looks the library up from the arrays that it is given. `use_backend` decides only where NEW
arrays are made. Nothing is copied between host and device unless one of `to_numpy` and `to_backend` is called.
"""

from __future__ import annotations

import functools
import importlib
import platform
from types import ModuleType
from typing import Any

import numpy as np

Array = Any  # numpy.ndarray or cupy.ndarray: the two share no base class


class BackendError(RuntimeError):
    """An array library is missing or unusable, or two libraries meet in one operation."""


BACKENDS = ("numpy", "cupy")
_library_of_type: dict[type, ModuleType] = {np.ndarray: np}  # grows when CuPy is first used
_current: ModuleType = np  # a plain global, so that a notebook cell's choice holds in the next cell


def is_array(x: object) -> bool:
    """True for an array of a known library: numpy.ndarray or cupy.ndarray."""
    return type(x) in _library_of_type or isinstance(x, np.ndarray) or _is_cupy(x)


def library_of(array: Array) -> ModuleType:
    """The module (`numpy` or `cupy`) that `array` belongs to. TypeError for what is no array."""
    library = _library_of_type.get(type(array))
    if library is None:
        if isinstance(array, np.ndarray | np.generic):
            return np
        if _is_cupy(array):
            return library_named("cupy")
        raise TypeError(f"expected a NumPy or CuPy array, found {type(array).__name__}")
    return library


RAGGED = "list whose rows have different lengths, which makes no array: pad them to one length"


def _from_lists(x: Any, library: ModuleType) -> Array:
    """Lists and numbers as an array of `library`. ValueError for lists of different lengths."""
    try:
        return library.asarray(x)
    except ValueError:
        if isinstance(x, list | tuple):
            raise ValueError(f"found a {RAGGED}") from None
        raise


def as_array(x: Any, library: ModuleType | None = None) -> Array:
    """`x` as an array: an array stays in its own library, lists and numbers go to `library` (default: current).

    TypeError for a masked array, whose mask would be lost.
    """
    if type(x) in _library_of_type:
        return x
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError("a NumPy masked array would lose its mask here: give x.filled(0) and mask=~x.mask")
    if isinstance(x, np.ndarray | np.generic):
        return np.asarray(x)
    return _from_lists(x, library or _current)


def name_of(library: ModuleType) -> str:
    return library.__name__


def _is_cupy(x: object) -> bool:
    return type(x).__module__.partition(".")[0] == "cupy" and hasattr(x, "dtype")


def library_named(name: str | ModuleType) -> ModuleType:
    """The array library called `name`, ready for use. BackendError says what is missing and what to do."""
    if isinstance(name, ModuleType):
        if name in _library_of_type.values():
            return name
        name = name.__name__  # CuPy may not have been used yet
    if name == "numpy":
        return np
    if name != "cupy":
        for library in _library_of_type.values():  # a stand-in is known once it is loaded
            if library.__name__ == name:
                return library
        raise BackendError(f"unknown backend {name!r}: expected one of {', '.join(map(repr, BACKENDS))}")
    try:
        cupy = importlib.import_module("cupy")
    except Exception as error:  # a damaged installation may raise anything
        raise BackendError(
            f"backend 'cupy' was asked for, but CuPy cannot be imported ({' '.join(str(error).split())[:300]})."
            f"{_wheels()} Install it with pip install 'minibptt[gpu]' (CUDA 12) or 'minibptt[gpu13]' (CUDA 13), "
            "or stay on the CPU with use_backend('numpy')."
        ) from None
    if not hasattr(cupy, "is_available"):  # an empty folder is left over where one of two wheels was uninstalled
        raise BackendError(
            f"backend 'cupy' was asked for, but the folder of CuPy is damaged.{_wheels()} Uninstall every wheel of "
            "CuPy, install one again, or stay on the CPU with use_backend('numpy')."
        )
    if not cupy.is_available():
        raise BackendError(
            f"backend 'cupy' was asked for and CuPy {cupy.__version__} is installed, but it finds no usable "
            f"CUDA device: {_driver(cupy)}.{_wheels()} Check the driver with nvidia-smi, choose a GPU runtime (on "
            "Colab: Runtime > Change runtime type), or stay on the CPU with use_backend('numpy')."
        )
    register(cupy.ndarray, cupy)
    return cupy


def register(array_type: type, library: ModuleType) -> None:
    """From now on arrays of this type belong to `library`, which has CuPy's functions: a stand-in for a device."""
    _library_of_type[array_type] = library


def _wheels() -> str:
    """Which wheels of CuPy are installed. Those for CUDA 12 and 13 share a folder and break each other."""
    import importlib.metadata  # slow to load, and seldom needed

    installed = {d.metadata["Name"] for d in importlib.metadata.distributions()}
    wheels = sorted(name for name in installed if name and name.lower().startswith("cupy"))
    if len(wheels) < 2:
        return f" Found the wheel {wheels[0]}." if wheels else ""
    return f" Found {' and '.join(wheels)} side by side: uninstall all of them, then install one."


def _driver(cupy: Any) -> str:
    """What CuPy says of the driver."""
    runtime = cupy.cuda.runtime
    try:
        driver, needed = runtime.driverGetVersion(), runtime.runtimeGetVersion()
    except Exception as error:
        return f"the driver does not answer ({error})"
    if not driver:
        return "no NVIDIA driver is installed"
    versions = [f"{v // 1000}.{v % 1000 // 10}" for v in (driver, needed)]
    return f"the driver knows CUDA {versions[0]}, CuPy was built for CUDA {versions[1]}"


class use_backend:
    """Choose where new arrays are made: `use_backend("cupy")`, for good or as `with use_backend("cupy"):`.

    Operations do not look at this; they follow their arrays. BackendError where the library is not usable.
    """

    def __init__(self, name: str | ModuleType):
        global _current
        library = library_named(name)
        self._before, _current = _current, library

    def __enter__(self) -> use_backend:
        return self

    def __exit__(self, *exception) -> None:
        global _current
        _current = self._before


def current_library() -> ModuleType:
    """The library in which new arrays are made now."""
    return _current


def backend_report() -> dict[str, str]:
    """For each backend either "ok ..." or what is wrong with it, in one sentence."""
    report = {"numpy": f"ok, NumPy {np.__version__}"}
    try:
        cupy = library_named("cupy")
    except BackendError as error:
        report["cupy"] = str(error)
    else:
        report["cupy"] = f"ok, CuPy {cupy.__version__}, {cupy.cuda.runtime.getDeviceCount()} device(s)"
        report["cupy"] += _wheels() if "side by side" in _wheels() else ""
    return report


def device_of(library: ModuleType) -> str:
    """What does the work of a library: the processor, or the GPU with the versions of driver and CUDA."""
    if library is np:
        return _processor()
    runtime = library.cuda.runtime
    if not hasattr(runtime, "getDeviceProperties"):
        return "a stand-in, which is no device"
    name = runtime.getDeviceProperties(runtime.getDevice())["name"].decode()
    return f"{name}, driver {runtime.driverGetVersion()}, CUDA {runtime.runtimeGetVersion()}"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # Linux says more than `platform` does
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def available_backends() -> tuple[str, ...]:
    """The names of the backends that work on this machine; "numpy" always does."""
    return tuple(name for name, state in backend_report().items() if state.startswith("ok"))


def to_numpy(x: Any) -> np.ndarray:
    """The value of a tensor, array or number as a NumPy array; from a device it is copied (and waits for it).

    TypeError for what holds no numbers.
    """
    x = getattr(x, "value", x)
    if isinstance(x, np.ndarray):
        return x
    if is_array(x):
        return x.get()
    try:
        array = _from_lists(x, np)
    except TypeError:
        if isinstance(x, list | tuple):
            raise TypeError("to_numpy takes one tensor; a state on a device: mb.to_backend(state, 'numpy')") from None
        raise
    if array.dtype.kind not in "biufc":
        raise TypeError(f"a tensor, an array or numbers are needed here, found {x!r:.80}")
    return array


def to_backend(x: Any, name: str | ModuleType | None = None) -> Array:
    """The value of a tensor, array or number as an array of backend `name` (default: the current one)."""
    library = _current if name is None else library_named(name)
    x = getattr(x, "value", x)
    if is_array(x) and library_of(x) is library:
        return x
    return library.asarray(to_numpy(x))


def host_array(what: str, x: Any) -> np.ndarray:
    """x as a NumPy array. BackendError where it is on a device: nothing is copied from there unasked."""
    x = getattr(x, "value", x)
    if is_array(x) and library_of(x) is not np:
        raise BackendError(f"{what} must be on the host; found a {name_of(library_of(x))} array: use mb.to_numpy(x)")
    try:
        return _from_lists(x, np)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None


@functools.cache
def elementwise_kernel(
    library: ModuleType, inputs: str, outputs: str, operation: str, name: str, preamble: str = ""
) -> Any:
    """One launch for many operations: `library.ElementwiseKernel`, its body in C. BackendError for NumPy.

    It is compiled when it is first called, so that making one needs no device.
    """
    if not hasattr(library, "ElementwiseKernel"):
        raise BackendError(f"{name}: kernels run on a device; {name_of(library)} has none")
    return library.ElementwiseKernel(inputs, outputs, operation, name, preamble=preamble)


def synchronize(array: Array = None) -> None:
    """Wait until the device has finished, where there is one. A clock that stops before this measures nothing.

    array: whose device to wait for (default: the current backend's).
    """
    library = _current if array is None else library_of(getattr(array, "value", array))
    if library is not np:
        library.cuda.get_current_stream().synchronize()
