"""`summary`: layers, shapes, parameters, bytes, with what is shared counted once."""

import sys

import numpy as np
import pytest

import minibptt as mb


def model():
    cell = mb.RNNCell(3, 3, rng=0)
    return mb.Sequential(
        mb.Embedding(5, 3, rng=0), mb.Stack([cell] * 2, dropout=0.25), mb.tanh, mb.LSTM(3, 4, layers=2), mb.Linear(4, 5)
    )


def test_the_totals_are_those_of_the_parameters_and_what_is_shared_is_counted_once():
    m = model()
    s = mb.summary(m)
    assert s.numbers == 15 + (9 + 9 + 3) + (48 + 64 + 16) + (64 + 64 + 16) + (20 + 5)
    assert s.numbers == sum(p.size for p in m.parameters().values()) and s.bytes == 4 * s.numbers
    assert [r.path for r in s.rows if not r.kind] == list(m.parameters())
    (again,) = [r for r in s.rows if r.same_as is not None]
    assert (again.path, again.same_as, again.numbers) == ("1.1", "1.0", 21)
    assert s.cells == 4 and mb.summary(mb.Linear(2, 2)).cells == 0


def test_the_table_shows_layers_shapes_and_bytes_and_says_what_steps_add():
    text = str(mb.summary(model()))
    for line in (
        "0          Embedding",
        "0.W                      5×3            15     60  float32",
        "1.1        RNNCell                                          = 1.0",
        "1.dropout0  Dropout 0.25",
        "2          tanh",
    ):
        assert " ".join(line.split()) in [" ".join(row.split()) for row in text.splitlines()]
    assert "333 parameters, 1,332 bytes (21 more are shared, and counted once)" in text
    assert "4 layers with a state, unrolled over T steps: every step uses the same parameters" in text
    assert "3.dropout0" not in text  # dropout that is off
    assert repr(mb.summary(mb.RNNCell(2, 3))).splitlines()[2].split() == ["W_x", "2×3", "6", "24", "float32"]


def test_tied_weights_are_marked_in_whatever_they_stand():
    class Tied(mb.Module):
        def __init__(self):
            self.E = mb.parameter(np.ones((4, 3)))
            self.parts = {"out": [self.E, mb.parameter(np.float32(1.0))]}
            self.own = self

    s = mb.summary(Tied())
    assert [(r.path, r.same_as, r.bytes) for r in s.rows] == [
        ("E", None, 96),
        ("parts.out.0", "E", 96),
        ("parts.out.1", None, 4),
    ]
    assert (s.numbers, s.bytes) == (13, 100) and "scalar" in str(s) and "= E" in str(s)


def test_html_is_escaped_and_plain_text_goes_where_signs_cannot(monkeypatch):
    class Odd(mb.Module):
        def __init__(self):
            self.layers = {"<b>": mb.parameter([1.0])}

    page = mb.summary(Odd())._repr_html_()
    assert "layers.&lt;b&gt;" in page and "<b>" not in page and page.startswith("<table>")
    assert "= 1.0" in mb.summary(model())._repr_html_()
    monkeypatch.setattr(sys, "stdout", type("Pipe", (), {"encoding": "ascii"})())
    assert str(mb.summary(model())).isascii()


def test_only_a_module_has_a_summary():
    with pytest.raises(TypeError, match="found list"):
        mb.summary([mb.Linear(2, 2)])
