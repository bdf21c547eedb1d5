"""compare: the four measures, against gradients worked out without any cut."""

import csv
import json
import math
from itertools import pairwise, product

import numpy as np
import pytest

import minibptt as mb
from minibptt.parts import parts_of, take


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
        exact = {"share": (1.0,), "error": (0.0,), "norm_ratio": (1.0,), "sign": (1.0,)}
        for values in (row.values, *row.by_part.values()):
            assert values == exact | {"cosine": values["cosine"]}
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


def test_each_parameter_and_gate_is_judged_by_itself_and_each_equals_real_cuts(xp):
    model = mb.Sequential(mb.LSTM(2, 3, rng=0, dtype=np.float64), mb.Linear(3, 2, rng=1, dtype=np.float64))
    rng = np.random.default_rng(2)
    x, y = (mb.to_backend(a) for a in rng.standard_normal((2, 6, 2, 2)))
    r = mb.compare(model, x, y, mb.mse, [mb.tbptt(2), mb.tbptt(2, 4)], measure=False)
    parts = parts_of(model)
    assert r.parts == tuple(parts) and "gate f" in parts and "0.0.W_h" in parts
    G = mb.bptt(model, x, y, mb.mse, mb.full())
    for row in r.rows:
        for offset, schedule in enumerate(row.schedule.over_offsets(6)):
            g = mb.bptt(model, x, y, mb.mse, schedule)
            for part, columns in parts.items():
                mine, full = take(g, columns), take(G, columns)
                values = {measure: row.by_part[part][measure][offset] for measure in row.values}
                assert math.isclose(values["share"], mine.share(full), rel_tol=1e-10), (schedule, part)
                assert math.isclose(values["error"], mine.relative_error(full), rel_tol=1e-9, abs_tol=1e-13)
                assert math.isclose(values["cosine"], mine.cosine(full), rel_tol=1e-10)
                assert math.isclose(values["norm_ratio"], mine.norm() / full.norm(), rel_tol=1e-10)
    assert r.rows[0].spread("share", "1.W").mean == pytest.approx(1)  # the readout is behind no cut


def artbp_by_enumeration(w, h, p):
    """(G, Σ over pairs of the covariance, the fourth central moment) of the gradient of Σ h_t with respect to w.

    The covariance of the weights of two pairs is (1/(1−p))^(boundaries that both cross) − 1; the fourth moment is
    summed over all ways in which the boundaries can fall.
    """
    T = len(h) - 1
    C = {(t, s): w ** (t - s) * h[s - 1] for t in range(1, T + 1) for s in range(1, t + 1)}
    G = sum(C.values())
    variance = 0.0
    for (t, s), (u, r) in product(C, C):
        common = max(0, min(t, u) - max(s, r))
        variance += C[t, s] * C[u, r] * ((1 / (1 - p)) ** common - 1)
    fourth = 0.0
    for closed in product([True, False], repeat=T - 1):  # the boundary before step b + 2 is closed[b]
        chance = math.prod(p if c else 1 - p for c in closed)
        weight = lambda t, s: math.prod(0 if c else 1 / (1 - p) for c in closed[s - 1 : t - 1])  # noqa: B023, E731
        fourth += chance * (sum(C[pair] * weight(*pair) for pair in C) - G) ** 4
    return G, variance, fourth


def test_the_bias_and_the_variance_of_random_cuts_are_those_of_the_closed_form():
    p, n = 0.3, 400
    h = [2.0]
    for v in range(1, 7):
        h.append(0.5 * h[-1] + v)
    G, variance, fourth = artbp_by_enumeration(0.5, h, p)
    r = mb.compare(Line(), X, None, total, [mb.artbp(p)], state=[[2.0]], draws=n, rng=5, measure=False)
    noise = r.rows[0].noise
    assert r.full_norm == pytest.approx(G, rel=1e-14) and noise.n == n == len(r.rows[0].values["share"])
    of_variance = math.sqrt((fourth - variance**2 * (n - 3) / (n - 1)) / n)  # the standard error of a sample variance
    assert abs(noise.variance - variance / G**2) < 4 * of_variance / G**2
    assert of_variance < variance / 8  # narrow enough to see a missing factor
    assert noise.bias < 4 * math.sqrt(variance / n) / G
    assert noise.standard_error == pytest.approx(noise.deviation / math.sqrt(n), rel=1e-14)
    shares = np.array(r.rows[0].values["share"])  # one parameter: g = share·G
    assert noise.variance == pytest.approx(shares.var(ddof=1), rel=1e-12)
    assert noise.bias == pytest.approx(abs(shares.mean() - 1), rel=1e-9)
    assert f"ARTBP p=0.3: over {n} draws the mean gradient is off by {noise.bias:.3f} ±" in r.table()


def test_draws_follow_the_seed_and_only_drawn_schedules_have_noise():
    def shares(**options):
        r = mb.compare(Line(), X, None, total, [mb.artbp(0.3), mb.tbptt(2)], state=[[2.0]], measure=False, **options)
        assert r.rows[1].noise is None and r.rows[0].noise.n == len(r.rows[0].values["share"])
        return r.rows[0].values["share"]

    assert len(shares()) == 32 and shares() == shares(rng=0) == shares(rng=np.random.default_rng(0))
    assert shares(draws=3) == shares()[:3] != shares(draws=3, rng=1)


def test_tables_by_part_keep_to_their_width():
    model = mb.Sequential(mb.LSTM(2, 3, layers=2, rng=0), mb.Linear(3, 2, rng=1))
    x, y = np.random.default_rng(2).standard_normal((2, 6, 2, 2))
    r = mb.compare(model, x, y, mb.mse, [mb.tbptt(2), mb.full()], measure=False, title="t")
    mean = r.rows[0].spread("share", "gate f of 0.1").mean
    table = r.table("gate")
    assert "Kept share by gate: t" in table and f"{mean:.3f}" in table and "[" not in table
    assert max(map(len, table.splitlines()[3:])) <= 100 and table.count("schedule") == 2  # eight gates go on below
    assert all(f"gate {g} of 0.{layer}" in table for g in "ifgo" for layer in (0, 1))
    wide = r.table("gate", "sign", width=1000)
    assert "Sign agreement by gate" in wide and "[least" in wide and wide.count("schedule") == 1
    one = r.table("0.1.W_h", width=200).splitlines()
    values = r.rows[0].spread("error", "0.1.W_h")
    assert "relative error" in one[3] and "sign agreement" in one[3]
    assert f"{values.mean:.3f} [{values.low:.3f} … {values.high:.3f}]" in one[5]
    for by, measure, words in [
        ("gates", "share", "by must be one of 'parameter', 'gate', '0.0.W_x'"),
        ("gate", "size", "measure must be one of 'share'"),
    ]:
        with pytest.raises(ValueError, match=words):
            r.table(by, measure)
    rnn = mb.compare(Line(), X, None, total, [mb.tbptt(2)], measure=False)
    assert "w" in rnn.table("parameter").splitlines()[3].split()
    with pytest.raises(ValueError, match="no cell with gates"):
        rnn.table("gate")


def test_csv_by_part_and_json_hold_the_parts_and_the_noise(tmp_path):
    model = mb.GRU(2, 3, rng=0)
    x, y = np.random.default_rng(2).standard_normal((2, 6, 2, 2))
    y = np.concatenate([y, y[..., :1]], axis=-1)
    r = mb.compare(model, x, y, mb.mse, [mb.tbptt(2), mb.artbp(0.2)], measure=False, draws=4)
    r.to_csv(tmp_path / "parts.csv", by_part=True)
    r.to_csv(tmp_path / "r.csv")
    r.to_json(tmp_path / "r.json")
    with open(tmp_path / "parts.csv", encoding="utf-8") as file:
        rows = {(row["schedule"], row["part"]): row for row in csv.DictReader(file)}
    assert len(rows) == 2 * len(r.parts) and set(r.parts) == set(parts_of(model))
    assert float(rows["k=2", "gate z"]["sign_low"]) == r.rows[0].spread("sign", "gate z").low
    with open(tmp_path / "r.csv", encoding="utf-8") as file:
        first, second = csv.DictReader(file)
    assert first["draws_bias"] == "" and float(second["draws_deviation"]) == r.rows[1].noise.deviation
    data = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["rows"]
    assert data[0]["by_part"]["b_hn" if "b_hn" in r.parts else "0.b_hn"]["cosine"]
    assert data[0]["noise"] is None and data[1]["noise"]["bias"] == r.rows[1].noise.bias


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
        ({"draws": 0}, ValueError, "draws must be at least 1, found 0"),
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


def test_schedules_are_one_or_several_and_may_be_arrays_of_weights():
    def kept(schedules):
        result = mb.compare(Line(), X, X, mb.mse, schedules, measure=False)
        return [row.values["share"][0] for row in result.rows]

    expected = kept([mb.tbptt(1, 3)])
    for schedules in (mb.tbptt(1, 3), mb.tbptt(1, 3).coverage(6), [mb.tbptt(1, 3).coverage(6)]):
        assert kept(schedules) == pytest.approx(expected, rel=1e-13)
    for wrong, found in [(None, "None"), (8, "8"), ("full", "'full'"), ([8], "8"), (["full"], "'full'")]:
        with pytest.raises(TypeError, match=f"schedules are made by .* found {found}"):
            kept(wrong)


def test_a_table_refuses_a_measure_that_there_is_not_whatever_it_is_by():
    result = mb.compare(Line(), X, X, mb.mse, [mb.tbptt(2)], measure=False)
    for by in (None, "parameter", "w"):
        with pytest.raises(ValueError, match="measure must be one of"):
            result.table(by, measure="kept")


def test_one_draw_says_nothing_of_how_much_draws_differ():
    table = mb.compare(Line(), X, X, mb.mse, [mb.artbp(0.5)], draws=1, measure=False).table()
    assert "one draw is off by" in table and "nan" not in table
