"""The Gram matrix of the contributions: against C itself, against real cuts, and the variance of random cuts."""

import math

import numpy as np
import pytest
from toys import Scalar

import minibptt as mb
from minibptt.apart import one_step_at_a_time
from minibptt.parts import parts_of
from minibptt.together import Together

f64 = np.float64
SCHEDULES = [mb.tbptt(1), mb.tbptt(3), mb.tbptt(2, 5), mb.tbptt(4, 2), mb.tbptt(3, 6, losses="last"), mb.full()]


def total(outputs, y, mask=None):
    return mb.sum(outputs)


def lstm(T=10, B=3, dtype=f64):
    model = mb.Sequential(
        mb.Embedding(7, 4, rng=1, dtype=dtype), mb.LSTM(4, 5, rng=2, dtype=dtype), mb.Linear(5, 7, rng=3, dtype=dtype)
    )
    x, y = np.random.default_rng(1).integers(0, 7, (2, T, B))
    return model, x, y


def test_of_a_scalar_cell_it_is_the_product_of_the_contributions_worked_by_hand():
    # h_t = ½·h_{t−1} + x_t, L_t = h_t: C[t, s] = ½^(t−s)·h_{s−1}, h₀ = 2, x = 1, 2, 3.
    h = [2.0, 2.0, 3.0]
    C = [h[0], h[0] / 2, h[1], h[0] / 4, h[1] / 2, h[2]]  # (1,1), (2,1), (2,2), (3,1), (3,2), (3,3)
    gram = mb.contributions(Scalar(), np.arange(1.0, 4.0).reshape(3, 1, 1), None, total, state=[[2.0]]).gram()
    np.testing.assert_allclose(gram.K, np.outer(C, C), rtol=1e-14)
    assert list(zip(gram.t, gram.s)) == [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    assert gram.share(np.eye(3)) == pytest.approx((C[0] + C[2] + C[5]) / sum(C), rel=1e-14)
    assert gram.cosine(np.eye(3)) == pytest.approx(1, rel=1e-14)
    # One parameter, so the variance is Σ C_i C_j (q^n − 1) / (Σ C)², q = 1/(1 − p) = 2, n the boundaries in common.
    n = [[0, 0, 0, 0, 0, 0], [0, 1, 0, 1, 0, 0], [0] * 6, [0, 1, 0, 2, 1, 0], [0, 0, 0, 1, 1, 0], [0] * 6]
    variance = sum(C[i] * C[j] * (2 ** n[i][j] - 1) for i in range(6) for j in range(6)) / sum(C) ** 2
    assert gram.artbp_variance(0.5) == pytest.approx(variance, rel=1e-13)
    assert gram.artbp_variance(0.0) == 0


@pytest.mark.parametrize("part", [None, "0.W", "1.0.W_h", "2.b", "gate f", "gate g"])
@pytest.mark.parametrize("reset", [None, "after", "before"])
def test_both_ways_give_the_products_of_the_contributions(part, reset, xp):
    with mb.use_backend(xp):
        model, x, y = lstm(T=6)
        gru = mb.GRU(4, 5, reset=reset or "after", rng=2, dtype=f64)
    if reset:
        part = part.replace("gate f", "gate n").replace("gate g", "gate r") if part else None
        model = mb.Sequential(model[0], gru, model[2])
    resets = np.random.default_rng(2).random(x.shape) < 0.2
    real = np.random.default_rng(3).random(x.shape) < 0.8
    options = {"mask": real, "resets": resets}
    with mb.Tape() as tape:
        outputs, _ = model(x, **options)
        loss = mb.cross_entropy(outputs, y, mask=real)
    seeds, G = tape.gradient(loss, outputs), tape.gradient(loss, model)
    chosen = parts_of(model)[part] if part else {name: slice(None) for name in G}
    apart = one_step_at_a_time(model, x, outputs.value, seeds, None, options)
    C = {(t, s): pair for t, s, pair in apart.pairs()}
    pairs = [(t, s) for t in range(6) for s in range(t + 1)]

    def product(a, b):
        return sum(mb.to_numpy(C[a][name] * C[b][name])[..., at].sum() for name, at in chosen.items())

    expected = [[product(a, b) if a in C and b in C else 0 for b in pairs] for a in pairs]
    together = Together.made(model, x, seeds, None, real, resets)
    for way in (together, apart):
        np.testing.assert_allclose(way.gram(chosen, G), expected, rtol=1e-10, atol=1e-18)


def test_every_figure_follows_from_it_without_going_back_to_the_model():
    model, x, y = lstm()
    options = {"lengths": [10, 4, 7]}
    c = mb.contributions(model, x, y, mb.cross_entropy, **options)
    gram = c.gram()
    for schedule in SCHEDULES:
        w, g = schedule.coverage(10), mb.bptt(model, x, y, mb.cross_entropy, schedule, **options)
        assert gram.share(w) == pytest.approx(g.share(c.full), rel=1e-12)
        assert gram.error(w) == pytest.approx(g.relative_error(c.full), rel=1e-9, abs=1e-12)
        assert gram.cosine(w) == pytest.approx(g.cosine(c.full), rel=1e-12)
        assert gram.norm_ratio(w) == pytest.approx(g.norm() / c.full.norm(), rel=1e-12)
    by_part = sum(c.gram(name).K for name in c.full)
    np.testing.assert_allclose(by_part, gram.K, atol=1e-15)


def test_random_cuts_of_an_lstm_are_unbiased_and_vary_as_the_closed_form_says():
    model, x, y = lstm(T=12)
    c = mb.contributions(model, x, y, mb.cross_entropy)
    gram, schedule, rng, N = c.gram(), mb.artbp(0.1), np.random.default_rng(0), 20_000
    factors = np.array([schedule.plan(12, rng).updates[0].factors for _ in range(N)])
    w = np.empty((N, len(gram.K)))
    for i, (t, s) in enumerate(zip(gram.t, gram.s)):
        w[:, i] = factors[:, s + 1 : t + 1].prod(axis=1)
    away = w - 1
    squares = np.einsum("ni,ij,nj->n", away, gram.K, away, optimize=True) / c.full.dot(c.full)  # ‖g − G‖² / ‖G‖²
    variance, mean = gram.artbp_variance(0.1), away.mean(axis=0)
    assert abs(squares.mean() - variance) < 4 * squares.std() / math.sqrt(N)
    bias = math.sqrt(mean @ gram.K @ mean / c.full.dot(c.full))
    assert bias < 4 * math.sqrt(variance / N)
    assert variance > 0.01  # so that the line above could fail


def test_two_hundred_gradients_by_real_random_cuts_have_full_bptt_as_their_mean():
    model, x, y = lstm(T=12)
    full, rng, N = mb.bptt(model, x, y, mb.cross_entropy, mb.full()), np.random.default_rng(3), 200
    mean = sum(mb.bptt(model, x, y, mb.cross_entropy, mb.artbp(0.1), rng=rng) for _ in range(N)) / N
    variance = mb.contributions(model, x, y, mb.cross_entropy).gram().artbp_variance(0.1)
    assert mean.relative_error(full) < 4 * math.sqrt(variance / N)
    chunks = [mb.bptt(model, x, y, mb.cross_entropy, s) for s in mb.tbptt(10).over_offsets(12)]
    assert (sum(chunks) / len(chunks)).relative_error(full) > 4 * math.sqrt(variance / N)  # chunks are biased


def test_what_would_not_fit_is_refused_with_the_size():
    model, x, y = lstm(T=40)
    c = mb.contributions(model, x, y, mb.cross_entropy)
    assert c.gram_bytes() > 8 * 820**2
    with pytest.raises(ValueError, match=r"Gram matrix of T = 40 steps \(820 pairs\) needs about \d+ MiB, and 1 MiB"):
        c.gram(most_bytes=2**20)
    with pytest.raises(ValueError, match="T = 40 steps need about 0 MiB, and 0 MiB are allowed"):
        mb.contributions(model, x, y, mb.cross_entropy, most_bytes=2**10)
    with pytest.raises(ValueError, match="a tape of T = 300 steps would need"):
        mb.contributions(Scalar(), np.ones((300, 100, 1)), None, total, most_bytes=16 * 300**2 * 2 + 2**18)
    with pytest.raises(ValueError, match=r"no part 'gate x'; there are 0.W, 1.0.W_x"):
        c.gram("gate x")
    for wrong, words in [(np.eye(5), "shape"), (np.ones((40, 40)), "above the diagonal")]:
        with pytest.raises(ValueError, match=words):
            c.gram("2.b").share(wrong)
    with pytest.raises(ValueError, match="p_cut"):
        c.gram("2.b").artbp_variance(1.0)
