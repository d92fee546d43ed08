"""Compared differences, given that a model chose where to look: estimates, intervals alone and together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attentest.checks import confidence
from attentest.errors import InputError
from attentest.statistics.alternative import ONE_SIDED, Alternative
from attentest.statistics.confidence_interval import ConfidenceInterval, Estimates, confidence_intervals, estimates
from attentest.statistics.law import Law
from attentest.statistics.multiple_testing import level_of_each
from attentest.statistics.truncation_set import Intervals, TruncationSet

ABOVE_ZERO = float(np.nextafter(0.0, 1.0))
"""The least number that is greater than 0: the end of an interval that says no more than that."""


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Inference:
    """What p-value, estimate and confidence interval of one compared difference follow from.

    Parameters
    ----------
    law
        Law of the statistic given the truncation set, for this one difference.
    truncation_set
        The values of z at which the model would choose this region, with what is certain and what is possible. It is
        searched only where p and the confidence interval depend on it.
    standard_error
        Standard deviation of the compared difference, in the units of the pixels.
    alternative
        The alternative of p-value and confidence interval.
    """

    law: Law
    truncation_set: TruncationSet
    standard_error: float
    alternative: Alternative

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
    if not inferences:
        return Estimates(np.empty(0), np.empty(0), np.empty(0))
    groups, order = _by_law(inferences)
    columns = zip(*(estimates(law, sets, scales) for law, sets, scales, _ in groups), strict=True)
    return Estimates(*(np.concatenate(column)[order] for column in columns))


def confidence_intervals_of(
    inferences: Sequence[Inference], confidence_level: float | list[float]
) -> list[ConfidenceInterval]:
    """Return confidence intervals, at one level or at a level for each."""
    groups, order = _by_law(inferences)
    levels = confidence_level if isinstance(confidence_level, list) else [confidence_level] * len(inferences)
    waiting = iter([levels[place] for place in np.argsort(order)])
    intervals: list[ConfidenceInterval] = []
    for law, sets, scales, alternatives in groups:
        intervals += confidence_intervals(law, sets, scales, alternatives, [next(waiting) for _ in sets])
    return [intervals[place] for place in order]


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

    Parameters
    ----------
    regions
        The components of each region, of a one-sided alternative.
    rejected
        Whether Holm's method rejects the hypothesis of each at 1 - confidence_level; None, where error bars do not
        tell, counts as not rejected, which makes no bound less valid.
    confidence_level
        The probability with which all cover.
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


def _by_law(
    inferences: Sequence[Inference],
) -> tuple[list[tuple[Law, list[TruncationSet], NDArray[np.float64], list[Alternative]]], NDArray[np.int64]]:
    """Return inferences grouped by the class of their law, to be computed together, and the place of each."""
    places: dict[type[Law], list[int]] = {}
    for place, inference in enumerate(inferences):
        places.setdefault(type(inference.law), []).append(place)
    groups = []
    for kind, rows in places.items():
        members = [inferences[row] for row in rows]
        groups.append(
            (
                kind.concatenated([member.law for member in members]),
                [member.truncation_set for member in members],
                np.array([member.standard_error for member in members]),
                [member.alternative for member in members],
            )
        )
    return groups, np.argsort(np.concatenate([np.array(rows, dtype=np.int64) for rows in [[], *places.values()]]))
