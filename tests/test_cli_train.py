"""`minibptt train` and `minibptt sample`: a run, a stop, a resume, what a checkpoint says, and mistakes."""

import math
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import minibptt as mb
from minibptt import cli
from minibptt.commands import train as command
from minibptt.commands.language import Text, language_model, read_header

TEXT = "".join(np.random.default_rng(0).choice(list("abc d\né"), 900))
SMALL = ["--hidden", "6", "--batch", "3", "--steps", "8", "--updates", "12", "--cell", "gru", "--seed", "3"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(*options, code=0):
    assert cli.main(["train", *map(str, options)]) == code


def weights(path):
    return mb.load(path)["model"]


def same(one, two):
    keys = [key for key, value in one.items() if isinstance(value, np.ndarray)]
    return len(keys) > 4 and all(np.array_equal(one[key], two[key]) for key in keys)


def test_it_learns_the_first_nine_tenths_and_is_judged_on_the_last(here, capsys):
    train("--text", "text.txt", *SMALL, "--tbptt", "4")
    out = capsys.readouterr().out
    # The same by hand.
    symbols = "".join(sorted(set(TEXT)))
    ids = np.array([symbols.index(c) for c in TEXT])
    options = {"cell": "gru", "hidden": 6, "layers": 1, "dropout": 0.0, "seed": 3}
    model = language_model(len(symbols), options)
    stream = mb.stream_batches(ids[:810], batch=3, steps=8)
    mb.train(model, stream, mb.cross_entropy, mb.tbptt(4), mb.Adam(model, lr=2e-3), updates=12, progress=False)
    assert same(weights("minibptt-train.npz"), {name: p.value for name, p in model.named_parameters()})
    held_out = mb.stream_batches(ids[810:], batch=1, steps=8)
    for reset_every, words in [(None, "carried"), (32, "zero every 32 steps"), (8, "zero every 8 steps (cold")]:
        found = mb.evaluate(model, held_out, reset_every=reset_every)
        (line,) = [line for line in out.splitlines() if line.startswith(words)]
        assert line.split()[-2:] == [f"{found.loss:.3f}", f"{found.bits:.3f}"], line
    position = out.split("bits per character, cold\n")[1].splitlines()
    assert [line.split()[0] for line in position] == ["1", "2", "3–4", "5–8"]
    expected = found.by_position[4:].mean() / math.log(2)
    assert position[3].split()[1] == f"{expected:.3f}"
    assert "810 characters to learn from, 90 held out, 7 distinct" in out and "12 updates" in out


def test_with_no_text_it_learns_the_standard_library(here, capsys):
    train(*SMALL, "--updates", "1", "--batch", "2", "--save", "a.npz")
    assert "Python's standard library: 450,000 characters" in capsys.readouterr().out
    assert read_header("a.npz")[0]["text"]["path"] is None


@pytest.mark.parametrize("n", [1, 5, 11])
def test_ctrl_c_saves_and_says_how_to_go_on_to_the_same_bits(n, here, capsys, monkeypatch):
    options = ["--text", "text.txt", *SMALL, "--layers", "2", "--dropout", ".4", "--cell", "lstm"]
    train(*options, "--save", "straight.npz")

    def stopping(outputs, y, count=None):
        nonlocal n
        n -= 1
        if not n:
            signal.raise_signal(signal.SIGINT)
        return mb.cross_entropy(outputs, y, count=count)

    with monkeypatch.context() as patch:
        patch.setattr(command, "cross_entropy", stopping)
        capsys.readouterr()
        train(*options, "--save", "my model.npz", code=130)
    out, err = capsys.readouterr()
    assert "To go on: minibptt train --resume 'my model.npz'" in out and "Traceback" not in err
    done = read_header("my model.npz")[1]
    assert 0 < done < 12
    train("--resume", "my model.npz")
    assert same(weights("my model.npz"), weights("straight.npz"))
    assert "12 updates" in capsys.readouterr().out


def test_a_training_goes_on_to_more_updates_and_into_another_file(here, capsys):
    train("--text", "text.txt", *SMALL, "--save", "a.npz")
    train("--text", "text.txt", *SMALL, "--updates", "17", "--save", "straight.npz")
    os.rename("text.txt", "moved.txt")
    # What the checkpoint says may be said again.
    train("--resume", "a.npz", "--updates", "17", "--save", "b.npz", "--text", "moved.txt", "--hidden", "6")
    assert same(weights("b.npz"), weights("straight.npz"))
    assert read_header("a.npz")[1] == 12 and read_header("b.npz")[1] == 17


def test_sample_rebuilds_the_model_from_the_file_alone(here, capsys):
    train("--text", "text.txt", *SMALL, "--layers", "2", "--dropout", ".5", "--save", "a.npz")
    about, _ = read_header("a.npz")
    model = language_model(7, about["options"])
    mb.load("a.npz", model)
    symbols = Text("text.txt").symbols
    os.remove("text.txt")
    capsys.readouterr()
    for options, start, chosen in [
        ([], "", {"temperature": 1.0, "rng": 0}),
        (["--start", "abé", "--seed", "5", "--temperature", ".5"], "abé", {"temperature": 0.5, "rng": 5}),
        (["--start", " ", "--temperature", "0"], " ", {"temperature": 0.0}),
    ]:
        assert cli.main(["sample", "a.npz", "--length", "40", *options]) == 0
        ids = [symbols.index(c) for c in start or "\n"]
        expected = "".join(symbols[i] for i in mb.sample(model, ids, 40, **chosen))
        assert capsys.readouterr().out == start + expected + "\n"


def test_a_sample_is_of_characters_that_any_terminal_can_show(here):
    train("--text", "text.txt", *SMALL, "--save", "a.npz")
    arguments = [sys.executable, "-m", "minibptt", "sample", "a.npz", "--length", "300"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    result = subprocess.run(arguments, capture_output=True, env=environment)
    assert result.returncode == 0 and result.stdout.isascii() and b"?" in result.stdout, result.stderr


BAD = {
    "no updates": (["--updates", "0"], "at least 1"),
    "a dropout of 1": (["--dropout", "1"], "below 1"),
    "dropout in one layer": (["--dropout", ".5"], "give --layers 2"),
    "a rate of 0": (["--lr", "0"], "positive"),
    "a clip of 0": (["--clip", "0"], "positive"),
    "an unknown cell": (["--cell", "elm"], "'elm'"),
    "chunks longer than a window": (["--tbptt", "9"], "give --steps 9 or more"),
    "windows that reach out of it": (["--tbptt", "4,16"], "give --steps 16 or more"),
    "no held-out steps": (["--text", "short.txt"], "short.txt is too short: a tenth of it is held out"),
    "a folder to save to": (["--save", "."], "is a folder: give the name of a file"),
    "rows without a step": (["--batch", "1000"], "too short for 1000 rows"),
    "one letter": (["--text", "one.txt"], "one distinct character"),
    "a missing text": (["--text", "absent.txt"], "no file"),
    "an unknown backend": (["--backend", "tpu"], "unknown backend 'tpu'"),
    "a file that is there": (["--save", "a.npz"], "go on from it with --resume a.npz"),
    "a folder that is not there": (["--save", "absent/a.npz"], "there is no folder"),
    "a missing checkpoint": (["--resume", "absent.npz"], "there is no checkpoint absent.npz"),
    "a text as checkpoint": (["--resume", "text.txt"], "is damaged, or no checkpoint"),
    "a checkpoint of something else": (["--resume", "other.npz"], "no checkpoint of `minibptt train`"),
    "nothing left to do": (["--resume", "a.npz"], "has 12 updates already"),
    "fewer updates than it has": (["--resume", "a.npz", "--updates", "7"], "has 12 updates already"),
    "other sizes": (["--resume", "a.npz", "--hidden", "7"], "--hidden 7: a.npz was made with 6"),
    "another truncation": (["--resume", "a.npz", "--tbptt", "4,8"], "--tbptt 4,8: a.npz was made with none"),
    "another text": (["--resume", "a.npz", "--updates", "20", "--text", "other.txt"], "is not the text"),
    "another file": (["--resume", "a.npz", "--updates", "20", "--save", "other.npz"], "is there already"),
    "sample: a missing checkpoint": (["sample", "absent.npz"], "there is no checkpoint absent.npz"),
    "sample: something else": (["sample", "other.npz"], "no checkpoint of `minibptt train`"),
    "sample: an unknown character": (["sample", "a.npz", "--start", "abX"], "does not know the character 'X'"),
    "sample: nothing to start from": (["sample", "a.npz", "--start", ""], "--start is empty"),
    "sample: no length": (["sample", "a.npz", "--length", "0"], "at least 1"),
    "sample: a negative temperature": (["sample", "a.npz", "--temperature", "-1"], "at least 0"),
    "sample: an endless temperature": (["sample", "a.npz", "--temperature", "inf"], "at least 0"),
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    arguments = ["train", "--text", str(folder / "text.txt"), *SMALL, "--save", str(folder / "a.npz")]
    assert cli.main(arguments) == 0
    mb.save(folder / "other.npz", mb.Linear(2, 3, rng=0))
    for name, text in {"short": "abcdefgh", "one": "a" * 99, "other": TEXT[::-1]}.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_ends_in_one_line_and_code_2_with_nothing_written(name, trained, monkeypatch, capsys):
    monkeypatch.chdir(trained)
    before = {path.name: path.read_bytes() for path in trained.iterdir()}
    options, words = BAD[name]
    if options[0] != "sample":
        small = [] if "--resume" in options else [*SMALL, *([] if "--text" in options else ["--text", "text.txt"])]
        options = ["train", *small, *options]
    try:
        code = cli.main(options)
    except SystemExit as stop:  # argparse's own way out
        code = stop.code
    error = capsys.readouterr().err
    assert code == 2 and words in error and "Traceback" not in error, error
    assert error.strip().splitlines()[-1].startswith("minibptt")
    assert {path.name: path.read_bytes() for path in trained.iterdir()} == before


def test_training_that_diverges_ends_in_one_line_and_keeps_the_last_good_checkpoint(here, capsys):
    options = ["--text", "text.txt", *SMALL, "--cell", "rnn", "--lr", "1e38", "--every", "1", "--clip", "1e38"]
    train(*options, "--updates", "400", code=2)
    error = capsys.readouterr().err.strip()
    assert "is not finite" in error and "smaller lr" in error and len(error.splitlines()) == 1
    with np.errstate(all="ignore"):
        assert not (here / "minibptt-train.npz").exists() or all(
            np.isfinite(a).all() for a in weights("minibptt-train.npz").values() if isinstance(a, np.ndarray)
        )


@pytest.mark.parametrize(
    "options, says",
    [
        (["--steps", "100000"], "--steps 100000: this text has rows of 269 steps to learn from, and 89 steps held out"),
        (["--steps", "90"], "Give --steps 89 or fewer"),
        (["--batch", "20", "--steps", "60"], "Give --steps 40 or fewer"),
        (["--reset-every", "90"], "--reset-every 90: the rows that are held out have 89 steps. Give 89 or fewer"),
    ],
)
def test_a_window_or_a_reset_that_is_longer_than_the_text_is_refused_before_training(here, capsys, options, says):
    train("--text", "text.txt", *SMALL, *options, code=2)
    assert says in capsys.readouterr().err and not (here / "minibptt-train.npz").exists()


def test_a_reset_that_never_comes_is_not_shown_as_one(here, capsys):
    train("--text", "text.txt", *SMALL, "--updates", "1", "--steps", "40")
    states = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("carried", "zero every"))]
    assert [line.split("  ")[0] for line in states] == ["carried", "zero every 40 steps (cold: each window)"]
