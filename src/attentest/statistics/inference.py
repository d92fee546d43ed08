"""Compared differences, given that a model chose where to look: estimates, intervals alone and together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from attentest.checks import confidence
from attentest.errors import InputError
from attentest.statistics.alternative import ONE_SIDED, Alternative
from attentest.statistics.columns import Floats, Integers
from attentest.statistics.conditional_mean import mean_bounds, mean_roots
from attentest.statistics.law import Law
from attentest.statistics.multiple_testing import level_of_each
from attentest.statistics.roots import FARTHEST
from attentest.statistics.selection_laws import BinomialCounts
from attentest.statistics.truncation_set import Intervals, TruncationSet, Unions

ABOVE_ZERO = float(np.nextafter(0.0, 1.0))
"""The least number that is greater than 0: the end of an interval that says no more than that."""


@dataclass(frozen=True, kw_only=True)
class ConfidenceInterval:
    """A confidence interval for the compared quantity, in the units of the pixels; unpacks as (low, high)."""

    low: float
    high: float
    """Its ends, possibly infinite."""
    confidence_level: float
    """The probability with which such intervals cover the true value."""
    error: float = 0.0
    """Each end lies at most this far outside that of the exact interval, because the truncation set is known only as
    far as the search went. The interval is never narrower than the exact one."""
    together: int = 1
    """Number of intervals, of which this is one, that all cover their true values with that probability."""

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


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Inference:
    """What p-value, estimate and confidence interval of one compared difference follow from."""

    law: Law
    """Law of the statistic given the truncation set, for this one difference."""
    truncation_set: TruncationSet
    """The values of z at which the model would choose this region, with what is certain and what is possible. It is
    searched only where p and the confidence interval depend on it."""
    standard_error: float
    """Standard deviation of the compared difference, in the units of the pixels."""
    alternative: Alternative
    """The alternative of p-value and confidence interval."""

    @property
    def statistic(self) -> float:
        """Standardised difference, region minus background unless another contrast was chosen: T(X) of the paper."""
        return float(self.law.statistic[0])

    @property
    def difference(self) -> float:
        """Observed difference, in the units of the pixels: biased away from zero, because it selected the region."""
        return self.statistic * self.standard_error

    @property
    def degrees_of_freedom(self) -> float:
        """Degrees of freedom of the standard error, if the noise was estimated from reference images; else infinite."""
        return float(self.law.degrees_of_freedom[0])

    @property
    def intervals(self) -> Intervals:
        """The best estimate of the truncation set, (n, 2)."""
        return self.truncation_set.intervals

    @property
    def interval_bound(self) -> float:
        """Greatest length of a two-sided interval over that of the naive one, if the truncation set is known exactly.

        With randomised selection it is sqrt(1 + 1 / gamma^2), or less if a reference is noisy too; otherwise infinite.
        An interval is longer than that by twice its ``error`` at most, because of what the search left open.
        """
        return float(self.law.interval_bound[0])


def estimates_of(inferences: Sequence[Inference]) -> Estimates:
    """Return median-unbiased estimates, with bounds, (k,) each."""
    values = np.empty((3, len(inferences)))
    for rows, law, sets in _by_law(inferences):
        if isinstance(law, BinomialCounts):
            values[:, rows] = law.ratio
            continue
        half = np.full(len(law), 0.5)
        unions = Unions.of([known.intervals for known in sets])
        best = mean_roots(law, np.arange(len(law)), half, above=unions, below=unions, undetermined=-np.inf)
        low, high = mean_bounds(law, sets, half)
        scale = np.array([inferences[row].standard_error for row in rows])
        values[:, rows] = scale * np.stack([np.clip(best, low, high), low, high])
    return Estimates(*values)


def confidence_intervals_of(
    inferences: Sequence[Inference], confidence_level: float | list[float]
) -> list[ConfidenceInterval]:
    """Return confidence intervals, at one level or at a level for each.

    They have equal tails for a two-sided alternative, and are bounded from below for "greater", from above for "less".
    """
    levels = confidence_level if isinstance(confidence_level, list) else [confidence_level] * len(inferences)
    levels = [confidence(level) for level in levels]
    tails = np.array([_tail(part.alternative, level) for part, level in zip(inferences, levels, strict=True)])
    ends = np.empty((2, 2, len(inferences)))
    for rows, law, sets in _by_law(inferences):
        if isinstance(law, BinomialCounts):
            ends[..., rows] = law.ratio_ends(tails[rows])
        else:
            ends[..., rows] = mean_bounds(law, sets, np.stack([tails[rows], 1 - tails[rows]]))
    (lows, highs_at_least), (lows_at_most, highs) = ends
    intervals = []
    for i, inference in enumerate(inferences):
        counted = isinstance(inference.law, BinomialCounts)  # the interval is that of a ratio
        low, high, error = 0.0 if counted else -np.inf, np.inf, 0.0
        if inference.alternative != "less":
            low = min(lows[i], inference.statistic + FARTHEST)
            error = _distance(lows[i], lows_at_most[i])
        if inference.alternative != "greater":
            high = max(highs[i], inference.statistic - FARTHEST)
            error = max(error, _distance(highs_at_least[i], highs[i]))
        unit = 1.0 if counted else inference.standard_error
        low, high, error = (float(value * unit) for value in (low, high, error))
        intervals.append(ConfidenceInterval(low=low, high=high, confidence_level=levels[i], error=error))
    return intervals


def _by_law(inferences: Sequence[Inference]) -> Iterator[tuple[Integers, Law, list[TruncationSet]]]:
    """Yield the indices of inferences with one class of law, their law and their sets, to be computed together."""
    kinds = [type(inference.law) for inference in inferences]
    for kind in dict.fromkeys(kinds):
        rows = [row for row, other in enumerate(kinds) if other is kind]
        law = kind.concatenated([inferences[row].law for row in rows])
        yield np.array(rows, dtype=np.int64), law, [inferences[row].truncation_set for row in rows]


def bonferroni_intervals(
    regions: Sequence[Sequence[Inference]], confidence_level: float
) -> list[list[ConfidenceInterval]]:
    """Return the intervals of the components of each region, which all cover together with a probability per region.

    Each of m intervals fails to cover with probability (1 - level) / m given the region, so that one of them or more
    fail with probability 1 - level at most, however they depend on each other.
    """
    return _simultaneous(regions, [len(components) for components in regions], confidence(confidence_level))


def holm_intervals(
    regions: Sequence[Sequence[Inference]], rejected: Sequence[Sequence[bool | None]], confidence_level: float
) -> list[list[ConfidenceInterval]]:
    """Return one-sided intervals that cover together and exclude 0 exactly where Holm's method rejects.

    These are the bounds of Strassburger and Bretz (2008, *Compatible simultaneous lower confidence bounds for the Holm
    procedure and other Bonferroni-based closed tests*) and Guilbaud (2008). Where all hypotheses about a region are
    rejected, they are Bonferroni's, or 0 if that is farther from the other end. Otherwise a rejected one has the end 0,
    and the level is divided among the others. The end 0 is not part of an interval.

    Each region has its components, of a one-sided alternative, and whether Holm's method rejects the hypothesis of each
    at 1 - confidence_level; None, where error bars do not tell, counts as not rejected, which makes no bound less
    valid.
    """
    level = confidence(confidence_level)
    if not {component.alternative for components in regions for component in components} <= set(ONE_SIDED):
        raise InputError(
            "method='holm' is for one-sided alternatives: after a two-sided rejection Holm's method says only that a "
            "difference is not 0, which is no interval. Use method='bonferroni'."
        )
    certain = [[decision is True for decision in decisions] for decisions in rejected]
    shares = [decisions.count(False) or len(decisions) for decisions in certain]
    return [
        [
            _beyond_zero(interval, known=all(decisions)) if is_rejected else interval
            for interval, is_rejected in zip(intervals, decisions, strict=True)
        ]
        for intervals, decisions in zip(_simultaneous(regions, shares, level), certain, strict=True)
    ]


def _simultaneous(
    regions: Sequence[Sequence[Inference]], shares: Sequence[int], level: float
) -> list[list[ConfidenceInterval]]:
    """Return the intervals of the components of each region, among so many of which its error rate is divided."""
    counts = zip(shares, map(len, regions), strict=True)
    levels = [level_of_each(level, share) for share, count in counts for _ in range(count)]
    intervals = iter(confidence_intervals_of([component for components in regions for component in components], levels))
    return [
        [replace(next(intervals), confidence_level=level, together=len(components)) for _ in components]
        for components in regions
    ]


def _beyond_zero(interval: ConfidenceInterval, known: bool) -> ConfidenceInterval:
    """Return a one-sided interval that excludes 0: the part of it that does, if it is known, or all that does."""
    if np.isinf(interval.high):
        return replace(interval, low=max(interval.low, ABOVE_ZERO) if known else ABOVE_ZERO)
    return replace(interval, high=min(interval.high, -ABOVE_ZERO) if known else -ABOVE_ZERO)


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
    return (1 - confidence_level) / (1 if alternative in ONE_SIDED else 2)


def _distance(low: float, high: float) -> float:
    return high - low if high > low else 0.0  # two infinite ends that are equal have no difference
