"""What the page of explore.py stores of the pairs: enough to work out every truncated gradient without the model.

At a step s a parameter's gradient in the pair (t, s) is X_sᵀ @ D_ts, and X is the same for all losses (cells/many.py),
so with few rows D and X are small where the C[t, s] are large. g = Σ w·C follows from them for any weights w: first
Σ_t w[t, s]·D_ts, then the product with X_s. With many rows and a small model the C[t, s] themselves are smaller. What
the variance of random cuts needs is one number for each count of boundaries in common. Read after contributions.py.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from .apart import Apart
from .backend import to_numpy
from .contributions import Contributions
from .parts import Part, parts_of, take
from .together import Together

ALL = "all parameters"
Stored = dict[str, Any]


def store(c: Contributions, most_bytes: int) -> Stored:
    """One moment of training for the page: what fits into most_bytes, of the levels "full", "all" and "shares".

    "full": every part can be worked out. "all": the whole gradient, and of each part the shares. "shares": no more than
    these. "banks": [{"B", "width", "pairs": indices t(t + 1)/2 + s or None for all, "D", "uses": [{"n", "X" or None for
    ones}]}], in units in which ‖G‖ = 1. "parts": {name: {"shares"}}, or, where they can be worked out, {name:
    {"pieces": [[bank, use, first column, last column]], "excess"}}.
    ValueError where the full gradient is zero or not finite, or where not even the shares fit.
    """
    if not np.isfinite(c.share).all():
        found = "zero" if c.full.norm() == 0 else "not finite"
        raise ValueError(f"there is nothing to explore: the full gradient is {found}. Take another batch or loss")
    parts = {ALL: {name: slice(None) for name in c.full}, **parts_of(c.pairs.model)}
    parts = {name: part for name, part in parts.items() if take(c.full, part).norm() > 0}
    size = len(parts) * _coded(c.T * (c.T + 1) // 2)
    if size > most_bytes:
        raise ValueError(
            f"the shares of T = {c.T} steps and {len(parts)} parts need {size / 1e6:.1f} MB in the page, and "
            f"{most_bytes / 1e6:.1f} MB are allowed. Take a shorter sequence"
        )
    base = {"loss": float(c.loss), "norm": c.full.norm()}
    pairs = c.pairs
    banks = _together(c, pairs, most_bytes) if isinstance(pairs, Together) else _apart(c, pairs, most_bytes)
    if banks is not None:
        known = {name: _known(c, banks, part) for name, part in parts.items()}
        return base | {"level": "full", "banks": [_code(bank, c.T) for bank in banks], "parts": known}
    shares = {name: {"shares": _shares(c, name)} for name in parts}
    bank = _factor(c, most_bytes - size)
    if bank is None:
        return base | {"level": "shares", "banks": [], "parts": shares}
    whole = {"pieces": [[0, 0, 0, bank["width"]]], "excess": artbp_excess(c.T, c.gram().K)}
    return base | {"level": "all", "banks": [_code(bank, c.T)], "parts": shares | {ALL: whole}}


def artbp_excess(T: int, K: np.ndarray, pairs: np.ndarray | None = None) -> list[float]:
    """a_n = Σ K[i, j] over the pairs i, j that have n boundaries in common, for n = 0 … T − 1, relative to ‖G‖².

    The variance of randomised truncation is Σ_n a_n·((1/(1 − p))^n − 1): see `gram.Gram.artbp_variance`. pairs: which
    ones the rows of K are, as t(t + 1)/2 + s (default: all).
    """
    t, s = np.tril_indices(T)
    if pairs is not None:
        t, s = t[pairs], s[pairs]
    sums = np.zeros(T)
    for i in range(len(K)):
        common = np.maximum(np.minimum(t[i], t) - np.maximum(s[i], s), 0)
        sums += np.bincount(common, weights=K[i], minlength=T)
    return (sums / sums.sum()).tolist()


# --- banks: D of a group of uses, or C of one parameter ------------------------------------------------------------


def _together(c: Contributions, pairs: Together, most: int) -> list[Stored] | None:
    """A bank for each group of uses that share their D, or, where that is smaller, one for each use with its C[t, s];
    None where they need more than `most` bytes."""
    T = c.T
    groups = [[(use.parameter, use.start, _dense(use.X, T, pairs.B)) for use in g.uses] for g in pairs.groups()]
    if len({(name, start) for uses in groups for name, start, _ in uses}) < sum(map(len, groups)):
        return None
    counts, widths = [0] * len(groups), [0] * len(groups)
    for _ in pairs.steps_back():
        for i, group in enumerate(pairs.groups()):
            counts[i] += len(group.D)
            widths[i] = group.D.shape[-1]
    heights = [sum(X.shape[-1] for *_, X in uses) for uses in groups]
    as_D = [pairs.B * (count * width + T * n) for count, width, n in zip(counts, widths, heights)]
    as_C = [count * width * n for count, width, n in zip(counts, widths, heights)]
    if _coded(sum(map(min, as_D, as_C))) > most:
        return None
    found: list[tuple[list[int], list[list[np.ndarray]]]] = [([], [[] for _ in uses]) for uses in groups]
    for s in pairs.steps_back():
        for i, (group, uses, (at, rows)) in enumerate(zip(pairs.groups(), groups, found)):
            D = to_numpy(group.D).astype(np.float64)
            at += [t * (t + 1) // 2 + s for t in range(s + len(D) - 1, s - 1, -1)]
            if as_D[i] <= as_C[i]:
                rows[0].append(D)
                continue
            for (*_, X), mine in zip(uses, rows):
                mine.append(np.einsum("bn,mbw->mwn", X[s], D, optimize=True).reshape(len(D), 1, -1))
    banks = []
    for i, (uses, (at, rows)) in enumerate(zip(groups, found)):
        if as_D[i] <= as_C[i]:
            banks.append(_bank(c, np.concatenate(rows[0]), np.array(at), uses))
            continue
        for (name, start, X), mine in zip(uses, rows):
            banks.append(_bank(c, np.concatenate(mine), np.array(at), [(name, start, None)], X.shape[-1]))
    return banks


def _apart(c: Contributions, pairs: Apart, most: int) -> list[Stored] | None:
    """A bank for each parameter with its C[t, s]; None where they need more than `most` bytes."""
    found: dict[str, tuple[list[int], list[np.ndarray]]] = {name: ([], []) for name in c.full}
    numbers = 0
    for t, s, C in pairs.pairs():
        for name, (at, rows) in found.items():
            row = np.moveaxis(np.atleast_1d(to_numpy(C[name])).astype(np.float64), -1, 0).reshape(1, -1)
            if row.any():
                at.append(t * (t + 1) // 2 + s)
                rows.append(row)
                numbers += row.size
        if _coded(numbers) > most:
            return None
    heights = {name: int(np.prod(np.shape(G)[:-1])) for name, G in c.full.items()}
    return [_bank(c, np.stack(rows), np.array(at), [(n, 0, None)], heights[n]) for n, (at, rows) in found.items() if at]


def _factor(c: Contributions, most: int) -> Stored | None:
    """Z with K = Z Zᵀ, K being the Gram matrix of all pairs; None where that needs more than `most` bytes."""
    P = c.T * (c.T + 1) // 2
    if _coded(P * min(P, sum(G.size for G in c.full.values()))) > most or c.gram_bytes() > 2**31:
        return None
    values, vectors = np.linalg.eigh(c.gram().K)
    Z = vectors[:, values > 0] * np.sqrt(values[values > 0])
    Z = Z[:, np.abs(Z).max(axis=0) > 1e-10 * c.full.norm()]
    return _bank(c, Z[:, None], np.arange(P), [("", 0, None)])


def _bank(c: Contributions, D: np.ndarray, at: np.ndarray, uses: list[Any], height: int = 1) -> Stored:
    """D (pairs, B, width) in the order of the pairs, without those that are zero; height: columns of D for each column
    of the parameter, where D is C itself, column after column."""
    order = np.argsort(at)
    order = order[D[order].any(axis=(1, 2))]
    D = D[order] / c.full.norm()
    return {"B": D.shape[1], "width": D.shape[2], "height": height, "pairs": at[order], "D": D, "uses": uses}


def _dense(X: Any, T: int, B: int) -> np.ndarray:
    """The X of a use as (T, B, N); of ids the columns that occur."""
    if X is None:
        return np.ones((T, B, 1))
    X = to_numpy(X)
    return (X[..., None] == np.unique(X)).astype(np.float64) if X.ndim == 2 else X.astype(np.float64)


# --- parts -----------------------------------------------------------------------------------------------------


def _known(c: Contributions, banks: list[Stored], part: Part) -> Stored:
    """Where a part stands in the banks, and its excesses of `artbp_excess`."""
    pieces = _pieces(banks, part, c)
    if any(X is not None for bank in banks for *_, X in bank["uses"]):
        return {"pieces": pieces, "excess": artbp_excess(c.T, c.pairs.gram(part, c.full))}
    reached = np.unique(np.concatenate([banks[b]["pairs"] for b, *_ in pieces]))
    K = np.zeros((len(reached), len(reached)))
    for b, _, first, last in pieces:
        D, here = banks[b]["D"][:, 0, first:last], np.searchsorted(reached, banks[b]["pairs"])
        K[np.ix_(here, here)] += D @ D.T
    return {"pieces": pieces, "excess": artbp_excess(c.T, K, reached)}


def _pieces(banks: list[Stored], part: Part, c: Contributions) -> list[list[int]]:
    """[bank, use, first column, last column] of everything that belongs to a part."""
    pieces = []
    for b, bank in enumerate(banks):
        for u, (name, start, _) in enumerate(bank["uses"]):
            if name in part and len(bank["D"]):
                columns = np.atleast_1d(c.full[name]).shape[-1]
                first, last, _ = part[name].indices(columns)
                first = max(0, first - start) * bank["height"]
                last = min(bank["width"], (last - start) * bank["height"])
                if first < last:
                    pieces.append([b, u, first, last])
    return pieces


def _shares(c: Contributions, name: str) -> str:
    share = c.share if name == ALL else c.shares_of[name]
    return _text(share[np.tril_indices(c.T)] / share.sum())


# --- as text ---------------------------------------------------------------------------------------------------


def _coded(numbers: int) -> int:
    """Bytes of so many float32 numbers in base64."""
    return numbers * 16 // 3


def _code(bank: Stored, T: int) -> Mapping[str, Any]:
    uses = []
    for *_, X in bank["uses"]:
        ones = X is None or (X.shape[-1] == 1 and (X == 1).all())
        uses.append({"n": 1, "X": None} if ones else {"n": X.shape[-1], "X": _text(X)})
    pairs = None if len(bank["pairs"]) == T * (T + 1) // 2 else bank["pairs"].tolist()
    return {"B": bank["B"], "width": bank["width"], "pairs": pairs, "D": _text(bank["D"]), "uses": uses}


def _text(array: np.ndarray) -> str:
    """float32, little-endian, base64."""
    return base64.b64encode(np.ascontiguousarray(array, dtype="<f4").tobytes()).decode("ascii")
