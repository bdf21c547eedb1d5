# %% [markdown] minutes=35
# # 1. The chain rule on a tape
#
# **Question.** A program computes a number in a thousand small steps. How can one pass over these steps, in reverse,
# give its derivative by every weight, at about the price of computing the number?
#
# You need the derivatives of x², x·y and tanh x.

# %%
import matplotlib.pyplot as plt
import numpy as np

import minibptt as mb
from minibptt.lessons import check

me = check.seed("your name")  # the exercises with numbers of your own take them from it

# %% [markdown]
# One neuron with one input: a = w·x + b, h = tanh a, and the loss L = (h − y)². With x = 2, w = ½, b = −1, y = 1.
#
# **Predict before you run on.** If w grows a little, does L grow or fall? And b: does it matter more or less than w,
# and by which factor? Write it down.
#
# **1. Forward.** Write down each step with its value: v₁ = w·x = 1, a = v₁ + b = 0, h = tanh a = 0, e = h − y = −1,
# L = e² = 1.
#
# **2. Adjoints.** The *adjoint* of a value v is ∂L/∂v: by how much L moves when v does. Begin with ∂L/∂L = 1 and go
# through the steps in reverse. Each multiplies the adjoint of its output by its own derivative, and hands it on:
#
#     ∂L/∂e  = 2e · 1           = −2
#     ∂L/∂h  = 1 · ∂L/∂e        = −2
#     ∂L/∂a  = (1 − h²) · ∂L/∂h = −2        tanh' a = 1 − tanh² a
#     ∂L/∂b  = 1 · ∂L/∂a        = −2
#     ∂L/∂v₁ = 1 · ∂L/∂a        = −2
#     ∂L/∂w  = x · ∂L/∂v₁       = −4
#
# **3.** No step needs to know the others: only its own derivative, at the values of the forward pass, and the adjoint
# that arrives. So one pass in reverse gives the derivative by *every* value.
#
# The same lines in code. A **tape** writes down each operation while it is computed; `mb.parameter` makes a value whose
# derivative will be asked for. (v₂, v₄, … are places on the tape; weights and numbers take one too.)

# %%
w, b = mb.parameter([0.5], "w"), mb.parameter([-1.0], "b")
x, y = 2.0, 1.0
with mb.Tape() as tape:
    h = mb.tanh(w * x + b)
    e = h - y
    L = mb.sum(e * e)
print(tape)

# %%
dw, db = tape.gradient(L, [w, b])
print("∂L/∂w =", dw, " ∂L/∂b =", db)
assert dw.item() == -4 and db.item() == -2

# %% [markdown]
# **4. A value that is used twice** reaches the loss in two ways, and both count: its adjoint is the *sum* of what
# arrives. In e·e above, e is used twice, and the tape adds −1 and −1. That sum is the one rule to remember, since a
# recurrent network uses the same weight at every step.
#
# Here h ← w·h, four times, from h₀ = 1, with L = h₄ = w⁴. On paper dL/dw = 4w³: four uses, four terms, each w³. The
# tape can give each use its own term. (A *cell* is what one step computes, `mb.unroll` runs it over all inputs.)


# %%
class Times(mb.Cell):
    """h_t = w·h_{t−1} + x_t."""

    def __init__(self, w):
        self.w = mb.parameter([w], "w")

    def zero_state(self, batch):
        return mb.zeros((batch, 1))

    def step(self, x, h):
        h = self.w * h + x
        return h, h  # output, next state


cell, start = Times(0.5), mb.ones((1, 1))
inputs = np.zeros((4, 1, 1))
with mb.Tape() as tape:
    outputs, h = mb.unroll(cell, inputs, start)
    L = mb.sum(h)
by_step = tape.gradient_by_step(L, cell)
print("by step:", {step: round(g["w"].item(), 4) for step, g in by_step.items()})
print(f"sum: {tape.gradient(L, cell.w).item():.4f}  on paper: 4w³ = {4 * 0.5**3:.4f}")
np.testing.assert_allclose(tape.gradient(L, cell.w), [4 * 0.5**3], rtol=1e-6)  # float32

# %% [markdown]
# Let the loss be h₁ + h₂ + h₃ + h₄. Now there is a term for each pair: the loss of step t, the use of the weight at
# step s. A later loss has more terms, one for each time that the weight was used before. (What the colours weigh, and
# what happens when a column of them is cut off, is lesson 2.)

# %%
c = mb.contributions(cell, inputs, None, lambda outputs, _: mb.sum(outputs), state=start)
figure, ax = plt.subplots(figsize=(7, 6), layout="constrained")
mb.plots.contributions(c, ax=ax)
print("terms of each loss:", np.count_nonzero(c.share, axis=1))

# %% [markdown]
# **Is it right?** Two checks that know nothing of the tape. The difference quotient, and the complex step (Squire and
# Trapp 1998): f(w + iε) = f(w) + iε·f'(w) + …, so the imaginary part is the derivative, and nothing is subtracted.

# %%


def f(w):
    return np.sum((np.tanh(w * 2 - 1) - 1) ** 2)


print("difference:", (f(0.5 + 1e-6) - f(0.5 - 1e-6)) / 2e-6, " complex step:", f(0.5 + 1e-30j).imag / 1e-30)

# %% [markdown]
# **What broke?** The tape knows only what was computed by its operations. NumPy on the value is a constant for it:

# %%
with mb.Tape() as tape:
    h = mb.tanh(w * x) + np.tanh(w.value * x)
    L = mb.sum(h)
print("half of it:", tape.gradient(L, w), " right:", 2 * (1 - np.tanh(1.0) ** 2) * x)

# %% [markdown]
# ## Exercises
#
# **1.1** Your own x, w, b, y. What is ∂L/∂w for L = (tanh(w·x + b) − y)²? Use NumPy as a pocket calculator, not a tape.
# If you type a number, give five digits.

# %%
n = check.numbers("1.1")
print("x =", n.x, " w =", n.w, " b =", n.b, " y =", n.y)


# %% exercise="1.1"
def dL_dw():
    """∂L/∂w, one number."""
    raise NotImplementedError("Exercise 1.1: the product of the derivatives of all steps")


# %% solution="1.1"
def dL_dw():
    """∂L/∂w, one number."""
    h = np.tanh(n.w * n.x + n.b)
    return 2 * (h - n.y) * (1 - h**2) * n.x


# %%
check.exercise("1.1", dL_dw)

# %% [markdown]
# **1.2** Write a backward pass: y = a·tanh(a), elementwise. `g` is ∂L/∂y. Both factors depend on a.


# %% exercise="1.2"
def backward(a, g):
    """∂L/∂a, in the shape of a."""
    raise NotImplementedError("Exercise 1.2: two ways from a to y, so two terms")


# %% solution="1.2"
def backward(a, g):
    """∂L/∂a, in the shape of a."""
    h = np.tanh(a)
    return g * (h + a * (1 - h**2))


# %%
check.exercise("1.2", backward)

# %% [markdown]
# **1.3** Find the bug. A tape in five lines: each record is (name of the output, [(name of an input, ∂output/∂input),
# …]). This sweep is right for a chain, and wrong as soon as a value is used twice. Mend it.


# %%
def broken(records, loss):
    adjoint = {loss: 1.0}
    for output, inputs in reversed(records):
        for name, derivative in inputs:
            adjoint[name] = derivative * adjoint.get(output, 0.0)
    return adjoint


# %% exercise="1.3"
def sweep(records, loss):
    """{name: ∂loss/∂name} for every value that the loss depends on."""
    raise NotImplementedError("Exercise 1.3: what is to happen where a name is there already?")


# %% solution="1.3"
def sweep(records, loss):
    """{name: ∂loss/∂name} for every value that the loss depends on."""
    adjoint = {loss: 1.0}
    for output, inputs in reversed(records):
        for name, derivative in inputs:
            adjoint[name] = adjoint.get(name, 0.0) + derivative * adjoint.get(output, 0.0)
    return adjoint


# %%
check.exercise("1.3", sweep)

# %% [markdown]
# ## Summary
#
# - Each operation knows its own derivative. The chain rule is one loop over the operations in reverse.
# - What arrives at a value that is used several times is added up. A weight that is used at T steps has T terms.
# - `minibptt/sweep.py` is that loop, `minibptt/ops.py` holds each operation beside its derivative.
#
# PyTorch calls the tape the autograd graph, `requires_grad=True` makes a parameter, and `loss.backward()` is the loop,
# which adds into `.grad`. JAX's `jax.grad` does the same to a function.
#
# *History.* Linnainmaa wrote this reverse accumulation down in 1970 (master's thesis, Helsinki; "Taylor expansion of
# the accumulated rounding error", BIT 16, 1976); Wengert's list of steps is from 1964 (Communications of the ACM 7).
