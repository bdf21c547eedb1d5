# %% [markdown] minutes=50
# # 4. Vanishing and exploding: a product of Jacobians
#
# **Question.** A loss at step 50, a weight used at step 1. What reaches the weight is almost nothing, or so much that
# one step of the optimiser ruins the network. Why so rarely anything in between?
#
# You need lesson 3 and, from linear algebra, eigenvalues and singular values.

# %%
import matplotlib.pyplot as plt
import numpy as np

import minibptt as mb
from minibptt.lessons import check

me = check.seed("your name")  # the exercises with numbers of your own take them from it

# %% [markdown]
# **Predict before you run on.** One unit, no nonlinearity: h_t = w·h_{t−1} + x_t, so what arrives 50 steps back is w⁵⁰
# times what started. How much is that for w = .9, 1, 1.1? Guess first, without a calculator.

# %%
print(*[f"{w}⁵⁰ = {w**50:.3g}" for w in (0.9, 1.0, 1.1)], sep="   ")

# %% [markdown]
# **1. One step back.** Lesson 3 had da_t = dh_t·(1 − h_t²), elementwise, and dh_{t−1} = da_t @ W_hᵀ. Written as one
# matrix, the *Jacobian* of the step:
#
#     dh_{t−1} = dh_t @ J_t        J_t = diag(1 − h_t²) @ W_hᵀ        (H, H)
#
# **2. Many steps back.** A loss at step T only: dh_{T−j} = dh_T @ J_T @ J_{T−1} @ … @ J_{T−j+1}, j factors.
#
# **3. No nonlinearity**: every factor is W_hᵀ, and dh_{T−j} = dh_T @ (W_hᵀ)ʲ. With eigenvalues λ this grows or shrinks
# like ρʲ in the long run, ρ = max |λ| being the *spectral radius*. An orthogonal matrix Q keeps every length, and s·Q
# multiplies it by s a step: ρ = s exactly.
#
# **4. With tanh** every 1 − h_t² is at most 1, so a step multiplies the length by σ_max(W_h) at most, the largest
# singular value. σ_max < 1 is therefore *enough* for vanishing. Exploding *needs* σ_max > 1, and that is *not enough*,
# nor is ρ > 1: large states make 1 − h_t² small. (For s·Q, used below, σ_max = ρ = s. In general σ_max ≥ ρ.)
#
# The lines in code. One tape for each network, the loss at the last of 51 steps, and ‖dh‖ at some lags:

# %%
T, H = 51, 32
Q = np.linalg.qr(np.random.default_rng(0).standard_normal((H, H)))[0]
x = np.random.default_rng(3).standard_normal((T, 1, 1))


def network(kind, W_h):
    cell = mb.RNNCell(1, H, kind, rng=1, dtype=np.float64)
    mb.assign(cell.W_h, W_h)
    return cell


def lengths(cell):
    """‖dh_{T−j}‖ / ‖dh_T‖ for j = 0, 1, …, T − 1."""
    with mb.Tape() as tape:
        out, _ = mb.unroll(cell, x)
        loss = mb.sum(out[-1])
    dh = np.linalg.norm(tape.adjoints(loss)["h"][::-1, 0], axis=1)
    return dh / dh[0]


print("lag               1        10        20        50")
for s in (0.8, 1.0, 1.2, 2.0):
    for kind in ("linear", "tanh"):
        found = lengths(network(kind, s * Q))
        print(f"ρ = {s}, {kind:6}", *[f"{found[j]:9.2g}" for j in (1, 10, 20, 50)])
        if kind == "linear":
            np.testing.assert_allclose(found, s ** np.arange(T), rtol=1e-9)  # step 3, to rounding

# %% [markdown]
# With ρ = 1.2 the linear network explodes and the tanh network does not. With ρ = 1 the tanh network vanishes.
#
# Why? The tape of one unit, w_h = 2, without inputs after the first. Work out the factor w_h·(1 − h²) at each h: .84,
# .35, .20. The state settles at .96 and the factor at .17: it vanishes, with a weight of 2.

# %%
one = mb.RNNCell(1, 1, rng=0, dtype=np.float64)
for parameter, value in ((one.W_x, 1.0), (one.W_h, 2.0), (one.b, 0.0)):
    mb.assign(parameter, np.full(parameter.shape, value))
with mb.Tape() as tape:
    out, _ = mb.unroll(one, [[[1.0]], [[0.0]], [[0.0]]])
    loss = mb.sum(out[-1])
print(tape)

# %% [markdown]
# What the weights are told, by how long ago they were used, for three tanh networks; eight rows, the loss at the last
# of 24 steps. Above, the shares: on the left the last few steps are all that counts, on the right the first two. Below,
# the norms on a log axis, where a power is a straight line.

# %%
figure, axes = plt.subplots(2, 3, figsize=(15, 7.5), sharex=True, layout="constrained")
rows = np.random.default_rng(4).standard_normal((24, 8, 1))
for s, column in zip((0.8, 1.2, 3.0), axes.T):
    c = mb.contributions(network("tanh", s * Q), rows, None, lambda out, _: mb.sum(out[-1]))
    mb.plots.lags(c, column)
    column[0].set_title(f"ρ = {s}", fontsize=15)
    column[1].set_title("")
    column[1].set_xlabel("lag t − s (steps)", fontsize=14)

# %% [markdown]
# **5. Initialisation.** Entries drawn with standard deviation σ give ρ ≈ σ·√H (the circular law). The usual
# U(−1/√H, 1/√H) has σ = 1/√(3H), so ρ ≈ 1/√3 ≈ .58: after 20 steps .58²⁰, a fifty-thousandth. σ_max ≈ 2ρ is above 1,
# so the first step or two need not shrink. An orthogonal start has ρ = σ_max = 1.

# %%
W = mb.RNNCell(1, 256, rng=0).W_h.value
print(f"ρ = {abs(np.linalg.eigvals(W)).max():.2f}, σ_max = {np.linalg.svd(W)[1][0]:.2f}")

# %% [markdown]
# **6. Clipping** is for exploding: where the norm of the whole gradient passes a limit, all of it is scaled down by one
# factor. The direction stays. Against vanishing it does nothing: it never scales up, and what has died away is lost in
# the sum already.
#
# **What broke?** One unit, h₀ = 1, learns to make h₅₀ = 2 from w = 1.1. The answer is w = 2^(1/50) ≈ 1.014, and the
# first gradient is above a million.


# %%
def descend(most, steps=200, lr=1e-6):
    w, seen = mb.parameter([1.1], dtype=np.float64), []
    for _ in range(steps):
        with mb.Tape() as tape:
            h = mb.ones((1,))
            for _ in range(50):
                h = w * h
            loss = mb.mse(h, np.array([2.0]))
        g = mb.Gradients({"w": tape.gradient(loss, w)})
        g = g if most is None else mb.clip_by_global_norm(g, most)
        mb.assign(w, w.value - lr * g["w"])
        seen.append(loss.item())
    return [float(f"{one:.3g}") for one in seen[:2] + seen[-1:]]


print("loss at first, then, at last:", descend(None), "unclipped,", descend(4000.0), "clipped")

# %% [markdown]
# Unclipped, one step threw w to where h₅₀ is 0, the loss is (0 − 2)² = 4, and no gradient ever comes back. A cut every
# k steps bounds the product too, to k factors. It does so by throwing away what clipping keeps: the direction.
#
# ## Exercises
#
# **4.1** One tanh unit, held by its input at the same state h_t = h at every step. How much of dh_T arrives j steps
# back, and does it vanish or explode? (A typed number needs five digits.) Your numbers:

# %%
n = check.numbers("4.1")
print("w_h =", n.w_h, " h =", n.h, " j =", n.j)


# %% exercise="4.1"
def arrives():
    """(∂h_T/∂h_{T−j} as a number, "vanishes" or "explodes")."""
    raise NotImplementedError("Exercise 4.1: what is one factor, and how many are there?")


# %% solution="4.1"
def arrives():
    """(∂h_T/∂h_{T−j} as a number, "vanishes" or "explodes")."""
    factor = n.w_h * (1 - n.h**2)
    return factor**n.j, "explodes" if abs(factor) > 1 else "vanishes"


# %%
check.exercise("4.1", arrives)

# %% [markdown]
# **4.2** Write the product for a whole sequence: the matrix M with dh_0 = dh_T @ M.


# %% exercise="4.2"
def product(h, W_h):
    """M (H, H) from the states h (T, H), which are h_1 to h_T, and W_h (H, H)."""
    raise NotImplementedError("Exercise 4.2: J_T comes first, J_1 last")


# %% solution="4.2"
def product(h, W_h):
    """M (H, H) from the states h (T, H), which are h_1 to h_T, and W_h (H, H)."""
    M = np.eye(len(W_h))
    for h_t in h[::-1]:
        M = M @ (np.diag(1 - h_t**2) @ W_h.T)
    return M


# %%
check.exercise("4.2", product)

# %% [markdown]
# **4.3** Write an initialisation of W_h with which a linear network neither shrinks nor stretches any dh, at any H. It
# must be drawn: another rng, another matrix, in which every unit talks to the others.


# %% exercise="4.3"
def initial(H, rng):
    """W_h (H, H), drawn from `rng`, a numpy Generator."""
    raise NotImplementedError("Exercise 4.3: which matrices keep the length of every vector?")


# %% solution="4.3"
def initial(H, rng):
    """W_h (H, H), drawn from `rng`, a numpy Generator."""
    return np.linalg.qr(rng.standard_normal((H, H)))[0]


# %%
check.exercise("4.3", initial)

# %% [markdown]
# **4.4** Find the bug. This clips, trains, and turns the gradient into another direction. Write it as it should be.


# %%
def broken_clip(gradients, most):
    return {name: g * min(1.0, most / np.sqrt(np.sum(g**2))) for name, g in gradients.items()}


# %% exercise="4.4"
def clip(gradients, most):
    """{name: array} with a common norm of at most `most`, in the direction of `gradients`."""
    raise NotImplementedError("Exercise 4.4: one factor for all")


# %% solution="4.4"
def clip(gradients, most):
    """{name: array} with a common norm of at most `most`, in the direction of `gradients`."""
    norm = np.sqrt(sum(np.sum(g**2) for g in gradients.values()))
    return {name: g * min(1.0, most / norm) for name, g in gradients.items()}


# %%
check.exercise("4.4", clip)

# %% [markdown]
# ## Summary
#
# - Going back j steps multiplies by j Jacobians diag(1 − h_t²) @ W_hᵀ. A power of anything but 1 is next to 0 or huge.
# - σ_max(W_h) < 1 is enough for vanishing; σ_max > 1 is necessary for exploding, and tanh may still prevent it.
# - Clip against exploding. Against vanishing: start orthogonal, or build a path with factors near 1, as lesson 8 does.
#
# PyTorch has `nn.init.orthogonal_`, `clip_grad_norm_` (one factor, this lesson's) and `clip_grad_value_` (turns the
# direction). Its `nn.RNN` starts from the U(−1/√H, 1/√H) of step 5.
#
# *History.* Hochreiter found the vanishing product in his diploma thesis ("Untersuchungen zu dynamischen neuronalen
# Netzen", TU München, 1991); the two conditions of step 4 and clipping by the norm are in Pascanu, Mikolov and Bengio
# ("On the difficulty of training recurrent neural networks", ICML 2013).
