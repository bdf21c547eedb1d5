"""Texts and synthetic tasks, against the baselines of the literature."""

import math
import sys
import zipfile

import numpy as np
import pytest

from minibptt import tasks
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
    monkeypatch.setattr(tasks, "_MODULES", ["zipped_module"])
    monkeypatch.syspath_prepend(str(archive))
    assert tasks.standard_library(30) == ("value = 'found in a zip'\n" * 3)[:30]
    monkeypatch.setattr(tasks, "_MODULES", ["no_such_module_anywhere", "sys"])
    with pytest.raises(tasks.TaskError, match="without source"):
        tasks.standard_library()
    assert "zipped_module" not in sys.modules  # read, not imported


def test_the_standard_library_is_long_and_the_same_each_time():
    text = tasks.standard_library(200_000)
    assert len(text) == 200_000 and text == tasks.standard_library(200_000) and "def " in text


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
    for make in tasks.TASKS.values():
        task = make(30)
        one, two = (task.batch(np.random.default_rng(3), 4) for _ in range(2))
        assert all(np.array_equal(a, b) for a, b in zip(one, two))
        assert all(np.array_equal(a, b) for a, b in zip(task.sample(2), task.sample(2)))
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


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
