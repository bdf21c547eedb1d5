# %% [markdown] minutes=50
# # 8. LSTM and GRU: a state that may pass unchanged
#
# **Question.** In a plain RNN the adjoint goes through tanh and W_h at every step, and vanishes or explodes. What would
# a cell look like in which it can pass a hundred steps unchanged, and how does one say for how long?
#
# You need lesson 3 for the backward pass and lesson 4 for products of Jacobians.

# %%
import matplotlib.pyplot as plt
import numpy as np

import minibptt as mb
from minibptt.lessons import check

me = check.seed("your name")  # the exercises with numbers of your own take them from it

# %% [markdown]
# ## The equations
#
# The LSTM has a second state, c, and four gates side by side, each a small layer of its own:
#
#     z_t = x_t @ W_x + h_{t−1} @ W_h + b                       (B, 4H), split into z_i, z_f, z_g, z_o
#     i = σ(z_i)    f = σ(z_f)    g = tanh(z_g)    o = σ(z_o)
#     c_t = f · c_{t−1} + i · g                                 forget, and write
#     h_t = o · tanh(c_t)                                       show
#
# Here σ(z) = 1/(1 + e^(−z)), the sigmoid. The GRU does with one state: r = σ(…), z = σ(…), n = tanh(…, with r on what
# comes from h_{t−1}), and h_t = (1 − z)·n + z·h_{t−1}. What f is to the LSTM, z is to the GRU.
#
# **Predict before you run on.** Hold the gates fixed. What is ∂c_t/∂c_{t−1}? What is ∂c_T/∂c_0 after 20 steps where
# f = ½, and where f = .95?
#
# **1. The highway.** On the direct path, ∂c_t/∂c_{t−1} = f_t, entry by entry: no matrix, no tanh. Over many steps it is
# the product of the f_t: ½²⁰ is a millionth, .95²⁰ is .36. (c_{t−1} acts through h_{t−1} on all gates too; that path
# has W_h in it.)
#
# **2. A time constant.** With f fixed, f^n falls to 1/e after n = −1/ln f steps, about 1/(1 − f) where f is near 1. At
# the start the weights are small and f ≈ σ(b_f), so the bias of the forget gate says how far back an untrained LSTM
# looks:

# %%
for b_f in (0, 1, 3, 5):
    f = 1 / (1 + np.exp(-b_f))
    print(f"b_f = {b_f}: f = {f:.3f}, 1/(1 − f) = {1 / (1 - f):.1f} steps")

# %% [markdown]
# **3. Is it so?** One step on the tape, one unit. Find the line in which c₀ is multiplied by f.

# %%
with mb.Tape() as tape:
    mb.unroll(mb.LSTMCell(1, 1, rng=0), np.ones((1, 1, 1)))
print(tape)

# %% [markdown]
# Now 20 steps. We cut h before each step, and not c: what is left with the cuts closed is the direct path alone. It
# must be the product of the forget gates, worked out by hand from the columns of gate f. With the cuts mended, the
# paths through h are added.

# %%
T, D, H = 20, 3, 4
x = np.random.default_rng(0).standard_normal((T, 1, D))
cell = mb.LSTMCell(D, H, forget_bias=3.0, rng=0, dtype=np.float64)
gate_f, product = mb.split_gates(cell)["f"], np.ones(H)
with mb.Tape() as tape:
    h, c0 = cell.zero_state(1)
    c = c0 = tape.watch(c0)
    for x_t in x:
        product *= 1 / (1 + np.exp(-(x_t @ gate_f["W_x"] + h.value @ gate_f["W_h"] + gate_f["b"])[0]))
        _, (h, c) = cell.step(x_t, (mb.cut(h), c))
    loss = mb.sum(c)
direct = tape.gradient(loss, c0)[0]
print("direct path ", direct.round(3), "\nΠ f_t       ", product.round(3))
print("all paths   ", tape.gradient(loss, c0, through_cuts=True)[0].round(3))
np.testing.assert_allclose(direct, product, rtol=1e-10)

# %% [markdown]
# **4. What the bias does to the gradient.** The share by lag of a loss at the last of 40 steps, with b_f = 0 and 3:


# %%
def last(outputs, y=None):
    return mb.sum(outputs[-1])


x = np.random.default_rng(1).standard_normal((40, 8, D))
figure, axes = plt.subplots(2, 1, figsize=(10, 8), sharex=True, layout="constrained")
for ax, b_f in zip(axes, (0.0, 3.0)):
    cell = mb.LSTMCell(D, 16, forget_bias=b_f, rng=0)
    mb.plots.lags(mb.contributions(cell, x, None, last), ax)
    ax.set_title(f"LSTM, forget bias {b_f:g}", fontsize=15)
    ax.set_xlabel("lag t − s (steps)")

# %% [markdown]
# **5. Which gate loses what?** The same cut takes different parts of the gradient from each gate. Of the last cell:

# %%
result = mb.compare(cell, x, None, last, [mb.tbptt(k) for k in (2, 8, 20)], measure=False)
print(result.table(by="gate"))

# %% [markdown]
# Gate o keeps most at a small k: it acts on its own h_t, and on later steps only through W_h. What i, f and g do goes
# on in c.
#
# ## The same cell elsewhere
#
# The equations are the same in every library, the arrays are not. D inputs, H units:
#
#     here      W_x (D, 4H)         W_h (H, 4H)               b (4H,)             i f g o
#     PyTorch   weight_ih (4H, D)   weight_hh (4H, H)         bias_ih + bias_hh   i f g o
#     Keras     kernel (D, 4H)      recurrent_kernel (H, 4H)  bias (4H,)          i f c o      (its c is g)
#     TF 1      kernel (D + H, 4H), inputs over units         bias (4H,)          i j f o      (its j is g), f + 1
#
# Biases that say which gate they are: 10, 20, 30, 40 in the order of the other library, D = H = 1. (f + 1: TF 1 adds a
# forget bias of 1 when it runs.)

# %%
named, small = np.array([10.0, 20.0, 30.0, 40.0]), mb.LSTMCell(1, 1, dtype=np.float64)
mb.weights.from_torch(
    small,
    {"weight_ih": np.ones((4, 1)), "weight_hh": np.ones((4, 1)), "bias_ih": named, "bias_hh": np.zeros(4)},
)
print("PyTorch", {gate: part["b"].item() for gate, part in mb.split_gates(small).items()})
mb.weights.from_keras(small, [np.ones((1, 4)), np.ones((1, 4)), named])
print("Keras  ", {gate: part["b"].item() for gate, part in mb.split_gates(small).items()})
mb.weights.from_tf1(small, {"kernel": np.ones((2, 4)), "bias": named})
print("TF 1   ", {gate: part["b"].item() for gate, part in mb.split_gates(small).items()})

# %% [markdown]
# **What broke?** Take TF 1's bias as it is, 0 but for the forget gate, which is to remember for long. The shapes fit,
# nothing complains, and the cell forgets: what should keep c is written into g, and c goes to 1 from wherever it was.

# %%
bias = np.array([0.0, 0.0, 5.0, 0.0])  # i j f o
kernel = np.random.default_rng(2).standard_normal((2, 4)) / 100
mb.weights.from_tf1(small, {"kernel": kernel, "bias": bias})
wrong = mb.LSTMCell(1, 1, dtype=np.float64)
mb.weights.from_keras(wrong, [kernel[:1], kernel[1:], bias])
for name, one in (("right", small), ("wrong", wrong)):
    start = (mb.zeros((1, 1)), -mb.ones((1, 1)))
    _, (_, c) = mb.unroll(one, np.zeros((20, 1, 1)), start)
    print(name, "order: c goes from −1 to", round(c.item(), 3))

# %% [markdown]
# ## Exercises
#
# **8.1** Your LSTM shall have a time constant 1/(1 − f) of the number below. Which forget bias do you give it? (Two
# decimals will do.)

# %%
n = check.numbers("8.1")
print("steps:", n.steps)


# %% exercise="8.1"
def my_bias():
    """The b_f with which 1/(1 − f) is n.steps, its weights being 0."""
    raise NotImplementedError("Exercise 8.1: f from the steps, then b_f from f")


# %% solution="8.1"
def my_bias():
    """The b_f with which 1/(1 − f) is n.steps, its weights being 0."""
    return np.log(n.steps - 1)  # f = 1 − 1/steps = σ(b_f), so b_f = ln(f/(1 − f))


# %%
check.exercise("8.1", my_bias)

# %% [markdown]
# **8.2** Write one step back. dh is ∂L/∂h_t, dc is what arrives at c_t from step t + 1. Four lines for dz, in the order
# of the gates, then as in lesson 3. `mb.check_step(step, step_back, like="lstm")` says where it first goes wrong.


# %%
def step(x, h_prev, c_prev, W_x, W_h, b):
    z_i, z_f, z_g, z_o = np.split(x @ W_x + h_prev @ W_h + b, 4, axis=1)
    i, f, o = (1 / (1 + np.exp(-z)) for z in (z_i, z_f, z_o))
    g = np.tanh(z_g)
    c = f * c_prev + i * g
    return o * np.tanh(c), c, (x, h_prev, c_prev, W_x, W_h, i, f, g, o, c)


# %% exercise="8.2"
def step_back(dh, dc, cache):
    """dx, dh_prev, dc_prev, dW_x, dW_h, db from dh and dc, (B, H) each."""
    x, h_prev, c_prev, W_x, W_h, i, f, g, o, c = cache
    raise NotImplementedError("Exercise 8.2: first all that arrives at c, then the four gates")


# %% solution="8.2"
def step_back(dh, dc, cache):
    """dx, dh_prev, dc_prev, dW_x, dW_h, db from dh and dc, (B, H) each."""
    x, h_prev, c_prev, W_x, W_h, i, f, g, o, c = cache
    dc = dc + dh * o * (1 - np.tanh(c) ** 2)
    dz = np.concatenate(
        [
            dc * g * i * (1 - i),
            dc * c_prev * f * (1 - f),
            dc * i * (1 - g**2),
            dh * np.tanh(c) * o * (1 - o),
        ],
        axis=1,
    )
    return dz @ W_x.T, dz @ W_h.T, dc * f, x.T @ dz, h_prev.T @ dz, dz.sum(axis=0)


# %%
check.exercise("8.2", step, step_back)

# %% [markdown]
# **8.3** Write `from_tf1` yourself: W_x, W_h and b as they are here, from TF 1's kernel and bias.


# %% exercise="8.3"
def converted(kernel, bias, D, forget_bias):
    """W_x (D, 4H), W_h (H, 4H), b (4H,), gates i f g o; kernel (D + H, 4H), gates i j f o."""
    raise NotImplementedError("Exercise 8.3: the order of the gates, the rows, the forget bias")


# %% solution="8.3"
def converted(kernel, bias, D, forget_bias):
    """W_x (D, 4H), W_h (H, 4H), b (4H,), gates i f g o; kernel (D + H, 4H), gates i j f o."""
    (i, j, f, o), (b_i, b_j, b_f, b_o) = np.split(kernel, 4, axis=1), np.split(bias, 4)
    W = np.concatenate([i, f, j, o], axis=1)
    return W[:D], W[D:], np.concatenate([b_i, b_f + forget_bias, b_j, b_o])


# %%
check.exercise("8.3", converted)

# %% [markdown]
# ## Summary
#
# - On the direct path ∂c_t/∂c_{t−1} = f_t; the GRU has z there. b_f sets the time constant, 1/(1 − f).
# - Cutting h and leaving c is no truncation at k: the gradient still goes back along c. Cut both.
# - Weights of another library: mind the order of the gates, the transpose, and where a forget bias hides.
#
# PyTorch calls them `nn.LSTM` and `nn.GRU`; its LSTM starts with b_f near 0, so set it yourself. Its GRU puts r after
# the product with W_hn, here `reset="after"`; `reset="before"` is the paper's.
#
# *History.* The cell with f = 1, the "constant error carousel": Hochreiter and Schmidhuber ("Long short-term memory",
# Neural Computation 9, 1997). The forget gate: Gers, Schmidhuber and Cummins ("Learning to forget", Neural Computation
# 12, 2000). The GRU: Cho et al. ("Learning phrase representations using RNN encoder-decoder", EMNLP 2014).
