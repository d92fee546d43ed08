"""Confidence intervals and median-unbiased estimates of k contrasts, given their truncation sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from attentest.checks import confidence
from attentest.statistics.conditional_mean import FARTHEST, mean_bounds
from attentest.statistics.intervals import Intervals
from attentest.statistics.truncated_normal import Alternative


@dataclass(frozen=True, kw_only=True)
class ConfidenceInterval:
    """A confidence interval for what is compared, in the units of the pixels; unpacks as (low, high).

    Parameters
    ----------
    low, high
        Its ends, possibly infinite.
    confidence_level
        The probability with which such intervals cover the true value.
    error
        By how much it may be wider, at either end, than the exact interval, because the truncation set is known only as
        far as the search went. It is never narrower.
    """

    low: float
    high: float
    confidence_level: float
    error: float = 0.0

    def __iter__(self) -> Iterator[float]:
        return iter((self.low, self.high))

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True, kw_only=True)
class Selected:
    """Statistics that were seen because they fell into truncation sets.

    Parameters
    ----------
    statistics, standard_errors : (k,)
        Standardised contrasts, and what they were divided by.
    found, certain, possible : k unions of intervals
        The sets as found, what is known to be in them, and what is not known to be outside.
    """

    statistics: NDArray[np.float64]
    standard_errors: NDArray[np.float64]
    found: Sequence[Intervals]
    certain: Sequence[Intervals]
    possible: Sequence[Intervals]

    def estimates(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return the median-unbiased estimates (k,), and the least and the greatest they may be."""
        half = np.full(len(self.statistics), 0.5)
        best, _ = mean_bounds(self.statistics, self.found, self.found, half)
        low, high = self._mean_bounds(half)
        return self.standard_errors * np.clip(best, low, high), self.standard_errors * low, self.standard_errors * high

    def confidence_intervals(
        self, alternatives: Sequence[Alternative], confidence_level: float
    ) -> list[ConfidenceInterval]:
        """Return intervals: equal tails for "two-sided", bounded from below for "greater", from above for "less"."""
        confidence_level = confidence(confidence_level)
        tails = np.array([_tail(alternative, confidence_level) for alternative in alternatives])
        lows, lows_at_most = self._mean_bounds(tails)
        highs_at_least, highs = self._mean_bounds(1 - tails)
        intervals = []
        for i, (alternative, scale) in enumerate(zip(alternatives, self.standard_errors, strict=True)):
            z = self.statistics[i]
            low, high = -np.inf, np.inf
            error = 0.0
            if alternative != "less":
                low, error = min(lows[i], z + FARTHEST), _distance(lows[i], lows_at_most[i])
            if alternative != "greater":
                high, error = (
                    max(highs[i], self.statistics[i] - FARTHEST),
                    max(error, _distance(highs_at_least[i], highs[i])),
                )
            intervals.append(
                ConfidenceInterval(
                    low=float(low * scale),
                    high=float(high * scale),
                    confidence_level=confidence_level,
                    error=float(error * scale),
                )
            )
        return intervals

    def _mean_bounds(self, levels: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return mean_bounds(self.statistics, self.certain, self.possible, levels)


def naive_confidence_interval(
    difference: float, standard_error: float, alternative: Alternative, confidence_level: float
) -> ConfidenceInterval:
    """Return the interval of a plain z-test, which ignores that the region was chosen by looking."""
    confidence_level = confidence(confidence_level)
    reach = -float(ndtri(_tail(alternative, confidence_level))) * standard_error
    return ConfidenceInterval(
        low=-np.inf if alternative == "less" else difference - reach,
        high=np.inf if alternative == "greater" else difference + reach,
        confidence_level=confidence_level,
    )


def _tail(alternative: Alternative, confidence_level: float) -> float:
    return (1 - confidence_level) / (2 if alternative == "two-sided" else 1)


def _distance(low: float, high: float) -> float:
    return high - low if high > low else 0.0  # two infinite ends that are equal have no difference
