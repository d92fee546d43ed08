"""The limits on the numbers of rejections against other ways to compute the same probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np
import pytest
from scipy import stats

from attentest.statistics.multiple_testing import exceeding, rejection_limits

LEVELS = [(0.05,), (0.01, 0.05, 0.1), (0.001, 0.3, 0.31, 0.9)]


def by_chain(limits: Sequence[int], levels: Iterable[float], total: int) -> float:
    """The probability of exceeding a limit, from the counts as a Markov chain from level to level."""
    within, before = np.ones(1), 0.0
    for limit, level in zip(limits, levels, strict=True):
        low, high = np.arange(len(within)), np.arange(limit + 1)
        share = (level - before) / (1 - before)
        within = within @ stats.binom.pmf(high - low[:, None], total - low[:, None], share)
        before = level
    return float(1 - within.sum())


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("total", [1, 3, 5])
def test_the_probability_is_that_of_all_outcomes(levels: tuple[float, ...], total: int) -> None:
    edges = np.array([0.0, *levels, 1.0])
    limits = np.minimum(np.arange(len(levels)) % 3, total)
    expected = 0.0
    for outcome in product(range(len(edges) - 1), repeat=total):  # which bin each p-value is in
        counts = [sum(place <= level for place in outcome) for level in range(len(levels))]
        if any(count > limit for count, limit in zip(counts, limits, strict=True)):
            expected += np.prod([edges[place + 1] - edges[place] for place in outcome])
    found = exceeding(limits.astype(float), np.array(levels), total)
    assert found == pytest.approx(expected, abs=1e-13)
    assert found == pytest.approx(by_chain(limits.tolist(), levels, total), abs=1e-13)


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("total", [20, 33, 100, 500, 2000])
def test_the_error_rate_is_the_one_asked_for(levels: tuple[float, ...], total: int) -> None:
    """At most 1%; and the limit that leaves the least beyond it when lowered by one cannot be lowered."""
    limits = rejection_limits(levels, total, 0.01)
    assert by_chain(limits, levels, total) <= 0.01
    tails = np.array([stats.binom.sf(limit - 1, total, level) for limit, level in zip(limits, levels, strict=True)])
    lower = np.array(limits) - (tails == tails.min())
    assert by_chain(lower.tolist(), levels, total) > 0.01


def test_the_error_rate_is_close_to_the_one_asked_for_and_stays_below_it() -> None:
    """For every fourth number of images from 20 to 600, and some up to 10,000."""
    levels = np.array([0.01, 0.05, 0.1])
    rates = {
        total: exceeding(np.array(rejection_limits(levels.tolist(), total, 0.01), dtype=float), levels, total)
        for total in (*range(20, 600, 4), 1000, 2000, 5000, 10_000)
    }
    assert max(rates.values()) <= 0.01
    assert np.mean([rate for total, rate in rates.items() if total >= 100]) > 0.0088
    assert min(rate for total, rate in rates.items() if total >= 1000) > 0.009
    assert rates[10_000] == pytest.approx(by_chain(rejection_limits(levels.tolist(), 10_000, 0.01), levels, 10_000))


def test_levels_may_come_in_any_order_and_twice() -> None:
    low, mid, high = rejection_limits((0.01, 0.05, 0.1), 1000, 0.01)
    assert rejection_limits((0.1, 0.01, 0.05, 0.1), 1000, 0.01) == (high, low, mid, high)
    assert (low, mid, high) == (19, 69, 126)


def test_one_level_has_the_binomial_limit() -> None:
    for total in (1, 50, 100_000):
        assert rejection_limits((0.05,), total, 0.01) == (int(stats.binom.isf(0.01, total, 0.05)),)
