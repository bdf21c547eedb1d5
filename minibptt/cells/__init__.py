"""A file a cell: its equations, its step on the tape, and its forward and backward pass by hand. Read base.py first."""

from .base import Cell
from .gru import GRUCell
from .lstm import LSTMCell
from .rnn import RNNCell

__all__ = ["Cell", "GRUCell", "LSTMCell", "RNNCell"]
