"""minibptt: backpropagation through time from scratch, and what truncating it throws away.

The public names are here; `import minibptt as mb` loads neither matplotlib nor CuPy.
"""

import typing as _typing
from importlib import import_module as _import_module

from .asking import TapeError
from .backend import BackendError, available_backends, synchronize, to_numpy, use_backend
from .benchmark import benchmark
from .cells import Cell, GRUCell, LSTMCell, RNNCell
from .cells.kernels import unfused
from .cells.stack import Stack
from .check import GradientCheck, GradientError, check_gradient
from .check_cell import check_cell, check_step
from .clipping import check_finite, clip_by_global_norm, clip_by_value
from .compare import compare
from .contributions import Contributions, contributions
from .cutting import bptt
from .derive import derive
from .drift import drift
from .evaluate import evaluate
from .explore import explore
from .gradients import Gradients
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
from .sequence import unroll
from .states import reset, to_backend
from .streams import stream_batches
from .summary import summary
from .tape import Tape, cut, no_tape
from .tensor import Tensor, ones, zeros
from .train import train
from .truncation import artbp, full, recompute, tbptt
from .updates import updates

if _typing.TYPE_CHECKING:  # the names of _LATER, for those who read the code without running it
    from . import plots as plots
    from . import standin as standin
    from . import weights as weights
    from .archive import CheckpointError
    from .derivations.derivation import Derivation
    from .history import History, compare_training
    from .report import Comparison
    from .sampling import sample
    from .saving import load, save
    from .students.verdict import CellCheck
    from .weights import split_gates

__version__ = "0.1.0"

# Of the modules only `weights`: with `plots`, `from minibptt import *` would load matplotlib, and `standin` is no part
# of a model. Both are there as mb.plots and mb.standin.
__all__ = [
    "GRU", "LSTM", "RNN", "SGD", "Adam", "BackendError", "Cell", "CellCheck", "CheckpointError", "Comparison",
    "Contributions", "Derivation", "Dropout", "Embedding", "GRUCell", "GradientCheck", "GradientError", "Gradients",
    "History", "LSTMCell", "Linear", "Module", "Parameter", "RNNCell", "Sequential", "Stack", "Tape", "TapeError",
    "Tensor", "abs", "add", "artbp", "assign", "available_backends", "benchmark", "bptt", "check_cell", "check_finite",
    "check_gradient", "check_step", "clip_by_global_norm", "clip_by_value", "compare", "compare_training",
    "concatenate", "contributions", "cross_entropy", "cut", "derive", "device_memory", "divide", "drift", "embedding",
    "evaluate", "exp", "explore", "full", "load", "log", "log_softmax", "logsumexp", "matmul", "max", "maximum", "mean",
    "minimum", "mse", "multiply", "negative", "no_tape", "ones", "parameter", "peak_memory", "pick", "power",
    "recompute", "relu", "reset", "reshape", "sample", "save", "sigmoid", "softmax", "split", "split_gates", "sqrt",
    "stack", "stream_batches", "subtract", "sum", "summary", "synchronize", "tanh", "tbptt", "to_backend", "to_numpy",
    "train", "transpose", "unfused", "unroll", "unstack", "updates", "use_backend", "weights", "where", "zeros",
]  # fmt: skip

# Loaded when first asked for, so that the import stays quick: names, and the module where each is to be found, or which
# it is. A function called like its own module cannot stand here: as soon as anybody imports the module, it hides it.
_LATER = {
    "CellCheck": "students.verdict",
    "CheckpointError": "archive",
    "Comparison": "report",
    "Derivation": "derivations.derivation",
    "History": "history",
    "compare_training": "history",
    "load": "saving",
    "plots": "plots",
    "sample": "sampling",
    "save": "saving",
    "split_gates": "weights",
    "standin": "standin",
    "weights": "weights",
}


def __getattr__(name: str) -> _typing.Any:
    if name not in _LATER:
        raise AttributeError(f"module 'minibptt' has no attribute {name!r}")
    module = _import_module(f".{_LATER[name]}", __name__)
    return module if name == _LATER[name] else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
