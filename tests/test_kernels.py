"""The kernels of the cells: their C compiled for this CPU against the passes in NumPy, and compiled for GPUs by NVRTC.

The stand-in reads the same C as Python; here it meets compilers.
"""

import ctypes
import functools
import os
import re
import shutil
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest
import strict_cupy
import test_device as device
from numpy.testing import assert_allclose
from strict_cupy import xp as strict

import minibptt as mb
from minibptt import backend
from minibptt.cells.kernels import KERNELS, PREAMBLE, Kernel
from minibptt.standin.kernel import sigmoid

CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
needs_cc = pytest.mark.skipif(CC is None, reason="no C compiler is installed")
TYPES = {"float": np.float32, "double": np.float64}


def parameters(kernel):
    """(name, whether it is only read) of each array of a kernel, in order, without H."""
    given, made = ([p.split()[-1] for p in text.split(", ")] for text in (kernel.inputs, kernel.outputs))
    assert given.pop() == "H"
    return [(name, True) for name in given], [(name, False) for name in made]


def in_c(kernel):
    """A function of plain C that does what one launch of the kernel does, for each float type."""
    given, made = parameters(kernel)
    arrays = ", ".join([f"const T *{name}" for name, _ in given] + ["const int H"] + [f"T *{name}" for name, _ in made])
    loop = f"for (ptrdiff_t i = 0; i < size; ++i) {{\n{kernel.operation}\n}}"
    functions = [
        f"#define T {kind}\nvoid {kernel.name}_{kind}({arrays}, ptrdiff_t size) {{\n{loop}\n}}\n#undef T\n"
        for kind in TYPES
    ]
    return "".join(functions)


@functools.cache
def compiled(folder):
    source = folder / "kernels.c"
    source.write_text("#include <stddef.h>\n#include <tgmath.h>\n" + PREAMBLE + "".join(map(in_c, KERNELS)))
    flags = [
        "-std=c99",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Wno-unused-variable",
        "-Werror",
        "-Wdouble-promotion",
        "-shared",
        "-fPIC",
    ]
    subprocess.run([CC, *flags, str(source), "-o", str(folder / "kernels.so"), "-lm"], check=True)
    return ctypes.CDLL(str(folder / "kernels.so"))


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def by_the_compiler(library, monkeypatch):
    """The stand-in runs the kernels as the C compiler made them."""
    launched = []

    def run(self, hosts, size):
        first = next(host for host in hosts.values() if isinstance(host, np.ndarray))
        kind = next(name for name, dtype in TYPES.items() if dtype == first.dtype)
        values = [h.ctypes.data_as(ctypes.c_void_p) if isinstance(h, np.ndarray) else h for h in hosts.values()]
        launched.append(self.name)
        getattr(library, f"{self.name.removeprefix('minibptt_')}_{kind}")(*values, ctypes.c_ssize_t(size))

    monkeypatch.setattr(strict_cupy.ElementwiseKernel, "run", run)
    return launched


@needs_cc
@pytest.mark.parametrize("dtype, within", [(np.float64, 1e-11), (np.float32, 2e-5)])
@pytest.mark.parametrize("situation", ["plain", "all"])
@pytest.mark.parametrize("layer", device.LAYERS)
def test_the_c_of_the_kernels_gives_the_numbers_of_numpy(by_the_compiler, layer, situation, dtype, within):
    options = device.SITUATIONS[situation]
    here, there = (device.passes(device.LAYERS[layer], xp, dtype, **options) for xp in (strict, np))
    assert len(set(by_the_compiler)) == (4 if layer == "gru before" else 2)
    for name, expected in there.items():
        assert_allclose(here[name], expected, rtol=within, atol=within * 5, err_msg=name)


@needs_cc
def test_every_kernel_is_used_by_some_layer(by_the_compiler):
    for layer in device.LAYERS.values():
        device.passes(layer, strict, np.float32)
    assert set(by_the_compiler) == {f"minibptt_{kernel.name}" for kernel in KERNELS}


@needs_cc
def test_the_c_of_every_kernel_does_what_the_stand_in_does(library):
    rng = np.random.default_rng(0)
    B, H = 3, 5
    for kernel in KERNELS:
        given, made = parameters(kernel)
        blocks = {name: 1 + kernel.operation.count(f"{name}[row") * 4 for name, _ in given + made}  # wide enough
        for kind, dtype in TYPES.items():
            start = {name: rng.uniform(-1, 1, B * blocks[name] * H).astype(dtype) for name in blocks}
            one, two = ({name: a.copy() for name, a in start.items()} for _ in range(2))
            values = [one[n].ctypes.data_as(ctypes.c_void_p) for n, _ in given] + [H]
            values += [one[n].ctypes.data_as(ctypes.c_void_p) for n, _ in made]
            getattr(library, f"{kernel.name}_{kind}")(*values, ctypes.c_ssize_t(B * H))
            twin = strict_cupy.ElementwiseKernel(kernel.inputs, kernel.outputs, kernel.operation, kernel.name)
            twin.run({n: two[n] for n, _ in given} | {"H": H} | {n: two[n] for n, _ in made}, B * H)
            for name in start:
                assert_allclose(one[name], two[name], rtol=1e-5 if kind == "float" else 1e-12, err_msg=kernel.name)
            assert any(not np.array_equal(one[name], start[name]) for name, _ in made)


def test_sigmoid_of_a_kernel_never_overflows_and_relu_keeps_nan():
    with np.errstate(all="raise", under="ignore"):
        x = np.array([-1e4, -800.0, 0.0, 800.0, 1e4])
        assert_allclose(sigmoid(x), [0, 0, 0.5, 1, 1])
    layer = mb.RNN(2, 3, "relu", rng=0).to(strict)
    outputs, _ = layer(strict.asarray(np.full((1, 1, 2), np.nan, np.float32)))
    assert np.isnan(mb.to_numpy(outputs)).all()


def test_the_text_of_a_kernel_loads_works_and_stores():
    kernel = Kernel("try", "b += a * k; d = b;", {"a": "a -", "k": "k"}, {"b": "b"}, {"d": "d"}, columns=("k",))
    assert (kernel.inputs, kernel.outputs) == ("raw T a_, raw T k_, int32 H", "raw T b_, raw T d_")
    assert kernel.operation.splitlines() == [
        "const int row = i / H;",
        "const int col = i % H;",
        "{",
        "T a = a_[row * 2 * H + 0 * H + col];",
        "T k = k_[col];",
        "T b = b_[row * 1 * H + 0 * H + col];",
        "T d;",
        "b += a * k;",
        "d = b;",
        "b_[row * 1 * H + 0 * H + col] = b;",
        "d_[row * 1 * H + 0 * H + col] = d;",
        "}",
    ]
    a, k, b, d = (
        strict.asarray(x) for x in (np.arange(8.0).reshape(2, 4), [10.0, 20.0], np.ones((2, 2)), np.empty((2, 2)))
    )
    kernel(strict, 2, a, k, b, d)
    assert d.get().tolist() == b.get().tolist() == [[1, 21], [41, 101]]


def test_a_kernel_is_made_once_and_numpy_has_none():
    made = [backend.elementwise_kernel(strict, "raw T a, int32 H", "raw T b", "b[i] = a[i];", "copy") for _ in range(2)]
    assert made[0] is made[1]
    with pytest.raises(mb.BackendError, match="copy: kernels run on a device; numpy has none"):
        backend.elementwise_kernel(np, "raw T a, int32 H", "raw T b", "b[i] = a[i];", "copy")


def test_the_stand_in_refuses_arrays_that_a_kernel_could_not_take():
    kernel = strict_cupy.ElementwiseKernel("raw T a, int32 H", "raw T b", "b[i] = a[i];", "copy")
    a, b = strict.ones((2, 2)), strict.ones((2, 2))
    with pytest.raises(TypeError, match="expected an array of the device"):
        kernel(np.ones((2, 2)), 2, b, size=4)
    with pytest.raises(TypeError, match="float32"):
        kernel(strict.ones((2, 2), dtype=np.float32), 2, b, size=4)
    with pytest.raises(ValueError, match="contiguous"):
        kernel(a.T[:1], 2, b[:, :1], size=2)
    with pytest.raises(TypeError, match="takes 3 arguments"):
        kernel(a, b, size=4)


# --- NVRTC: the frame that CuPy puts around an operation, compiled for GPUs that are not here -----------------------


def in_cuda(kernel, kind):
    given, made = parameters(kernel)
    arrays = [f"const CArray<T, 1, true, true> {name}" for name, _ in given] + ["const int H"]
    arrays += [f"CArray<T, 1, true, true> {name}" for name, _ in made]
    return f"""#include <cupy/complex.cuh>
#include <cupy/carray.cuh>
typedef {kind} T;
{PREAMBLE}
extern "C" __global__ void {kernel.name}({", ".join(arrays)}, CIndexer<1, true> _ind) {{
  CUPY_FOR(i, _ind.size()) {{
    _ind.set(i);
    {kernel.operation};
  }}
}}"""


@pytest.fixture(scope="module")
def nvrtc():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed (its headers are needed, no device)")
    try:
        from cupy_backends.cuda.libs import nvrtc

        nvrtc.getVersion()
    except Exception as error:
        pytest.skip(f"NVRTC is not installed ({str(error).splitlines()[0]}): pip install nvidia-cuda-nvrtc-cu12")
    include = os.path.join(os.path.dirname(cupy.__file__), "_core", "include")
    folders = [include, *[f"{include}/cupy/_cccl/{part}" for part in ("libcudacxx", "thrust", "cub")]]
    options = ["--std=c++17", *[f"-I{folder}" for folder in folders]]

    def build(source, architecture, what):
        program = nvrtc.createProgram(source, "kernel.cu", [], [])
        try:
            nvrtc.compileProgram(program, [*options, f"--gpu-architecture={architecture}"])
        except nvrtc.NVRTCError:
            pytest.fail(nvrtc.getProgramLog(program))
        found = getattr(nvrtc, what)(program)
        nvrtc.destroyProgram(program)
        return found

    return SimpleNamespace(
        cubin=lambda s, a: build(s, f"sm_{a}", "getCUBIN"), ptx=lambda s, a: build(s, f"compute_{a}", "getPTX")
    )


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_nvrtc_compiles_each_kernel_and_single_precision_stays_single(nvrtc, kernel):
    for kind in TYPES:
        for architecture in (80, 90):
            assert len(nvrtc.cubin(in_cuda(kernel, kind), architecture)) > 1000
    ptx = nvrtc.ptx(in_cuda(kernel, "float"), 80)
    ptx = ptx.decode() if isinstance(ptx, bytes) else ptx
    assert ".f32" in ptx and not re.search(r"\.f64", ptx)
    ptx = nvrtc.ptx(in_cuda(kernel, "double"), 80)
    assert ".f64" in (ptx.decode() if isinstance(ptx, bytes) else ptx)


def test_cupy_makes_every_kernel_without_a_device():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed (it needs no device for this)")
    for kernel in KERNELS:
        made = backend.elementwise_kernel(cupy, kernel.inputs, kernel.outputs, kernel.operation, kernel.name, PREAMBLE)
        given, outputs = parameters(kernel)
        assert (made.nin, made.nout) == (len(given) + 1, len(outputs))
