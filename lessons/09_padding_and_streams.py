# %% [markdown] minutes=45
# # 9. Padding, masks, resets, streams: which row goes on where
#
# **Question.** A batch is a rectangle, and sequences are not. What stands in the corners, and who sees it? And a text
# is one long line: how is it laid out in rows so that the carried state is the right one, and what does shuffling do?
#
# You need lesson 5: carry, cut, reset.

# %%
import matplotlib.pyplot as plt
import numpy as np

import minibptt as mb
from minibptt.lessons import check

me = check.seed("your name")  # the exercises with numbers of your own take them from it

# %% [markdown]
# ## 1. Padding
#
# Three sequences of 5, 3 and 1 steps in one batch (T, B, D) = (5, 3, 2). The rest is filled up, here with NaN, so that
# nobody can look at it unnoticed. What a padded step must do, for a row b whose sequence has ended:
#
#     h_t[b] = h_{t−1}[b]       the state passes through: value and adjoint
#     y_t[b] = 0                the output is 0
#     ∂L/∂θ_t gets nothing      the step contributes nothing to any gradient
#
# **Predict before you run on.** Many programs multiply by a mask m instead, h_t = m·tanh(…). What is wrong with it
# where m = 0? Two things, one of them only where the padding holds NaN.

# %%
lengths, D, H = [5, 3, 1], 2, 4
rows = [np.random.default_rng(b).standard_normal((T, D)) for b, T in enumerate(lengths)]
x = np.full((5, 3, D), np.nan)
for b, row in enumerate(rows):
    x[: len(row), b] = row
cell = mb.RNNCell(D, H, rng=0, dtype=np.float64)
with mb.Tape() as tape:
    outputs, h_T = mb.unroll(cell, x, lengths=lengths)
    loss = mb.sum(outputs * outputs)
print(
    "first unit, steps down, rows across\n", outputs.value[..., 0].round(2), "\nlast state\n", h_T.value[:, 0].round(2)
)

# %% [markdown]
# The check: the batch gives what its rows give alone, the last states and the gradients too.

# %%
alone = []
for b, row in enumerate(rows):
    with mb.Tape() as one:
        out, h = mb.unroll(cell, row[:, None])
        l = mb.sum(out * out)
    alone.append(one.gradient(l, cell))
    np.testing.assert_allclose(h_T.value[b], h.value[0], rtol=1e-12)
together = tape.gradient(loss, cell)
print("relative error:", f"{together.relative_error(alone[0] + alone[1] + alone[2]):.0e}")

# %% [markdown]
# On the tape: `where` picks for each row the new state or the old one, never a product. In step 2 the second row
# is padded (the engine computes with a real input of that row where the NaN was, and throws the result away).

# %%
with mb.Tape() as tape:
    mb.unroll(mb.RNNCell(D, 1, rng=0, dtype=np.float64), x[:2, 1:], lengths=[2, 1])
print(tape)

# %% [markdown]
# **What broke?** The mask as a factor: NaN times 0 is NaN, and where the padding is finite the state becomes 0, so that
# what comes after the padding, or reads the last state, starts from nothing.

# %%
W_x, W_h, bias = (p.value for p in cell.parameters().values())
for padding in (np.nan, 0.0):
    h = np.zeros((1, H))
    for t in range(5):
        x_t = rows[1][t] if t < 3 else np.full(D, padding)
        h = (t < 3) * np.tanh(x_t @ W_x + h @ W_h + bias)
    print("padded with", padding, ": last state", h[0].round(2), "instead of", h_T.value[1].round(2))

# %% [markdown]
# ## 2. Means
#
# A loss is a mean over what is real, 5 + 3 + 1 = 9 steps here, not over 15 places, no mean of means.
# In chunks each part must be divided by the 9 of the whole, `count=`, or a short last chunk weighs too much. (`mb.mse`
# is a mean over numbers, H of them a step, so it is 9·H in the code.)

# %%
y = np.zeros((5, 3, H))
mask = np.arange(5)[:, None] < np.array(lengths)  # (T, B): true where a step is real
whole = mb.mse(outputs.value, y, lengths=lengths).item()
parts = [(outputs.value[a:b], y[a:b], mask[a:b]) for a, b in ((0, 2), (2, 4), (4, 5))]
print(f"the mean {whole:.4f}")
print(f"mean of the chunks' means {np.mean([mb.mse(o, t, mask=m).item() for o, t, m in parts]):.4f}")
print(f"chunks with count=        {sum(mb.mse(o, t, mask=m, count=9 * H).item() for o, t, m in parts):.4f}")
print(f"over all places           {mb.mse(outputs.value, y).item():.4f}")

# %% [markdown]
# ## 3. Resets
#
# Short sequences may also stand one after the other in a row. Then `resets[t, b]` starts row b from zero before step t.
# In the triangle of the pairs, a sequence that ends after step 6, and one that starts anew at step 6:

# %%
z, starts = np.random.default_rng(3).standard_normal((9, 1, D)), np.zeros((9, 1))
starts[5] = 1


def squares(outputs, y, mask=None):
    return mb.sum(outputs * outputs)


figure, axes = plt.subplots(1, 2, figsize=(13, 6), layout="constrained")
mb.plots.contributions(mb.contributions(cell, z, None, squares, lengths=[6]), ax=axes[0])
mb.plots.contributions(mb.contributions(cell, z, None, squares, resets=starts), ax=axes[1])
axes[0].set_title("lengths=[6]: steps 7 to 9 are padding", fontsize=15)
_ = axes[1].set_title("a reset before step 6: no pair crosses it", fontsize=15)

# %% [markdown]
# ## 4. Streams
#
# One long text in B rows: each row is a stretch of it, and the windows go along all rows together. So row b of a window
# starts where row b of the window before ended, and the state fits. A target is the next token, over the edge too:

# %%
stream = mb.stream_batches("abcdefghijklmnopq", batch=2, steps=3)
for i, (ids, targets) in enumerate(stream):
    text = [["".join(stream.symbols[j] for j in row) for row in part.T] for part in (ids, targets)]
    print(f"window {i}: x {text[0]}, y {text[1]}")

# %% [markdown]
# A cell that must carry something to be right: it adds up what it has seen. In order, the windows give what the whole
# gives. Shuffled, each row starts from a sum that belongs elsewhere. No error is raised. A network may still learn what
# lies inside a window; what the state brings is noise to it.


# %%
class Sum(mb.Cell):
    """h_t = h_{t−1} + x_t."""

    def zero_state(self, batch):
        return mb.zeros((batch, 1))

    def step(self, x, h):
        h = h + x
        return h, h


numbers = np.random.default_rng(4).integers(0, 2, (60, 4, 1)).astype(float)
right = np.cumsum(numbers, axis=0)


def share_right(order, k=5):
    h, hits = mb.zeros((4, 1)), 0
    for i in order:
        out, h = mb.unroll(Sum(), numbers[i * k : i * k + k], h)
        hits += (out.value == right[i * k : i * k + k]).sum()
    return hits / right.size


print(f"in order {share_right(range(12)):.2f}, shuffled {share_right(np.random.default_rng(5).permutation(12)):.2f}")

# %% [markdown]
# Shuffle what is independent: whole sequences, each from a reset. Never the windows of one stream with a carried state.
#
# ## Exercises
#
# **9.1** Three rows of your lengths, padded to 6 steps. In row b every real step has the error e_b, so its squared
# error is e_b². What is the masked mean of the squared errors?

# %%
n = check.numbers("9.1")
print("lengths", n.lengths, " errors", n.e)


# %% exercise="9.1"
def masked_mean():
    """One number, worked out on paper."""
    raise NotImplementedError("Exercise 9.1: how many real steps are there?")


# %% solution="9.1"
def masked_mean():
    """One number, worked out on paper."""
    return sum(T * e**2 for T, e in zip(n.lengths, n.e)) / sum(n.lengths)


# %%
check.exercise("9.1", masked_mean)

# %% [markdown]
# **9.2** Write the padded step for any function `step(x_t, h)` that gives the next state (B, H), which is the output
# too. `real` (B,) is True where the step is real; elsewhere x_t may hold anything. All are NumPy arrays.


# %% exercise="9.2"
def padded_step(step, x_t, h, real):
    """(output, next state), (B, H) each."""
    raise NotImplementedError("Exercise 9.2: for each row the new state or the old one")


# %% solution="9.2"
def padded_step(step, x_t, h, real):
    """(output, next state), (B, H) each."""
    new, here = step(x_t, h), real[:, None]
    return np.where(here, new, 0), np.where(here, new, h)


# %%
check.exercise("9.2", padded_step)

# %% [markdown]
# **9.3** Write the layout of section 4 yourself, without losing the short window at the end.


# %% exercise="9.3"
def windows(tokens, B, k):
    """A list of (x, y), each (k, B), the last one shorter where it must be; tokens (N,), L = (N − 1) // B a row."""
    raise NotImplementedError("Exercise 9.3: lay out B rows of L inputs, and the same one token on for y")


# %% solution="9.3"
def windows(tokens, B, k):
    """A list of (x, y), each (k, B), the last one shorter where it must be; tokens (N,), L = (N − 1) // B a row."""
    L = (len(tokens) - 1) // B
    x, y = tokens[: B * L].reshape(B, L).T, tokens[1 : B * L + 1].reshape(B, L).T
    return [(x[a : a + k], y[a : a + k]) for a in range(0, L, k)]


# %%
check.exercise("9.3", windows)

# %% [markdown]
# ## Summary
#
# - A padded step passes the state on, shows 0 and adds nothing. Choose with `where`; a product lets NaN through.
# - Divide once, by what is real in the whole sequence.
# - A carried state needs row b to go on in row b. Shuffled windows break that without an error.
#
# PyTorch has `pack_padded_sequence` for lengths, `torch.where` for the choice, `ignore_index` for masked targets; a
# `DataLoader(shuffle=True)` over windows is the bug of section 4. Keras has `stateful=True`, to be used with
# `shuffle=False`.
#
# *History.* Rows that go on from batch to batch are how Zaremba, Sutskever and Vinyals ("Recurrent neural network
# regularization", 2014) trained language models, with the state carried and cut; Mikolov et al. (Interspeech 2010)
# trained on one running text before.
