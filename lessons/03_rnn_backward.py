# %% [markdown] minutes=60
# # 3. The RNN's backward pass: derived, written, checked
#
# **Question.** A dozen lines of NumPy give the gradient of a recurrent network. Which, and how do you know that yours
# are right?
#
# You need lesson 2, and matrices: rows are vectors here, so that x_t @ W_x is code and equation in one. Shapes do half
# of the work: T steps, B rows, D inputs, H units.

# %%
import matplotlib.pyplot as plt
import numpy as np

import minibptt as mb
from minibptt.lessons import check

me = check.seed("your name")  # the exercises with numbers of your own take them from it

# %% [markdown]
# The plain recurrent network (Elman 1990), for t = 1 … T:
#
#     a_t = x_t @ W_x + h_{t−1} @ W_h + b       x_t (B, D), W_x (D, H), h_t (B, H), W_h (H, H), b (H,)
#     h_t = tanh(a_t)
#
# A d in front is short for an adjoint: da_t = ∂L/∂a_t, dW_h = ∂L/∂W_h. dout_t is what h_t gets from the loss of its
# own step.
#
# **Predict before you run on.** What else must be added to dout_t to get the whole dh_t = ∂L/∂h_t? And which shape has
# dW_h, and how can it be made from h_{t−1} (B, H) and da_t (B, H)?
#
# **1. The adjoint of the state.** h_t reaches the loss directly and through step t + 1:
#
#     dh_t = dout_t + da_{t+1} @ W_hᵀ           (B, H); at t = T the second term is absent
#
# Why the transpose? One entry: a_{t+1, j} = Σ_i h_{t, i}·W_h[i, j] + …, so ∂L/∂h_{t, i} = Σ_j ∂L/∂a_{t+1, j}·W_h[i, j].
#
# **2. Through tanh**, elementwise: da_t = dh_t · (1 − h_t²). The saved h_t is tanh a_t already.
#
# **3. To the parameters.** Each is used at every step, so there is a sum over t; the product sums over the B rows:
#
#     dW_x = Σ_t x_tᵀ @ da_t        dW_h = Σ_t h_{t−1}ᵀ @ da_t        db = Σ_t Σ_rows da_t
#
# **4. To the inputs**: dx_t = da_t @ W_xᵀ, and what goes out at the front is dh_0 = da_1 @ W_hᵀ.
#
# The forward pass in code. What the backward pass needs again goes into `cache`. Arrays count from 0, so x_t of the
# equations is x[t − 1]. But h has h_0 in front, so h_t is h[t].


# %%
def forward(x, h0, W_x, W_h, b):
    """out (T, B, H) and the cache, from x (T, B, D)."""
    h = [h0]
    for x_t in x:
        h.append(np.tanh(x_t @ W_x + h[-1] @ W_h + b))
    cache = x, np.stack(h), W_x, W_h  # h is (T + 1, B, H) here, from h_0 to h_T
    return np.stack(h[1:]), cache


# %% [markdown]
# ## Write it
#
# **3.1** First one step, on paper: one row, one unit. Your numbers are h_t, w_h and the whole dh_t. Step t − 1 has no
# loss of its own, dout_{t−1} = 0. What is dh_{t−1}?

# %%
n = check.numbers("3.1")
print("h_t =", n.h_t, " w_h =", n.w_h, " dh_t =", n.dh_t)


# %% exercise="3.1"
def dh_prev():
    """What arrives at h_{t−1} through step t, one number."""
    raise NotImplementedError("Exercise 3.1: through tanh, then through w_h")


# %% solution="3.1"
def dh_prev():
    """What arrives at h_{t−1} through step t, one number."""
    return n.dh_t * (1 - n.h_t**2) * n.w_h


# %%
check.exercise("3.1", dh_prev)

# %% [markdown]
# **3.2** Now all of it: the loop in reverse, with the steps 1 to 4 of the derivation.


# %% exercise="3.2"
def backward(dout, cache):
    """dx, dh0, dW_x, dW_h, db from dout (T, B, H)."""
    x, h, W_x, W_h = cache
    raise NotImplementedError("Exercise 3.2: the loop over the steps, from the last to the first")


# %% solution="3.2"
def backward(dout, cache):
    """dx, dh0, dW_x, dW_h, db from dout (T, B, H)."""
    x, h, W_x, W_h = cache
    dx, dW_x, dW_h, db = np.zeros_like(x), np.zeros_like(W_x), np.zeros_like(W_h), np.zeros_like(W_h[0])
    dh_next = np.zeros_like(h[0])
    for t in range(len(x) - 1, -1, -1):
        da = (dout[t] + dh_next) * (1 - h[t + 1] ** 2)
        dW_x += x[t].T @ da
        dW_h += h[t].T @ da
        db += da.sum(axis=0)
        dx[t] = da @ W_x.T
        dh_next = da @ W_h.T
    return dx, dh_next, dW_x, dW_h, db


# %%
check.exercise("3.2", forward, backward)

# %% [markdown]
# ## The same on the tape
#
# The engine's cell has the same equations. One small case, step by step:

# %%
T, B, D, H = 6, 2, 3, 4
x = np.random.default_rng(0).standard_normal((T, B, D))
cell = mb.RNNCell(D, H, rng=1, dtype=np.float64)
with mb.Tape() as tape:
    out, h_T = mb.unroll(cell, x[:2])
    loss = mb.sum(out * out)
print(tape)

# %% [markdown]
# The check that both agree, on all six steps. L = Σ out², so dout = 2·out.

# %%
with mb.Tape() as tape:
    out, _ = mb.unroll(cell, x)
    loss = mb.sum(out * out)
tapes = tape.gradient(loss, cell)
mine, cache = forward(x, np.zeros((B, H)), *[p.value for p in cell.parameters().values()])
dx, dh0, dW_x, dW_h, db = backward(2 * mine, cache)
for name, yours in {"W_x": dW_x, "W_h": dW_h, "b": db}.items():
    print(name, "differs by", f"{np.abs(yours - tapes[name]).max():.0e}")
    np.testing.assert_allclose(yours, tapes[name], rtol=1e-10)

# %% [markdown]
# `da_{t+1} @ W_hᵀ` is all that connects the steps. How much of the gradient comes that way? Above, the share of each
# lag, t − s. Below, the sum of the norms of its terms, which counts also what cancels in the gradient:

# %%
c = mb.contributions(cell, x, None, lambda out, _: mb.sum(out * out))
figure, axes = plt.subplots(2, 1, figsize=(10, 7), sharex=True, layout="constrained")
mb.plots.lags(c, axes)
print("without it, lag 0 alone keeps", round(float(c.share_by_lag[0]), 2))

# %% [markdown]
# **What broke?** A pass that is nearly right trains, a little worse, for weeks. `mb.check_cell` compares with the tape
# and says where it first goes wrong and what it looks like. Here dh_next is forgotten:


# %%
def forgetful(dout, cache):
    x, h, W_x, W_h = cache
    da = dout * (1 - h[1:] ** 2)
    dW_x, dW_h = (np.einsum("tbi,tbj->ij", before, da) for before in (x, h[:-1]))
    return da @ W_x.T, da[0] @ W_h.T, dW_x, dW_h, da.sum(axis=(0, 1))


print(mb.check_cell(forward, forgetful, like="rnn", raises=False))

# %% [markdown]
# ## Exercises
#
# **3.3** Find the bug. One of these lines is wrong, and with it every gradient.


# %%
def nearly(dout, cache):
    x, h, W_x, W_h = cache
    dx, dW_x, dW_h, db = np.zeros_like(x), np.zeros_like(W_x), np.zeros_like(W_h), np.zeros_like(W_h[0])
    dh_next = np.zeros_like(h[0])
    for t in range(len(x) - 1, -1, -1):
        da = dout[t] + dh_next * (1 - h[t + 1] ** 2)
        dW_x += x[t].T @ da
        dW_h += h[t].T @ da
        db += da.sum(axis=0)
        dx[t] = da @ W_x.T
        dh_next = da @ W_h.T
    return dx, dh_next, dW_x, dW_h, db


# %% exercise="3.3"
def mended_line(dout_t, dh_next, h_t, h_prev, x_t):
    """What the wrong line is to compute, for the step with index t: h_t is h[t + 1] there, and h_prev h[t]."""
    raise NotImplementedError("Exercise 3.3: which line is it? Return its right-hand side, mended")


# %% solution="3.3"
def mended_line(dout_t, dh_next, h_t, h_prev, x_t):
    """What the wrong line is to compute, for the step with index t: h_t is h[t + 1] there, and h_prev h[t]."""
    return (dout_t + dh_next) * (1 - h_t**2)  # da


# %%
check.exercise("3.3", mended_line)

# %% [markdown]
# ## Summary
#
# - dh_t = dout_t + da_{t+1} @ W_hᵀ; da_t = dh_t·(1 − h_t²); the parameters sum over all steps.
# - A cut before step t + 1 is one factor, 0, on da_{t+1} @ W_hᵀ. Everything else stays.
# - `minibptt/cells/rnn.py` has the same pass, made fast, and the engine's tests hold it against the tape.
#
# PyTorch calls the cell `nn.RNN`; its `weight_ih_l0` is W_xᵀ, `weight_hh_l0` is W_hᵀ, and it has two biases where one
# would do. A backward pass of your own is a `torch.autograd.Function`, and `gradcheck` tests it by differences.
#
# *History.* Werbos ("Backpropagation through time: what it does and how to do it", Proceedings of the IEEE 78, 1990)
# gave the pass its name and its pseudocode; the network is Elman's (Cognitive Science 14, 1990).
