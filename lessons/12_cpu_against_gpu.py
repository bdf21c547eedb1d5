# %% [markdown] minutes=50 gpu=true
# # 12. CPU against GPU: the same numbers, and an honest clock
#
# **Question.** A GPU may multiply fifty times as fast as a CPU. You move a small LSTM to it, and training gets
# *slower*. Why? From which size on is it faster, and how do you know?
#
# You need lessons 4 and 5. A GPU is welcome and not needed.

# %%
import time

import matplotlib.pyplot as plt
import numpy as np

import minibptt as mb
from minibptt import standin
from minibptt.benchmark import sweep
from minibptt.lessons import check
from minibptt.timings import Fit

me = check.seed("your name")  # the exercises with numbers of your own take them from it
device = "cupy" if "cupy" in mb.available_backends() else standin.xp

# %% [markdown]
# Where there is no GPU, `standin.xp` stands in: NumPy behind CuPy's rules. It counts what is asked of it.
#
# ## Move everything
#
# An operation runs where its arrays are. So the weights, the optimiser, the data *and the state* move, once:

# %%
T, B, H = 20, 16, 32
x = np.random.default_rng(0).standard_normal((T, B, H)).astype(np.float32)
model = mb.LSTM(H, H, rng=0)
_, state = model(x)
more, _ = model(x, state)
model.to(device)  # an optimiser moves with optimiser.to(device)
try:
    model(mb.to_backend(x, device), state)
except mb.BackendError as error:
    print(error)
there, _ = model(mb.to_backend(x, device), mb.to_backend(state, device))
print("largest difference from the CPU:", np.abs(mb.to_numpy(there) - mb.to_numpy(more)).max())

# %% [markdown]
# ## Count launches
#
# Each operation on a device is a *launch*: the program asks, microseconds go by, and a *kernel* starts on the device.
#
# **Predict before you run on.** An LSTM's step forward: a product h_{t−1} @ W_h, four gates, c_t, tanh, h_t. How many
# launches with the step back, one an operation? And if what is elementwise is *fused* into one kernel, as it is here?


# %%
def training_step(model, x):
    with mb.Tape() as tape:
        outputs, _ = model(x)
        loss = mb.mse(outputs, outputs.value * 0)  # the mean of their squares
    return tape.gradient(loss, model)


counting, x_counting = mb.LSTM(H, H, rng=0).to(standin.xp), mb.to_backend(x, standin.xp)


def launches(steps):
    return standin.counted(lambda: training_step(counting, x_counting[:steps]))[1]["launches"]


print("fused:  ", launches(T), "for 20 steps,", launches(T) - launches(T - 1), "for the last one")
with mb.unfused():
    print("unfused:", launches(T), "for 20 steps,", launches(T) - launches(T - 1), "for the last one")

# %% [markdown]
# Four: a product and a kernel, forward and back. Unfused 10 and 9. x @ W_x and dW are made once, for all steps.
#
# ## The crossover
#
# **1.** A product of (B, n) and (n, m) takes 2·B·n·m operations. A weight matrix is in three: forward, back to the
# inputs, and back to the weights. So 6·B for each of its numbers and each step. An LSTM with D = H has 4H·(D + H) =
# 8H² numbers: 48·B·H² operations a step. A GFLOP is 10⁹ of them.
#
# **2.** The simplest model: time = launches · a + operations · b. NumPy has no launches, but its calls cost something
# too. Training steps are *measured*, and a and b fitted to them:

# %%
sizes = (16, 32, 64, 128, 256)
result = sweep(["lstm"], sizes, [B], [T], seconds=0.05)
print(result.table())

# %% [markdown]
# **Predict before you run on.** Assume a GPU (dotted): 8 µs a fused launch, 5000 GFLOP/s. At which H do they cross?

# %%
assumed = Fit(launch=8e-6, flop=1 / 5e12, error=0.0)
figure, ax = plt.subplots(figsize=(11, 6), layout="constrained")
mb.plots.benchmark(result, ax=ax)
ax.plot(sizes, [assumed.seconds(launches(T), 48 * T * B * H**2) * 1e3 for H in sizes], "k:", label="a GPU, assumed")
_ = ax.legend(fontsize=12, frameon=False, loc="lower right")

# %% [markdown]
# Below the crossing the GPU is *bound by launches*: almost as slow at H = 16 as at H = 128.
#
# ## An honest clock
#
# A launch returns at once; the device works behind the program's back. On a CPU asking is doing. Run it where you are:

# %%
for name in mb.available_backends():
    twin, data = mb.LSTM(H, H, rng=0).to(name), mb.to_backend(x, name)
    training_step(twin, data)  # the first call compiles kernels, and does not count
    mb.synchronize(data)
    start = time.perf_counter()
    training_step(twin, data)
    asked = time.perf_counter() - start
    mb.synchronize(data)
    print(f"{name}: {asked * 1e3:.2f} ms to ask, {(time.perf_counter() - start) * 1e3:.2f} ms to do")

# %% [markdown]
# `standin.Queue` has a clock of its own, so that everybody sees the same: 5 µs to ask, 300 µs to do.
#
# **What broke?** Ten launches, 3 ms of work, on a device that was busy. What does each wait mend?


# %%
def measured(wait_first, wait_last):
    queue = standin.Queue(launch=5e-6)
    queue.launch(6e-3)  # what it is busy with
    if wait_first:
        queue.synchronize()
    start = queue.clock()
    for _ in range(10):
        queue.launch(300e-6)
    if wait_last:
        queue.synchronize()
    return f"{(queue.clock() - start) * 1e3:.2f} ms"


print("no wait:", measured(False, False), "  last:", measured(False, True), "  first and last:", measured(True, True))

# %% [markdown]
# ## float32 leaves float64
#
# A GPU adds in another order, so last bits differ. Does that stay small? float32 against float64 shows it on any CPU.
# By lesson 4 a difference grows from step to step as the product of Jacobians does:

# %%
runs = {}
for gain in (0.5, 1.0, 3.0):
    rnn, rng = mb.RNN(4, 64, rng=0), np.random.default_rng(0)
    mb.assign(rnn.cells[0].W_h, (gain / 8 * rng.standard_normal((64, 64))).astype(np.float32))
    runs[f"gain {gain}"] = mb.drift(rnn, 0.3 * rng.standard_normal((150, 1, 4)).astype(np.float32))
_ = mb.plots.drift(runs, ax=plt.subplots(figsize=(11, 6), layout="constrained")[1])

# %% [markdown]
# At gain 3 the network is chaotic: after 60 steps no digit is the same. Compare devices over few steps.
#
# ## A pool keeps what was freed
#
# **Predict before you run on.** 8 MiB are made and deleted. What does `nvidia-smi` say after that?

# %%
before = mb.device_memory(device)
mb.to_backend(np.zeros(2**20), device)  # nobody keeps it
print({what: (mb.device_memory(device)[what] - before[what]) / 2**20 for what in before}, "MiB more")

# %% [markdown]
# *Reserved* is held by the pool (`nvidia-smi` shows it), *live* in use. A freed block serves again, not a larger array.
#
# ## Exercises
#
# **12.1** Asking costs so many µs a step, whatever H is; the rest is 48·B·H² operations. At which H are both as fast?

# %%
n = check.numbers("12.1")
print("B =", n.B, "  µs a step: CPU", n.cpu_us, "GPU", n.gpu_us, "  GFLOP/s: CPU", n.cpu_gflops, "GPU", n.gpu_gflops)


# %% exercise="12.1"
def crossover():
    """The H, not rounded, where CPU and GPU take the same time for a step."""
    raise NotImplementedError("Exercise 12.1: set both times equal, in seconds")


# %% solution="12.1"
def crossover():
    """The H, not rounded, where CPU and GPU take the same time for a step."""
    asking = (n.gpu_us - n.cpu_us) * 1e-6
    doing = 48 * n.B * (1 / n.cpu_gflops - 1 / n.gpu_gflops) * 1e-9
    return (asking / doing) ** 0.5


# %%
check.exercise("12.1", crossover)

# %% [markdown]
# **12.2** Write an honest clock. The device may be busy; the first call of `work` compiles, which is not to count.


# %% exercise="12.2"
def timed(work, wait, clock):
    """Seconds that one work() takes. wait() returns when the device is done, clock() is the time now."""
    raise NotImplementedError("Exercise 12.2: what must be finished before the clock starts, and before it stops?")


# %% solution="12.2"
def timed(work, wait, clock):
    """Seconds that one work() takes. wait() returns when the device is done, clock() is the time now."""
    work()
    wait()
    start = clock()
    work()
    wait()
    return clock() - start


# %%
check.exercise("12.2", timed)

# %% [markdown]
# **12.3** Find the bugs. The model learns to echo its last input. The numbers are right; three lines leave the device.


# %%
def broken(model, optimiser, x, state):
    state = mb.to_backend(mb.to_backend(state, "numpy"), standin.xp)  # cut: what comes back has no past
    y = mb.to_backend(mb.to_numpy(x)[:-1], standin.xp)
    with mb.Tape() as tape:
        outputs, state = model(x, state)
        loss = mb.mse(outputs[1:], y)
    optimiser.step(tape.gradient(loss, model))
    return loss.item(), state


optimiser, (_, state) = mb.SGD(counting, lr=0.1), counting(x_counting)
print(standin.counted(lambda: broken(counting, optimiser, x_counting, state))[1])


# %% exercise="12.3"
def mended(model, optimiser, x, state):
    """(the loss, the state after it): the same numbers, with no copy."""
    raise NotImplementedError("Exercise 12.3: which three lines go to the host?")


# %% solution="12.3"
def mended(model, optimiser, x, state):
    """(the loss, the state after it): the same numbers, with no copy."""
    with mb.Tape() as tape:
        outputs, state = model(x, mb.cut(state))
        loss = mb.mse(outputs[1:], x[:-1])
    optimiser.step(tape.gradient(loss, model))
    return loss, state


# %%
check.exercise("12.3", mended)

# %% [markdown]
# **12.4** A pool is empty. A program makes a, then b; deletes a; makes c, as large as a; deletes b; makes d.

# %%
p = check.numbers("12.4")
print(f"a and c: {p.a} MiB, b: {p.b} MiB, d: {p.d} MiB")


# %% exercise="12.4"
def pool():
    """(reserved, live) in MiB after that."""
    raise NotImplementedError("Exercise 12.4: which blocks does the pool hold, and who uses them?")


# %% solution="12.4"
def pool():
    """(reserved, live) in MiB after that."""
    return p.a + p.b + p.d, p.a + p.d


# %%
check.exercise("12.4", pool)

# %% [markdown]
# ## Summary
#
# - Small steps are bound by launches, large ones by arithmetic. Fuse, or make the work larger: B and H.
# - Warm up, wait, start the clock, work, wait, stop it.
# - Weights, optimiser, data and state move once. A number printed at each step is a copy and a wait at each step.
#
# PyTorch: `torch.cuda.synchronize()`, `memory_reserved`, `memory_allocated`; `loss.item()` waits; cuDNN fuses.
#
# *History.* Chellapilla, Puri and Simard trained convolutional networks on GPUs in 2006; Appleyard, Kočiský and Blunsom
# ("Optimizing performance of recurrent neural networks on GPUs", 2016) fused an LSTM's steps.
