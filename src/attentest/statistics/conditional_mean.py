"""The mean of a statistic that was observed because its image fell into a truncation set.

P(T >= t) given the set increases with the mean of T from 0 to 1, whatever the set (monotone likelihood ratio). So each
level belongs to one mean, and a set that is known only in part gives bounds on that mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logit

from attentest.errors import InputError
from attentest.statistics.intervals import Intervals
from attentest.statistics.law import Law

FARTHEST = 1e12
"""A mean farther than this from the observed statistic is reported as infinite."""

RTOL = 1e-13
"""Relative accuracy of the distance between a mean and the statistic. With another part of the set far away, a mean
that is off by one part in 10,000 can change the probability from 0.025 to 0.1."""

ROUNDING = 1e-12
"""Log odds that differ by less than this are equal."""

MOST_STEPS = 200
"""Upper limit on the steps of the root finder; bisection alone takes fewer."""

LogMasses: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]

MOST_TOGETHER = 2_000_000
"""Interval ends that are processed at a time, to bound memory."""


def mean_bounds(
    law: Law, certain: Sequence[Intervals], possible: Sequence[Intervals], levels: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the least and the greatest mean at which P(T >= t) equals a level, over all sets between two.

    Parameters
    ----------
    law
        The law of k statistics t.
    certain, possible : k unions of intervals
        A subset and a superset of each truncation set.
    levels : (k,)
        Strictly between 0 and 1; 0.5 gives the median-unbiased estimate.

    Returns
    -------
    least, greatest : (k,)
        Infinite where all of the certain set lies on one side of t.
    """
    levels = np.broadcast_to(np.asarray(levels, dtype=np.float64), law.statistic.shape)
    least = means_at(law, levels, above=possible, below=certain, undetermined=-np.inf)
    greatest = means_at(law, levels, above=certain, below=possible, undetermined=np.inf)
    return least, np.maximum(least, greatest)  # where both are one mean, rounding can swap them


def means_at(
    law: Law,
    levels: NDArray[np.float64],
    above: Sequence[Intervals],
    below: Sequence[Intervals],
    undetermined: float = np.nan,
) -> NDArray[np.float64]:
    """Return the means (k,) at which P(T >= t) equals the levels (k,).

    Parameters
    ----------
    law
        The law of k statistics t.
    levels : (k,)
        Between 0 and 1.
    above, below : k unions of intervals
        The sets that the masses of T >= t, and of T < t, are taken from.
    undetermined
        What to return where neither has any mass.
    """
    if not np.all((levels > 0) & (levels < 1)):
        raise InputError(f"a level must lie strictly between 0 and 1, got {levels.tolist()}.")
    t = law.statistic
    image = np.arange(len(t))[:, None]

    def log_masses(
        rows: NDArray[np.int64], mean: NDArray[np.float64], ends: NDArray[np.float64], law: Law = law
    ) -> LogMasses:
        return law.log_masses(
            image[rows], ends[..., 0], ends[..., 1], mean=mean[:, None], lower=-np.inf, upper=t[rows][:, None]
        )

    # An interval without mass on its side of t at one mean has none at any, and is left out. With an estimated standard
    # error the support of the law depends on the mean, but with a known one it does not.
    everyone, known = np.arange(len(t)), law.with_known_error()
    upper, lower = padded(above), padded(below)
    upper = _nonempty_first(upper, log_masses(everyone, t, upper, known)[0])
    lower = _nonempty_first(lower, log_masses(everyone, t, lower, known)[1])
    some_above, some_below = (np.any(part[..., 0] < part[..., 1], axis=1) for part in (upper, lower))
    means = np.select([some_above, some_below], [-np.inf, np.inf], undetermined)
    both = np.flatnonzero(some_above & some_below)
    together = max(1, MOST_TOGETHER // (upper.shape[1] + lower.shape[1]))
    for start in range(0, len(both), together):
        rows = both[start : start + together]
        odds = logit(levels[rows])
        ends = np.concatenate([upper[rows], lower[rows]], axis=1)

        def excess(
            some: NDArray[np.int64],
            distance: NDArray[np.float64],
            rows: NDArray[np.int64] = rows,
            odds: NDArray[np.float64] = odds,
            ends: NDArray[np.float64] = ends,
        ) -> NDArray[np.float64]:
            extreme, ordinary = log_masses(rows[some], t[rows[some]] + distance, ends[some])
            split = upper.shape[1]
            # Linear next to the root, and a log beyond: far from it the log odds fall like a parabola.
            return np.arcsinh(_log_sum(extreme[:, :split]) - _log_sum(ordinary[:, split:]) - odds[some])

        distance = increasing_roots(excess, len(rows))
        means[rows] = np.where(np.abs(distance) < FARTHEST, t[rows] + distance, np.copysign(np.inf, distance))
    return means


def padded(sets: Sequence[Intervals]) -> NDArray[np.float64]:
    """Return unions of intervals as one array (k, n, 2), padded with intervals without width."""
    most = max((len(intervals) for intervals in sets), default=0)
    padded = np.zeros((len(sets), max(1, most), 2))
    for row, intervals in enumerate(sets):
        padded[row, : len(intervals)] = intervals
    return padded


def _nonempty_first(ends: NDArray[np.float64], log_mass: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return intervals (k, n, 2) without those of zero mass, padded as before."""
    some = log_mass > -np.inf
    most = max(1, int(some.sum(axis=1).max(initial=0)))
    order = np.argsort(~some, axis=1, kind="stable")[:, :most, None]
    return np.where(np.take_along_axis(some[..., None], order, axis=1), np.take_along_axis(ends, order, axis=1), 0.0)


def _log_sum(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log sum exp along the last axis: SciPy's takes ten times as long for so few."""
    greatest = logs.max(axis=1)
    shift = np.where(np.isneginf(greatest), 0.0, greatest)
    with np.errstate(divide="ignore"):
        return np.asarray(shift + np.log(np.exp(logs - shift[:, None]).sum(axis=1)))


def increasing_roots(
    function: Callable[[NDArray[np.int64], NDArray[np.float64]], NDArray[np.float64]], count: int
) -> NDArray[np.float64]:
    """Return the roots (count,) of increasing functions, by false position; infinite beyond ``FARTHEST``.

    SciPy's elementwise root finders are more general and take longer than the functions here.

    Parameters
    ----------
    function
        Maps indices of functions (m,) and points (m,) to values (m,).
    count
        The number of functions.
    """
    low, high = np.full(count, -1.0), np.full(count, 1.0)
    # One call for both ends: a call costs far more than a row.
    at_low, at_high = np.split(function(np.tile(np.arange(count), 2), np.concatenate([low, high])), 2)
    while True:
        down = np.flatnonzero((at_low > 0) & (low > -FARTHEST))
        up = np.flatnonzero((at_high < 0) & (high < FARTHEST))
        if len(down) + len(up) == 0:
            break
        high[down], at_high[down] = low[down], at_low[down]
        low[up], at_low[up] = high[up], at_high[up]
        low[down] *= 4
        high[up] *= 4
        outer = function(np.concatenate([down, up]), np.concatenate([low[down], high[up]]))
        at_low[down], at_high[up] = np.split(outer, [len(down)])
    nowhere = np.where(at_low > 0, -np.inf, np.where(at_high < 0, np.inf, np.nan))
    came_lower = np.full(count, 2)  # neither, before the first step
    for step in range(MOST_STEPS):
        wide = (high - low > RTOL * np.maximum(np.abs(low), np.abs(high))) & np.isnan(nowhere)
        rows = np.flatnonzero(wide)
        if len(rows) == 0:
            break
        left, right, below, above = low[rows], high[rows], at_low[rows], at_high[rows]
        with np.errstate(invalid="ignore", divide="ignore"):
            secant = left - below * (right - left) / (above - below)
        # Every eighth step halves, so that one end cannot stay where it is for long.
        sensible = (secant > left) & (secant < right) & (step % 8 != 7)
        tried = np.where(sensible, secant, (left + right) / 2)
        value = function(rows, tried)
        lower = value <= 0
        found = np.abs(value) < ROUNDING
        low[rows] = np.where(lower | found, tried, left)
        high[rows] = np.where(lower & ~found, right, tried)
        # An end that stays twice in a row counts less from then on (the rule of Anderson and Bjorck).
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = value / np.where(lower, below, above)
        share = np.where(lower == came_lower[rows], np.where(ratio < 1, 1 - ratio, 0.5), 1.0)
        at_low[rows], at_high[rows] = np.where(lower, value, below * share), np.where(lower, above * share, value)
        came_lower[rows] = lower
    return np.where(np.isnan(nowhere), (low + high) / 2, nowhere)
