"""compare: the four measures, against gradients worked out without any cut."""

import csv
import json
import math
from itertools import pairwise

import numpy as np
import pytest

import minibptt as mb


class Line(mb.Cell):
    """h_t = w·h_{t−1} + x_t."""

    def __init__(self, w=0.5):
        self.w = mb.parameter(w, dtype=np.float64)

    def zero_state(self, batch):
        return mb.zeros((batch, 1))

    def step(self, x, h):
        h = self.w * h + x
        return h, h


X = np.arange(1.0, 7.0).reshape(6, 1, 1)


def total(outputs, y, mask=None):
    return mb.sum(outputs)


def text_model(rng=0, dtype=np.float64):
    r = np.random.default_rng(rng).spawn(3)
    return mb.Sequential(
        mb.Embedding(7, 4, rng=r[0], dtype=dtype),
        mb.RNNCell(4, 5, rng=r[1], dtype=dtype),
        mb.Linear(5, 7, rng=r[2], dtype=dtype),
    )


def test_the_measures_are_those_of_the_chunk_numbers_worked_by_hand():
    # w = ½, h₀ = 2, x = 1 … 6, loss Σ h: full 38.8125; chunks of 3: 34.875, of 2: 31.5, of 1: 25.875.
    r = mb.compare(Line(), X, None, total, [mb.tbptt(k) for k in (1, 2, 3, 6)] + [mb.full()], state=[[2.0]])
    expected = {"k=1": 25.875, "k=2": 31.5, "k=3": 34.875, "k=6": 38.8125, "full": 38.8125}
    assert r.loss == 33.9375 and r.full_norm == 38.8125
    for row in r.rows:
        g = expected[str(row.schedule)] / 38.8125
        for measure, value in {"share": g, "error": 1 - g, "cosine": 1.0, "norm_ratio": g}.items():
            assert math.isclose(row.values[measure][0], value, rel_tol=1e-14, abs_tol=1e-15), (row.schedule, measure)


def test_every_offset_is_judged_and_each_equals_a_sum_over_pairs_without_cuts():
    # dL_t/dw of the use at step s: w^(t−s)·h_{s−1}.
    w, h = 0.5, [2.0]
    for v in range(1, 7):
        h.append(w * h[-1] + v)
    C = np.array([[w ** (t - s) * h[s] if s <= t else 0.0 for s in range(6)] for t in range(6)])
    r = mb.compare(Line(), X, None, total, [mb.tbptt(4)], state=[[2.0]], measure=False)
    for offset, share in enumerate(r.rows[0].values["share"]):
        weights = mb.tbptt(4, offset=offset).coverage(6)
        assert math.isclose(share, (weights * C).sum() / C.sum(), rel_tol=1e-14)
    spread = r.rows[0].spread("share")
    assert len(r.rows[0].values["share"]) == 4 and spread.low < spread.mean < spread.high
    assert r.rows[0].peak_bytes is None and r.rows[0].seconds is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_window_as_long_as_the_sequence_is_full_bptt_to_the_bit(dtype):
    model, rng = text_model(dtype=dtype), np.random.default_rng(1)
    x, y = rng.integers(0, 7, (2, 9, 3))
    r = mb.compare(model, x, y, mb.cross_entropy, [mb.tbptt(9), mb.tbptt(50), mb.full()], measure=False)
    for row in r.rows:
        assert row.values == {"share": (1.0,), "error": (0.0,), "cosine": row.values["cosine"], "norm_ratio": (1.0,)}
        assert math.isclose(row.values["cosine"][0], 1, rel_tol=1e-12)
    whole, window = (mb.bptt(model, x, y, mb.cross_entropy, s) for s in (mb.full(), mb.tbptt(9)))
    assert all(np.array_equal(whole[n], window[n]) for n in whole)


def test_mending_and_real_cuts_agree_with_padding_resets_and_a_state():
    model, rng = text_model(), np.random.default_rng(2)
    x, y = rng.integers(0, 7, (2, 8, 3))
    options = {"lengths": [8, 3, 5], "resets": rng.random((8, 3)) < 0.2, "state": (rng.standard_normal((3, 5)),)}
    full = mb.bptt(model, x, y, mb.cross_entropy, mb.full(), **options)
    r = mb.compare(model, x, y, mb.cross_entropy, [mb.tbptt(k) for k in (1, 3)], measure=False, **options)
    assert math.isclose(r.full_norm, full.norm(), rel_tol=1e-12)
    for row in r.rows:
        for offset in range(row.schedule.k):
            g = mb.bptt(model, x, y, mb.cross_entropy, mb.tbptt(row.schedule.k, offset=offset), **options)
            assert math.isclose(row.values["error"][offset], g.relative_error(full), rel_tol=1e-10, abs_tol=1e-14)
            assert math.isclose(row.values["share"][offset], g.share(full), rel_tol=1e-12)


def test_memory_is_that_of_the_window():
    model, rng = text_model(), np.random.default_rng(1)
    x, y = rng.integers(0, 7, (2, 64, 32))
    r = mb.compare(model, x, y, mb.cross_entropy, [mb.tbptt(4), mb.full()])
    small, large = (row.peak_bytes for row in r.rows)
    assert small < large / 3 and all(row.seconds > 0 for row in r.rows)


def test_any_loss_of_the_outputs_can_be_used():
    x, y = np.random.default_rng(0).standard_normal((2, 5, 2, 1))
    last = lambda outputs, y: mb.mse(outputs[-1], y[-1])  # noqa: E731
    r = mb.compare(Line(), x, y, last, [mb.tbptt(2)], measure=False)
    h = np.zeros((6, 2))
    for t in range(5):
        h[t + 1] = 0.5 * h[t] + x[t, :, 0]
    g = h[5] - y[-1, :, 0]  # ∂L/∂h_T for the mean over two rows
    parts = [float((g * 0.5 ** (4 - s) * h[s]).sum()) for s in range(5)]
    assert math.isclose(r.rows[0].values["share"][0], parts[4] / sum(parts), rel_tol=1e-12)  # cuts before 2 and 4
    assert math.isclose(r.rows[0].values["share"][1], (parts[3] + parts[4]) / sum(parts), rel_tol=1e-12)


def test_the_table_html_csv_and_json_hold_the_same_numbers(tmp_path):
    r = mb.compare(Line(), X, None, total, [mb.tbptt(2), mb.full()], state=[[2.0]], title="a <line>")
    r.to_csv(tmp_path / "r.csv")
    r.to_json(tmp_path / "r.json")
    with open(tmp_path / "r.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    data = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    mean = r.rows[0].spread("share").mean
    assert float(rows[0]["share_mean"]) == mean and rows[1]["schedule"] == "full"
    assert data["rows"][0]["by_offset"]["share"] == list(r.rows[0].values["share"])
    assert f"{mean:.3f}" in r.table() and f"{mean:.3f}" in r._repr_html_()
    assert "a &lt;line&gt;" in r._repr_html_() and r.table().splitlines()[3].startswith("schedule")


def test_a_zero_gradient_has_no_share_and_is_null_in_json(tmp_path):
    r = mb.compare(Line(), X * 0, None, total, [mb.tbptt(2)], measure=False)
    assert r.full_norm == 0 and math.isnan(r.rows[0].values["share"][0]) and "–" in r.table()
    r.to_json(tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text())["rows"][0]["by_offset"]["share"] == [None, None]


def test_where_a_longer_window_is_further_off_the_table_says_so():
    # w = −½ makes the terms change sign with the lag: a chunk of 2 keeps one lag too many for some losses.
    r = mb.compare(Line(-0.9), np.ones((9, 1, 1)), None, total, [mb.tbptt(k) for k in (3, 4, 5, 9)], measure=False)
    errors = [row.values["error"][0] for row in r.rows]
    rising = [(a, b) for a, b in pairwise(errors) if b > a]
    assert rising and len(r.rises()) == len(rising) and "rises from" in r.table()


@pytest.mark.parametrize(
    "change, error, words",
    [
        ({"schedules": []}, ValueError, "at least one schedule"),
        ({"schedules": [8]}, TypeError, "found 8"),
        ({"loss": lambda o, y: o}, ValueError, r"scalar tensor, found shape \(6, 1, 1\)"),
        ({"loss": lambda o, y: 3.0}, ValueError, "found float"),
        ({"loss": lambda o, y: mb.sum(o) * math.inf}, ValueError, "the loss is inf"),
        ({"loss": lambda o, y: mb.sum(mb.zeros((2,)))}, ValueError, "does not depend"),
        ({"x": np.ones(3)}, ValueError, r"time first; found shape \(3,\)"),
        ({"x": np.ones((0, 1, 1))}, ValueError, "T ≥ 1"),
    ],
)
def test_bad_input_is_refused_with_what_was_found(change, error, words):
    arguments = {"model": Line(), "x": X, "y": None, "loss": total, "schedules": [mb.tbptt(2)]} | change
    with pytest.raises(error, match=words):
        mb.compare(**arguments)


def test_progress_counts_up_to_its_total():
    seen = []
    mb.compare(Line(), X, None, total, [mb.tbptt(3), mb.full()], progress=lambda *p: seen.append(p))
    assert seen == [(i, 6) for i in range(1, 7)]


class HidesItsState(mb.Module):
    def __init__(self):
        self.cell, self.readout = mb.RNNCell(1, 3, rng=0), mb.Linear(3, 1, rng=1)

    def __call__(self, x):
        return self.readout(mb.unroll(self.cell, x)[0])


class IgnoresCutEvery(HidesItsState):
    def zero_state(self, batch):
        return self.cell.zero_state(batch)

    def __call__(self, x, state=None, **options):
        outputs, state = mb.unroll(self.cell, x, state)
        return self.readout(outputs), state


@pytest.mark.parametrize("model", [HidesItsState(), IgnoresCutEvery()])
def test_a_model_whose_state_cannot_be_cut_is_an_error_and_not_exact(model):
    x = np.ones((6, 1, 1))
    with pytest.raises(ValueError, match="could not cut the state"):
        mb.compare(model, x, 0 * x, mb.mse, [mb.tbptt(1)])


def test_bptt_does_not_start_the_windows_of_a_hidden_state_from_zero():
    x = np.ones((6, 1, 1))
    with pytest.raises(ValueError, match="keeps its state to itself"):
        mb.bptt(HidesItsState(), x, 0 * x, mb.mse, mb.tbptt(2))
