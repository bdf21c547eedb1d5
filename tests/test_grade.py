"""Grading: whatever a notebook does, its grade says what, and the next one is graded."""

import json

import pytest

from minibptt import cli
from minibptt.lessons import notebooks
from minibptt.lessons.grade import grade, table

LESSON = next(lesson for lesson in notebooks.lessons() if lesson.number == 2)
SOLVED = [code for _, code in notebooks.code_of(notebooks.read(LESSON.path("instructor")))]


def notebook(path, *cells, metadata=None):
    """A notebook of lesson 2 with these code cells."""
    made = [{"cell_type": "code", "source": code, "metadata": {}, "outputs": []} for code in cells]
    metadata = {"minibptt": {"lesson": "02"}} if metadata is None else metadata
    path.write_text(json.dumps({"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}))
    return path


def statuses(result):
    return [mark.status for mark in result.marks]


def test_a_solved_notebook_has_all_points_and_an_empty_one_none():
    solved = grade(LESSON.path("instructor"))
    assert statuses(solved) == ["right"] * 3 and solved.points == solved.most == 3 and not solved.problems
    assert solved.student == "your name"
    empty = grade(LESSON.path("student"))
    assert statuses(empty) == ["not answered"] * 3 and empty.points == 0 and not empty.problems


def test_an_error_in_a_cell_is_named_and_the_other_exercises_count(tmp_path):
    cells = [code.replace("δ3 = n.d[2]", "δ3 = n.e[2]") for code in SOLVED]
    result = grade(notebook(tmp_path / "a.ipynb", *cells, "1 / 0", "x = 1\ny = undefined", "%matplotlib inline\n!ls"))
    assert statuses(result) == ["error", "right", "right"]
    assert "AttributeError" in result.marks[0].says and "line" in result.marks[0].says
    assert len(result.problems) == 3 and "cell" in result.problems[0]
    assert "ZeroDivisionError: division by zero (line 1)" in result.problems[1] and "(line 2)" in result.problems[2]


@pytest.mark.parametrize(
    "code, says",
    [
        ("while True:\n    pass", "did not end within 1 seconds"),
        ("while True:\n    try:\n        while True: pass\n    except Exception: pass", "did not end within 1 seconds"),
        ("x = []\nwhile True:\n    x.append(bytearray(10**7))", "out of memory"),
        ("import numpy as np\nx = np.ones((10**6, 10**6))", "out of memory"),
        ("import sys\nsys.exit()", "SystemExit"),
        ("input('a number?')", "EOFError"),
        ("def f():\n    return f()\nf()", "RecursionError"),
        ("if True\n    pass", "SyntaxError"),
        ("print('x' * 10**7)", None),
    ],
)
def test_a_cell_that_never_ends_or_fills_memory_is_named_and_the_next_cells_run(tmp_path, code, says):
    result = grade(
        notebook(tmp_path / "a.ipynb", code, *SOLVED), cell_seconds=1 if says and "end" in says else 30, megabytes=1024
    )
    assert statuses(result) == ["right"] * 3
    assert result.problems == [] if says is None else (says in result.problems[0] and "cell 1" in result.problems[0])


@pytest.mark.parametrize(
    "code, says",
    [
        ("import os\nos._exit(3)", "ended with code 3, in cell 3"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "killed by signal 11, in cell 3"),
        (
            "import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: pass",
            "within 6 seconds, in cell 3",
        ),
    ],
)
def test_a_notebook_that_kills_its_process_or_cannot_be_stopped_is_named(tmp_path, code, says):
    result = grade(notebook(tmp_path / "a.ipynb", "x = 1", "y = 2", code), cell_seconds=1, seconds=6)
    assert says in result.problems[-1]
    assert statuses(result) == ["error"] * 3 and result.points == 0


def test_a_check_that_never_ends_leaves_the_others(tmp_path):
    cells = [*SOLVED, "def truncated(h_prev, w_h, k):\n    while True: pass"]
    result = grade(notebook(tmp_path / "a.ipynb", *cells), cell_seconds=2)
    assert statuses(result) == ["right", "error", "right"] and "did not end" in result.marks[1].says


def test_what_is_not_a_notebook_is_said_to_be_none(tmp_path):
    for name, content, says in (
        ("a.ipynb", b"{", "not JSON"),
        ("b.ipynb", b"\xff\xfe\x00", "not JSON"),
        ("c.ipynb", b"[" * 100_000, "not JSON"),
        ("d.ipynb", b'{"worksheets": []}', "no list of cells"),
        ("e.ipynb", b'{"cells": [3]}', "a cell has no source"),
        ("f.ipynb", b'{"cells": [], "metadata": []}', "which lesson"),
        ("g.ipynb", b'{"cells": [], "metadata": {"minibptt": {"lesson": "77"}}}', "no exercises"),
    ):
        (tmp_path / name).write_bytes(content)
        assert says in grade(tmp_path / name).problems[0]
    assert "cannot be read" in grade(tmp_path / "missing.ipynb").problems[0]
    assert "cannot be read" in grade(tmp_path).problems[0]


def test_the_lesson_is_known_by_the_checks_or_the_name_where_metadata_are_gone(tmp_path):
    assert grade(notebook(tmp_path / "mine.ipynb", *SOLVED, metadata={})).points == 3
    assert grade(notebook(tmp_path / "02_linear (3).ipynb", "x = 1", metadata={})).lesson == 2
    assert grade(notebook(tmp_path / "mine.ipynb", "x = 1", metadata={}), lesson=2).lesson == 2


def test_a_students_own_checks_change_nothing(tmp_path):
    (tmp_path / "minibptt.py").write_text("raise SystemExit('not the package')")
    fake = "class check:\n    exercise = seed = numbers = hint = staticmethod(lambda *a: print('is right'))\n"
    stubs = "def my_adjoints(): return 1\ndef truncated(*a): return 1\ndef cut_loop(*a): return 1\n"
    result = grade(notebook(tmp_path / "a.ipynb", "import minibptt as mb", fake + stubs))
    assert statuses(result) == ["wrong"] * 3 and not result.problems


def test_grade_prints_a_table_and_writes_json_and_gradescopes_format(tmp_path, capsys):
    bad, good = tmp_path / "bad.ipynb", notebook(tmp_path / "good.ipynb", *SOLVED[:-1], "1/0")
    bad.write_text("no")
    assert cli.main(["lessons", "grade", str(bad), str(good), "--json", str(tmp_path / "all.json")]) == 0
    out = capsys.readouterr().out
    assert "not a notebook" in out and f"{good}: lesson 2, your name: 3 of 3" in out and "ZeroDivisionError" in out
    found = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))
    assert [one["points"] for one in found] == [0, 3] and found[1]["exercises"][0]["status"] == "right"
    results = tmp_path / "results.json"
    assert cli.main(["lessons", "grade", str(good), "--gradescope", str(results)]) == 0
    form = json.loads(results.read_text(encoding="utf-8"))
    assert form["score"] == 3 and [t["max_score"] for t in form["tests"]] == [1, 1, 1] and "cell" in form["output"]
    assert cli.main(["lessons", "grade", str(bad), str(good), "--gradescope", str(results)]) == 2
    capsys.readouterr()
    assert cli.main(["lessons", "grade", str(bad), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["problems"]
    with pytest.raises(SystemExit):
        cli.main(["lessons", "grade", "--help"])
    assert "NO SANDBOX" in " ".join(capsys.readouterr().out.split())


def test_a_table_can_be_made_of_nothing():
    assert table([]) == ""
