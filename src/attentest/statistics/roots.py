"""Roots of many increasing functions at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from attentest.statistics.columns import Floats, Integers

FARTHEST = 1e12  # a root farther from zero than this is reported as infinite

RTOL = 1e-13
"""Relative accuracy of a root. Where the root is the mean of a truncated statistic, and another part of the truncation
set is far away, a mean that is off by one part in 10,000 can change a probability from 0.025 to 0.1."""

ROUNDING = 1e-12  # values that are no greater than this are zero: those of log odds are not known any better
MOST_STEPS = 200  # upper limit on the steps of the root finder; bisection alone takes fewer
WIDENED = 4.0  # where a root is not between two points, the next point is this many times their distance farther

Function: TypeAlias = Callable[[Integers, Floats], tuple[Floats, Floats | None]]
"""Maps indices of functions (m,) and points (m,) to values (m,), and to slopes (m,) or None if they are not known."""


def increasing_roots(
    function: Function,
    start: Floats,
    *,
    close: float = ROUNDING,
    between: tuple[Floats, Floats] | None = None,
    last_step: ArrayLike = 0.0,
) -> Floats:
    """Return the roots (count,) of increasing functions, by Newton's method; infinite beyond ``FARTHEST``.

    Where a step leaves the interval that holds the root, or the last one has not halved the value, the interval is
    halved. Slopes that are not known are those of the line through the last two points. SciPy's elementwise root
    finders are more general and take longer than the functions here.

    Roots are expected at ``start`` (count,), and may be known to lie ``between`` points (count,), where functions are
    not asked for their values. A point with a value no greater than ``close`` is a root, and after a step no longer
    than ``last_step`` (count,) it is taken to be found. Slopes that are off cost steps, not accuracy. A function
    without a value at some point has no root: not a number is returned.
    """
    count = len(start)
    roots = start.copy()
    rows, at, last_at, last_value = np.arange(count), start, np.full(count, np.nan), np.full(count, np.inf)
    last_step = np.broadcast_to(last_step, count)
    low, high = between or (np.full(count, -np.inf), np.full(count, np.inf))
    for _ in range(MOST_STEPS):
        if len(rows) == 0:
            break
        value, slope = function(rows, at)
        low, high = np.where(value <= 0, at, low), np.where(value >= 0, at, high)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            tried = at - value / ((value - last_value) / (at - last_at) if slope is None else slope)
            sensible = (tried > low) & (tried < high) & ~(value / last_value > 0.5)
            wider = at - np.sign(value) * WIDENED * np.maximum(np.abs(at), 1.0)
            tried = np.where(sensible, tried, np.where(np.isinf(high - low), wider, (low + high) / 2))
        tried = np.minimum(np.maximum(tried, -FARTHEST), FARTHEST)
        is_root = np.abs(value) <= close
        roots[rows] = np.where(is_root, at, tried)
        least = np.maximum(last_step[rows], RTOL * np.maximum(np.abs(at), np.abs(tried)))
        going_on = ~is_root & (np.abs(tried - at) > least)
        rows, last_at, last_value = rows[going_on], at[going_on], value[going_on]
        at, low, high = (column[going_on] for column in (tried, low, high))
    return np.where(np.abs(roots) >= FARTHEST, np.copysign(np.inf, roots), roots)
