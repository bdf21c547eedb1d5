"""Texts, real data and synthetic tasks, against the baselines of the literature."""

import math
import sys
import types
import zipfile

import numpy as np
import pytest

import minibptt as mb
from minibptt import data, tasks
from minibptt.progress import Progress


def test_text_targets_are_one_character_ahead_and_windows_reach_both_ends():
    task = tasks.text_task("abcdefghij", 4)
    x, y = task.sample(3)
    assert x.shape == (4, 3) and x.T.tolist()[0] == [0, 1, 2, 3] and y.T.tolist()[-1] == [6, 7, 8, 9]
    assert np.array_equal(x[1:], y[:-1]) and task.symbols == "abcdefghij" and task.inputs == task.outputs == 10
    for x, y in (task.batch(np.random.default_rng(seed), 50) for seed in range(3)):
        assert np.array_equal(y, x + 1) and x.min() == 0 and y.max() == 9


def test_a_text_of_just_enough_characters_will_do_and_one_less_will_not():
    assert tasks.text_task("abcde", 4).sample(2)[0].T.tolist() == [[0, 1, 2, 3]] * 2
    with pytest.raises(tasks.TaskError, match=r"has 4 characters.*need 5"):
        tasks.text_task("abcd", 4)


def test_the_entropy_of_a_text_is_its_baseline():
    assert math.isclose(tasks.text_task("aabb" * 10, 4).baseline, math.log(2))


def test_the_standard_library_is_read_where_it_is_zipped_too(tmp_path, monkeypatch):
    archive = tmp_path / "library.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("zipped_module.py", "value = 'found in a zip'\n" * 3)
    monkeypatch.setattr(data, "_MODULES", ["zipped_module"])
    monkeypatch.syspath_prepend(str(archive))
    assert data.standard_library(30) == ("value = 'found in a zip'\n" * 3)[:30]
    monkeypatch.setattr(data, "_MODULES", ["no_such_module_anywhere", "sys"])
    with pytest.raises(tasks.TaskError, match="without source"):
        data.standard_library()
    assert "zipped_module" not in sys.modules  # read, not imported


def test_the_standard_library_is_long_and_the_same_each_time():
    text = data.standard_library(200_000)
    assert len(text) == 200_000 and text == data.standard_library(200_000) and "def " in text


def test_the_coin_has_its_probabilities():
    x, y = tasks.coin_task(400).batch(np.random.default_rng(0), 400)
    bits = x[..., 0]
    a, b, y = bits[5:-3], bits[:-8], y[8:]
    for three in (0, 1):
        for eight in (0, 1):
            rate = y[(a == three) & (b == eight)].mean()
            assert abs(rate - (0.5 + 0.5 * three - 0.25 * eight)) < 4 * 0.5 / math.sqrt(390 * 400 / 4)
    entropy = -sum(p * math.log(p) for p in (0.625, 0.375))
    assert round(entropy, 4) == tasks.coin_task(9).baseline == 0.6616


def test_adding_marks_one_number_in_each_half_and_its_mean_predictor_scores_a_sixth():
    task = tasks.adding_task(21)
    x, y = task.batch(np.random.default_rng(0), 20_000)
    marks = x[..., 1]
    assert (marks.sum(0) == 2).all() and (marks[:10].sum(0) == 1).all()
    np.testing.assert_allclose((x[..., 0] * marks).sum(0), y[:, 0], rtol=1e-6)
    error = np.square(y - 1.0)
    assert abs(error.mean() - task.baseline) < 4 * error.std() / math.sqrt(20_000)


@pytest.mark.parametrize("delay, baseline", [(50, 0.2971), (100, 0.1733), (200, 0.0945), (500, 0.0400)])
def test_copy_without_memory_scores_what_the_paper_says(delay, baseline):
    task = tasks.copy_task(delay + 20)
    assert round(task.baseline, 4) == baseline
    x, y = task.batch(np.random.default_rng(0), 3)
    assert np.array_equal(x[:10], y[-10:]) and x[10 : delay + 9].tolist() == [[8] * 3] * (delay - 1)
    assert x[delay + 9].tolist() == [9] * 3 and (y[: delay + 10] == 8).all()


def test_tasks_draw_from_the_generator_given_and_leave_the_global_one_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    for name in ("coin", "adding", "copy", "labels"):
        task = tasks.TASKS[name](30)
        one, two = (task.batch(np.random.default_rng(3), 4) for _ in range(2))
        assert all(np.array_equal(a, b) for a, b in zip(one, two))
        assert all(np.array_equal(a, b) for a, b in zip(task.sample(2), task.sample(2)))
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


# Each line over its labels, written by hand: n name, 0 number, s string, c comment, o operator.
SOURCE = [
    ("# say x", "ccccccc"),
    ("def f(a, b=1.5e3):", "nnn nono no00000oo"),
    ("\treturn f\"x {a + 'é':>{b}} y\" \\", " nnnnnn sssssssssssssssssssss  "),
    ("        + b'q'  # é", "        o ssss  ccc"),
    ("\x0c", " "),
    ("s = '''two", "n o ssssss"),
    ("lines'''", "ssssssss"),
]
LETTERS = {"space": " ", "name": "n", "number": "0", "string": "s", "comment": "c", "operator": "o"}


def test_every_character_of_python_source_has_the_type_of_its_token():
    source = "\n".join(line for line, _ in SOURCE)
    text, labels = data.token_labels(source)
    assert text == source
    found, at = "".join(LETTERS[data.LABELS[label]] for label in labels), 0
    for line, expected in SOURCE:
        assert found[at : at + len(line)] == expected, line
        assert found[at + len(line) : at + len(line) + 1] in ("s" if "two" in line else "", " ", "")
        at += len(line) + 1


@pytest.mark.parametrize("tail", ["s = '''never ends\n", "f((1,\n", "if x:\n  a\n b\n"])
def test_source_ends_before_what_cannot_be_tokenized(tail):
    text, labels = data.token_labels("a = 1\n" + tail)
    assert len(text) == len(labels) and text.startswith("a = 1")
    assert ("a = 1\n" + tail).startswith(text) and "'''" not in text


def test_the_labels_of_the_standard_library_agree_with_what_the_characters_say():
    text, labels = data.token_labels(data.standard_library(100_000))
    assert len(text) > 90_000
    characters, names = np.array([*text]), np.array(data.LABELS)[labels]
    assert set(characters[names == "space"]) <= {*" \n\\\x0c\t"}
    assert all(c.isalnum() or c == "_" for c in set(characters[names == "name"]))
    assert not any(c.isalnum() or c in " \n" for c in set(characters[names == "operator"]))
    assert set(characters[np.flatnonzero(np.diff(labels == 4, prepend=0) == 1)]) == {"#"}


def test_the_labels_task_gives_windows_of_text_and_labels_at_the_same_places():
    task = tasks.labels_task(5, "ab = 'c'\n" * 40)
    x, y = task.sample(3)
    assert x.shape == y.shape == (5, 3) and task.inputs == 7 and task.outputs == len(data.LABELS)
    starts = np.linspace(0, 355, 3).astype(int)
    text, labels = data.token_labels("ab = 'c'\n" * 40)
    for b, start in enumerate(starts):
        assert "".join(task.symbols[i] for i in x[:, b]) == text[start : start + 5]
        assert np.array_equal(y[:, b], labels[start : start + 5])
    rates = {"name": 2 / 9, "operator": 1 / 9, "string": 3 / 9, "space": 3 / 9}
    assert math.isclose(task.baseline, -sum(p * math.log(p) for p in rates.values()))
    with pytest.raises(tasks.TaskError, match=r"6 characters can be tokenized, and a sequence has 7 steps"):
        tasks.labels_task(7, "a = 1\n")


def test_digits_are_read_row_by_row_and_the_class_is_asked_at_the_end(monkeypatch):
    """On two images made here, so that it runs without scikit-learn too."""
    images = np.zeros((2, 8, 8))
    images[1] = np.arange(64).reshape(8, 8) / 4
    fake = types.ModuleType("sklearn.datasets")
    fake.load_digits = lambda: types.SimpleNamespace(images=images, target=np.array([3, 7]))
    monkeypatch.setitem(sys.modules, "sklearn", types.ModuleType("sklearn"))
    monkeypatch.setitem(sys.modules, "sklearn.datasets", fake)
    task = tasks.digits_task(8)
    x, y = task.batch(np.random.default_rng(0), 20)
    assert x.shape == (8, 20, 8) and x.dtype == np.float32 and set(y) == {3, 7}
    for b in range(20):
        assert np.array_equal(x[:, b] * 16, images[int(y[b] == 7)])
    outputs = np.zeros((8, 20, 10))
    assert math.isclose(task.loss(mb.Tensor(outputs), y).item(), task.baseline)
    outputs[:-1] = 99 * np.random.default_rng(1).standard_normal((7, 20, 10))  # only the last step counts
    outputs[-1, np.arange(20), y] = 50
    assert task.loss(mb.Tensor(outputs), y).item() < 1e-12
    with pytest.raises(tasks.TaskError, match="give --length 8, found 128"):
        tasks.TASKS["digits"](128)


def test_digits_of_scikit_learn_are_about_as_many_of_each_class():
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    images, classes = data.digits()
    assert images.shape == (1797, 8, 8) and images.min() == 0 and images.max() == 1
    counts = np.bincount(classes)
    assert len(counts) == 10 and counts.min() > 170 and counts.max() < 190


def test_digits_without_scikit_learn_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(tasks.TaskError, match=r"pip install 'minibptt\[digits\]'"):
        tasks.digits_task(8)


class Stream:
    def __init__(self, terminal):
        self.terminal, self.text, self.encoding = terminal, "", "utf-8"

    def isatty(self):
        return self.terminal

    def write(self, text):
        self.text += text

    def flush(self):
        pass


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_silent_for_two_seconds_and_then_speaks(terminal, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("minibptt.progress.time.monotonic", lambda: now[0])
    stream = Stream(terminal)
    progress = Progress("working", 100, stream)
    for done in range(1, 101):
        now[0] += 0.25
        progress(done)
        if now[0] < 2:
            assert stream.text == ""
    progress.end()
    lines = stream.text.replace("\r", "\n").split("\n")
    said = [line for line in lines if line.strip()]
    assert "working: 8 of 100, about 23 s left" in said[0]
    assert len(said) > 80 if terminal else len(said) == 3  # at 2, 12 and 22 seconds
    assert terminal == ("\r" in stream.text)


@pytest.mark.parametrize("make", [tasks.adding_task, tasks.copy_task, tasks.coin_task, tasks.labels_task])
@pytest.mark.parametrize("wrong", [25.5, "25", None, True, 25.0])
def test_a_length_that_is_no_whole_number_is_named(make, wrong):
    with pytest.raises(TypeError, match=rf"{make.__name__}: T must be a whole number, found {wrong!r}"):
        make(wrong)


@pytest.mark.parametrize("wrong", [b"abcdefgh", bytearray(b"abcdefgh"), 3, list("abcdefgh"), np.arange(8)])
def test_a_text_that_is_no_string_is_named(wrong):
    for make in (
        lambda: tasks.text_task(wrong, 3),
        lambda: tasks.labels_task(3, wrong),
        lambda: tasks.character_ids(wrong),
    ):
        with pytest.raises(TypeError, match=f"the text must be a string, found {type(wrong).__name__}") as error:
            make()
        assert ("decode" in str(error.value)) == isinstance(wrong, bytes | bytearray)
