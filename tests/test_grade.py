"""Grading: whatever a notebook does, its grade says what, and the next one is graded."""

import json

import pytest

from minibptt import cli
from minibptt.lessons import grade as grading
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


def test_a_thread_that_a_notebook_leaves_running_holds_nothing_up(tmp_path, monkeypatch):
    ended = []
    run = grading._run
    monkeypatch.setattr(grading, "_run", lambda *given: ended.append(run(*given)) or ended[-1])
    thread = "import threading\nthreading.Thread(target=threading.Event().wait).start()"
    result = grade(notebook(tmp_path / "a.ipynb", thread, *SOLVED), seconds=30)
    assert statuses(result) == ["right"] * 3 and not result.problems
    assert ended == [""]  # by itself, and not because its time was over


def test_a_process_that_fails_with_a_thread_running_ends_with_code_1(tmp_path):
    spoil = "import json\ndef dumps(*_): raise MemoryError\njson.dumps = dumps"
    thread = "import threading\nthreading.Thread(target=threading.Event().wait).start()"
    result = grade(notebook(tmp_path / "a.ipynb", thread, spoil, "x = 1"), seconds=60)
    assert "the process ended with code 1" in result.problems[-1]


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
    assert cli.main(["lessons", "grade", str(bad), str(good), "--json", str(tmp_path / "all.json")]) == 2
    out, err = capsys.readouterr()
    assert err.strip() == f"minibptt: not graded: {bad}. What each lacks is said above"
    assert "not a notebook" in out and f"{good}: lesson 2, your name: 3 of 3" in out and "ZeroDivisionError" in out
    found = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))
    assert [one["points"] for one in found] == [0, 3] and found[1]["exercises"][0]["status"] == "right"
    results = tmp_path / "results.json"
    assert cli.main(["lessons", "grade", str(good), "--gradescope", str(results)]) == 0
    form = json.loads(results.read_text(encoding="utf-8"))
    assert form["score"] == 3 and [t["max_score"] for t in form["tests"]] == [1, 1, 1] and "cell" in form["output"]
    assert cli.main(["lessons", "grade", str(bad), str(good), "--gradescope", str(results)]) == 2
    capsys.readouterr()
    assert cli.main(["lessons", "grade", str(bad), "--json", "-"]) == 2
    assert json.loads(capsys.readouterr().out)[0]["problems"]
    with pytest.raises(SystemExit):
        cli.main(["lessons", "grade", "--help"])
    assert "NO SANDBOX" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("option", ["--json", "--gradescope"])
def test_a_file_that_cannot_be_written_is_refused_before_any_notebook_runs(option, tmp_path, monkeypatch, capsys):
    def never(*_, **__):
        raise AssertionError("a notebook was run")

    monkeypatch.setattr(grading, "grade", never)
    mine = notebook(tmp_path / "a.ipynb", "x = 1")
    (tmp_path / "file.txt").write_text("mine")
    for where, says in (
        (tmp_path, "it is a folder. Give the name of a file"),
        (tmp_path / "absent" / "x.json", f"there is no folder {tmp_path / 'absent'}"),
        (tmp_path / "file.txt" / "x.json", "there is no folder"),
        (tmp_path / ("x" * 300), "File name too long"),
        (mine, "is a notebook; give the name of a file to write"),
    ):
        assert cli.main(["lessons", "grade", str(mine), option, str(where)]) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"minibptt: {option} {where}") and says in err, err
    one = str(tmp_path / "one.json")
    assert cli.main(["lessons", "grade", str(mine), "--json", one, "--gradescope", one]) == 2
    assert "give two" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.ipynb", "file.txt"]
    assert (tmp_path / "file.txt").read_text() == "mine"


def test_a_file_that_cannot_be_read_ends_in_code_2_and_the_others_are_graded(tmp_path, capsys):
    good, unknown = (notebook(tmp_path / f"{name}.ipynb", *SOLVED) for name in ("good", "unknown"))
    unknown.write_text(json.dumps({"cells": []}))
    missing = tmp_path / "missing.ipynb"
    assert cli.main(["lessons", "grade", str(good), "--json", str(tmp_path / "a.json")]) == 0
    capsys.readouterr()
    assert cli.main(["lessons", "grade", *map(str, (missing, good, unknown))]) == 2
    out, err = capsys.readouterr()
    assert f"{good}: lesson 2, your name: 3 of 3" in out and "cannot be read" in out
    assert err.startswith(f"minibptt: not graded: {missing}, {unknown}.")


def test_a_name_cannot_steer_the_terminal_or_end_the_grading(tmp_path, capsys):
    name = "\x1b[31mAda\x9b2J \u202eecalevoL\x07"
    cells = [code.replace('"your name"', ascii(name)) for code in SOLVED]
    path, out = notebook(tmp_path / "a.ipynb", *cells, r"raise ValueError('\ud800')"), tmp_path / "a.json"
    assert cli.main(["lessons", "grade", str(path), "--json", str(out)]) == 0
    shown = capsys.readouterr().out
    assert r"\x1b[31mAda\x9b2J \u202eecalevoL\x07" in shown and "3 of 3" in shown
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert json.loads(out.read_text(encoding="utf-8"))[0]["student"] == name
    assert "\\ud800" in out.read_text(encoding="utf-8")  # half a character, which UTF-8 cannot write
    assert cli.main(["lessons", "grade", str(path), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["student"] == name


def test_a_table_can_be_made_of_nothing():
    assert table([]) == ""
