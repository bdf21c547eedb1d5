"""The clock is honest, the model is fitted, the file says where it comes from, and a machine without a GPU says so."""

import csv
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from strict_cupy import Queue, counted
from strict_cupy import xp as strict

import minibptt as mb
from minibptt import cli
from minibptt.benchmark import crossover, flops_of, launches_of, sweep, timed, training_step
from minibptt.timings import Benchmark, Timing, read

# --- the clock -----------------------------------------------------------------------------------------------------


def five_launches(device):
    for _ in range(5):
        device.launch(0.01)


def test_a_device_is_waited_for_before_the_clock_starts_and_before_it_stops():
    device = Queue()
    times = timed(lambda: five_launches(device), device.synchronize, least=2, seconds=0, warm_up=1, clock=device.clock)
    assert times == pytest.approx([0.05, 0.05])
    one = ["wait", "clock", *["launch"] * 5, "wait", "clock"]
    assert device.events == ["launch"] * 5 + one + one


def test_a_clock_that_does_not_wait_measures_how_fast_the_device_is_asked():
    device = Queue(launch=1e-4)
    asked = timed(lambda: five_launches(device), lambda: None, least=1, seconds=0, clock=device.clock)
    assert asked == pytest.approx([5e-4])


def test_a_clock_that_waits_only_at_the_end_counts_what_was_launched_before():
    device, waits = Queue(), []

    def only_at_the_end():
        waits.append(len(waits))
        if len(waits) % 2 == 0:
            device.synchronize()

    found = timed(lambda: five_launches(device), only_at_the_end, least=1, seconds=0, warm_up=1, clock=device.clock)
    assert found == pytest.approx([0.10])  # the warm-up was still in the queue


def test_the_number_of_runs_follows_the_time_within_its_bounds():
    for seconds, expected in ((0.001, 5), (0.5, 10), (100, 12)):
        device = Queue()
        found = timed(
            lambda d=device: five_launches(d), device.synchronize, seconds=seconds, most=12, clock=device.clock
        )
        assert len(found) in (expected, expected + 1)


def test_a_measurement_waits_for_the_device_on_both_sides(monkeypatch):
    with mb.use_backend("numpy"):
        model = mb.RNN(2, 3, rng=0)
    x = np.ones((4, 2, 2), np.float32)
    result, counts = counted(lambda: mb.benchmark(model, x, backends=[strict], seconds=0))
    (row,) = result.rows
    assert counts["syncs"] == 2 * row.runs and row.backend == "standin"
    assert "no device" in row.device


# --- what a step is ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", [mb.RNN, mb.LSTM, mb.GRU])
def test_launches_are_those_of_the_whole_sequence(layer):
    model, x = layer(3, 4, rng=0), np.random.default_rng(0).standard_normal((9, 2, 3)).astype(np.float32)
    there = layer(3, 4, rng=0).to(strict)
    with mb.use_backend(strict):
        _, counts = counted(lambda: training_step(there, mb.to_backend(x)))
    assert launches_of(model, x) == counts["launches"] < launches_of(model, x, fused=False)


def test_launches_are_counted_for_a_sequence_on_a_device_too():
    model, x = mb.GRU(3, 4, rng=0), np.random.default_rng(0).standard_normal((9, 2, 3)).astype(np.float32)
    there = mb.to_backend(x, strict)
    assert launches_of(model, there) == launches_of(model, mb.Tensor(there)) == launches_of(model, x)


def test_operations_are_counted_by_hand():
    # T·B rows; forward 2 operations for each weight, backward twice as many: W_x 3×8, W_h 2×8, W 2×5; biases not.
    model = mb.Sequential(mb.Embedding(50, 3, rng=0), mb.LSTM(3, 2, rng=0), mb.Linear(2, 5, rng=0))
    assert flops_of(model, T=10, B=4) == 6 * 40 * (24 + 16 + 10)


def test_a_model_of_token_ids_is_timed_and_left_as_it_is():
    model = mb.Sequential(mb.Embedding(5, 3, rng=0), mb.GRU(3, 4, dropout=0.5, layers=2, rng=1), mb.Linear(4, 5, rng=2))
    before = {name: p.value for name, p in model.named_parameters()}
    result = mb.benchmark(model, np.arange(12).reshape(6, 2) % 5, seconds=0, backends=["numpy"])
    assert [(r.T, r.B, r.place, r.cell) for r in result.rows] == [(6, 2, "CPU", "sequential")]
    assert all(p.value is before[name] for name, p in model.named_parameters()) and model.training
    r = result.rows[0]
    assert 0 < r.low <= r.median <= r.high and r.runs >= 5 and r.launches > 50


def test_the_gradient_that_is_timed_is_that_of_the_mean_square():
    model, x = mb.Linear(2, 1, bias=False, rng=0, dtype=np.float64), np.random.default_rng(0).standard_normal((3, 2, 2))
    y = x @ model.W.value
    np.testing.assert_allclose(training_step(model, x)["W"], (2 * y * x / 6).sum(axis=(0, 1))[:, None], rtol=1e-12)


# --- the model of the time, and the table ---------------------------------------------------------------------------


def synthetic(launch=5e-6, flop=1e-12, backend="cupy", cells=("lstm", "rnn"), batches=(1, 32), device="made up"):
    """Timings that no machine took: for tests alone."""
    rows = []
    for cell in cells:
        G = {"lstm": 4, "gru": 3, "rnn": 1}[cell]
        for B in batches:
            for H in (32, 64, 128, 256, 512):
                flops, launches = 6.0 * 50 * B * 2 * H * H * G, (1003 if G == 4 else 330) if backend == "numpy" else 260
                t = launches * launch + flops * flop
                about = dict(device=device, machine="made up", python="3", libraries="made up 1", date="2000-01-01")
                rows.append(
                    Timing(backend, cell, H, H, B, 50, "float32", 9, t, t * 0.9, t * 1.2, launches, flops, **about)
                )
    return rows


def both(**about):
    return Benchmark(tuple(synthetic(1e-6, 3e-11, "numpy") + synthetic()), **about)


def test_the_fit_finds_what_the_timings_were_made_of():
    fit = both().fit("cupy")
    assert (fit.launch, fit.flop) == pytest.approx((5e-6, 1e-12), rel=1e-6) and fit.error < 1e-9
    assert fit.seconds(1000, 1e9) == pytest.approx(6e-3)
    assert fit.bound_by_launches(1000, 1e9) and not fit.bound_by_launches(10, 1e9)


@pytest.mark.parametrize("launch, flop", [(0.0, 2e-11), (3e-6, 0.0)])
def test_a_cost_is_never_negative(launch, flop):
    rng = np.random.default_rng(0)
    noisy = []
    for row in synthetic(launch, flop):
        t = (row.median or 1e-9) * rng.uniform(0.97, 1.03)
        noisy.append(replace(row, median=t))
    fit = Benchmark(tuple(noisy)).fit("cupy")
    assert fit.launch >= 0 and fit.flop >= 0
    assert (fit.launch, fit.flop) == pytest.approx((launch, flop), rel=0.1, abs=1e-7)


def test_two_timings_are_too_few_for_a_model():
    assert Benchmark(tuple(synthetic()[:2])).fit("cupy") is None
    assert both().fit("numpy") is not None and both().fit("other") is None


def test_the_crossover_is_where_two_power_laws_meet():
    sizes = [16, 64, 256]
    # Worked by hand: 1e-4·H² against 1.0: they meet at H = 100.
    assert crossover(sizes, [1e-4 * H**2 for H in sizes], [1.0] * 3) == pytest.approx(100)
    assert math.isnan(crossover(sizes, [1, 1, 1], [2, 2, 2])) and crossover(sizes, [2, 2, 2], [1, 1, 1]) == 16


def test_the_table_has_medians_spread_launches_and_says_what_is_missing():
    text = both(missing={"cupy": "no device was found"}, title="A try").table()
    assert text.startswith("A try\n") and text.count("GPU") == 21 and text.count("CPU") == 21
    assert "about 5 µs for each of its launches, 1e+03 GFLOP/s" in text
    assert "Not measured: no device was found" in text


def test_a_file_keeps_where_the_numbers_come_from(tmp_path):
    measured = mb.benchmark(mb.RNN(2, 3, rng=0), np.ones((4, 2, 2), np.float32), backends=["numpy"], seconds=0)
    path = tmp_path / "benchmark.csv"
    measured.to_csv(path)
    with open(path, newline="", encoding="utf-8") as file:
        (line,) = csv.DictReader(file)
    for name in ("device", "machine", "python", "libraries", "date", "launches", "median", "low", "high", "runs"):
        assert line[name], name
    assert f"numpy {np.__version__}" in line["libraries"]
    assert read(path).rows == measured.rows


def test_recorded_timings_stand_beside_those_of_this_machine_and_are_not_written_again(tmp_path):
    here, recorded = Benchmark(tuple(synthetic(backend="numpy"))), both()
    together = here.with_recorded(recorded)
    assert {(row.backend, row.recorded) for row in together.rows} == {("numpy", False), ("cupy", True)}
    assert "GPU (recorded)" in together.table() and "recorded 2000-01-01, made up 1" in together.table()
    together.to_csv(tmp_path / "out.csv")
    assert {row.backend for row in read(tmp_path / "out.csv").rows} == {"numpy"}


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "backend,cell\nnumpy,lstm\n"])
def test_another_file_is_refused(tmp_path, text):
    (tmp_path / "other.csv").write_text(text)
    with pytest.raises(ValueError, match=r"other\.csv (is no file of timings|holds no timings)"):
        read(tmp_path / "other.csv")


@pytest.mark.parametrize(
    "column, wrong, says",
    [
        ("median", "inf", "positive and finite, found inf"),
        ("median", "-0.001", "positive and finite, found -0.001"),
        ("median", "nan", "positive and finite, found nan"),
        ("median", "quick", "a number, found 'quick'"),
        ("low", "-1", "positive and finite, found -1.0"),
        ("high", "0", "positive and finite, found 0.0"),
        ("H", "-3", "at least 0 and finite, found -3"),
        ("H", "2.5", "a whole number, found '2.5'"),
        ("B", "0", "at least 1 and finite, found 0"),
        ("T", "0", "at least 1 and finite, found 0"),
        ("runs", "-1", "at least 1 and finite, found -1"),
        ("launches", "-5", "at least 0 and finite, found -5"),
        ("flops", "nan", "at least 0 and finite, found nan"),
    ],
)
def test_a_number_that_no_measurement_gives_is_refused_with_its_line_and_column(tmp_path, column, wrong, says):
    path = edited(tmp_path, **{column: wrong})
    with pytest.raises(ValueError, match=re.escape(f"edited.csv, line 3, column {column} must be {says}")):
        read(path)


def edited(folder, **new):
    """A file of two timings, the second one edited."""
    path = folder / "edited.csv"
    Benchmark(tuple(synthetic()[:2])).to_csv(path)
    with open(path, newline="", encoding="utf-8") as file:
        first, second = csv.DictReader(file)
    with open(path, "w", newline="", encoding="utf-8") as file:
        out = csv.DictWriter(file, first)
        out.writeheader()
        out.writerows([first, second | new])
    return path


def test_what_is_no_set_of_quartiles_and_what_has_no_name_is_refused_too(tmp_path):
    with pytest.raises(ValueError, match="line 3: low ≤ median ≤ high does not hold: 5, "):
        read(edited(tmp_path, low="5"))
    for column in ("cell", "backend", "dtype"):
        with pytest.raises(ValueError, match=f"line 3, column {column}: there is nothing"):
            read(edited(tmp_path, **{column: ""}))


@pytest.mark.parametrize("wrong", [{"cells": ["mamba"]}, {"cells": []}, {"hidden": []}])
def test_a_sweep_of_nothing_or_of_unknown_cells_is_refused(wrong):
    with pytest.raises(ValueError, match=r"a cell is one of|nothing to measure"):
        sweep(**wrong)


# --- figure and command ----------------------------------------------------------------------------------------------


def test_the_figure_has_a_panel_for_each_batch_with_the_crossover_and_the_regimes():
    axes = mb.plots.benchmark(both())
    assert [ax.get_title() for ax in axes] == ["B = 1, T = 50", "B = 32, T = 50"]
    words = [[t.get_text() for t in ax.texts] for ax in axes]
    assert "LSTM on the GPU\nbound by launches" in words[0] and len(axes[1].patches) == 1
    assert any("arithmetic" in word for word in words[1])
    # By hand: LSTM, B = 1: 1003e-6 + 2400·H²·3e-11 = 1300e-6 + 2400·H²·1e-12 → H ≈ 65 between 64 and 128.
    assert any(word in ("H ≈ 65", "H ≈ 66") for word in words[0])
    labels = {t.get_text() for t in axes[0].figure.legends[0].get_texts()}
    assert labels == {"LSTM, CPU", "LSTM, GPU", "RNN, CPU", "RNN, GPU", "from here on the GPU is faster"}


def test_without_a_gpu_the_title_says_that_none_was_measured():
    axes = mb.plots.benchmark(Benchmark(tuple(synthetic(backend="numpy"))))
    assert "no GPU was measured" in axes[0].figure.get_suptitle()


def test_the_figure_refuses_what_it_cannot_draw():
    with pytest.raises(ValueError, match="over must be one of H, B, T"):
        mb.plots.benchmark(both(), over="D")
    nameless = Benchmark(tuple([replace(row, H=0) for row in synthetic()]))
    with pytest.raises(ValueError, match="H of lstm is not known"):
        mb.plots.benchmark(nameless)
    assert len(mb.plots.benchmark(nameless, over="B"))
    with pytest.raises(ValueError, match="no timing to draw"):
        mb.plots.benchmark(Benchmark(()))
    ax = mb.plots.benchmark(Benchmark(tuple(synthetic()[:1])))  # one size: no line, no regime
    assert len(ax) == 1


SMALL = ["benchmark", "--cell", "rnn", "--hidden", "3", "6", "--batch", "1", "2", "--length", "4", "--seconds", "0.001"]


def test_the_command_measures_the_cpu_says_what_is_missing_and_shows_recorded_numbers(tmp_path, capsys):
    recorded = tmp_path / "recorded.csv"
    Benchmark(tuple(synthetic())).to_csv(recorded)
    assert cli.main([*SMALL, "--recorded", str(recorded), "--out", str(tmp_path / "out")]) == 0
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"benchmark.csv", "benchmark-H.png", "benchmark-B.png"}
    text = capsys.readouterr().out
    assert "GPU" in text and "Written to" in text
    rows = read(tmp_path / "out" / "benchmark.csv").rows
    assert {(r.cell, r.H, r.B, r.T) for r in rows} == {("rnn", H, B, 4) for H in (3, 6) for B in (1, 2)}
    if "cupy" not in mb.available_backends():
        assert "GPU (recorded)" in text and "Not measured: backend 'cupy'" in text


@pytest.mark.parametrize(
    "wrong, says",
    [
        (["--seconds", "-1"], "must be a positive number"),
        (["--recorded", "nowhere.csv"], "cannot read nowhere.csv: No such file"),
        (["--recorded", "."], "cannot read .: Is a directory"),
        (["--recorded", "edited.csv"], "edited.csv: a timing of lstm has no H to be drawn at"),
    ],
)
def test_the_command_ends_in_one_line_where_the_user_is_mistaken(wrong, says, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    edited(tmp_path, H="0")
    assert cli.main([*SMALL, *wrong, "--out", str(tmp_path / "out")]) == 2
    assert says in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.parametrize("none", [[], (), iter([])])
def test_no_backend_at_all_is_an_error_and_no_empty_table(none):
    with pytest.raises(ValueError, match=r"backends is an empty list; name one or more, or leave it out"):
        mb.benchmark(mb.RNN(2, 3, rng=0), np.ones((4, 2, 2), np.float32), backends=none)
