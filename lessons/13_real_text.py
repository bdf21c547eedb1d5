# %% [markdown] minutes=60
# # 13. A character model on real text, and the k that you would choose
#
# **Question.** You train on a real text and have to name a k. Nobody gives you the right one, the loss alone hardly
# tells, and each doubling costs memory. What do you measure, when, and what do you choose?
#
# You need lessons 5 and 6. This is the loop of lesson 0, now with every word of it understood.

# %%
import matplotlib.pyplot as plt
import numpy as np

import minibptt as mb
from minibptt.data import frozen_text
from minibptt.lessons import check

me = check.seed("your name")  # the exercises with numbers of your own take them from it
text = frozen_text()
symbols = sorted(set(text))
V = len(symbols)
ids = np.array([symbols.index(character) for character in text])
learnt, held_out = ids[: 164 * 16 * 32 + 1], ids[-8_192:]
x, y = (part.reshape(8, 32).T for part in (held_out[:256], held_out[1:257]))  # (T, B) = (32, 8), to judge k by

# %% [markdown]
# ## Teacher forcing
#
# **1.** The probability of a text is a product, and its loss a sum over the steps:
#
#     −log p(x₁ … x_T) = −Σ_t log p(x_t | x₁ … x_{t−1}),     p(x_t | x₁ … x_{t−1}) from h_{t−1}
#
# **2.** In training, what stands behind the bar is the *true* text, whatever the model would have said: it is forced
# back onto the teacher's path at each step. So inputs are known beforehand, and x_{t+1} is the target of step t.
#
# **3.** Each window of 32 steps makes one update. Only the pairs (t, s) that it counts depend on k: the windows, the
# updates and the carried state are the same for all. `mb.updates` gives the gradients chunk by chunk; here they are
# added up before the weights move.


# %%
def new_model():
    return mb.Sequential(mb.Embedding(V, 16, rng=1), mb.LSTM(16, 48, rng=2), mb.Linear(48, V, rng=3))


def training(model, k):
    """One update for each next(): 164 windows of 16 rows."""
    optimiser, state = mb.Adam(model, lr=2e-2), None
    for x, y in mb.stream_batches(learnt, batch=16, steps=32):
        run = mb.updates(model, x, y, mb.cross_entropy, mb.tbptt(k), state=state)
        gradients = [g for _, g in run]
        optimiser.step(mb.clip_by_global_norm(sum(gradients[1:], gradients[0]), 1.0))
        state = run.state
        yield


# %% [markdown]
# **Predict before you run on.** Which share of the gradient do chunks of 1, 2, 4, 8 keep before the model has learnt
# anything? And as it learns, will short chunks keep more, or less? (Some seconds: training, with a comparison of all
# offsets on text that is held out, every 41 updates.)

# %%
model = new_model()
schedules = [mb.tbptt(k) for k in (1, 2, 4, 8)]
history = mb.compare_training(training(model, 32), model, x, y, mb.cross_entropy, schedules, every=41)
figure, axes = plt.subplots(2, 1, figsize=(12, 7), sharex=True, height_ratios=[2, 1], layout="constrained")
mb.plots.training(history, axes)
axes[0].legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=13)
print(history.table("error"))

# %% [markdown]
# Soon each k keeps nearly everything, for the model learns which characters are frequent and which follow each other.
# Then the shares of short chunks fall: the more it knows, the further back it looks, and a k that was judged before
# training was judged too soon. The share also flatters: most of ‖G‖² belongs to the last layer, `Linear`, which no cut
# touches, since its weights act on the loss of their own step only. That is why even k = 1 keeps so much; see the
# relative errors in the table. Does it matter in the end? The same training with k = 2:

# %%
short = new_model()
for _ in training(short, 2):
    pass
stream = mb.stream_batches(held_out, batch=32, steps=32)
for name, trained in {"k = 32": model, "k = 2": short}.items():
    print(f"{name}: {mb.evaluate(trained, stream)}")

# %% [markdown]
# Little yet, in so short a training. What to choose? *The smallest k whose kept share stays high over all its offsets,
# measured while the model learns*, on data that is held out; one comparison now and then says whether it is still long
# enough. Here 8 is a choice that can be defended: about 90 % or more at every moment and offset, on a tape of a
# quarter of the steps.
#
# What must not be saved on is the state. Evaluated with it carried, and from zero every 16 steps:

# %%
cold = mb.evaluate(model, stream, reset_every=16)
print(cold, "; by position in the chunk:", *cold.by_position.round(1))

# %% [markdown]
# ## Free running
#
# When it writes, there is no teacher: its own word is its next input. `mb.sample` does that; the temperature divides
# the scores.

# %%
for temperature in (0.7, 0.0):
    written = mb.sample(model, ids[:60], 150, temperature=temperature, rng=0)
    print(f"temperature {temperature}:", "".join(symbols[i] for i in written), "\n")

# %% [markdown]
# **What broke?** At temperature 0 it takes the most likely character each time, and soon goes round in a circle. It was
# never trained on its own words, and in training no mistake of one step became the input of the next. (Training that
# mixes both is called scheduled sampling.)
#
# ## Where the same cut lives today
#
# **4.** A Transformer-XL attends to its own segment and to the *remembered states of the segment before*, which it sees
# and does not change: value kept, gradient cut. The same line, with attention in place of a recurrence:

# %%
rng = np.random.default_rng(0)
W, segments = mb.parameter(rng.standard_normal((4, 4))), rng.standard_normal((2, 5, 4))
with mb.Tape() as tape:
    memory, here = mb.tanh(segments[0] @ W), mb.tanh(segments[1] @ W)
    seen = mb.concatenate([mb.cut(memory), here])
    attended = mb.softmax(here @ seen.T) @ seen
    loss = mb.sum(attended * attended)
cut, full = tape.gradient(loss, W), tape.gradient(loss, W, through_cuts=True)
print("kept share:", round(float((cut * full).sum() / (full * full).sum()), 2))

# %% [markdown]
# **5.** Linear recurrences (state-space models and their kin) have h_t = a·h_{t−1} + x_t, unit by unit. An input j
# steps back counts a^j, so a unit's a says how long a window must be, and without a nonlinearity in the way all steps
# can be worked out in parallel. Where their segments meet, the state is carried and cut as ever.
#
# ## Exercises
#
# **13.1** h_t = a·h_{t−1} + w·x, all inputs equal, and the loss is h_T, T large. Which is the smallest k that keeps
# 90 % of ∂h_T/∂w?

# %%
n = check.numbers("13.1")
print("a =", n.a)


# %% exercise="13.1"
def smallest_k():
    """The smallest k whose last k steps have 90 % of the gradient."""
    raise NotImplementedError("Exercise 13.1: 1 + a + a² + … , k terms of it against all")


# %% solution="13.1"
def smallest_k():
    """The smallest k whose last k steps have 90 % of the gradient."""
    return int(np.ceil(np.log(0.1) / np.log(n.a)))  # 1 − a^k ≥ 0.9


# %%
check.exercise("13.1", smallest_k)

# %% [markdown]
# **13.2** Write free running at temperature 0: read `start` (n,), then give `length` ids, each the most likely one.
# `logits, state = model(ids, state)` takes ids (T, 1), logits (T, 1, V); a `state` of None is the zero state.


# %% exercise="13.2"
def greedy(model, start, length):
    """A list of `length` ids that follow `start`."""
    raise NotImplementedError("Exercise 13.2: read the start, then feed back what the model says, with its state")


# %% solution="13.2"
def greedy(model, start, length):
    """A list of `length` ids that follow `start`."""
    written, state, read = [], None, start
    for _ in range(length):
        logits, state = model(np.reshape(read, (-1, 1)), state)
        written.append(int(logits.value[-1, 0].argmax()))
        read = written[-1]
    return written


# %%
check.exercise("13.2", greedy)

# %% [markdown]
# **13.3** Find the bugs, there are two. This evaluation, on one row of text, in windows of k, says that a good model is
# a bad one, and how bad depends on k. Mended, it gives one number for all k: the mean loss per character.


# %%
def broken(model, ids, k):
    losses = []
    for a in range(0, len(ids) - 1, k):
        y = ids[a + 1 : a + 1 + k].reshape(-1, 1)
        logits, _ = model(ids[a : a + len(y)].reshape(-1, 1), None)
        losses.append(mb.cross_entropy(logits, y).item())
    return np.mean(losses)


# %% exercise="13.3"
def mean_loss(model, ids, k):
    """The mean loss per character over the text ids (n,), read in windows of k, the last one shorter."""
    raise NotImplementedError("Exercise 13.3: what is lost between windows? what does a short window weigh?")


# %% solution="13.3"
def mean_loss(model, ids, k):
    """The mean loss per character over the text ids (n,), read in windows of k, the last one shorter."""
    total, state = 0.0, None
    for a in range(0, len(ids) - 1, k):
        y = ids[a + 1 : a + 1 + k].reshape(-1, 1)
        logits, state = model(ids[a : a + len(y)].reshape(-1, 1), state)
        total += mb.cross_entropy(logits, y).item() * len(y)
    return total / (len(ids) - 1)


# %%
check.exercise("13.3", mean_loss)

# %% [markdown]
# ## Summary
#
# - Teacher forcing trains on true inputs; free running has only its own. They are two different loops.
# - Choose k by measuring: kept share and error over all offsets, on your data, while the model learns.
# - Carry the state, in training and in evaluation: what it is worth does not depend on how far gradients go.
#
# In PyTorch teacher forcing is `lstm(x[:-1])` against `x[1:]`; the carried state is `tuple(s.detach() for s in state)`.
#
# *History.* Williams and Zipser (1989) named teacher forcing; Sutskever ("Training recurrent neural networks", thesis,
# Toronto 2013) describes truncation by k1 and k2, which made character models practical. The memory with a stopped
# gradient: Dai and others ("Transformer-XL", ACL 2019).
