"""Wrong answers to the exercises of lesson 5, and what is to be said of each. n: the numbers drawn for a student."""

import numpy as np

import minibptt as mb


def across(n, **changed):
    """The right six numbers, but for those given as carry=(None, 3)."""
    h1 = n.w * n.a + n.x1
    h2 = n.w * h1 + n.x2
    right = {"carry": (h2, h1 + n.w * n.a), "cut": (h2, h1), "reset": (n.x2, 0)}
    for name, pair in changed.items():
        right[name] = tuple(new if new is not None else old for new, old in zip(pair, right[name]))
    return lambda: right


def loop(between=mb.cut, windows=slice(None), one_tape=False):
    def window_gradients(model, given, loss):
        state, found = model.zero_state(given[0][0].shape[1]), []
        tape = mb.Tape()
        if one_tape:
            values = []
            with tape:
                for x, y in given:
                    out, state = model(x, state)
                    values.append(loss(out, y))
            return [tape.gradient(value, model) for value in values]
        for x, y in given[windows]:
            with mb.Tape() as tape:
                out, state = model(x, between(state))
                value = loss(out, y)
            found.append(tape.gradient(value, model))
        return found

    return window_gradients


def parts(of_h, of_c):
    def between(state):
        (((h, c),),) = state
        return (((of_h(h), of_c(c)),),)

    return between


def evaluation(answer, between=lambda state: state):
    """answer(sums, counts) of the windows."""

    def evaluate(model, windows):
        state, sums = model.zero_state(windows[0][0].shape[1]), []
        for x, y in windows:
            logits, state = model(x, between(state))
            sums.append(mb.cross_entropy(logits, y, count=1).item())
        return answer(np.array(sums), np.array([y.size for _, y in windows]))

    return evaluate


def same(state):
    return state


WRONG = {
    "5.1": [
        (lambda n: across(n, cut=(n.x2, None)), "cut, h₂: a cut keeps the value"),
        (lambda n: across(n, cut=(None, 2 * n.w * n.a + n.x1)), "nothing has been cut"),
        (lambda n: across(n, cut=(None, 0)), "a cut is not a reset"),
        (lambda n: across(n, carry=(None, n.w * n.a + n.x1)), "this is the cut's"),
        (lambda n: across(n, reset=(n.w * (n.w * n.a + n.x1) + n.x2, None)), "a reset starts from 0"),
        (lambda n: across(n, reset=(n.w * n.a + n.x2, None)), "not from h₀ = a"),
        (lambda n: across(n, reset=(None, n.w * n.a + n.x1)), "w multiplies 0"),
        (lambda n: across(n, carry=(n.w * n.x1 + n.x2, None)), "a is missing"),
        (lambda n: lambda: {name: pair[::-1] for name, pair in across(n)().items()}, "carry: the two are swapped"),
        (lambda n: across(n, carry=(None, n.w * (n.w * n.a + n.x1))), "a product rule"),
        (lambda n: across(n, cut=(None, n.a)), "is not in it"),
        (lambda n: lambda: {"carry": (1, 1)}, "cut, reset missing"),
        (lambda n: lambda: None, "return missing"),
    ],
    "5.2": [
        (lambda n: loop(same), "forgot to cut"),
        (lambda n: loop(parts(mb.cut, same)), "h is cut and c is not"),
        (lambda n: loop(mb.reset), "which is a reset"),
        (lambda n: loop(parts(mb.cut, mb.reset)), "c starts from 0"),
        (lambda n: loop(parts(mb.reset, mb.cut)), "h starts from 0"),
        (lambda n: loop(one_tape=True), "one long tape"),
        (lambda n: loop(windows=slice(2)), "the last one, shorter"),
        (lambda n: lambda model, windows, loss: loop()(model, windows, loss)[0], "must return a list"),
        (lambda n: lambda model, windows, loss: None, "return missing"),
        (lambda n: lambda *a: [g * (1 / 3) for g in loop()(*a)], "divided by the number of windows"),
        (lambda n: lambda *a: [g * (k / 11) for g, k in zip(loop()(*a), (4, 4, 3))], "weighted by its window's steps"),
    ],
    "5.3": [
        (lambda n: evaluation(lambda sums, counts: np.mean(sums / counts)), "a mean of means: the last"),
        (lambda n: evaluation(lambda sums, counts: sums.sum() / counts.sum(), mb.reset), "a reset$"),
        (lambda n: evaluation(lambda sums, counts: sums[:2].sum() / counts[:2].sum()), "is left out"),
        (lambda n: evaluation(lambda sums, counts: sums.sum()), "the sum over all targets"),
        (lambda n: evaluation(lambda sums, counts: sums.sum() / 3), "not of windows"),
        (lambda n: evaluation(lambda sums, counts: sums.sum() / 11), "number of steps"),
        (lambda n: evaluation(lambda sums, counts: sums / counts), "one number"),
        (lambda n: evaluation(lambda sums, counts: sums.sum() / counts.sum() / np.log(2)), "in bits"),
        (lambda n: evaluation(lambda sums, counts: (sums / counts).sum() / counts.sum()), "divides twice"),
        (lambda n: evaluation(lambda sums, counts: sums[0] / counts[0]), "the first window's"),
    ],
    "5.4": [
        (lambda n: lambda state, new: (mb.reset(mb.cut(state[0]), rows=new), mb.cut(state[1])), "c is not"),
        (lambda n: lambda state, new: (mb.cut(state[0]), mb.reset(mb.cut(state[1]), rows=new)), "h is not"),
        (lambda n: lambda state, new: mb.reset(mb.cut(state), rows=new)[::-1], "swapped"),
        (lambda n: lambda state, new: mb.cut(state), "nothing is reset"),
        (lambda n: lambda state, new: mb.reset(state), "every row is reset"),
        (lambda n: lambda state, new: mb.reset(mb.cut(state), rows=~new), "the other rows"),
        (lambda n: lambda state, new: mb.reset(state, rows=new), "h is used with its past"),
        (
            lambda n: lambda state, new: (mb.cut(mb.reset(mb.cut(state[0]), rows=new)), state[1]),
            "c is used with its past",
        ),
        (lambda n: lambda state, new: mb.reset(mb.cut(state[0]), rows=new), "two tensors"),
    ],
}
