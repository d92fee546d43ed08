"""P-values, estimates and confidence intervals of results, from the law of the statistic and the truncation set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.checks import level
from attentest.presentation.words import pvalue_text
from attentest.results.sensitivity.noise_factor import FACTORS, NoiseFactors
from attentest.results.sensitivity.sensitivity import Sensitivity, factor_sensitivity
from attentest.statistics.alternative import Alternative
from attentest.statistics.confidence_interval import (
    ConfidenceInterval,
    Estimates,
    confidence_intervals,
    estimates,
    naive_confidence_interval,
)
from attentest.statistics.interval_mass import probability
from attentest.statistics.law import Law
from attentest.statistics.pvalue import decision
from attentest.statistics.truncation_set import Intervals, TruncationSet


class Estimable(Protocol):
    """What estimates and confidence intervals need of a result."""

    @property
    def law(self) -> Law:
        """Law of the statistic given the truncation set."""
        ...

    @property
    def truncation_set(self) -> TruncationSet:
        """The truncation set, with what is certain and what is possible."""
        ...

    @property
    def standard_error(self) -> float:
        """Standard deviation of the compared difference."""
        ...

    @property
    def alternative(self) -> Alternative:
        """The alternative, which says on which sides an interval is bounded."""
        ...


def estimates_of(results: Sequence[Estimable]) -> Estimates:
    """Return the median-unbiased estimates of results, with bounds, (k,) each."""
    if not results:
        return Estimates(np.empty(0), np.empty(0), np.empty(0))
    groups, order = _by_law(results)
    columns = zip(*(estimates(law, sets, scales) for law, sets, scales, _ in groups), strict=True)
    return Estimates(*(np.concatenate(column)[order] for column in columns))


def confidence_intervals_of(
    results: Sequence[Estimable], confidence_level: float | list[float]
) -> list[ConfidenceInterval]:
    """Return the confidence intervals of results, at one level or at a level for each."""
    groups, order = _by_law(results)
    given = confidence_level if isinstance(confidence_level, list) else [confidence_level] * len(results)
    levels = [given[place] for place in np.argsort(order)]
    intervals: list[ConfidenceInterval] = []
    for law, sets, scales, alternatives in groups:
        own = levels[len(intervals) : len(intervals) + len(law)]
        intervals += confidence_intervals(law, sets, scales, alternatives, own)
    return [intervals[place] for place in order]


def _by_law(
    results: Sequence[Estimable],
) -> tuple[list[tuple[Law, list[TruncationSet], NDArray[np.float64], list[Alternative]]], NDArray[np.int64]]:
    """Return results grouped by the class of their law, to be computed together, and the place of each result."""
    places: dict[type[Law], list[int]] = {}
    for place, result in enumerate(results):
        places.setdefault(type(result.law), []).append(place)
    groups = []
    for kind, rows in places.items():
        some = [results[row] for row in rows]
        groups.append(
            (
                kind.stack([result.law for result in some]),
                [result.truncation_set for result in some],
                np.array([result.standard_error for result in some]),
                [result.alternative for result in some],
            )
        )
    return groups, np.argsort(np.concatenate([np.array(rows, dtype=np.int64) for rows in [[], *places.values()]]))


USUAL_LEVEL = 0.95
"""Confidence level where nothing else was asked for."""


class SelectiveInference:
    """What is known of the difference of one region, by the law of the statistic given the truncation set."""

    law: Law
    standard_error: float
    intervals: Intervals
    certain_intervals: Intervals
    possible_intervals: Intervals
    log_pvalue: float
    log_pvalue_bounds: tuple[float, float]
    naive_log_pvalue: float
    bonferroni_log_pvalue: float
    alternative: Alternative
    alpha: float | None
    confidence_level: float | None
    status: str

    @property
    def degrees_of_freedom(self) -> float:
        """Degrees of freedom of the standard error, if the noise was estimated from reference images; else infinite."""
        return float(self.law.degrees_of_freedom[0])

    @property
    def statistic(self) -> float:
        """Standardised difference, region minus background unless another contrast was chosen: T(X) of the paper."""
        return float(self.law.statistic[0])

    @property
    def truncation_set(self) -> TruncationSet:
        """The truncation set with what is certain and what is possible."""
        return TruncationSet(intervals=self.intervals, certain=self.certain_intervals, possible=self.possible_intervals)

    @property
    def pvalue(self) -> float:
        """Selective p-value: valid although the model chose the region. Never zero; see ``log_pvalue``."""
        return probability(self.log_pvalue)

    @property
    def pvalue_bounds(self) -> tuple[float, float]:
        """Least and greatest p-value compatible with what the search knows."""
        lower, upper = self.log_pvalue_bounds
        return probability(lower), probability(upper)

    def pvalue_text(self, digits: int = 3) -> str:
        """Return p as text; if the search did not converge, the bounds on p and the status: "0.02 to 0.41 (decided)".

        Parameters
        ----------
        digits
            Significant digits.
        """
        return pvalue_text(self.pvalue, self.pvalue_bounds, self.status, digits)

    @property
    def reject(self) -> bool | None:
        """Whether p is at most ``alpha``; None if no alpha was given or the search could not tell."""
        return None if self.alpha is None else self.reject_at(self.alpha)

    def reject_at(self, alpha: float) -> bool | None:
        """Return whether p is at most alpha; None if the error bar contains alpha, so that the search cannot tell."""
        return decision(*self.pvalue_bounds, level(alpha))

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
        """Observed difference, in the units of the pixels: biased away from zero, because it selected the region."""
        return self.statistic * self.standard_error

    @property
    def estimate(self) -> float:
        """Median-unbiased estimate of the difference, given the selection, in the units of the pixels.

        It is too great as often as too small. Infinite if the statistic lies at the very end of the truncation set.
        """
        return float(estimates_of([self]).best[0])

    @property
    def estimate_bounds(self) -> tuple[float, float]:
        """Least and greatest estimate compatible with what the search knows."""
        _, low, high = estimates_of([self])
        return float(low[0]), float(high[0])

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Return a confidence interval for the true difference that is valid although the model chose the region.

        Parameters
        ----------
        confidence_level
            Probability that such an interval covers the true difference, over images in which the model chooses this
            region. The search went as far as the test's own ``confidence_level`` needs; at a higher level the interval
            is still valid, and its ``error`` says how much of its width may be due to the search.

        Returns
        -------
        ConfidenceInterval
            With equal tails for the two-sided alternative, bounded on one side otherwise, as in SciPy: from below for
            "greater". With ``alternative="equal-tailed"`` it excludes zero exactly when p is less than 1 - level. The
            paper's two-sided p-value is that of abs(z), and need not agree with equal tails. Where the truncation set
            lies on one side of zero, as it often does, it is one-sided: with alpha = 1 - level, zero is outside the
            interval for p above 1 - alpha / 2 too, and inside for p between alpha / 2 and alpha.
        """
        return confidence_intervals_of([self], confidence_level)[0]

    def naive_confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Return the interval of a plain z-test: not valid, shown for comparison."""
        return naive_confidence_interval(self.difference, self.standard_error, self.alternative, confidence_level)

    @property
    def interval_bound(self) -> float:
        """Greatest length of a two-sided interval over that of the naive one, if the truncation set is known exactly.

        With randomised selection it is sqrt(1 + 1 / gamma^2), or less if a reference is noisy too; otherwise infinite.
        An interval is longer than that by twice its ``error`` at most, because of what the search left open.
        """
        return float(self.law.interval_bound[0])

    def sensitivity(
        self,
        *,
        alpha: float = 0.05,
        factors: ArrayLike = FACTORS,
        confidence_level: float | None = None,
    ) -> Sensitivity:
        """Return p, estimate and interval as functions of a factor on the standard deviation of the noise.

        They are those of tests with that noise, from the same truncation set, without evaluating the model. For the
        correlation length, which takes further tests, see :meth:`AttentionTest.sensitivity`.

        Parameters
        ----------
        alpha
            Significance level of the verdicts; the result has the factors at which they change, from 0.5 to 2.
        factors
            Factors of the curve; by default 25 from 0.5 to 2.
        confidence_level
            Level of the intervals; by default the one that was searched for. The set was searched as far as an interval
            for the factor 1 needs, so that one for a larger factor may have a larger ``error``.
        """
        noise_factors = NoiseFactors(
            law=self.law,
            known=self.truncation_set,
            alternative=self.alternative,
            standard_error=self.standard_error,
        )
        chosen = self.confidence_level or USUAL_LEVEL if confidence_level is None else confidence_level
        return factor_sensitivity(noise_factors, alpha=alpha, confidence_level=chosen, factors=factors)
