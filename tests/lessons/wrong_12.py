"""Wrong answers to the exercises of lesson 12, and what is to be said of each. n: the numbers drawn for a student."""

from types import SimpleNamespace

import numpy as np

import minibptt as mb
from minibptt import standin


def crossover(operations=48, gpu_us=None, cpu_us=None, gpu=True, root=0.5, micro=1e-6, rows=True, giga=1e9):
    def of(n):
        asking = ((n.gpu_us if gpu_us is None else gpu_us) - (n.cpu_us if cpu_us is None else cpu_us)) * micro
        doing = operations * (n.B if rows else 1) * (1 / n.cpu_gflops - gpu / n.gpu_gflops) / giga
        return lambda: (asking / doing) ** root

    return of


def clock(*lines):
    """A clock of these lines: w work, s wait, [ start, ] stop."""

    def timed(work, wait, now):
        start = stop = 0.0
        for line in "".join(lines):
            if line == "w":
                work()
            elif line == "s":
                wait()
            elif line == "[":
                start = now()
            else:
                stop = now()
        return stop - start

    return timed


def step(
    state=mb.cut, target=lambda x: x[:-1], loss=lambda loss: loss, after=lambda state: state, outputs=slice(1, None)
):
    def mended(model, optimiser, x, before):
        with mb.Tape() as tape:
            out, new = model(x, state(before))
            error = mb.mse(out[outputs], target(x))
        optimiser.step(tape.gradient(error, model))
        return loss(error), after(new)

    return mended


def over_the_host(state):
    return mb.to_backend(mb.to_backend(state, "numpy"), standin.xp)


def made_on_the_host(x):
    return mb.to_backend(mb.to_numpy(x)[:-1], standin.xp)


def number(loss):
    return loss.item()


def looks(loss):
    mb.synchronize(loss)
    return loss


WRONG = {
    "12.1": [
        (crossover(root=1), "the root is missing"),
        (crossover(rows=False), "B is missing"),
        (crossover(16), "2 operations for each weight"),
        (crossover(24), "W_x and W_h"),
        (crossover(12), "four gates"),
        (crossover(gpu=False), "GPU's arithmetic is left out"),
        (crossover(cpu_us=0), "CPU's µs are left out"),
        (crossover(micro=1e-3), "units"),
        (crossover(micro=1), "the µs are not in seconds"),
        (crossover(giga=1), "GFLOP/s are not in operations"),
        (crossover(giga=1e6), "both are in thousands"),
        (crossover(gpu=-1), "its sign is minus"),
        (
            lambda n: lambda: ((n.gpu_us - n.cpu_us) * 1e-6 * (n.gpu_gflops - n.cpu_gflops) * 1e9 / (48 * n.B)) ** 0.5,
            "the time of an operation",
        ),
        (crossover(48 * 20), "the 20 steps"),
        (lambda n: lambda: crossover()(n)() * 1j, "complex"),
        (lambda n: lambda: 3.0, "3 is not it"),
        (lambda n: lambda: None, "return missing"),
    ],
    "12.2": [
        (lambda n: clock("ws[w]"), "before the device has finished: that is how long asking takes"),
        (lambda n: clock("w[ws]"), "still busy"),
        (lambda n: clock("s[ws]"), "it compiles: warm up$"),
        (lambda n: clock("[w]"), "no warm-up"),
        (lambda n: clock("[ws]"), "warm up, then wait"),
        (lambda n: clock("s[wws]"), "of one more call"),
        (lambda n: clock("w[sws]"), "starts before the wait"),
        (lambda n: clock("sw[ws]"), "and not after it"),
        (lambda n: lambda *a: clock("ws[ws]")(*a) * 1e3, "milliseconds"),
        (lambda n: lambda *a: -clock("ws[ws]")(*a), "sign"),
        (lambda n: clock("s[s]"), "never calls work"),
        (lambda n: lambda work, wait, now: work(), "return missing"),
    ],
    "12.3": [
        (lambda n: step(over_the_host, made_on_the_host, number), r"4 \+ 3 copies.*state.*targets.*loss"),
        (lambda n: step(over_the_host), r"2 \+ 2 copies are left: the state"),
        (lambda n: step(target=made_on_the_host), r"1 \+ 1 copies are left: the targets"),
        (lambda n: step(loss=number), r"1 \+ 0 copies are left: the loss"),
        (lambda n: step(over_the_host, made_on_the_host), r"and back.*; and the targets"),
        (lambda n: step(loss=looks), "still waits for the device 1 time a step"),
        (lambda n: step(state=mb.reset), "that is a reset"),
        (lambda n: step(target=lambda x: x, outputs=slice(None)), "inputs of the same step"),
        (lambda n: step(target=lambda x: x[1:]), r"x\[1:\]"),
        (
            lambda n: lambda *a: step()(a[0], SimpleNamespace(step=lambda gradients: None), *a[2:]),
            "optimiser.step is missing",
        ),
        (lambda n: step(after=lambda state: mb.to_backend(state, "numpy")), "where the model is"),
        (lambda n: lambda *a: step()(*a)[0], "2 things, the loss and the state after it; found a Tensor"),
        (lambda n: lambda *a: None, "mended returns None"),
        (lambda n: lambda model, optimiser, x, state: (np.float64(0), state), "differs"),
    ],
    "12.4": [
        (lambda n: lambda: (n.a + n.d, n.a + n.b + n.d), "swapped"),
        (lambda n: lambda: (n.a + n.d, n.a + n.d), "keeps what was freed"),
        (lambda n: lambda: (n.a + n.b + n.d, n.a + n.b + n.d), "kept, and not live"),
        (lambda n: lambda: (2 * n.a + n.b + n.d, n.a + n.d), "c takes the block"),
        (lambda n: lambda: (2 * n.a + n.b + n.d, 2 * n.a + n.b + n.d), "nothing is given back"),
        (lambda n: lambda: ((n.a + n.b + n.d) * 2**20, (n.a + n.d) * 2**20), "bytes"),
        (lambda n: lambda: (n.a + n.b, n.a + n.d), "^[^:]*: b's block is too small"),
        (lambda n: lambda: (n.a + n.b + n.d, n.d), "c is live too"),
        (lambda n: lambda: n.a, "shape"),
    ],
}
