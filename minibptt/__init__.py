"""minibptt: backpropagation through time from scratch, and what truncating it throws away.

The public names are here; `import minibptt as mb` loads neither matplotlib nor CuPy.
"""

from importlib import import_module as _import_module
from typing import Any as _Any

from . import weights
from .archive import CheckpointError
from .asking import TapeError
from .backend import BackendError, available_backends, synchronize, to_numpy, use_backend
from .benchmark import benchmark
from .cells import Cell, GRUCell, LSTMCell, RNNCell
from .cells.kernels import unfused
from .cells.stack import Stack
from .check import GradientCheck, GradientError, check_gradient
from .check_cell import CellCheck, check_cell, check_step
from .clipping import check_finite, clip_by_global_norm, clip_by_value
from .compare import compare
from .contributions import Contributions, contributions
from .cutting import bptt
from .derivations.derivation import Derivation
from .derive import derive
from .drift import drift
from .evaluate import evaluate
from .explore import explore
from .gradients import Gradients
from .history import History, compare_training
from .layers import Dropout, Embedding, Linear, Sequential
from .losses import cross_entropy, mse
from .memory import device_memory, peak_memory
from .module import Module
from .ops import (
    abs,
    add,
    concatenate,
    divide,
    embedding,
    exp,
    log,
    log_softmax,
    logsumexp,
    matmul,
    max,
    maximum,
    mean,
    minimum,
    multiply,
    negative,
    pick,
    power,
    relu,
    reshape,
    sigmoid,
    softmax,
    split,
    sqrt,
    stack,
    subtract,
    sum,
    tanh,
    transpose,
    unstack,
    where,
)
from .optim import SGD, Adam
from .parameters import Parameter, assign, parameter
from .recurrent import GRU, LSTM, RNN
from .report import Comparison
from .sampling import sample
from .saving import load, save
from .sequence import unroll
from .states import reset, to_backend
from .streams import stream_batches
from .summary import summary
from .tape import Tape, cut, no_tape
from .tensor import Tensor, ones, zeros
from .train import train
from .truncation import artbp, full, recompute, tbptt
from .updates import updates
from .weights import split_gates

__version__ = "0.1.0"


def __getattr__(name: str) -> _Any:
    if name == "plots":  # matplotlib is loaded when a plot is first asked for
        return _import_module(".plots", __name__)
    raise AttributeError(f"module 'minibptt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), "plots"])
