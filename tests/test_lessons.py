"""The course: notebooks are as their sources say, lessons run, stubs stop, and checks know right from wrong."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from minibptt import cli, data
from minibptt.lessons import check, notebooks, registry, source

HERE = Path(__file__).parent
FOLDER = notebooks.folder()
LESSONS = notebooks.lessons()
EXERCISES = [one for lesson in LESSONS for one in registry.exercises_of(lesson.number)]
NAMES = [lesson.name for lesson in LESSONS]


def wrong_answers(lesson):
    path = HERE / "lessons" / f"wrong_{lesson:02d}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.WRONG


def run(*command, **options):
    return subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, check=False, **options)


def test_the_notebooks_are_as_their_sources_say():
    pytest.importorskip("jupytext")
    assert run("-m", "minibptt", "lessons", "build", "--check").stderr == ""
    assert [path.stem for path in sorted(FOLDER.glob("*.py"))] == NAMES


def test_a_source_that_is_wrong_is_an_error_that_says_where(tmp_path):
    pytest.importorskip("jupytext")
    head, stub = "# %% [markdown]\n# # 7. T\n", '# %% exercise="7.1"\nraise NotImplementedError("Exercise 7.1: x")\n'
    for text, says in (
        ("# %% [markdown]\n# # 3. T\n", 'start with "# 7. Title"'),
        (head + stub, "exercise 7.1 has no solution"),
        (head + '# %% solution="7.1"\nx = 1\n', "must come right after its stub"),
        (head + '# %% exercise="7.1"\nx = 1\n# %% solution="7.1"\nx = 1\n', "must raise NotImplementedError"),
        (head + "# %% excercise=1\nx = 1\n", "a cell says excercise"),
    ):
        (tmp_path / "07_x.py").write_text(text, encoding="utf-8")
        with pytest.raises(source.SourceError, match=re.escape(says)):
            source.built(tmp_path / "07_x.py")


@pytest.mark.parametrize("name", NAMES)
def test_a_solved_lesson_runs_in_a_fresh_kernel_without_a_warning_and_shows_a_figure(name, tmp_path):
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    as_users_have_it = {key: value for key, value in os.environ.items() if key != "MPLBACKEND"}
    path = FOLDER / "instructor" / f"{name}.ipynb"
    done = run(HERE / "lessons" / "execute.py", path, cwd=tmp_path, env=as_users_have_it)
    assert done.returncode == 0, done.stderr[-3000:]
    outputs = json.loads(done.stdout.splitlines()[-1])
    assert not [o for o in outputs if o["output_type"] == "stream" and o["name"] == "stderr"]
    assert any("image/png" in o.get("data", {}) for o in outputs)
    text = "".join(o["text"] for o in outputs if o["output_type"] == "stream")
    for one in registry.exercises_of(int(name[:2])):
        assert f"Exercise {one.name} is right." in text


@pytest.mark.parametrize("name", NAMES)
def test_a_students_lesson_runs_up_to_its_first_exercise_and_stops_there(name, tmp_path):
    notebook = notebooks.read(FOLDER / "student" / f"{name}.ipynb")
    script = tmp_path / "student.py"
    script.write_text("\n\n".join(code for _, code in notebooks.code_of(notebook)), encoding="utf-8")
    # What an old matplotlib with a new pyparsing warns of at import is not the lesson's.
    others = [f"ignore::DeprecationWarning:matplotlib.{module}" for module in ("_fontconfig_pattern", "_mathtext")]
    warnings = [option for rule in ("error", *others) for option in ("-W", rule)]
    done = run(*warnings, script, cwd=tmp_path, env={**os.environ, "MPLBACKEND": "Agg", "PYTHONUTF8": "1"})
    first = registry.exercises_of(int(name[:2]))[0].name
    assert f"NotImplementedError: Exercise {first}: " in done.stderr.splitlines()[-1], done.stderr
    assert "is right" not in done.stdout
    assert not any(cell.get("outputs") for cell in notebook["cells"])


@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_has_the_parts_that_lessons_have(name):
    student = notebooks.read(FOLDER / "student" / f"{name}.ipynb")
    text = "\n".join("".join(cell["source"]) for cell in student["cells"])
    for part in (
        "**Question.**",
        "**Predict",
        "**What broke?**",
        "## Exercises",
        "## Summary",
        "PyTorch",
        "*History.*",
    ):
        assert part in text, part
    names = [one.name for one in registry.exercises_of(int(name[:2]))]
    assert len(names) >= 3
    assert re.findall(r'check\.exercise\("([\d.]+)"', text) == names
    lines = [line for line in text.splitlines() if line.strip()]
    assert 60 <= len(lines) <= 150, len(lines)
    ids = [cell["id"] for cell in student["cells"]]
    assert len(set(ids)) == len(ids)


def test_the_readme_of_the_course_has_a_row_for_every_lesson():
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    for lesson in LESSONS:
        assert f"| {lesson.number} | {lesson.title} | {lesson.minutes} |" in text


def test_only_the_gpu_lesson_asks_for_a_gpu():
    assert {lesson.number for lesson in LESSONS if lesson.gpu} <= {12}


def test_the_gpu_lesson_takes_the_way_of_a_machine_with_cupy(tmp_path):
    """With the stand-in in CuPy's place: what needs a device is the numbers, not the lines."""
    code = "\n\n".join(code for _, code in notebooks.code_of(notebooks.read(LESSONS[12].path("instructor"))))
    head = "import sys\nfrom minibptt import standin\nstandin.xp.__name__ = 'cupy'\nsys.modules['cupy'] = standin.xp\n"
    (tmp_path / "there.py").write_text(head + code, encoding="utf-8")
    done = run(tmp_path / "there.py", cwd=tmp_path, env={**os.environ, "MPLBACKEND": "Agg", "PYTHONUTF8": "1"})
    assert done.returncode == 0, done.stderr[-2000:]
    assert "cupy: " in done.stdout and "GPU: about" in done.stdout and "Not measured" not in done.stdout
    assert all(f"Exercise {one.name} is right." in done.stdout for one in registry.exercises_of(12))
    # The lesson's own step and the table's are one: as many launches.
    own = re.search(r"\nunfused: (\d+) for 20 steps", done.stdout)
    table = re.search(r"\nlstm +32 +16 +20 +CPU +\S+ +\S+ … \S+ +(\d+) ", done.stdout)
    assert own and table and own[1] == table[1]


@pytest.mark.parametrize("one", EXERCISES, ids=lambda one: one.name)
def test_a_check_rejects_planted_wrong_answers_each_with_its_own_message(one):
    wrong = wrong_answers(int(one.name.split(".")[0]))[one.name]
    for student in "abcdefghijkl" if one.draw else "a":
        seed, said = registry.seed_of(student), []
        n = None if one.draw is None else SimpleNamespace(**one.numbers(seed))
        for make, says in wrong:
            answers = make(n)
            with pytest.raises(registry.NotYet) as caught:
                one.check(answers if isinstance(answers, tuple) else (answers,), seed)
            assert re.search(says, str(caught.value)), f"expected {says!r}, found: {caught.value}"
            said.append(str(caught.value))
        assert len(set(said)) == len(wrong) >= 3


@pytest.mark.parametrize("lesson", LESSONS, ids=NAMES)
def test_solutions_are_right_with_the_numbers_of_another_student_too(lesson, tmp_path):
    if not any(one.draw for one in registry.exercises_of(lesson.number)):
        pytest.skip("everybody has the same numbers")
    code = "\n\n".join(code for _, code in notebooks.code_of(notebooks.read(lesson.path("instructor"))))
    assert 'check.seed("your name")' in code
    (tmp_path / "other.py").write_text(code.replace('"your name"', '"Kurt"'), encoding="utf-8")
    done = run(tmp_path / "other.py", cwd=tmp_path, env={**os.environ, "MPLBACKEND": "Agg", "PYTHONUTF8": "1"})
    assert done.returncode == 0, done.stderr[-2000:]


def test_numbers_are_those_of_the_name_and_hints_come_one_by_one(capsys):
    assert check.seed(" Ada  LOVELACE ") == check.seed("ada lovelace") != check.seed("Grace Hopper")
    drawn = {str(registry.exercise_of("2.1").numbers(registry.seed_of(name))) for name in "abcdefgh"}
    assert len(drawn) > 3
    one = registry.exercise_of("2.1")
    for hint in (*one.hints, one.hints[-1]):
        check.hint("2.1")
        assert hint in capsys.readouterr().out
    for wrong in ("2.77", "x", "88.1"):
        with pytest.raises(ValueError, match="there is no exercise"):
            check.exercise(wrong, 1)
    with pytest.raises(ValueError, match="takes a name"):
        check.seed("")


def code_on_colab(path):
    """(the module that the first cell looks for, what it gives to pip) on Colab, without the package."""
    _, first = notebooks.code_of(notebooks.read(path))[0]
    asked = []

    def find(name):
        asked.append(name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "google.colab", object())
        patch.setattr("importlib.util.find_spec", find)
        patch.setattr(subprocess, "run", lambda command, **_: asked.append(command[-1]))
        exec(first, {})
    return tuple(asked)


def test_copy_gives_a_set_of_ones_own_and_leaves_what_is_there(tmp_path, capsys):
    out = tmp_path / "mine"
    assert cli.main(["lessons", "copy", str(out)]) == 0
    assert sorted(path.stem for path in out.iterdir()) == NAMES
    first = out / f"{NAMES[0]}.ipynb"
    assert first.read_bytes() == LESSONS[0].path("student").read_bytes()
    first.write_text("mine", encoding="utf-8")
    assert cli.main(["lessons", "copy", str(out)]) == 0
    assert first.read_text(encoding="utf-8") == "mine" and "Left as they were" in capsys.readouterr().out
    spec = 'minibptt @ git+https://example.org/"x"'
    assert cli.main(["lessons", "copy", str(tmp_path / "other"), "--solutions", "--install", spec]) == 0
    theirs, mine = (code_on_colab(folder / first.name) for folder in (FOLDER / "student", tmp_path / "other"))
    assert theirs == ("minibptt", "minibptt") and mine == ("minibptt", spec)
    assert cli.main(["lessons", "copy", str(first)]) == 2
    assert "it is a file" in capsys.readouterr().err


def test_list_names_every_lesson(capsys):
    assert cli.main(["lessons"]) == 0
    out = capsys.readouterr().out
    assert all(lesson.title in out for lesson in LESSONS)


def test_a_wheel_holds_the_notebooks_and_the_text_and_copies_them(tmp_path):
    pytest.importorskip("hatchling")
    root = HERE.parent
    done = run("-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist", cwd=root)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    command = ["-m", "minibptt", "lessons", "copy", tmp_path / "mine"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = run(*command, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert sorted(path.stem for path in (tmp_path / "mine").iterdir()) == NAMES
    where = run(
        "-c", "import minibptt.data as d; print(d.__file__, len(d.frozen_text()))", cwd=tmp_path, env=environment
    )
    assert str(tmp_path / "site") in where.stdout and where.stdout.split()[-1] == str(len(data.frozen_text()))
    build = run("-m", "minibptt", "lessons", "build", cwd=tmp_path, env=environment)
    assert build.returncode == 2 and "in a clone" in build.stderr


def test_the_frozen_text_is_long_plain_and_never_changes():
    import hashlib

    text = data.frozen_text()
    assert len(text) > 60_000 and set(text) <= {"\n", *map(chr, range(32, 127))}
    # What it was when it was frozen: the numbers of the lessons come from it.
    assert hashlib.sha256(text.encode()).hexdigest().startswith("d6593614ab5f9a4a")
