"""The mean of a normal variable that was seen only because it fell into a truncation set: the pivot, inverted.

P(Z >= z) for Z ~ N(mean, 1) given that Z lies in the set rises with the mean, from 0 to 1, whatever the set: what lies
above z gains on what lies below. So each level belongs to one mean, and a set that is known only in part gives bounds
on it. All masses are relative to the density at z and in logs: a mean a million standard errors away costs no accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logit

from attentest.errors import InputError
from attentest.statistics.intervals import Intervals, clip
from attentest.statistics.truncated_normal import log_mass

FARTHEST = 1e12
"""A mean farther than this from the observed value is reported as infinite."""

RTOL = 1e-13
"""Relative accuracy of the distance of a mean from z. With another part of the set far away, a mean that is off by one
part in 10,000 can change the probability from 0.025 to 0.1."""

ROUNDING = 1e-12
"""Log odds closer than this are equal."""

MOST_STEPS = 200
"""More than halving alone takes."""

MOST_TOGETHER = 2_000_000
"""Ends of intervals that are measured at a time, for memory."""


def mean_bounds(
    z: ArrayLike, certain: Sequence[Intervals], possible: Sequence[Intervals], levels: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the least and the greatest mean at which P(Z >= z) has a level, over all sets between two.

    Parameters
    ----------
    z : (q,)
        Observed values.
    certain, possible : q unions of intervals
        What is known to be in each truncation set, and what is not known to be outside it.
    levels : (q,)
        Strictly between 0 and 1; 0.5 gives the median-unbiased estimate.

    Returns
    -------
    least, greatest : (q,)
        Infinite where the set leaves nothing to tell by: nothing of it, for certain, on one side of z.
    """
    observed, levels = np.broadcast_arrays(np.asarray(z, dtype=np.float64), np.asarray(levels, dtype=np.float64))
    least = means_at(observed, levels, above=possible, below=certain, undetermined=-np.inf)
    greatest = means_at(observed, levels, above=certain, below=possible, undetermined=np.inf)
    return least, np.maximum(least, greatest)  # where both are one mean rounding can swap them


def means_at(
    z: NDArray[np.float64],
    levels: NDArray[np.float64],
    above: Sequence[Intervals],
    below: Sequence[Intervals],
    undetermined: float = np.nan,
) -> NDArray[np.float64]:
    """Return the means (q,) at which P(Z >= z) has the levels (q,).

    Parameters
    ----------
    z, levels : (q,)
        Observed values, and levels between 0 and 1.
    above, below : q unions of intervals
        The sets, of which the part above z, and that below z, is used.
    undetermined
        What to return where both parts are empty.
    """
    if not np.all((levels > 0) & (levels < 1)):
        raise InputError(f"a level must lie strictly between 0 and 1, got {levels.tolist()}.")
    upper = _relative([clip(intervals, at, np.inf) for at, intervals in zip(z, above, strict=True)], z)
    lower = _relative([clip(intervals, -np.inf, at) for at, intervals in zip(z, below, strict=True)], z)
    some_above, some_below = (np.any(part[..., 0] < part[..., 1], axis=1) for part in (upper, lower))
    means = np.select([some_above, some_below], [-np.inf, np.inf], undetermined)
    both = np.flatnonzero(some_above & some_below)
    together = max(1, MOST_TOGETHER // (upper.shape[1] + lower.shape[1]))
    for start in range(0, len(both), together):
        rows = both[start : start + together]
        tilt = _tilts(logit(levels[rows]), upper[rows], lower[rows])
        means[rows] = np.where(np.abs(tilt) < FARTHEST, z[rows] + tilt, np.copysign(np.inf, tilt))
    return means


def _relative(sets: Sequence[Intervals], z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return unions of intervals (q, m, 2) relative to z; where there are fewer than m, nothing follows."""
    most = max(1, *(len(intervals) for intervals in sets)) if sets else 1
    relative = np.zeros((len(sets), most, 2))
    for row, (intervals, at) in enumerate(zip(sets, z, strict=True)):
        relative[row, : len(intervals)] = intervals - at
    return relative


def _tilts(odds: NDArray[np.float64], above: NDArray[np.float64], below: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return mean minus z (m,) at which the masses above and below z (m, n, 2) have the given log odds (m,)."""
    ends = np.concatenate([above, below], axis=1)
    split = above.shape[1]

    def excess(rows: NDArray[np.int64], tilt: NDArray[np.float64]) -> NDArray[np.float64]:
        masses = log_mass(ends[rows, :, 0], ends[rows, :, 1], tilt[:, None], relative_to=0.0)
        return _log_sum(masses[:, :split]) - _log_sum(masses[:, split:]) - odds[rows]

    return _increasing_roots(excess, len(odds))


def _log_sum(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log sum exp along the last axis: SciPy's takes ten times as long for so few."""
    greatest = logs.max(axis=1)
    return np.asarray(greatest + np.log(np.exp(logs - greatest[:, None]).sum(axis=1)))


def _increasing_roots(
    function: Callable[[NDArray[np.int64], NDArray[np.float64]], NDArray[np.float64]], count: int
) -> NDArray[np.float64]:
    """Return the roots (count,) of increasing functions, by false position; infinite beyond ``FARTHEST``.

    SciPy's elementwise root finders are general, and take longer than the functions here.

    Parameters
    ----------
    function
        From numbers of functions (m,) and points (m,) to values (m,).
    count
        How many functions there are.
    """
    everyone = np.arange(count)
    low, high = np.full(count, -1.0), np.full(count, 1.0)
    at_low, at_high = function(everyone, low), function(everyone, high)
    while True:
        down = np.flatnonzero((at_low > 0) & (low > -FARTHEST))
        up = np.flatnonzero((at_high < 0) & (high < FARTHEST))
        if len(down) + len(up) == 0:
            break
        high[down], at_high[down] = low[down], at_low[down]
        low[down] *= 4
        at_low[down] = function(down, low[down])
        low[up], at_low[up] = high[up], at_high[up]
        high[up] *= 4
        at_high[up] = function(up, high[up])
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
        # Every sixth step halves, so that one end cannot stay where it is for long.
        sensible = (secant > left) & (secant < right) & (step % 6 != 5)
        tried = np.where(sensible, secant, (left + right) / 2)
        value = function(rows, tried)
        lower = value <= 0
        found = np.abs(value) < ROUNDING
        low[rows] = np.where(lower | found, tried, left)
        high[rows] = np.where(lower & ~found, right, tried)
        # An end that stays twice in a row counts half from then on (the Illinois rule).
        share = np.where(lower == came_lower[rows], 0.5, 1.0)
        at_low[rows], at_high[rows] = np.where(lower, value, below * share), np.where(lower, above * share, value)
        came_lower[rows] = lower
    return np.where(np.isnan(nowhere), (low + high) / 2, nowhere)
