"""The explicit passes on a device: for each step one matrix product and one kernel. Read after kernels.py.

The equations are those of the cells' files, and what is saved has the same layout, so that either way back can follow
either way forward. Nothing here waits for the device or copies to or from it.
"""

from __future__ import annotations

from typing import Any

from ..backend import Array
from .buffers import empty
from .explicit import Pass, Saved, backwards, products
from .kernels import (
    GRU_BACKWARD,
    GRU_BEFORE_BACKWARD,
    GRU_BEFORE_FORWARD,
    GRU_FORWARD,
    LSTM_BACKWARD,
    LSTM_FORWARD,
    RNN_BACKWARD,
    RNN_FORWARD,
)


def rnn_forward(cell: Any, s: Saved) -> Saved:
    """Fills the states of s."""
    xp, (h,), kernel = s.xp, s.states, RNN_FORWARD[cell.nonlinearity]
    h_prev = h[0]
    for t, (a, h_t) in enumerate(zip(products(xp, s.x, s.W_x, cell.b.value), h[1:])):
        if s.irregular:
            (h_prev,) = before = s.before(t)
        xp.dot(h_prev, s.W_h, out=h_t)
        kernel(xp, cell.H, a, h_t)
        if s.irregular:
            s.after(t, before)
        h_prev = h_t
    return s


def rnn_backward(cell: Any, p: Pass, dy: Array | None) -> Array:
    """da (T, B, H); fills the adjoints of p."""
    s, xp, (h,), (dh,) = p.saved, p.saved.xp, p.saved.states, p.adjoints
    kernel, W_hT = RNN_BACKWARD[cell.nonlinearity], s.W_h.T
    da = empty(xp, h[1:].shape, h.dtype)
    for t, dh_t, dh_prev, da_t, h_t, dy_t in backwards(s.T, dh[1:], dh[:-1], da, h[1:], _seen(p, dy)):
        kernel(xp, cell.H, dy_t, h_t, dh_t, da_t)
        p.hide(t, da_t)
        xp.dot(da_t, W_hT, out=dh_prev)
        if p.irregular:
            p.between(t)
    return da


def lstm_forward(cell: Any, s: Saved) -> Saved:
    """Fills the states, A and tanh_c of s."""
    xp, (h, c) = s.xp, s.states
    s.A, s.tanh_c = products(xp, s.x, s.W_x, cell.b.value), empty(xp, (s.T, s.B, cell.H), s.x.dtype)
    q, h_prev, c_prev = xp.empty_like(s.A[0]), h[0], c[0]
    for t, (A_t, tanh_c, c_t, h_t) in enumerate(zip(s.A, s.tanh_c, c[1:], h[1:])):
        if s.irregular:
            h_prev, c_prev = before = s.before(t)
        xp.dot(h_prev, s.W_h, out=q)
        LSTM_FORWARD(xp, cell.H, q, c_prev, A_t, tanh_c, c_t, h_t)
        if s.irregular:
            s.after(t, before)
        h_prev, c_prev = h_t, c_t
    return s


def lstm_backward(cell: Any, p: Pass, dy: Array | None) -> Array:
    """dz (T, B, 4H); fills the adjoints of p."""
    s, xp, (dh, dc) = p.saved, p.saved.xp, p.adjoints
    dz, W_hT = empty(xp, s.A.shape, s.A.dtype), s.W_h.T
    steps = backwards(
        s.T, dh[1:], dh[:-1], dc[1:], dc[:-1], dz, s.A, s.tanh_c, s.all_before(1), _seen(p, dy)
    )  # fmt: skip
    for t, dh_t, dh_prev, dc_t, dc_prev, dz_t, A_t, tanh_c, c_prev, dy_t in steps:
        kept = dc_t.copy() if s.padded_at(t) else None
        LSTM_BACKWARD(xp, cell.H, dy_t, A_t, tanh_c, c_prev, dh_t, dc_t, dz_t, dc_prev)
        p.hide(t, dz_t)
        if kept is not None:  # a padded step has no derivative
            dc_t[...] = xp.where(s.real[t], dc_t, kept)
        xp.dot(dz_t, W_hT, out=dh_prev)
        if p.irregular:
            p.between(t)
    return dz


def gru_forward(cell: Any, s: Saved) -> Saved:
    """Fills the states, A, n and, for the reset after the product, u of s."""
    xp, H, (h,), b = s.xp, cell.H, s.states, cell.b.value
    s.A = products(xp, s.x, xp.ascontiguousarray(s.W_x[:, : 2 * H]), b[: 2 * H])
    s.n = products(xp, s.x, xp.ascontiguousarray(s.W_x[:, 2 * H :]), b[2 * H :])
    after = cell.reset == "after"
    u_ = s.u = empty(xp, s.n.shape, h.dtype)
    W_rz, W_n = xp.ascontiguousarray(s.W_h[:, : 2 * H]), xp.ascontiguousarray(s.W_h[:, 2 * H :])
    q, rh, h_prev = xp.empty((s.B, (3 if after else 2) * H), dtype=h.dtype), xp.empty_like(h[0]), h[0]
    for t, (A_t, n, u, h_t) in enumerate(zip(s.A, s.n, u_, h[1:])):
        if s.irregular:
            (h_prev,) = before = s.before(t)
        if after:
            xp.dot(h_prev, s.W_h, out=q)
            GRU_FORWARD(xp, H, q, h_prev, cell.b_hn.value, A_t, n, u, h_t)
        else:
            of_rz, of_n = GRU_BEFORE_FORWARD
            xp.dot(h_prev, W_rz, out=q)
            of_rz(xp, H, q, h_prev, A_t, rh)
            xp.dot(rh, W_n, out=u)
            of_n(xp, H, u, A_t, h_prev, n, h_t)
        if s.irregular:
            s.after(t, before)
        h_prev = h_t
    return s


def gru_backward(cell: Any, p: Pass, dy: Array | None, h_prev_: Array) -> tuple[Array, Array]:
    """[da_r, da_z, du] (T, B, 3H), or [da_r, da_z] for the reset before the product, and da_n (T, B, H).

    Fills the adjoints of p. What goes past the product, dh · z, is added by the next kernel, or at once where something
    happens between two steps.
    """
    s, xp, H, (dh,) = p.saved, p.saved.xp, cell.H, p.adjoints
    after = cell.reset == "after"
    d, da_n_ = empty(xp, (s.T, s.B, (3 if after else 2) * H), dh.dtype), empty(xp, s.n.shape, dh.dtype)
    zero, part, dm = xp.zeros_like(dh[0]), xp.zeros_like(dh[0]), xp.empty_like(dh[0])
    carry = zero if p.irregular else part
    W_hT = s.W_h.T
    if not after:
        W_hT, W_nT = xp.ascontiguousarray(s.W_h[:, : 2 * H].T), xp.ascontiguousarray(s.W_h[:, 2 * H :].T)
    u_ = s.u if after else None
    steps = backwards(s.T, dh[1:], dh[:-1], d, da_n_, s.A, s.n, u_, h_prev_, _seen(p, dy))
    for t, dh_t, dh_prev, d_t, da_n, A_t, n, u, h_prev, dy_t in steps:
        if after:
            GRU_BACKWARD(xp, H, dy_t, carry, A_t, n, u, h_prev, dh_t, d_t, da_n, part)
            p.hide(t, d_t, da_n)
        else:
            of_n, of_r = GRU_BEFORE_BACKWARD
            of_n(xp, H, dy_t, carry, A_t, n, h_prev, dh_t, d_t, da_n)
            p.hide(t, da_n)
            xp.dot(da_n, W_nT, out=dm)
            of_r(xp, H, dm, A_t, h_prev, dh_t, d_t, part)
            p.hide(t, d_t)
        xp.dot(d_t, W_hT, out=dh_prev)
        if p.irregular:
            xp.add(dh_prev, part, out=dh_prev)
            p.between(t)
    if not p.irregular:
        xp.add(dh[0], part, out=dh[0])
    return d, da_n_


def _seen(p: Pass, dy: Array | None) -> Array:
    """dy (T, B, H), contiguous; zeros where no output is used."""
    like = p.adjoints[0][1:]
    return p.saved.xp.zeros_like(like) if dy is None else p.saved.xp.ascontiguousarray(dy, dtype=like.dtype)
