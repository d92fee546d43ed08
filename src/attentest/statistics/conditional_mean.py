"""The mean of a statistic that was observed because its image fell into a truncation set.

P(T >= t) given the set increases with the mean of T from 0 to 1, whatever the set (monotone likelihood ratio). So each
level belongs to one mean, and a set that is known only in part gives bounds on that mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logit

from attentest.errors import InputError
from attentest.statistics.intervals import Intervals
from attentest.statistics.law import Law
from attentest.statistics.unions import Unions

FARTHEST = 1e12
"""A mean farther than this from the observed statistic is reported as infinite."""

RTOL = 1e-13
"""Relative accuracy of the distance between a mean and the statistic. With another part of the set far away, a mean
that is off by one part in 10,000 can change the probability from 0.025 to 0.1."""

ROUNDING = 1e-12
"""Log odds that differ by less than this are equal."""

MOST_STEPS = 200
"""Upper limit on the steps of the root finder; bisection alone takes fewer."""

WIDENED = 4.0
"""Where a root is not between two points, the next point is this many times their distance farther."""

NEXT_POINT = 0.05
"""Distance from the point where a root is expected to the next point that is tried, relative to its size."""

MOST_TOGETHER = 2_000_000
"""Intervals that are processed at a time, to bound memory."""


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
    levels : (..., k)
        Strictly between 0 and 1; 0.5 gives the median-unbiased estimate.

    Returns
    -------
    least, greatest : (..., k)
        Infinite where all of the certain set lies on one side of t.
    """
    levels = np.asarray(levels, dtype=np.float64)
    levels = np.broadcast_to(levels, np.broadcast_shapes(levels.shape, law.statistic.shape))
    image = np.broadcast_to(np.arange(len(law)), levels.shape).ravel()
    inner, outer = Unions.of(certain).chosen(image), Unions.of(possible).chosen(image)
    means = mean_roots(
        law,
        np.tile(image, 2),
        np.tile(levels.ravel(), 2),
        above=Unions.stacked([outer, inner]),
        below=Unions.stacked([inner, outer]),
        undetermined=np.repeat([-np.inf, np.inf], len(image)),
    )
    least, greatest = means.reshape(2, *levels.shape)
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
    return mean_roots(law, np.arange(len(law)), levels, Unions.of(above), Unions.of(below), undetermined)


def mean_roots(
    law: Law,
    image: NDArray[np.int64],
    levels: NDArray[np.float64],
    above: Unions,
    below: Unions,
    undetermined: ArrayLike = np.nan,
    *,
    start: NDArray[np.float64] | None = None,
    log_odds_error: float = ROUNDING,
) -> NDArray[np.float64]:
    """Return the means (m,) at which P(T >= t) equals the levels (m,), for any number of questions about each image.

    Parameters
    ----------
    law
        The law of k statistics t.
    image : (m,)
        Indices of images.
    levels : (m,)
        Between 0 and 1.
    above, below : (m,)
        The sets that the masses of T >= t, and of T < t, are taken from.
    undetermined : (m,)
        What to return where neither has any mass.
    start : (m,)
        Where the means are expected, to save steps.
    log_odds_error
        How far off the log odds of P(T >= t) may be.
    """
    if not np.all((levels > 0) & (levels < 1)):
        raise InputError(f"a level must lie strictly between 0 and 1, got {levels.tolist()}.")
    t = law.statistic[image]
    # An interval without mass on its side of t at one mean has none at any, and is left out. With an estimated standard
    # error the support of the law depends on the mean, but with a known one it does not.
    known = law.with_known_error()
    no_distance = np.zeros(len(t))
    above = above.where(_log_masses(known, image, above, no_distance)[0] > -np.inf)
    below = below.where(_log_masses(known, image, below, no_distance)[1] > -np.inf)
    means = np.select([above.count > 0, below.count > 0], [-np.inf, np.inf], undetermined)
    both = np.flatnonzero((above.count > 0) & (below.count > 0))
    chunk = np.cumsum((above.count + below.count)[both]) // MOST_TOGETHER
    for rows in (both[chunk == number] for number in np.unique(chunk)):
        excess = partial(
            _excess_log_odds, law, image[rows], logit(levels[rows]), above.chosen(rows), below.chosen(rows)
        )
        expected = None if start is None else (start - t)[rows]
        distance = increasing_roots(excess, len(rows), start=expected, close=log_odds_error)
        means[rows] = np.where(np.abs(distance) < FARTHEST, t[rows] + distance, np.copysign(np.inf, distance))
    return means


def _excess_log_odds(
    law: Law,
    image: NDArray[np.int64],
    log_odds: NDArray[np.float64],
    above: Unions,
    below: Unions,
    rows: NDArray[np.int64],
    distance: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return how far the log odds of T >= t exceed others, for some rows (q,) if the means are t + distance (q,)."""
    if len(rows) != len(image) or not np.array_equal(rows, np.arange(len(image))):
        image, log_odds, above, below = image[rows], log_odds[rows], above.chosen(rows), below.chosen(rows)
    extreme, ordinary = _log_masses(law, np.tile(image, 2), Unions.stacked([above, below]), np.tile(distance, 2))
    split = len(above.left)
    odds = _log_sums(extreme[:split], above.count) - _log_sums(ordinary[split:], below.count)
    return np.asarray(odds - log_odds)


def _log_masses(
    law: Law, image: NDArray[np.int64], unions: Unions, distance: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the log masses (n,) of T >= t and of T < t in the intervals of unions (m,) if the means are t + distance.

    ``image`` and ``distance`` (m,) belong to the unions.
    """
    owner = unions.owner
    which = image[owner]
    t = law.statistic[which]
    return law.log_masses(which, unions.left, unions.right, mean=t + distance[owner], lower=-np.inf, upper=t)


def _log_sums(logs: NDArray[np.float64], count: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the logs (m,) of sums of exp(logs), of which each takes the next few (m,), one at least."""
    first = np.cumsum(count) - count
    greatest = np.maximum.reduceat(logs, first)
    shift = np.where(np.isneginf(greatest), 0.0, greatest)
    with np.errstate(divide="ignore"):
        return np.asarray(shift + np.log(np.add.reduceat(np.exp(logs - np.repeat(shift, count)), first)))


def increasing_roots(
    function: Callable[[NDArray[np.int64], NDArray[np.float64]], NDArray[np.float64]],
    count: int,
    *,
    start: NDArray[np.float64] | None = None,
    close: float = ROUNDING,
) -> NDArray[np.float64]:
    """Return the roots (count,) of increasing functions, by false position; infinite beyond ``FARTHEST``.

    SciPy's elementwise root finders are more general and take longer than the functions here.

    Parameters
    ----------
    function
        Maps indices of functions (m,) and points (m,) to values (m,).
    count
        The number of functions.
    start : (count,)
        Where roots are expected.
    close
        A point with a value no greater than this is a root.
    """
    everyone = np.arange(count)
    if start is None:
        low, high = np.full(count, -1.0), np.full(count, 1.0)
        # One call for both ends: a call costs far more than a row.
        at_low, at_high = np.split(function(np.tile(everyone, 2), np.concatenate([low, high])), 2)
    else:
        low, at_low = start.copy(), function(everyone, start)
        high, at_high = low.copy(), at_low.copy()
        rows = np.flatnonzero(np.abs(at_low) > close)
        ahead = np.where(at_low[rows] < 0, 1.0, -1.0) * NEXT_POINT * np.maximum(np.abs(start[rows]), 1.0)
        value = function(rows, start[rows] + ahead)
        up, down = rows[ahead > 0], rows[ahead < 0]
        high[up], at_high[up] = (start[rows] + ahead)[ahead > 0], value[ahead > 0]
        low[down], at_low[down] = (start[rows] + ahead)[ahead < 0], value[ahead < 0]
    while True:
        down = np.flatnonzero((at_low > close) & (low > -FARTHEST))
        up = np.flatnonzero((at_high < -close) & (high < FARTHEST))
        if len(down) + len(up) == 0:
            break
        step = WIDENED * (high - low)
        high[down], at_high[down] = low[down], at_low[down]
        low[up], at_low[up] = high[up], at_high[up]
        low[down] -= step[down]
        high[up] += step[up]
        outer = function(np.concatenate([down, up]), np.concatenate([low[down], high[up]]))
        at_low[down], at_high[up] = np.split(outer, [len(down)])
    nowhere = np.where(at_low > close, -np.inf, np.where(at_high < -close, np.inf, np.nan))
    # An end that is a root already is both ends.
    low, high = np.where(np.abs(at_high) <= close, high, low), np.where(np.abs(at_low) <= close, low, high)
    before_low, before_high = (low.copy(), at_low.copy()), (high.copy(), at_high.copy())
    for step in range(MOST_STEPS):
        wide = (high - low > RTOL * np.maximum(np.abs(low), np.abs(high))) & np.isnan(nowhere)
        rows = np.flatnonzero(wide)
        if len(rows) == 0:
            break
        left, right, below, above = low[rows], high[rows], at_low[rows], at_high[rows]
        # A scale that is linear next to zero and a log beyond: far from a root the log odds fall like a parabola.
        secant = _crossing(left, np.arcsinh(below), right, np.arcsinh(above))
        if step % 2:
            # Functions that are steep on one side of the root and flat on the other are straight on the steep one.
            lower_line = _crossing(left, below, *(column[rows] for column in before_low))
            upper_line = _crossing(right, above, *(column[rows] for column in before_high))
            for line in (upper_line, lower_line):
                secant = np.where((line > left) & (line < right), line, secant)
        # Every fourth step halves, so that one end cannot stay where it is for long.
        sensible = (secant > left) & (secant < right) & (step % 4 != 2)
        tried = np.where(sensible, secant, (left + right) / 2)
        value = function(rows, tried)
        lower = value <= 0
        found = np.abs(value) <= close
        for which, columns, ends in ((lower, before_low, (left, below)), (~lower, before_high, (right, above))):
            for column, end in zip(columns, ends, strict=True):
                column[rows[which]] = end[which]
        low[rows], high[rows] = np.where(lower | found, tried, left), np.where(lower & ~found, right, tried)
        at_low[rows], at_high[rows] = np.where(lower, value, below), np.where(lower, above, value)
    return np.where(np.isnan(nowhere), (low + high) / 2, nowhere)


def _crossing(
    x: NDArray[np.float64], value: NDArray[np.float64], other_x: NDArray[np.float64], other_value: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return where the lines through two points (m,) each are zero; not a number where the points are one."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(x - value * ((other_x - x) / (other_value - value)))
