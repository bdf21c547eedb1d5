# %% [markdown] minutes=50
# # 5. Carry, cut, reset: the state from one batch to the next
#
# **Question.** A text of a million characters is read in windows of 32. What may the second window know of the first?
# PyTorch users meet this question as an error: "Trying to backward through the graph a second time". What does it mean,
# and why is its own advice, `retain_graph=True`, nearly always the wrong cure?
#
# You need lessons 0 and 2.

# %%
import matplotlib.pyplot as plt
import numpy as np

import minibptt as mb
from minibptt.data import frozen_text
from minibptt.lessons import check

me = check.seed("your name")  # the exercises with numbers of your own take them from it

# %% [markdown]
# A boundary between two windows can be crossed by the *value* of the state, going forward, and by its *gradient*, going
# back. That makes four cases, of which three exist:
#
# | at the boundary | value kept? | gradient kept? | written |
# |---|---|---|---|
# | **carry** | yes | yes | `state`, on the same tape |
# | **cut** | yes | no | `mb.cut(state)` |
# | **reset** | no | no | `mb.reset(state)` |
# | impossible | no | yes | if h₃ does not depend on h₂, then ∂h₃/∂h₂ = 0 |
#
# **Predict before you run on.** One unit, h_t = w·h_{t−1} + 1 with w = 2 and h₀ = 0, two windows of two steps. What is
# h₄ after a carry, a cut, a reset between steps 2 and 3? And ∂h₄/∂w?
#
# **1. Forward.** With the value kept: h = 1, 3, 7, 15. After a reset: h = 1, 3, then 1, 3.
#
# **2. Back**, as in lesson 2, but L = h₄: no other step has a loss, so no 1 is added there. δ₄ = 1, δ₃ = w·δ₄ = 2, and
# over the boundary δ₂ = w·δ₃ = 4, δ₁ = 8.
#
#     carry    Σ δ_t·h_{t−1} = 1·7 + 2·3 + 4·1 + 8·0 = 17
#     cut      δ₂ = δ₁ = 0     1·7 + 2·3             = 13       h₂ = 3 is still there, as a number
#     reset    h₂ counts as 0  1·1 + 2·0             =  1
#
# The same in code:


# %%
def four_steps(between):
    """(tape, h₄, w), with `between` done to the state before step 3."""
    w, h = mb.parameter([2.0], name="w"), mb.zeros((1,))
    with mb.Tape() as tape:
        for t in (1, 2, 3, 4):
            with tape.at(t):
                h = w * (between(h) if t == 3 else h) + 1.0
    return tape, h, w


found = {}
for name, between in (("carry", lambda h: h), ("cut", mb.cut), ("reset", mb.reset)):
    tape, h, w = four_steps(between)
    found[name] = h.item(), tape.gradient(h, w).item()
    print(name, "h₄ =", found[name][0], " ∂h₄/∂w =", found[name][1])
assert found == {"carry": (15, 17), "cut": (15, 13), "reset": (3, 1)}
print(four_steps(mb.cut)[0])

# %% [markdown]
# ## The error
#
# Carrying works as long as both windows are on one tape. Training has a tape for each window, for after a window comes
# an update, and the tape is done. What then?

# %%
model = mb.Sequential(mb.LSTM(1, 4, rng=1), mb.Linear(4, 1, rng=2))
x = np.random.default_rng(0).standard_normal((16, 1, 1))
state = model.zero_state(1)
try:
    for window in (x[:8], x[8:]):
        with mb.Tape() as tape:
            out, state = model(window, state)
            loss = mb.mean(out * out)
        tape.gradient(loss, model)
except mb.TapeError as error:
    print(error)

# %% [markdown]
# PyTorch has no tape that you see, but the same thing happens: `loss.backward()` frees what the first window recorded.
# The second window's loss depends on the first one's state, so its backward pass goes back into the first window and
# finds nothing there. With `retain_graph=True` it would find everything there, and the window before, and the one
# before that: step n costs n windows, in time and in memory. And the weights have been updated since, which is the next
# error ("modified by an inplace operation"). You wanted a cut.
#
# **What broke?** An LSTM's state is two tensors. Whoever cuts h and forgets c sees the same error again, about c.

# %%
try:
    (((h, c),),) = state  # one entry for each layer with a state, in it one for each cell on top of the other
    with mb.Tape():
        model(x[8:], (((mb.cut(h), c),),))
except mb.TapeError as error:
    print(str(error)[:80], "…")

# %% [markdown]
# ## Cut and reset, seen
#
# A model of characters, trained for some seconds, with a cut between windows of 32 as in lesson 0:

# %%
text = frozen_text()
symbols = sorted(set(text))
V, ids = len(symbols), np.array([symbols.index(character) for character in text])
model = mb.Sequential(mb.Embedding(V, 16, rng=1), mb.LSTM(16, 48, rng=2), mb.Linear(48, V, rng=3))
optimiser, state = mb.Adam(model, lr=1e-2), model.zero_state(8)
for x, y in mb.stream_batches(ids[:30_000], batch=8, steps=32):
    with mb.Tape() as tape:
        logits, state = model(x, mb.cut(state))
        loss = mb.cross_entropy(logits, y)
    optimiser.step(mb.clip_by_global_norm(tape.gradient(loss, model), 1.0))

# %% [markdown]
# Twelve characters, a boundary in the middle. After a cut the pairs below the boundary still exist, and are thrown away
# (faded). After a reset there is nothing to throw away: the later losses do not depend on the earlier steps.

# %%
T, at = 12, 33_003
x, y = ids[at : at + T].reshape(T, 1), ids[at + 1 : at + T + 1].reshape(T, 1)
figure, axes = plt.subplots(1, 2, figsize=(15, 7.5), layout="constrained")
for name, resets, ax in (("cut", None, axes[0]), ("reset", np.arange(T).reshape(T, 1) == 6, axes[1])):
    c = mb.contributions(model, x, y, mb.cross_entropy, resets=resets)
    mb.plots.contributions(c, mb.tbptt(6) if name == "cut" else None, ax=ax, symbols=text[at : at + T])
    ax.set_title(f"A {name} before step 7: loss {c.loss:.2f}", fontsize=15)

# %% [markdown]
# ## Evaluation with a carried state
#
# No tape, nothing to cut: the only question is whether the *value* goes on. The same 4000 characters in windows of k,
# the state carried or reset. `count=1` makes the loss a sum, to be divided by the number of characters at the end.

# %%
unseen = ids[40_000:44_001]
for k in (4, 16, 64, 250):
    means = {}
    for name, between in (("carried", lambda state: state), ("reset", mb.reset)):
        state, total, count = model.zero_state(4), 0.0, 0
        for x, y in mb.stream_batches(unseen, batch=4, steps=k):
            logits, state = model(x, between(state))
            total, count = total + mb.cross_entropy(logits, y, count=1).item(), count + y.size
        means[name] = total / count
    print(f"k = {k:3}", *[f"  {name} {mean:.4f}" for name, mean in means.items()])

# %% [markdown]
# Carried, k is only a matter of memory: the number stays. With a reset the loss measures how short your windows are.
#
# A reset is right where the text before is *another* text. It goes by rows: `mb.reset(state, rows=[2])` between two
# windows, `resets=` (T, B) inside one. Row 2 starts afresh, the others go on.
#
# ## Exercises
#
# **5.1** One unit, h_t = w·h_{t−1} + x_t, from h₀ = a; step 1 is in one window, step 2 in the next. What are h₂ and
# ∂h₂/∂w? Your numbers:

# %%
n = check.numbers("5.1")
print("w =", n.w, " a =", n.a, " x₁ =", n.x1, " x₂ =", n.x2)


# %% exercise="5.1"
def across():
    """{"carry": (h₂, ∂h₂/∂w), "cut": (…), "reset": (…)}, worked out on paper."""
    raise NotImplementedError("Exercise 5.1: six numbers")


# %% solution="5.1"
def across():
    """{"carry": (h₂, ∂h₂/∂w), "cut": (…), "reset": (…)}, worked out on paper."""
    h1 = n.w * n.a + n.x1
    h2 = n.w * h1 + n.x2
    return {"carry": (h2, h1 + n.w * n.a), "cut": (h2, h1), "reset": (n.x2, 0)}


# %%
check.exercise("5.1", across)

# %% [markdown]
# **5.2** Write the loop over the windows, without the optimiser: from the zero state on, carried and cut, one gradient
# for each window. `windows` is a list of (x, y), x being (k, B, D) and the last one shorter.


# %% exercise="5.2"
def window_gradients(model, windows, loss):
    """[the Gradients of loss(outputs, y) for each window]."""
    raise NotImplementedError("Exercise 5.2: a tape for each window")


# %% solution="5.2"
def window_gradients(model, windows, loss):
    """[the Gradients of loss(outputs, y) for each window]."""
    state, found = model.zero_state(windows[0][0].shape[1]), []
    for x, y in windows:
        with mb.Tape() as tape:
            out, state = model(x, mb.cut(state))
            value = loss(out, y)
        found.append(tape.gradient(value, model))
    return found


# %%
check.exercise("5.2", window_gradients)

# %% [markdown]
# **5.3** Write the evaluation: the mean loss of a character over all windows, the last of which is shorter.


# %% exercise="5.3"
def evaluate(model, windows):
    """The mean of mb.cross_entropy over all targets, one number, the state carried. x and y are (k, B)."""
    raise NotImplementedError("Exercise 5.3: no tape is needed")


# %% solution="5.3"
def evaluate(model, windows):
    """The mean of mb.cross_entropy over all targets, one number, the state carried. x and y are (k, B)."""
    state, total, count = model.zero_state(windows[0][0].shape[1]), 0.0, 0
    for x, y in windows:
        logits, state = model(x, state)
        total, count = total + mb.cross_entropy(logits, y, count=1).item(), count + y.size
    return total / count


# %%
check.exercise("5.3", evaluate)

# %% [markdown]
# **5.4** Find the bug. In some rows a new document begins with the next window. This was meant to forget the old one
# there, and to cut everywhere. Write it as it should be; it is called under the next window's tape. `state` is that of
# one LSTM cell, (h, c), each (B, H).


# %%
def broken_next(state, new):
    h, c = state
    return mb.reset(h, rows=new), mb.cut(c)


# %% exercise="5.4"
def next_state(state, new):
    """(h, c) to start the next window from. new: booleans (B,), true where a document begins."""
    raise NotImplementedError("Exercise 5.4: two things to do, to both parts")


# %% solution="5.4"
def next_state(state, new):
    """(h, c) to start the next window from. new: booleans (B,), true where a document begins."""
    return mb.reset(mb.cut(state), rows=new)


# %%
check.exercise("5.4", next_state)

# %% [markdown]
# ## Summary
#
# - Carry keeps value and gradient, cut the value only, reset neither. Keeping the gradient only is impossible.
# - A tape for each window means a cut between windows, of every part of the state: h and c, of every layer.
# - Evaluate with a carried state, add up losses and divide once. Reset where a new document begins, row by row.
#
# PyTorch writes the cut `state = tuple(s.detach() for s in state)`. Keras carries with `stateful=True`, and cuts there.
#
# *History.* Zaremba, Sutskever and Vinyals ("Recurrent neural network regularization", arXiv 1409.2329, 2014) trained
# an LSTM in windows of 35 words, each starting from the last state of the one before: today's usual way.
