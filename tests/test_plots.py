"""Figures: what they show, and that they leave matplotlib as it was."""

from functools import cache
from itertools import pairwise
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

import minibptt as mb
from minibptt import plots
from minibptt.gradients import Gradients
from minibptt.plots.style import numbered
from minibptt.plots.triangle import cuts
from minibptt.report import Comparison, Row
from minibptt.truncation import full, tbptt


def result(errors, T=16):
    rows = [
        Row(tbptt(k), k, {"share": (1 - e, 1.0), "error": (e, e / 2), "cosine": (1.0, 1.0), "norm_ratio": (1.0, 1.0)})
        for k, e in errors.items()
    ]
    rows.append(Row(full(), T, {m: (float(m != "error"),) for m in ("share", "error", "cosine", "norm_ratio")}))
    return Comparison(T, 1, 1.0, 1.0, tuple(rows), "a title")


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_a_rising_error_is_drawn_and_named_and_a_falling_one_is_not():
    rising = plots.compare(result({1: 0.5, 2: 0.2, 4: 0.4, 16: 0.0}))
    falling = plots.compare(result({1: 0.5, 2: 0.3, 4: 0.2, 16: 0.0}))
    assert "there, a longer window is further off" in labels(rising[1])
    assert "there, a longer window is further off" not in labels(falling[1])
    thick = [line for line in rising[1].lines if line.get_linewidth() == 4]
    assert [list(line.get_xdata()) for line in thick] == [[2, 4]]


def test_an_error_of_zero_is_marked_on_the_log_axis_and_an_error_axis_of_zeros_is_allowed():
    left, right = plots.compare(result({1: 0.5, 16: 0.0}))
    assert right.get_yscale() == "log" and any(t.get_text() == "exactly 0" for t in right.texts)
    assert left.get_ylabel() and left.get_xlabel() and left.get_title()
    plots.compare(result({16: 0.0}))


def test_negative_shares_are_inside_the_axes():
    left, _ = plots.compare(result({1: 2.5, 16: 0.0}))
    assert left.get_ylim()[0] < -1.5


def test_a_comparison_with_nothing_to_draw_is_an_error():
    with pytest.raises(ValueError, match="no schedule to draw"):
        plots.compare(result({}))


def test_plots_take_axes_leave_settings_alone_and_open_no_window(tmp_path):
    before = dict(matplotlib.rcParams)
    figure, axes = pyplot.subplots(1, 2)
    r = result({1: 0.5, 2: 0.2, 16: 0.0})
    try:
        assert mb.plots.compare(r, axes) is axes and figure.get_suptitle() == ""
        own = plots.compare(r)
        assert own[0].figure.number not in pyplot.get_fignums() if hasattr(own[0].figure, "number") else True
        plots.save(own, tmp_path / "f.png", dpi=50)
    finally:
        pyplot.close(figure)
    assert dict(matplotlib.rcParams) == before and (tmp_path / "f.png").read_bytes()[:4] == b"\x89PNG"
    assert isinstance(axes, np.ndarray)


# --- the triangle, lags, schemes, training: read back from the Axes what was drawn -----------------------------------


def made(share, norms=None):
    """Contributions with these shares, as if a model had given them."""
    c = object.__new__(mb.Contributions)
    c.T, c.share, c.loss = len(share), np.asarray(share, dtype=float), 1.0
    c.norms = 3 * np.abs(c.share) if norms is None else norms
    c.full = Gradients({"theta": np.array([0.0 if np.isnan(c.share).any() else 2.0])})
    return c


def random(T, negative=True):
    rng = np.random.default_rng(T)
    share = np.tril(rng.random((T, T)) - 0.3 * negative) * 0.8 ** np.abs(np.subtract.outer(np.arange(T), np.arange(T)))
    return made(share / share.sum())


def rendered(ax):
    """(the figure, its renderer) after drawing."""
    figure = np.atleast_1d(ax)[0].figure
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return figure, canvas.get_renderer()


def picture(ax):
    """What the figure looks like: (rows, columns, 3), 0 to 1."""
    figure, _ = rendered(ax)
    return np.asarray(figure.canvas.buffer_rgba())[..., :3] / 255


def grey(rgb):
    return rgb @ np.array([0.2126, 0.7152, 0.0722])


def check_readable(ax):
    """Tick labels of one axis do not overlap, and all text is inside the figure."""
    figure, renderer = rendered(ax)
    for axes in figure.findobj(Axes):
        for axis in (axes.xaxis, axes.yaxis):
            texts = [t for t in axis.get_ticklabels(which="both") if t.get_visible() and t.get_text()]
            low, high = sorted(axis.get_view_interval())
            texts = [t for t in texts if low <= t.get_position()[axis is axes.yaxis] <= high]
            boxes = [text.get_window_extent(renderer) for text in texts]
            for i, a in enumerate(boxes):
                for b, text in zip(boxes[i + 1 :], texts[i + 1 :]):
                    assert not a.overlaps(b), (axes.get_label(), texts[i].get_text(), text.get_text(), a, b)
    ticks = [t for axes in figure.findobj(Axes) for axis in (axes.xaxis, axes.yaxis) for t in axis.findobj(Text)]
    for text in figure.findobj(Text):  # ticks beyond the limits of their axis are there, and not drawn
        if text.get_visible() and text.get_text().strip() and not any(text is tick for tick in ticks):
            box = text.get_window_extent(renderer)
            inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= figure.bbox.x1 + 1 and box.y1 <= figure.bbox.y1 + 1
            assert inside, (text.get_text(), box)
    tight, (width, height) = figure.get_tightbbox(renderer), figure.get_size_inches()
    assert tight.x0 > -0.02 and tight.y0 > -0.02 and tight.x1 < width + 0.02 and tight.y1 < height + 0.02


def panel(ax, label):
    return next(axes for axes in ax.figure.axes if axes.get_label() == label)


def part(ax, label):
    return next(thing for thing in ax.collections if thing.get_label() == label)


def segments(ax, label):
    return [tuple(map(tuple, line)) for line in part(ax, label).get_segments()]


SYMBOLS = "a b$c\n$\x00\tW@m{_^}\\%#" * 8


@pytest.mark.parametrize("T", [1, 3, 12, 48, 128])
@pytest.mark.parametrize("negative", [False, True])
def test_the_triangle_can_be_read_at_any_length(T, negative):
    c = random(T, negative)
    for schedule in (None, mb.tbptt(max(2, T // 5)), mb.tbptt(1, 3), mb.artbp(0.3)):
        check_readable(plots.contributions(c, schedule, symbols=SYMBOLS, targets=SYMBOLS))
    assert tuple(plots.contributions(c).figure.get_size_inches()) == (12.8, 7.2)


def test_the_triangle_shows_shares_and_a_minus_where_they_hurt():
    c = random(12)
    ax = plots.contributions(c)
    shown = ax.collections[0].get_array()
    assert np.ma.count(shown) == 78  # the lower triangle of 12 × 12, diagonal included
    np.testing.assert_array_equal(shown.filled(0), c.share)
    end = ax.collections[0].norm.vmax
    assert end >= np.abs(c.share).max() > end / 2.5 and ax.collections[0].norm.vmin == -end
    middles = {(round(a[0] + b[0]) // 2 - 1, round(a[1]) - 1) for a, b in segments(ax, "hurts")}
    assert middles == {(s, t) for t, s in np.argwhere(c.share < -end / 100)} and len(middles) > 5
    assert ax.get_xlim() == (0.5, 12.5) and ax.get_ylim() == (12.5, 0.5)  # loss step 1 at the top
    assert [tick.get_text() for tick in ax.get_xticklabels()] == [str(s) for s in range(1, 13)]


def test_steps_are_numbered_from_1_with_as_many_numbers_as_there_is_room_for():
    assert numbered(1) == [1] and numbered(3) == [1, 2, 3]
    assert numbered(24) == list(range(1, 25, 2))
    assert numbered(48) == [1, 5, 10, 15, 20, 25, 30, 35, 40, 45]
    assert numbered(128) == [1, *range(10, 129, 10)]
    assert len(numbered(100_000)) <= 14


def test_symbols_stand_at_their_steps_and_none_beyond_48_steps():
    ax = plots.contributions(random(7), symbols="a \n$\x00é", targets="bcdefgh and more")
    names = {round(t.get_position()[0]): t.get_text() for t in ax.xaxis.get_ticklabels(minor=True) if t.get_text()}
    assert names == {1: "a", 2: "␣", 3: "\\n", 4: "$", 5: "�", 6: "é"}
    assert [t.get_text() for t in ax.yaxis.get_ticklabels(minor=True)] == list("bcdefgh")
    assert [t.get_text() for t in ax.get_xticklabels()] == list("1234567")
    assert not any(t.get_parse_math() for t in ax.xaxis.get_ticklabels(minor=True))
    most = plots.contributions(random(48), symbols="x" * 48, targets="x" * 48)
    for axis in (most.xaxis, most.yaxis):
        assert all(t.get_fontsize() > 11 for t in axis.get_ticklabels(minor=True))  # at a projector's size
    long = plots.contributions(random(49), symbols="x" * 49)
    assert not any(t.get_text() for t in long.xaxis.get_ticklabels(minor=True))


@pytest.mark.parametrize(
    "schedule", [None, mb.tbptt(4), mb.tbptt(2, 5), mb.tbptt(4, losses="last"), mb.artbp(0.2)], ids=str
)
def test_the_bars_at_the_margins_are_the_sums_of_what_is_kept_and_lost(schedule):
    c = random(12)
    ax = plots.contributions(c, schedule, rng=3)
    w = np.tril(np.ones((12, 12))) if schedule is None else schedule.coverage(12, rng=3)
    for label, axis, length in (("by source step", 0, "height"), ("by loss step", 1, "width")):
        bars = panel(ax, label).containers
        drawn = {part.get_label(): np.array([getattr(bar, f"get_{length}")() for bar in part]) for part in bars}
        np.testing.assert_allclose(drawn["kept"], (w * c.share).sum(axis), atol=1e-15)
        assert ("lost" in drawn) == (schedule is not None)
        np.testing.assert_allclose(drawn["kept"] + drawn.get("lost", 0), c.share.sum(axis), atol=1e-15)
        for kept, lost in zip(*bars) if schedule is not None else []:
            a, b = (kept.get_y(), lost.get_y()) if axis == 0 else (kept.get_x(), lost.get_x())
            kept, lost = (getattr(bar, f"get_{length}")() for bar in (kept, lost))
            assert a == 0 and b == (kept if kept * lost > 0 else 0)  # one on the other where they agree in sign


def test_the_title_and_the_outline_are_of_the_same_draw():
    c, drawn = random(12), mb.artbp(0.3)
    ax = plots.contributions(c, drawn, rng=5)
    w = drawn.coverage(12, rng=5)
    assert f"keeps {(w * c.share).sum():.2f}" in ax.figure.get_suptitle()
    faded = ax.collections[[x is part(ax, "hurts") for x in ax.collections].index(True) + 2].get_array()
    np.testing.assert_array_equal(~np.ma.getmaskarray(faded), np.tril(w == 0))


def test_each_cut_is_a_line_as_long_as_the_losses_that_it_stops():
    ax = plots.contributions(random(12), mb.tbptt(5))
    assert segments(ax, "cuts") == [((5.5, 5.5), (5.5, 10.5)), ((10.5, 10.5), (10.5, 12.5))]
    assert sum(text.get_text() == "✂" for text in ax.texts) == 2
    kept = segments(ax, "kept")
    assert ((5.5, 5.5), (5.5, 6.5)) in kept and ((0.5, 5.5), (1.5, 5.5)) in kept  # the corner between two chunks
    assert len(segments(plots.contributions(random(12), mb.tbptt(1)), "cuts")) == 11
    assert segments(plots.contributions(random(12), mb.full()), "cuts") == []
    # every 2 steps back through 4: losses 5 and 6 stop before step 3, 7 and 8 before 5, and so on
    assert cuts(mb.tbptt(2, 4).plan(10)) == [(3, 5, 6), (5, 7, 8), (7, 9, 10)]
    assert cuts(mb.tbptt(4, losses="last").plan(12)) == [(5, 8, 8), (9, 12, 12)]
    many = plots.contributions(random(48), mb.tbptt(2))
    assert len(segments(many, "cuts")) == 23 and not many.texts  # scissors on each would hide the cells


def test_every_cut_stands_where_a_weight_ends():
    for schedule in (mb.tbptt(3), mb.tbptt(3, offset=2), mb.tbptt(2, 5), mb.tbptt(5, 2), mb.artbp(0.3)):
        w = schedule.coverage(13, rng=1)
        stopped = {(t, s) for s, first, last in cuts(schedule.plan(13, rng=1)) for t in range(first, last + 1)}
        ends = {(t + 1, int(np.flatnonzero(w[t])[0]) + 1) for t in range(13) if w[t].any() and not w[t, 0]}
        assert stopped == ends


def test_an_axes_of_ones_own_gets_the_triangle_alone():
    figure, axes = pyplot.subplots(1, 2, figsize=(12.8, 7.2), layout="constrained")
    try:
        c = random(12)
        assert plots.contributions(c, mb.tbptt(4), ax=axes[0], symbols="abc") is axes[0]
        plots.contributions(random(40), ax=axes[1], symbols=SYMBOLS)
        assert figure.axes == list(axes) and figure.get_suptitle() == "" and "k=4 keeps" in axes[0].get_title()
        check_readable(axes)
    finally:
        pyplot.close(figure)


def test_pairs_that_help_and_pairs_that_hurt_as_much_differ_in_grey_print():
    for T in (4, 24, 128):
        share = np.tril(np.full((T, T), 0.1))
        share[T - 1, : T // 2] = -0.1
        ax = plots.contributions(made(share))
        rgb = picture(ax)
        height = rgb.shape[0]

        def cell(t, s, rgb=rgb, ax=ax, height=height):
            (x0, y0), (x1, y1) = ax.transData.transform([(s - 0.4, t + 0.4), (s + 0.4, t - 0.4)])
            return grey(rgb[round(height - y1) : round(height - y0), round(x0) : round(x1)])

        helps, hurts = cell(T, T - 1), cell(T, 1)
        assert np.ptp(helps) < 0.02  # plain
        assert np.median(hurts) - hurts.min() > (0.2 if T < 128 else 0.1)  # with a black minus, thin where cells are
        rows = np.flatnonzero((hurts < hurts.min() + 0.05).any(axis=1))
        assert abs(rows.mean() + 0.5 - len(hurts) / 2) <= max(1, 0.25 * len(hurts))  # across the middle


@pytest.mark.parametrize("draw", [plots.contributions, plots.lags, lambda c: plots.schemes(c.T, [mb.tbptt(2)], c)])
def test_a_gradient_of_zero_has_no_shares_to_draw(draw):
    with pytest.raises(ValueError, match="the full gradient is zero"):
        draw(made(np.full((4, 4), np.nan)))


def test_a_gradient_of_zero_of_a_real_model_too():
    model = mb.Sequential(mb.RNNCell(1, 2, rng=0), mb.Linear(2, 1, rng=1))
    c = mb.contributions(model, np.zeros((3, 1, 1)), None, lambda outputs, y: mb.sum(0.0 * outputs))
    with pytest.raises(ValueError, match="the full gradient is zero"):
        plots.contributions(c)


# --- lags


def bars(ax):
    """Height by place of all bars."""
    return {round(bar.get_x() + bar.get_width() / 2): bar.get_height() for part in ax.containers for bar in part}


@pytest.mark.parametrize("T", [1, 3, 12, 48, 128])
@pytest.mark.parametrize("negative", [False, True])
def test_bars_are_the_shares_of_the_lags_and_the_line_their_running_sum(T, negative):
    c = random(T, negative)
    upper, lower = plots.lags(c)
    expected = [sum(c.share[t, t - lag] for t in range(lag, T)) for lag in range(T)]
    np.testing.assert_allclose([bars(upper)[lag] for lag in range(T)], expected, atol=1e-15)
    line = next(line for line in upper.lines if line.get_label() == "running sum")
    np.testing.assert_array_equal(line.get_xdata(), range(T))
    np.testing.assert_allclose(line.get_ydata(), [sum(expected[: lag + 1]) for lag in range(T)], atol=1e-12)
    assert {line.get_ydata()[0] for line in upper.lines[1:]} == {0, 1}
    norms = [sum(c.norms[t, t - lag] for t in range(lag, T)) for lag in range(T)]
    np.testing.assert_allclose(lower.lines[0].get_ydata(), norms)
    assert lower.get_yscale() == "log" and f"= {c.norms.sum() / 2:.3g}" in lower.get_title()
    assert upper.get_ylabel() and "steps" in lower.get_xlabel() and lower.get_ylabel()
    check_readable([upper, lower])


def test_one_axes_gets_the_shares_alone_and_a_norm_of_zero_is_marked():
    figure, axes = pyplot.subplots()
    try:
        assert plots.lags(random(5), axes) is axes and len(figure.axes) == 1 and axes.get_xlabel()
    finally:
        pyplot.close(figure)
    c = made([[0.5, 0, 0], [0, 0.25, 0], [0.25, 0, 0]])
    _, lower = plots.lags(c)
    assert list(lower.lines[1].get_xdata()) == [1] and lower.lines[1].get_ydata()[0] == lower.get_ylim()[0]
    assert np.isnan(lower.lines[0].get_ydata()[1])


class InfluenceBalancing(mb.Cell):
    """s_t = A·s_{t−1} + θ·u, 23 units of which the first 10 are pushed up and the others down."""

    A = 0.5 * np.eye(23) + 0.5 * np.eye(23, k=1)
    u = np.where(np.arange(23) < 10, 1.0, -1.0)

    def __init__(self):
        self.theta = mb.parameter(np.array([0.5]))

    def zero_state(self, batch):
        return mb.zeros((batch, 23))

    def step(self, x, s):
        s = s @ self.A.T + self.theta * self.u
        return s, s


def test_the_running_sum_is_what_a_window_of_k_steps_keeps_of_influence_balancing():
    # Tallec and Ollivier (2017). What a window of K steps sees of ∂s₀/∂θ is (I − A)⁻¹ (I − A^K) u in its first place.
    cell = InfluenceBalancing()
    fixed = np.linalg.solve(np.eye(23) - cell.A, 0.5 * cell.u)[None]
    c = mb.contributions(
        cell, np.zeros((100, 1, 1)), None, lambda s, y: 0.5 * mb.sum((s[-1, :, 0] - 1) ** 2), state=fixed
    )
    upper, lower = plots.lags(c)
    line = next(line for line in upper.lines if line.get_label() == "running sum")

    def seen(K):
        return np.linalg.solve(np.eye(23) - cell.A, cell.u - np.linalg.matrix_power(cell.A, K) @ cell.u)[0]

    assert seen(10) == pytest.approx(10) and seen(10**4) == pytest.approx(-6)
    for K, rounded in {1: -1 / 6, 10: -1.67, 19: -2.75, 41: 0.04, 50: 0.79, 100: 1.0}.items():
        assert (
            line.get_ydata()[K - 1] == pytest.approx(seen(K) / seen(100), abs=1e-9) == pytest.approx(rounded, abs=0.006)
        )
    assert upper.get_ylim()[0] < -2.75 and upper.get_ylim()[1] > 1
    assert "19 steps: −2.75" in [text.get_text() for text in upper.texts]
    check_readable([upper, lower])


# --- schemes


def test_each_scheme_has_its_weights_its_cuts_and_the_steps_that_it_keeps():
    c = random(12)
    schedules = [mb.full(), mb.tbptt(4), mb.tbptt(2, 4), mb.tbptt(4, losses="last"), mb.artbp(0.3)]
    axes = plots.schemes(12, schedules, c, rng=7)
    assert len(axes) == 5 and [ax.get_title() for ax in axes] == [str(s) for s in schedules]
    for ax, schedule in zip(axes, schedules):
        w = schedule.coverage(12, rng=7)
        np.testing.assert_array_equal(ax.collections[0].get_array().filled(0), w)
        assert len(segments(ax, "cuts")) == len(cuts(schedule.plan(12, rng=7)))
        caption = next(text.get_text() for text in ax.texts if "steps kept" in text.get_text())
        assert f"{schedule.describe(12, rng=7).mean_steps_kept:.2f} steps kept" in caption
        assert f"kept share {c.kept_share(schedule, rng=7):.2f}" in caption
        assert ("9 losses\nnever reached" in caption) == (w.diagonal() == 0).any()
    assert [len(segments(ax, "cuts")) for ax in axes[:4]] == [0, 2, 4, 2]
    rows = {round(ax.get_position().y0, 2) for ax in axes[:4]}
    assert len(rows) == 1 and round(axes[4].get_position().y0, 2) not in rows  # four in a row


def test_darker_is_more_weight_and_what_is_lost_is_pale():
    (ax,) = plots.schemes(12, [mb.artbp(0.2)])
    w = mb.artbp(0.2).coverage(12, rng=0)
    rgb = picture(ax)

    def shade(t, s):
        x, y = ax.transData.transform((s + 1, t + 1))
        return float(grey(rgb[round(rgb.shape[0] - y), round(x)]))

    t = int(np.argmax(w.max(axis=1)))
    first = int(np.flatnonzero(w[t])[0])
    shades = [shade(t, s) for s in range(t, first - 1, -1)]  # further back there is more weight
    assert len(shades) > 3 and all(a > b for a, b in pairwise(shades))
    assert shade(11, 0) > 0.85 and w[11, 0] == 0


@pytest.mark.parametrize("T", [1, 3, 12, 48, 128])
def test_schemes_can_be_read_at_any_length_and_number(T):
    few = [mb.tbptt(2), mb.artbp(0.1), mb.tbptt(4, 2), mb.full()]
    more = [*few, mb.tbptt(10, 20, losses="last", offset=3)] * 2
    for schedules in (few[:1], few, more):
        axes = plots.schemes(T, schedules, random(T))
        assert len(axes) == len(schedules)
        check_readable(axes)


def test_schemes_have_labels_at_the_rim_in_axes_that_were_given_too():
    def labelled(axes):
        return [(ax.get_ylabel() == "loss step t", ax.get_xlabel() == "source step s") for ax in axes]

    both, left, low, none = (True, True), (True, False), (False, True), (False, False)
    assert labelled(plots.schemes(6, [mb.full()] * 5)) == [left, low, low, low, both]  # four in a row, and one below
    figure, axes = pyplot.subplots(2, 3)
    try:
        assert labelled(plots.schemes(6, [mb.full()] * 6, ax=axes)) == [left, none, none, both, low, low]
    finally:
        pyplot.close(figure)
    figure, axes = pyplot.subplots(1, 3)
    alone = figure.add_axes((0.4, 0.4, 0.1, 0.1))
    try:
        assert labelled(plots.schemes(6, [mb.full()] * 3, ax=[*axes[1:], alone])) == [both, low, both]
        assert labelled(axes[:1]) == [none]
    finally:
        pyplot.close(figure)


def test_schemes_take_axes_and_refuse_what_they_cannot_draw():
    figure, axes = pyplot.subplots(1, 2)
    try:
        assert list(plots.schemes(6, [mb.tbptt(2), mb.full()], ax=axes)) == list(axes) and len(figure.axes) == 2
        with pytest.raises(ValueError, match="schemes draws into 1 Axes, one for each schedule; found 2"):
            plots.schemes(6, mb.tbptt(2), ax=axes)
    finally:
        pyplot.close(figure)
    with pytest.raises(ValueError, match="at least one schedule"):
        plots.schemes(6, [])
    with pytest.raises(TypeError, match="found 4"):
        plots.schemes(6, [4])
    with pytest.raises(ValueError, match="over 5 steps, the schemes over 6"):
        plots.schemes(6, [mb.full()], random(5))


# --- training


def history(schedules, moments=(0, 100, 200), bad=()):
    rng, found = np.random.default_rng(0), []
    for step in moments:
        rows = []
        for schedule in schedules:
            measured = {m: tuple(rng.random(3).tolist()) for m in ("share", "error", "cosine", "norm_ratio")}
            rows.append(Row(schedule, 1, {m: (np.nan,) * 3 for m in measured} if step in bad else measured))
        found.append((step, Comparison(16, 1, 3.0 - step / 100, 1.0, tuple(rows))))
    return SimpleNamespace(moments=tuple(found))


SIX = [mb.tbptt(1), mb.tbptt(2), mb.tbptt(4), mb.tbptt(8), mb.tbptt(2, 8), mb.artbp(0.1)]


@pytest.mark.parametrize("measure", ["share", "error", "cosine", "norm_ratio"])
def test_a_line_for_each_schedule_is_its_mean_and_the_band_its_range(measure):
    h = history([*SIX, mb.full()])
    upper, lower = plots.training(h, measure=measure)
    lines = {line.get_label(): line for line in upper.lines}
    assert list(lines) == [*map(str, SIX), "full BPTT"]
    assert lines["full BPTT"].get_ydata()[0] == (0 if measure == "error" else 1)
    for i, schedule in enumerate(SIX):
        np.testing.assert_array_equal(lines[str(schedule)].get_xdata(), [0, 100, 200])
        values = np.array([found.rows[i].values[measure] for _, found in h.moments])
        np.testing.assert_allclose(lines[str(schedule)].get_ydata(), values.mean(axis=1))
        corners = {tuple(np.round(v, 9)) for v in upper.collections[i].get_paths()[0].vertices}
        for step, row in zip((0, 100, 200), values):
            assert {(step, round(row.min(), 9)), (step, round(row.max(), 9))} <= corners
    looks = {(line.get_color(), line.get_marker(), str(line._dash_pattern)) for line in upper.lines}
    assert all(len({look[i] for look in looks}) == 7 for i in range(3))  # colour, marker and line style each differ
    assert list(lower.lines[0].get_ydata()) == [3, 2, 1] and lower.get_xlabel() == "training steps"
    check_readable([upper, lower])


def test_moments_are_drawn_in_order_and_one_without_a_gradient_leaves_a_gap():
    h = history([mb.tbptt(2)], moments=(200, 0, 100), bad=(100,))
    upper, _ = plots.training(h)
    assert list(upper.lines[0].get_xdata()) == [0, 100, 200]
    assert np.isnan(upper.lines[0].get_ydata()).tolist() == [False, True, False]
    with pytest.raises(ValueError, match="no share to draw"):
        plots.training(history([mb.tbptt(2)], moments=(0, 1), bad=(0, 1)))


def test_training_takes_axes_and_a_choice_of_schedules():
    seven = [*SIX, mb.tbptt(16)]
    with pytest.raises(ValueError, match=r"7 schedules cannot be told apart.*schedules=\[…\] out of k=1, k=2"):
        plots.training(history(seven))
    figure, axes = pyplot.subplots()
    try:
        assert plots.training(history(seven), axes, schedules=[mb.tbptt(16), mb.tbptt(1)]) is axes
        assert [line.get_label() for line in axes.lines] == ["k=16", "k=1", "full BPTT"] and len(figure.axes) == 1
    finally:
        pyplot.close(figure)
    with pytest.raises(ValueError, match="no schedule k=3; it has k=1"):
        plots.training(history(seven), schedules=[mb.tbptt(3)])


def test_training_says_what_it_cannot_draw():
    with pytest.raises(ValueError, match="no moments"):
        plots.training(SimpleNamespace(moments=()))
    with pytest.raises(ValueError, match="measure must be one of share, error, cosine, norm_ratio, sign; found 'bias'"):
        plots.training(history(SIX), measure="bias")
    with pytest.raises(ValueError, match="besides full BPTT"):
        plots.training(history([mb.full()]))
    other = SimpleNamespace(moments=(history(SIX).moments[0], history(SIX[:2], moments=(50,)).moments[0]))
    with pytest.raises(ValueError, match="the same schedules: those after 50 training steps differ"):
        plots.training(other)


def test_no_figure_changes_the_settings_or_opens_a_window():
    before, windows = dict(matplotlib.rcParams), pyplot.get_fignums()
    plots.contributions(random(5), mb.tbptt(2), symbols="ab")
    plots.lags(random(5))
    plots.schemes(5, [mb.artbp(0.2)])
    plots.training(history(SIX))
    assert dict(matplotlib.rcParams) == before and pyplot.get_fignums() == windows


def test_the_figures_of_pairs_and_schemes_take_weights_and_refuse_what_is_no_schedule():
    c, w = random(6), mb.tbptt(2).coverage(6)
    check_readable(plots.contributions(c, w))
    first, second = plots.schemes(6, [w, mb.tbptt(2)], c)
    check_readable(first)
    check_readable(second)
    for draw in (lambda wrong: plots.contributions(c, wrong), lambda wrong: plots.schemes(6, wrong, c)):
        for wrong in ("k=2", 8):
            with pytest.raises(TypeError, match="schedules are made by"):
                draw(wrong)


@cache
def drawing():
    """Each figure as a function of ax, by name, and how many Axes it takes; none of them is asked for anything."""
    model, x = mb.LSTM(2, 3, rng=0, dtype=np.float64), np.random.default_rng(0).standard_normal((5, 2, 2))
    with mb.Tape() as tape:
        loss = mb.sum(model(x)[0])
    timing = mb.benchmark(mb.RNN(2, 3, rng=0), np.ones((3, 1, 2), np.float32), backends=["numpy"], seconds=0)
    drift = mb.drift(mb.RNN(2, 3, rng=0), x)
    return {
        "adjoints": (1, lambda ax: plots.adjoints(tape, loss, ax)),
        "benchmark": (1, lambda ax: plots.benchmark(timing, ax=ax)),
        "compare": (2, lambda ax: plots.compare(result({1: 0.5, 2: 0.2}), ax)),
        "contributions": (1, lambda ax: plots.contributions(random(5), ax=ax)),
        "drift": (1, lambda ax: plots.drift(drift, ax)),
        "highway": (2, lambda ax: plots.highway(model, x, ax=ax)),
        "jacobians": (1, lambda ax: plots.jacobians(model, x, ax=ax)),
        "lags": (2, lambda ax: plots.lags(random(5), ax)),
        "schemes": (2, lambda ax: plots.schemes(5, [mb.full(), mb.tbptt(2)], ax=ax)),
        "tape": (1, lambda ax: plots.tape(tape, loss, ax, detail="step")),
        "tape by operations": (1, lambda ax: plots.tape(tape, loss, ax, detail="operation")),
        "training": (2, lambda ax: plots.training(history(SIX), ax)),
    }


@pytest.mark.parametrize("name", sorted({*plots.__all__, "tape by operations"} - {"save"}))
def test_a_figure_takes_its_axes_and_names_what_is_none(name):
    number, draw = drawing()[name]
    figure, axes = pyplot.subplots(1, 5)
    try:
        for wrong in (3, "ax", figure, [3] * number, [axes[0], None], {}):
            with pytest.raises(TypeError, match=rf"plots\.{name.partition(' ')[0]} draws into .*; found "):
                draw(wrong)
        with pytest.raises((ValueError, TypeError), match=r"draws into .*; found (5|ndarray)"):
            draw(axes)
        draw(axes[0] if number == 1 else axes[:number])
        assert all(ax.has_data() for ax in axes[:number]) and not any(ax.has_data() for ax in axes[number:])
    finally:
        pyplot.close(figure)


def test_axes_in_a_column_of_their_own_are_drawn_into_too():
    for name in ("compare", "highway", "lags", "schemes", "training"):
        figure, axes = pyplot.subplots(2, 1, squeeze=False)
        try:
            drawing()[name][1](axes)
            assert all(ax.has_data() for ax in axes[:, 0])
        finally:
            pyplot.close(figure)


@pytest.mark.parametrize("name", ("compare", "highway", "lags", "schemes", "training"))
def test_axes_of_a_mosaic_are_drawn_into(name):
    figure, axes = pyplot.subplot_mosaic("ab")
    try:
        drawing()[name][1](axes.values())
        assert all(ax.has_data() for ax in axes.values())
    finally:
        pyplot.close(figure)


def test_only_what_has_a_figure_is_saved(tmp_path):
    for wrong in (3, [], [3], "ax", None):
        with pytest.raises(
            TypeError, match=f"plots.save takes what a function of plots returns.*{type(wrong).__name__}"
        ):
            plots.save(wrong, tmp_path / "f.png")
    assert list(tmp_path.iterdir()) == []
    figure, axes = pyplot.subplots(2, 2)
    try:
        plots.save(axes, tmp_path / "f.png", dpi=20)
    finally:
        pyplot.close(figure)
    assert (tmp_path / "f.png").read_bytes()[:4] == b"\x89PNG"
