"""Confidence intervals and median-unbiased estimates of k contrasts, given their truncation sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from attentest.checks import confidence
from attentest.statistics.alternative import Alternative
from attentest.statistics.columns import Floats
from attentest.statistics.conditional_mean import mean_bounds, mean_roots
from attentest.statistics.law import Law
from attentest.statistics.roots import FARTHEST
from attentest.statistics.truncation_set import TruncationSet, Unions


@dataclass(frozen=True, kw_only=True)
class ConfidenceInterval:
    """A confidence interval for the compared quantity, in the units of the pixels; unpacks as (low, high).

    Parameters
    ----------
    low, high
        Its ends, possibly infinite.
    confidence_level
        The probability with which such intervals cover the true value.
    together
        Number of intervals, of which this is one, that all cover their true values with that probability.
    error
        Each end lies at most this far outside that of the exact interval, because the truncation set is known only as
        far as the search went. The interval is never narrower than the exact one.
    """

    low: float
    high: float
    confidence_level: float
    error: float = 0.0
    together: int = 1

    def __iter__(self) -> Iterator[float]:
        return iter((self.low, self.high))

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __repr__(self) -> str:
        ends = f"low={self.low:.6g}, high={self.high:.6g}"
        joint = "" if self.together == 1 else f", together={self.together}"
        return f"ConfidenceInterval({ends}, confidence_level={self.confidence_level!r}, error={self.error:.2g}{joint})"

    def _repr_html_(self) -> str:
        joint = "" if self.together == 1 else f", one of {self.together} together"
        name = f"{100 * self.confidence_level:.10g}% confidence interval{joint}"
        return f"<div>{name}: <b>{self.low:.4g} to {self.high:.4g}</b></div>"


class Estimates(NamedTuple):
    """Estimates (k,), and the least and the greatest that are compatible with what is known of the sets."""

    best: Floats
    low: Floats
    high: Floats


def estimates(law: Law, sets: Sequence[TruncationSet], standard_errors: Floats) -> Estimates:
    """Return median-unbiased estimates of k contrasts, in the units of their standard errors (k,)."""
    half = np.full(len(law), 0.5)
    unions = Unions.of([known.intervals for known in sets])
    best = mean_roots(law, np.arange(len(law)), half, above=unions, below=unions, undetermined=-np.inf)
    low, high = mean_bounds(law, sets, half)
    return Estimates(standard_errors * np.clip(best, low, high), standard_errors * low, standard_errors * high)


def confidence_intervals(
    law: Law,
    sets: Sequence[TruncationSet],
    standard_errors: Floats,
    alternatives: Sequence[Alternative],
    confidence_level: float | list[float],
) -> list[ConfidenceInterval]:
    """Return intervals: with equal tails for "two-sided", bounded from below for "greater", from above for "less".

    The confidence level is one for all, or one for each.
    """
    levels = confidence_level if isinstance(confidence_level, list) else [confidence_level] * len(law)
    levels = [confidence(level) for level in levels]
    tails = np.array(list(map(_tail, alternatives, levels)))
    (lows, highs_at_least), (lows_at_most, highs) = mean_bounds(law, sets, np.stack([tails, 1 - tails]))
    intervals = []
    for i, (alternative, scale) in enumerate(zip(alternatives, standard_errors, strict=True)):
        low, high, error = -np.inf, np.inf, 0.0
        if alternative != "less":
            low = min(lows[i], law.statistic[i] + FARTHEST)
            error = _distance(lows[i], lows_at_most[i])
        if alternative != "greater":
            high = max(highs[i], law.statistic[i] - FARTHEST)
            error = max(error, _distance(highs_at_least[i], highs[i]))
        intervals.append(
            ConfidenceInterval(
                low=float(low * scale),
                high=float(high * scale),
                confidence_level=levels[i],
                error=float(error * scale),
            )
        )
    return intervals


def naive_confidence_interval(
    difference: float, standard_error: float, alternative: Alternative, confidence_level: float
) -> ConfidenceInterval:
    """Return the interval of a plain z-test, which ignores that the region was chosen from the image."""
    confidence_level = confidence(confidence_level)
    reach = -float(ndtri(_tail(alternative, confidence_level))) * standard_error
    return ConfidenceInterval(
        low=-np.inf if alternative == "less" else difference - reach,
        high=np.inf if alternative == "greater" else difference + reach,
        confidence_level=confidence_level,
    )


def _tail(alternative: Alternative, confidence_level: float) -> float:
    return (1 - confidence_level) / (1 if alternative in ("greater", "less") else 2)


def _distance(low: float, high: float) -> float:
    return high - low if high > low else 0.0  # two infinite ends that are equal have no difference
