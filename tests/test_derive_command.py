"""`minibptt derive`: what it prints, and how it ends where a user is mistaken."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

import minibptt as mb
from minibptt import cli


def test_the_toy_is_shown_cut_and_mended_on_one_screen(capsys):
    assert cli.main(["derive", "--cell", "linear", "--steps", "4", "--cut-every", "1"]) == 0
    out = capsys.readouterr().out
    assert "= 52" in out and "0 + 18 + 5 + 0 = 23" in out and "0 + 18 + 15 + 0 = 33" in out
    lines = out.splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 100
    assert cli.main(["derive"]) == 0  # without a cut there is one column
    out = capsys.readouterr().out
    assert "= 33" in out and "|" not in out and "no cut on the tape" in out


def test_numbers_of_ones_own_are_used(capsys):
    # h₁ = 0·w_x + … with w_x = b_x = b_h = 0: h = x-free; h_t = ½·h_{t−1} + x_t with w_x = 1: 1, 2.5, 4.25.
    zero = ["--set", "b_x=0", "--set", "b_h=0", "--set", "w_x=1", "--set", "w_h=.5"]
    assert cli.main(["derive", *zero, "--x", "1,2,3", "--y", "1,1,1"]) == 0
    out = capsys.readouterr().out
    assert "= 4.75" in out and "h₃ = w_x·x₃ + b_x + w_h·h₂ + b_h = 1·3 + 0 + 0.5·2.5 + 0 = 4.25" in out
    # ∂L/∂w_h = 1·2.5 + 1.5·1 + 1.75·0
    assert "2.5 + 1.5 + 0 = 4" in out
    assert cli.main(["derive", "--x=-1,2,3", "--lengths", "2", "--wrt", "b_h", "--detail", "operation"]) == 0
    assert "padding" in capsys.readouterr().out


@pytest.mark.parametrize("detail", ["step", "gate", "operation"])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "gru before"])
def test_every_cell_is_derived_with_small_numbers(cell, detail, capsys):
    kind, *reset = cell.split()
    options = ["--cell", kind, "--steps", "3", "--cut-every", "2", "--detail", detail]
    options += ["--reset", "before"] if reset else []
    assert cli.main(["derive", *options]) == 0
    first = capsys.readouterr().out
    assert cli.main(["derive", *options]) == 0
    assert first == capsys.readouterr().out and "h₃ =" in first and "✂ dropped" in first
    assert cli.main(["derive", *options, "--hidden", "3", "--wrt", "b", "--latex"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(r"\begin{align*}") and out.count(r"\end{align*}") == 2


def test_a_page_is_written(tmp_path, capsys):
    file = tmp_path / "page.html"
    assert cli.main(["derive", "--cut-every", "1", "--html", str(file)]) == 0
    assert file.read_text(encoding="utf-8").startswith("<!DOCTYPE html>") and "Written to" in capsys.readouterr().out


def test_the_weights_are_those_of_set_row_by_row(capsys):
    values = ",".join(str(v / 10) for v in range(4))
    options = [
        "--cell",
        "rnn",
        "--hidden",
        "2",
        "--steps",
        "2",
        "--set",
        f"W_h={values}",
        "--set",
        "W_x=1",
        "--set",
        "b=0",
    ]
    assert cli.main(["derive", *options, "--x", ".5,.25", "--wrt", "b"]) == 0
    out = capsys.readouterr().out
    h = np.tanh([0.5, 0.5])
    a = 0.25 + h @ np.arange(4).reshape(2, 2) / 10
    assert f"a₂ = x₂ @ W_x + h₁ @ W_h + b = [{a[0]:.4g}, {a[1]:.4g}]" in out


BAD = {
    "an unknown parameter": (["--wrt", "W_q"], "w_x, b_x, w_h, b_h"),
    "a parameter of another cell": (["--cell", "lstm", "--wrt", "w_h"], "W_x, W_h, b"),
    "an unknown cell": (["--cell", "elm"], "'elm'"),
    "an unknown detail": (["--detail", "all"], "'all'"),
    "no steps": (["--steps", "0"], "at least 1, found 0"),
    "half a step": (["--steps", "1.5"], "invalid int"),
    "no hidden units": (["--cell", "rnn", "--hidden", "0"], "at least 1"),
    "a wide linear cell": (["--hidden", "3"], "one hidden unit"),
    "a cut every 9 of 4 steps": (["--cut-every", "9"], "--cut-every 9: the sequence has 4 steps; give at most 4"),
    "a cut every 3 of 2 numbers": (["--x", "1,2", "--cut-every", "3"], "the sequence has 2 steps; give at most 2"),
    "a cut every 0 steps": (["--cut-every", "0"], "--cut-every: expected at least 1"),
    "an unknown name": (["--set", "q=2"], "one of the names w_x"),
    "a name without a number": (["--set", "w_h"], "NAME=V"),
    "words as numbers": (["--x", "1,two"], "'two'"),
    "numbers that are none": (["--set", "w_h=nan"], "finite"),
    "too many numbers": (["--set", "w_h=1,2"], "expected 1 number "),
    "too few inputs": (["--steps", "4", "--x", "1,2"], "expected 4 numbers, one for each step, found 2"),
    "too few targets": (["--y", "1"], "expected 4 numbers"),
    "a length beyond the end": (["--lengths", "9"], "from 0 to 4, found 9"),
    "a negative seed": (["--seed", "-1"], "at least 0"),
    "a loss that overflows": (["--set", "w_h=1e200"], "the loss is"),
    "a page in no folder": (["--html", "{tmp}/none/page.html"], "no such folder"),
    "a folder as page": (["--html", "{tmp}"], "a folder of that name"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_ends_in_one_line_and_code_2(name, tmp_path, capsys):
    options, words = BAD[name]
    try:
        code = cli.main(["derive", *[o.replace("{tmp}", str(tmp_path)) for o in options]])
    except SystemExit as stop:  # argparse's own way out
        code = stop.code
    out, error = capsys.readouterr()
    assert code == 2 and words in error and "Traceback" not in error and out == "", error
    assert error.strip().splitlines()[-1].startswith("minibptt") and not list(tmp_path.iterdir())


def test_it_is_plain_ascii_on_a_pipe_that_cannot_print_more():
    result = subprocess.run(
        [sys.executable, "-m", "minibptt", "derive", "--cell", "gru", "--steps", "2", "--cut-every", "1"],
        capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )  # fmt: skip
    assert result.returncode == 0 and result.stdout.isascii(), result.stderr
    out = result.stdout.decode()
    assert "dL/dW_h" in out and "8< dropped" in out and "?" not in out and max(map(len, out.splitlines())) <= 100


def test_the_command_and_the_function_agree(capsys):
    assert cli.main(["derive", "--cell", "lstm", "--steps", "3", "--wrt", "b", "--seed", "4"]) == 0
    shown = re.search(r"∂L/∂b = the sum of 3 terms = \[(.*?)\]", capsys.readouterr().out.replace("\n", " "))[1]
    rng = mb.module.generator(4)
    cell = mb.LSTMCell(1, 1, rng=rng, dtype=np.float64)
    # The inputs are drawn after the weights of the cell.
    for p in cell.parameters().values():
        mb.assign(p, np.round(p.value, 1))
    x = np.round(rng.standard_normal(3), 1).reshape(3, 1, 1)
    with mb.Tape() as tape:
        outputs, _ = mb.unroll(cell, x, engine="explicit")
        loss = mb.mse(outputs, outputs.value * 0)
    found = [float(v.replace("−", "-")) for v in shown.split(",")]
    np.testing.assert_allclose(found, tape.gradient(loss, cell.b), rtol=1e-3)
