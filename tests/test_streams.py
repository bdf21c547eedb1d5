"""Streams laid out in rows whose windows continue each other."""

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minibptt as mb


def lists(windows):
    return [(x.tolist(), y.tolist()) for x, y in windows]


def test_twenty_six_tokens_in_three_rows_and_windows_of_four():
    stream = mb.stream_batches(np.arange(26), batch=3, steps=4)
    assert (stream.length, stream.left_over) == (8, 1)  # token 25 is never a target
    assert lists(stream) == [
        ([[0, 8, 16], [1, 9, 17], [2, 10, 18], [3, 11, 19]], [[1, 9, 17], [2, 10, 18], [3, 11, 19], [4, 12, 20]]),
        ([[4, 12, 20], [5, 13, 21], [6, 14, 22], [7, 15, 23]], [[5, 13, 21], [6, 14, 22], [7, 15, 23], [8, 16, 24]]),
    ]
    assert repr(stream) == "Stream(3 rows of 8 steps, windows of 4, at step 8, 1 left over)"


@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 9))
def test_windows_continue_each_other_and_every_target_that_fits_is_used_once(N, batch, steps):
    if batch > N - 1:
        with pytest.raises(ValueError, match=f"a stream of {N} is too short for {batch} row.*at least {batch + 1}"):
            mb.stream_batches(np.arange(N), batch=batch, steps=steps)
        return
    stream = mb.stream_batches(np.arange(N), batch=batch, steps=steps)
    windows = list(stream)
    x, y = (np.concatenate([w[i] for w in windows]) for i in (0, 1))
    assert (y == x + 1).all() and (np.diff(x, axis=0) == 1).all()
    assert sorted(y.ravel()) == list(range(1, N - stream.left_over)) and 0 <= stream.left_over < batch
    assert [len(w[0]) for w in windows[:-1]] == [steps] * (len(windows) - 1) and 1 <= len(windows[-1][0]) <= steps


def test_with_targets_every_step_of_a_row_has_one():
    x, y = np.arange(14.0).reshape(7, 2), np.arange(7) * 10
    stream = mb.stream_batches(x, targets=y, batch=2, steps=2)
    (a, p), (b, q) = stream
    assert a.shape == (2, 2, 2) and b.shape == (1, 2, 2) and stream.left_over == 1
    assert p.tolist() == [[0, 30], [10, 40]] and q.tolist() == [[20, 50]]
    assert a[1, 1].tolist() == x[4].tolist()
    (features, following), *_ = mb.stream_batches(x, batch=2, steps=2)
    assert (following == features + 2).all() and following.shape == (2, 2, 2)


def test_text_is_numbered_by_its_sorted_characters_and_bytes_are_their_own_numbers():
    stream = mb.stream_batches("banana!", batch=2, steps=3)
    assert stream.symbols == "!abn"
    ((x, y),) = stream
    assert "".join(stream.symbols[i] for i in x[:, 0]) == "ban" and "".join(stream.symbols[i] for i in y[:, 1]) == "na!"
    ((x, _),) = mb.stream_batches(b"abc", batch=1, steps=9)
    assert x.ravel().tolist() == [97, 98]
    ((x, _),) = mb.stream_batches([5, 6, 7], batch=1, steps=9)
    assert x.ravel().tolist() == [5, 6] and x.dtype.kind == "i"


def endless(start=0):
    return itertools.count(start)


ITERATORS = {
    "a list of iterators": lambda: [endless(0), endless(100)],
    "steps for all rows": lambda: (np.array([t, 100 + t]) for t in itertools.count()),
}


@pytest.mark.parametrize("kind", ITERATORS)
def test_an_endless_stream_gives_windows_that_continue_each_other(kind):
    stream = mb.stream_batches(ITERATORS[kind](), batch=2, steps=3)
    windows = [next(stream) for _ in range(4)]
    x, y = (np.concatenate([w[i] for w in windows]) for i in (0, 1))
    assert x.T.tolist() == [list(range(12)), list(range(100, 112))] and (y == x + 1).all()
    assert stream.position == 12 and stream.length is None and stream.left_over is None
    assert repr(stream) == "Stream(2 rows, windows of 3, at step 12)"


def test_an_endless_stream_is_read_in_constant_memory():
    stream = mb.stream_batches((np.zeros((2, 1000)) for _ in itertools.count()), batch=2, steps=5)
    for _ in range(3):
        next(stream)
    tracemalloc.start()
    try:
        for _ in range(200):  # 16 MB go through
            next(stream)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_an_array_is_read_window_by_window_and_neither_copied_nor_changed():
    tokens = np.zeros(10_000_000, np.uint8)
    tracemalloc.start()
    try:
        stream = mb.stream_batches(tokens, batch=4, steps=10)
        x, _ = next(stream)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    x[...] = 9
    assert not tokens.any()


def test_iterators_that_end_give_a_shorter_last_window_and_say_what_was_read_in_vain():
    stream = mb.stream_batches([iter(range(9)), iter(range(100, 106))], batch=2, steps=4)
    assert [len(x) for x, _ in stream] == [4, 1] and stream.left_over == 1 and stream.position == 5
    assert list(stream) == []
    stream = mb.stream_batches(iter(range(6)), batch=1, steps=2)
    assert lists(stream) == [([[0], [1]], [[1], [2]]), ([[2], [3]], [[3], [4]]), ([[4]], [[5]])]
    assert stream.left_over == 0
    for nothing in (iter([]), iter([7])):
        with pytest.raises(ValueError, match="ended before it gave one step and its target"):
            next(mb.stream_batches(nothing, batch=1, steps=2))


def test_a_position_is_held_and_a_new_stream_goes_on_from_it():
    tokens = np.arange(50)
    sources = {
        "array": lambda: tokens,
        "rows": lambda: [iter(range(0, 17)), iter(range(16, 33)), iter(range(32, 49))],
        "steps": lambda: iter(np.stack([tokens[0:17], tokens[16:33], tokens[32:49]], axis=1)),
    }
    for source in sources.values():
        whole = lists(mb.stream_batches(source(), batch=3, steps=5))
        for windows in range(len(whole) + 1):
            stream = mb.stream_batches(source(), batch=3, steps=5)
            first = lists(itertools.islice(stream, windows))
            resumed = mb.stream_batches(source(), batch=3, steps=5, start=stream.position)
            assert resumed.position == stream.position == min(5 * windows, 16)
            assert first + lists(resumed) == whole == first + lists(stream)
    stream = mb.stream_batches(tokens, batch=3, steps=5)
    assert lists(stream) == lists(stream.seek(0)) and lists(stream) == []
    assert len(next(stream.seek(3))[0]) == 5 and stream.position == 8


def test_a_checkpoint_keeps_the_position_and_refuses_another_layout(tmp_path):
    make = lambda N=26, batch=3: mb.stream_batches(np.arange(N), batch=batch, steps=3)  # noqa: E731
    stream = make()
    next(stream)
    mb.save(tmp_path / "c.npz", stream=stream)
    again = make()
    mb.load(tmp_path / "c.npz", stream=again)
    assert again.position == 3 and np.array_equal(next(again)[0], next(stream)[0])
    for other, words in [(make(batch=2), "has 2 rows, .* has 3"), (make(20), "has 6 steps in a row, .* has 8")]:
        with pytest.raises(mb.CheckpointError, match=words):
            mb.load(tmp_path / "c.npz", stream=other)
        assert other.position == 0


def test_a_stream_may_live_on_a_device(xp):
    x, y = next(mb.stream_batches(xp.asarray(np.arange(14.0).reshape(7, 2)), batch=2, steps=2))
    assert type(x) is type(y) is xp.ndarray and mb.to_numpy(y).tolist() == [[[2, 3], [8, 9]], [[4, 5], [10, 11]]]
    steps = (xp.asarray(np.full((2, 1), t)) for t in range(4))
    x, y = next(mb.stream_batches(steps, batch=2, steps=2))
    assert type(x) is xp.ndarray and mb.to_numpy(y).ravel().tolist() == [1, 1, 2, 2]
    assert type(next(mb.stream_batches([1, 2, 3], batch=1, steps=2))[0]) is np.ndarray  # ids are checked on the host


tokens = np.arange(10)


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda: mb.stream_batches(tokens, batch=0, steps=2), ValueError, "batch must be at least 1"),
        (lambda: mb.stream_batches(tokens, batch=2, steps=1.5), TypeError, "steps must be a whole number"),
        (lambda: mb.stream_batches([], batch=1, steps=2), ValueError, "a stream of 0 is too short"),
        (lambda: mb.stream_batches(np.array(3), batch=1, steps=2), TypeError, r"\(N,\) or \(N, D\)"),
        (lambda: mb.stream_batches(["a", "b"], batch=1, steps=2), TypeError, "must be numbers"),
        (lambda: mb.stream_batches(3, batch=1, steps=2), TypeError, "found int"),
        (
            lambda: mb.stream_batches(tokens, targets=tokens[1:], batch=1, steps=2),
            ValueError,
            "10 steps must have as many targets, found",
        ),
        (lambda: mb.stream_batches(endless(), targets=tokens, batch=1, steps=2), TypeError, "goes with an array"),
        (lambda: mb.stream_batches([endless()], batch=2, steps=2), ValueError, "1 iterator for batch=2:"),
        (lambda: next(mb.stream_batches(endless(), batch=2, steps=2)), ValueError, "Give batch=1, a list of iterators"),
        (lambda: next(mb.stream_batches(iter([tokens]), batch=2, steps=2)), ValueError, r"\(2,\), found \(10,\)"),
        (lambda: next(mb.stream_batches(iter("ab"), batch=1, steps=2)), TypeError, "must be numbers"),
        (lambda: mb.stream_batches(tokens, batch=3, steps=2, start=4), ValueError, "from 0 to 3, .*found 4"),
        (lambda: mb.stream_batches(tokens, batch=3, steps=2).seek(-1), ValueError, "found -1"),
        (lambda: mb.stream_batches(tokens, batch=3, steps=2).seek(1.0), TypeError, "a whole number of steps"),
        (lambda: mb.stream_batches(endless(), batch=1, steps=2, start=5).seek(3), ValueError, "does not go back"),
        (lambda: mb.stream_batches(iter(tokens), batch=1, steps=2, start=10), ValueError, "ended at step 9, before 10"),
    ],
)
def test_mistakes_are_named(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_training_goes_on_from_window_to_window_with_the_numbers_of_the_whole_rows():
    text = np.arange(41) * 7 % 5
    model = mb.Sequential(mb.Embedding(5, 3, rng=0), mb.LSTM(3, 4, rng=1, dtype=np.float32), mb.Linear(4, 5, rng=2))
    rows = text[:40].reshape(2, 20).T
    whole, _ = model(rows)
    state, parts = model.zero_state(2), []
    for x, y in mb.stream_batches(text, batch=2, steps=6):
        logits, state = model(x, mb.cut(state))
        assert logits.shape[:2] == y.shape
        parts.append(logits.value)
    np.testing.assert_allclose(np.concatenate(parts), whole.value, rtol=0, atol=1e-6)


def test_a_stream_that_gives_no_windows_cannot_be_made():
    class Silent(mb.streams.Stream):
        def seek(self, position):
            return self

    with pytest.raises(TypeError, match=r"abstract.*__next__"):
        Silent()


def test_a_stream_that_never_ends_needs_no_seek_and_says_so_where_it_is_asked():
    class Noise(mb.streams.Stream):
        batch, steps, position, length, left_over = 2, 3, 0, None, None

        def __next__(self):
            self.position += self.steps
            tokens = np.random.default_rng(self.position).integers(0, 4, (self.steps + 1, self.batch))
            return tokens[:-1], tokens[1:]

    stream = Noise()
    model = mb.Sequential(mb.Embedding(4, 3, rng=0), mb.RNN(3, 3, rng=0), mb.Linear(3, 4, rng=0))
    run = mb.train(model, stream, mb.cross_entropy, mb.full(), mb.SGD(model, lr=0.1), updates=4, progress=False)
    assert run.updates == 4 and stream.position == 12
    with pytest.raises(TypeError, match=r"Noise cannot go to a position: give it a method seek\(position\)"):
        stream.restore(stream.state())
