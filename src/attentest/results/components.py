"""The results of the connected components of one image's region."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.checks import confidence
from attentest.errors import InputError
from attentest.results.batch import Results
from attentest.results.estimates import confidence_intervals_of
from attentest.results.failure import FailedImage
from attentest.results.result import AttentionTestResult
from attentest.results.rows import Row, row_of
from attentest.results.simultaneous import bonferroni_intervals, holm_intervals, values_of_components
from attentest.statistics.confidence_interval import ConfidenceInterval
from attentest.statistics.multiplicity import Adjustment, Simultaneous


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
            alternatives, and ``two_sided="equal-tailed"``). "holm", for one-sided alternatives: 0 is outside exactly
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
