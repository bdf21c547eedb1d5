# %% [markdown] minutes=60
# # 6. k1 and k2: what "truncated to 8 steps" can mean
#
# **Question.** "We truncate to 8 steps", says a paper. How far back does a loss of this model reach: 8 steps, 4.5 in
# the mean, or, for seven losses of eight, not at all? All three have been written with the same words.
#
# You need lessons 2 and 5. Steps are counted from 1 in the text and in figures, from 0 in arrays.

# %%
import matplotlib.pyplot as plt
import numpy as np

import minibptt as mb
from minibptt.lessons import check
from minibptt.tasks import coin_task

me = check.seed("your name")  # the exercises with numbers of your own take them from it

# %% [markdown]
# **1. The sum over pairs.** The full gradient has one term C[t, s] for each loss step t and source step s ≤ t. Whatever
# is called truncated keeps some of them. So it is a *mask*, or more generally a weight:
#
#     gradient = Σ_t Σ_{s≤t} w[t, s]·C[t, s]
#
# **2. Two numbers** say which (Williams and Peng 1990): an update every **k1** steps, and each update goes back through
# **k2** steps. The updates come at the ends e = k1, 2·k1, …, and at T, after a shorter tail.
#
# **3. The mask.** An update owns the losses since the last one. Its window starts at step e − k2 + 1, or at 1. So, with
# e the end of the update that owns t,
#
#     w[t, s] = 1  if  max(1, e − k2 + 1) ≤ s ≤ t,  else 0
#
# **4. k1 = k2 = k** are *chunks* side by side, `tbptt(k)`; unlike in step 3, a shorter tail reaches back to its own
# start only. The first loss of a chunk keeps 1 step, the last one k, and the mean is (k + 1)/2. Only with k1 = 1 does
# every loss keep k steps (the first k − 1 have fewer), and that costs a window of k steps at every step.
#
# **Predict before you run on.** T = 12. Of the 78 pairs, how many are kept by chunks of 4? And by k1 = 1, k2 = 4?


# %%
def mask(T, k1, k2):
    w = np.zeros((T, T))
    for t in range(1, T + 1):
        e = min(T, -(-t // k1) * k1)  # k1 times t/k1, rounded up
        w[t - 1, max(1, e - k2 + 1) - 1 : t] = 1
    return w


for schedule, k1, k2 in ((mb.tbptt(4), 4, 4), (mb.tbptt(1, 4), 1, 4), (mb.tbptt(4, 8), 4, 8)):
    np.testing.assert_array_equal(mask(12, k1, k2), schedule.coverage(12))
    print(f"{int(mask(12, k1, k2).sum())} pairs.", schedule.describe(12))

# %% [markdown]
# Eight readings of the word. Blue pairs are kept (darker: weight above 1), grey ones lost, dotted lines are cuts.
#
# 1. `full()`: nothing is lost. 2. `tbptt(4)`: blocks. 3. `tbptt(4, offset=2)`: the same k, cut elsewhere.
# 4. `tbptt(1, 4)`: a band. 5. `tbptt(4, 8)`: a staircase, every window overlapping the next.
# 6. `tbptt(4, losses="last")`: each update owns its last loss only. 7. `tbptt(12, 4)`: one update, and of the whole sum
# only what its last 4 steps hold. 8. `artbp(.25)`: each boundary cut with probability ¼; what survives one that is
# open is multiplied by 1/(1 − ¼), which makes the mean right (lesson 7).

# %%
schedules = [
    mb.full(), mb.tbptt(4), mb.tbptt(4, offset=2), mb.tbptt(1, 4),
    mb.tbptt(4, 8), mb.tbptt(4, losses="last"), mb.tbptt(12, 4), mb.artbp(0.25),
]  # fmt: skip
figure, axes = plt.subplots(2, 4, figsize=(16, 8.5), layout="constrained")
_ = mb.plots.schemes(12, schedules, ax=axes)

# %% [markdown]
# ## What they keep
#
# How much is lost depends on the model and its data. Ours: x are fair coins, and y_t depends on x_{t−3} and x_{t−8}
# (r2rt's task, 2016). A GRU learns a little of it:

# %%
task = coin_task(24)
model = mb.Sequential(mb.GRU(1, 16, rng=1), mb.Linear(16, 2, rng=2))
optimiser, rng = mb.Adam(model, lr=1e-2), np.random.default_rng(0)
for _ in range(100):
    x, y = task.batch(rng, 32)
    with mb.Tape() as tape:
        loss = task.loss(model(x)[0], y)
    optimiser.step(tape.gradient(loss, model))
x, y = task.sample(16)
c = mb.contributions(model, x, y, task.loss)

# %% [markdown]
# The mask explains; the engine cuts. Two chunks of 2 on a tape, by `cut_every=2`:

# %%
with mb.Tape() as tape:
    mb.unroll(mb.RNNCell(1, 1, "linear", rng=0), np.ones((4, 1, 1)), cut_every=2)
print(tape)

# %% [markdown]
# Mask and cut give the same gradient, for every reading (float32). Kept share: the sum of the kept pairs' shares.

# %%
for schedule in schedules:
    error = mb.bptt(model, x, y, task.loss, schedule, rng=5).relative_error(c.gradient(schedule, rng=5))
    print(f"{schedule!s:22} kept share {c.kept_share(schedule, rng=5):5.2f}   mask and cut differ by {error:.0e}")
    assert error < 1e-4

# %% [markdown]
# **5. The offset.** k = 8 is eight schedules: where the first cut falls is part of it. A pair that one of them keeps is
# lost by another, so a k is judged over all its offsets:

# %%
shares = [c.kept_share(mb.tbptt(8, offset=o)) for o in range(8)]
print("k = 8 keeps", *[f"{share:.2f}" for share in shares], f" mean {np.mean(shares):.2f}")
figure, axes = plt.subplots(1, 2, figsize=(16, 8), layout="constrained")
for o, ax in zip((int(np.argmax(shares)), int(np.argmin(shares))), axes):
    mb.plots.contributions(c, mb.tbptt(8, offset=o), ax=ax)

# %% [markdown]
# `compare` does that for any list of schedules, and `plots.compare` draws it. Look for a larger k that is worse.

# %%
result = mb.compare(model, x, y, task.loss, [*map(mb.tbptt, (1, 2, 4, 8, 16)), mb.tbptt(1, 8)], measure=False)
print(result.table())
figure, axes = plt.subplots(1, 2, figsize=(14, 6), layout="constrained")
_ = mb.plots.compare(result, ax=axes)

# %% [markdown]
# The page lets you try every k1, k2 and offset on these pairs. Open the file in a browser:

# %%
print(mb.explore(c, "what_does_your_k_throw_away.html", name="two-lag coin"))

# %% [markdown]
# **What broke?** Chunks of 10 steps, T = 24, and three loops that were meant to be that. One makes 10 chunks. One
# leaves out the tail of 4. One averages the chunks' mean losses, so that a step of the tail weighs 2.5 times as much.


# %%
def in_chunks(lengths, weights):
    """Σ weight·(gradient of a chunk's mean loss), the state carried and cut."""
    state, total, start = model.zero_state(16), 0, 0
    for length, weight in zip(lengths, weights):
        with mb.Tape() as tape:
            out, state = model(x[start : start + length], mb.cut(state))
            loss = task.loss(out, y[start : start + length])
        gradient = tape.gradient(loss, model) * weight
        total, start = (gradient + total if start else gradient), start + length
    return total


ten = [len(part) for part in np.array_split(np.arange(24), 10)]
right = mb.bptt(model, x, y, task.loss, mb.tbptt(10))
for name, lengths, weights in (
    ("chunks of 10", [10, 10, 4], [10 / 24, 10 / 24, 4 / 24]),
    ("10 chunks", ten, [length / 24 for length in ten]),
    ("no tail", [10, 10], [1 / 2, 1 / 2]),
    ("mean of means", [10, 10, 4], [1 / 3] * 3),
):
    print(f"{name:13} error against tbptt(10) {in_chunks(lengths, weights).relative_error(right):.2f}")

# %% [markdown]
# ## Exercises
#
# **6.1** An update every k1 steps, through k2 steps. How many steps does each loss keep, its own included? On paper:

# %%
n = check.numbers("6.1")
print("T =", n.T, " k1 =", n.k1, " k2 =", n.k2)


# %% exercise="6.1"
def steps_kept():
    """[steps kept by the loss of step 1, of step 2, …, of step T]."""
    raise NotImplementedError("Exercise 6.1: where does the window start that owns each loss?")


# %% solution="6.1"
def steps_kept():
    """[steps kept by the loss of step 1, of step 2, …, of step T]."""
    ends = [min(n.T, -(-t // n.k1) * n.k1) for t in range(1, n.T + 1)]
    return [t - max(0, e - n.k2) for t, e in enumerate(ends, start=1)]


# %%
check.exercise("6.1", steps_kept)

# %% [markdown]
# **6.2** Write the mask of "every k1 steps one update that goes back k2 steps, and owns *its last loss alone*". Updates
# come at k1, 2·k1, … and at T. Losses that no update owns get nothing.


# %% exercise="6.2"
def last_loss_mask(T, k1, k2):
    """w (T, T), w[t, s] with indices from 0."""
    raise NotImplementedError("Exercise 6.2: which rows are not zero?")


# %% solution="6.2"
def last_loss_mask(T, k1, k2):
    """w (T, T), w[t, s] with indices from 0."""
    w = np.zeros((T, T))
    for e in [*range(k1, T, k1), T]:
        w[e - 1, max(0, e - k2) : e] = 1
    return w


# %%
check.exercise("6.2", last_loss_mask)

# %% [markdown]
# **6.3** Find the bugs, there are two. This was meant to be the gradient of the mean loss in chunks of k steps.


# %%
def broken(model, x, y, k):
    state, total = model.zero_state(x.shape[1]), []
    for steps in np.array_split(np.arange(len(x)), k):
        with mb.Tape() as tape:
            out, state = model(x[steps], mb.cut(state))
            loss = mb.mse(out, y[steps])
        total.append(tape.gradient(loss, model) * (1 / k))
    return sum(total[1:], total[0])


# %% exercise="6.3"
def chunked(model, x, y, k):
    """The gradient of mb.mse over all T steps, cut after every k steps; x (T, B, D), y (T, B, 1)."""
    raise NotImplementedError("Exercise 6.3: chunks of k, and one mean over all of them")


# %% solution="6.3"
def chunked(model, x, y, k):
    """The gradient of mb.mse over all T steps, cut after every k steps; x (T, B, D), y (T, B, 1)."""
    state, total = model.zero_state(x.shape[1]), []
    for start in range(0, len(x), k):
        with mb.Tape() as tape:
            out, state = model(x[start : start + k], mb.cut(state))
            loss = mb.mse(out, y[start : start + k], count=y.size)
        total.append(tape.gradient(loss, model))
    return sum(total[1:], total[0])


# %%
check.exercise("6.3", chunked)

# %% [markdown]
# **6.4** Judge a k: the mean, over all k offsets, of the share that chunks of k steps keep.


# %% exercise="6.4"
def judged(share, k):
    """One number, from the shares P[t, s] (T, T)."""
    raise NotImplementedError("Exercise 6.4: mb.tbptt(k, offset=o).coverage(T)")


# %% solution="6.4"
def judged(share, k):
    """One number, from the shares P[t, s] (T, T)."""
    return np.mean([(mb.tbptt(k, offset=o).coverage(len(share)) * share).sum() for o in range(k)])


# %%
check.exercise("6.4", judged)

# %% [markdown]
# ## Summary
#
# - Every reading of "truncated" is a mask over pairs (t, s). Say k1, k2, which losses an update owns, and the offset.
# - Chunks of k keep (k + 1)/2 steps for a loss in the mean, and lag k or more never. k1 < k2 keeps more and costs more.
# - Shares depend on where the cuts fall; judge a k over its offsets. Chunks of k are not k chunks, the tail counts, and
#   the mean is taken once.
#
# PyTorch has no k1 and no k2: a loop with `detach()` every k steps is k1 = k2 = k, and so was the option
# `truncated_bptt_steps` of PyTorch Lightning 1. Overlapping windows take a loop that runs each window again.
#
# *History.* Williams and Peng ("An efficient gradient-based algorithm for on-line training of recurrent network
# trajectories", Neural Computation 2, 1990) wrote BPTT(h; h′), which is k2 = h and k1 = h′ here.
# The names k1 and k2 come from Sutskever's thesis ("Training recurrent neural networks", University of Toronto, 2013).
