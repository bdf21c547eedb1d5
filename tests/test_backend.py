"""Array libraries: which one is used, how they are kept apart, and what is said where CuPy cannot be used."""

import ast
import importlib
import importlib.metadata
import inspect
import os
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import strict_cupy
from numpy.testing import assert_array_equal
from op_table import CASES, on, positive, some
from strict_cupy import DeviceArray, counter
from strict_cupy import xp as strict

import minibptt as mb
from minibptt import backend


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """Whatever a test chooses is forgotten after it."""
    monkeypatch.setattr(backend, "_current", np)
    monkeypatch.setattr(backend, "_library_of_type", dict(backend._library_of_type))
    counter.reset()


def short(case):
    return getattr(case, "name", None)


# --- which library an array belongs to ---------------------------------------------------------------------------


def test_an_array_belongs_to_its_library():
    assert backend.library_of(np.ones(2)) is np
    assert backend.library_of(np.float64(2)) is np
    assert backend.library_of(np.ones(2).view(np.recarray)) is np
    assert backend.library_of(strict.ones(2)) is strict
    for x in (np.ones(2), strict.ones(2)):
        assert backend.is_array(x)
    for x in ([1.0], 2.0, None, mb.ones(2)):
        assert not backend.is_array(x)
        with pytest.raises(TypeError, match=f"expected a NumPy or CuPy array, found {type(x).__name__}"):
            backend.library_of(x)


def test_an_array_stays_where_it_is_and_a_list_goes_to_the_current_library(xp):
    for library in (np, strict):
        array = library.ones(2)
        assert backend.as_array(array) is array
    assert type(backend.as_array([1.0, 2.0])) is xp.ndarray
    assert type(backend.as_array([1.0, 2.0], np)) is np.ndarray
    assert type(backend.as_array(np.float32(2))) is np.ndarray


def test_operations_follow_their_arrays_and_not_the_current_library(xp):
    for library in (np, strict):
        t = mb.parameter(library.ones(2))
        assert type((mb.exp(t) * 2 + [1, 2]).value) is library.ndarray
        assert type(mb.exp(library.ones(2)).value) is library.ndarray
    assert type(mb.exp([1.0]).value) is type(mb.zeros(2).value) is type(mb.parameter([1.0]).value) is xp.ndarray


def test_a_masked_array_is_refused_before_it_loses_its_mask():
    wrong, p = np.ma.array([1.0, 2.0], mask=[0, 1]), mb.parameter([1.0, 2.0])
    with mb.Tape() as tape:
        for function in (
            mb.Tensor,
            backend.as_array,
            mb.exp,
            tape.watch,
            mb.parameter,
            lambda x: mb.parameter(x, dtype=np.float32),
            lambda x: p + x,
            lambda x: mb.assign(p, x),
        ):
            with pytest.raises(TypeError, match=r"mask.*filled"):
                function(wrong)
    assert_array_equal(p.value, [1, 2])


# --- use_backend -------------------------------------------------------------------------------------------------


def test_a_plain_call_chooses_for_good():
    mb.use_backend(strict)
    assert backend.current_library() is strict and type(mb.zeros(2).value) is DeviceArray
    mb.use_backend("numpy")
    assert backend.current_library() is np and type(mb.zeros(2).value) is np.ndarray


def test_a_with_block_chooses_for_its_body():
    with mb.use_backend(strict):
        assert type(mb.ones(2).value) is DeviceArray
        with mb.use_backend("numpy"):
            assert type(mb.ones(2).value) is np.ndarray
            with mb.use_backend(strict):
                assert type(mb.parameter([1.0]).value) is DeviceArray
            assert backend.current_library() is np
        assert backend.current_library() is strict
    assert backend.current_library() is np


def test_a_with_block_gives_back_what_was_there_after_an_exception():
    mb.use_backend(strict)
    with pytest.raises(ZeroDivisionError), mb.use_backend("numpy"):
        1 / 0  # noqa: B018
    assert backend.current_library() is strict


def test_a_choice_that_fails_changes_nothing(monkeypatch):
    no_cupy(monkeypatch)
    mb.use_backend(strict)
    for wrong in ("cupy", "torch"):
        with pytest.raises(mb.BackendError), mb.use_backend(wrong):
            pass
        assert backend.current_library() is strict


@pytest.mark.parametrize("wrong", [importlib, os, mb, ModuleType("standing"), ModuleType("numpy.random")])
def test_a_module_that_is_no_library_of_arrays_is_no_backend(wrong):
    for choose in (mb.use_backend, lambda m: mb.to_backend([1.0], m), lambda m: mb.Linear(2, 3).to(m)):
        with pytest.raises(mb.BackendError, match=rf"unknown backend {wrong.__name__!r}: expected one of 'numpy'"):
            choose(wrong)
    assert backend.current_library() is np


def test_a_library_that_is_registered_is_a_backend_and_its_arrays_belong_to_it():
    library = ModuleType("another")
    library.ndarray = type("ndarray", (DeviceArray,), {})
    with pytest.raises(mb.BackendError, match="unknown backend 'another'"):
        mb.use_backend(library)
    backend.register(library.ndarray, library)
    with mb.use_backend(library), mb.use_backend("another"):
        assert backend.current_library() is library
    assert backend.library_of(library.ndarray(np.ones(2))) is library


def test_the_module_of_cupy_is_the_backend_of_that_name(monkeypatch):
    cupy = fake_cupy(True)
    importing(monkeypatch, cupy)
    with mb.use_backend(cupy):
        assert backend.current_library() is cupy
    no_gpu = fake_cupy(False)
    importing(monkeypatch, no_gpu)
    with pytest.raises(mb.BackendError, match="no usable CUDA device"):
        mb.use_backend(no_gpu)


@pytest.mark.parametrize("wrong", ["torch", "", "CuPy", "jax", None, 3])
def test_an_unknown_backend_is_named_beside_the_known_ones(wrong):
    for function in (mb.use_backend, lambda name: mb.to_backend(np.ones(2), name or "")):
        with pytest.raises(mb.BackendError, match=rf"unknown backend '?{wrong or ''}.*'numpy', 'cupy'"):
            function(wrong)


# --- CuPy that is not there, or has no device --------------------------------------------------------------------


def importing(monkeypatch, cupy):
    """From now on `import cupy` gives the module `cupy`, or raises it."""
    real = importlib.import_module

    def import_module(name, package=None):
        if name != "cupy":
            return real(name, package)
        if isinstance(cupy, Exception):
            raise cupy
        return cupy

    monkeypatch.setattr(importlib, "import_module", import_module)


def no_cupy(monkeypatch):
    importing(monkeypatch, ModuleNotFoundError("No module named 'cupy'"))


def fake_cupy(available, driver=0):
    cupy = ModuleType("cupy")
    vars(cupy).update({name: value for name, value in vars(strict).items() if not name.startswith("_")})
    cupy.__version__, cupy.is_available = "14.2.0", lambda: available
    versions = dict(getDeviceCount=lambda: 1, driverGetVersion=lambda: driver, runtimeGetVersion=lambda: 12090)
    cupy.cuda = SimpleNamespace(runtime=SimpleNamespace(**versions))
    cupy.ndarray = type("ndarray", (DeviceArray,), {"__module__": "cupy"})
    cupy.asarray = lambda x, dtype=None: cupy.ndarray(np.array(x, dtype))
    cupy.full = lambda shape, fill, dtype=None: cupy.ndarray(np.full(shape, fill, dtype))
    return cupy


def wheels(monkeypatch, *names):
    found = [SimpleNamespace(metadata={"Name": name}) for name in (*names, "numpy", None)]
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: iter(found))


def message_of(name="cupy"):
    with pytest.raises(mb.BackendError) as error:
        mb.use_backend(name)
    return str(error.value)


def test_where_cupy_is_missing_the_message_says_how_to_install_it(monkeypatch):
    no_cupy(monkeypatch)
    message = message_of()
    for word in ("'cupy' was asked for", "No module named 'cupy'", "[gpu]", "[gpu13]", "use_backend('numpy')"):
        assert word in message
    assert mb.available_backends() == ("numpy",)
    assert backend.backend_report() == {"numpy": f"ok, NumPy {np.__version__}", "cupy": message}


def test_where_cupy_finds_no_device_the_message_says_what_was_found_and_what_to_do(monkeypatch):
    importing(monkeypatch, fake_cupy(available=False))
    wheels(monkeypatch, "cupy-cuda12x")
    message = message_of()
    for word in ("'cupy' was asked for", "CuPy 14.2.0", "no usable CUDA device", "nvidia-smi", "use_backend('numpy')"):
        assert word in message
    assert "no NVIDIA driver is installed" in message and "Found the wheel cupy-cuda12x" in message
    assert "side by side" not in message
    assert mb.available_backends() == ("numpy",)
    assert type(mb.zeros(2).value) is np.ndarray  # who asked for nothing works on


def test_where_the_driver_is_too_old_both_versions_are_named(monkeypatch):
    importing(monkeypatch, fake_cupy(available=False, driver=11040))
    assert "the driver knows CUDA 11.4, CuPy was built for CUDA 12.9" in message_of()


def test_where_the_driver_does_not_answer_its_error_is_in_the_message(monkeypatch):
    cupy = fake_cupy(available=False)

    def broken():
        raise RuntimeError("cudaErrorUnknown")

    cupy.cuda.runtime.driverGetVersion = broken
    importing(monkeypatch, cupy)
    assert "the driver does not answer (cudaErrorUnknown)" in message_of()


@pytest.mark.parametrize("error", [ImportError("libnvrtc.so.12: no such file"), AttributeError("no\nattribute 'x'")])
def test_where_importing_cupy_fails_whatever_is_raised_is_in_the_message(monkeypatch, error):
    importing(monkeypatch, error)
    wheels(monkeypatch, "cupy-cuda13x")
    message = message_of()
    assert " ".join(str(error).split()) in message and "Found the wheel cupy-cuda13x" in message


def test_a_folder_that_one_of_two_wheels_left_behind_is_not_taken_for_cupy(monkeypatch):
    importing(monkeypatch, ModuleType("cupy"))
    wheels(monkeypatch, "cupy-cuda12x")
    message = message_of()
    assert "the folder of CuPy is damaged" in message and "Uninstall every wheel of CuPy" in message
    assert mb.available_backends() == ("numpy",)


def test_two_wheels_are_named_even_where_cupy_works(monkeypatch):
    importing(monkeypatch, fake_cupy(available=True))
    wheels(monkeypatch, "cupy-cuda12x", "cupy-cuda13x")
    assert backend.backend_report()["cupy"].startswith(
        "ok, CuPy 14.2.0, 1 device(s) Found cupy-cuda12x and cupy-cuda13x"
    )
    assert mb.available_backends() == ("numpy", "cupy")


def test_the_real_cupy_without_a_device_says_so_and_nothing_raises_at_import():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if cupy.is_available():
        pytest.skip("there is a device")
    assert f"CuPy {cupy.__version__} is installed, but it finds no usable CUDA device" in message_of()
    for ask in (lambda: mb.Linear(1, 1, rng=0).to("cupy"), lambda: mb.to_backend(np.ones(1), "cupy")):
        with pytest.raises(mb.BackendError, match="no usable CUDA device"):
            ask()


def test_two_wheels_of_cupy_are_both_named(monkeypatch):
    importing(monkeypatch, fake_cupy(available=False))
    wheels(monkeypatch, "cupy-cuda13x", "cupy-cuda12x")
    assert "Found cupy-cuda12x and cupy-cuda13x side by side: uninstall all of them" in message_of()


def test_cupy_with_a_device_is_used_when_asked_for(monkeypatch):
    cupy = fake_cupy(available=True)
    importing(monkeypatch, cupy)
    assert backend.backend_report()["cupy"] == "ok, CuPy 14.2.0, 1 device(s)"
    assert mb.available_backends() == ("numpy", "cupy")
    with mb.use_backend("cupy"):
        assert type(mb.zeros(2).value) is cupy.ndarray and backend.library_of(mb.zeros(2).value) is cupy
    assert type(mb.to_backend(np.ones(2), "cupy")) is cupy.ndarray


def test_an_array_of_cupy_is_known_before_anybody_asked_for_cupy(monkeypatch):
    cupy = fake_cupy(available=True)
    importing(monkeypatch, cupy)
    array = cupy.asarray([1.0, 2.0])
    assert backend.is_array(array) and backend.library_of(array) is cupy
    assert_array_equal(mb.to_numpy(array), [1, 2])


def test_importing_the_package_loads_no_cupy():
    assert backend.BACKENDS == ("numpy", "cupy")
    source = Path(backend.__file__).read_text(encoding="utf-8")
    assert not re.search(r"^\s*(import|from) cupy", source, re.MULTILINE)


# --- copies, and waiting -----------------------------------------------------------------------------------------


def test_to_numpy_copies_from_the_device_and_nothing_else():
    array = np.ones(2)
    assert mb.to_numpy(array) is array and mb.to_numpy(mb.Tensor(array)) is array
    assert counter.to_host == 0
    for x in (strict.asarray([1.0, 2.0]), mb.parameter(strict.asarray([1.0, 2.0]))):
        counter.reset()
        assert type(mb.to_numpy(x)) is np.ndarray and counter.to_host == counter.syncs == 1
        assert_array_equal(mb.to_numpy(x), [1, 2])
    assert mb.to_numpy(2.5) == 2.5 and type(mb.to_numpy(2.5)) is np.ndarray
    assert_array_equal(mb.to_numpy([1, 2]), [1, 2])


def test_to_backend_copies_only_what_is_elsewhere():
    host, device = np.array([1.0, 2.0]), strict.asarray([1.0, 2.0])
    counter.reset()
    assert mb.to_backend(host) is host and mb.to_backend(host, "numpy") is host
    assert mb.to_backend(device, strict) is device and mb.to_backend(mb.Tensor(device), strict) is device
    assert (counter.to_host, counter.to_device, counter.syncs) == (0, 0, 0)
    assert type(mb.to_backend(host, strict)) is DeviceArray and counter.to_device == 1
    assert type(mb.to_backend(device, "numpy")) is np.ndarray and counter.to_host == 1
    with mb.use_backend(strict):
        there = mb.to_backend(host)
        assert type(there) is type(mb.to_backend([1.0])) is DeviceArray
        assert mb.to_backend(device) is device
    assert_array_equal(there.get(), host)
    assert there.dtype == host.dtype


def test_what_must_be_on_the_host_is_not_copied_there_unasked():
    assert_array_equal(backend.host_array("lengths", [1, 2]), [1, 2])
    counter.reset()
    with pytest.raises(mb.BackendError, match=r"lengths must be on the host; found a standin array: use mb.to_numpy"):
        backend.host_array("lengths", strict.ones(2))
    assert counter.to_host == 0


def test_synchronising_waits_for_the_device_of_the_array():
    mb.synchronize()
    mb.synchronize(np.ones(2))
    assert counter.syncs == 0
    mb.synchronize(strict.ones(2))
    mb.synchronize(mb.Tensor(strict.ones(2)))
    assert counter.syncs == 2
    with mb.use_backend(strict):
        mb.synchronize()
    assert counter.syncs == 3


def arrays_in(option):
    parts = option if isinstance(option, tuple) else (option,)
    return [part for part in parts if isinstance(part, np.ndarray)]


def has_mask(sample):
    return any(part.dtype == bool for part in arrays_in(sample.options.get("index")))


@pytest.mark.parametrize("case", CASES, ids=short)
def test_no_operation_and_no_rule_copies_or_waits(case):
    for sample in case.samples:
        if has_mask(sample):  # the number of its elements decides the shape
            continue
        inputs = [mb.parameter(strict.asarray(x)) for x in sample.inputs]
        options = sample.options_on(strict)
        with mb.Tape() as tape:
            counter.reset()
            y = case(*inputs, **options)
            forward = dict(vars(counter))
            outputs = y if isinstance(y, tuple) else (y,)
            seeds = [strict.ones(one.shape, dtype=one.dtype) for one in outputs]
        counter.reset()
        for one, seed in zip(outputs, seeds):
            tape.gradient(one, inputs, seed)
        host_options = sum("ids" in options or isinstance(x, list) for x in options.values())
        for counts in (forward, vars(counter)):
            assert counts["syncs"] == counts["to_host"] == 0
        assert forward["to_device"] <= host_options and counter.to_device == 0


def test_one_training_step_does_not_wait_for_the_device():
    x, ids = some(5, 3, 2).astype(np.float32), np.arange(15).reshape(5, 3) % 4
    with mb.use_backend(strict):
        model = mb.Sequential(mb.RNNCell(2, 4, rng=0), mb.Linear(4, 4, rng=1))
        optimizer, inputs = mb.Adam(model), strict.asarray(x)
        state = model.zero_state(3)
        for _ in range(2):
            counter.reset()
            with mb.Tape() as tape:
                logits, state = model(inputs, mb.cut(state), cut_every=2)
                loss = mb.cross_entropy(logits, ids)
            optimizer.step(mb.clip_by_global_norm(tape.gradient(loss, model), 1.0))
            assert counter.syncs == counter.to_host == 0 and counter.launches > 50
        assert 0 < loss.item() < 3 and counter.syncs == 1


# --- two libraries in one operation ------------------------------------------------------------------------------


@pytest.mark.parametrize("as_tensors", [True, False], ids=["tensors", "arrays"])
@pytest.mark.parametrize("case", [case for case in CASES if len(case.samples[0].inputs) > 1], ids=short)
def test_inputs_of_two_libraries_are_an_error_that_names_the_operation_and_the_inputs(case, as_tensors):
    sample = case.samples[0]
    for i in range(len(sample.inputs)):
        inputs = [(strict if j == i else np).asarray(x) for j, x in enumerate(sample.inputs)]
        options = sample.options_on(np)
        labels = [f"x{j}" if as_tensors else "an array" for j in range(len(inputs))]
        if as_tensors:
            inputs = [mb.parameter(x, label) for x, label in zip(inputs, labels)]
        with pytest.raises(mb.BackendError) as error:
            case(*inputs, **options)
        message = str(error.value)
        assert message.startswith(f"{case.name}: ") and "mb.to_backend" in message
        for j, label in enumerate(labels):
            assert f"input {j + 1} ({label}) is a {'standin' if j == i else 'numpy'} array" in message


@pytest.mark.parametrize("case", [case for case in CASES if len(case.samples[0].inputs) > 1], ids=short)
def test_a_tensor_and_a_bare_array_of_two_libraries_are_an_error(case):
    sample = case.samples[0]
    for mine, other in ((np, strict), (strict, np)):
        options = sample.options_on(mine)
        for i in range(len(sample.inputs)):
            inputs = [other.asarray(x) for x in sample.inputs]
            inputs[i] = mb.parameter(mine.asarray(sample.inputs[i]), "W")
            with pytest.raises(
                mb.BackendError, match=rf"^{case.name}: .*input {i + 1} \(W\) is a {mine.__name__} array"
            ):
                case(*inputs, **options)


ARRAY_OPTIONS = [(case, {"where": "condition", "getitem": "index"}.get(case.name, "ids")) for case in CASES]
ARRAY_OPTIONS = [(case, option) for case, option in ARRAY_OPTIONS if option in case.samples[0].options]


def test_every_option_that_may_be_an_array_is_known():
    assert {case.name for case, _ in ARRAY_OPTIONS} == {
        case.name for case in CASES for sample in case.samples for x in sample.options.values() if arrays_in(x)
    }


@pytest.mark.parametrize("case, option", ARRAY_OPTIONS, ids=short)
def test_an_option_of_another_library_is_an_error_that_names_the_operation_and_the_option(case, option):
    for sample in case.samples:
        if not arrays_in(sample.options[option]):
            continue
        for mine, other in ((np, strict), (strict, np)):
            if option == "ids" and other is np:  # ids belong on the host
                continue
            inputs = [mb.parameter(mine.asarray(x)) for x in sample.inputs]
            with pytest.raises(mb.BackendError, match=rf"^{case.name}: .*{option}.* {other.__name__} array"):
                case(*inputs, **sample.options | {option: on(other, sample.options[option])})


def test_an_operator_between_two_libraries_is_an_error_on_either_side():
    x = positive(2, 2)
    for mine, other in ((np, strict), (strict, np)):
        t, a = mb.parameter(mine.asarray(x), "W"), other.asarray(x)
        for operate in (
            lambda a, b: a + b,
            lambda a, b: a - b,
            lambda a, b: a * b,
            lambda a, b: a / b,
            lambda a, b: a**b,
            lambda a, b: a @ b,
        ):
            for left, right in ((t, a), (a, t), (t, mb.Tensor(a))):
                with pytest.raises(mb.BackendError, match=r"standin array"):
                    operate(left, right)


def test_a_seed_and_a_new_value_of_another_library_are_errors():
    for mine, other in ((np, strict), (strict, np)):
        p = mb.parameter(mine.asarray([1.0, 2.0]), "W")
        with mb.Tape() as tape:
            y = p * 2
        with pytest.raises(mb.BackendError, match=rf"the seed is a {other.__name__} array"):
            tape.gradient(y, p, other.ones(2))
        with pytest.raises(mb.BackendError, match=rf"assign: W .* its new value a {other.__name__} one"):
            mb.assign(p, other.ones(2))


# --- the stand-in itself, and the names that the package uses ----------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        np.asarray,
        np.exp,
        np.sum,
        lambda x: x + np.ones(2),
        lambda x: np.ones(2) * x,
        lambda x: x * [1, 2],
        lambda x: x == np.ones(2),
        lambda x: strict.exp([1.0, 2.0]),
        lambda x: strict.maximum(x, np.ones(2)),
        lambda x: strict.sum(np.ones(2)),
        lambda x: strict.sum(x, where=x > 1),
        lambda x: x.max(initial=0),
        lambda x: strict.where(True, x, x),
        lambda x: strict.where(np.ones(2, bool), x, x),
        lambda x: strict.concatenate([x, np.ones(2)]),
        lambda x: strict.stack([x, 1.0]),
        lambda x: x.__setitem__(0, np.ones(1)),
        lambda x: strict.errstate(),
        lambda x: strict.vecdot(x, x),
        lambda x: strict.maximum.reduce(x),
        lambda x: strict.exp(x, where=x > 1),
        lambda x: strict.asarray([x, x]),
        lambda x: np.ones(2)[x],
        hash,
    ],
)
def test_the_stand_in_refuses_what_cupy_refuses(call):
    with pytest.raises((TypeError, AttributeError, IndexError)):
        call(strict.asarray([1.0, 2.0]))


def test_the_stand_in_behaves_as_a_device_does():
    x = strict.asarray(np.arange(6.0).reshape(2, 3))
    assert type(x.sum()) is DeviceArray and x.sum().shape == ()
    assert_array_equal(x[strict.asarray([3])].get(), [[3, 4, 5]])  # out of range: it wraps around
    assert (strict.ones(1, dtype=np.float32) * 2.0).dtype == np.float32
    assert (np.float64(2) * strict.ones(1, dtype=np.float32)).dtype == np.float64
    total = strict.zeros(3)
    strict.add.at(total, strict.asarray([1, 1]), strict.asarray([1.0, 2.0]))
    assert_array_equal(total.get(), [0, 3, 0])
    for wait in (float, bool, int, repr, lambda x: x.item(), lambda x: strict.ones(2)[strict.asarray([True, False])]):
        counter.reset()
        wait(strict.ones(()))
        assert counter.syncs == 1


LIBRARY = {"xp", "library"}
MAKERS = {"library_of", "current_library", "library_named"}


def uses_of_the_library(tree):
    """(dotted name, the call or None, line) for xp.NAME, library.NAME, library_of(x).NAME in a syntax tree."""
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == "xp":
            yield node.attr, called.get(id(node)), node.lineno  # s.xp.NAME, p.saved.xp.NAME
        if not isinstance(node, ast.Attribute) or (id(node) in inner and id(node) not in called):
            continue
        path, root = [node.attr], node.value
        while isinstance(root, ast.Attribute):
            path.insert(0, root.attr)
            root = root.value
        is_name = isinstance(root, ast.Name) and root.id in LIBRARY
        is_made = isinstance(root, ast.Call) and isinstance(root.func, ast.Name) and root.func.id in MAKERS
        if is_name or is_made:
            yield ".".join(path), called.get(id(node)), node.lineno


def complaints(source):
    """What a source does with the array library that CuPy could not do."""
    found = []
    for name, call, line in uses_of_the_library(ast.parse(source)):
        target = strict
        for part in name.split("."):
            target = getattr(target, part, None)
        if target is None:
            found.append(f"line {line}: {name}")
        elif call is not None and callable(target):
            places = [a for a in call.args if not isinstance(a, ast.Starred)]
            keywords = {k.arg: None for k in call.keywords if k.arg}
            try:
                inspect.signature(target).bind_partial(*places, **keywords)
            except TypeError as error:
                found.append(f"line {line}: {name}: {error}")
            except ValueError:  # a type of NumPy's, such as float64
                pass
    return found


SOURCES = sorted(Path(mb.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_the_package_asks_of_a_library_only_what_cupy_has(path):
    assert complaints(path.read_text(encoding="utf-8")) == []


def test_the_search_for_names_finds_what_cupy_does_not_have():
    operations = [Path(module.__file__).read_text(encoding="utf-8") for module in (mb.ops, mb.places, mb.reductions)]
    assert sum(len(list(uses_of_the_library(ast.parse(code)))) for code in operations) > 70
    for good in (
        "xp.sum(x, axis=0)",
        "library_of(v).sqrt(v)",
        "xp.add.at(a, i, b)",
        "library.cuda.get_current_stream()",
    ):
        assert len(list(uses_of_the_library(ast.parse(good)))) >= 1 and complaints(good) == []
    for wrong in (
        "xp.errstate()",
        "f = xp.vecdot",
        "xp.sum(x, where=m)",
        "xp.max(x, initial=0)",
        "xp.maximum.reduce(x)",
        "library_of(v).nditer(v)",
        "current_library().block([1])",
        "xp.stack(xs, 0, None, 1)",
        "xp.exp(x, where=m)",
        "s.xp.vecdot(x, x)",
        "p.saved.xp.max(x, initial=0)",
    ):
        assert len(complaints(wrong)) == 1, wrong


def test_the_stand_in_has_no_name_or_argument_that_cupy_has_not():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed (it needs no device for this)")
    for name, mine in vars(strict).items():
        if name.startswith("__") or name in ("ndarray", "matmul"):
            continue
        theirs = getattr(cupy, name)
        if isinstance(mine, strict_cupy.Ufunc):
            assert type(theirs).__name__ == "ufunc"
        elif inspect.isfunction(mine):
            mine, theirs = (inspect.signature(f).parameters.values() for f in (mine, theirs))
            assert [(p.name, p.kind) for p in mine] == [(p.name, p.kind) for p in theirs], name


@pytest.mark.parametrize("wrong", [None, "a", {"h": 1.0}, [None], ["1"], object()], ids=str)
def test_what_holds_no_numbers_becomes_no_array(wrong):
    for convert in (mb.to_numpy, mb.to_backend, lambda x: mb.to_backend(x, strict)):
        with pytest.raises(TypeError, match=r"numbers are needed here, found"):
            convert(wrong)
    assert mb.to_numpy([1, 2.5]).tolist() == [1, 2.5] and mb.to_numpy(True) == True  # noqa: E712
