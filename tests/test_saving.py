"""Checkpoints: what comes back, what is refused, and what a kill or a damaged file can do."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import minibptt as mb
from minibptt import archive, data, timings
from minibptt.backend import library_of
from minibptt.timings import Benchmark

KILLS = int(os.environ.get("MINIBPTT_KILLS", "40"))  # 200 before a release


class Momentum:
    """A stand-in for an optimiser: `state()` and `restore()`."""

    def __init__(self, model, t=0):
        self.lr, self.t = 0.1, t
        self.m = {name: p.value * 0 + t for name, p in model.named_parameters()}

    def state(self):
        return {"lr": self.lr, "t": self.t, **{f"m/{name}": m for name, m in self.m.items()}}

    def restore(self, state):
        self.lr, self.t = state["lr"], state["t"]
        self.m = {name: state[f"m/{name}"] for name in self.m}


def small(seed=0, H=3, **options):
    return mb.Sequential(mb.Embedding(5, 2, rng=seed), mb.LSTM(2, H, rng=seed, **options), mb.Linear(H, 5, rng=seed))


def numbers(model):
    return {name: mb.to_numpy(p) for name, p in model.named_parameters()}


def same(a, b):
    assert a.keys() == b.keys()
    return all(a[k].tobytes() == b[k].tobytes() and a[k].dtype == b[k].dtype for k in a)


def test_weights_optimiser_state_generator_and_position_come_back_to_the_bit(tmp_path, xp):
    model, rng = small(), np.random.default_rng(3)
    _, state = model(np.array([[0, 1], [2, 3]]))
    rng.random(5)
    mb.save(tmp_path / "c.npz", model, optimiser=Momentum(model, 7), state=state, rng=rng, position=12, lr=0.1 + 0.2)
    later, other, fresh = rng.random(4), np.random.default_rng(99), small(1)
    optimiser = Momentum(fresh)
    rest = mb.load(tmp_path / "c.npz", fresh, optimiser=optimiser, rng=other)
    assert same(numbers(model), numbers(fresh)) and optimiser.t == 7 and np.array_equal(other.random(4), later)
    assert all(library_of(m) is xp and (mb.to_numpy(m) == 7).all() for m in optimiser.m.values())
    assert set(rest) == {"state", "position", "lr"} and (rest["position"], rest["lr"]) == (12, 0.1 + 0.2)
    ((h, c),), ((h_new, c_new),) = state[0], rest["state"][0]
    assert type(rest["state"]) is tuple and library_of(h_new.value) is xp
    for old, new in ((h, h_new), (c, c_new)):
        assert mb.to_numpy(old).tobytes() == mb.to_numpy(new).tobytes() and new.weak == old.weak
    fresh(np.array([[1, 1]]), rest["state"])  # and it is a state


def test_a_run_goes_on_to_the_bit_with_its_dropout(tmp_path):
    x = np.random.default_rng(0).integers(0, 5, (6, 2))

    def go(model, steps):
        losses = []
        for _ in range(steps):
            with mb.Tape() as tape:
                loss = mb.cross_entropy(model(x)[0], x)
            for name, g in tape.gradient(loss, model).items():
                p = model.parameters()[name]
                mb.assign(p, p.value - g)
            losses.append(loss.item())
        return losses

    model = small(layers=2, dropout=0.5)
    go(model, 2)
    mb.save(tmp_path / "c.npz", model)
    expected, other = go(model, 3), small(5, layers=2, dropout=0.5)
    mb.load(tmp_path / "c.npz", other)
    assert go(other, 3) == expected and same(numbers(model), numbers(other))
    mb.load(tmp_path / "c.npz", other)
    other[1].dropouts[0].rng.random()
    assert go(other, 3) != expected  # the masks do matter


NESTS = {
    "numbers": [1, -(2**200), 1e-310, float("inf"), True, None, "é✂\ud800\0"],
    "forms": {"a": (1, [2, ()], {}), 3: "three", (1, "x"): None, "1": [], 1: {}},
    "arrays": [np.arange(6).reshape(2, 3).T, np.array(2.5), np.zeros((0, 3), np.float16), np.array(["ab", "c"])],
    "scalars": [np.float32(0.1), np.int8(-3), np.bool_(True), np.complex64(1 + 2j)],
    "keys": {"../x": np.ones(1), "a/b": np.ones(2), "a.b": np.ones(3), "\0": np.ones(4), "é" * 300: np.ones(5)},
}


def equal(a, b):
    if isinstance(a, np.ndarray | np.generic):
        return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("name", NESTS)
def test_nestings_come_back_as_they_were(name, tmp_path):
    mb.save(tmp_path / "c", part=NESTS[name])
    assert equal(NESTS[name], mb.load(tmp_path / "c")["part"])


@pytest.mark.parametrize("kind", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
def test_every_generator_of_numpy_goes_on_where_it_was(kind, tmp_path):
    rng = np.random.Generator(getattr(np.random, kind)(5))
    rng.integers(0, 9, 3, dtype=np.uint8)  # leaves a half-used word behind
    mb.save(tmp_path / "c", rng=rng, several=[rng])
    rest = mb.load(tmp_path / "c")
    expected = rng.integers(0, 2**32, 700, dtype=np.uint32)
    for found in (rest["rng"], rest["several"][0]):
        assert np.array_equal(found.integers(0, 2**32, 700, dtype=np.uint32), expected)


class Weird:
    pass


@pytest.mark.parametrize(
    "part, words",
    [
        (Weird(), "part is Weird"),
        ([1, {"x": {2}}], "part.1.x is set"),
        (np.array([None]), "array of object"),
        ([mb.parameter([1.0])], "saved with their module"),
        ([np.random.RandomState(0)], "RandomState"),
        (lambda: 0, "function"),
        (1j, "complex"),
    ],
)
def test_what_cannot_be_saved_is_named_and_the_old_checkpoint_stays(part, words, tmp_path):
    mb.save(tmp_path / "c", part=1)
    with pytest.raises(TypeError, match=words):
        mb.save(tmp_path / "c", part=part)
    assert mb.load(tmp_path / "c") == {"part": 1} and os.listdir(tmp_path) == ["c"]


def test_plain_numpy_and_sha256sum_can_read_it(tmp_path):
    model = small()
    mb.save(tmp_path / "c.npz", model, position=3)
    with np.load(tmp_path / "c.npz", allow_pickle=False) as file:
        assert np.array_equal(file["model/1.0.W_x"], model[1].cells[0].W_x.value)
        assert json.loads(file["header.json"])["version"] == archive.VERSION
    if tool := shutil.which("sha256sum"):
        with zipfile.ZipFile(tmp_path / "c.npz") as file:
            file.extractall(tmp_path / "out")
        subprocess.run([tool, "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path / "out", check=True)


def test_equal_content_makes_an_equal_file(tmp_path):
    for name in "ab":
        mb.save(tmp_path / name, small(), rng=np.random.default_rng(1))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_all_that_does_not_fit_is_listed_and_nothing_has_changed(tmp_path):
    model = small()
    mb.save(tmp_path / "c", model, optimiser=Momentum(model), rng=np.random.default_rng(1))
    other = mb.Sequential(
        mb.Embedding(6, 2, rng=1), mb.LSTM(2, 3, rng=1, dtype=np.float64), mb.Dropout(0.1), mb.Linear(3, 5, rng=1)
    )
    optimiser, rng = Momentum(other, 4), np.random.Generator(np.random.MT19937(1))
    before, drawn = numbers(other), rng.bit_generator.state["state"]["pos"]
    with pytest.raises(mb.CheckpointError) as error:
        mb.load(tmp_path / "c", other, optimiser=optimiser, rng=rng, stream=rng)
    for line in (
        "missing: stream",
        "missing: model 3.W, (3, 5) float32",
        "missing: model 2.rng, a PCG64 generator",
        "unexpected: model 2.W, (3, 5) float32",
        "different: model 0.W is (5, 2) float32, expected (6, 2) float32",
        "different: model 1.0.b is (12,) float32, expected (12,) float64",
        "unexpected: optimiser m/2.b, (5,) float32",
        "different: rng is a PCG64 generator, expected a MT19937 generator",
    ):
        assert f"\n  {line}\n" in f"{error.value}\n", line
    assert same(before, numbers(other)) and optimiser.t == 4 and rng.bit_generator.state["state"]["pos"] == drawn


def test_an_optimiser_that_refuses_leaves_the_weights_as_they_were(tmp_path):
    class Strict(Momentum):
        def restore(self, state):
            raise ValueError("not mine")

    model, other = small(), small(1)
    mb.save(tmp_path / "c", model, optimiser=Momentum(model))
    before = numbers(other)
    with pytest.raises(ValueError, match="not mine"):
        mb.load(tmp_path / "c", other, optimiser=Strict(other))
    assert same(before, numbers(other))


def test_a_module_that_is_not_asked_for_comes_back_as_its_arrays(tmp_path):
    model = small()
    mb.save(tmp_path / "c", model, teacher=mb.Linear(1, 2, rng=0))
    rest = mb.load(tmp_path / "c")
    assert same(rest["model"], numbers(model)) and set(rest["teacher"]) == {"W", "b"}
    with pytest.raises(TypeError, match=r"position is int.*in what load returns"):
        mb.load(tmp_path / "c", model, position=3)
    for call in (mb.save, mb.load):
        with pytest.raises(TypeError, match="must be a module, found dict"):
            call(tmp_path / "c", {})
        with pytest.raises(ValueError, match="named like a variable"):
            call(tmp_path / "c", **{"a/b": 1})


def test_a_file_that_is_none_of_ours_says_so(tmp_path):
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    (tmp_path / "text").write_text("hello", encoding="utf-8")
    (tmp_path / "empty").write_bytes(b"")
    with zipfile.ZipFile(tmp_path / "packed", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a", "a" * 99)
    for name in ("other.npz", "text", "empty", "packed"):
        with pytest.raises(mb.CheckpointError, match="damaged, or no checkpoint"):
            mb.load(tmp_path / name)
    with pytest.raises(mb.CheckpointError, match=r"there is no checkpoint .*absent"):
        mb.load(tmp_path / "absent")
    with pytest.raises(mb.CheckpointError, match="cannot be read"):
        mb.load(tmp_path)
    for nodes in ({"a": {"array": "gone"}}, {"a": {"nonsense": 1}}, {"a": {}}, [1], {"a": {"generator": 3}}):
        archive.write_archive(tmp_path / "odd", nodes, {})
        with pytest.raises(mb.CheckpointError, match="no checkpoint"):
            mb.load(tmp_path / "odd")


def test_a_version_from_the_future_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "VERSION", 7)
    mb.save(tmp_path / "c", a=1)
    monkeypatch.setattr(archive, "VERSION", 1)
    with pytest.raises(mb.CheckpointError, match=r"format version 7, from a later minibptt.*up to 1"):
        mb.load(tmp_path / "c")


def test_a_checkpoint_that_cannot_be_written_is_an_error_and_the_old_one_stays(tmp_path, monkeypatch):
    with pytest.raises(mb.CheckpointError, match="could not be written"):
        mb.save(tmp_path / "no folder" / "c", a=1)
    mb.save(tmp_path / "c", a=1)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archive.os, "fsync", full)
    with pytest.raises(mb.CheckpointError, match="No space left"):
        mb.save(tmp_path / "c", a=2)
    assert os.listdir(tmp_path) == ["c"]
    monkeypatch.undo()
    assert mb.load(tmp_path / "c") == {"a": 1}


def test_the_order_is_write_sync_replace_sync_the_folder(tmp_path, monkeypatch):
    calls = []
    real_sync, real_replace = os.fsync, os.replace

    def fsync(number):
        calls.append("folder" if os.path.isdir(f"/proc/self/fd/{number}") else "file")
        real_sync(number)

    def replace(a, b):
        with open(a, "rb") as file:
            archive._checked_entries(file)  # whole before it gets its name
        calls.append(f"{Path(a).name} to {Path(b).name}")
        real_replace(a, b)

    monkeypatch.setattr(archive.os, "fsync", fsync)
    monkeypatch.setattr(archive.os, "replace", replace)
    mb.save(tmp_path / "c.npz", a=np.ones(3))
    if os.path.isdir("/proc/self/fd"):
        assert calls == ["file", ".c.npz.tmp to c.npz", "folder"]


def test_a_link_keeps_leading_to_the_checkpoint(tmp_path):
    (tmp_path / "runs").mkdir()
    mb.save(tmp_path / "runs" / "c", a=1)
    try:
        (tmp_path / "last").symlink_to(tmp_path / "runs" / "c")
    except OSError:
        pytest.skip("this system has no symbolic links")
    mb.save(tmp_path / "last", a=2)
    assert (tmp_path / "last").is_symlink() and mb.load(tmp_path / "runs" / "c") == {"a": 2}


# --- damage ----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_file(tmp_path):
    """(its bytes, check): `check(data)` is True where the exact content is read and False where it is refused."""
    path = tmp_path / "c"
    content = {"a": np.arange(5.0), "b": [1, "x", (np.int8(3),)], "rng": np.random.default_rng(0)}
    mb.save(path, **content)
    expected = content["rng"].bit_generator.state

    def check(data):
        path.write_bytes(data)
        try:
            found = mb.load(path)
        except mb.CheckpointError:
            return False
        assert equal(content["a"], found["a"]) and equal(content["b"], found["b"])
        assert found.keys() == content.keys() and found["rng"].bit_generator.state == expected
        return True

    return path.read_bytes(), check


def test_a_file_that_is_cut_short_anywhere_is_refused(small_file):
    data, check = small_file
    assert check(data) and 1000 < len(data) < 4000
    for length in {*range(0, len(data), 3), *range(len(data) - 60, len(data))}:
        assert not check(data[:length]), length
    assert not check(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))  # a hole at the end


def test_a_flipped_bit_is_refused_or_harmless(small_file):
    data, check = small_file
    draw, refused = random.Random(0), 0
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << draw.randrange(8)
        refused += not check(bytes(flipped))
    assert refused > len(data) / 2  # most of them are seen; the others hit dates and the like


def test_bytes_overwritten_lost_or_put_in_are_refused_or_harmless(small_file):
    data, check = small_file
    draw = random.Random(1)
    for _ in range(100):
        a, n = draw.randrange(len(data)), draw.randrange(1, 40)
        check(data[:a] + draw.randbytes(n) + data[a + n :])
        check(data[:a] + data[a + n :])
        check(data[:a] + draw.randbytes(n) + data[a:])
        check(data[:a] + b"\xff" * n + data[a + n :])


# --- kills -----------------------------------------------------------------------------------------------------

SAVER = """
import sys
import numpy as np
import minibptt as mb

path = sys.argv[1]
model = mb.Linear(64, 64, rng=0)
n = mb.load(path, model)["n"]
while True:
    n += 1
    mb.assign(model.W, np.full((64, 64), n))
    mb.save(path, model, n=n)
    print(n, flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_a_process_killed_at_any_moment_leaves_the_last_checkpoint(tmp_path):
    path, draw, model, left = tmp_path / "c.npz", random.Random(), mb.Linear(64, 64, rng=0), 0
    mb.assign(model.W, np.zeros((64, 64)))
    mb.save(path, model, n=0)
    for _ in range(KILLS):
        with subprocess.Popen([sys.executable, "-c", SAVER, str(path)], stdout=subprocess.PIPE) as process:
            acknowledged = [int(process.stdout.readline()) for _ in range(draw.randrange(1, 6))][-1]
            for _ in range(draw.randrange(200_000)):  # somewhere within the next saves
                pass
            process.kill()
            rest = process.stdout.read().split(b"\n")[:-1]
        acknowledged = int(rest[-1]) if rest else acknowledged
        n = mb.load(path, model)["n"]
        assert n >= acknowledged and (model.W.value == n).all()
        files = sorted(os.listdir(tmp_path))
        assert files in (["c.npz"], [".c.npz.tmp", "c.npz"])
        left += len(files) - 1
    mb.save(path, model, n=n)
    assert os.listdir(tmp_path) == ["c.npz"]
    print(f"{KILLS} kills, {left} of them in the middle of a save, {n} saves")


def test_nothing_is_no_checkpoint(tmp_path):
    with pytest.raises(ValueError, match="nothing to save: give a model, or parts by name"):
        mb.save(tmp_path / "a.npz")
    assert not list(tmp_path.iterdir())
    mb.save(tmp_path / "a.npz", part=None)


MODEL = mb.RNN(2, 3, rng=0)
PATHS = {
    "save": lambda path: mb.save(path, MODEL),
    "load": lambda path: mb.load(path, MODEL),
    "explore": lambda path: mb.explore({}, path),
    "to_csv": lambda path: mb.compare(MODEL, X, X[..., :1] * np.ones(3), mb.mse, mb.full()).to_csv(path),
    "to_json": lambda path: mb.compare(MODEL, X, X[..., :1] * np.ones(3), mb.mse, mb.full()).to_json(path),
    "benchmark": lambda path: Benchmark(()).to_csv(path),
    "read": timings.read,
    "read_text": data.read_text,
    "save_safetensors": lambda path: mb.weights.save_safetensors(path, MODEL),
    "load_safetensors": lambda path: mb.weights.load_safetensors(path, MODEL),
}
X = np.ones((2, 1, 2))


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("wrong", [3, None, b"a.npz", ["a.npz"]], ids=repr)
def test_what_is_no_name_of_a_file_is_refused_in_words(name, wrong):
    with pytest.raises(TypeError, match=re.escape(f"the path must be the name of a file, found {wrong!r}")):
        PATHS[name](wrong)
