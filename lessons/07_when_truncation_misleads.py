# %% [markdown] minutes=50
# # 7. When truncation misleads
#
# **Question.** A gradient truncated at K steps is an approximation, so a larger K is better, and even a small K roughly
# shows the way. Is that so? And can a network use what lies further back than its gradient ever reached?
#
# You need lesson 6: C[t, s] is what the source step s does for the loss of step t, a schedule weighs these pairs, and
# the share ⟨g, G⟩/‖G‖² says how much of the full gradient's progress a truncated one makes.

# %%
import matplotlib.pyplot as plt
import numpy as np

import minibptt as mb
from minibptt.lessons import check
from minibptt.tasks import InfluenceBalancing, coin_task

me = check.seed("your name")  # the exercises with numbers of your own take them from it

# %% [markdown]
# ## 1. Influence balancing
#
# 23 units in a row, each fed by half of itself and half of the next one, sᵢ ← ½·sᵢ + ½·sᵢ₊₁ + θ·uᵢ, with a single
# parameter θ. It pushes the first 10 units up and the other 13 down (u = ±1). Only unit 0 is seen, with the loss ½(s₀ −
# 1)² at the last step. A push on unit i takes at least i steps to arrive at unit 0, and the units that are pushed down
# are the far ones. So the nearer past says "s₀ grows with θ"; the far past, which is more, says the opposite.
#
# At the fixed point the answer is exact: sᵢ = sᵢ₊₁ + 2·θ·uᵢ, so s₀ = (10 − 13)·2·θ = −6θ. That makes ∂s₀/∂θ = −6, and
# s₀ = 1 at θ* = −1/6.
#
# **Predict before you run on.** ∂s₀/∂θ through the last step alone is +1. What share of the gradient does a window of
# one step keep then? Does it get better at first when the window grows?


# %%
def last_loss(outputs, y=None):
    """½(s₀ − 1)² of the last step alone."""
    error = outputs[-1] - 1.0
    return 0.5 * mb.sum(error * error)


cell = InfluenceBalancing()
with mb.no_tape():  # values only, no gradient
    _, fixed = mb.unroll(cell, np.zeros((1000, 1, 1)))  # where the state no longer moves
c = mb.contributions(cell, np.zeros((100, 1, 1)), None, last_loss, state=fixed)
figure, axes = plt.subplots(2, 1, figsize=(10, 7), sharex=True, height_ratios=[2, 1], layout="constrained")
mb.plots.lags(c, axes)
for K in (1, 10, 19, 40, 41, 100):
    print(f"K = {K}: share {c.kept_share(mb.tbptt(1, K)):.2f}")

# %% [markdown]
# The share is −1.67 at K = 10, and a longer window makes it worse: −2.75 at K = 19. The first K with the right sign is
# 41 (.04). So we train, 150 updates of gradient descent: with chunks of 10 steps, and with all 60.


# %%
def train(schedule, T=60, rate=1e-3, updates=150):
    cell, rng, x = InfluenceBalancing(), np.random.default_rng(0), np.zeros((T, 1, 1))
    state = cell.zero_state(1)
    for _ in range(updates):
        g = mb.bptt(cell, x, None, last_loss, schedule, state=state, rng=rng)
        with mb.no_tape():
            _, state = mb.unroll(cell, x, state)  # carried on
        mb.assign(cell.theta, cell.theta.value - rate * g["theta"])
    return cell.theta.item()


print(f"from θ = 0.5 to: chunks of 10 {train(mb.tbptt(10)):.4g}, full {train(mb.full()):.4f}; the best {-1 / 6:.4f}")

# %% [markdown]
# In chunks θ runs away: each update has the wrong sign, so it makes |s₀ − 1| larger, and the next update with it.
#
# ## 2. Truncation without bias
#
# Cut at random instead (Tallec and Ollivier 2017): close each boundary with probability p, and multiply the adjoint by
# 1/(1 − p) at each boundary that stays open. A pair n boundaries apart has the weight 0, or (1 − p)⁻ⁿ with probability
# (1 − p)ⁿ: in the mean, 1. Two draws; in the mean over many, every pair has the weight of full BPTT.

# %%
figure, axes = plt.subplots(1, 3, figsize=(12, 5), layout="constrained")
mb.plots.schemes(12, [mb.tbptt(4), mb.artbp(0.25)], ax=axes[:2], rng=1)
mb.plots.schemes(12, [mb.artbp(0.25)], ax=axes[2:], rng=2)
figure.suptitle("Weights of the pairs: grey 0, blue 1, darker more", fontsize=15)
print(f"θ after 150 updates: {train(mb.artbp(0.02)):.4f}")

# %% [markdown]
# The price is noise: the weights of far pairs are rare and large. How much follows from the inner products of the
# contributions, their Gram matrix: E‖g − G‖²/‖G‖². Against 1000 draws, to see that both agree (their mean is still off
# from 1 by √(variance/1000) or so):

# %%
c = mb.contributions(cell, np.zeros((60, 1, 1)), None, last_loss, state=fixed)
gram, rng = c.gram(), np.random.default_rng(0)
for p in (0.01, 0.02, 0.05):
    draws = [c.kept_share(mb.artbp(p), rng) for _ in range(1000)]  # g/G, there being one parameter
    print(f"p = {p}: mean {np.mean(draws):.2f}, variance {np.var(draws):.1f}, in closed form", end=" ")
    print(f"{gram.artbp_variance(p):.1f}; p = {p} cuts every {1 / p:.0f} steps in the mean")

# %% [markdown]
# ## 3. Memory beyond the window
#
# "A window shorter than the lag can't learn it." Try: x are fair coins, and y looks back 3 and 8 steps,
# P(y_t = 1) = ½ + ½·x_{t−3} − ¼·x_{t−8}. Cross-entropy in nats: .6616 knowing nothing, .5192 with lag 3 alone, .4545
# with both. Train in chunks of k = 5, shorter than 8, in three ways: the state **carried** and cut; **reset** to zero;
# carried, but the recurrent weights **frozen** as they were drawn, so that only the readout learns. Which get below
# .5192?


# %%
def coin(way, k=5, B=48, H=32, updates=2000):
    x, y = coin_task(k * updates).batch(np.random.default_rng(0), B)
    model = mb.Sequential(mb.RNN(1, H, rng=0), mb.Linear(H, 2, rng=1))
    learns = model[1] if way == "frozen" else model
    opt, losses, state = mb.Adam(learns, lr=5e-3), [], model.zero_state(B)
    for t in range(0, len(x), k):
        if way == "reset":
            state = model.zero_state(B)
        with mb.Tape() as tape:
            logits, state = model(x[t : t + k], mb.cut(state))
            loss = mb.cross_entropy(logits, y[t : t + k])
        opt.step(tape.gradient(loss, learns))
        losses.append(loss.item())
    return np.mean(losses[-updates // 5 :])


for way in ("carry", "reset", "frozen"):
    print(f"{way}: {coin(way):.3f}")

# %% [markdown]
# *Carry* beats .5192, so it uses lag 8, though no gradient ever went back more than 4 steps. *Frozen* comes close to
# .5192 with no gradient through time at all: random recurrent weights keep an echo of old inputs (Jaeger 2001), which a
# readout can use. k limits how far credit goes back. It does not limit memory, as long as the state is carried.
#
# **What broke?** *Reset* did: a chunk that starts at zero has nothing to remember. Only a longer chunk mends that.
# And carrying is no guarantee: with k = 2 or 3, 64 units end near .65, worse than frozen (docs/coin.md, 6000 updates).
#
# ## Exercises
#
# **7.1** h_t = h_{t−1} + θ·x_t, the loss is the last h. So the lag j contributes C_j, your numbers, lag 0 first. Which
# share does a window of 3 steps keep, and what is the least K from which on every window has the right sign? (Two
# decimals will do for the share.)

# %%
n = check.numbers("7.1")
print("C =", n.C)


# %% exercise="7.1"
def windows():
    """(the share that a window of 3 steps keeps, the least K)."""
    raise NotImplementedError("Exercise 7.1: return the share and K, worked out from C")


# %% solution="7.1"
def windows():
    """(the share that a window of 3 steps keeps, the least K)."""
    kept = np.cumsum(n.C) / np.sum(n.C)
    return kept[2], 1 + max(K for K in range(1, 8) if kept[K - 1] <= 0)


# %%
check.exercise("7.1", windows)

# %% [markdown]
# **7.2** One draw of randomised truncation. `C[j]` is the contribution of lag j to one loss; `closed[j]` is whether the
# boundary between lag j and lag j + 1 was drawn to be closed. Return the unbiased estimate of ΣC.


# %% exercise="7.2"
def estimate(C, closed, p):
    """C (T,), closed (T − 1,) of booleans, p the probability with which each boundary was closed."""
    raise NotImplementedError("Exercise 7.2: go back lag by lag; what does each boundary do to the weight?")


# %% solution="7.2"
def estimate(C, closed, p):
    """C (T,), closed (T − 1,) of booleans, p the probability with which each boundary was closed."""
    factors = np.where(closed, 0.0, 1 / (1 - p))
    return np.sum(C * np.append(1.0, np.cumprod(factors)))


# %%
check.exercise("7.2", estimate)

# %% [markdown]
# **7.3** Reset, at its best: a predictor sees nothing before its chunk of k steps. `best` holds the least loss of one
# step: best["nothing"], best["lag 3"], best["both"]. What is its least mean loss over the chunk?


# %% exercise="7.3"
def best_alone(k, best):
    """The least mean cross-entropy over the k steps of a chunk that starts from zero."""
    raise NotImplementedError("Exercise 7.3: which lags does the j-th step of a chunk see?")


# %% solution="7.3"
def best_alone(k, best):
    """The least mean cross-entropy over the k steps of a chunk that starts from zero."""
    return np.mean([best["both" if j > 8 else "lag 3" if j > 3 else "nothing"] for j in range(1, k + 1)])


# %%
check.exercise("7.3", best_alone)

# %% [markdown]
# ## Summary
#
# - A truncated gradient can point the wrong way, and a longer window can be worse. Look at the running sum of shares.
# - Random cuts with 1/(1 − p) on the open boundaries have no bias, but a variance that grows fast with p.
# - k limits credit, not memory: carry ≠ reset, and even frozen recurrent weights remember.
#
# In PyTorch the carried state is `h = h.detach()`; frozen weights have `requires_grad_(False)`. Nothing there cuts at
# random: `h.register_hook`, with a function that multiplies the gradient by 0 or 1/(1 − p), does.
#
# *History.* Random cuts and this example: Tallec and Ollivier ("Unbiasing truncated backpropagation through time",
# 2017). Frozen recurrence: Jaeger ("The 'echo state' approach to analysing and training recurrent neural networks",
# 2001). The coins: r2rt, "Styles of truncated backpropagation" (2016).
