"""Wrong answers to the exercises of lesson 8, and what is to be said of each. n: the numbers drawn for a student."""

import numpy as np


def step(x, h_prev, c_prev, W_x, W_h, b):
    z_i, z_f, z_g, z_o = np.split(x @ W_x + h_prev @ W_h + b, 4, axis=1)
    i, f, o = (1 / (1 + np.exp(-z)) for z in (z_i, z_f, z_o))
    g = np.tanh(z_g)
    c = f * c_prev + i * g
    return o * np.tanh(c), c, (x, h_prev, c_prev, W_x, W_h, i, f, g, o, c)


def back(own=True, carry=True, o_there=True, before=True, forget=True, tanh_g=True, twice=False, order=(0, 1, 2, 3)):
    """One step back, with one mistake."""

    def step_back(dh, dc, cache):
        x, h_prev, c_prev, W_x, W_h, i, f, g, o, c = cache
        arrived = dh * (o if o_there else 1) * (1 - np.tanh(np.tanh(c) if twice else c) ** 2)
        dc_t = dc * carry + arrived * own
        dz_f = dc_t * (c_prev if before else c) * f * (1 - f)
        dz_g = dc_t * i * (1 - g**2 if tanh_g else 1)
        parts = [dc_t * g * i * (1 - i), dz_f, dz_g, dh * np.tanh(c) * o * (1 - o)]
        dz = np.concatenate([parts[q] for q in order], axis=1)
        dc_prev = dc_t * (f if forget else 1)
        return dz @ W_x.T, dz @ W_h.T, dc_prev, x.T @ dz, h_prev.T @ dz, dz.sum(axis=0)

    return step_back


def convert(order=(0, 2, 1, 3), add=(0, 1, 0, 0), rows_last=False, always=None):
    """From TensorFlow 1, with one mistake. add: how often the forget bias is added to the gates that come out."""

    def converted(kernel, bias, D, forget_bias):
        H = len(bias) // 4
        if rows_last:
            kernel = np.concatenate([kernel[H:], kernel[:H]])
        W = np.concatenate([np.split(kernel, 4, axis=1)[q] for q in order], axis=1)
        b = np.concatenate([np.split(bias, 4)[q] for q in order])
        return W[:D], W[D:], b + np.repeat(add, H) * (forget_bias if always is None else always)

    return converted


def replaced(kernel, bias, D, forget_bias):
    W_x, W_h, b = convert()(kernel, bias, D, forget_bias)
    return W_x, W_h, np.where(np.repeat([0, 1, 0, 0], len(b) // 4), forget_bias, b)


def three(change):
    return lambda n: lambda *given: change(*convert()(*given))


WRONG = {
    "8.1": [
        (lambda n: lambda: 1 - 1 / n.steps, "f itself"),
        (lambda n: lambda: -np.log(n.steps - 1), "sign is flipped"),
        (lambda n: lambda: np.log(n.steps), "ln\\(steps\\)"),
        (lambda n: lambda: n.steps, "number of steps itself"),
        (lambda n: lambda: np.arctanh(1 - 1 / n.steps), "no tanh"),
        (lambda n: lambda: 9.0, "by the tape"),
        (lambda n: lambda: None, "return missing"),
    ],
    "8.2": [
        (lambda n: (step, back(carry=False)), "carry is lost|dc from the step after"),
        (lambda n: (step, back(own=False)), "only dc from the step after|is missing"),
        (lambda n: (step, back(o_there=False)), "o is missing"),
        (lambda n: (step, back(before=False)), "c_t stands where c_{t−1} belongs"),
        (lambda n: (step, back(forget=False)), "forget gate is missing"),
        (lambda n: (step, back(tanh_g=False)), "candidate's derivative"),
        (lambda n: (step, back(twice=True)), "tanh is applied twice"),
        (lambda n: (step, back(order=(0, 2, 1, 3))), "differs"),
        (lambda n: (step, "no"), "must be a function"),
    ],
    "8.3": [
        (lambda n: convert(order=(0, 1, 2, 3), add=(0, 0, 1, 0)), "order of TensorFlow 1 still"),
        (lambda n: convert(rows_last=True), "wrong way"),
        (lambda n: convert(order=(0, 3, 2, 1)), "o and f are swapped"),
        (lambda n: convert(add=(0, 0, 0, 0)), "forget bias is missing"),
        (lambda n: convert(add=(1, 1, 1, 1)), "to all gates"),
        (lambda n: convert(add=(0, 0, 1, 0)), "added to g"),
        (lambda n: convert(add=(0, -1, 0, 0)), "subtracted"),
        (lambda n: convert(order=(0, 2, 3, 1)), "blocks are i f o g"),
        (lambda n: replaced, "takes the place"),
        (three(lambda W_x, W_h, b: (W_x.T, W_h.T, b)), "shape"),
        (three(lambda W_x, W_h, b: W_x), "3 things, W_x, W_h and b; found"),
    ],
}
