# %% [markdown] minutes=25
# # 0. Five minutes: a character model from scratch, and where is the cut?
#
# **Question.** A network reads a text one character after the other and learns to guess the next. Its memory goes on
# from the first character to the last. Yet each of its gradients looks at 32 characters only. Where is the line drawn,
# what crosses it, and what does not?
#
# You need NumPy and derivatives. Everything that is only used here is explained in lessons 1 to 6. Put your name into
# the first cell; run the cells one by one, from the top.

# %%
import matplotlib.pyplot as plt
import numpy as np

import minibptt as mb
from minibptt.data import frozen_text
from minibptt.lessons import check

me = check.seed("your name")  # the exercises with numbers of your own take them from it

# %%
text = frozen_text()[:40_000]  # prose and code of this package, as they once were
symbols = sorted(set(text))
V = len(symbols)
ids = np.array([symbols.index(character) for character in text])
print(V, "symbols.", repr(text[:60]))

# %% [markdown]
# The model turns a character into a vector (`Embedding`), keeps a memory of what it has read (`LSTM`, its *state*), and
# gives a score to each possible next character (`Linear`).

# %%
model = mb.Sequential(mb.Embedding(V, 16, rng=1), mb.LSTM(16, 48, rng=2), mb.Linear(48, V, rng=3))

# %% [markdown]
# **Predict before you run on.** The loss of a step is −log p, p being the probability that the model gives to the
# character that comes next. The model knows nothing yet. What will the first loss be, roughly? And below which number
# should it be at the end?
#
# The text's 40,000 characters are split into eight rows of 5,000, read side by side in *windows* of 32 steps. A window
# gives one gradient; `clip_by_global_norm` shortens it where it is long, and `Adam`, an optimiser, moves the weights a
# little against it. Look at `mb.cut(state)`: the state that one window ends with is where the next one begins. (A few
# seconds.)

# %%
optimiser, state, losses = mb.Adam(model, lr=1e-2), model.zero_state(8), []
for x, y in mb.stream_batches(ids, batch=8, steps=32):  # x, y: (32, 8); y is one character ahead
    with mb.Tape() as tape:
        logits, state = model(x, mb.cut(state))
        loss = mb.cross_entropy(logits, y)
    gradients = tape.gradient(loss, model)
    optimiser.step(mb.clip_by_global_norm(gradients, 1.0))
    losses.append(loss.item())
print(f"{len(losses)} windows. First loss {losses[0]:.2f}, mean of the last 20 {np.mean(losses[-20:]):.2f}")

# %% [markdown]
# What it has learnt: it reads 100 characters, then writes 200 of its own, each drawn from its probabilities.

# %%
rng, start = np.random.default_rng(0), ids[:100].reshape(100, 1)
logits, memory = model(start, model.zero_state(1))
written = []
for _ in range(200):
    p = mb.softmax(1.5 * logits[-1, 0]).value.astype(float)
    written.append(rng.choice(V, p=p / p.sum()))
    logits, memory = model(np.array([[written[-1]]]), memory)
print("".join(symbols[i] for i in written))

# %% [markdown]
# ## Where is the cut?
#
# **1.** The state h_t is made from the character x_t and from h_{t−1}, so it depends on everything that was read.
#
# **2.** The loss of step t depends on the weights through *every* step s ≤ t at which they were used. The gradient is a
# sum with one term for each such pair (t, s).
#
# **3.** `mb.cut(state)` hands over the **value** of the state and forgets **how it was made**. So the pairs whose s
# lies in an earlier window have no term: the gradient is *truncated*. What was read long ago still acts on the guess,
# but nobody asks any more how it should have been remembered.
#
# A *tape* is the list of what was computed; the gradient is read off it, from the end to the start. The tape of the
# last window (the 7 steps that are left over) shows what the LSTM's two-part state starts from: h₀ and c₀ are
# *leaves*, values without a past.

# %%
print(tape)

# %% [markdown]
# What would be lost in windows of 4 (`mb.tbptt(4)`, truncated backpropagation through time)? Here are 24 characters of
# the text, the end of one piece of code and the start of the next. Each square is a pair: how much of the whole
# gradient comes from what happened at the character below (s) for the guess at the left (t), whose right answer stands
# there. Blue squares pull the way of the whole gradient, orange ones against it; all together they are 1.

# %%
T, k, at = 24, 4, 33_000
x, y = ids[at : at + T].reshape(T, 1), ids[at + 1 : at + T + 1].reshape(T, 1)
c = mb.contributions(model, x, y, mb.cross_entropy)
figure, ax = plt.subplots(figsize=(9, 8), layout="constrained")
mb.plots.contributions(c, mb.tbptt(k), ax=ax, symbols=text[at : at + T], targets=text[at + 1 : at + T + 1])
print(f"windows of {k} keep {c.kept_share(mb.tbptt(k)):.2f} of it")

# %% [markdown]
# Most of it lies near the diagonal, for a model that has read so little guesses from the last few characters. Change
# `at`, train longer, and look again.
#
# The picture was worked out without any cut. A tape that is really cut gives the same gradient as the kept squares:

# %%
cut = mb.bptt(model, x, y, mb.cross_entropy, mb.tbptt(k))
print("they differ by", f"{cut.relative_error(c.gradient(mb.tbptt(k))):.0e}")
assert cut.relative_error(c.gradient(mb.tbptt(k))) < 1e-4  # float32

# %% [markdown]
# **What broke?** The same loop without the cut stops in its second window. Read what it says.

# %%
state = model.zero_state(1)
try:
    for x, y in mb.stream_batches(ids[:65], batch=1, steps=32):
        with mb.Tape() as tape:
            logits, state = model(x, state)
            loss = mb.cross_entropy(logits, y)
except mb.TapeError as error:
    print(error)

# %% [markdown]
# ## Exercises
#
# **0.1** What loss should a model have that knows nothing of V symbols, in nats (natural logarithm)?


# %% exercise="0.1"
def loss_of_knowing_nothing(V):
    """The cross-entropy of equal scores for all V symbols, in nats."""
    raise NotImplementedError("Exercise 0.1: one line")


# %% solution="0.1"
def loss_of_knowing_nothing(V):
    """The cross-entropy of equal scores for all V symbols, in nats."""
    return np.log(V)


# %%
check.exercise("0.1", loss_of_knowing_nothing)

# %% [markdown]
# **0.2** You read T characters in windows of k, with a cut between them. How many pairs (t, s), s ≤ t, are kept? Count
# them for your own numbers, on paper. `check.hint("0.2")` gives a hint.

# %%
n = check.numbers("0.2")
print("T =", n.T, " k =", n.k)


# %% exercise="0.2"
def pairs_kept():
    """One number, for your T and k."""
    raise NotImplementedError("Exercise 0.2: count the squares that are kept")


# %% solution="0.2"
def pairs_kept():
    """One number, for your T and k."""
    windows, rest = divmod(n.T, n.k)
    return windows * n.k * (n.k + 1) // 2 + rest * (rest + 1) // 2


# %%
check.exercise("0.2", pairs_kept)

# %% [markdown]
# **0.3** Find the bug. In the loop above the state is carried but not cut. Write what should stand in place of `state`
# in `model(x, state)`: all of its values, nothing of its past.


# %% exercise="0.3"
def next_state(state):
    """What the next window starts from."""
    raise NotImplementedError("Exercise 0.3: one line")


# %% solution="0.3"
def next_state(state):
    """What the next window starts from."""
    return mb.cut(state)


# %%
check.exercise("0.3", next_state)

# %% [markdown]
# ## Summary
#
# - A model that knows nothing has a loss of ln V; training brings it down.
# - The state is *carried*: its value crosses from window to window. Its past is *cut*: the gradient does not cross.
# - Every kept pair is a square in the picture. Lesson 2 works them out by hand, lesson 6 chooses among them.
#
# PyTorch writes the cut as `state.detach()` (for an LSTM of both h and c), JAX as `jax.lax.stop_gradient`. Without it
# PyTorch says "Trying to backward through the graph a second time".
#
# *History.* Networks that predict the next symbol from a memory of their own go back to Elman ("Finding structure in
# time", Cognitive Science 14, 1990), who fed the state back as an input and let no gradient through it: k = 1.
