# %% [markdown] minutes=45
# # 11. Layers against steps: stacks, dropout, shared weights
#
# **Question.** "Unrolled over 100 steps, a recurrent network is a network of 100 layers." And if it has three layers?
# In what are steps and layers alike, and where does one have to treat them differently: whose parameters are counted,
# what does a cut cut, what may be dropped?
#
# You need lessons 2 and 3.

# %%
import matplotlib.pyplot as plt
import numpy as np

import minibptt as mb
from minibptt.lessons import check

me = check.seed("your name")  # the exercises with numbers of your own take them from it

# %% [markdown]
# ## A grid
#
# **1. Forward.** In a stack the state of layer l at step t is made from two neighbours, the layer below (h⁰_t is x_t)
# and the step before:
#
#     hˡ_t = f(hˡ⁻¹_t @ W_xˡ + hˡ_{t−1} @ W_hˡ + bˡ)
#
# **2. Back.** So its adjoint collects from two neighbours too, the layer above and the step after (f′ left out):
#
#     δˡ_t = δˡ⁺¹_t @ (W_xˡ⁺¹)ᵀ + δˡ_{t+1} @ (W_hˡ)ᵀ + what reaches the loss directly
#
# **Predict before you run on.** Three linear layers of one unit, all weights 1, five steps; the loss is the top
# layer's last output. Then δˡ_t is a number: how many paths lead from there to the loss. Fill in the grid, 3 by 5, from
# its last corner.


# %%
def counting_stack(layers):
    """A stack in which every weight is 1 and every bias 0: its adjoints count paths."""
    cells = [mb.RNNCell(1, 1, "linear", rng=0, dtype=np.float64) for _ in range(layers)]
    for cell in cells:
        for parameter, value in ((cell.W_x, [[1.0]]), (cell.W_h, [[1.0]]), (cell.b, [0.0])):
            mb.assign(parameter, value)
    return mb.Stack(cells)


with mb.Tape() as tape:
    outputs, state = counting_stack(3)(np.zeros((5, 1, 1)))
    loss = mb.sum(outputs[-1])
for name, adjoint in reversed(tape.adjoints(loss).items()):
    print(name, adjoint.ravel())

# %% [markdown]
# Pascal's triangle. One layer has one path from step 1 to step 5, three layers have fifteen: the more layers, the more
# ways through time. Check one entry by the equation: δ¹₁ = δ²₁ + δ¹₂ = 5 + 10. (The engine counts layers from 0: layer
# 1 of the equations is its 0.h.)
#
# ## Whose parameters?
#
# **3.** The sum over uses: a parameter's gradient has a term for each place where it is used. Steps use the same
# parameters, layers have their own. So T adds nothing to the count, and every layer does:

# %%
model = mb.Sequential(mb.RNN(4, 8, layers=3, dropout=0.2, rng=0), mb.Linear(8, 2, rng=1))
print(mb.summary(model))

# %% [markdown]
# A layer *can* share, by being there twice. It then has two states and one set of parameters, counted once:

# %%
cell = mb.RNNCell(8, 8, rng=0, dtype=np.float64)
shared = mb.Stack([cell] * 2)
print(mb.summary(shared))

# %%
apart = mb.Stack([mb.RNNCell(8, 8, rng=i, dtype=np.float64) for i in range(2)])
for copy in apart.cells:
    for name, parameter in copy.parameters().items():
        mb.assign(parameter, cell.parameters()[name].value)
x = np.random.default_rng(0).standard_normal((12, 4, 8))
gradients = []
for stack in (shared, apart):
    with mb.Tape() as tape:
        outputs, _ = stack(x, cut_every=4)
        loss = mb.sum(outputs * outputs)
    gradients.append(tape.gradient(loss, stack))
both = gradients[1]["0.W_h"] + gradients[1]["1.W_h"]
print("shared, minus the sum over both uses:", f"{np.abs(gradients[0]['0.W_h'] - both).max():.0e}")
np.testing.assert_allclose(gradients[0]["0.W_h"], both, rtol=1e-10)

# %% [markdown]
# ## What a cut cuts
#
# **4.** A cut stands at a boundary between two *steps*, and goes through every layer there. Upwards, from layer to
# layer within a step, nothing is cut. The tape of two layers, twelve steps, cut every four:

# %%
print(*tape.cuts, sep="\n")

# %% [markdown]
# Around a layer a *residual* connection can go: its input is added to its output. That shortens the way up, and by no
# step the way back in time. Four layers, and what chunks of 2 keep of the gradient (outlined):

# %%
figure, axes = plt.subplots(1, 2, figsize=(14, 6.5), layout="constrained")
for ax, residual in zip(axes, ([], [1, 2, 3])):
    stack = mb.Stack([mb.RNNCell(8, 8, rng=i, dtype=np.float64) for i in range(4)], residual=residual)
    c = mb.contributions(stack, x, None, lambda outputs, _: mb.sum(outputs * outputs))
    mb.plots.contributions(c, mb.tbptt(2), ax=ax)
    ax.set_title(f"residual around {len(residual)} of 4 layers: {c.kept_share(mb.tbptt(2)):.2f} kept", fontsize=15)

# %% [markdown]
# Chunks lose the same pairs in both. But with the short way up more of the gradient has a short lag, and is kept.
#
# ## What may be dropped
#
# **5.** Dropout sets each number to 0 with probability p and divides the others by 1 − p. In a stack it stands on the
# way *up*, with a new mask at each step. Each dropout owns a generator that is drawn from step by step, so the masks do
# not depend on where the chunks fall:

# %%
ones = np.ones((6, 1, 5))
whole = mb.Dropout(0.4, rng=7)(ones).value
drop = mb.Dropout(0.4, rng=7)
in_chunks = np.concatenate([drop(ones[:4]).value, drop(ones[4:]).value])
print("equal:", np.array_equal(whole, in_chunks))

# %% [markdown]
# **What broke?** The same dropout, on the way through *time*. A memory of 1000 units that keeps each number as it is,
# h_t = h_{t−1}, with p = 0.2: of what was written at step 0, how much is left after 20 steps?

# %%
h, drop = np.ones((1, 1000)), mb.Dropout(0.2, rng=0)
for t in range(1, 21):
    h = drop(h).value
    if t % 5 == 0:
        print(f"step {t:2d}: {np.mean(h != 0):.3f} of the units still know it; (1 − p)^t = {0.8**t:.3f}")

# %% [markdown]
# ## Exercises
#
# **11.1** How many paths lead from the input x_s to the output of the top layer j steps later, in L layers?

# %%
n = check.numbers("11.1")
print("L =", n.L, " j =", n.j)


# %% exercise="11.1"
def paths():
    """The number of paths, for your L and j."""
    raise NotImplementedError("Exercise 11.1: each path goes j times right and climbs; where can it climb?")


# %% solution="11.1"
def paths():
    """The number of paths, for your L and j."""
    grid = np.ones((n.L, n.j + 1))  # from the top layer, and from the last step back
    for layer in range(1, n.L):
        for lag in range(1, n.j + 1):
            grid[layer, lag] = grid[layer - 1, lag] + grid[layer, lag - 1]
    return grid[-1, -1]


# %%
check.exercise("11.1", paths)

# %% [markdown]
# **11.2** Write one step of a stack whose upper layers, all but the first, have a residual connection around them.
# `cell.step(x, h)` gives (output, next state).


# %% exercise="11.2"
def stack_step(cells, x, state):
    """(output of the top layer, (h of each layer)), from x (B, H) and the state (h of each layer)."""
    raise NotImplementedError("Exercise 11.2: from the bottom up, each cell with its own state")


# %% solution="11.2"
def stack_step(cells, x, state):
    """(output of the top layer, (h of each layer)), from x (B, H) and the state (h of each layer)."""
    after = []
    for i, (cell, h) in enumerate(zip(cells, state)):
        out, h = cell.step(x, h)
        x = x + out if i else out
        after.append(h)
    return x, tuple(after)


# %%
check.exercise("11.2", stack_step)

# %% [markdown]
# **11.3** Find the bug. Two layers with dropout between them; nothing written ten steps ago is ever remembered.


# %%
def broken(lower, upper, drop, x):
    h, g, outputs = lower.zero_state(x.shape[1]), upper.zero_state(x.shape[1]), []
    for x_t in x:
        h = drop(lower.step(x_t, h)[1])
        out, g = upper.step(h, g)
        outputs.append(out)
    return mb.stack(outputs)


# %% exercise="11.3"
def mended(lower, upper, drop, x):
    """The outputs (T, B, H) of the upper layer, with `drop` where it belongs."""
    raise NotImplementedError("Exercise 11.3: what may be dropped, and what not?")


# %% solution="11.3"
def mended(lower, upper, drop, x):
    """The outputs (T, B, H) of the upper layer, with `drop` where it belongs."""
    h, g, outputs = lower.zero_state(x.shape[1]), upper.zero_state(x.shape[1]), []
    for x_t in x:
        out, h = lower.step(x_t, h)
        out, g = upper.step(drop(out), g)
        outputs.append(out)
    return mb.stack(outputs)


# %%
check.exercise("11.3", mended)

# %% [markdown]
# ## Summary
#
# - States form a grid. An adjoint collects from the layer above and from the next step; each layer adds paths.
# - Steps share their parameters, layers do not; what is shared is counted once, its gradient is the sum over its uses.
# - Cuts go through all layers at a boundary of time. Dropout goes up, not through time.
#
# PyTorch's `nn.RNN(num_layers=3, dropout=.2)` drops between layers only, and draws from one global generator.
#
# *History.* Elman ("Finding structure in time", Cognitive Science 14, 1990) had one layer and k = 1. That dropout
# belongs on the connections that do not go through time was said by Zaremba, Sutskever and Vinyals ("Recurrent neural
# network regularization", 2014); Gal and Ghahramani (2016) drop the state too, with one mask for all steps.
