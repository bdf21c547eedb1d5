"""The benchmark's systems do the same work, as far as they are installed; speed is not tested here. The coin
experiment's stream, losses and ways of training are what it says they are."""

import csv
import ctypes
import importlib.util
import shutil
import subprocess
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from arguments import folder

import minibptt as mb
from minibptt import standin
from minibptt.benchmark import sweep


def load(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent.parent / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


peers, coin, characters = load("peers"), load("coin"), load("characters")
recompute, influence, device, memory = load("recompute"), load("influence"), load("device"), load("memory")
SHAPE = (3, 2, 4, 5)


@pytest.mark.parametrize("cell", peers.GATES)
@pytest.mark.parametrize("system", [s for s in peers.SYSTEMS if s == "floor" or s.startswith("minibptt")])
def test_each_system_takes_a_step(system, cell):
    peers.SYSTEMS[system](cell, *SHAPE)()


@pytest.mark.parametrize("cell", peers.GATES)
def test_both_engines_compute_the_same_gradients(cell):
    one, two = (peers.SYSTEMS[f"minibptt {engine}"](cell, *SHAPE)() for engine in ("explicit", "tape"))
    assert one[0].relative_error(two[0]) < 1e-5
    np.testing.assert_allclose(one[1], two[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("cell", peers.GATES)
def test_the_equations_are_those_of_the_cells(cell):
    import minibptt as mb

    T, B, D, H = SHAPE
    layer = {"lstm": mb.LSTM, "gru": mb.GRU, "rnn": mb.RNN}[cell](D, H, rng=0, dtype=np.float64)
    if cell == "gru":
        mb.assign(layer.cells[0].b_hn, np.zeros(H))
    W_x, W_h, b = (layer.parameters()[f"0.{name}"].value for name in ("W_x", "W_h", "b"))
    x = np.random.default_rng(0).standard_normal((T, B, D))
    expected = layer(x)[0].value
    zero = np.zeros((B, H))
    state = (zero, zero) if cell == "lstm" else zero
    for t in range(T):
        h, state = peers.equations(np, lambda v: 1 / (1 + np.exp(-v)), cell, H, x[t], state, W_x, W_h, b)
        np.testing.assert_allclose(h, expected[t], rtol=1e-12)


def test_the_plateaus_are_the_four_entropies():
    # By hand: P(y = 1) is 1/2, 1, 1/4, 3/4 for the bits 00, 10, 01, 11 at lags 3 and 8.
    quarter, eighth = -(np.log(1 / 4) + 3 * np.log(3 / 4)) / 4, -(np.log(1 / 8) + 7 * np.log(7 / 8)) / 8
    three_eighths = -(3 * np.log(3 / 8) + 5 * np.log(5 / 8)) / 8
    by_hand = [
        three_eighths,  # P = 5/8
        (quarter + np.log(2)) / 2,  # 3/4 and 1/2
        (three_eighths + eighth) / 2,  # 3/8 and 7/8
        (np.log(2) + 0 + 2 * quarter) / 4,
    ]
    assert [*coin.PLATEAUS.values()] == pytest.approx(by_hand)
    assert [round(v, 4) for v in coin.PLATEAUS.values()] == [0.6616, 0.6277, 0.5192, 0.4545]
    # Ten steps: three know nothing, five know lag 3, two know both.
    assert coin.best_alone(10) == pytest.approx((3 * 0.6616 + 5 * 0.5192 + 2 * 0.4545) / 10, abs=1e-4)


@pytest.mark.parametrize("k", [1, 2, 5, 11])
def test_the_stream_goes_on_from_chunk_to_chunk(k):
    """The law of the coin holds at every place of a chunk, from bits of the chunks before."""
    x, y = (np.concatenate(a) for a in zip(*islice(coin.stream(np.random.default_rng(0), k, 500), 220 // k)))
    assert x.shape == (220 // k * k, 500, 1)
    assert y.shape == x.shape[:2]
    x, lag3, lag8 = x[8:, :, 0], x[5:-3, :, 0], x[:-8, :, 0]
    place, y = np.arange(8, len(y))[:, None] % k + 0 * y[8:], y[8:]
    for j in range(k):
        for a, b, p in [(0, 0, 1 / 2), (1, 0, 1), (0, 1, 1 / 4), (1, 1, 3 / 4)]:
            seen = y[(lag3 == a) & (lag8 == b) & (place == j)]
            assert seen.mean() == pytest.approx(p, abs=6 * (p * (1 - p) / len(seen)) ** 0.5)
    assert x.mean() == pytest.approx(0.5, abs=6 * 0.5 / x.size**0.5)


@pytest.mark.parametrize("mode", coin.FROZEN)
def test_what_is_frozen_stays_and_the_rest_learns(mode):
    model = coin.network(4, np.random.default_rng(0))
    before = {name: p.value.copy() for name, p in model.named_parameters()}
    assert set(coin.FROZEN[mode]) < set(before)
    coin.train(model, coin.stream(np.random.default_rng(1), 3), mode, 3)
    stayed = {name for name, p in model.named_parameters() if np.array_equal(p.value, before[name])}
    assert stayed == {"carry": set(), "reset": set(), "frozen W_h": {"0.0.W_h"}}.get(
        mode, {"0.0.W_x", "0.0.W_h", "0.0.b"}
    )


@pytest.mark.parametrize("mode", coin.FROZEN)
def test_training_is_that_of_pytorch_with_detach_and_adam(mode):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    model = coin.network(5, np.random.default_rng(0))
    W_x, W_h, b, W, c = (torch.tensor(p.value.copy()) for p in model.parameters().values())
    learns = {"frozen": [W, c], "frozen W_h": [W_x, b, W, c]}.get(mode, [W_x, W_h, b, W, c])
    optimiser = torch.optim.Adam([p.requires_grad_() for p in learns], lr=2e-3)
    expected, h = [], torch.zeros(7, 5, dtype=torch.float64)
    for x, y in islice(coin.stream(np.random.default_rng(1), 4, 7), 40):
        h = torch.zeros_like(h) if mode == "reset" else h.detach()
        outputs = []
        for x_t in torch.tensor(x):
            h = torch.tanh(x_t @ W_x + h @ W_h + b)
            outputs.append(h @ W + c)
        loss = torch.nn.functional.cross_entropy(torch.stack(outputs).reshape(-1, 2), torch.tensor(y).reshape(-1))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        expected.append(loss.item())
    found = coin.train(model, coin.stream(np.random.default_rng(1), 4, 7), mode, 40)
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_the_quick_coin_writes_every_run_and_a_figure(tmp_path, capsys):
    coin.main(["--quick", "--out", str(tmp_path)])
    with open(tmp_path / "coin.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["H"], row["k"], row["mode"], row["seed"]) for row in rows] == [
        ("8", k, mode, "0") for k in ("2", "8") for mode in ("carry", "reset", "frozen", "frozen W_h")
    ]
    loss = {(row["k"], row["mode"]): float(row["loss"]) for row in rows}
    assert all(0.45 < v < 0.7 for v in loss.values())
    # Two steps from zero say nothing about the coin; of eight, five say what lies three steps back, and no more. Sixty
    # updates of k · 64 coins are averaged; a coin's loss has a standard deviation below 0.7.
    for k in (2, 8):
        assert loss[str(k), "reset"] > coin.best_alone(k) - 6 * 0.7 / (60 * k * 64) ** 0.5
    assert loss["8", "carry"] < coin.best_alone(8) - 0.03  # what was carried is used
    assert (tmp_path / "coin.png").stat().st_size > 10_000
    assert "| 8 | 2 | 0.6" in capsys.readouterr().out


def test_the_figure_is_drawn_again_from_the_numbers(tmp_path):
    numbers = tmp_path / "coin.csv"
    lines = [f"{H},{k},{mode},0,0.5,7" for H in (4, 9) for k in (1, 8) for mode in coin.FROZEN]
    numbers.write_text("\n".join(["H,k,mode,seed,loss,updates", *lines]))
    coin.main(["--redraw", str(numbers), "--sizes", "4", "9", "--out", str(tmp_path / "again")])
    assert [path.name for path in (tmp_path / "again").iterdir()] == ["coin.png"]


@pytest.mark.parametrize("engine", ["explicit", "tape"])
def test_recomputing_in_any_number_of_segments_is_the_same_gradient(engine):
    full, *others = (step() for step in recompute.steps(engine, 12, 2, 3, [1, 4, 12]).values())
    assert all(g.relative_error(full) < 1e-5 for g in others) and len(others) == 3


def test_influence_balancing_moves_by_the_coefficient_of_its_window():
    # K = 1: s₀ = ½ + ½ + ½ = 1.5 at the first step, of which θ = ½ sees 1: θ ← ½ − 1e-4·½.
    assert influence.train(1, 1) == pytest.approx((0.5 - 0.5e-4, 0.125), rel=1e-14)


IDS = np.random.default_rng(0).integers(0, 3, 400)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("kind", characters.GRID)
def test_ngrams_are_probabilities_and_those_of_their_formula(n, kind):
    p = characters.ngram(IDS, 4, n, kind, 0.4)  # the id 3 occurs nowhere, and no context with it
    np.testing.assert_allclose(p.sum(-1), 1, rtol=1e-12)
    assert p.shape == (4,) * n and (p > 0).all()
    ids = IDS.tolist()

    def count(*run):
        return sum(tuple(ids[i : i + len(run)]) == run for i in range(len(ids) - len(run) + 1))

    def formula(c, h, top=True):
        """p(c | h) by the definition, one number at a time; h a tuple."""
        many = {d: count(*h, d) for d in range(4)}
        if kind == "add-k":
            return (many[c] + 0.4) / (sum(many.values()) + 0.4 * 4)
        if kind == "Kneser-Ney D" and not top:
            many = {d: sum(count(before, *h, d) > 0 for before in range(4)) for d in range(4)}
        lower = formula(c, h[1:], False) if h else 1 / 4
        total, different = sum(many.values()), sum(v > 0 for v in many.values())
        if not total:
            return lower
        if kind == "Witten-Bell κ":
            return (many[c] + 0.4 * different * lower) / (total + 0.4 * different)
        return (max(many[c] - 0.4, 0) + 0.4 * different * lower) / total

    for run in [(0, 1, 2), (3, 1, 0), (1, 3, 3), (2, 2, 3), (0, 0, 0)]:
        run = run[-n:]
        assert p[run] == pytest.approx(formula(run[-1], run[:-1]), rel=1e-12)


def test_bits_are_those_of_fair_coins_and_of_a_run_that_is_known():
    coins = np.random.default_rng(0).integers(0, 2, 5000)
    assert characters.bits(np.full((2, 2, 2), 0.5), coins) == 1
    kind, x = characters.best_smoothing(np.arange(900) % 3, 3, 2)
    assert characters.bits(characters.ngram(np.arange(900) % 3, 3, 2, kind, x), np.arange(300) % 3) < 0.01


def test_the_quick_characters_write_a_curve_a_figure_and_a_sample(tmp_path, capsys):
    characters.main(["--quick", "--out", str(tmp_path)])
    with open(tmp_path / "characters.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["model"] for row in rows[:3]] == ["unigram", "bigram", "trigram"]
    bits = [float(row["held_out_bits"]) for row in rows]
    assert bits[0] > bits[1] > bits[2]
    curve = [row for row in rows if row["train_bits"] and row["updates"]]
    assert int(curve[-1]["updates"]) == 50 and float(curve[-1]["held_out_bits"]) < float(curve[0]["held_out_bits"])
    assert len((tmp_path / "characters.txt").read_text(encoding="utf-8")) > 600
    characters.main(["--redraw", str(tmp_path / "characters.csv"), "--out", str(tmp_path / "again")])
    assert (tmp_path / "again" / "characters.png").stat().st_size > 10_000


def test_what_is_in_docs_says_that_the_lstm_beats_the_trigram():
    with open(Path(__file__).parent.parent / "docs" / "characters.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    last = [row for row in rows if row["train_bits"] and row["updates"]][-1]
    assert float(last["held_out_bits"]) < float(next(r for r in rows if r["model"] == "trigram")["held_out_bits"]) - 0.3


# --- the script for a device, where there is none ---------------------------------------------------------------------


def test_without_a_device_the_script_says_so_and_ends_with_2(tmp_path, monkeypatch, capsys):
    def missing(name):
        raise mb.BackendError("backend 'cupy' was asked for, but there is none")

    monkeypatch.setattr(device.backend, "library_named", missing)
    assert device.main(["--out", str(tmp_path / "out")]) == 2
    assert "nothing to check here: backend 'cupy' was asked for" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.fixture
def pretended(monkeypatch):
    """The stand-in with what the script asks of CuPy besides; its graph is what ran while it was captured."""
    waits = []

    class Stream:
        def __init__(self, non_blocking=False):
            assert non_blocking

        def __enter__(self):
            return self

        def __exit__(self, *exception):
            pass

        def synchronize(self):
            pass

        def begin_capture(self, mode):
            assert mode == 1
            waits.append(standin.counter.syncs)

        def end_capture(self):
            waits.append(standin.counter.syncs)
            return SimpleNamespace(launch=lambda stream: None)

    def run(self, hosts, size, real=standin.ElementwiseKernel.run):
        if self.name != "product":
            return real(self, hosts, size)
        hosts["y"][...] = hosts["a"] @ hosts["b"]

    for name, value in {
        "Stream": Stream,
        "MemoryPool": lambda: standin.pool,
        "using_allocator": lambda allocator: nullcontext(),
        "runtime": SimpleNamespace(streamCaptureModeThreadLocal=1),
    }.items():
        monkeypatch.setattr(standin.xp.cuda, name, value, raising=False)
    monkeypatch.setattr(standin.Pool, "malloc", None, raising=False)
    monkeypatch.setattr(standin.ElementwiseKernel, "run", run)
    monkeypatch.setattr(device, "PEER_SHAPES", [(3, 2, 4, 4)])
    monkeypatch.setattr(device, "sweep", lambda cells, *sizes, **options: sweep(cells, (3, 5), (2,), (4,), **options))
    return waits


def test_the_script_goes_through_all_its_parts(pretended, tmp_path, capsys):
    assert device.check(standin.xp, tmp_path, 1e4) is True
    text = capsys.readouterr().out
    assert "parity, float64" in text and "Everything as it should be" in text and "FAILED" not in text
    assert text.count("captured, so nothing waited") == 3 and len(pretended) == 6
    assert pretended[0] == pretended[1] and pretended[2] == pretended[3]
    files = {"parity.csv", "graph.csv", "peers-device.csv", "benchmark.csv", "benchmark.png"}
    assert {path.name for path in tmp_path.iterdir()} == files
    with open(tmp_path / "parity.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(device.LAYERS) * 2 * 2 * 2 and all(row["date"] and row["device"] for row in rows)


def test_the_script_says_what_differs_and_what_could_not_be_captured(pretended, tmp_path, monkeypatch, capsys):
    real = device.passes

    def wrong(name, engine, dtype, library, options):
        found = real(name, engine, dtype, library, options)
        if library is not np and (name, engine, dtype, bool(options)) == ("gru after", "explicit", np.float64, True):
            found["outputs"][0, 0, 0] += 1e-6
        return found

    monkeypatch.setattr(device, "passes", wrong)
    monkeypatch.setattr(device, "training_step", lambda model, *rest: rest[1].get())
    assert device.check(standin.xp, tmp_path, 0) is False  # and no time for the rest
    text = capsys.readouterr().out
    assert text.count("DIFFERS") == 1 and "gru after, explicit, float64, all" in text
    assert text.count("CAPTURE FAILED") == 3 and text.count("left out for want of time") == 6


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is installed")
def test_the_product_that_can_be_captured_is_a_product(tmp_path):
    source = (
        "void f(const T *a, const T *b, int K, int N, T *y, ptrdiff_t size) { for (ptrdiff_t i = 0; i < size; ++i) {"
    )
    (tmp_path / "f.c").write_text(f"#include <stddef.h>\n#define T double\n{source}{device.PRODUCT}}} }}")
    subprocess.run(["cc", "-shared", "-fPIC", str(tmp_path / "f.c"), "-o", str(tmp_path / "f.so")], check=True)
    a, b, y = np.random.default_rng(0).random((3, 5)), np.random.default_rng(1).random((5, 4)), np.empty((3, 4))
    at = [array.ctypes.data_as(ctypes.c_void_p) for array in (a, b, y)]
    ctypes.CDLL(str(tmp_path / "f.so")).f(at[0], at[1], 5, 4, at[2], ctypes.c_ssize_t(12))
    np.testing.assert_allclose(y, a @ b, rtol=1e-14)


@pytest.mark.parametrize(
    ("script", "arguments", "words"),
    [
        (characters, "--updates 0", "--updates: expected at least 1, found 0"),
        (characters, "--hidden many", "--hidden: expected a whole number, found 'many'"),
        (characters, "--redraw {tmp}/absent.csv", "cannot read {tmp}/absent.csv: No such file"),
        (characters, "--redraw {tmp}", "cannot read {tmp}: Is a directory"),
        (characters, "--redraw {tmp}/other.csv", "has no column model, updates, seconds, train_bits, held_out_bits"),
        (characters, "--redraw {tmp}/short.csv", "no LSTM, or not all of unigram, bigram and trigram"),
        (characters, "--out {tmp}/other.csv", "cannot write to the folder {tmp}/other.csv: {tmp}/other.csv is a file"),
        (coin, "--sizes 8 -1", "--sizes: expected at least 1, found -1"),
        (coin, "--ks 0", "--ks: expected at least 1, found 0"),
        (coin, "--seeds 0", "--seeds: expected at least 1"),
        (coin, "--updates 1.5", "--updates: expected a whole number, found '1.5'"),
        (coin, "--jobs 0", "--jobs: expected at least 1"),
        (coin, "--redraw {tmp}/empty.csv", "has no line of numbers"),
        (coin, "--redraw {tmp}/binary.csv", "is no CSV file"),
        (coin, "--redraw {tmp}/coin.csv --sizes 8 16", "the file has the sizes 8: give --sizes of these"),
        (coin, "--out {tmp}/other.csv/deep/folder", "{tmp}/other.csv is a file"),
        (influence, "--updates 0", "--updates: expected at least 1"),
        (influence, "--windows 1 0", "--windows: expected at least 1"),
        (memory, "--steps 1999", "--steps: expected at least 2000, found 1999"),
        (recompute, "--T 0", "--T: expected at least 1"),
        (recompute, "--T 8 --segments 2 9", "8 steps cannot be cut into 9 segments"),
        (recompute, "--runs 0", "--runs: expected at least 1"),
        (peers, "--rounds 0", "--rounds: expected at least 1"),
        (peers, "--one floor", "give --shape T B D H too"),
        (device, "--seconds nan", "--seconds: expected a positive number, found nan"),
        (device, "--out {tmp}/other.csv", "is a file"),
    ],
)  # fmt: skip
def test_a_bad_argument_of_a_benchmark_ends_in_one_line_and_exit_status_2(script, arguments, words, tmp_path, capsys):
    files = {
        "other.csv": b"a,b\n1,2\n",
        "empty.csv": b"",
        "binary.csv": b"\xff\xfe\x00",
        "short.csv": b"model,updates,seconds,train_bits,held_out_bits,about\nunigram,,,5,5,\n",
        "coin.csv": b"H,k,mode,seed,loss,updates\n8,2,carry,0,0.6,300\n",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(SystemExit) as end:
        script.main([part.replace("{tmp}", str(tmp_path)) for part in arguments.split()])
    said = capsys.readouterr()
    *usage, last = said.err.splitlines()
    assert end.value.code == 2 and not said.out and usage[0].startswith("usage: ")
    assert words.replace("{tmp}", str(tmp_path)) in last and ": error: " in last
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_recomputing_writes_into_a_folder_of_its_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    recompute.main(["--T", "8", "--batch", "1", "--hidden", "2", "--segments", "2", "--runs", "1"])
    assert [path.name for path in tmp_path.iterdir()] == ["minibptt-recompute"]
    assert [path.name for path in (tmp_path / "minibptt-recompute").iterdir()] == ["recompute.csv"]


def test_a_folder_that_is_not_there_yet_is_one_to_write_into(tmp_path):
    assert folder(str(tmp_path / "deep" / "down")) == tmp_path / "deep" / "down" and not list(tmp_path.iterdir())
