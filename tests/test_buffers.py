"""Arrays that are used again: only when nobody can see them any more, and never without bound."""

import subprocess
import sys
import threading

import numpy as np
import pytest

import minibptt as mb
from minibptt.cells import buffers

SHAPE = (300, 400)  # 480,000 bytes in float32


@pytest.fixture(autouse=True)
def empty_pool():
    buffers.clear()
    yield
    buffers.clear()


def place(array):
    return array.__array_interface__["data"][0]


def test_an_array_is_used_again_when_it_and_its_views_are_gone():
    a = buffers.empty(np, SHAPE, np.float32)
    where, view = place(a), a[5:7, ::2]
    assert place(buffers.empty(np, SHAPE, np.float32)) != where
    del a
    assert place(buffers.empty(np, SHAPE, np.float32)) != where  # the view still shows it
    del view
    again = buffers.empty(np, SHAPE[::-1], np.float32)  # another shape of the same size
    assert place(again) == where and again.shape == SHAPE[::-1] and again.flags.c_contiguous


def test_no_two_arrays_in_use_share_memory():
    held = [buffers.empty(np, SHAPE, np.float64) for _ in range(6)]
    for i, a in enumerate(held):
        a[...] = i
    assert [a.min() == a.max() == i for i, a in enumerate(held)] == [True] * 6


def test_the_pool_keeps_no_more_than_its_limit_and_no_small_arrays(monkeypatch):
    monkeypatch.setattr(buffers, "LIMIT", 10**6)
    held = [buffers.empty(np, SHAPE, np.float32) for _ in range(5)]
    assert sum(a.nbytes for a in buffers._pool.arrays) <= 10**6 and len({place(a) for a in held}) == 5
    buffers.clear()
    buffers.empty(np, (10,), np.float32)
    buffers.empty(np, (10**6,), np.float32)
    assert buffers._pool.arrays == []


def test_each_thread_has_its_own_pool():
    a = buffers.empty(np, SHAPE, np.float32)
    where, seen = place(a), []
    del a

    def work():
        b = buffers.empty(np, SHAPE, np.float32)
        seen.append(place(b) == where)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]


def test_what_one_step_returned_is_not_touched_by_the_next():
    layer = mb.LSTM(32, 32, rng=0)
    x = np.random.default_rng(0).standard_normal((60, 16, 32)).astype(np.float32)

    def step(x):
        with mb.Tape() as tape:
            inputs = tape.watch(x)
            out, state = layer(inputs)
            loss = mb.sum(out * out)
        return out, state[0][1], *tape.adjoints(loss).values(), *tape.gradient(loss, [inputs])

    kept = step(x)
    before = [np.array(mb.to_numpy(a)) for a in kept]
    for i in range(4):
        step(x * (i + 2))
    assert all(np.array_equal(a, mb.to_numpy(b)) for a, b in zip(before, kept))


def test_where_python_counts_no_references_nothing_is_used_again():
    script = (
        "import sys, numpy as np; del sys.getrefcount; from minibptt.cells.buffers import empty; "
        "a, b = empty(np, (300, 400), np.float32), empty(np, (300, 400), np.float32); print(np.shares_memory(a, b))"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "False\n"
