"""P as a function of a factor on the standard deviation of the noise: the same as tests with that noise."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from attentest import AttentionTest, bundled_model
from attentest.results.noise_factor import LEAST, MOST, NoiseFactors, factor_text
from attentest.statistics.alternative import Alternative
from attentest.statistics.intervals import Intervals
from attentest.statistics.truncated_normal import TruncatedNormal
from attentest.statistics.truncation_set import TruncationSet


def factors_of(image: NDArray[np.float64], test: AttentionTest) -> NoiseFactors:
    result = test(image)
    return NoiseFactors(law=result.law, known=result.truncation_set, alternative=result.alternative)


def one_interval(
    statistic: float, intervals: Intervals, possible: Intervals | None = None, alternative: Alternative = "two-sided"
) -> NoiseFactors:
    known = TruncationSet(intervals=intervals, certain=intervals, possible=intervals if possible is None else possible)
    return NoiseFactors(law=TruncatedNormal(statistic=np.array([statistic])), known=known, alternative=alternative)


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_a_factor_on_the_noise_gives_the_p_of_a_test_with_that_noise(gamma: float) -> None:
    """With randomised selection the test has the same added noise: gamma is relative to the noise, and smaller."""
    image = np.random.default_rng(3).normal(size=(16, 16))
    image[4:8, 4:8] += 1.0
    model = bundled_model()
    factors = factors_of(image, AttentionTest.from_pretrained(model, noise=1.0, randomise=gamma))
    others = (0.5, 1.4)
    _, lows, highs = factors.log_pvalues(others)
    for factor, low, high in zip(others, lows, highs, strict=True):
        test = AttentionTest.from_pretrained(model, noise=factor, randomise=gamma / factor, confidence_level=None)
        full = test(image)
        assert low <= full.log_pvalue_bounds[1]
        assert high >= full.log_pvalue_bounds[0]
        assert np.exp(high) - np.exp(low) < 1e-3  # otherwise the two lines above could hardly fail


def test_a_half_line_has_the_p_of_the_textbook() -> None:
    factors = one_interval(2.5, np.array([[1.5, np.inf]]))
    at = np.array([0.5, 0.8, 1.0, 2.0])
    expected = norm.sf(2.5 / at) / norm.sf(1.5 / at)
    np.testing.assert_allclose(np.exp(factors.log_pvalues(at).best), expected, rtol=1e-12)


def test_the_range_of_factors_with_the_same_verdict_ends_where_p_is_alpha() -> None:
    factors = one_interval(2.5, np.array([[1.5, np.inf]]))
    found = factors.same_verdict(0.08)  # p is 0.093 for the factor 1 and grows with the factor
    assert (found.reject, found.high, found.above, found.below) == (False, MOST, "same", "other")
    assert np.exp(factors.log_pvalues([found.low]).best[0]) == pytest.approx(0.08, rel=1e-5)
    assert found.text() == (
        'The verdict is "not significant" if the true standard deviation of the noise is 0.97 to 2.00 times the one '
        "that was assumed; below 0.97 times it is significant."
    )


def test_the_verdict_may_hold_for_all_factors_or_be_open_for_all() -> None:
    certain = one_interval(0.1, np.array([[0.0, np.inf]]))
    found = certain.same_verdict(0.05)
    assert (found.reject, found.low, found.high) == (False, LEAST, MOST)
    undecided = one_interval(2.5, np.array([[2.4, 2.6]]), np.array([[-np.inf, np.inf]]))
    found = undecided.same_verdict(0.05)
    assert (found.reject, found.low, found.high) == (None, 1.0, 1.0)
    assert "open" in found.text()


def test_a_part_that_was_not_searched_leaves_larger_noise_open() -> None:
    """Beyond 4 the set is not known: this is nothing for the factor 1 and much for the factor 2."""
    intervals = np.array([[0.0, 1.0], [2.5, 2.55]])
    factors = one_interval(2.5, intervals, np.array([[0.0, 1.0], [2.5, 2.55], [4.0, np.inf]]))
    found = factors.same_verdict(0.01)
    assert (found.reject, found.above) == (True, "unknown")
    assert "did not look far enough" in found.text()
    best, low, high = (logs[0] for logs in factors.log_pvalues([2.0]))
    assert low == pytest.approx(best)
    assert factor_text(best, low, high) == "0.023 to 0.12"


def test_one_sided_p_values_need_not_grow_with_the_noise() -> None:
    factors = one_interval(-1.0, np.array([[-np.inf, np.inf]]), alternative="greater")
    np.testing.assert_allclose(np.exp(factors.log_pvalues([0.5, 1, 2]).best), norm.sf([-2, -1, -0.5]), rtol=1e-12)
