"""The result of a test of one image."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import SearchError
from attentest.search import SearchOutcome
from attentest.statistics.baselines import bonferroni_log_pvalue, naive_log_pvalue
from attentest.statistics.confidence_interval import ConfidenceInterval, Selected, naive_confidence_interval
from attentest.statistics.intervals import Intervals, contains
from attentest.statistics.truncated_normal import (
    Alternative,
    check_alternative,
    log_pvalue_bounds,
    log_pvalue_bounds_of_many,
    probability,
)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class AttentionTestResult:
    """Whether the attention region of one image differs from what it is compared with.

    Parameters
    ----------
    statistic
        Standardised difference, region minus background unless another contrast was chosen: T(X) of the paper.
    standard_error
        What it was divided by: the standard deviation of the difference, in the units of the pixels.
    region : (H, W) bool
        The attention region.
    part : (H, W) bool
        The part of it that is compared: all, or one connected component.
    attention : (H, W) float64
        The attention map, from 0 to 1; 0 where the model sees nothing.
    seen : (H, W) bool
        The pixels the model sees: all, unless its preprocessing crops or its patches leave a border.
    intervals : (k, 2) float64
        Truncation set: the values of the statistic at which the model would choose this region, as far as the
        search went. It goes only where p and the confidence interval depend on it.
    certain_intervals, possible_intervals : (k, 2) float64
        What is known to be in the truncation set, and what is not known to be outside it.
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
        How the test was made: region, contrast, alternative, search and noise, JSON-ready.
    """

    statistic: float
    standard_error: float
    region: NDArray[np.bool_]
    part: NDArray[np.bool_]
    attention: NDArray[np.float64]
    seen: NDArray[np.bool_]
    intervals: Intervals
    certain_intervals: Intervals
    possible_intervals: Intervals
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
    def alternative(self) -> Alternative:
        """The alternative of the p-values and the confidence interval."""
        alternative: Alternative = self.settings["alternative"]
        return alternative

    @property
    def naive_pvalue(self) -> float:
        """P-value of a plain z-test on the region: not valid, shown for comparison."""
        return probability(self.naive_log_pvalue)

    @property
    def bonferroni_pvalue(self) -> float:
        """P-value corrected for every possible region: valid, but of hardly any power."""
        return probability(self.bonferroni_log_pvalue)

    @property
    def difference(self) -> float:
        """Observed difference, in the units of the pixels: too far from zero, because the region was chosen by it."""
        return self.statistic * self.standard_error

    @property
    def estimate(self) -> float:
        """Median-unbiased estimate of the difference, given the selection, in the units of the pixels.

        As often too great as too small. Infinite if the statistic lies at the very end of the truncation set.
        """
        return float(selected([self]).estimates()[0][0])

    @property
    def estimate_bounds(self) -> tuple[float, float]:
        """Least and greatest estimate compatible with what the search knows."""
        _, low, high = selected([self]).estimates()
        return float(low[0]), float(high[0])

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Return a confidence interval for the true difference that is valid although the model chose the region.

        Parameters
        ----------
        confidence_level
            How often such intervals cover the truth, over images of which the model chooses this region. The search
            went as far as the test's own ``confidence_level`` needed; at a higher one the interval is valid, and its
            ``error`` says how much of its width may be due to that.

        Returns
        -------
        ConfidenceInterval
            With equal tails for the two-sided alternative, bounded on one side otherwise, as in SciPy: from below for
            "greater". The two-sided p-value is that of abs(z), as in the paper, and need not agree with equal tails.
            Where the truncation set lies on one side of zero, as it often does, p is one-sided: with alpha = 1 - level,
            zero is outside the interval for p above 1 - alpha / 2 too, and inside for p between alpha / 2 and alpha.
        """
        return selected([self]).confidence_intervals([self.alternative], confidence_level)[0]

    def naive_confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Return the interval of a plain z-test: not valid, shown for comparison."""
        return naive_confidence_interval(self.difference, self.standard_error, self.alternative, confidence_level)

    def with_alternative(self, alternative: Alternative) -> AttentionTestResult:
        """Return the result for another alternative, from the same truncation set: no model is evaluated.

        The set was explored as far as the first alternative needed: look at the bounds.
        """
        check_alternative(alternative)
        sets = self.certain_intervals, self.possible_intervals
        log_p, _ = log_pvalue_bounds(self.statistic, self.intervals, self.intervals, alternative)
        low, high = log_pvalue_bounds(self.statistic, *sets, alternative)
        log_naive = naive_log_pvalue(self.statistic, alternative)
        return replace(
            self,
            log_pvalue=high if np.isneginf(log_p) else log_p,
            log_pvalue_bounds=(low, high),
            naive_log_pvalue=log_naive,
            bonferroni_log_pvalue=_bonferroni(log_naive, self.seen, self.settings),
            settings={**self.settings, "alternative": alternative},
        )

    def to_dict(self, arrays: bool = False) -> dict[str, Any]:
        """Return the result as JSON-ready values; ``arrays`` adds the region, its part and the attention map.

        Infinite numbers become the strings "inf" and "-inf".
        """
        level = self.settings["confidence_level"] or 0.95
        values: dict[str, Any] = {
            "statistic": self.statistic,
            "pvalue": self.pvalue,
            "pvalue_bounds": list(self.pvalue_bounds),
            "log_pvalue": _number(self.log_pvalue),
            "log_pvalue_bounds": [_number(bound) for bound in self.log_pvalue_bounds],
            "alpha": self.alpha,
            "reject": self.reject,
            "difference": self.difference,
            "standard_error": self.standard_error,
            "estimate": _number(self.estimate),
            "estimate_bounds": [_number(end) for end in self.estimate_bounds],
            "confidence_interval": _interval(self.confidence_interval(level)),
            "naive_confidence_interval": _interval(self.naive_confidence_interval(level)),
            "naive_pvalue": self.naive_pvalue,
            "naive_log_pvalue": self.naive_log_pvalue,
            "bonferroni_pvalue": self.bonferroni_pvalue,
            "bonferroni_log_pvalue": self.bonferroni_log_pvalue,
            "intervals": [[_number(end) for end in ends] for ends in self.intervals.tolist()],
            "region_pixels": int(self.region.sum()),
            "part_pixels": int(self.part.sum()),
            "seen_pixels": int(self.seen.sum()),
            "image_pixels": int(self.region.size),
            "evaluations": self.evaluations,
            "status": self.status,
            **copy.deepcopy(dict(self.settings)),
        }
        if arrays:
            values["region"] = self.region.tolist()
            values["part"] = self.part.tolist()
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


def selected(results: Sequence[AttentionTestResult]) -> Selected:
    """Return what estimates and confidence intervals of results are made from, all at once."""
    return Selected(
        statistics=np.array([result.statistic for result in results]),
        standard_errors=np.array([result.standard_error for result in results]),
        found=[result.intervals for result in results],
        certain=[result.certain_intervals for result in results],
        possible=[result.possible_intervals for result in results],
    )


def results_of(
    statistics: NDArray[np.float64],
    standard_errors: NDArray[np.float64],
    regions: Sequence[NDArray[np.bool_]],
    parts: Sequence[NDArray[np.bool_]],
    attention: Sequence[NDArray[np.float64]],
    seen: NDArray[np.bool_],
    outcomes: Sequence[SearchOutcome],
    alternative: Alternative,
    alpha: float | None,
    settings: Sequence[Mapping[str, Any]],
) -> list[AttentionTestResult]:
    """Turn k comparisons and their truncation sets into results; their arrays become read-only and may be shared."""
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
    results = []
    for i, outcome in enumerate(outcomes):
        statistic = float(statistics[i])
        for array in (regions[i], parts[i], attention[i], seen, outcome.intervals, outcome.certain, outcome.possible):
            array.setflags(write=False)
        log_naive = naive_log_pvalue(statistic, alternative)
        results.append(
            AttentionTestResult(
                statistic=statistic,
                standard_error=float(standard_errors[i]),
                region=regions[i],
                part=parts[i],
                attention=attention[i],
                seen=seen,
                intervals=outcome.intervals,
                certain_intervals=outcome.certain,
                possible_intervals=outcome.possible,
                log_pvalue=float(logs[i]),
                log_pvalue_bounds=(float(lower[i]), float(upper[i])),
                naive_log_pvalue=log_naive,
                bonferroni_log_pvalue=_bonferroni(log_naive, seen, settings[i]),
                alpha=alpha,
                evaluations=outcome.evaluations,
                status=outcome.status,
                settings=settings[i],
            )
        )
    return results


def _bonferroni(log_naive: float, seen: NDArray[np.bool_], settings: Mapping[str, Any]) -> float:
    # A pixel is in the region or not; with components it is in this one, in another, or in none.
    return bonferroni_log_pvalue(log_naive, int(seen.sum()), kinds=2 if settings["components"] is None else 3)


def _number(value: float) -> float | str:
    return value if np.isfinite(value) else str(float(value))


def _interval(interval: ConfidenceInterval) -> dict[str, Any]:
    return {
        "low": _number(interval.low),
        "high": _number(interval.high),
        "confidence_level": interval.confidence_level,
        "error": _number(interval.error),
    }
