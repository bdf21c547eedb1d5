"""Small cells that several test files use."""

import numpy as np

import minibptt as mb


class Scalar(mb.Cell):
    """h_t = w·h_{t−1} + x_t."""

    def __init__(self, w=0.5):
        self.w = mb.parameter([w], dtype=np.float64)

    def zero_state(self, batch):
        return mb.zeros((batch, 1))

    def step(self, x, h):
        h = self.w * h + x
        return h, h
