"""The command line: what it writes, and how it ends where a user is mistaken."""

import csv
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from minibptt import cli, plots
from minibptt.commands.arguments import task_of
from minibptt.progress import Progress

FILES = [".csv", ".json", ".png", "-parts.csv", "-contributions.png", "-lags.png", "-schemes.png"]
SMALL = ["compare", "--hidden", "6", "--length", "12", "--batch", "2"]


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "minibptt", *map(str, arguments)],
        capture_output=True,
        env={**os.environ, "MPLBACKEND": "Agg", **environment},
    )


def names_in(folder):
    return {path.name for path in folder.iterdir()}


def files_of(*moments):
    return {f"{moment}{file}" for moment in moments for file in FILES}


def test_compare_with_no_text_writes_figures_csv_and_json_and_gives_the_same_numbers_again(tmp_path, capsys):
    tables = []
    for name in ("one", "two"):
        assert cli.main([*SMALL, "--out", str(tmp_path / name)]) == 0
        assert names_in(tmp_path / name) == files_of("compare")
        with open(tmp_path / name / "compare.csv", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        tables.append([{k: v for k, v in r.items() if k not in ("peak_bytes", "seconds")} for r in rows])
    assert tables[0] == tables[1]
    by_name = {row["schedule"]: row for row in tables[0]}
    assert list(by_name) == ["k=1", "k=2", "k=3", "k=4", "k=6", "k=8", "k=12", "full"]
    for name in ("k=12", "full"):
        assert (by_name[name]["error_high"], by_name[name]["share_mean"]) == ("0.0", "1.0")
    about = json.loads((tmp_path / "one" / "compare.json").read_text(encoding="utf-8"))["about"]
    assert about["hidden"] == 6 and about["trained_steps"] == 0 and about["python"]
    assert "Written to" in capsys.readouterr().out


def test_training_first_compares_before_and_after(tmp_path, capsys):
    text = tmp_path / "my text.txt"
    text.write_text("abcabcabd" * 20 + "é✂\r\n", encoding="utf-8")
    out = tmp_path / "out"
    options = ["--text", str(text), "--train-steps", "3", "--tbptt", "4", "--tbptt", "2", "--tbptt", "4"]
    assert cli.main([*SMALL, *options, "--out", str(out)]) == 0
    before, after = (json.loads((out / f"{n}.json").read_text(encoding="utf-8")) for n in ("before", "after"))
    assert after["loss"] < before["loss"] and after["about"]["trained_steps"] == 3
    assert [r["schedule"] for r in after["rows"]] == ["k=2", "k=4", "full"]
    assert "my text.txt" in capsys.readouterr().out and names_in(out) == files_of("before", "after")
    # Files of an earlier run would look like one set with those of this one; what is not ours stays.
    (out / "notes.txt").write_text("mine")
    assert cli.main([*SMALL, "--text", str(text), "--tbptt", "4", "--out", str(out)]) == 0
    assert names_in(out) == files_of("compare") | {"notes.txt"}


def test_every_so_many_training_steps_there_is_a_moment_in_the_history(tmp_path, capsys):
    options = ["--train-steps", "5", "--every", "2", "--tbptt", "3", "--artbp", ".2", "--draws", "4", "--seed", "3"]
    assert cli.main([*SMALL, *options, "--out", str(tmp_path)]) == 0
    training = {"training.csv", "training.json", "training.png"}
    assert names_in(tmp_path) == files_of("before", "after") | training
    history = json.loads((tmp_path / "training.json").read_text(encoding="utf-8"))
    assert [m["training_steps"] for m in history["moments"]] == [0, 2, 4, 5]
    for place, name in ((0, "before"), (-1, "after")):
        assert history["moments"][place] == {
            "training_steps": [0, 5][place],
            **json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8")),
        }
    assert [len(r["by_offset"]["share"]) for r in history["moments"][1]["rows"]] == [3, 4, 1]
    out = capsys.readouterr().out
    assert "Kept share over training" in out and "over 4 draws the mean gradient is off by" in out
    # The training is the same as without moments in between.
    assert cli.main([*SMALL, *options[:2], *options[4:], "--out", str(tmp_path)]) == 0
    assert names_in(tmp_path) == files_of("before", "after")
    after = json.loads((tmp_path / "after.json").read_text(encoding="utf-8"))
    assert after["loss"] == history["moments"][-1]["loss"] and after["rows"][0]["seconds"] is not None


def test_by_prints_a_table_of_the_parts_too(tmp_path, capsys):
    options = ["--cell", "gru", "--tbptt", "4", "--by", "gate"]
    assert cli.main([*SMALL, *options, "--out", str(tmp_path)]) == 0
    table = capsys.readouterr().out.split("Kept share by gate")[1]
    assert all(f"gate {gate}" in table for gate in "rzn")
    with open(tmp_path / "compare-parts.csv", encoding="utf-8") as file:
        rows = {(row["schedule"], row["part"]): row for row in csv.DictReader(file)}
    assert f"{float(rows['k=4', 'gate z']['share_mean']):.3f}" in table and ("k=4", "1.0.W_h") in rows


@pytest.mark.parametrize("batch", [1, 2])
def test_the_triangle_shows_the_first_48_steps_and_the_symbols_of_a_single_row(batch, tmp_path, monkeypatch):
    drawn = []
    draw = plots.contributions
    monkeypatch.setattr(plots, "contributions", lambda *a, **k: drawn.append((a, k, draw(*a, **k))) or drawn[-1][2])
    arguments = ["compare", "--hidden", "5", "--length", "50", "--batch", str(batch), "--tbptt", "7", "--tbptt", "4"]
    assert cli.main([*arguments, "--artbp", ".1", "--out", str(tmp_path)]) == 0
    ((c, schedule), keywords, ax), = drawn  # fmt: skip
    assert c.T == 48 and str(schedule) == "k=7"
    assert "first 48 of 50 steps" in ax.figure.get_suptitle() and "k=7 keeps" in ax.figure.get_suptitle()
    task = task_of(cli._parser().parse_args(arguments))
    x, y = task.sample(batch)
    expected = ["".join(task.symbols[i] for i in ids[:48, 0]) if batch == 1 else "" for ids in (x, y)]
    assert [keywords["symbols"], keywords["targets"]] == expected
    with np.errstate(all="raise"):
        assert c.share.sum() == pytest.approx(1, rel=1e-5)


def test_windows_and_random_cuts_are_compared_too(tmp_path):
    options = ["--cell", "lstm", "--tbptt", "4,8", "--tbptt", "2", "--tbptt", "4,2", "--artbp", ".1"]
    assert cli.main([*SMALL, *options, "--out", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "compare.json").read_text(encoding="utf-8"))["rows"]
    assert [r["schedule"] for r in rows] == ["k=2", "k1=4, k2=2", "k1=4, k2=8", "ARTBP p=0.1", "full"]
    assert [len(r["by_offset"]["share"]) for r in rows] == [2, 4, 4, 32, 1]


@pytest.mark.parametrize("task", ["coin", "adding", "copy", "labels"])
def test_compare_runs_on_every_task(task, tmp_path):
    options = ["--task", task, "--length", "50", "--train-steps", "1", "--tbptt", "3"]
    assert cli.main([*SMALL, *options, "--out", str(tmp_path)]) == 0


BAD = {
    "chunks of 0": (["--tbptt", "0"], "at least 1, found 0"),
    "negative chunks": (["--tbptt", "-3"], "expected"),
    "chunks of a word": (["--tbptt", "eight"], "'eight'"),
    "three numbers": (["--tbptt", "4,16,2"], "expected K or K1,K2"),
    "a window of 0": (["--tbptt", "4,0"], "at least 1, found 0"),
    "a probability of 1": (["--artbp", "1"], "below 1, found 1"),
    "a probability in words": (["--artbp", "half"], "'half'"),
    "chunks longer than the sequence": (["--tbptt", "13"], "--length 12"),
    "no steps": (["--length", "0"], "at least 1, found 0"),
    "no hidden units": (["--hidden", "0"], "at least 1"),
    "no rows": (["--batch", "0"], "at least 1"),
    "negative training": (["--train-steps", "-1"], "at least 0"),
    "a rate of nan": (["--lr", "nan"], "positive"),
    "moments without training": (["--every", "5"], "give --train-steps N"),
    "a moment after no step": (["--train-steps", "5", "--every", "0"], "at least 1, found 0"),
    "no draws": (["--draws", "0"], "at least 1, found 0"),
    "gates of an rnn": (["--by", "gate"], "--cell lstm"),
    "an unknown part": (["--by", "layer"], "'layer'"),
    "an unknown backend": (["--backend", "tpu"], "unknown backend 'tpu'"),
    "an unknown cell": (["--cell", "elm"], "'elm'"),
    "an unknown task": (["--task", "nonsense"], "nonsense"),
    "a task that is too short": (["--task", "copy"], "at least 21, found 12"),
    "digits of another length": (["--task", "digits"], "give --length 8, found 12"),
    "text and task": (["--task", "coin", "--text", "x"], "not allowed"),
    "a missing file": (["--text", "{tmp}/absent.txt"], "no file"),
    "a folder as text": (["--text", "{tmp}"], "is a folder"),
    "an empty file": (["--text", "{tmp}/empty.txt"], "is empty"),
    "a binary file": (["--text", "{tmp}/binary.txt"], "zero byte at 3"),
    "a file in Latin-1": (["--text", "{tmp}/latin.txt"], "0xe9 at 2"),
    "a short text": (["--text", "{tmp}/short.txt"], "has 12 characters"),
    "a folder that cannot be": (["--out", "{tmp}/empty.txt/x"], "cannot write to the folder"),
    "a file where the folder should be": (["--out", "{tmp}/empty.txt"], "cannot write to the folder"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_ends_in_one_line_and_code_2_with_nothing_written(name, tmp_path, capsys):
    files = {"empty": b"", "binary": b"abc\0d", "latin": b"caf\xe9 au lait".replace(b"caf", b"ca"), "short": b"x" * 12}
    for stem, data in files.items():
        (tmp_path / f"{stem}.txt").write_bytes(data)
    options, words = BAD[name]
    options = [o.replace("{tmp}", str(tmp_path)) for o in options]
    out = [] if "--out" in options else ["--out", str(tmp_path / "out")]
    try:
        code = cli.main([*SMALL, *out, *options])
    except SystemExit as stop:  # argparse's own way out
        code = stop.code
    error = capsys.readouterr().err
    assert code == 2 and words in error and "Traceback" not in error, error
    assert error.strip().splitlines()[-1].startswith("minibptt")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(f"{stem}.txt" for stem in files)


def test_a_failure_half_way_leaves_nothing_half_written(tmp_path, monkeypatch, capsys):
    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(plots, "save", full_disk)
    assert cli.main([*SMALL, "--out", str(tmp_path)]) == 2
    assert list(tmp_path.iterdir()) == [] and "No space left" in capsys.readouterr().err


def test_ctrl_c_ends_without_a_traceback(tmp_path, monkeypatch, capsys):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.compare, "compare", lambda *a, **k: stop())
    assert cli.main([*SMALL, "--out", str(tmp_path)]) == 130
    assert list(tmp_path.iterdir()) == [] and capsys.readouterr().err.strip() == "minibptt: stopped"


def test_a_fault_shows_where_it_was_raised_to_who_asks(tmp_path, monkeypatch):
    monkeypatch.setattr(cli.compare, "compare", lambda *a, **k: [].remove(3))
    assert cli.main([*SMALL, "--out", str(tmp_path)]) == 2
    monkeypatch.setenv("MINIBPTT_TRACEBACK", "1")
    with pytest.raises(ValueError, match="not in list"):
        cli.main([*SMALL, "--out", str(tmp_path)])


def test_output_degrades_to_ascii_on_a_pipe_that_cannot_print_more(tmp_path):
    options = ["--artbp", ".2", "--cell", "gru", "--by", "gate", "--train-steps", "1", "--every", "1"]
    result = run(*SMALL, *options, "--out", tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert result.returncode == 0, result.stderr.decode()
    assert b"?" not in result.stdout and b" +/- " in result.stdout
    assert result.stdout.isascii() and b"||G|| = " in result.stdout.replace(b"|G|", b"||G||")
    error = run("compare", "--text", "/nowhere/é✂", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert error.returncode == 2 and error.stderr.isascii() and b"no file" in error.stderr


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="file names are text there")
def test_a_file_whose_name_is_no_utf_8_is_compared_and_named_in_the_json(tmp_path):
    text, out = os.fsencode(tmp_path) + b"/caf\xe9.txt", tmp_path / "out"
    with open(text, "w") as file:
        file.write("abcdefgh ijkl\n" * 20)
    assert cli.main([*SMALL, "--text", os.fsdecode(text), "--out", str(out)]) == 0
    assert json.loads((out / "compare.json").read_text(encoding="utf-8"))["about"]["text"].endswith("caf\ufffd.txt")


def test_doctor_says_what_works(capsys):
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    for part in ("minibptt:", "Python:", "numpy:", "ok, NumPy", "cupy:", "text output:"):
        assert part in out


def test_no_command_and_an_unknown_one_are_usage_errors(capsys):
    for arguments in ([], ["compere"]):
        with pytest.raises(SystemExit) as stop:
            cli.main(arguments)
        assert stop.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


LARGE = [SMALL, ["benchmark", "--seconds", "0.01"], ["derive", "--cell", "rnn"]]


@pytest.mark.parametrize(
    "hidden", [10**15, 10**18, 10**22], ids=["10^15", "10^18", "10^22"]
)  # beyond any address space
@pytest.mark.parametrize("command", LARGE, ids=lambda command: command[0])
def test_a_size_that_fits_into_no_memory_is_named(command, hidden, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main([*command, "--hidden", str(hidden)]) == 2
    found = capsys.readouterr().err
    assert "this does not fit into memory (" in found
    assert found.endswith(f"Give smaller sizes; the largest here is --hidden {hidden}\n")
    assert not list(tmp_path.iterdir())


def test_memory_that_no_size_asked_for_is_still_an_error_in_words(capsys, monkeypatch):
    def full():
        raise MemoryError

    monkeypatch.setattr(cli.doctor, "backend_report", full)
    assert cli.main(["doctor"]) == 2
    assert capsys.readouterr().err == "minibptt: this does not fit into memory (MemoryError). Give a smaller input\n"


def test_the_progress_of_a_benchmark_counts_what_will_be_measured(tmp_path, monkeypatch):
    totals = []
    monkeypatch.setattr(cli.benchmark, "Progress", lambda what, total: totals.append(total) or Progress(what, total))
    sizes = ["--hidden", "2", "4", "2", "--batch", "1", "2", "--length", "3", "--cell", "rnn", "gru"]
    assert cli.main(["benchmark", *sizes, "--seconds", "0.001", "--out", str(tmp_path)]) == 0
    assert totals == [2 * 2 * 2]
