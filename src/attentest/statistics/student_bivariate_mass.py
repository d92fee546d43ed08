"""Masses of a statistic T with an estimated standard error and of V = T + noise, in logs.

T has the density of :mod:`attentest.statistics.interval_mass`, and V given T is normal with standard deviation gamma.
The mass of an interval of V with T in a range is the integral over that range of the density of T times the probability
of the interval given T.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

from attentest.statistics.interval_mass import log_density, log_sums, support

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

NEGLIGIBLE = 45.0
"""Where the integrand is lower than its greatest value by more logs than this, the rest is left out."""

BISECTIONS = 12
"""Steps that find the mode of the integrand and where it becomes negligible: to a small fraction of a panel."""

TRANSITION = 8.0
"""Beyond so many gammas from the ends of an interval of V, whether V lies in it is decided by T."""

PANEL, LEAST_PANELS = 2.5, 2
"""Greatest width of a panel in units of gamma or of the standard deviation of T, and the fewest panels of a part."""

NODES = 12
"""Nodes of Gauss-Legendre quadrature on a panel."""

BLUNT = 8.0
"""With fewer degrees of freedom the density is not smooth where its support ends."""

NARROW = 0.3
"""If an interval of V is narrower than this, in units of gamma times its distance from T, three nodes measure it."""

MOST_TOGETHER = 4_000
"""Panels that are processed at a time: their nodes fit into the cache."""

_OUTER, _LOG_SQRT_2PI = np.sqrt(0.6), 0.5 * np.log(2 * np.pi)
_PLACES, _WEIGHTS = np.polynomial.legendre.leggauss(NODES)
_PLACES, _WEIGHTS = (_PLACES + 1) / 2, _WEIGHTS / 2  # on [0, 1]


class _Rectangles(NamedTuple):
    """Intervals (m,) of V and ranges of T, all as distances from the observed T, and the parameters of their law."""

    left: Floats
    right: Floats
    lower: Floats
    upper: Floats
    gamma: Floats
    shift: Floats  # the observed T minus the mean
    degrees: Floats

    def chosen(self, rows: Integers | NDArray[np.bool_]) -> _Rectangles:
        return _Rectangles(*(column[rows] for column in self))

    def log_density(self, t: Floats) -> Floats:
        """Return the log density at t (m,) or (m, n), relative to that at the observed T."""
        each = (slice(None),) + (None,) * (t.ndim - 1)
        return log_density(t, 0.0, -self.shift[each], self.degrees[each])

    def log_bound(self, t: Floats) -> Floats:
        """Return an upper bound (m,) of the log of the integrand at t (m,), which has one maximum."""
        outside = np.maximum(np.maximum(self.left - t, t - self.right), 0.0)
        # With two degrees of freedom and fewer the density is greatest at the ends of its support: taken as constant.
        steep = np.where(self.degrees > 2, self.log_density(t), 0.0)
        return np.asarray(steep - (outside / self.gamma) ** 2 / 2)


def log_masses_outside_and_inside(
    left: ArrayLike,
    right: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    *,
    statistic: ArrayLike,
    gamma: ArrayLike,
    mean: ArrayLike,
    degrees: ArrayLike,
) -> tuple[Floats, Floats]:
    """Return the log masses of left <= V <= right with T outside and inside [lower, upper], elementwise.

    The density of T is relative to its value at the observed statistic.
    """
    columns = np.broadcast_arrays(
        *(np.asarray(x, dtype=np.float64) for x in (left, right, lower, upper, statistic, gamma, mean, degrees))
    )
    some = columns[0] < columns[1]
    left, right, lower, upper, t, gamma, mean, degrees = (column[some] for column in columns)
    count = len(t)
    least, greatest = support(t, mean, degrees)
    bottom, top = np.clip(lower - t, least, greatest), np.clip(upper - t, least, greatest)
    index = np.tile(np.arange(count), 3)
    part = np.repeat([0, 0, 1], count)
    rectangles = _Rectangles(
        left=(left - t)[index],
        right=(right - t)[index],
        lower=np.concatenate([least, top, bottom]),
        upper=np.concatenate([bottom, greatest, top]),
        gamma=gamma[index],
        shift=(t - mean)[index],
        degrees=degrees[index],
    )
    wide = rectangles.lower < rectangles.upper
    rows = np.flatnonzero(wide)
    logs = log_sums(part[rows] * count + index[rows], _log_integrals(rectangles.chosen(rows)), 2 * count)
    masses = np.full((2, *columns[0].shape), -np.inf)
    masses[:, some] = logs.reshape(2, count)
    return masses[0], masses[1]


def _log_integrals(given: _Rectangles) -> Floats:
    which, start, width = _panels(given)
    logs = np.empty(len(which))
    for first in range(0, len(which), MOST_TOGETHER):
        rows = slice(first, first + MOST_TOGETHER)
        some = given.chosen(which[rows])
        t, log_weights = _nodes(some, start[rows], width[rows])
        at = some.log_density(t) + _log_interval(some, t) + log_weights
        greatest = at.max(axis=1)
        shift = np.where(np.isneginf(greatest), 0.0, greatest)
        with np.errstate(divide="ignore"):
            logs[rows] = shift + np.log(np.exp(at - shift[:, None]) @ _WEIGHTS)
    return log_sums(which, logs, len(given.left))


def _nodes(given: _Rectangles, start: Floats, width: Floats) -> tuple[Floats, Floats]:
    """Return the nodes (m, n) on panels (m,) of the axis of T, and the logs of the lengths (m, n) they stand for."""
    t = start[:, None] + width[:, None] * _PLACES
    log_lengths = np.broadcast_to(np.log(width)[:, None], t.shape).copy()
    blunt = np.flatnonzero(given.degrees < BLUNT)
    if len(blunt):
        # With the distance from the mean as the sine of an angle the integrand is smooth where the support ends, too.
        shift = given.shift[blunt]
        radius = np.hypot(np.sqrt(given.degrees[blunt]), shift)
        ends = start[blunt] + shift, start[blunt] + width[blunt] + shift
        first, last = (np.arcsin(np.clip(end / radius, -1.0, 1.0)) for end in ends)
        angle = first[:, None] + (last - first)[:, None] * _PLACES
        t[blunt] = radius[:, None] * np.sin(angle) - shift[:, None]
        with np.errstate(divide="ignore"):
            log_lengths[blunt] = np.log((radius * (last - first))[:, None] * np.cos(angle))
    return t, log_lengths


def _log_interval(given: _Rectangles, t: Floats) -> Floats:
    """Return log P(left <= V <= right given T = t), (m, n) for t (m, n)."""
    width = ((given.right - given.left) / given.gamma)[:, None]
    start, end = ((side[:, None] - t) / given.gamma[:, None] for side in (given.left, given.right))
    with np.errstate(invalid="ignore"):  # -inf + inf, for the whole line: any order will do
        mirrored = start + end < 0
    near, far = np.where(mirrored, -end, start), np.where(mirrored, -start, end)  # |near| <= |far|, far >= 0
    narrow = width * np.maximum(1.0, far) < NARROW
    logs = np.empty_like(t)
    wide = ~narrow
    tail = log_ndtr(-near[wide])
    logs[wide] = tail + np.log1p(-np.exp(log_ndtr(-far[wide]) - tail))
    middle = (near[narrow] + far[narrow]) / 2
    step = np.broadcast_to(width, t.shape)[narrow]
    offset = step / 2 * _OUTER
    mean = (8 + 10 * np.exp(-(offset**2) / 2) * np.cosh(middle * offset)) / 18  # Gauss-Legendre, three nodes
    logs[narrow] = np.log(step * mean) - middle**2 / 2 - _LOG_SQRT_2PI
    return logs


def _panels(given: _Rectangles) -> tuple[Integers, Floats, Floats]:
    """Return panels of the axis of T: the rectangle, the start and the width of each."""
    low, high = _effective_range(given)
    reach = TRANSITION * given.gamma
    infinite = np.full_like(low, np.inf)
    # Around the ends of the interval of V the integrand changes within gamma, elsewhere as slowly as the density of T.
    left, right = np.maximum(given.left, low - reach), np.minimum(given.right, high + reach)
    middle = (left + right) / 2
    inner = np.minimum(left + reach, middle), np.maximum(right - reach, middle)
    ends = np.array([-infinite, *inner, infinite])
    smooth = np.minimum(np.array([given.gamma, np.ones_like(low), given.gamma]), 1.0)
    start, end = np.maximum(ends[:-1], low), np.minimum(ends[1:], high)
    some = start < end
    start, end, smooth = start[some], end[some], smooth[some]
    times = np.maximum(np.ceil((end - start) / (PANEL * smooth)).astype(np.int64), LEAST_PANELS)
    panel = np.repeat(np.arange(len(times)), times)
    place = np.arange(len(panel)) - np.repeat(np.cumsum(times) - times, times)
    width = ((end - start) / times)[panel]
    return np.nonzero(some)[1][panel], start[panel] + place * width, width


def _effective_range(given: _Rectangles) -> tuple[Floats, Floats]:
    """Return the part of the range of T (m,) in which the integrand is not negligible."""
    # The mode lies between the mean and the interval of V, as far as T gets there.
    mean, left, right = (np.clip(end, given.lower, given.upper) for end in (-given.shift, given.left, given.right))
    low, high = np.minimum(mean, left), np.maximum(mean, right)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        rises = _slope(given, middle) > 0
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    mode = (low + high) / 2
    floor = given.log_bound(mode) - NEGLIGIBLE
    # The log density of T is at least as curved everywhere as at the mean.
    half = np.sqrt(2 * NEGLIGIBLE * (given.degrees + given.shift**2) / np.maximum(given.degrees - 2, 1e-9))
    lower, upper = np.maximum(given.lower, mode - half), np.minimum(given.upper, mode + half)
    return _crossing(given, mode, lower, floor), _crossing(given, mode, upper, floor)


def _slope(given: _Rectangles, t: Floats) -> Floats:
    """Return the derivative (m,) of the log bound at t (m,)."""
    outside = np.maximum(given.left - t, 0.0) - np.maximum(t - given.right, 0.0)
    room = given.degrees - t * (t + 2 * given.shift)
    steep = np.maximum(given.degrees - 2, 0.0) * (t + given.shift)
    return np.asarray(outside / given.gamma**2 - steep / np.maximum(room, np.finfo(np.float64).tiny))


def _crossing(given: _Rectangles, mode: Floats, end: Floats, floor: Floats) -> Floats:
    """Return where between its mode and an end the log bound falls to the floor; the end if it does not."""
    inside, outside = mode, end.copy()
    below = given.log_bound(outside) < floor
    for _ in range(BISECTIONS):
        middle = (inside + outside) / 2
        lower = given.log_bound(middle) < floor
        inside, outside = np.where(lower, inside, middle), np.where(lower, middle, outside)
    return np.where(below, outside, end)
