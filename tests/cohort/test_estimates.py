"""Unbiased estimates after randomised selection, and the common effect without it."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy import stats

from attentest.cohort.estimates import common_effect, unbiased_estimates
from attentest.statistics.selection_laws import RandomisedNormal
from attentest.statistics.truncation_set import TruncationSet
from truncated import known_set

SETS = ([[1.5, np.inf]], [[-0.7, 0.7]], [[-np.inf, -0.7], [0.7, 1.5]])
"""A partition of the line: z falls into one of them, and the region says which."""


def law(t: float | np.ndarray, z: float | np.ndarray, gamma: float = 0.5) -> RandomisedNormal:
    statistic = np.atleast_1d(np.asarray(t, dtype=np.float64))
    return RandomisedNormal(
        statistic=statistic, observed_z=np.atleast_1d(z), gamma=np.full(len(statistic), gamma, dtype=np.float64)
    )


def exact_mean(intervals: list[list[float]], t: float, gamma: float) -> float:
    """The mean of E given that t + gamma E lies in intervals, with 200 digits."""
    with mpmath.workdps(200):
        ends = [[(mpmath.mpf(end) - mpmath.mpf(t)) / mpmath.mpf(gamma) for end in pair] for pair in intervals]
        mass = sum(mpmath.ncdf(high) - mpmath.ncdf(low) for low, high in ends)
        return float(sum(mpmath.npdf(low) - mpmath.npdf(high) for low, high in ends) / mass)


@pytest.mark.parametrize("intervals", [[[0.2, 1.1]], [[-3.0, -1.0], [2.0, np.inf]], [[6.0, 6.5], [8.0, 9.0]]])
@pytest.mark.parametrize("t", [-2.0, 0.5, 3.0])
def test_the_estimate_is_the_integral_that_defines_it(intervals: list[list[float]], t: float) -> None:
    known = known_set(np.array(intervals))
    z, s, gamma = float(np.clip(0.0, *intervals[-1])), 0.3, 0.5
    found = unbiased_estimates(law(t, z, gamma), [known], np.array([s]))
    expected = s * (t - exact_mean(intervals, t, gamma) / gamma)
    np.testing.assert_allclose(found.value, expected, rtol=1e-11)
    np.testing.assert_allclose(found.plain, s * (t + (t - z) / gamma**2))
    np.testing.assert_allclose(found.error, s * np.sqrt(1 + 1 / gamma**2))
    np.testing.assert_allclose(found.correction, found.value - s * t, atol=1e-14)


@pytest.mark.parametrize("theta", [0.0, 1.0])
@pytest.mark.parametrize("own_share", [1.0, 0.4])
def test_estimates_are_unbiased_given_the_region_and_vary_less_than_u(theta: float, own_share: float) -> None:
    rng, n, s = np.random.default_rng(1), 20_000, 0.5
    gamma = 0.5 / np.sqrt(own_share)  # as with a noisy reference, which the model does not see
    t = theta / s + rng.normal(size=n)
    z = t + gamma * rng.normal(size=n)
    edges = [[np.array(part) for part in SETS][k] for k in np.select([z > 1.5, np.abs(z) < 0.7], [0, 1], 2)]
    found = unbiased_estimates(law(t, z, gamma), [known_set(part) for part in edges], np.full(n, s))
    assert found.resolved.all()
    for rows in (np.ones(n, dtype=bool), z > 1.5, np.abs(z) < 0.7):
        error = found.value[rows].std() / np.sqrt(rows.sum())
        assert abs(found.value[rows].mean() - theta) < 3.5 * error  # one in 2,000 by chance
    assert found.value.std() < 0.95 * found.plain.std()
    assert found.plain.std() == pytest.approx(found.error[0], rel=0.02)  # four Monte-Carlo errors
    assert (s * t)[z > 1.5].mean() > theta + 0.1  # the naive difference


def test_far_tails_keep_their_digits() -> None:
    above = unbiased_estimates(law(500.0, 500.4), [known_set(np.array([[500.39, np.inf]]))], np.ones(1))
    assert above.value[0] == pytest.approx(500 - exact_mean([[500.39, np.inf]], 500.0, 0.5) / 0.5, rel=1e-13)
    far = unbiased_estimates(law(-2.0, 3.0), [known_set(np.array([[2.99, 3.01]]))], np.ones(1))
    assert far.value[0] == pytest.approx(-2 - exact_mean([[2.99, 3.01]], -2.0, 0.5) / 0.5, rel=1e-12)


def test_u_is_used_where_the_search_left_the_set_open() -> None:
    near, wide = np.array([[0.5, 1.5]]), np.array([[-2.0, 4.0]])
    known = TruncationSet(intervals=near, certain=near, possible=wide)
    beyond = TruncationSet(intervals=near, certain=near, possible=np.array([[0.5, 1.5], [8.0, np.inf]]))
    found = unbiased_estimates(law(np.full(2, 1.0), np.full(2, 1.1)), [known, beyond], np.ones(2))
    assert found.resolved.tolist() == [False, True]
    assert found.value[0] == found.plain[0] != found.value[1]


def test_the_common_effect_of_full_sets_is_the_weighted_mean() -> None:
    t, s = np.array([1.0, -0.5, 2.0]), np.array([0.5, 1.0, 2.0])
    found = common_effect(t, [np.array([[-np.inf, np.inf]])] * 3, s, 0.95)
    weights = 1 / s**2
    mean, error = np.sum(weights * s * t) / weights.sum(), 1 / np.sqrt(weights.sum())
    assert found.value == pytest.approx(mean)
    assert (found.low, found.high) == pytest.approx((mean - 1.959964 * error, mean + 1.959964 * error))
    assert found.pvalue == pytest.approx(2 * stats.norm.sf(abs(mean / error)))


def test_tails_of_the_common_effect_agree_with_draws() -> None:
    rng, s = np.random.default_rng(2), np.array([0.5, 1.0, 0.8, 1.2])
    sets = [np.array(part) for part in ([[1.0, np.inf]], [[-1.0, -0.5], [0.8, 2.0]], [[0.5, 3.0]], [[-np.inf, -0.2]])]
    draws = rng.normal(size=(4, 400_000))
    inside = [((part[:, :1] <= t) & (t <= part[:, 1:])).any(axis=0) for t, part in zip(draws, sets, strict=True)]
    columns = [t[kept][:40_000] for t, kept in zip(draws, inside, strict=True)]
    sums = sum(column / error for column, error in zip(columns, s, strict=True))
    for t in (np.array([1.2, 1.5, 1.0, -0.5]), np.array([2.5, -0.6, 2.8, -1.5])):
        below = np.mean(sums <= np.sum(t / s))
        drawn = 2 * min(below, 1 - below)
        error = np.sqrt(drawn / 40_000)
        # Saddlepoint approximations are off by a few per cent with four images.
        assert common_effect(t, sets, s, 0.95).pvalue == pytest.approx(drawn, abs=4 * error + 0.03 * drawn)


def test_the_p_value_and_the_interval_of_a_common_effect_agree() -> None:
    sets = [np.array([[1.0, np.inf]]), np.array([[0.5, 3.0]]), np.array([[-1.0, 2.5]])]
    t, s = np.array([2.9, 2.0, 1.9]), np.ones(3)
    p = common_effect(t, sets, s, 0.95).pvalue
    found = common_effect(t, sets, s, 1 - p)
    assert found.low == pytest.approx(0.0, abs=1e-6) or found.high == pytest.approx(0.0, abs=1e-6)
    assert found.low < found.value < found.high
