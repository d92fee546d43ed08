"""P, estimate and interval as functions of a factor on the standard deviation of the noise, in closed form."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from attentest.presentation.number_texts import bounded_text
from attentest.presentation.words import same_verdict_text
from attentest.statistics.alternative import Alternative
from attentest.statistics.inference import Inference
from attentest.statistics.noise_factor import (
    FACTORS,
    LEAST,
    MOST,
    SHOWN_FACTORS,
    factor_curve,
    factor_log_pvalues,
    same_verdict,
)
from attentest.statistics.selection_laws import TruncatedNormal
from attentest.statistics.truncation_set import Intervals, TruncationSet


def one_interval(
    statistic: float, intervals: Intervals, possible: Intervals | None = None, alternative: Alternative = "two-sided"
) -> Inference:
    known = TruncationSet(intervals=intervals, certain=intervals, possible=intervals if possible is None else possible)
    law = TruncatedNormal(statistic=np.array([statistic]))
    return Inference(law=law, truncation_set=known, alternative=alternative, standard_error=0.1)


def test_a_half_line_has_the_p_of_the_textbook() -> None:
    inference = one_interval(2.5, np.array([[1.5, np.inf]]))
    at = np.array([0.5, 0.8, 1.0, 2.0])
    expected = norm.sf(2.5 / at) / norm.sf(1.5 / at)
    np.testing.assert_allclose(np.exp(factor_log_pvalues(inference, at).best), expected, rtol=1e-12)


def test_a_half_line_has_the_interval_of_the_textbook() -> None:
    """The ends are the means at which the tail probability of the truncated normal distribution is 0.975 and 0.025."""
    curve = factor_curve(one_interval(2.5, np.array([[1.5, np.inf]])), [0.5, 2.0], 0.95)
    for factor, estimate, interval in zip([0.5, 2.0], curve.estimates.best, curve.intervals, strict=True):
        for value, tail in ((interval.low, 0.025), (estimate, 0.5), (interval.high, 0.975)):
            mean = value / (0.1 * factor)
            found = norm.logsf(2.5 / factor - mean) - norm.logsf(1.5 / factor - mean)
            assert found == pytest.approx(np.log(tail), abs=1e-6)
    np.testing.assert_allclose(curve.standard_errors, [0.05, 0.2])


def test_the_shown_factors_are_some_of_the_curve() -> None:
    assert (FACTORS[0], FACTORS[-1]) == (LEAST, MOST)
    assert len(FACTORS) == 25
    assert 1.0 in SHOWN_FACTORS
    assert set(SHOWN_FACTORS) < set(FACTORS)


def test_the_range_of_factors_with_the_same_verdict_ends_where_p_is_alpha() -> None:
    inference = one_interval(2.5, np.array([[1.5, np.inf]]))
    found = same_verdict(inference, 0.08)  # p is 0.093 for the factor 1 and grows with the factor
    assert (found.reject, found.high, found.above, found.below) == (False, MOST, "same", "other")
    assert np.exp(factor_log_pvalues(inference, [found.low]).best[0]) == pytest.approx(0.08, rel=1e-5)
    assert same_verdict_text(found) == (
        "In the range tried, 0.5 to 2 times the standard deviation of the noise that was assumed, the verdict is "
        '"not significant" from 0.97 times on; below 0.97 times it is significant.'
    )


def test_the_verdict_may_hold_for_all_factors_or_be_open_for_all() -> None:
    certain = one_interval(0.1, np.array([[0.0, np.inf]]))
    found = same_verdict(certain, 0.05)
    assert (found.reject, found.low, found.high) == (False, LEAST, MOST)
    assert same_verdict_text(found) == (
        "In the range tried, 0.5 to 2 times the standard deviation of the noise that was assumed, the verdict is "
        '"not significant" everywhere.'
    )
    undecided = one_interval(2.5, np.array([[2.4, 2.6]]), np.array([[-np.inf, np.inf]]))
    found = same_verdict(undecided, 0.05)
    assert (found.reject, found.low, found.high) == (None, 1.0, 1.0)
    assert "open" in same_verdict_text(found)


def test_a_part_that_was_not_searched_leaves_larger_noise_open() -> None:
    """Beyond 4 the set is not known: this is nothing for the factor 1 and much for the factor 2."""
    intervals = np.array([[0.0, 1.0], [2.5, 2.55]])
    inference = one_interval(2.5, intervals, np.array([[0.0, 1.0], [2.5, 2.55], [4.0, np.inf]]))
    found = same_verdict(inference, 0.01)
    assert (found.reject, found.above) == (True, "unknown")
    assert "did not look far enough" in same_verdict_text(found)
    best, low, high = (logs[0] for logs in factor_log_pvalues(inference, [2.0]))
    assert low == pytest.approx(best)
    assert bounded_text(np.exp(best), np.exp([low, high])) == "0.023 to 0.12"


def test_one_sided_p_values_need_not_grow_with_the_noise() -> None:
    inference = one_interval(-1.0, np.array([[-np.inf, np.inf]]), alternative="greater")
    np.testing.assert_allclose(
        np.exp(factor_log_pvalues(inference, [0.5, 1, 2]).best), norm.sf([-2, -1, -0.5]), rtol=1e-12
    )
