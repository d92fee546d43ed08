"""The results of the connected components of one image's region."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError
from attentest.results.batch import Results
from attentest.results.failure import FailedImage
from attentest.results.result import AttentionTestResult
from attentest.statistics.multiplicity import Adjustment


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

    def summary(self, alpha: float = 0.05) -> str:
        """Return a summary of the results at a significance level, in words."""
        first, *others = self._known.summary(alpha, "component", ["holm"]).split("\n")
        return "\n".join([f"{first} of one region", *others])
