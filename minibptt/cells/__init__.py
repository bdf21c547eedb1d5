"""A file a cell: its equations and its step on the tape."""

from .base import Cell
from .rnn import RNNCell

__all__ = ["Cell", "RNNCell"]
