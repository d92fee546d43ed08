"""The result of a test of one image."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.baselines import bonferroni_log_pvalue, naive_log_pvalue
from attentest.errors import SearchError
from attentest.intervals import Intervals, contains
from attentest.search import SearchOutcome
from attentest.truncated_normal import Alternative, log_pvalue, log_pvalue_bounds, probability


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class AttentionTestResult:
    """Whether the attention region of one image differs from the rest of it.

    Parameters
    ----------
    statistic
        Standardised difference of mean intensity, region minus background: T(X) of the paper.
    region : (H, W) bool
        The attention region.
    attention : (H, W) float64
        The attention map, from 0 to 1.
    intervals : (k, 2) float64
        Truncation set: the values of the statistic at which the model would choose this region, within the range
        searched. An end at that range's limit, 10 beyond the statistic, need not be an end of the set.
    log_pvalue, log_pvalue_bounds
        Natural logarithms of the selective p-value and of the bounds on it, for p too small for a float.
    naive_log_pvalue, bonferroni_log_pvalue
        Logarithms of the p-values that ignore the selection, and that correct for all 2^(H W) regions.
    evaluations
        Model evaluations the search used for this image.
    status
        "converged", or what stopped the search before.
    settings
        How the test was made: threshold, alternative, search and noise, JSON-ready.
    """

    statistic: float
    region: NDArray[np.bool_]
    attention: NDArray[np.float64]
    intervals: Intervals
    log_pvalue: float
    log_pvalue_bounds: tuple[float, float]
    naive_log_pvalue: float
    bonferroni_log_pvalue: float
    evaluations: int
    status: str
    settings: Mapping[str, Any]

    @property
    def pvalue(self) -> float:
        """Selective p-value: valid although the model chose the region. Never zero; see ``log_pvalue``."""
        return probability(self.log_pvalue)

    @property
    def pvalue_bounds(self) -> tuple[float, float]:
        """Least and greatest p-value compatible with what the search knows."""
        lower, upper = self.log_pvalue_bounds
        return probability(lower), probability(upper)

    @property
    def naive_pvalue(self) -> float:
        """P-value of a plain z-test on the region: not valid, shown for comparison."""
        return probability(self.naive_log_pvalue)

    @property
    def bonferroni_pvalue(self) -> float:
        """P-value corrected for every possible region: valid, but of hardly any power."""
        return probability(self.bonferroni_log_pvalue)

    def to_dict(self, arrays: bool = False) -> dict[str, Any]:
        """Return the result as JSON-ready values; ``arrays`` adds the region and the attention map."""
        values: dict[str, Any] = {
            "statistic": self.statistic,
            "pvalue": self.pvalue,
            "pvalue_bounds": list(self.pvalue_bounds),
            "log_pvalue": self.log_pvalue,
            "naive_pvalue": self.naive_pvalue,
            "naive_log_pvalue": self.naive_log_pvalue,
            "bonferroni_pvalue": self.bonferroni_pvalue,
            "bonferroni_log_pvalue": self.bonferroni_log_pvalue,
            "intervals": self.intervals.tolist(),
            "region_pixels": int(self.region.sum()),
            "image_pixels": int(self.region.size),
            "evaluations": self.evaluations,
            "status": self.status,
            **copy.deepcopy(dict(self.settings)),
        }
        if arrays:
            values["region"] = self.region.tolist()
            values["attention"] = self.attention.tolist()
        return values

    def __repr__(self) -> str:
        lower, upper = self.pvalue_bounds
        return (
            f"AttentionTestResult(statistic={self.statistic:.6g}, pvalue={self.pvalue:.6g} "
            f"in [{lower:.6g}, {upper:.6g}], naive_pvalue={self.naive_pvalue:.3g}, "
            f"region of {int(self.region.sum())} of {self.region.size} pixels, "
            f"{len(self.intervals)} interval(s), {self.evaluations} evaluations, {self.status!r})"
        )


def result_of(
    statistic: float,
    region: NDArray[np.bool_],
    attention: NDArray[np.float64],
    outcome: SearchOutcome,
    alternative: Alternative,
    settings: Mapping[str, Any],
) -> AttentionTestResult:
    """Turn an observed image and its truncation set into a result; the arrays become read-only."""
    if not contains(outcome.intervals, statistic):
        raise SearchError(
            f"the search returned a truncation set without the observed statistic {statistic:.17g}, "
            "which lies in it by definition: the search is at fault."
        )
    for array in (region, attention, outcome.intervals):
        array.setflags(write=False)
    log_naive = naive_log_pvalue(statistic, alternative)
    return AttentionTestResult(
        statistic=statistic,
        region=region,
        attention=attention,
        intervals=outcome.intervals,
        log_pvalue=log_pvalue(statistic, outcome.intervals, alternative),
        log_pvalue_bounds=log_pvalue_bounds(statistic, outcome.certain, outcome.possible, alternative),
        naive_log_pvalue=log_naive,
        bonferroni_log_pvalue=bonferroni_log_pvalue(log_naive, region.size),
        evaluations=outcome.evaluations,
        status=outcome.status,
        settings=settings,
    )
