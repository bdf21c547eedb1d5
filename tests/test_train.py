"""Training on a stream: the same as the loop written out, stopped and resumed to the bit, and flat in memory."""

import gc
import importlib.util
import io
import signal
import subprocess
import sys
import threading
import tracemalloc
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import strict_cupy

import minibptt as mb
from minibptt import progress as progress_module
from minibptt.progress import Progress, duration

ROOT = Path(__file__).parent.parent
TOKENS = np.random.default_rng(0).integers(0, 5, 3 * 37 + 1)  # three rows of 37 steps: 7 windows of 5 and one of 2
SCHEDULES = [mb.full(), mb.tbptt(2, 4), mb.artbp(0.3)]
quiet = partial(mb.train, progress=False)


def model_of(seed=0, dropout=0.3, dtype=None):
    return mb.Sequential(
        mb.Embedding(5, 4, rng=seed, dtype=dtype),
        mb.LSTM(4, 6, layers=2, dropout=dropout, rng=seed + 1, dtype=dtype),
        mb.Linear(6, 5, rng=seed + 2, dtype=dtype),
    )


def new(seed=0, **options):
    """(model, stream, loss) of a training."""
    return model_of(seed, **options), mb.stream_batches(TOKENS, batch=3, steps=5), mb.cross_entropy


def weights(model):
    return {name: p.value.copy() for name, p in model.named_parameters()}


def same(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


# --- what it does ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", [mb.full(), mb.tbptt(2), mb.tbptt(2, 4)])
def test_training_is_the_loop_written_out(schedule):
    model, stream, loss = new()
    optimiser = mb.Adam(model, lr=1e-2)
    result = quiet(model, stream, loss, schedule, optimiser, updates=30, clip=0.5)
    expected, state, done = model_of(), None, 0
    by_hand = mb.Adam(expected, lr=1e-2)
    length = len(TOKENS) // 3
    rows = TOKENS[: 3 * length].reshape(3, length).T
    ahead = TOKENS[1 : 3 * length + 1].reshape(3, length).T
    passes = -1
    while done < 30:
        passes, state = passes + 1, None
        for a in range(0, length, 5):
            x, y = rows[a : a + 5], ahead[a : a + 5]
            run = mb.updates(expected, x, y, mb.cross_entropy, schedule, state=state)
            for _, gradients in run:
                by_hand.step(mb.clip_by_global_norm(gradients, 0.5))
                done += 1
            state = run.state
            if done >= 30:
                break
    assert (result.updates, result.passes, result.stopped) == (done, passes, False)
    assert same(weights(model), weights(expected)) and optimiser.t == done
    assert all(np.array_equal(a.value, b.value) for (a, b) in zip(result.state[0][1], state[0][1]))


def test_the_losses_are_means_over_the_steps_since_the_last_one():
    # At a rate that moves nothing a float32 could show, each loss is that of the untrained model.
    model, stream, loss = new(dropout=0.0, dtype=np.float64)
    x = TOKENS[: 3 * 37].reshape(3, 37).T
    y = TOKENS[1 : 3 * 37 + 1].reshape(3, 37).T
    outputs, _ = model(x)
    each = [mb.cross_entropy(outputs[t : t + 1], y[t : t + 1]).item() for t in range(37)]
    sgd = mb.SGD(model, lr=1e-300)
    result = quiet(model, stream, loss, mb.full(), sgd, updates=8, read_every=3)
    expected = [(3, np.mean(each[:15])), (6, np.mean(each[15:30])), (8, np.mean(each[30:]))]
    np.testing.assert_allclose(result.losses, expected, rtol=1e-12)
    assert result.loss == result.losses[-1, 1]
    # Chunks of a window, a loss of the whole window, and windows of which a part is never reached.
    whole = lambda outputs, y: mb.cross_entropy(outputs, y)  # noqa: E731
    for loss, schedule in [(mb.cross_entropy, mb.tbptt(2)), (whole, mb.tbptt(2))]:
        result = quiet(model, stream.seek(0), loss, schedule, sgd, updates=22, read_every=1000)
        np.testing.assert_allclose(result.losses, [(22, np.mean(each))], rtol=1e-12)
    result = quiet(model, stream.seek(0), mb.cross_entropy, mb.tbptt(5, 2), sgd, updates=1)
    np.testing.assert_allclose(result.losses, [(1, np.mean(each[3:5]))], rtol=1e-12)


def test_dropout_is_on_while_it_trains_and_as_it_was_afterwards():
    one, two = new()[0], new()[0].eval()
    for model in (one, two):
        quiet(model, *new()[1:], mb.full(), mb.Adam(model), updates=3)
    assert same(weights(one), weights(two)) and not two.training and one.training
    plain = new(dropout=0.0)
    quiet(*plain, mb.full(), mb.Adam(plain[0]), updates=3)
    assert not same(weights(one), weights(plain[0]))


def test_an_iterator_that_ends_ends_the_training():
    model = model_of()
    stream = mb.stream_batches(iter(TOKENS[:36].reshape(12, 3)), batch=3, steps=5)
    result = quiet(model, stream, mb.cross_entropy, mb.full(), mb.Adam(model), updates=10)
    assert (result.updates, result.passes, result.stopped) == (3, 0, False) and stream.position == 11


def test_a_model_without_a_state_can_be_trained_too():
    x = np.random.default_rng(0).standard_normal((40, 2))
    model = mb.Sequential(mb.Linear(2, 1, rng=0, dtype=np.float64))
    stream = mb.stream_batches(x, batch=4, steps=5, targets=x @ np.array([[2.0], [-1.0]]) + 3)
    result = quiet(model, stream, mb.mse, mb.full(), mb.Adam(model, lr=0.1), updates=400)
    np.testing.assert_allclose(model[0].W.value, [[2], [-1]], atol=1e-2)
    assert result.loss < 1e-3 and result.state == ()


def test_what_cannot_be_trained_says_so(tmp_path):
    model, stream, loss = new()
    adam = mb.Adam(model)
    with pytest.raises(TypeError, match=r"train takes a stream.*found list"):
        quiet(model, [(1, 2)], loss, mb.full(), adam, updates=1)
    for wrong in ({"updates": 0}, {"updates": 1, "read_every": 0}, {"updates": 1, "every": 0}):
        with pytest.raises(ValueError, match="must be at least 1"):
            quiet(model, stream, loss, mb.full(), adam, **wrong)
    with pytest.raises(TypeError, match="schedules are made by"):
        quiet(model, stream, loss, 4, adam, updates=1)
    with pytest.raises(ValueError, match="makes no update in 5 steps"):
        quiet(model, stream.seek(0), loss, np.zeros((5, 5)), adam, updates=1)
    with pytest.raises(mb.CheckpointError, match="there is no folder"):
        quiet(model, stream, loss, mb.full(), adam, updates=1, save=tmp_path / "absent" / "c.npz")
    with pytest.raises(mb.CheckpointError, match="there is no checkpoint"):
        quiet(model, stream, loss, mb.full(), adam, updates=1, resume=tmp_path / "absent.npz")
    before, stream = weights(model), stream.seek(0)
    with pytest.raises(mb.CheckpointError, match="it is a folder"):
        quiet(model, stream, loss, mb.full(), adam, updates=1, save=tmp_path)
    for about in (object(), {"what": print}, [1, {2}]):  # before the first step, with a file to save to or none
        for options in ({}, {"save": tmp_path / "c.npz"}):
            with pytest.raises(
                TypeError, match=r"save: about\S* is (object|builtin_function_or_method|set)\. A part is"
            ):
                quiet(model, stream, loss, mb.full(), adam, updates=1, about=about, **options)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TypeError, match="train: clip must be a number, found 'x'"):
        quiet(model, stream, loss, mb.full(), adam, updates=1, clip="x")
    for name in ("save", "resume"):
        for wrong in (3, b"c.npz"):
            with pytest.raises(TypeError, match=f"train: {name} must be the name of a file, found {wrong!r}"):
                quiet(model, stream, loss, mb.full(), adam, updates=1, **{name: wrong})
    for wrong in ("yes", 1, None):
        with pytest.raises(TypeError, match=f"progress must be True, False or a Progress, found {wrong!r}"):
            mb.train(model, stream, loss, mb.full(), adam, updates=1, progress=wrong)
    with pytest.raises(TypeError, match=r"takes an optimiser.*found NoneType"):
        quiet(model, stream, loss, mb.full(), None, updates=1)
    assert same(weights(model), before) and stream.position == 0


def test_an_optimiser_of_another_model_with_the_same_names_is_refused_and_moves_neither():
    model, stream, loss = new()
    other = model_of(seed=7)
    before = weights(model), weights(other)
    with pytest.raises(ValueError, match="Adam was made for another model"):
        quiet(model, stream, loss, mb.full(), mb.Adam(other), updates=1)
    assert same(weights(model), before[0]) and same(weights(other), before[1])


def test_no_window_waits_for_the_device(xp):
    model, stream, loss = new()
    adam = mb.Adam(model)
    quiet(model, stream, loss, mb.tbptt(2, 4), adam, updates=3)
    if xp is strict_cupy.xp:
        found = []
        for updates in (3, 60):
            strict_cupy.counter.reset()
            quiet(model, stream, loss, mb.tbptt(2, 4), adam, updates=updates, read_every=1000)
            found.append((strict_cupy.counter.syncs, strict_cupy.counter.to_host))
        assert found[0] == found[1] and found[0][1] < 5  # only the end reads, however many updates there were


# --- stopped and resumed -----------------------------------------------------------------------------------------


class Stopping:
    """Cross-entropy that raises a signal, as Ctrl-C does, when it is asked for the n-th time."""

    def __init__(self, n, number=signal.SIGINT):
        self.n, self.number = n, number

    def __call__(self, outputs, y, count=None):
        self.n -= 1
        if not self.n:
            signal.raise_signal(self.number)
        return mb.cross_entropy(outputs, y, count=count)


UPDATES, EVERY = 60, 7


@pytest.fixture(scope="module")
def straight():
    """By the number of the schedule: (weights, losses) of a training that was never stopped."""
    found = []
    for schedule in SCHEDULES:
        model, stream, loss = new()
        result = quiet(model, stream, loss, schedule, mb.Adam(model, lr=1e-2), updates=UPDATES, rng=3, read_every=10)
        found.append((weights(model), result.losses))
    return found


STOPS = np.random.default_rng(1).choice(np.arange(1, UPDATES), 50, replace=False).tolist()


@pytest.mark.parametrize("n", STOPS)
def test_resumed_after_a_stop_at_any_update_it_ends_in_the_same_bits(n, straight, tmp_path):
    schedule, (expected, losses) = SCHEDULES[n % 3], straight[n % 3]
    model, stream, _ = new()
    options = {"updates": UPDATES, "save": tmp_path / "c.npz", "every": EVERY, "read_every": 10}
    first = quiet(model, stream, Stopping(n), schedule, mb.Adam(model, lr=1e-2), rng=3, **options)
    assert n <= first.updates
    assert first.stopped == (first.updates < UPDATES)
    # Everything anew, and as unlike as it can be: what is not in the file is lost.
    again, stream, loss = new(seed=50)
    next(stream)
    adam = mb.Adam(again, lr=0.5, betas=(0.5, 0.5))
    second = quiet(again, stream, loss, schedule, adam, rng=99, resume=tmp_path / "c.npz", **options)
    assert same(weights(again), expected)
    np.testing.assert_array_equal(second.losses, losses)
    assert [p.name for p in tmp_path.iterdir()] == ["c.npz"]


def test_a_killed_training_goes_on_from_the_last_checkpoint_to_the_same_bits(straight, tmp_path):
    def dying(outputs, y, count=None):
        dying.n -= 1
        if not dying.n:
            raise MemoryError
        return mb.cross_entropy(outputs, y, count=count)

    dying.n = 33
    model, stream, loss = new()
    options = {"updates": UPDATES, "save": tmp_path / "c.npz", "every": EVERY, "rng": 3, "read_every": 10}
    with pytest.raises(MemoryError):
        quiet(model, stream, dying, mb.full(), mb.Adam(model, lr=1e-2), **options)
    again, stream, _ = new(seed=9)
    adam = mb.Adam(again)
    assert mb.load(tmp_path / "c.npz")["training"]["updates"] == 28
    quiet(again, stream, loss, mb.full(), adam, resume=tmp_path / "c.npz", **options)
    assert same(weights(again), straight[0][0])


def test_a_second_ctrl_c_stops_at_once_and_the_handlers_are_put_back(tmp_path):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)

    def twice(outputs, y, count=None):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        return mb.cross_entropy(outputs, y, count=count)

    model, stream, _ = new()
    with pytest.raises(KeyboardInterrupt):
        quiet(model, stream, twice, mb.full(), mb.Adam(model), updates=9, save=tmp_path / "c.npz")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert not list(tmp_path.iterdir())


def test_sigterm_saves_and_then_does_what_it_always_does(tmp_path):
    seen = []
    before = signal.signal(signal.SIGTERM, lambda *_: seen.append((tmp_path / "c.npz").exists()))
    try:
        model, stream, _ = new()
        loss = Stopping(4, signal.SIGTERM)
        result = quiet(model, stream, loss, mb.full(), mb.Adam(model), updates=9, save=tmp_path / "c.npz")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [True] and result.updates == 4 and result.stopped


def test_a_process_that_ignores_ctrl_c_goes_on_doing_so():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        model, stream, _ = new()
        result = quiet(model, stream, Stopping(4), mb.full(), mb.Adam(model), updates=9)
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.updates == 9 and not result.stopped


def test_in_another_thread_it_trains_without_signals():
    model, stream, loss = new()
    done = []
    work = lambda: done.append(quiet(model, stream, loss, mb.full(), mb.Adam(model), updates=3).updates)  # noqa: E731
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [3]


def test_ctrl_c_says_how_to_go_on(tmp_path, capsys):
    for save, words in [(tmp_path / "c.npz", "resume='"), (None, "no checkpoint without save=")]:
        model, stream, _ = new()
        result = mb.train(model, stream, Stopping(2), mb.full(), mb.Adam(model), updates=9, save=save)
        said = capsys.readouterr().err
        assert result.stopped and "stopped after 2 of 9 updates; to go on: " in said and words in said
    # The state of the answer is enough to go on in the same process.
    straight = new()
    quiet(*straight, mb.full(), mb.Adam(straight[0]), updates=9)
    model, stream, loss = new()
    adam = mb.Adam(model)
    first = quiet(model, stream, Stopping(2), mb.full(), adam, updates=9)
    quiet(model, stream, loss, mb.full(), adam, updates=7, state=first.state)
    assert same(weights(model), weights(straight[0]))


def test_a_checkpoint_of_another_stream_or_model_is_refused_and_nothing_has_changed(tmp_path):
    model, stream, loss = new()
    quiet(model, stream, loss, mb.full(), mb.Adam(model), updates=3, save=tmp_path / "c.npz")
    others = {
        "2 rows, that of the checkpoint has 3": mb.stream_batches(TOKENS, batch=2, steps=5),
        "30 steps in a row, that of the checkpoint has 37": mb.stream_batches(TOKENS[:91], batch=3, steps=5),
    }
    for words, stream in others.items():
        fresh = model_of(7)
        before = weights(fresh)
        with pytest.raises(mb.CheckpointError, match=words):
            quiet(fresh, stream, loss, mb.full(), mb.Adam(fresh), updates=5, resume=tmp_path / "c.npz")
        assert same(weights(fresh), before) and stream.position == 0
    fresh, stream, loss = new(7)
    with pytest.raises(mb.CheckpointError, match="missing: optimiser momentum"):
        quiet(fresh, stream, loss, mb.full(), mb.SGD(fresh, 0.1, 0.9), updates=5, resume=tmp_path / "c.npz")
    mb.save(tmp_path / "other.npz", model)
    with pytest.raises(mb.CheckpointError, match=r"missing: (optimiser|rng|stream|training)"):
        quiet(fresh, stream, loss, mb.full(), mb.Adam(fresh), updates=5, resume=tmp_path / "other.npz")


def test_a_checkpoint_comes_back_on_the_device(xp, tmp_path):
    model, stream, loss = new()
    straight, stream2, _ = new()
    quiet(straight, stream2, loss, mb.full(), mb.Adam(straight), updates=9)
    quiet(model, stream, loss, mb.full(), mb.Adam(model), updates=4, save=tmp_path / "c.npz")
    again, stream, loss = new(seed=5)
    result = quiet(again, stream, loss, mb.full(), mb.Adam(again), updates=9, resume=tmp_path / "c.npz")
    for name, p in again.named_parameters():
        assert type(p.value) is type(straight.parameters()[name].value)
        assert np.array_equal(mb.to_numpy(p), mb.to_numpy(straight.parameters()[name]))
    assert type(result.state[0][0][0].value) is type(p.value)


def test_about_and_losses_are_in_the_checkpoint(tmp_path):
    model, stream, loss = new()
    about = {"name": "a text", "tbptt": (2, 4)}
    result = quiet(
        model, stream, loss, mb.full(), mb.Adam(model), updates=4, save=tmp_path / "c.npz", about=about, read_every=2
    )
    rest = mb.load(tmp_path / "c.npz")
    assert rest["about"] == about and rest["training"]["losses"] == [tuple(row) for row in result.losses.tolist()]


# --- what is not finite ------------------------------------------------------------------------------------------


class Poisoned(Stopping):
    """Cross-entropy of outputs that are infinite, once, when it is asked for the n-th time."""

    def __call__(self, outputs, y, count=None):
        self.n -= 1
        return mb.cross_entropy(outputs * (np.inf if not self.n else 1.0), y, count=count)


def test_a_gradient_that_is_not_finite_is_reported_with_its_update_when_the_loss_is_read(xp, tmp_path):
    model, stream, _ = new()
    loss = Poisoned(13)
    options = {"updates": 40, "read_every": 10, "save": tmp_path / "c.npz", "every": 6}
    with pytest.raises(
        ValueError, match=r"update 13: the gradient of 0\.W is not finite \(nor are those of 8 others\)"
    ):
        quiet(model, stream, loss, mb.full(), mb.Adam(model), **options)
    assert loss.n == 13 - 18  # at the checkpoint that was due after 18 updates
    assert mb.load(tmp_path / "c.npz")["training"]["updates"] == 12  # the last good one
    assert all(np.isfinite(mb.to_numpy(p)).all() for _, p in model.named_parameters())


# --- memory ------------------------------------------------------------------------------------------------------


def load_benchmark(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


memory = load_benchmark("memory")
MEMORY = """
import sys
sys.path.insert(0, "benchmarks")
import memory
print(memory.growth(memory.readings(100_000, memory.resident)))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the resident memory is not in /proc here")
def test_memory_is_flat_over_100_000_time_steps():
    # In a process of its own, so that nothing else comes and goes. 5,000 windows of 20 steps; 4,500 after the first
    # tenth: what each left behind, 120 bytes or more, would show.
    result = subprocess.run([sys.executable, "-c", MEMORY], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(result.stdout) < 2**19


def test_nothing_that_a_window_made_is_left_behind():
    # What Python and NumPy hold after some 60 of 300 windows and at the end. CPython keeps some freed tuples itself.
    gc.collect()
    tracemalloc.start()
    try:
        found = memory.readings(100 * memory.K * 3, memory.traced)
    finally:
        tracemalloc.stop()
    assert memory.growth(found) < 300 * 200  # a window's outputs alone have 32,000 bytes


def test_growth_is_from_the_second_tenth_to_the_last():
    found = [(i, 1000 if i < 10 else 5000 if i == 50 else 100 + i) for i in range(100)]
    assert memory.growth(found) == 80


# --- the progress line -------------------------------------------------------------------------------------------


class Screen(io.StringIO):
    def isatty(self):
        return True


def ticking(monkeypatch, stream, *, ends=40, columns="200", **options):
    """What a progress line writes over so many seconds, one update each."""
    now = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    monkeypatch.setenv("COLUMNS", columns)
    line = Progress("training", 100, stream, **options)
    for done in range(1, ends + 1):
        now[0] += 1.0
        line(done, note=lambda seconds, done=done: f"{done * 10 / seconds:.0f} tokens/s")
    return line


def test_a_note_may_be_worked_out_only_when_it_is_shown(monkeypatch):
    stream = io.StringIO()
    ticking(monkeypatch, stream, unit="updates")
    assert stream.getvalue().splitlines() == [
        f"training: {n} of 100 updates, 10 tokens/s, about {100 - n} s left" for n in (2, 12, 22, 32)
    ]


def test_a_line_is_never_longer_than_the_terminal(monkeypatch):
    stream = Screen()
    ticking(monkeypatch, stream, columns="30").end()
    lines = stream.getvalue().split("\r")
    assert max(map(len, lines)) == 29 and lines[-1] == "" and not lines[-2].strip()


def test_what_was_done_before_does_not_count_as_speed(monkeypatch):
    stream = io.StringIO()
    now = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    line = Progress("training", 100, stream)
    line.before = 90
    now[0] = 4.0
    line(92)
    assert stream.getvalue() == "training: 92 of 100, about 16 s left\n"


def test_a_reader_who_has_gone_does_not_end_the_work(monkeypatch):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    closed, later = io.StringIO(), io.StringIO()
    closed.close()
    for stream in (Closed(), closed):
        ticking(monkeypatch, stream).say("done")
    line = ticking(monkeypatch, later)
    later.close()
    line.say("done")
    monkeypatch.setattr(sys, "stderr", None)
    ticking(monkeypatch, None).say("done")


def test_in_a_notebook_one_output_is_rewritten(monkeypatch):
    shown = []

    class Handle:
        def update(self, data, raw):
            shown.append(("update", data["text/plain"]))

    def display(data, raw, display_id):
        shown.append(("new", data["text/plain"]))
        return Handle()

    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    ticking(monkeypatch, None).end()
    assert [kind for kind, _ in shown] == ["new"] + ["update"] * 38
    assert shown[-1][1] == "training: 40 of 100, 10 tokens/s, about 60 s left" and sys.stderr.getvalue() == ""
    # In IPython's terminal there is no kernel, and the stream is what it always is.
    del shell.kernel
    ticking(monkeypatch, None)
    assert "training: 12 of 100" in sys.stderr.getvalue()


def test_times_are_said_in_words():
    found = [duration(s) for s in (0.4, 119, 121, 3600, 2 * 3600, 7259, 3 * 3600 + 300, 3 * 86400)]
    assert found == ["0 s", "119 s", "2 min", "60 min", "2 h 00 min", "2 h 01 min", "3 h 05 min", "3 days"]


def test_the_line_has_updates_loss_speed_and_time_left(monkeypatch):
    now = [0.0]

    def monotonic():
        now[0] += 0.5
        return now[0]

    monkeypatch.setattr(progress_module.time, "monotonic", monotonic)
    stream = io.StringIO()
    line = Progress("training", 8, stream, unit="updates")
    model, batches, loss = new()
    result = mb.train(model, batches, loss, mb.full(), mb.Adam(model), updates=8, read_every=2, progress=line)
    # The clock ticks half a second at each look: after the fourth window 2.0 s have gone by since the line was made.
    assert stream.getvalue() == (
        f"training: 4 of 8 updates, loss {result.losses[1, 1]:.3f}, {4 * 5 * 3 / 2:.0f} tokens/s, about 2 s left\n"
    )
