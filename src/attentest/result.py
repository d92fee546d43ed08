"""The result of a test of one image."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.baselines import bonferroni_log_pvalue, naive_log_pvalue
from attentest.errors import SearchError
from attentest.intervals import Intervals, contains
from attentest.search import SearchOutcome
from attentest.truncated_normal import Alternative, log_pvalue_bounds_of_many, probability


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
        The attention map, from 0 to 1; 0 where the model sees nothing.
    seen : (H, W) bool
        The pixels the model sees: all, unless its preprocessing crops or its patches leave a border.
    intervals : (k, 2) float64
        Truncation set: the values of the statistic at which the model would choose this region, as far as the
        search went. It goes only where p depends on it.
    log_pvalue, log_pvalue_bounds
        Natural logarithms of the selective p-value and of the bounds on it, for p too small for a float. They are as
        exact as the search was asked to be: with a tolerance of 1e-6, all p below it are the same to it, and the set
        may reach farther than it looked; ``SpectralSearch(tol=0, rtol=1e-3)`` resolves any p.
    naive_log_pvalue, bonferroni_log_pvalue
        Logarithms of the p-values that ignore the selection, and that correct for all regions of the pixels seen.
    alpha
        Level at which the test was asked to decide, if it was.
    evaluations
        Model evaluations the search used for this image.
    status
        "converged"; "decided" if the search stopped when it knew on which side of ``alpha`` p lies; or what stopped it
        before: "max_evaluations", or "precision" where rounding of the scores hides the rest.
    settings
        How the test was made: threshold, alternative, search and noise, JSON-ready.
    """

    statistic: float
    region: NDArray[np.bool_]
    attention: NDArray[np.float64]
    seen: NDArray[np.bool_]
    intervals: Intervals
    log_pvalue: float
    log_pvalue_bounds: tuple[float, float]
    naive_log_pvalue: float
    bonferroni_log_pvalue: float
    alpha: float | None
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
    def reject(self) -> bool | None:
        """Whether p is at most ``alpha``; None if no alpha was given or the search could not tell."""
        if self.alpha is None or self.pvalue_bounds[0] <= self.alpha < self.pvalue_bounds[1]:
            return None
        return self.pvalue <= self.alpha

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
            "log_pvalue_bounds": [None if np.isinf(bound) else bound for bound in self.log_pvalue_bounds],
            "alpha": self.alpha,
            "reject": self.reject,
            "naive_pvalue": self.naive_pvalue,
            "naive_log_pvalue": self.naive_log_pvalue,
            "bonferroni_pvalue": self.bonferroni_pvalue,
            "bonferroni_log_pvalue": self.bonferroni_log_pvalue,
            "intervals": self.intervals.tolist(),
            "region_pixels": int(self.region.sum()),
            "seen_pixels": int(self.seen.sum()),
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
            f"region of {int(self.region.sum())} of {int(self.seen.sum())} pixels, "
            f"{len(self.intervals)} interval(s), {self.evaluations} evaluations, {self.status!r})"
        )


def results_of(
    statistics: NDArray[np.float64],
    regions: NDArray[np.bool_],
    attention: NDArray[np.float64],
    seen: NDArray[np.bool_],
    outcomes: Sequence[SearchOutcome],
    alternative: Alternative,
    alpha: float | None,
    settings: Mapping[str, Any],
) -> list[AttentionTestResult]:
    """Turn k observed images and their truncation sets into results, with arrays that are read-only."""
    for statistic, outcome in zip(statistics, outcomes, strict=True):
        if not contains(outcome.intervals, statistic):
            raise SearchError(
                f"the search returned a truncation set without the observed statistic {statistic:.17g}, "
                "which lies in it by definition: the search is at fault."
            )
    sets = [outcome.intervals for outcome in outcomes]
    logs, _ = log_pvalue_bounds_of_many(statistics, sets, sets, alternative)
    lower, upper = log_pvalue_bounds_of_many(
        statistics,
        [outcome.certain for outcome in outcomes],
        [outcome.possible for outcome in outcomes],
        alternative,
    )
    # Where nothing was found beyond the statistic because nothing there can matter, the upper bound is all there is.
    logs = np.where(np.isneginf(logs), upper, logs)
    seen.setflags(write=False)
    results = []
    for i, outcome in enumerate(outcomes):
        statistic = float(statistics[i])
        arrays = regions[i].copy(), attention[i].copy(), outcome.intervals
        for array in arrays:
            array.setflags(write=False)
        log_naive = naive_log_pvalue(statistic, alternative)
        results.append(
            AttentionTestResult(
                statistic=statistic,
                region=arrays[0],
                attention=arrays[1],
                seen=seen,
                intervals=arrays[2],
                log_pvalue=float(logs[i]),
                log_pvalue_bounds=(float(lower[i]), float(upper[i])),
                naive_log_pvalue=log_naive,
                bonferroni_log_pvalue=bonferroni_log_pvalue(log_naive, int(seen.sum())),
                alpha=alpha,
                evaluations=outcome.evaluations,
                status=outcome.status,
                settings=settings,
            )
        )
    return results
