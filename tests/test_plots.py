"""Figures: what they show, and that they leave matplotlib as it was."""

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot

import minibptt as mb
from minibptt import plots
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


def test_the_triangle_shows_shares_and_outlines_what_a_schedule_keeps(tmp_path):
    rng = np.random.default_rng(0)
    model = mb.Sequential(mb.RNNCell(2, 3, rng=1), mb.Linear(3, 2, rng=2))
    c = mb.contributions(model, rng.standard_normal((6, 2, 2)), rng.standard_normal((6, 2, 2)), mb.mse)
    ax = plots.contributions(c, mb.tbptt(2), symbols="a b$c\n")
    shown = ax.collections[0].get_array()
    assert np.ma.count(shown) == 21  # the lower triangle of 6 × 6, diagonal included
    np.testing.assert_allclose(shown[5, 0], c.share[5, 0])
    outline = {tuple(line.get_xdata()) + tuple(line.get_ydata()) for line in ax.lines}
    assert (2.5, 2.5, 2.5, 3.5) in outline and (0.5, 1.5, 2.5, 2.5) in outline  # the corner between two chunks
    assert "keeps" in ax.get_title() and "loss step" in ax.get_ylabel()
    minus = ax.collections[1].get_offsets()
    assert len(minus) == (np.tril(c.share) < -np.abs(c.share).max() / 100).sum()
    plots.save(ax, tmp_path / "c.png", dpi=40)
    own = pyplot.figure().subplots()
    assert plots.contributions(c, ax=own) is own
    pyplot.close("all")
