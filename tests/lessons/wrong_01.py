"""Wrong answers to the exercises of lesson 1, and what is to be said of each. n: the numbers drawn for a student."""

import numpy as np


def neuron(n, two=2.0, last="x", prime=lambda h: 1 - h**2):
    h = np.tanh(n.w * n.x + n.b)
    return lambda: two * (h - n.y) * prime(h) * getattr(n, last, 1.0)


def swept(rule, order=reversed):
    def sweep(records, loss):
        adjoint = {loss: 1.0}
        for output, inputs in order(records):
            for name, derivative in inputs:
                new = derivative * adjoint.get(output, 0.0)
                adjoint[name] = rule(adjoint[name], new) if name in adjoint else new
        return adjoint

    return sweep


def unseeded(records, loss):
    adjoint = {}
    for output, inputs in reversed(records):
        for name, derivative in inputs:
            adjoint[name] = adjoint.get(name, 0.0) + derivative * adjoint.get(output, 0.0)
    return adjoint


WRONG = {
    "1.1": [
        (lambda n: neuron(n, two=-2.0), "the sign"),
        (lambda n: neuron(n, two=1.0), "the factor 2"),
        (lambda n: neuron(n, last="nothing"), "that is ∂L/∂b"),
        (lambda n: neuron(n, last="w"), "not w"),
        (lambda n: neuron(n, prime=lambda h: 1.0), "tanh' is missing"),
        (lambda n: neuron(n, prime=lambda h: 1 - np.tanh(h) ** 2), "tanh of tanh"),
        (lambda n: lambda: float("nan"), "not finite"),
    ],
    "1.2": [
        (lambda n: lambda a, g: np.tanh(a) + a * (1 - np.tanh(a) ** 2), "g is missing"),
        (lambda n: lambda a, g: g * np.tanh(a), "the one through tanh"),
        (lambda n: lambda a, g: g * a * (1 - np.tanh(a) ** 2), "through the first factor"),
        (lambda n: lambda a, g: g * (np.tanh(a) + a), "tanh' is missing"),
        (lambda n: lambda a, g: (g * a).sum(), "shape"),
        (lambda n: lambda a, g: np.multiply(g, a, out=g), "changes an array"),
    ],
    "1.3": [
        (lambda n: swept(lambda before, new: new), "overwrites the first"),
        (lambda n: swept(lambda before, new: before), "only the first"),
        (lambda n: swept(lambda before, new: before + new, order=list), "from the last to the first"),
        (lambda n: swept(lambda before, new: before + 2 * new), "are added"),
        (lambda n: unseeded, "must begin with"),
        (lambda n: lambda records, loss: {"L": 1.0}, "missing"),
        (lambda n: lambda records, loss: 1.0, "must be a dict"),
    ],
}
