"""The results of the connected components of one image's region, with intervals that cover together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.checks import confidence
from attentest.errors import InputError
from attentest.record import json_interval
from attentest.results.batch import Results
from attentest.results.result import AttentionTestResult, values_of
from attentest.results.rows import Row, row_of
from attentest.results.selective_inference import Estimable, confidence_intervals_of
from attentest.runs.engine import FailedImage
from attentest.statistics.confidence_interval import ConfidenceInterval
from attentest.statistics.multiple_testing import Adjustment, Simultaneous, level_of_each

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


class ComponentResults(Results):
    """The results of the connected components of one image's region, in reading order.

    They are adjusted together, so there are no slices of them.
    """

    _of = "component"
    _adjustment = "holm"

    def __init__(self, results: Iterable[AttentionTestResult], names: Sequence[object] | None = None) -> None:
        super().__init__(results, names)
        if len(self) == 0:
            raise InputError("a region has at least one component, got none.")

    def __getitem__(self, index: int) -> AttentionTestResult:  # type: ignore[override]  # no slices
        if isinstance(index, slice):
            raise InputError("the components of a region are adjusted together: take one, or list(...) of them.")
        found: AttentionTestResult = super().__getitem__(index)
        return found

    @property
    def region(self) -> NDArray[np.bool_]:
        """The whole region (H, W)."""
        return self[0].region

    @property
    def _named(self) -> list[tuple[object, Sequence[AttentionTestResult] | FailedImage]]:
        return [("the image", list(self))]

    @property
    def labels(self) -> NDArray[np.int32]:
        """The number of each pixel's component (H, W): 0 outside, i + 1 for the i-th result."""
        labels = np.zeros(self.region.shape, dtype=np.int32)
        for number, result in enumerate(self, start=1):
            labels[result.part] = number
        return labels

    def adjusted_pvalues(self, method: Adjustment = "holm") -> NDArray[np.float64]:
        """Return the p-values adjusted across the components, by Holm's method unless told otherwise.

        Each p-value is valid given the region, and the components are a function of the region. So, whichever region it
        is, they are a fixed number of hypotheses with valid p-values, and Holm's method holds however these depend on
        each other.
        """
        return super().adjusted_pvalues(method)

    def adjusted_pvalue_bounds(self, method: Adjustment = "holm") -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the bounds of :meth:`adjusted_pvalues`, which are their upper ends."""
        return super().adjusted_pvalue_bounds(method)

    def decisions(self, alpha: float = 0.05, method: Adjustment | None = "holm") -> list[bool | None]:
        """Return for each component whether its hypothesis is rejected at alpha; None where error bars do not tell."""
        return super().decisions(alpha, method)

    def confidence_intervals(
        self, confidence_level: float = 0.95, method: Simultaneous | None = "bonferroni"
    ) -> list[ConfidenceInterval]:
        """Return an interval for the true difference of each component, such that all of them cover together.

        Whichever region it is, it has a fixed number m of components, and each interval covers with its probability
        given the region. So all of them cover with the probability ``confidence_level`` given the region, and therefore
        on average over regions.

        Parameters
        ----------
        confidence_level
            Probability that all intervals cover the true differences. The search went as far as the test's own
            ``confidence_level`` needs for that; at a higher level intervals are still valid, but wider.
        method
            "bonferroni": each interval has the level 1 - (1 - confidence_level) / m. Holm's method can reject a
            hypothesis although 0 is in this interval, never the other way round if p and interval agree (one-sided
            alternatives, and ``alternative="equal-tailed"``). "holm", for one-sided alternatives: 0 is outside exactly
            where Holm's method rejects at 1 - confidence_level. Unless it rejects all, a rejected component then has
            the end 0 itself (the least number beyond it), and the bounds of the others are tighter. None: each interval
            by itself, which do not cover together.
        """
        if method is None:
            return confidence_intervals_of(list(self), confidence_level)
        if method == "holm":
            rejected = self.decisions(1 - confidence(confidence_level))
            return holm_intervals([list(self)], [rejected], confidence_level)[0]
        if method != "bonferroni":
            raise InputError(f"the method must be bonferroni, holm or None, got {method!r}.")
        return bonferroni_intervals([list(self)], confidence_level)[0]

    def _rows(self, confidence_level: float | None) -> list[Row]:
        values = values_of_components([list(self)], confidence_level or self._interval_level())[0]
        return [row_of(name, one) for name, one in zip(self.names, values, strict=True)]

    def _values(self, most: int) -> list[dict[str, Any]]:
        return values_of_components([list(self)], self._interval_level())[0][:most]

    def summary(self, alpha: float = 0.05) -> str:
        """Return a summary of the results at a significance level, in words."""
        first, *others = self._known.summary(alpha, "component", ["holm"]).split("\n")
        return "\n".join([f"{first} of one region", *others])
