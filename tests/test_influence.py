"""Influence balancing (Tallec and Ollivier 2017; the set-up of arXiv 1702.05043): a window that is too short trains the
wrong way. The oracle is the linear recurrence and its coefficients in NumPy."""

import numpy as np
import pytest

import minibptt as mb
from minibptt.tasks import InfluenceBalancing

N, RATE = 23, 1e-4
A = 0.5 * np.eye(N) + 0.5 * np.eye(N, k=1)
U = np.array([1.0] * 10 + [-1.0] * 13)


def coefficients(K):
    """What the last 1 … K steps give of ∂s₀/∂θ at fixed weights: the running sum of (A^j u)₀."""
    terms, v = [], U.copy()
    for _ in range(K):
        terms.append(v[0])
        v = A @ v
    return np.cumsum(terms)


def trajectory(K, updates):
    """θ after each update, an update every K steps by the loss ½(s₀ − 1)² of the last of them, the state carried."""
    s, theta, seen, thetas = np.ones(N), 0.5, coefficients(K)[-1], []
    for _ in range(updates):
        for _ in range(K):
            s = A @ s + theta * U
        theta -= RATE * (s[0] - 1) * seen
        thetas.append(theta)
    return np.array(thetas)


def half_square(outputs, y, count):
    """½(s₀ − 1)² of the steps that it is asked on; not divided by anything."""
    error = outputs - 1.0
    return 0.5 * mb.sum(error * error)


def train(K, updates):
    cell, x, thetas = InfluenceBalancing(), np.zeros((updates * K, 1, 1)), []
    for _, gradients in mb.updates(cell, x, x, half_square, mb.tbptt(K, losses="last")):
        mb.assign(cell.theta, cell.theta.value - RATE * gradients["theta"])
        thetas.append(cell.theta.item())
    return np.array(thetas)


def test_the_coefficients_are_those_of_the_table():
    seen = coefficients(100)
    table = {1: 1, 10: 10, 19: 16.476, 30: 9.870, 40: 0.566, 41: -0.219, 50: -4.753, 60: -5.897, 100: -6.0}
    assert {K: round(seen[K - 1], 3) for K in table} == table and seen.argmax() == 18


def test_every_window_sees_of_the_gradient_what_the_closed_form_says():
    cell, T = InfluenceBalancing(), 100
    fixed = np.linalg.solve(np.eye(N) - A, 0.5 * U)[None]  # s = A s + θu at θ = ½
    assert fixed[0, 0] == pytest.approx(-6 * 0.5)
    last = lambda outputs, y: half_square(outputs[-1], y, 1)  # noqa: E731
    c = mb.contributions(cell, np.zeros((T, 1, 1)), None, last, state=fixed)
    assert c.full["theta"] == pytest.approx((fixed[0, 0] - 1) * coefficients(T)[-1], rel=1e-12)
    for K, seen in enumerate(coefficients(T), start=1):
        window = np.zeros((T, T))
        window[-1, T - K :] = 1
        assert c.kept_share(window) * coefficients(T)[-1] == pytest.approx(seen, rel=1e-10, abs=1e-10)
        by_cuts = mb.bptt(cell, np.zeros((T, 1, 1)), None, last, mb.tbptt(T, K, losses="last"), state=fixed)
        assert by_cuts["theta"] == pytest.approx((fixed[0, 0] - 1) * seen, rel=1e-10, abs=1e-9)


@pytest.mark.parametrize(
    "K, final, decimals", [(1, 3.2597, 4), (10, 1.4e7, -5), (50, -0.16654, 5), (100, -0.1666533, 7)]
)
def test_the_recurrence_in_numpy_ends_where_the_table_says(K, final, decimals):
    assert round(trajectory(K, 3000)[-1], decimals) == final


@pytest.mark.parametrize("K, updates", [(1, 3000), (10, 3000), (50, 300), (100, 150)])  # the whole: benchmarks
def test_training_by_updates_is_that_recurrence(K, updates):
    np.testing.assert_allclose(train(K, updates), trajectory(K, updates), rtol=1e-9)


def test_the_state_may_be_carried_from_call_to_call_instead():
    cell, state = InfluenceBalancing(), None
    for _ in range(40):
        x = np.zeros((10, 1, 1))
        run = mb.updates(cell, x, x, half_square, mb.tbptt(10, losses="last"), state=state)
        for _, gradients in run:
            mb.assign(cell.theta, cell.theta.value - RATE * gradients["theta"])
        state = run.state
    assert cell.theta.item() == pytest.approx(trajectory(10, 40)[-1], rel=1e-12)
