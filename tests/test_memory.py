"""What is live is not what is reserved: the pool of a device, peaks, and the memory of a window."""

import numpy as np
import pytest
from strict_cupy import pool
from strict_cupy import xp as strict

import minibptt as mb
from minibptt.cells import buffers


@pytest.fixture(autouse=True)
def empty_pool():
    pool.free_all_blocks()


def test_the_pool_keeps_what_was_freed_and_gives_it_out_again():
    before = mb.device_memory(strict)
    a = strict.zeros((100, 100))  # 80,000 bytes, in blocks of 512: 80,384
    assert mb.device_memory(strict) == {k: v + 80384 for k, v in before.items()}
    view = a[10:20]
    del a
    assert mb.device_memory(strict)["live"] == before["live"] + 80384  # the view still holds it
    del view
    assert mb.device_memory(strict) == {"live": before["live"], "reserved": before["reserved"] + 80384}
    b = strict.ones((10, 1000))  # of the same size: nothing new is reserved
    assert mb.device_memory(strict)["reserved"] == before["reserved"] + 80384
    del b
    pool.free_all_blocks()
    assert mb.device_memory(strict) == before


def test_numpy_has_no_pool_and_says_what_measures_it():
    with pytest.raises(mb.BackendError, match="numpy has no memory pool: tracemalloc"):
        mb.device_memory("numpy")
    with pytest.raises(mb.BackendError, match="unknown backend 'gpu'"):
        mb.device_memory("gpu")
    with pytest.raises(mb.BackendError, match="unknown backend 'gpu'"):
        mb.peak_memory(list, "gpu")


def test_a_peak_is_the_most_that_was_live_above_what_was_live_before(xp):
    kept = xp.zeros((200, 500))

    def work():
        a = xp.zeros((100, 1000))
        b = a + 1
        del a, b
        return xp.zeros(10)

    work()
    peak = mb.peak_memory(work, xp)
    assert 1_600_000 <= peak < 1_610_000
    assert kept.shape == (200, 500)


def gradient_by_windows(T, B, H, k):
    """The state carried and cut every k steps, a tape for each window."""
    x = mb.to_backend(np.random.default_rng(0).standard_normal((T, B, 1)).astype(np.float32))
    model = mb.RNN(1, H, rng=0)

    def work():
        state = model.zero_state(B)
        for a in range(0, T, k):
            with mb.Tape() as tape:
                y, state = model(x[a : a + k], mb.cut(state))
                loss = mb.sum(y * y)
            tape.gradient(loss, model)
            del tape, y, loss

    return work


def test_the_memory_of_a_window_goes_with_its_length_whatever_the_order_of_the_runs(xp, monkeypatch):
    monkeypatch.setattr(buffers, "LIMIT", 0)  # NumPy's runs pay for all their arrays
    T, B, H = 64, 32, 64
    unit = B * H * 4  # one state in float32
    peaks = []
    for k in (64, 16, 4, 64, 4):
        work = gradient_by_windows(T, B, H, k)
        work()  # what is set up once
        peaks.append(mb.peak_memory(work, xp) / unit)
    assert peaks[0] == pytest.approx(peaks[3], rel=0.02) and peaks[2] == pytest.approx(peaks[4], rel=0.02)
    # Each step of a window holds so many states: h, dh, da, y·y and its adjoints.
    per_step = (peaks[0] - peaks[2]) / 60
    assert peaks[1] == pytest.approx(peaks[2] + 12 * per_step, rel=0.1)
    assert 2 < per_step < 8
    if xp is not np:  # measured by what is reserved, the short window would look as large as the long one before it
        assert mb.device_memory(xp)["reserved"] > 3 * peaks[4] * unit


def test_compare_measures_the_memory_where_the_arrays_are(xp):
    model = mb.RNN(1, 32, rng=0)
    x = mb.to_backend(np.random.default_rng(0).standard_normal((32, 16, 1)).astype(np.float32))
    result = mb.compare(model, x, x[..., 0], lambda y, _: mb.sum(y * y), [mb.tbptt(2), mb.full()])
    short, full = (row.peak_bytes for row in result.rows)
    assert full > 32 * 16 * 32 * 4 and short < full
