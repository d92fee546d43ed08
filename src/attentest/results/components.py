"""The results of the connected components of one image's region, with intervals that cover together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from attentest.checks import confidence, level
from attentest.errors import InputError, worded
from attentest.presentation.words import summary_text
from attentest.record import ResultRecord
from attentest.results.batch import Results
from attentest.results.result import AttentionTestResult, records_of
from attentest.runs.engine import FailedImage
from attentest.statistics.inference import (
    ConfidenceInterval,
    bonferroni_intervals,
    confidence_intervals_of,
    holm_intervals,
)
from attentest.statistics.multiple_testing import Adjustment, Simultaneous


def component_records(
    regions: Sequence[Sequence[AttentionTestResult]], confidence_level: float | None = None
) -> list[list[ResultRecord]]:
    """Return the records of the components of each region, with the intervals that cover together."""
    every = [result for components in regions for result in components]
    if not every:
        return [[] for _ in regions]
    asked = every[0].confidence_level if confidence_level is None else confidence_level
    records = iter(records_of(every, asked))
    if asked is None:
        return [[next(records) for _ in components] for components in regions]
    return [
        [replace(next(records), simultaneous_interval=interval) for interval in intervals]
        for intervals in bonferroni_intervals(regions, asked)
    ]


class ComponentResults(Results):
    """The results of the connected components of one image's region, in reading order.

    They are adjusted together, by Holm's method unless told otherwise, so there are no slices of them. Each p-value is
    valid given the region, and the components are a function of the region. So, whichever region it is, they are a
    fixed number of hypotheses with valid p-values, and Holm's method holds however these depend on each other.
    Components that have no pixel within a mask of the contrast, or none to be compared with, come last, as
    :class:`FailedImage`, where ``on_error="row"`` asks for it; what is said of all components is of the others.
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
        return super().__getitem__(index)

    @property
    def region(self) -> NDArray[np.bool_]:
        """The whole region (H, W)."""
        return self._results[0].region

    @property
    def _images(self) -> list[tuple[object, Sequence[AttentionTestResult] | FailedImage]]:
        return [(worded("the image", self._dimension), list(self._results))]

    @property
    def labels(self) -> NDArray[np.int32]:
        """The number of each pixel's component (H, W): 0 outside, i + 1 for the i-th result."""
        labels = np.zeros(self.region.shape, dtype=np.int32)
        for number, result in enumerate(self._results, start=1):
            labels[result.part] = number
        return labels

    def decisions(self, alpha: float = 0.05, method: Adjustment | None = "holm") -> list[bool | None]:
        """Return for each component whether its hypothesis is rejected at alpha; None where error bars do not tell."""
        return super().decisions(alpha, method)

    def confidence_intervals(
        self, confidence_level: float | None = None, method: Simultaneous | None = "bonferroni"
    ) -> list[ConfidenceInterval]:
        """Return an interval for the true difference of each component, such that all of them cover together.

        Whichever region it is, it has a fixed number m of components, and each interval covers with its probability
        given the region. So all of them cover with the probability ``confidence_level`` given the region, and therefore
        on average over regions.

        Parameters
        ----------
        confidence_level
            Probability that all intervals cover the true differences; by default that of the test, or 0.95 if it went
            for p alone. The search went as far as the test's own level needs for that; at a higher one intervals are
            still valid, but wider.
        method
            "bonferroni": each interval has the level 1 - (1 - confidence_level) / m. Holm's method can reject a
            hypothesis although 0 is in this interval, never the other way round if p and interval agree (one-sided
            alternatives, and ``alternative="equal-tailed"``). "holm", for one-sided alternatives: 0 is outside exactly
            where Holm's method rejects at 1 - confidence_level. Unless it rejects all, a rejected component then has
            the end 0 itself (the least number beyond it), and the bounds of the others are tighter. None: each interval
            by itself, which do not cover together.
        """
        tested = list(self._results)
        asked = tested[0].interval_level(confidence_level)
        if method is None:
            return confidence_intervals_of(tested, asked)
        if method == "holm":
            return holm_intervals([tested], [self.decisions(1 - confidence(asked))[: len(tested)]], asked)[0]
        if method != "bonferroni":
            raise InputError(f"the method must be bonferroni, holm or None, got {method!r}.")
        return bonferroni_intervals([tested], asked)[0]

    def _records(self, confidence_level: float | None = None, first: int | None = None) -> list[ResultRecord]:
        return component_records([list(self._results)], confidence_level)[0][:first]

    def summary(self, alpha: float = 0.05) -> str:
        """Return a summary of the results at a significance level, in words."""
        first, *others = summary_text(self._known, level(alpha), "component", ["holm"]).split("\n")
        return "\n".join([f"{first} of one region", *others])
