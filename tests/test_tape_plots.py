"""Drawings of a tape: read back from the Axes what was drawn, and that it can be read."""

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.text import Text
from test_plots import check_readable, grey, part, picture, rendered, segments

import minibptt as mb
from minibptt import plots
from minibptt.plots.network import ADJOINTS, WIDEST, Scale
from minibptt.unrolled import number, unrolled
from minibptt.wiring import wiring


class LinearCell(mb.Cell):
    """h_t = w_x·x_t + b_x + w_h·h_{t−1} + b_h."""

    def __init__(self):
        self.w_x, self.b_x = mb.parameter([3.0]), mb.parameter([1.0])
        self.w_h, self.b_h = mb.parameter([2.0]), mb.parameter([1.0])

    def zero_state(self, batch):
        return mb.zeros((batch, 1))

    def step(self, x, h):
        h = self.w_x * x + self.b_x + self.w_h * h + self.b_h
        return h, h


def toy():
    """Outputs 5, 18, 47 and padding; adjoints 7, 3, 1 mended; 2, 2 and 0 dropped."""
    x, y = (np.array(v).reshape(4, 1, 1) for v in ([1.0, 2.0, 3.0, 0.0], [4.0, 6.0, 8.0, 0.0]))
    with mb.Tape() as tape:
        outputs, _ = mb.unroll(LinearCell(), x, lengths=[3], cut_every=1)
        loss = mb.sum(outputs - y)
    return tape, loss


def network(T=8, layers=2, engine="tape", make=mb.LSTM, cut_every=3, marks=True, B=2, H=3):
    """Two rows of which one is a step shorter, both reset before step T/2 + 1 and one before step T − 2."""
    recurrent = make(2, H, layers=layers, engine=engine, rng=0, dtype=np.float64)
    model = mb.Sequential(recurrent, mb.Linear(H, 2, rng=1, dtype=np.float64))
    options = {}
    if marks:
        resets = np.zeros((T, B), bool)
        resets[T // 2], resets[T - 3, 1] = True, True
        options = {"lengths": [T - 1, T - 2], "resets": resets}
    with mb.Tape() as tape:
        outputs, _ = model(np.random.default_rng(0).standard_normal((T, B, 2)), cut_every=cut_every, **options)
        loss = mb.mse(outputs, np.ones(outputs.shape))
    return tape, loss


def texts(ax, gid=None):
    return [t.get_text() for t in ax.texts if gid is None or t.get_gid() == gid]


def nodes(ax, key):
    return part(ax, f"nodes {key}")


def check_labels_apart(ax):
    """No two texts of the figure overlap."""
    figure, renderer = rendered(ax)
    shown = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    boxes = [(t.get_text(), t.get_window_extent(renderer)) for t in shown]
    boxes = [(t, b) for t, b in boxes if b.y1 > 0 and b.y0 < figure.bbox.y1 and b.x1 > 0 and b.x0 < figure.bbox.x1]
    for i, (text, a) in enumerate(boxes):
        for other, b in boxes[i + 1 :]:
            apart = min(a.x1, b.x1) - max(a.x0, b.x0) < 0.5 or min(a.y1, b.y1) - max(a.y0, b.y0) < 0.5
            assert apart, (text, other, a, b)


# --- step by step ----------------------------------------------------------------------------------------------------


def test_the_toy_shows_its_values_the_dropped_adjoints_and_no_edge_past_a_cut():
    ax = plots.tape(*toy(), detail="step")
    assert [tuple(xy) for xy in nodes(ax, "h").get_offsets()] == [(t, 0) for t in (1, 2, 3, 4)]
    assert texts(ax)[:8] == ["h₁", "5", "h₂", "18", "h₃", "47", "h₄", "47"]
    assert texts(ax, "dropped") == ["2", "2", "0"]
    assert [tuple(xy) for xy in part(ax, "cuts").get_offsets()] == [(1.5, 0), (2.5, 0), (3.5, 0)]
    ends = [(round(a[0], 1), round(b[0], 1)) for a, b in segments(ax, "backward")]
    assert [b for _, b in ends] == [1.5, 2.5]  # from h₂ and h₃ back to the scissors; what is dropped at the third is 0
    assert len(segments(ax, "forward")) == 3
    check_readable(ax)
    check_labels_apart(ax)


def test_mended_edges_have_widths_in_proportion_to_the_adjoints():
    tape, loss = toy()
    ax = plots.tape(tape, loss, through_cuts=True, detail="step")
    norms = tape.adjoints(loss, through_cuts=True)["h"].ravel()
    assert norms.tolist() == [7, 3, 1, 0]
    widths = part(ax, "backward").get_linewidths()  # into h₁, h₂; into h₃ comes nothing over the third boundary
    np.testing.assert_allclose(widths, np.array([7, 3, 1]) / 7 * WIDEST)
    scale = Scale([7, 3, 1, 0])
    np.testing.assert_allclose(part(ax, "backward").get_colors(), [scale.colour(v) for v in (7, 3, 1)])
    assert texts(ax, "dropped") == []


@pytest.mark.parametrize("engine", ["tape", "explicit"])
def test_both_engines_give_the_same_drawing_of_padding_resets_and_cuts(engine):
    tape, loss = network(engine=engine)
    ax = plots.tape(tape, loss, detail="step")
    keys = ("0.0.c", "0.0.h", "0.1.c", "0.1.h")
    heights = [nodes(ax, key).get_offsets()[:, 1] for key in keys]
    assert all(len(set(h)) == 1 and len(h) == 8 for h in heights)
    assert [h[0] for h in heights] == sorted(h[0] for h in heights)  # layers bottom up, h above c
    paper = 1 - nodes(ax, "0.1.h").get_edgecolors()[:, 0]  # how dark the edge of a node is
    assert len(set(paper[:6].round(6))) == 1 and paper[5] > paper[6] > paper[7] > 0  # one row padded, then both
    assert len(part(ax, "cuts").get_offsets()) == len(tape.cuts) == 8
    assert {x for x, _ in part(ax, "cuts").get_offsets()} == {3.5, 6.5}
    dropped = tape.dropped(loss)
    assert sorted(texts(ax, "dropped")) == sorted(number(float(np.linalg.norm(d))) for d in dropped.values())
    solid, dashed = segments(ax, "forward"), segments(ax, "forward, some rows")
    crossed = {round((a[0] + b[0]) / 2 + 0.5) for a, b in solid}
    assert crossed == {2, 3, 4, 7, 8} and {round((a[0] + b[0]) / 2 + 0.5) for a, b in dashed} == {6}
    assert not any(4.4 < (a[0] + b[0]) / 2 < 4.6 for a, b in segments(ax, "backward"))  # both rows are reset there
    assert len(part(ax, "resets").get_offsets()) == 2 * 4
    up = segments(ax, "to the layer above")
    assert len(up) == 8 and all(a[1] > heights[1][0] - 1e-9 and b[1] < heights[2][0] for a, b in up)


@pytest.mark.parametrize("engine", ["tape", "explicit"])
def test_every_backward_edge_has_the_width_of_its_adjoint_or_of_what_is_dropped(engine):
    tape, loss = network(engine=engine, make=mb.GRU, layers=1, marks=False)
    ax = plots.tape(tape, loss, detail="step")
    norms = [float(np.linalg.norm(a)) for a in tape.adjoints(loss)["0.h"]]
    lost = {cut.step: float(np.linalg.norm(d)) for cut, d in tape.dropped(loss).items()}
    most = max(*norms, *lost.values())
    expected = {t: lost[t] if t in lost else norms[t - 2] for t in range(2, 9)}  # by the boundary before step t
    drawn = zip(segments(ax, "backward"), part(ax, "backward").get_linewidths())
    found = {int(np.ceil((a[0] + b[0]) / 2 + 0.3)): width for (a, b), width in drawn}
    assert found.keys() == expected.keys()
    for t, width in found.items():
        assert width == pytest.approx(max(0.5, WIDEST * expected[t] / most), rel=1e-9)


def test_a_cut_at_a_factor_is_drawn_on_both_sides():
    tape, loss = network(make=mb.RNN, layers=1, marks=False)
    ax = plots.tape(tape, loss, detail="step", through_cuts=0.25)
    found = unrolled(tape, loss, through_cuts=0.25)
    assert all(cut.factor == 0.25 for cut in found.cuts)
    at = [
        w for (a, b), w in zip(segments(ax, "backward"), part(ax, "backward").get_linewidths()) if 3 < b[0] < a[0] < 4
    ]
    most = Scale([*found.rows[0].adjoints, *[c.dropped for c in found.cuts]])
    arrived = found.cuts[0].dropped / 0.75
    assert at == pytest.approx([most.width(arrived), most.width(found.rows[0].adjoints[2])])


SIZES = [(3, 1, 1, False), (8, 2, 3, True), (8, 2, 1, True), (20, 2, 5, True), (100, 1, 10, False), (100, 3, 25, True),
         (100, 3, 1, False), (300, 2, 7, True)]  # fmt: skip


@pytest.mark.parametrize("T, layers, cut_every, marks", SIZES)
@pytest.mark.parametrize("make", [mb.RNN, mb.LSTM])
def test_a_drawing_of_any_length_can_be_read(T, layers, cut_every, marks, make):
    tape, loss = network(T, layers, "explicit", make, cut_every, marks)
    for through_cuts in (False, True):
        ax = plots.tape(tape, loss, detail="step", through_cuts=through_cuts)
        assert len(nodes(ax, tape.states[0]).get_offsets()) == T
        assert tuple(ax.figure.get_size_inches()) == (12.8, 7.2)
        check_readable(ax)
        check_labels_apart(ax)


def test_without_a_loss_only_what_went_forward_is_drawn():
    tape, _ = network()
    for detail in ("step", "operation"):
        ax = plots.tape(tape, detail=detail)
        assert not texts(ax, "dropped") and len(part(ax, "cuts").get_offsets()) == 8
        assert "backward" not in ax.get_title()
        assert not [p for p in ax.patches if p.get_label() == "backward"]
        assert not any(
            x.get_label() == "backward" and len(x.get_segments()) for x in ax.collections if detail == "step"
        )
        check_labels_apart(ax)


def test_a_loop_of_ones_own_is_drawn_and_a_state_from_an_earlier_tape_has_its_scissors():
    w, h = mb.parameter([0.5], dtype=np.float64), mb.zeros((1, 1))
    for _ in range(2):  # two chunks; the second starts from the state of the first
        with mb.Tape() as tape:
            h = mb.cut(h)
            for t in range(1, 8):
                with tape.at(t, layer="mine"):
                    h = mb.cut(h) if t == 4 else h
                    h = w * h + 1.0
                    tape.state("h", h)
            loss = mb.sum(h)
    ax = plots.tape(tape, loss, detail="step")
    assert len(nodes(ax, "mine.h").get_offsets()) == 7
    (x,) = {x for x, _ in part(ax, "cuts").get_offsets()} - {0.5}
    assert x == 3.5 and texts(ax, "dropped")[-1] == number(0.5**4)
    check_readable(ax)
    check_labels_apart(ax)


def test_two_sequences_on_one_tape_follow_each_other():
    cell = mb.RNNCell(1, 2, rng=0, dtype=np.float64)
    with mb.Tape() as tape:
        _, h = mb.unroll(cell, np.ones((4, 1, 1)), cut_every=2)
        outputs, _ = mb.unroll(cell, np.ones((5, 1, 1)), h, cut_every=2, engine="explicit")
        loss = mb.sum(outputs)
    found = unrolled(tape, loss)
    assert found.rows[0].columns.tolist() == list(range(1, 10))
    assert found.rows[0].steps.tolist() == [1, 2, 3, 4, 1, 2, 3, 4, 5]
    assert [cut.column for cut in found.cuts] == [3, 7, 9]
    ax = plots.tape(tape, loss, detail="step")
    assert [t.get_text() for t in ax.get_xticklabels()] == ["1", "2", "3", "4", "1", "2", "3", "4", "5"]


def test_a_layer_is_joined_to_the_one_that_it_feeds_and_to_no_other():
    a, b, c = (mb.RNN(2, 2, rng=i) for i in range(3))
    x = np.ones((3, 1, 2))
    with mb.Tape() as tape:
        outputs = []
        for name, layer, source in (("a", a, None), ("b", b, None), ("c", c, 0)):
            with tape.at(layer=name):
                outputs.append(layer(x if source is None else outputs[source] * 2.0)[0])
    assert unrolled(tape).between == [("a", "c")]


def test_device_arrays_are_drawn_too(xp):
    layer = mb.LSTM(2, 3, engine="tape", rng=0)
    with mb.Tape() as tape:
        outputs, _ = layer(xp.ones((3, 2, 2), dtype=np.float32), lengths=[3, 2], cut_every=2)
        loss = mb.sum(outputs)
    for detail in ("step", "operation"):
        assert len(part(plots.tape(tape, loss, detail=detail), "cuts").get_offsets()) == 2
    plots.adjoints(tape, loss)


# --- every operation -------------------------------------------------------------------------------------------------


def test_every_record_is_a_node_a_bar_or_scissors():
    tape, loss = toy()
    ax = plots.tape(tape, loss)  # four steps: the operations have room
    drawn = [p.get_label() for p in ax.patches]
    assert drawn.count("node") == 22 and drawn.count("bar") == 3 and len(part(ax, "cuts").get_offsets()) == 3
    assert len(tape.records) == 22 + 3 + 3
    assert {"h₁ = … + b_h", "5", "18", "47", "w_h · …", "w_x · 2"} <= set(texts(ax))
    assert texts(ax, "dropped") == ["2", "2", "0"]
    faint = [p for p in ax.patches if p.get_label() == "node" and p.get_linestyle() not in ("-", "solid")]
    assert len(faint) == 7 and all(p.get_x() > 3 for p in faint)  # the padded step
    check_readable(ax)
    check_labels_apart(ax)


def test_the_parts_that_come_back_add_up_to_the_adjoint_of_the_tape():
    tape, loss = network(T=3, H=1, B=1, marks=False, cut_every=2)
    for through_cuts in (False, True, 0.5):
        graph = wiring(tape, loss, through_cuts=through_cuts)
        arrived = {}
        for edge in graph.edges:
            arrived[edge.start] = arrived.get(edge.start, 0) + edge.part  # norms: all of one sign or a single part
        checked = 0
        for node in graph.nodes:
            out = node.record.outputs[0]
            if node.cut is None and len(node.record.outputs) == 1 and through_cuts is not True:
                expected = np.linalg.norm(tape.gradient(loss, out, through_cuts=through_cuts))
                assert node.adjoint == pytest.approx(expected, rel=1e-12, abs=1e-15)
                assert arrived.get(node, 1.0) >= node.adjoint - 1e-12  # a norm of a sum is at most the sum of norms
                checked += 1
        assert checked > 30 or through_cuts is True
        lost = tape.dropped(loss, through_cuts=through_cuts)
        for node in graph.nodes:
            if node.cut is not None:
                assert node.dropped == pytest.approx(float(np.linalg.norm(lost[node.cut])), abs=1e-15)


def test_a_mended_graph_has_the_adjoints_of_the_states():
    tape, loss = toy()
    graph = wiring(tape, loss, through_cuts=True)
    named = {n.formula: n.adjoint for n in graph.nodes if n.formula.endswith("+ b_h")}
    assert named == {
        "h₁ = … + b_h": 7,
        "h₂ = … + b_h": 3,
        "h₃ = … + b_h": 1,
        "h′₄ = … + b_h": 0,
    }  # step 4 is padding: h₄ is h₃
    parts = sorted(e.part for e in graph.edges if e.start.formula == "h₁ = … + b_h")
    assert parts == [1, 6]  # from the output, and over the boundary


def test_edges_between_operations_have_widths_in_proportion_to_what_comes_back():
    tape, loss = toy()
    ax = plots.tape(tape, loss, through_cuts=True)
    graph = wiring(tape, loss, through_cuts=True)
    parts = sorted(e.part for e in graph.edges if e.part)
    assert parts[-1] == 7 and parts[0] == 1
    widths = sorted(p.get_linewidth() for p in ax.patches if p.get_label() == "backward")
    np.testing.assert_allclose(widths, np.array(parts) / 7 * WIDEST)
    assert sum(p.get_label() == "forward" for p in ax.patches) == len(graph.edges)


@pytest.mark.parametrize("make", [mb.RNN, mb.LSTM, mb.GRU])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("marks", [False, True])
def test_operations_of_every_cell_can_be_read(make, layers, marks):
    tape, loss = network(4 if marks else 3, layers, "tape", make, 2, marks)
    ax = plots.tape(tape, loss, detail="operation")
    check_labels_apart(ax)
    drawn = [p.get_label() for p in ax.patches]
    assert drawn.count("node") + drawn.count("bar") + len(part(ax, "cuts").get_offsets()) == len(tape.records)
    _, renderer = rendered(ax)
    boxes = [p.get_window_extent(renderer) for p in ax.patches if p.get_label() in ("node", "bar")]
    for i, a in enumerate(boxes):
        assert not any(a.overlaps(b) for b in boxes[i + 1 :])


def test_the_level_of_detail_follows_the_size_and_can_be_forced():
    small, large, explicit = network(3, 1, marks=False), network(8), network(3, 1, "explicit", marks=False)

    def title(tape, **options):
        return plots.tape(*tape, **options).get_title()

    assert title(small).startswith("Every operation") and title(large).startswith("The unrolled network")
    assert title(explicit).startswith("The unrolled network")  # its operations are not on the tape
    assert title(explicit, detail="operation").startswith("Every operation")
    assert title(small, detail="step").startswith("The unrolled network")
    with pytest.raises(ValueError, match='must be "operation" or "step", found \'all\''):
        plots.tape(small[0], detail="all")
    with pytest.raises(mb.TapeError, match="no states are noted"):
        plots.tape(mb.Tape())
    with pytest.raises(mb.TapeError, match="not on this tape"):
        plots.tape(small[0], large[1])


def test_an_axes_of_ones_own_gets_the_drawing_and_settings_stay():
    before = dict(matplotlib.rcParams)
    figure, axes = pyplot.subplots(2, 1, figsize=(12.8, 7.2))
    figure.subplots_adjust(hspace=0.7)
    try:
        assert plots.tape(*network(), ax=axes[0]) is axes[0]
        assert plots.adjoints(*network(), ax=axes[1]) is axes[1]
        assert figure.axes == list(axes)
    finally:
        pyplot.close(figure)
    assert dict(matplotlib.rcParams) == before


def test_more_is_darker_in_grey_print():
    shades = grey(ADJOINTS(np.linspace(0, 1, 50))[:, :3])
    assert (np.diff(shades) < 0).all() and shades[0] - shades[-1] > 0.6
    ax = plots.tape(*toy(), through_cuts=True, detail="step")
    rgb = picture(ax)

    def shade(t):  # beside the name of a node
        x, y = ax.transData.transform((t, 0)) + np.array([-18, 12])
        return float(grey(rgb[round(rgb.shape[0] - y), round(x)]))

    assert shade(1) < shade(2) < shade(3) < shade(4)


# --- adjoints, jacobians, highway ------------------------------------------------------------------------------------


@pytest.mark.parametrize("T, marks", [(4, False), (8, True), (100, True)])
def test_lines_are_the_norms_of_the_adjoints_and_break_at_cuts(T, marks):
    tape, loss = network(T, cut_every=3, marks=marks, engine="explicit")
    ax = plots.adjoints(tape, loss)
    for key, adjoints in tape.adjoints(loss).items():
        norms = np.linalg.norm(adjoints.reshape(T, -1), axis=1)
        lines = [line for line in ax.lines if line.get_label() == key]
        x, y = (np.concatenate([getattr(line, f"get_{axis}data")() for line in lines]) for axis in "xy")
        np.testing.assert_array_equal(x, np.arange(1, T + 1))
        np.testing.assert_allclose(y, np.where(norms > 0, norms, np.nan))
        if not marks:
            assert [len(line.get_xdata()) for line in lines] == [3, 1]
        zeros = [x for line in ax.lines if line.get_label() == f"{key}: 0" for x in line.get_xdata()]
        assert zeros == (np.flatnonzero(norms == 0) + 1).tolist() and bool(zeros) == marks
    cuts = sorted(line.get_xdata()[0] for line in ax.lines if line.get_label() == "cut")
    assert cuts == [k + 0.5 for k in range(3, T, 3)]
    assert ax.get_yscale() == "log"
    check_readable(ax)


def test_a_mended_cut_does_not_break_the_line():
    ax = plots.adjoints(*toy(), through_cuts=True)
    (line,) = [line for line in ax.lines if line.get_label() == "h"]
    np.testing.assert_allclose(line.get_ydata(), [7, 3, 1, np.nan])


def test_singular_values_of_a_linear_cell_are_those_of_the_powers_of_its_weights():
    layer = mb.RNN(2, 3, "linear", rng=0, dtype=np.float64)
    ax = plots.jacobians(layer, np.ones((6, 1, 2)))
    W = layer.cells[0].W_h.value
    values = np.array([np.linalg.svd(np.linalg.matrix_power(W, lag), compute_uv=False) for lag in range(6)])
    lines = {line.get_label(): line.get_ydata() for line in ax.lines}
    for i, label in enumerate(("largest", "median", "smallest")):
        np.testing.assert_allclose(lines[label], values[:, i], rtol=1e-9)
    check_readable(ax)
    check_readable(plots.jacobians(mb.LSTM(2, 1, rng=0), np.ones((80, 1, 2)), of="c", t=70))
    check_readable(plots.jacobians(mb.GRU(2, 4, rng=0), np.ones((1, 1, 2))))


@pytest.mark.parametrize("T", [1, 6, 60])
def test_the_highway_shows_the_gates_and_their_product_beside_every_path(T):
    layer = mb.LSTM(2, 3, rng=0, dtype=np.float64)
    mb.assign(layer.cells[0].W_h, np.zeros((3, 12)))
    mb.assign(layer.cells[0].W_x, np.zeros((2, 12)))
    upper, lower = plots.highway(layer, np.ones((T, 1, 2)))
    f = 1 / (1 + np.exp(-1.0))  # the forget bias
    np.testing.assert_allclose(upper.lines[0].get_ydata(), f)
    for line in lower.lines[:2]:
        np.testing.assert_allclose(line.get_ydata(), f ** np.arange(T), rtol=1e-12)
    check_readable([upper, lower])
