"""How many null hypotheses a valid test rejects at most, by chance, at several significance levels together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import fft, stats

ROUNDING = 1e-9
"""Relative rounding error of a binomial tail, so that one that equals a bound counts as equal to it."""


def rejection_limits(alphas: Sequence[float], total: int, error_rate: float) -> tuple[int, ...]:
    """Return for each level the greatest number of rejections that is compatible with a valid test.

    A valid test rejects a true hypothesis with probability at most alpha. With independent p-values the probability
    that it exceeds the limit at one level or more is at most ``error_rate``, for every number of p-values. The limits
    are binomial quantiles that all leave the same probability above them, as large as the joint distribution of the
    counts permits; only because counts are whole numbers the error rate can be below the one asked for.

    Parameters
    ----------
    alphas
        Significance levels, in any order.
    total
        Number of p-values.
    error_rate
        Probability, at most, that a valid test exceeds a limit.
    """
    levels, places = np.unique(np.array(alphas, dtype=np.float64), return_inverse=True)
    safe = error_rate / len(levels)  # Bonferroni
    most, fewest = (stats.binom.isf(tail, total, levels) for tail in (safe, error_rate))
    tails = [
        stats.binom.sf(np.arange(low, high + 1), total, p) for low, high, p in zip(fewest, most, levels, strict=True)
    ]
    candidates = np.unique(np.concatenate([[safe], *tails]))
    candidates = candidates[candidates >= safe]

    def limits(tail: float) -> NDArray[np.float64]:
        return np.asarray(stats.binom.isf(tail * (1 + ROUNDING), total, levels))

    allowed = bisect_right(candidates, error_rate, key=lambda tail: exceeding(limits(tail), levels, total))
    found = limits(candidates[max(allowed - 1, 0)])
    return tuple(int(found[place]) for place in places)


def exceeding(limits: NDArray[np.float64], levels: NDArray[np.float64], total: int) -> float:
    """Return the probability that uniform p-values exceed a limit: that more than limits[j] are at most levels[j].

    The numbers of p-values between neighbouring levels are multinomial: independent Poisson numbers, given their sum.

    Parameters
    ----------
    limits, levels : (k,)
        Limits, and ascending levels.
    total
        Number of p-values.
    """
    within = np.ones(1)  # probabilities of the counts so far, none of which exceeds its limit
    for limit, share in zip(limits, np.diff(levels, prepend=0.0), strict=True):
        added = stats.poisson.pmf(np.arange(limit + 1), total * share)
        within = _convolved(within, added)[: len(added)]
    rest = stats.poisson.pmf(total - np.arange(len(within)), total * (1 - levels[-1]))
    return float(1 - within @ rest / stats.poisson.pmf(total, total))


def _convolved(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    size = fft.next_fast_len(len(first) + len(second) - 1, real=True)
    return np.asarray(fft.irfft(fft.rfft(first, size) * fft.rfft(second, size), size))
