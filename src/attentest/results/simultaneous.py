"""Confidence intervals of the components of one region that cover together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attentest.checks import confidence
from attentest.errors import InputError
from attentest.results.estimates import Estimable, confidence_intervals_of
from attentest.results.json_values import json_interval
from attentest.results.result import AttentionTestResult, values_of
from attentest.statistics.confidence_interval import ConfidenceInterval
from attentest.statistics.multiplicity import level_of_each

ABOVE_ZERO = float(np.nextafter(0.0, 1.0))
"""The least number that is greater than 0: the end of an interval that says no more than that."""


def bonferroni_intervals(
    regions: Sequence[Sequence[Estimable]], confidence_level: float
) -> list[list[ConfidenceInterval]]:
    """Return the intervals of the components of each region, which all cover together with a probability per region.

    Each of m intervals fails to cover with probability (1 - level) / m given the region, so that one of them or more
    fail with probability 1 - level at most, however they depend on each other.
    """
    level = confidence(confidence_level)
    each = [level_of_each(level, len(components)) for components in regions for _ in components]
    found = iter(confidence_intervals_of([one for components in regions for one in components], each))
    return [
        [replace(next(found), confidence_level=level, together=len(components)) for _ in components]
        for components in regions
    ]


def holm_intervals(
    regions: Sequence[Sequence[Estimable]], rejected: Sequence[Sequence[bool | None]], confidence_level: float
) -> list[list[ConfidenceInterval]]:
    """Return one-sided intervals that cover together and exclude 0 exactly where Holm's method rejects.

    These are the bounds of Strassburger and Bretz (2008, *Compatible simultaneous lower confidence bounds for the Holm
    procedure and other Bonferroni-based closed tests*) and Guilbaud (2008). Where all hypotheses about a region are
    rejected, they are Bonferroni's, or 0 if that is farther from the other end. Otherwise a rejected one has the end 0,
    and the level is divided among the others. The end 0 is not part of an interval.

    Parameters
    ----------
    regions
        Results of the components of each region, of a one-sided alternative.
    rejected
        Whether Holm's method rejects the hypothesis of each at 1 - confidence_level; None, where error bars do not
        tell, counts as not rejected, which makes no bound less valid.
    confidence_level
        The probability with which all cover.
    """
    level = confidence(confidence_level)
    if not {one.alternative for components in regions for one in components} <= {"greater", "less"}:
        raise InputError(
            "method='holm' is for one-sided alternatives: after a two-sided rejection Holm's method says only that a "
            "difference is not 0, which is no interval. Use method='bonferroni'."
        )
    made = [[one is True for one in some] for some in rejected]
    divided = [some.count(False) or len(some) for some in made]  # among so many the level is divided
    each = [level_of_each(level, count) for count, some in zip(divided, made, strict=True) for _ in some]
    found = iter(confidence_intervals_of([one for components in regions for one in components], each))
    return [
        [
            replace(
                _beyond_zero(next(found), known=all(some)) if reject else next(found),
                confidence_level=level,
                together=len(some),
            )
            for reject in some
        ]
        for some in made
    ]


def values_of_components(
    regions: Sequence[Sequence[AttentionTestResult]], confidence_level: float
) -> list[list[dict[str, Any]]]:
    """Return the JSON-ready values of the components of each region, with the intervals that cover together."""
    values = iter(values_of([one for components in regions for one in components], confidence_level))
    return [
        [{**next(values), "simultaneous_interval": {**json_interval(one), "count": one.together}} for one in intervals]
        for intervals in bonferroni_intervals(regions, confidence_level)
    ]


def _beyond_zero(interval: ConfidenceInterval, known: bool) -> ConfidenceInterval:
    """Return a one-sided interval that excludes 0: the part of it that does, if it is known, or all that does."""
    if np.isinf(interval.high):
        return replace(interval, low=max(interval.low, ABOVE_ZERO) if known else ABOVE_ZERO)
    return replace(interval, high=min(interval.high, -ABOVE_ZERO) if known else -ABOVE_ZERO)
