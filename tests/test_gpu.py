"""What can only be seen on a device: `pytest -m gpu`. Every test with `xp` runs there too.

Here: CuPy's own answers, which the stand-in only imitates; a step captured as a CUDA graph; times that are real.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import minibptt as mb
from minibptt import backend, standin

REPORT = backend.backend_report()["cupy"]
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not REPORT.startswith("ok"), reason=REPORT[:150])]

spec = importlib.util.spec_from_file_location("device", Path(__file__).parent.parent / "benchmarks" / "device.py")
device = importlib.util.module_from_spec(spec)
spec.loader.exec_module(device)


@pytest.fixture(scope="module")
def cupy():
    return pytest.importorskip("cupy")


def test_every_layer_gives_the_numbers_of_the_cpu(cupy):
    for name, engine, dtype, situation, worst in device.parity(cupy):
        assert worst <= device.WITHIN[np.dtype(dtype).type], (name, engine, dtype, situation)


@pytest.mark.parametrize("cell", device.PEERS)
def test_a_training_step_can_be_captured_as_a_graph(cupy, cell):
    worst, _, _ = device.graph(cupy, cell, seconds=0)
    assert worst <= 1e-4


def test_a_step_that_waits_cannot_be_captured(cupy, monkeypatch):
    step = device.training_step
    monkeypatch.setattr(device, "training_step", lambda *given: mb.to_numpy(step(*given)))
    with pytest.raises(Exception, match=r"(?i)captur"):
        device.graph(cupy, "rnn", seconds=0)


def test_the_pool_keeps_what_was_freed(cupy):
    cupy.get_default_memory_pool().free_all_blocks()
    before = mb.device_memory(cupy)
    a = cupy.zeros((1000, 1000))
    assert mb.device_memory(cupy)["live"] - before["live"] == 8_000_000
    del a
    after = mb.device_memory(cupy)
    assert after["live"] == before["live"] and after["reserved"] >= before["reserved"]
    assert mb.peak_memory(lambda: cupy.ones((1000, 1000)) + 1, cupy) >= 16_000_000


def test_the_stand_in_launches_and_waits_where_cupy_does(cupy):
    """The same operations are asked of both, so the answers have one form, type and place."""
    for ask in (
        lambda xp: xp.where(xp.ones(3) > 0, 1.0, 0.0),
        lambda xp: xp.sum(xp.ones((2, 3), dtype=xp.float32), axis=1),
        lambda xp: xp.ones(2, dtype=xp.float32) * 2.0,
        lambda xp: np.float64(2) * xp.ones(2, dtype=xp.float32),
        lambda xp: 0.9 ** xp.asarray(np.array(3)),
        lambda xp: xp.asarray(np.eye(3))[xp.asarray(np.array([0, 4]))],
        lambda xp: xp.isfinite(xp.ones(3)).all(),
    ):
        mine, theirs = ask(standin.xp), ask(cupy)
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(mine.get(), theirs.get(), rtol=1e-6)


def test_a_benchmark_measures_both_and_says_where(cupy, tmp_path):
    result = mb.benchmark(mb.LSTM(16, 16, rng=0), np.ones((10, 4, 16), np.float32), seconds=0.01)
    assert {row.place for row in result.rows} == {"CPU", "GPU"}
    gpu = next(row for row in result.rows if row.place == "GPU")
    assert "CUDA" in gpu.device and "cupy" in gpu.libraries
    result.to_csv(tmp_path / "benchmark.csv")


@pytest.mark.parametrize("cell", device.PEERS)
def test_pytorchs_layer_can_be_timed_beside_ours(cupy, cell):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch is installed without CUDA")
    assert device.theirs(cell, 5, 2, 4, 4, seconds=0) > 0 and device.ours(cupy, cell, 5, 2, 4, 4, seconds=0) > 0
