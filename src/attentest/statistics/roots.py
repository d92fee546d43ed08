"""Roots of many increasing functions at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

FARTHEST = 1e12
"""A root farther from zero than this is reported as infinite."""

RTOL = 1e-13
"""Relative accuracy of a root. Where the root is the mean of a truncated statistic, and another part of the truncation
set is far away, a mean that is off by one part in 10,000 can change a probability from 0.025 to 0.1."""

ROUNDING = 1e-12
"""Values that are no greater than this are zero: those of log odds are not known any better."""

MOST_STEPS = 200
"""Upper limit on the steps of the root finder; bisection alone takes fewer."""

WIDENED = 4.0
"""Where a root is not between two points, the next point is this many times their distance farther."""


def newton_roots(
    function: Callable[[NDArray[np.int64], NDArray[np.float64]], tuple[NDArray[np.float64], NDArray[np.float64]]],
    start: NDArray[np.float64],
    *,
    close: float = ROUNDING,
    between: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
    last_step: ArrayLike = 0.0,
) -> NDArray[np.float64]:
    """Return the roots (count,) of increasing functions with slopes, by Newton's method; infinite beyond ``FARTHEST``.

    Where a step leaves the interval that holds the root, or the last one has not halved the value, the interval is
    halved.

    Parameters
    ----------
    function
        Maps indices of functions (m,) and points (m,) to values (m,) and slopes (m,). Slopes that are off cost steps,
        not accuracy. A function without a value at some point has no root: not a number is returned.
    start : (count,)
        Where roots are expected.
    close
        A point with a value no greater than this is a root.
    between : (count,), (count,)
        Points between which the roots are known to lie, if they are. Functions are not asked for their values there.
    last_step : (count,)
        After a step no longer than this a root is taken to be found.
    """
    roots = start.copy()
    rows, at, last_value = np.arange(len(start)), start, np.full(len(start), np.inf)
    last_step = np.broadcast_to(last_step, len(start))
    low, high = between or (np.full(len(start), -np.inf), np.full(len(start), np.inf))
    for _ in range(MOST_STEPS):
        if len(rows) == 0:
            break
        value, slope = function(rows, at)
        low, high = np.where(value <= 0, at, low), np.where(value >= 0, at, high)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            tried = at - value / slope
            sensible = (tried > low) & (tried < high) & ~(value / last_value > 0.5)
            wider = at - np.sign(value) * WIDENED * np.maximum(np.abs(at), 1.0)
            tried = np.where(sensible, tried, np.where(np.isinf(high - low), wider, (low + high) / 2))
        tried = np.minimum(np.maximum(tried, -FARTHEST), FARTHEST)
        found = np.abs(value) <= close
        roots[rows] = np.where(found, at, tried)
        least = np.maximum(last_step[rows], RTOL * np.maximum(np.abs(at), np.abs(tried)))
        going_on = ~found & (np.abs(tried - at) > least)
        rows, last_value = rows[going_on], value[going_on]
        at, low, high = (column[going_on] for column in (tried, low, high))
    return np.where(np.abs(roots) >= FARTHEST, np.copysign(np.inf, roots), roots)


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
    everyone = np.arange(count)
    low, high = np.full(count, -1.0), np.full(count, 1.0)
    # One call for both ends: a call costs far more than a row.
    at_low, at_high = np.split(function(np.tile(everyone, 2), np.concatenate([low, high])), 2)
    while True:
        down = np.flatnonzero((at_low > ROUNDING) & (low > -FARTHEST))
        up = np.flatnonzero((at_high < -ROUNDING) & (high < FARTHEST))
        if len(down) + len(up) == 0:
            break
        step = WIDENED * (high - low)
        high[down], at_high[down] = low[down], at_low[down]
        low[up], at_low[up] = high[up], at_high[up]
        low[down] -= step[down]
        high[up] += step[up]
        outer = function(np.concatenate([down, up]), np.concatenate([low[down], high[up]]))
        at_low[down], at_high[up] = np.split(outer, [len(down)])
    nowhere = np.where(at_low > ROUNDING, -np.inf, np.where(at_high < -ROUNDING, np.inf, np.nan))
    # An end that is a root already is both ends.
    low, high = np.where(np.abs(at_high) <= ROUNDING, high, low), np.where(np.abs(at_low) <= ROUNDING, low, high)
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
        found = np.abs(value) <= ROUNDING
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
