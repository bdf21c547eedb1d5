"""Parameters and gates as the parts of a model."""

import numpy as np

import minibptt as mb
from minibptt.parts import parts_of, take


def test_every_parameter_and_every_gate_is_a_part():
    model = mb.Sequential(mb.Embedding(5, 3, rng=0), mb.LSTM(3, 2, rng=1), mb.Linear(2, 5, rng=2))
    parts = parts_of(model)
    assert list(parts) == [
        "0.W", "1.0.W_x", "1.0.W_h", "1.0.b", "2.W", "2.b", "gate i", "gate f", "gate g", "gate o",
    ]  # fmt: skip
    assert parts["gate f"] == {name: slice(2, 4) for name in ("1.0.W_x", "1.0.W_h", "1.0.b")}
    g = {name: np.ones(p.shape) for name, p in model.named_parameters()}
    assert {name: a.shape for name, a in take(g, parts["gate o"]).items()} == {
        "1.0.W_x": (3, 2), "1.0.W_h": (2, 2), "1.0.b": (2,),
    }  # fmt: skip


def test_the_recurrent_bias_of_a_gru_belongs_to_gate_n_and_several_cells_are_named():
    model = mb.GRU(3, 2, layers=2, rng=0)
    parts = parts_of(model)
    assert "gate n of 0" in parts and "gate n of 1" in parts and "gate n" not in parts
    assert parts["gate n of 1"] == {
        "1.W_x": slice(4, 6), "1.W_h": slice(4, 6), "1.b": slice(4, 6), "1.b_hn": slice(None),
    }  # fmt: skip
    assert set(parts["gate r of 0"]) == {"0.W_x", "0.W_h", "0.b"}


def test_a_cell_without_gates_and_a_parameter_that_is_not_laid_out_by_gate():
    assert set(parts_of(mb.RNNCell(2, 3, rng=0))) == {"W_x", "W_h", "b"}
    cell = mb.LSTMCell(2, 3, rng=0)
    cell.scale = mb.parameter(np.ones(5))
    assert cell.gate_columns("scale") == {} and "scale" in parts_of(cell)
    assert "scale" not in parts_of(cell)["gate i"]


def test_a_parameter_that_is_a_single_number_is_a_part_without_columns():
    g = mb.Gradients({"theta": np.array(2.0)})
    assert take(g, {"theta": slice(None)})["theta"] == 2.0


def test_cells_that_share_a_parameter_keep_their_own_gates():
    # b_hn is found in cell 0 first, and so carries its name; the gates of cell 1 are those of cell 1 all the same.
    first, second = mb.GRUCell(3, 3, rng=0), mb.GRUCell(3, 3, rng=1)
    second.b_hn = first.b_hn
    parts = parts_of(mb.Sequential(first, second))
    assert [part for part in parts if part.startswith("gate")] == [f"gate {g} of {i}" for i in (0, 1) for g in "rzn"]
    for i in (0, 1):
        assert parts[f"gate r of {i}"] == {f"{i}.{name}": slice(0, 3) for name in ("W_x", "W_h", "b")}
        assert set(parts[f"gate n of {i}"]) == {f"{i}.W_x", f"{i}.W_h", f"{i}.b", "0.b_hn"}
