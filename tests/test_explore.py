"""The page: what it stores against the engine, its read-outs in a real browser against cuts of the tape, and that data
stays data."""

import json
import math
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM, Browser

import minibptt as mb
from minibptt import cli
from minibptt.explore import SCRIPTS, Preset, page
from minibptt.losses import mse
from minibptt.parts import parts_of, take
from minibptt.stored import store
from minibptt.tasks import InfluenceBalancing

f64 = np.float64
PAGE = Path(mb.__file__).parent / "page"
T = 12
NASTY = [
    "</script><script>alert(1)</script>",
    '"',
    "'",
    "&lt;",
    "<!--",
    "🦊",
    "א",
    "\u202e",
    "\0",
    "\u2028",
    "\n",
    "\ud800",
]
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="no node is installed")


def models():
    """Name: (model, x, y, loss). The page stores D and X of the first two, C of the others."""
    rng = np.random.default_rng(5)
    ids, y = rng.integers(0, 6, (2, T, 1))
    lstm = mb.Sequential(
        mb.Embedding(6, 3, rng=1, dtype=f64), mb.LSTM(3, 5, rng=2, dtype=f64), mb.Linear(5, 6, rng=3, dtype=f64)
    )
    gru = mb.Sequential(
        mb.Embedding(6, 3, rng=1, dtype=f64), mb.GRU(3, 4, rng=2, dtype=f64), mb.Linear(4, 6, rng=3, dtype=f64)
    )
    x, bits = rng.standard_normal((T, 40, 1)), rng.integers(0, 2, (T, 40))
    rnn = mb.Sequential(mb.RNN(1, 4, rng=4, dtype=f64), mb.Linear(4, 2, rng=5, dtype=f64))
    tape = mb.Sequential(mb.RNNCell(1, 3, rng=4, dtype=f64), mb.Linear(3, 2, rng=5, dtype=f64))
    many = mb.Sequential(mb.GRU(1, 3, rng=4, dtype=f64), mb.Linear(3, 2, rng=5, dtype=f64))
    return {
        "lstm": (lstm, ids, y, mb.cross_entropy),
        "gru": (gru, ids, y, mb.cross_entropy),
        "rnn, many rows": (rnn, x, bits, mb.cross_entropy),
        "gru, many rows": (many, x, bits, mb.cross_entropy),
        "step by step": (tape, x[:, :2], bits[:, :2], mb.cross_entropy),
    }


MODELS = models()


@pytest.fixture(scope="module")
def contributed():
    found = {name: mb.contributions(*given) for name, given in MODELS.items()}
    found["influence"] = mb.contributions(InfluenceBalancing(), np.zeros((100, 1, 1)), np.ones((1, 1)), last)
    return found


def last(outputs, y, mask=None):
    return mse(outputs[-1], y)


def expected(g, full):
    return {
        "share": g.share(full),
        "cosine": g.cosine(full),
        "ratio": g.norm() / full.norm(),
        "error": g.relative_error(full),
    }


def part_of(g, model, part):
    return g if part == "all parameters" else take(g, parts_of(model)[part])


# --- in the browser ----------------------------------------------------------------------------------------------

SETTLE = """
new Promise(done => {
  const names = ['share', 'cosine', 'ratio', 'error', 'memory', 'bias', 'variance'];
  const after = () => done(Object.fromEntries(names.map(id => {
    const value = document.getElementById(id).dataset.value;
    return [id, value === undefined || value === '' ? null : Number(value)];
  })));
  addEventListener('hashchange', () => setTimeout(after), {once: true});
  location.hash = %s;
})
"""


def read(browser, **settings):
    """The page's read-outs after following a link to these settings; `n` makes every link another one."""
    read.n = getattr(read, "n", 0) + 1
    given = "&".join(f"{key}={value}" for key, value in {**settings, "n": read.n}.items())
    return browser.run(SETTLE % json.dumps("#" + given.replace(" ", "%20")))


@pytest.fixture(scope="module")
def opened(contributed, tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no chromium is installed")
    path = tmp_path_factory.mktemp("page") / "page.html"
    symbols = {name: NASTY for name in ("lstm", "gru")}
    presets = [
        Preset(name, {"untrained": c}, symbols.get(name, ""), symbols.get(name, "")) for name, c in contributed.items()
    ]
    mb.explore(presets, path)
    with Browser() as browser:
        browser.open(path)
        yield browser, list(contributed)


def close(found, wanted, where):
    for name, value in wanted.items():
        if math.isnan(value):
            assert found[name] is None or math.isnan(found[name]), (where, name, found)
        else:
            assert found[name] == pytest.approx(value, abs=1e-5), (where, name)


GRID = [
    *[mb.tbptt(k, offset=o) for k in (1, 2, 3, 5, 11, 12) for o in sorted({0, 1, k - 1}) if o < k],
    *[mb.tbptt(k1, k2, o, losses) for k1, k2 in [(1, 4), (3, 3), (4, 2), (3, 7), (5, 12), (12, 4)] for o in (0, k1 - 1)
      for losses in ("new", "last")],
]  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_every_control_setting_reads_what_cutting_the_tape_gives(opened, name):
    browser, names = opened
    model, x, y, loss = MODELS[name]
    full = mb.bptt(model, x, y, loss, mb.full())
    parts = ["all parameters", *parts_of(model)]
    for n, schedule in enumerate(GRID):
        g = mb.bptt(model, x, y, loss, schedule)
        k1, k2 = getattr(schedule, "k1", getattr(schedule, "k", 0)), getattr(schedule, "k2", getattr(schedule, "k", 0))
        losses = getattr(schedule, "losses", "new")
        for part in [parts[0], parts[n % len(parts)]]:
            settings = dict(
                preset=names.index(name), part=part, scheme="cut", k1=k1, k2=k2, offset=schedule.offset, losses=losses
            )
            found = read(browser, **settings)
            close(found, expected(part_of(g, model, part), part_of(full, model, part)), settings)
            assert found["memory"] == schedule.plan(T).longest, settings


def test_fifty_masks_by_hand_read_what_the_engine_gives(opened, contributed):
    browser, names = opened
    rng, realised = np.random.default_rng(1), 0
    for n in range(50):
        name = list(MODELS)[n % len(MODELS)]
        model, x, y, loss = MODELS[name]
        c, by_cutting = contributed[name], n % 2 == 0
        if by_cutting:  # any closed boundaries: what a cut tape can give
            closed = rng.random(T) < 0.3
            factors = np.where(closed, 0.0, 1.0)
            w = np.array([[np.prod(factors[s + 1 : t + 1]) if s <= t else 0.0 for s in range(T)] for t in range(T)])
            g = mb.bptt(model, x, y, loss, w)
            realised += 1
        else:
            w = np.tril(rng.random((T, T)) < rng.random())
            g = c.gradient(w)
        bits = w[np.tril_indices(T)].astype(int)
        bits = np.pad(bits, (0, -len(bits) % 4)).reshape(-1, 4) @ [8, 4, 2, 1]
        part = rng.choice(["all parameters", *parts_of(model)])
        settings = dict(preset=names.index(name), part=part, scheme="hand", mask="".join(f"{b:x}" for b in bits))
        found = read(browser, **settings)
        close(found, expected(part_of(g, model, part), part_of(c.full, model, part)), settings)
        rows = [t + 1 - np.flatnonzero(w[t])[0] for t in range(T) if w[t].any()]
        assert found["memory"] == max(rows, default=0)
    assert realised == 25


def test_random_cuts_have_no_bias_and_the_variance_of_the_closed_form(opened, contributed):
    browser, names = opened
    for name in MODELS:
        model, x, y, loss = MODELS[name]
        c = contributed[name]
        for p, part in [(0, None), (0.1, None), (0.37, list(parts_of(model))[1]), (0.9, None)]:
            settings = dict(preset=names.index(name), part=part or "all parameters", scheme="random", p=p, seed=3)
            found = read(browser, **settings)
            assert found["bias"] == 0
            assert found["variance"] == pytest.approx(c.gram(part).artbp_variance(p), rel=1e-5, abs=1e-12)
            closed = {int(s) for s in filter(None, browser.run("document.body.dataset.closed").split(","))}
            factors = np.array([0.0 if s in closed else 1 / (1 - p) for s in range(T)])
            w = np.array([[np.prod(factors[s + 1 : t + 1]) if s <= t else 0.0 for s in range(T)] for t in range(T)])
            g = mb.bptt(model, x, y, loss, w)
            wanted = expected(
                part_of(g, model, part or "all parameters"), part_of(c.full, model, part or "all parameters")
            )
            for key, value in wanted.items():
                assert found[key] == pytest.approx(value, rel=1e-5, abs=1e-5), (settings, key)


def test_influence_balancing_reads_the_shares_worked_out_for_it(opened):
    browser, names = opened
    # What a window of K steps sees of ∂s₀/∂θ = −6 (Tallec and Ollivier 2017): 10, 16.476, −.219, −6.
    for K, seen in [(10, 10.0), (19, 16.476), (41, -0.219), (100, -6.0)]:
        found = read(browser, preset=names.index("influence"), scheme="cut", k1=100, k2=K)
        assert found["share"] == pytest.approx(seen / -6, abs=2e-4)
        assert found["cosine"] == pytest.approx(math.copysign(1, -seen), abs=1e-6)
        assert found["memory"] == K


def test_symbols_are_shown_as_text_and_run_nothing(opened):
    browser, names = opened
    read(browser, preset=names.index("lstm"), scheme="cut", k1=4)
    browser.run("document.getElementById('triangle').focus()")
    browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    sentences = []
    for _ in range(T):  # from the last row up
        browser.key("End")
        browser.painted()
        sentences.append(browser.run("document.getElementById('sentence').textContent"))
        browser.key("ArrowUp")
    browser.painted()
    assert sentences[-1].startswith("loss on ‘</script><script>alert(1)</script>’ from its own step: ")
    assert "🦊" in sentences[6] and "א" in sentences[5]
    assert not re.search(
        "[\0\n\u202a-\u202e\u2028\ud800]", "".join(sentences)
    )  # signs that would be unseen or turn the line
    assert browser.run("document.querySelectorAll('script').length") == 2 + len(names)
    assert browser.run("[...document.querySelectorAll('#by-step td bdi')].length") == 2 * T
    assert browser.dialogs == [] and browser.messages == []
    assert all(url.startswith("file:") for url in browser.requests)


def test_the_policy_of_the_page_stops_a_script_that_is_not_its_own(opened):
    browser, _ = opened
    browser.run("window.ran = 0")
    browser.run(
        "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s);"
        "s.remove()"
    )
    assert browser.run("window.ran") == 0
    assert any("Content Security Policy" in message for message in browser.messages)
    browser.messages.clear()


def test_it_can_be_used_with_the_keyboard_alone(opened):
    browser, names = opened
    before = read(browser, preset=names.index("lstm"), scheme="hand")
    browser.run("document.getElementById('triangle').focus()")
    for _ in range(T):
        browser.key("ArrowDown")
    browser.key("Home")
    browser.key(" ")
    browser.key("ArrowRight", modifiers=8)  # with shift: paints on
    browser.painted()
    w = np.tri(T)
    w[T - 1, :2] = 0
    model, *rest = MODELS["lstm"]
    c = mb.contributions(model, *rest)
    assert float(browser.run("document.getElementById('share').dataset.value")) == pytest.approx(
        c.kept_share(w), abs=1e-5
    )
    assert before["share"] == pytest.approx(1, abs=1e-6)
    browser.key("Tab")
    assert browser.run("document.activeElement.id") != "triangle"
    stops = browser.run(
        "[...document.querySelectorAll('select, input, button, canvas, summary')]"
        ".filter(e => !e.disabled && e.offsetParent && (e.labels?.length ?? 1) === 0 && e.tagName === 'INPUT').length"
    )
    assert stops == 0  # every input has a label


def test_a_mask_is_painted_with_the_mouse_and_scissors_are_dragged(opened):
    browser, names = opened
    browser.size(1280, 1000)
    place = "(b => [b.x, b.y, b.width])(document.getElementById('triangle').getBoundingClientRect())"
    read(browser, preset=names.index("lstm"), scheme="hand")
    browser.run("document.getElementById('triangle').scrollIntoView()")
    x, y, width = browser.run(place)
    bars, left, top = min(90, width * 0.1), 58, 24
    cell = (width - left - bars - 10) / T
    at = lambda t, s: (x + left + (s + 0.5) * cell, y + top + (t + 0.5) * cell)  # noqa: E731
    browser.mouse("mousePressed", *at(6, 1))
    browser.mouse("mouseMoved", *at(6, 2))
    browser.mouse("mouseReleased", *at(6, 2))
    browser.painted()
    w = np.tri(T)
    w[6, 1:3] = 0
    c = mb.contributions(*MODELS["lstm"])
    assert float(browser.run("document.getElementById('share').dataset.value")) == pytest.approx(
        c.kept_share(w), abs=1e-5
    )
    read(browser, preset=names.index("lstm"), scheme="cut", k1=4)
    browser.mouse("mousePressed", x + left + 4 * cell, y + top + 4.5 * cell)
    browser.mouse("mouseMoved", x + left + 5 * cell, y + top + 4.5 * cell)
    browser.mouse("mouseReleased", x + left + 5 * cell, y + top + 4.5 * cell)
    browser.painted()
    assert browser.run("document.getElementById('offset').value") == "1"
    assert browser.run("document.body.dataset.closed") == "1,5,9"


def test_a_finger_paints_on_cells_and_scrolls_everywhere_else(opened):
    browser, names = opened
    browser.size(390, 700, mobile=True)
    place = "(b => [b.x, b.y, b.width])(document.getElementById('triangle').getBoundingClientRect())"
    for scheme, on_cell, scrolls in [("cut", True, True), ("hand", False, True), ("hand", True, False)]:
        read(browser, preset=names.index("lstm"), scheme=scheme)
        browser.run("scrollTo(0, 0); document.getElementById('triangle').scrollIntoView()")
        x, y, width = browser.run(place)
        before = browser.run("scrollY")
        at_x, at_y = x + width * (0.15 if on_cell else 0.7), y + (250 if on_cell else 130)
        browser.swipe(at_x, at_y, at_x, at_y - 100)
        assert (browser.run("scrollY") != before) == scrolls, (scheme, on_cell)
        painted = (
            float(browser.run("document.getElementById('error').dataset.value")) > 0 if scheme == "hand" else False
        )
        assert painted == (not scrolls)
    browser.size(1280, 900)


CUT_OFF = """
[...document.querySelectorAll('dd, h1, h2:not(.unseen), p, label, select, button, td')]
  .filter(e => e.offsetParent && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'inline')
  .map(e => e.outerHTML.slice(0, 80))
"""


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_nothing_is_wider_than_the_screen(opened, width):
    browser, names = opened
    browser.size(width, 800, mobile=width < 500)
    for scheme in ("cut", "random", "hand"):
        read(browser, preset=names.index("gru"), scheme=scheme)
        browser.painted()
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run(CUT_OFF) == []
    browser.size(1280, 900)


# --- what is stored, and how the page is put together ------------------------------------------------------------


@pytest.fixture(scope="module")
def eight_rows():
    """A model whose gradients by part need more room than the Gram matrix of all."""
    x, y = np.random.default_rng(7).integers(0, 6, (2, T, 8))
    layers = mb.Embedding(6, 3, rng=1, dtype=f64), mb.GRU(3, 6, rng=2, dtype=f64), mb.Linear(6, 6, rng=3, dtype=f64)
    return mb.Sequential(*layers), x, y, mb.cross_entropy


def test_what_does_not_fit_is_left_out_and_said(eight_rows):
    c = mb.contributions(*eight_rows)
    levels = [store(c, most)["level"] for most in (2_000_000, 60_000, 9_000)]
    assert levels == ["full", "all", "shares"]
    with pytest.raises(ValueError, match="Take a shorter sequence"):
        store(c, 2000)
    for most, words in [(60_000, "of single parts only the shares"), (9_000, "the shares alone")]:
        text = page([Preset("p", {"": c})], most)
        assert words in text
    assert len(page([Preset("p", {"": c})], 60_000)) < 60_000 + len(page([Preset("p", {"": c})], 9_000))


@needs_browser
def test_what_is_left_out_is_switched_off_and_the_rest_is_right(tmp_path, eight_rows):
    c = mb.contributions(*eight_rows)
    model, x, y, loss = eight_rows
    g = mb.bptt(model, x, y, loss, mb.tbptt(3))
    for most, known in [(60_000, True), (9_000, False)]:
        with Browser() as browser:
            mb.explore(c, tmp_path / "page.html", most_bytes=most)
            browser.open(tmp_path / "page.html")
            found = read(browser, scheme="cut", k1=3)
            if known:
                close(found, expected(g, c.full), most)
            else:
                assert found["share"] == pytest.approx(g.share(c.full), abs=1e-5)
                assert found["cosine"] is found["error"] is found["ratio"] is None
            found = read(browser, scheme="cut", k1=3, part="gate n")
            assert found["share"] == pytest.approx(
                part_of(g, model, "gate n").share(part_of(c.full, model, "gate n")), abs=1e-5
            )
            assert found["error"] is None and "Only the shares" in browser.run("document.body.innerText")
            assert browser.messages == []


def test_data_cannot_end_its_element_or_become_markup(contributed):
    c = contributed["lstm"]
    text = page(
        [Preset("</title><b>", {"<img src=x onerror=alert(1)>": c}, NASTY, NASTY, "<script>1</script> & \u2029")]
    )
    assert text.count("<script") == 3 and text.count("</script>") == 3  # two of data, one that runs
    data = re.findall(r'<script type="application/json" id="([\w-]+)">(.*?)</script>', text, re.DOTALL)
    assert [name for name, _ in data] == ["presets", "preset-0"]
    for _, content in data:
        assert content.isascii() and not re.search("[<>&]", content)
    assert json.loads(data[1][1])["symbols"] == NASTY
    assert "<img" not in text and "<b>" not in text
    assert "://" not in text.replace("http://www.w3.org/2000/svg", "")  # the name of a namespace, which nobody loads


def test_mistakes_are_named(tmp_path, contributed):
    c, other = contributed["lstm"], contributed["influence"]
    for given, options, words in [
        (c, {"symbols": "abc"}, "symbols must be T = 12 strings, found 3"),
        ({"a": c, "b": other}, {}, r"must have one T, found \[12, 100\]"),
        ([], {}, "no preset"),
    ]:
        with pytest.raises(ValueError, match=words):
            mb.explore(given, tmp_path / "x.html", **options)
    model = MODELS["lstm"][0]
    zero = mb.contributions(model, MODELS["lstm"][1], None, lambda outputs, y: mb.sum(outputs * 0))
    with pytest.raises(ValueError, match="full gradient is zero"):
        mb.explore(zero, tmp_path / "x.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("no/page.html", "there is no folder .*no. Give a file in a folder that is there"),
        ("file/page.html", "there is no folder .*file"),
        ("", "it is a folder"),
        ("a" * 300, "cannot write to .*: File name too long"),
    ],
)
def test_a_path_that_cannot_be_written_to_is_named_and_nothing_is_lost(path, words, tmp_path, contributed):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match=words):
        mb.explore(contributed["lstm"], tmp_path / path)
    assert [one.name for one in tmp_path.iterdir()] == ["file"] and (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"symbols": 3}, "symbols must be T = 12 strings, or left out; found 3"),
        ({"targets": None}, "targets must be T = 12 strings, or left out; found None"),
        ({"name": 3}, "name must be a string, found 3"),
        ({"about": b"x"}, "about must be a string, found b'x'"),
        ({"most_bytes": "2 MB"}, "most_bytes must be a number, found '2 MB'"),
        ({"path": 3}, "the path must be the name of a file, found 3"),
    ],
)
def test_an_option_of_another_kind_is_named(options, words, tmp_path, contributed):
    with pytest.raises(TypeError, match=words):
        mb.explore(contributed["lstm"], **{"path": tmp_path / "x.html", **options})
    assert list(tmp_path.iterdir()) == []


def test_the_moments_of_a_preset_are_contributions_by_name(contributed):
    for wrong, found in [(contributed["lstm"], "Contributions"), ({"": 3}, "int")]:
        with pytest.raises(TypeError, match=f"the moments of a preset are .*found {found}"):
            Preset("mine", wrong)


# --- the JavaScript by itself ------------------------------------------------------------------------------------


def in_node(folder, code):
    for name in SCRIPTS:
        shutil.copy(PAGE / name, folder / name)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "main.js").write_text(code)
    result = subprocess.run(["node", "main.js"], cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@needs_node
def test_schedules_of_the_page_are_those_of_the_engine(tmp_path, contributed):
    c = contributed["lstm"]
    asked = [dict(k1=k1, k2=k2, offset=o, losses=losses, n=n)
             for n in (1, 5, T) for k1 in (1, 2, 3, 5, 12) for k2 in (1, 2, 3, 7, 12) for o in range(0, k1, 2)
             for losses in ("new", "last")]  # fmt: skip
    shares = c.share[np.tril_indices(T)].tolist()
    code = f"""
    import * as s from "./schedule.js"; import * as p from "./pairs.js";
    const found = {json.dumps(asked)}.map(({{n, ...given}}) => {{
      const plan = s.planOf({{scheme: "cut", tied: false, ...given}}, n), w = s.coverage(plan);
      const kept = n === {T} && p.shareAgainstK(n, {shares}, {{tied: false, ...given}})[given.k2 - 1];
      return [[...w], s.stepsInMemory(plan), n === {T} && [...s.missing(plan, w, {shares})], kept && kept.all];
    }});
    console.log(JSON.stringify(found));
    """
    for given, (w, memory, missing, kept) in zip(asked, in_node(tmp_path, code)):
        n = given.pop("n")
        schedule = mb.tbptt(given["k1"], given["k2"], given["offset"], given["losses"])
        assert w == schedule.coverage(n)[np.tril_indices(n)].tolist(), given
        assert memory == schedule.plan(n).longest, given
        if n == T:
            np.testing.assert_allclose(missing, c.missing(schedule), atol=1e-12)
            np.testing.assert_allclose(kept, [c.kept_share(one) for one in schedule.over_offsets(n)], atol=1e-12)


@needs_node
def test_random_cuts_of_the_page_are_independent_and_as_frequent_as_asked(tmp_path):
    code = """
    import { randomPlan } from "./schedule.js";
    const plans = Array.from({length: 4000}, (_, seed) => randomPlan(20, 0.3, seed).updates[0].factors);
    console.log(JSON.stringify(plans.map(factors => factors.map(f => f === 0 ? 1 : 0))));
    """
    closed = np.array(in_node(tmp_path, code))
    assert not closed[:, 0].any()
    error = math.sqrt(0.3 * 0.7 / 4000)
    assert np.abs(closed[:, 1:].mean(axis=0) - 0.3).max() < 4.5 * error
    assert np.abs(np.corrcoef(closed[:, 1:].T) - np.eye(19)).max() < 4.5 / math.sqrt(4000)


@needs_node
def test_pairs_are_put_into_words(tmp_path):
    pairs = [
        (dict(t=18, s=1, symbol="(", target=")", share=0.031, part="all", whole="all"),
         "loss on ‘)’ from the step of ‘(’, 17 back: +3.1 % of the gradient"),
        (dict(t=1, s=1, symbol="(", target="\n", share=-0.00071, part="gate f", whole="all"),
         "loss on ‘↵’ from its own step: −0.07 % of the gradient of gate f"),
        (dict(t=9, s=1, share=0, part="all", whole="all"), "loss of step 10 from step 2, 8 back: 0 % of the gradient"),
    ]  # fmt: skip
    code = f"""
    import {{ pairInWords, visible }} from "./words.js";
    const words = {json.dumps([given for given, _ in pairs])}.map(given =>
      pairInWords(given).map(({{text, symbol}}) => text ?? visible(symbol)).join(""));
    console.log(JSON.stringify(words));
    """
    assert in_node(tmp_path, code) == [words for _, words in pairs]


def test_every_script_is_a_module_of_its_own_and_names_do_not_collide():
    names = []
    for name in SCRIPTS:
        text = (PAGE / name).read_text(encoding="utf-8")
        names += re.findall(r"^(?:export )?(?:const|let|function|class) (\w+)", text, re.MULTILINE)
        for imported in re.findall(r'from "\./([\w.]+)"', text):
            assert SCRIPTS.index(imported) < SCRIPTS.index(name)
        assert "innerHTML" not in text and "eval(" not in text and "fetch(" not in text
    assert len(names) == len(set(names)) > 50


# --- the command -------------------------------------------------------------------------------------------------


def test_the_command_writes_a_page_of_a_text_and_of_a_task(tmp_path, capsys):
    text = tmp_path / "my text.txt"
    text.write_text("a (b) </script> 'é' " * 9, encoding="utf-8")
    out = tmp_path / "page.html"
    for given in (
        ["--text", str(text), "--start", "3"],
        ["--task", "coin", "--batch", "3"],
        ["--task", "adding", "--cell", "gru"],
    ):
        options = ["--length", "9", "--hidden", "4", "--train-steps", "3", "--out", str(out)]
        assert cli.main(["explore", *given, *options]) == 0
        found = re.findall(
            r'<script type="application/json" id="([\w-]+)">(.*?)</script>', out.read_text(encoding="utf-8")
        )
        heads, preset = (json.loads(content) for _, content in found)
        assert heads[0]["T"] == 9 and heads[0]["moments"] == len(preset["moments"]) == 3
        assert [m["label"] for m in preset["moments"]] == ["untrained", "after 1 step", "after 3 steps"]
        assert {m["level"] for m in preset["moments"]} == {"full"}
        if given[0] == "--text":
            assert "".join(preset["symbols"]) == "b) </scri" and "".join(preset["targets"]) == ") </scrip"
        assert sorted(p.name for p in tmp_path.iterdir()) == ["my text.txt", "page.html"]
    assert "open it in a browser" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--length", "300"], "at most 256 steps"),
        (["--start", "3"], "give --text FILE too"),
        (["--out", "{tmp}"], "it is a folder"),
        (["--out", "{tmp}/no/page.html"], "there is no such folder"),
        (["--text", "{tmp}/absent.txt"], "no file"),
    ],
)
def test_a_mistake_ends_in_one_line_with_nothing_written(options, words, tmp_path, capsys):
    options = [o.replace("{tmp}", str(tmp_path)) for o in options]
    assert cli.main(["explore", "--train-steps", "1", *options]) == 2
    assert words in capsys.readouterr().err and list(tmp_path.iterdir()) == []


def test_a_folder_that_takes_no_file_is_known_before_the_training(tmp_path, capsys, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    monkeypatch.setattr("minibptt.commands.explore._text", lambda *_: pytest.fail("trained, with nowhere to write to"))
    assert cli.main(["explore", "--out", str(tmp_path / "page.html")]) == 2
    err = capsys.readouterr().err
    assert "page.html: No space left on device. Give --out in another folder" in err and err.count("\n") == 1
