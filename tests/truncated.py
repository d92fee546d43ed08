"""Statistics of one image under the paper's law, in the form in which tests state them."""

from __future__ import annotations

import numpy as np

from attentest.statistics.alternative import Alternative
from attentest.statistics.inference import ConfidenceInterval, Estimates, Inference, confidence_intervals_of
from attentest.statistics.inference import estimates_of as estimates_of_many
from attentest.statistics.law import Law
from attentest.statistics.pvalue import log_pvalues
from attentest.statistics.selection_laws import TruncatedNormal
from attentest.statistics.truncation_set import Intervals, TruncationSet


def normal(*statistic: float) -> TruncatedNormal:
    """Return the paper's law of some observed statistics."""
    return TruncatedNormal(statistic=np.array(statistic, dtype=np.float64))


def bounds_on_log_p(
    z: float, certain: Intervals, possible: Intervals, alternative: Alternative = "two-sided"
) -> tuple[float, float]:
    found = log_pvalues(normal(z), [known_set(certain, possible)], alternative)
    return float(found.low[0]), float(found.high[0])


def log_pvalue(z: float, intervals: Intervals, alternative: Alternative = "two-sided") -> float:
    return bounds_on_log_p(z, intervals, intervals, alternative)[0]


def known_set(intervals: Intervals, possible: Intervals | None = None) -> TruncationSet:
    return TruncationSet(intervals=intervals, certain=intervals, possible=intervals if possible is None else possible)


def inference(
    law: Law, known: TruncationSet, standard_error: float = 1.0, alternative: Alternative = "two-sided"
) -> Inference:
    return Inference(law=law, truncation_set=known, standard_error=standard_error, alternative=alternative)


def interval_of(
    z: float,
    known: TruncationSet,
    alternative: Alternative = "two-sided",
    level: float = 0.95,
    standard_error: float = 1.0,
) -> ConfidenceInterval:
    (interval,) = confidence_intervals_of([inference(normal(z), known, standard_error, alternative)], level)
    return interval


def estimates_of(z: float, known: TruncationSet) -> Estimates:
    return estimates_of_many([inference(normal(z), known)])


def contains(intervals: Intervals, z: float) -> bool:
    return bool(np.any((intervals[:, 0] <= z) & (z <= intervals[:, 1])))
