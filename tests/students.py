"""Forward and backward passes as people write them, right or with one fault, in several styles, for test_check_cell."""

import numpy as np

GATES = {"rnn": 1, "lstm": 4, "gru": 3, "gru-before": 3}


def σ(z):
    return 1 / (1 + np.exp(-z))


def rnn_step(x, h, c, W_x, W_h, b, bug):
    a = x @ W_x + h @ W_h + b
    h_t = a if bug == "tanh missing" else np.tanh(a)
    return h_t, None, (x, h, a, h_t)


def rnn_back(cache, dh, dc, W_x, W_h, bug):
    x, h, a, h_t = cache
    slope = {"no derivative": 1, "tanh twice": 1 - np.tanh(h_t) ** 2, "at z": 1 - a**2}.get(bug, 1 - h_t**2)
    da = dh * slope * (-1 if bug == "sign" else 1)
    left = h_t if bug == "h_t in dW_h" else h
    dh_prev = da @ W_h if bug == "W_h not transposed" else da @ W_h.T
    return da @ W_x.T, dh_prev, None, x.T @ da, left.T @ da, da.sum(0), None


def lstm_step(x, h, c, W_x, W_h, b, bug):
    H = h.shape[1]
    z = x @ W_x + h @ W_h + b
    z_i, z_f, z_g, z_o = (z[:, k * H : (k + 1) * H] for k in range(4))
    if bug == "order ifog":
        z_g, z_o = z_o, z_g
    i, f, g, o = σ(z_i), σ(z_f), np.tanh(z_g), σ(z_o)
    c_t = f * c + i * g
    h_t = o * (c_t if bug == "tanh missing" else np.tanh(c_t))
    return h_t, c_t, (x, h, c, i, f, g, o, c_t, h_t, z_f)


def lstm_back(cache, dh, dc, W_x, W_h, bug):
    x, h, c, i, f, g, o, c_t, h_t, z_f = cache
    t = np.tanh(c_t)
    slope = {"tanh twice": 1 - np.tanh(t) ** 2, "at c": 1 - c_t**2}.get(bug, 1 - t**2)
    dc = (0 if bug == "dc lost" else dc) + dh * o * slope
    df_slope = {"no derivative": 1, "sigma of f": σ(f), "at z": z_f * (1 - z_f)}.get(bug, f * (1 - f))
    di = dc * g * i * (1 - i)
    df = dc * (c_t if bug == "c_t" else c) * df_slope
    dg = dc * i * (1 if bug == "no derivative of g" else 1 - g**2)
    do = (
        (dc if bug == "dc in do" else dh)
        * t
        * (1 if bug == "no derivative of o" else o * (1 - o))
        * (-1 if bug == "sign" else 1)
    )
    dz = np.concatenate([di, df, do, dg] if bug == "back order ifog" else [di, df, dg, do], axis=1)
    left = h_t if bug == "h_t in dW_h" else h
    back = W_h.reshape(W_h.shape[::-1]) if bug == "W_h not transposed" else W_h.T
    dc_prev = dc if bug == "dc without f" else dc * f
    return dz @ W_x.T, dz @ back, dc_prev, x.T @ dz, left.T @ dz, dz.sum(0), None


def gru_step(x, h, c, W_x, W_h, b, bug, b_hn=None):
    H = h.shape[1]
    a = x @ W_x + b
    u = h @ W_h
    if bug == "order zrn":
        a, u = (np.concatenate([v[:, H : 2 * H], v[:, :H], v[:, 2 * H :]], axis=1) for v in (a, u))
    r, z = σ(a[:, :H] + u[:, :H]), σ(a[:, H : 2 * H] + u[:, H : 2 * H])
    if b_hn is None or bug == "reset before":
        u_n = (r * h) @ W_h[:, 2 * H :] + (0 if b_hn is None else b_hn)
        n = np.tanh(a[:, 2 * H :] + u_n)
    else:
        u_n = u[:, 2 * H :] + b_hn
        n = np.tanh(a[:, 2 * H :] + r * u_n)
    h_t = z * n + (1 - z) * h if bug == "z swapped" else (1 - z) * n + z * h
    return h_t, None, (x, h, r, z, n, u_n, h_t, b_hn is None)


def gru_back(cache, dh, dc, W_x, W_h, bug):
    x, h, r, z, n, u_n, h_t, before = cache
    H = h.shape[1]
    W_r, W_z, W_n = W_h[:, :H], W_h[:, H : 2 * H], W_h[:, 2 * H :]
    da_n = dh * (1 - z) * (1 - np.tanh(n) ** 2 if bug == "tanh twice" else 1 - n**2)
    da_z = dh * ((h_t if bug == "h_t in da_z" else h) - n) * (1 if bug == "no derivative" else z * (1 - z))
    da_z = da_z * (-1 if bug == "sign" else 1)
    dh_prev = 0 if bug == "direct path lost" else dh * z
    if before:
        dm = da_n @ W_n.T
        da_r, du = dm * h * r * (1 - r), da_n
        dh_prev = dh_prev + dm * r
        left_n = h if bug == "r missing" else r * h
    else:
        da_r, du = da_n * u_n * r * (1 - r), da_n * (1 if bug == "r missing" else r)
        dh_prev = dh_prev + du @ W_n.T
        left_n = h
    left = h_t if bug == "h_t in dW_h" else h
    left_n = h_t if bug == "h_t in dW_h" and not before else left_n * (h_t / h if bug == "h_t in dW_h" else 1)
    dh_prev = dh_prev + da_r @ W_r.T + da_z @ W_z.T
    da = np.concatenate([da_r, da_z, da_n], axis=1)
    dW_h = np.concatenate([left.T @ da_r, left.T @ da_z, left_n.T @ du], axis=1)
    return da @ W_x.T, dh_prev, None, x.T @ da, dW_h, da.sum(0), du.sum(0)


STEPS = {
    "rnn": (rnn_step, rnn_back),
    "lstm": (lstm_step, lstm_back),
    "gru": (gru_step, gru_back),
    "gru-before": (gru_step, gru_back),
}


def step_pair(like, bug=None):
    """One step, in the contract of check_step."""
    one, back = STEPS[like]
    if like == "lstm":

        def forward(x, h_prev, c_prev, W_x, W_h, b):
            h, c, cache = one(x, h_prev, c_prev, W_x, W_h, b, bug)
            return h, c, (cache, W_x, W_h)

        def backward(dh, dc, cache):
            return back(cache[0], dh, dc, *cache[1:], bug)[:6]
    elif like == "gru":

        def forward(x, h_prev, W_x, W_h, b, b_hn):
            h, _, cache = one(x, h_prev, None, W_x, W_h, b, bug, b_hn)
            return h, (cache, W_x, W_h)

        def backward(dh, cache):
            dx, dh_prev, _, *weights = back(cache[0], dh, None, *cache[1:], bug)
            return dx, dh_prev, *weights
    else:

        def forward(x, h_prev, W_x, W_h, b):
            h, _, cache = one(x, h_prev, None, W_x, W_h, b, bug)
            return h, (cache, W_x, W_h)

        def backward(dh, cache):
            dx, dh_prev, _, *weights = back(cache[0], dh, None, *cache[1:], bug)
            return dx, dh_prev, *weights[:3]

    return forward, backward


def pair(like, bug=None, style="loop", c0=False, only=None):
    """A whole sequence, in the contract of check_cell. only: the step (from 1) that has the bug, else all have it."""
    one, back = STEPS[like]

    def here(t):
        return bug if only in (None, t + 1) else None

    def run(x, h0, c, W_x, W_h, b, *b_hn):
        caches, h = [], h0
        if style == "loop":
            out = np.zeros((len(x), *h0.shape), dtype=x.dtype)
            for t in range(len(x)):
                h, c, cache = one(x[t], h, c, W_x, W_h, b, here(t), *b_hn)
                out[t] = h
                caches.append(cache)
        else:
            out = []
            for t, x_t in enumerate(x):
                h, c, cache = one(x_t, h, c, W_x, W_h, b, here(t), *b_hn)
                out.append(h)
                caches.append(cache)
            out = np.stack(out) if style == "vectorised" else out
        return out, (caches, W_x, W_h, h0)

    def backward(dout, cache):
        caches, W_x, W_h, h0 = cache
        T, B = dout.shape[:2]
        parts, dx = [], [None] * T
        dh, dc = np.zeros_like(h0), np.zeros_like(h0)
        d = dh
        for t in range(T) if here(0) == "forward loop" else reversed(range(T)):
            bug = here(t)
            if bug == "only the last step" and t < T - 1:
                dx[t], dh = np.zeros_like(dx[-1]), np.zeros_like(h0)
                continue
            own = np.zeros_like(h0) if bug == "last dout" and t < T - 1 else dout[t]
            d = own + (0 if bug in ("dh lost", "no carry") else dh)
            dc = np.zeros_like(dc) if bug == "no carry" else dc
            before = dh
            dx[t], dh, dc, *weights = back(caches[t], d, dc, W_x, W_h, bug)
            dh = dh + before if bug == "dh added up" else dh
            if bug == "db of all":
                weights[2] = np.full_like(weights[2], weights[2].sum())
            if bug == "db mean":
                weights[2:] = [None if w is None else w / B for w in weights[2:]]
            parts.append([w for w in weights if w is not None])
        if style == "vectorised":
            totals = [np.einsum("t...->...", np.stack(p)) for p in zip(*parts)]
        elif style == "list":
            totals = [sum(p) for p in zip(*parts)]
        else:
            totals = [np.zeros_like(p) for p in parts[0]]
            for part in parts:
                for total, p in zip(totals, part):
                    total += p
        if bug == "overwritten":
            totals[1] = parts[-1][1]
        if bug == "all overwritten":
            totals = parts[-1]
        dx = dx if style == "list" else np.stack(dx)
        dx = dx[::-1] if bug == "dx reversed" else dx
        dh = d if bug == "dh_1 for dh0" else dh
        dh = np.zeros_like(dh) if bug == "only the last step" else dh
        totals = [-w for w in totals] if bug == "weights negative" else totals
        if like in ("rnn", "gru-before"):
            totals = totals[:3]
        return (dx, dh, *([dc] if c0 else []), *totals)

    if like == "lstm" and c0:
        return lambda x, h0, c0, W_x, W_h, b: run(x, h0, c0, W_x, W_h, b), backward
    if like == "gru":
        return lambda x, h0, W_x, W_h, b, b_hn: run(x, h0, None, W_x, W_h, b, b_hn), backward
    return lambda x, h0, W_x, W_h, b: run(x, h0, np.zeros_like(h0) if like == "lstm" else None, W_x, W_h, b), backward
