# %% [markdown] minutes=40
# # 2. A linear RNN by hand: why 23 and not 33
#
# **Question.** The same network, the same data, the same loss. One program says that the gradient of the recurrent
# weight is 33, another says 23, and neither has a bug. What did the second one do?
#
# You need the product rule and the adjoints of lesson 1. Take a sheet of paper.

# %%
import matplotlib.pyplot as plt
import numpy as np

import minibptt as mb
from minibptt.lessons import check

me = check.seed("your name")  # the exercises with numbers of your own take them from it

# %% [markdown]
# The smallest recurrent network there is: one input, one unit, no nonlinearity. A cell of your own needs two methods.


# %%
class LinearCell(mb.Cell):
    """h_t = w_x·x_t + b_x + w_h·h_{t-1} + b_h."""

    def __init__(self):
        self.w_x, self.b_x = mb.parameter([3.0]), mb.parameter([1.0])
        self.w_h, self.b_h = mb.parameter([2.0]), mb.parameter([1.0])

    def zero_state(self, batch):
        return mb.zeros((batch, 1))

    def step(self, x, h):
        h = self.w_x * x + self.b_x + self.w_h * h + self.b_h
        return h, h  # output, next state


cell = LinearCell()
x = np.array([1.0, 2.0, 3.0]).reshape(3, 1, 1)  # (T, B, D): three steps, one row, one input
y = np.array([4.0, 6.0, 8.0]).reshape(3, 1, 1)


def loss_of(outputs, y):
    """L = Σ_t (h_t − y_t). No square, so that ∂L_t/∂h_t is 1 and the numbers stay small."""
    return mb.sum(outputs - y)


# %% [markdown]
# **Predict before you run on.** Work out h₁, h₂, h₃ from h₀ = 0. Then: if w_h grows by a little ε, by how many ε does
# the loss grow? Write both down.
#
# **1. Forward.** h₁ = 3·1 + 1 + 2·0 + 1 = 5, h₂ = 3·2 + 1 + 2·5 + 1 = 18, h₃ = 3·3 + 1 + 2·18 + 1 = 47.
#
# **2. Adjoints, from the last step back.** Write δ_t = ∂L/∂h_t, counting every way in which h_t reaches the loss. It
# does so directly, with derivative 1, and through h_{t+1}, whose derivative by h_t is w_h:
#
#     δ₃ = 1        δ₂ = 1 + w_h·δ₃ = 3        δ₁ = 1 + w_h·δ₂ = 7
#
# **3. The weight is used at every step**, so the chain rule has a term for every use. At step t it multiplies h_{t−1}:
#
#     ∂L/∂w_h = Σ_t δ_t·h_{t−1} = 7·0 + 3·5 + 1·18 = 33
#
# **4. Now cut** before every step. A cut keeps the *value* of h_{t−1} and stops the *adjoint*: no loss reaches back
# over the boundary, so every δ_t is 1. The numbers going forward are the same.
#
#     ∂L/∂w_h, cut = 1·0 + 1·5 + 1·18 = 23
#
# That is truncated backpropagation through time with k = 1. The missing 10 is one pair: w_h as it is used at step 2, on
# h₁ = 5, for the loss of step 3, which it reaches through w_h once more: 5·w_h·δ₃ = 10. (δ₁ lost 6, but h₀ = 0.) The
# same lines in code:

# %%
h = [0.0, 5.0, 18.0, 47.0]
w_h = 2.0
δ_next, by_hand = 0.0, {"full": 0.0, "cut": 0.0}
for t in (3, 2, 1):
    δ = 1 + w_h * δ_next
    by_hand["full"] += δ * h[t - 1]
    by_hand["cut"] += 1 * h[t - 1]
    δ_next = δ
by_hand

# %% [markdown]
# The engine records what it computes on a **tape**. `cut_every=1` cuts it before steps 2 and 3 (✂). Find the two lines
# with a cut, and see that the value before and after is the same.

# %%
with mb.Tape() as tape:
    outputs, h_T = mb.unroll(cell, x, cut_every=1)
    loss = loss_of(outputs, y)
print(tape)

# %% [markdown]
# One tape answers both questions: with its cuts closed, and with its cuts mended. What a closed cut *dropped* is the
# adjoint that arrived there: w_h·1 = 2 at both, for the other cut is closed too. (Mended, 3·w_h = 6 reaches h₁.)

# %%
cut = tape.gradient(loss, cell)
full = tape.gradient(loss, cell, through_cuts=True)
for name in full:
    print(f"{name}: cut {cut[name].item():g}, full {full[name].item():g}")
print("∂L/∂h_t, full:", *tape.adjoints(loss, through_cuts=True)["h"].ravel())
for where, adjoint in tape.dropped(loss).items():
    print(where, "dropped", adjoint.item())
assert by_hand == {"full": full["w_h"].item(), "cut": cut["w_h"].item()}

# %% [markdown]
# Each pair (loss step t, source step s) has its own term C[t, s], and a cut removes those with s before it and t after.
# What a pair is worth is its *share* of the gradient G = Σ C of all four parameters: C·G / (G·G), the part of it that
# points along G. Shares add up to 1; one that points against G is negative. With k = 1 only the diagonal is left:

# %%
c = mb.contributions(cell, x, y, loss_of)
figure, ax = plt.subplots(figsize=(7, 6), layout="constrained")
mb.plots.contributions(c, mb.tbptt(1), ax=ax)
print("Σ w[t, s]·C[t, s] for w_h:", c.gradient(mb.tbptt(1))["w_h"].item())

# %% [markdown]
# **What broke?** A reset is not a cut: it starts from h = 0. Here the outputs change too, so this is another loss, and
# its gradient is no truncation of the one above.

# %%
with mb.Tape() as tape:
    outputs, _ = mb.unroll(cell, x, resets=np.ones((3, 1)))
    loss = loss_of(outputs, y)
print("outputs", *outputs.value.ravel(), " ∂L/∂w_h", tape.gradient(loss, cell.w_h).item())

# %% [markdown]
# ## Exercises
#
# **2.1** Your numbers are w_h and the three values of ∂L_t/∂h_t, no longer all 1. What are δ₁, δ₂, δ₃, uncut? On paper.

# %%
n = check.numbers("2.1")
print("w_h =", n.w_h, " ∂L_t/∂h_t =", n.d)


# %% exercise="2.1"
def my_adjoints():
    """[δ₁, δ₂, δ₃], numbers worked out on paper."""
    raise NotImplementedError("Exercise 2.1: return the three adjoints")


# %% solution="2.1"
def my_adjoints():
    """[δ₁, δ₂, δ₃], numbers worked out on paper."""
    δ3 = n.d[2]
    δ2 = n.d[1] + n.w_h * δ3
    return [n.d[0] + n.w_h * δ2, δ2, δ3]


# %%
check.exercise("2.1", my_adjoints)

# %% [markdown]
# **2.2** Write the backward pass with a cut before steps k + 1, 2k + 1, …: chunks of k steps, the last one shorter
# where k does not divide T. `h_prev[t]` is the state that step t + 1 starts from, the loss is Σ h_t.


# %% exercise="2.2"
def truncated(h_prev, w_h, k):
    """∂L/∂w_h with the state cut after every k steps. h_prev: (T,)."""
    raise NotImplementedError("Exercise 2.2: go from the last step to the first, and drop δ at a cut")


# %% solution="2.2"
def truncated(h_prev, w_h, k):
    """∂L/∂w_h with the state cut after every k steps. h_prev: (T,)."""
    T, total, δ = len(h_prev), 0.0, 0.0
    for t in range(T - 1, -1, -1):
        if (t + 1) % k == 0:  # step t + 1 is the last of its chunk: nothing comes back from the next one
            δ = 0.0
        δ = 1 + w_h * δ
        total += δ * h_prev[t]
    return total


# %%
check.exercise("2.2", truncated)

# %% [markdown]
# **2.3** Find the bug. This loop was meant to cut the state before every step. It runs, the outputs are right, and
# every gradient is zero. Mend it.


# %%
def broken(cell, x):
    h, outputs = cell.zero_state(x.shape[1]), []
    for x_t in x:
        out, h = cell.step(x_t, h)
        outputs.append(mb.cut(out))
    return mb.stack(outputs)


# %% exercise="2.3"
def cut_loop(cell, x):
    """The outputs (T, B, 1) of `cell`, its state cut before every step."""
    raise NotImplementedError("Exercise 2.3: write the loop with the cut where it belongs")


# %% solution="2.3"
def cut_loop(cell, x):
    """The outputs (T, B, 1) of `cell`, its state cut before every step."""
    h, outputs = cell.zero_state(x.shape[1]), []
    for x_t in x:
        out, h = cell.step(x_t, mb.cut(h))
        outputs.append(out)
    return mb.stack(outputs)


# %%
check.exercise("2.3", cut_loop)

# %% [markdown]
# ## Summary
#
# - A gradient through time has a term for each pair (loss step, source step): Σ_t δ_t·h_{t−1} adds them up.
# - A cut keeps the value and stops the adjoint: 23 instead of 33, with the same outputs. A reset stops both.
# - Both numbers are right answers, to different questions. Always say which one is meant.
#
# PyTorch calls the cut `h.detach()`, JAX `jax.lax.stop_gradient(h)`. Cutting what goes into the loss, as in exercise
# 2.3, is the bug that nobody notices, for the forward pass is right.
#
# *History.* Carrying the state on while cutting its gradient after a fixed number of steps was described as an
# approximation by Williams and Peng ("An efficient gradient-based algorithm for on-line training of recurrent network
# trajectories", Neural Computation 2, 1990).
