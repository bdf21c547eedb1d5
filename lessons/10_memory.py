# %% [markdown] minutes=45
# # 10. Memory: what the tape holds, and what is computed twice
#
# **Question.** One gradient over 900 steps holds 18 MB, and a text has millions of steps. Truncation is one way out,
# and it changes the gradient. Which way gives exactly the same gradient in a thirtieth of the memory, and what does it
# cost?
#
# You need lessons 2 and 6.

# %%
import tracemalloc

import matplotlib.pyplot as plt
import numpy as np

import minibptt as mb
from minibptt.lessons import check

me = check.seed("your name")  # the exercises with numbers of your own take them from it
T, B, D, H = 900, 8, 4, 32
rng = np.random.default_rng(0)
x, y = 0.1 * rng.standard_normal((T, B, D)), rng.standard_normal((T, B, 1))
cell = mb.RNNCell(D, H, rng=1, dtype=np.float64)

# %% [markdown]
# ## What the tape holds
#
# The way back needs what the way forward made: W_h's gradient needs h_{t−1}, tanh's needs h_t. So every record keeps
# its output until the gradient has been asked for. Two steps, operation by operation:

# %%
with mb.Tape() as tape:
    out, _ = mb.unroll(cell, x[:2], engine="tape")
print(tape)

# %% [markdown]
# **Predict before you run on.** h_t is (8, 32) in float64, 2048 bytes. How many bytes does a step put on the tape? And
# 900 steps?


# %%
def held(steps):
    """Bytes of all outputs on the tape of so many steps."""
    with mb.Tape() as tape:
        mb.unroll(cell, x[:steps], engine="tape")
    return sum(out.value.nbytes for record in tape.records for out in record.outputs)


for steps in (1, 10, 100, T):
    print(f"{steps:4d} steps: {held(steps):10,} bytes")

# %% [markdown]
# Five operations a step and a copy in the stack of all outputs: m = 6 · 2048 bytes a step, T·m in all. That was
# counted. What Python really asked for is *measured* by `tracemalloc`; it includes what the way back needs for itself,
# and it varies a little from run to run and from version to version. For a model whose loss looks at the last step:

# %%
model = mb.Sequential(mb.RNN(D, H, engine="tape", rng=1, dtype=np.float64), mb.Linear(H, 1, rng=2, dtype=np.float64))
mb.assign(model[0].cells[0].W_h, np.linalg.qr(rng.standard_normal((H, H)))[0])  # orthogonal: a long memory


def last(outputs, y):
    return mb.mse(outputs[-1], y[-1])


def peak(schedule):
    """(gradients, the most bytes held at once, measured)."""
    tracemalloc.start()
    gradients = mb.bptt(model, x, y, last, schedule)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return gradients, most


full, most = peak(mb.full())
print(f"full BPTT: {most / 1e6:.1f} MB measured")

# %% [markdown]
# ## Computed twice instead of held
#
# **1.** Divide T steps into S segments. Run all of it once *without a tape* and store only the state where each segment
# begins: S states of s bytes.
#
# **2.** From the last segment to the first: run it again, now on a tape, from its stored state. It holds T/S·m bytes.
#
# **3.** Go back through it, starting from its own losses and from ∂L/∂(state after it), which the segment after it
# gave. What arrives at its stored state is handed to the segment before: no adjoint is cut at a boundary.
#
# **4.** Each step is run forward twice: 2 forward passes and 1 backward pass, which costs about 2 forward passes, so
# (2 + 2)/(1 + 2) = 1.33 times the time. Memory is
#
#     M(S) = S·s + (T/S)·m,       least where dM/dS = s − T·m/S² = 0
#
# If a step's share of the tape were just its state, m = s, that is S = √T, and M = 2·√T·s: 63 states for 1000 steps.

# %%
for segments in (2, 10, 30, 90, 300):
    again, most = peak(mb.recompute(segments))
    print(f"{segments:3d} segments: {most / 1e6:5.2f} MB measured, error {again.relative_error(full):.0e}")
    assert again.relative_error(full) < 1e-12
truncated, most = peak(mb.tbptt(30))
print(f"chunks of 30: {most / 1e6:5.2f} MB measured, error {truncated.relative_error(full):.0e}")

# %% [markdown]
# From 2 to 90 segments the memory falls, from 90 to 300 it rises: there the stored states are what fills it. (With the
# m = 6·s counted above, M is least at S = 73.) And two forward passes, counted:

# %%
runs = []


class Counted(mb.RNNCell):
    def step(self, x, h):
        runs.append(1)
        return super().step(x, h)


for schedule in (mb.full(), mb.recompute(30)):
    runs.clear()
    counted = mb.Sequential(Counted(D, H, rng=1, dtype=np.float64), mb.Linear(H, 1, rng=2, dtype=np.float64))
    mb.bptt(counted, x, y, last, schedule)
    print(f"{schedule}: {len(runs)} steps run for T = {T}")

# %% [markdown]
# Which pairs are kept, in 24 steps? Chunks of 6 hold 6 steps and lose pairs; 4 segments hold 6 steps and lose none
# (blue: kept, grey: lost).

# %%
c = mb.contributions(model, x[:24], y[:24], mb.mse)
figure, axes = plt.subplots(1, 3, figsize=(13, 4.8), sharey=True, layout="constrained")
mb.plots.schemes(24, [mb.full(), mb.tbptt(6), mb.recompute(4)], c, axes)
for ax, name in zip(axes, ["full BPTT", "chunks of 6", "4 segments, run again"]):
    ax.set_title(name, fontsize=15)

# %% [markdown]
# ## A tape that forgets
#
# `tape.keep_last(k)` drops what is older than k steps by the tape's clock: a stream of any length in the memory of k
# steps, each loss looking back k steps, for weights that stay as they are.
#
# **What broke?** The loss of 40 steps, added up as one goes. The gradient is that of the last five losses only: the
# other additions were dropped too, and nobody said so. Ask for each gradient before its records go.

# %%
for kept in (40, 5):
    h, total = cell.zero_state(B), 0.0
    with mb.Tape() as tape:
        for t in range(1, 41):
            with tape.at(t):
                out, h = cell.step(x[t - 1], h)
                total = total + mb.sum(out * out)
                tape.keep_last(kept)
    print(f"kept {kept}: {len(tape.records)} records, ‖∂L/∂θ‖ = {tape.gradient(total, cell).norm():.1f}")

# %% [markdown]
# ## Exercises
#
# **10.1** A step puts m numbers on the tape, a stored state is s numbers. Which number of segments S needs least?

# %%
n = check.numbers("10.1")
print("T =", n.T, " m =", n.m, " s =", n.s)


# %% exercise="10.1"
def best_segments():
    """The number of segments for which S·s + (T/S)·m is smallest."""
    raise NotImplementedError("Exercise 10.1: set the derivative by S to zero")


# %% solution="10.1"
def best_segments():
    """The number of segments for which S·s + (T/S)·m is smallest."""
    return round((n.T * n.m / n.s) ** 0.5)


# %%
check.exercise("10.1", best_segments)

# %% [markdown]
# **10.2** Write one segment on the way back. The loss is Σ out². `tape.watch(h)` puts an array on the tape so that its
# gradient can be asked for, and a scalar whose derivative by a tensor h is the array dh is `mb.sum(h * dh)`.


# %% exercise="10.2"
def segment(cell, x, h_before, dh_after):
    """(the segment's gradients of the cell, dh_before); h_before, dh_after: arrays (B, H)."""
    raise NotImplementedError("Exercise 10.2: run it again on a tape; start from its losses and from dh_after")


# %% solution="10.2"
def segment(cell, x, h_before, dh_after):
    """(the segment's gradients of the cell, dh_before); h_before, dh_after: arrays (B, H)."""
    with mb.Tape() as tape:
        start = tape.watch(h_before)
        out, h = mb.unroll(cell, x, start)
        loss = mb.sum(out * out) + mb.sum(h * dh_after)
    return tape.gradient(loss, [cell, start])


# %%
check.exercise("10.2", segment)

# %% [markdown]
# **10.3** Find the bug. Chunk by chunk over a stream, the gradients are right, and the memory grows and grows.


# %%
def broken(cell, chunks):
    h, total = cell.zero_state(chunks[0].shape[1]), 0.0
    with mb.Tape() as tape:
        for x in chunks:
            out, h = mb.unroll(cell, x, mb.cut(h))
            total = total + tape.gradient(mb.sum(out * out), cell)
    return total


# %% exercise="10.3"
def stream(cell, chunks):
    """The same sum of gradients, never holding more than one chunk."""
    raise NotImplementedError("Exercise 10.3: what holds the records of the chunks before?")


# %% solution="10.3"
def stream(cell, chunks):
    """The same sum of gradients, never holding more than one chunk."""
    h, total = cell.zero_state(chunks[0].shape[1]), None
    for x in chunks:
        with mb.Tape() as tape:
            out, h = mb.unroll(cell, x, mb.cut(h))
            loss = mb.sum(out * out)
        gradients = tape.gradient(loss, cell)
        total = gradients if total is None else total + gradients
    return total


# %%
check.exercise("10.3", stream)

# %% [markdown]
# ## Summary
#
# - A tape holds what each step made, until it goes: T·m. Truncation holds k·m, and the gradient is another one.
# - Recomputing holds S states and one segment, for one more forward pass; the gradient is full BPTT's.
# - A cut stops the adjoint. It frees nothing by itself: memory goes when the tape goes.
#
# PyTorch calls it `torch.utils.checkpoint`, JAX `jax.checkpoint`. `loss.item()`, not `loss`, is what a log may keep.
#
# *History.* Chen and others ("Training deep nets with sublinear memory cost", 2016) recompute in √n segments; Gruslys
# and others ("Memory-efficient backpropagation through time", 2016) choose by dynamic programming which states to keep.
