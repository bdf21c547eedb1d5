"""Three training steps that leave the device where they need not, beside the step without a stray copy.

Each is a mistake that people make; what the stand-in counts finds all of them.
"""

import numpy as np

import minibptt as mb


def clean(model, optimiser, x, y, state):
    with mb.Tape() as tape:
        outputs, state = model(x, mb.cut(state))
        loss = mb.mse(outputs, y)
    optimiser.step(mb.clip_by_global_norm(tape.gradient(loss, model), 1.0))
    return loss, state


def reads_the_loss_at_every_step(model, optimiser, x, y, state):
    """The loss is made a Python number for a progress line: the program waits for the device."""
    loss, state = clean(model, optimiser, x, y, state)
    return loss.item(), state


def carries_the_state_over_the_host(model, optimiser, x, y, state):
    """The state is cut by going to NumPy and back, where `cut` leaves it on the device."""
    state = mb.to_backend(tuple([mb.to_numpy(h) for h in state]), type_of(model))
    return clean(model, optimiser, x, y, state)


def makes_the_data_anew(model, optimiser, x, y, state):
    """The targets are made by NumPy and copied at every step, though they could stay on the device."""
    y = mb.to_backend(np.zeros(y.shape, dtype=y.dtype), type_of(model))
    return clean(model, optimiser, x, y, state)


def type_of(model):
    return mb.backend.library_of(next(iter(model.parameters().values())).value)


STRAY = {
    reads_the_loss_at_every_step: {"to_host": 1, "syncs": 1, "to_device": 0},
    carries_the_state_over_the_host: {"to_host": 2, "syncs": 2, "to_device": 2},
    makes_the_data_anew: {"to_host": 0, "syncs": 0, "to_device": 1},
}
