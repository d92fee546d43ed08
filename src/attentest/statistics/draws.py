"""Several draws of the noise that randomised selection adds: one p-value, estimate and interval of all of them.

Each draw has its own region and a p-value that is valid for the hypothesis that this region does not differ. Of m valid
p-values of the hypothesis that none of the regions differs, however they depend on each other, the k-th smallest is at
most a k / m with probability at most a (Rueger 1978: the expected number of p-values that small is a k). So m / k times
it is a valid p-value; k is half of m, rounded up, which makes it about twice the median.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from attentest.checks import confidence
from attentest.statistics.alternative import Alternative
from attentest.statistics.inference import (
    ConfidenceInterval,
    Estimates,
    Inference,
    confidence_intervals_of,
    estimates_of,
)
from attentest.statistics.interval_mass import probability
from attentest.statistics.law import Law
from attentest.statistics.pvalue import log_pvalues
from attentest.statistics.selection_laws import law_values

MAJORITY = 0.5  # a pixel belongs to the majority region if more than this share of the draws chose it

COLUMNS = ("statistic", "z_obs", "gamma", "standard_error")
"""What unbiased estimates follow from: statistics, observed z, gamma of the law and standard errors."""

UNKNOWN = (-math.inf, 0.0)  # bounds on the log of a p-value of which nothing is known


class HasPvalue(Protocol):
    """A test, with the logs of its p-value and of the bounds on it."""

    @property
    def log_pvalue(self) -> float: ...  # noqa: D102
    @property
    def log_pvalue_bounds(self) -> tuple[float, float]: ...  # noqa: D102


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Draw(Inference):
    """The test of the region that was chosen with one draw of the added noise."""

    log_pvalue: float
    log_pvalue_bounds: tuple[float, float]
    """Logs of its p-value and of the bounds on it."""
    region: NDArray[np.bool_]
    """(H, W) bool. Its region."""

    @property
    def pvalue(self) -> float:
        """Selective p-value of this draw."""
        return probability(self.log_pvalue)

    @property
    def estimate(self) -> float:
        """Median-unbiased estimate of the difference of this region."""
        return float(estimates_of([self]).best[0])

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Return a confidence interval for the difference of this region."""
        return confidence_intervals_of([self], confidence_level)[0]

    def with_law(self, law: Law, alternative: Alternative) -> Draw:
        """Return the draw under another law of the statistic or for another alternative, given the same set."""
        best, low, high = (float(log[0]) for log in log_pvalues(law, [self.truncation_set], alternative))
        return replace(self, law=law, alternative=alternative, log_pvalue=best, log_pvalue_bounds=(low, high))

    def __repr__(self) -> str:
        return (
            f"Draw(statistic={self.statistic:.4g}, pvalue={self.pvalue:.4g}, region of {int(self.region.sum())} pixels)"
        )


def rank_of(count: int) -> int:
    """Return which of so many p-values, in order, is multiplied: that of half of them, rounded up."""
    return (count + 1) // 2


def share_of_each(count: int) -> float:
    """Return the factor on alpha, or on 1 - a confidence level, at which each of so many draws decides."""
    return rank_of(count) / count


def level_of_each_draw(confidence_level: float, count: int) -> float:
    """Return the confidence level of the intervals of draws that together make one interval of a level."""
    asked = confidence(confidence_level)
    return asked if count == 1 else 1 - (1 - asked) * share_of_each(count)


def combined_log_pvalue(logs: Sequence[float]) -> float:
    """Return the log of the p-value of draws, given those of their p-values."""
    return min(0.0, sorted(logs)[rank_of(len(logs)) - 1] - math.log(share_of_each(len(logs))))


def combined_bounds(bounds: Sequence[tuple[float, float]], count: int) -> tuple[float, float]:
    """Return the logs of the bounds on the p-value of draws, given those of some draws; the others may be anything."""
    every = [*bounds, *[UNKNOWN] * (count - len(bounds))]
    low, high = (combined_log_pvalue(ends) for ends in zip(*every, strict=True))
    return low, high


def combined_logs(draws: Sequence[HasPvalue], count: int) -> dict[str, Any]:
    """Return the log of the p-value of draws and its bounds, by name; of so many draws some may be missing."""
    low, high = combined_bounds([draw.log_pvalue_bounds for draw in draws], count)
    best = combined_log_pvalue([draw.log_pvalue for draw in draws])
    return {"log_pvalue": min(max(best, low), high), "log_pvalue_bounds": (low, high)}


def deciding_draw(logs: Sequence[float]) -> int:
    """Return the place of the draw whose p-value is the one that is multiplied."""
    return int(np.argsort(logs, kind="stable")[rank_of(len(logs)) - 1])


def estimates_of_draws(groups: Sequence[Sequence[Inference]]) -> Estimates:
    """Return the estimate (k,) of each group of draws, with bounds: the median of theirs."""
    values = np.array(estimates_of([draw for draws in groups for draw in draws]))
    if values.shape[1] == len(groups):  # one draw each
        return Estimates(*values)
    ends = np.cumsum([len(draws) for draws in groups])[:-1]
    best, low, high = (np.array([np.median(part) for part in np.split(row, ends)]) for row in values)
    return Estimates(best, low, high)


def intervals_of_draws(
    groups: Sequence[Sequence[Inference]], confidence_levels: Sequence[float]
) -> list[ConfidenceInterval]:
    """Return one interval of each group of draws: from the median of the draws' lower ends to that of their upper ends.

    A value that it leaves out on one side is left out there by more than half of the m intervals, at least by k, each
    of a level at which that happens with the probability alpha k / (2 m). So it covers a difference that the regions
    have in common with the probability asked for (majority vote: Gasparin and Ramdas 2024, *Merging uncertainty sets
    via majority vote*). Of an even number of draws the medians are the outer ones, so that low is never above high.
    """
    each = [level_of_each_draw(level, len(draws)) for draws, level in zip(groups, confidence_levels, strict=True)]
    levels = [level for draws, level in zip(groups, each, strict=True) for _ in draws]
    found = iter(confidence_intervals_of([draw for draws in groups for draw in draws], levels))
    return [
        _merged([next(found) for _ in draws], level) for draws, level in zip(groups, confidence_levels, strict=True)
    ]


def _merged(intervals: Sequence[ConfidenceInterval], level: float) -> ConfidenceInterval:
    if len(intervals) == 1:
        return intervals[0]
    place = (len(intervals) - 1) // 2  # of an even number the outer one in the middle: low is never above high

    def end(lows: list[float]) -> float:
        return sorted(lows)[place]

    low, high = end([interval.low for interval in intervals]), -end([-interval.high for interval in intervals])
    errors = (
        end([interval.low + interval.error for interval in intervals]) - low,
        high + end([interval.error - interval.high for interval in intervals]),
    )
    error = max((error for error in errors if math.isfinite(error)), default=0.0)
    return ConfidenceInterval(low=low, high=high, confidence_level=level, error=max(0.0, error))


def frequency_of(draws: Sequence[Draw]) -> NDArray[np.float64]:
    """Return the share of draws (H, W) whose region contains a pixel."""
    total = np.zeros(draws[0].region.shape)
    for draw in draws:
        total += draw.region
    return total / len(draws)


def draw_columns(draws: Sequence[Draw]) -> dict[str, list[float]]:
    """Return the values of ``COLUMNS``, a list of each."""
    rows = [
        (draw.statistic, float(draw.law.z_obs[0]), law_values(draw.law)["gamma"], draw.standard_error) for draw in draws
    ]
    return dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))


def draws_values(draws: Sequence[Draw], confidence_level: float | None) -> dict[str, Any]:
    """Return the numbers of draws for a record, JSON-ready but for infinite ones: lists with a value for each."""
    level = None if confidence_level is None else level_of_each_draw(confidence_level, len(draws))
    intervals = [] if level is None else [list(ends) for ends in confidence_intervals_of(list(draws), level)]
    return {
        "log_pvalue": [draw.log_pvalue for draw in draws],
        "log_pvalue_bounds": [list(draw.log_pvalue_bounds) for draw in draws],
        **draw_columns(draws),
        "estimate": estimates_of(list(draws)).best.tolist(),
        "confidence_level": level,
        "confidence_interval": intervals,
        "region_pixels": [int(draw.region.sum()) for draw in draws],
        "majority_pixels": int((frequency_of(draws) > MAJORITY).sum()),
    }
