"""Selective p-values of k images, with bounds where their truncation sets are known only in part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attentest.statistics.alternative import Tails, ordinary_range
from attentest.statistics.intervals import Intervals
from attentest.statistics.law import Law
from attentest.statistics.log_probability import log_share, log_sums, log_twice_the_smaller
from attentest.statistics.truncation_set import TruncationSet

LogMasses: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Log masses (k,) of what is at least as extreme as the observed statistics, and of the rest."""


class LogPvalues(NamedTuple):
    """Logs of p-values (k,), and of the least and the greatest that are compatible with what is known of the sets."""

    best: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def log_pvalues(law: Law, sets: Sequence[TruncationSet], alternative: Tails) -> LogPvalues:
    """Return the selective p-values of k images with truncation sets, for the hypothesis that T has mean zero.

    "two-sided" is P(abs(T) >= abs(t) given the set), as in the paper; "greater" and "less" are its two one-sided
    counterparts, and "equal-tailed" is twice the smaller of these, or 1 if that is less.
    """
    found = _log_masses_of_sets(law, [known.intervals for known in sets], alternative)
    certain = _log_masses_of_sets(law, [known.certain for known in sets], alternative)
    possible = _log_masses_of_sets(law, [known.possible for known in sets], alternative)
    best, _ = _bounds(found, found, alternative)
    low, high = _bounds(certain, possible, alternative)
    # Where nothing more extreme was found because nothing there can matter, the upper bound is all that is known.
    return LogPvalues(np.where(np.isneginf(best), high, best), low, high)


def _bounds(
    certain: LogMasses, possible: LogMasses, alternative: Tails
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the logs (k,) of the least and the greatest p-value over all sets between two of known masses."""
    (extreme_certain, rest_certain), (extreme_possible, rest_possible) = certain, possible
    high = log_share(extreme_possible, rest_certain)
    low = np.minimum(log_share(extreme_certain, rest_possible), high)  # for p next to 1 rounding can swap them
    if alternative != "equal-tailed":
        return low, high
    rest_high = log_share(rest_possible, extreme_certain)
    rest_low = np.minimum(log_share(rest_certain, extreme_possible), rest_high)
    return log_twice_the_smaller(low, rest_low), log_twice_the_smaller(high, rest_high)


def decision(low: float, high: float, alpha: float) -> bool | None:
    """Return whether a p-value between two bounds is at most alpha; None if the bounds do not tell."""
    return True if high <= alpha else False if low > alpha else None


def _log_masses_of_sets(law: Law, sets: Sequence[Intervals], alternative: Tails) -> LogMasses:
    image = np.repeat(np.arange(len(sets)), [len(intervals) for intervals in sets])
    left, right = np.concatenate(list(sets)).T
    lower, upper = ordinary_range(law.statistic, alternative)
    extreme, rest = law.log_masses(image, left, right, mean=0.0, lower=lower[image], upper=upper[image])
    return log_sums(image, extreme, len(sets)), log_sums(image, rest, len(sets))
