"""compare_training: when it compares, and that a k which is enough at first is not when longer lags are learnt."""

import csv
import json

import numpy as np
import pytest
from toys import Scalar

import minibptt as mb

X = np.arange(1.0, 7.0).reshape(6, 1, 1)


def total(outputs, y, mask=None):
    return mb.sum(outputs)


def train(model, steps, rate=0.0):
    for _ in range(steps):
        mb.assign(model.w, model.w.value + rate)
        yield


def history(steps, every, schedules=(), **options):
    model = Scalar()
    options = {"state": [[2.0]], **options}
    return mb.compare_training(
        train(model, steps, 0.1), model, X, None, total, schedules or [mb.tbptt(2), mb.full()], every=every, **options
    )


@pytest.mark.parametrize(
    "steps, every, moments", [(6, 3, (0, 3, 6)), (7, 3, (0, 3, 6, 7)), (2, 5, (0, 2)), (1, 1, (0, 1))]
)
def test_it_compares_before_the_first_step_after_every_so_many_and_after_the_last(steps, every, moments):
    h = history(steps, every)
    assert tuple(done for done, _ in h.moments) == moments == h.series("full")[0]
    for done, found in h.moments:  # the weights are those after so many steps: the loss is Σ h at w = ½ + 0.1·done
        w, s, loss = 0.5 + 0.1 * done, 2.0, 0.0
        for v in range(1, 7):
            s = w * s + v
            loss += s
        assert found.loss == pytest.approx(loss, rel=1e-12) and found.about["trained_steps"] == done


def test_the_first_moment_has_the_numbers_worked_by_hand_and_the_series_is_that_of_its_row():
    # w = ½, h₀ = 2, x = 1 … 6, full 38.8125; chunks of 2 at 2, 4: 31.5.
    h = history(2, 1)
    steps, means, lows, highs = h.series(mb.tbptt(2))
    row = h.moments[0][1].rows[0]
    assert row.values["share"][0] == pytest.approx(31.5 / 38.8125, rel=1e-14)
    assert (means[0], lows[0], highs[0]) == (
        row.spread("share").mean,
        min(row.values["share"]),
        max(row.values["share"]),
    )
    assert h.series("k=2", "share", "w") == (steps, means, lows, highs)  # the cell has one parameter
    assert h.schedules == (mb.tbptt(2), mb.full()) and h.series(mb.full(), "error")[1] == (0, 0, 0)
    assert h.moments[0][1].rows[0].seconds is None


def test_schedules_may_be_an_iterator_and_drawn_ones_are_drawn_alike_at_every_moment():
    model = Scalar()
    schedules = iter([mb.artbp(0.3)])
    h = mb.compare_training(train(model, 2), model, X, None, total, schedules, every=1, draws=5)
    values = [found.rows[0].values for _, found in h.moments]
    assert len(values) == 3 and values[0] == values[1] == values[2] and len(values[0]["share"]) == 5


def test_a_window_of_one_step_keeps_less_as_the_model_learns_a_lag_of_three():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (32, 16, 1))
    y = np.concatenate([x[:3] * 0, x[:-3]])[..., 0]
    model = mb.Sequential(mb.RNNCell(1, 16, rng=1), mb.Linear(16, 2, rng=2))

    def training():
        optimiser = mb.Adam(model, lr=0.01)
        for _ in range(60):
            with mb.Tape() as tape:
                loss = mb.cross_entropy(model(x)[0], y)
            optimiser.step(tape.gradient(loss, model))
            yield

    h = mb.compare_training(training(), model, x, y, mb.cross_entropy, [mb.tbptt(1), mb.tbptt(32)], every=30)
    assert [done for done, _ in h.moments] == [0, 30, 60]
    assert h.moments[-1][1].loss < h.moments[0][1].loss - 0.1
    _, errors, _, _ = h.series("k=1", "error")
    assert errors[-1] > errors[0] and h.series("k=32", "error")[1] == (0, 0, 0)


def test_table_html_csv_and_json_hold_the_same_numbers(tmp_path):
    h = history(3, 1, title="a <line>")
    h.to_csv(tmp_path / "h.csv")
    h.to_json(tmp_path / "h.json")
    with open(tmp_path / "h.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    data = json.loads((tmp_path / "h.json").read_text(encoding="utf-8"))
    means = h.series("k=2")[1]
    assert [float(r["share_mean"]) for r in rows if (r["schedule"], r["part"]) == ("k=2", "all")] == list(means)
    assert {r["part"] for r in rows} == {"all", "w"} and len(rows) == 4 * 2 * 2
    for moment, (done, found) in zip(data["moments"], h.moments):
        assert moment["training_steps"] == done
        assert moment["rows"][0]["by_part"]["w"]["error"] == list(found.rows[0].by_part["w"]["error"])
    lines = h.table().splitlines()
    assert lines[0] == "Kept share over training: a <line>" and len(lines) == 5 + 4
    for line, mean in zip(lines[5:], means):
        assert f"{mean:.3f}" in line and f"{mean:.3f}" in h._repr_html_()
    assert "a &lt;line&gt;" in h._repr_html_()
    assert "Relative error of w over training" in h.table("error", "w")


def test_a_table_of_many_schedules_goes_on_below_within_its_width():
    h = history(1, 1, [mb.tbptt(k) for k in range(1, 7)])
    lines = h.table(width=50).splitlines()
    assert max(map(len, lines[3:])) <= 50 and sum(line.startswith("steps") for line in lines) == 2
    assert all(f"k={k}" in h.table(width=50) for k in range(1, 7))


@pytest.mark.parametrize(
    "change, error, words",
    [
        ({"every": 0}, ValueError, "every must be at least 1, found 0"),
        ({"every": 2.5}, TypeError, "every must be a whole number, found 2.5"),
        ({"training": ()}, ValueError, "made no step"),
        ({"training": 3}, TypeError, "found int"),
        ({"training": lambda: iter([1])}, TypeError, "found function: call it"),
        ({"schedules": []}, ValueError, "at least one schedule"),
        ({"draws": 0}, ValueError, "draws must be at least 1, found 0"),
    ],
)
def test_bad_input_is_refused_with_what_was_found(change, error, words):
    model = Scalar()
    arguments = {"training": train(model, 1), "schedules": [mb.tbptt(2)], "every": 1} | change
    with pytest.raises(error, match=words):
        mb.compare_training(model=model, x=X, y=None, loss=total, **arguments)


def test_what_is_not_there_is_an_error_that_lists_what_is():
    h = history(1, 1)
    with pytest.raises(ValueError, match=r"schedule must be one of 'k=2', 'full'; found 'k=8'"):
        h.series(mb.tbptt(8))
    with pytest.raises(ValueError, match="measure must be one of 'share'"):
        h.series("full", "shape")
    with pytest.raises(ValueError, match="part must be one of 'w'; found 'v'"):
        h.table(part="v")
