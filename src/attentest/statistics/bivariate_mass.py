"""Masses of a statistic T and of V = T + noise under their normal distribution, in logs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

from attentest.statistics.log_probability import log_sums
from attentest.statistics.normal_mass import log_mass

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

NEGLIGIBLE = 42.0
"""Parts of an integral whose density is lower than the greatest by so many logs are left out."""

PANEL = 2.5
"""Greatest width of a panel of the quadrature, in standard deviations."""

FALL = 8.0
"""Most logs by which the density falls over a panel, where it falls all the way."""

NODES = 12
"""Nodes of Gauss-Legendre quadrature on a panel."""

FEW_NODES, NARROW, FLAT = 6, 0.5, 1.0
"""So few nodes are enough on a panel of this width over which the density falls by no more than so many logs."""

_GAUSS_LEGENDRE = {
    count: ((nodes + 1) / 2, weights / 2)
    for count in (FEW_NODES, NODES)
    for nodes, weights in [np.polynomial.legendre.leggauss(count)]
}
"""Nodes and weights on [0, 1]."""

TRANSITION = 8.0
"""Beyond so many of its standard deviations, whether T lies in the rectangle is decided by V."""

ROUNDING = 38.0
"""What is lighter than the rest by so many logs does not change the sum."""

MOST_OF_IT = 0.75
"""What is left of a mass is a difference if no greater share than this is subtracted: that costs two bits."""

MANY = 200
"""With no more intervals than this, a second pass over arrays costs more than it saves."""

MOST_TOGETHER = 4_000
"""Panels that are processed at a time: their nodes fit into the cache."""


class _Strips(NamedTuple):
    """Intervals (m,) of V, ranges of T, the parameters of their distribution, and the V that masses are relative to."""

    left: Floats
    right: Floats
    lower: Floats
    upper: Floats
    gamma: Floats
    mean: Floats
    origin: Floats

    def chosen(self, rows: Integers) -> _Strips:
        return _Strips(*(column[rows] for column in self))


def log_masses_outside_and_inside(
    left: ArrayLike,
    right: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    *,
    gamma: ArrayLike,
    mean: ArrayLike,
    relative_to: ArrayLike,
) -> tuple[Floats, Floats]:
    """Return the log masses of left <= V <= right with T outside and inside [lower, upper], elementwise.

    T ~ N(mean, 1) and V ~ N(T, gamma^2). The masses are divided by the density of V at ``relative_to``, up to the
    constant of the normal density.
    """
    columns = np.broadcast_arrays(
        *(np.asarray(x, dtype=np.float64) for x in (left, right, lower, upper, gamma, mean, relative_to))
    )
    masses = np.full((2, *columns[0].shape), -np.inf)
    some = columns[0] < columns[1]
    strips = _Strips(*(column[some] for column in columns))
    count = len(strips.left)
    if count > MANY:
        masses[:, some] = _by_difference(strips)
    elif count:
        both = strips.chosen(np.tile(np.arange(count), 2))
        masses[:, some] = _log_part(both, np.arange(2 * count) < count).reshape(2, count)
    return masses[0], masses[1]


def _by_difference(strips: _Strips) -> Floats:
    """Return the log masses (2, m) with T outside and inside its range, for less work than integrating both.

    Their sum has a closed form. So only one of the two is integrated, which is the smaller one if the likeliest T
    tells, and the other is what remains; if that is little, it is integrated too.
    """
    left, right, lower, upper, gamma, mean, origin = strips
    spread = np.sqrt(1 + gamma**2)
    # From the point of the interval next to the origin, so that no digit of a narrow width is lost.
    anchor = np.clip(origin, left, right)
    start, end, tilt = ((x - anchor) / spread for x in (left, right, mean))
    whole = log_mass(start, end, tilt, relative_to=0.0) + np.log(spread) + _log_density(strips, anchor)
    # The likeliest T for the likeliest V of the interval.
    likeliest = mean + (np.clip(mean, left, right) - mean) / spread**2
    outside = (likeliest > lower) & (likeliest < upper)
    part = _log_part(strips, outside)
    share = np.exp(part - whole)
    rest = whole + np.log1p(-np.minimum(share, MOST_OF_IT))
    little = np.flatnonzero(share > MOST_OF_IT)
    if len(little):
        rest[little] = _log_part(strips.chosen(little), ~outside[little])
    return np.where(outside, (part, rest), (rest, part))


def _log_density(given: _Strips, v: Floats) -> Floats:
    """Return the log density of V at v (m,), relative to that at the origin."""
    return np.asarray(-(v - given.origin) * (v + given.origin - 2 * given.mean) / (2 * (1 + given.gamma**2)))


def _log_part(strips: _Strips, outside: Mask) -> Floats:
    """Return the log masses (m,) with T outside or inside its range.

    A mass is the integral over V of its density, N(mean, 1 + gamma^2), times the probability of T given V, which is
    normal too. For T in a range the integrand is log-concave and looks like one of three normal densities: where the
    likeliest T for a V is in the range, like the density of V; where it is outside, like that of V given that T is at
    the nearer end. The axis of V is divided accordingly, and each part into panels of Gauss-Legendre quadrature that
    are narrow enough for the integrand to be smooth. What is too light to matter is left out beforehand, so a mass in
    the tails costs no more than one in the middle. Nothing is ever subtracted.
    """
    outer, inner = np.flatnonzero(outside), np.flatnonzero(~outside)
    index = np.concatenate([outer, outer, inner])
    infinite = np.full(len(outer), np.inf)
    lower = np.concatenate([-infinite, strips.upper[outer], strips.lower[inner]])
    upper = np.concatenate([strips.lower[outer], infinite, strips.upper[inner]])
    some = lower < upper
    index = index[some]
    rectangles = strips.chosen(index)._replace(lower=lower[some], upper=upper[some])
    which, start, width, few = _panels(rectangles, index, len(outside))
    logs = np.empty(len(which))
    for panels, nodes in ((np.flatnonzero(few), FEW_NODES), (np.flatnonzero(~few), NODES)):
        for first in range(0, len(panels), MOST_TOGETHER):
            rows = panels[first : first + MOST_TOGETHER]
            logs[rows] = _log_integrals(rectangles.chosen(which[rows]), start[rows], width[rows], nodes)
    return log_sums(index[which], logs, len(outside))


def _panels(given: _Strips, index: Integers, count: int) -> tuple[Integers, Floats, Floats, Mask]:
    """Return panels of the axis of V: the rectangle, the start and the width of each, and whether few nodes suffice.

    Rectangles with the same index, below ``count``, are parts of one mass.
    """
    left, right, lower, upper, gamma, mean, _ = given
    spread = np.sqrt(1 + gamma**2)
    # At these V the likeliest T, (gamma^2 mean + V) / (1 + gamma^2), is an end of the rectangle.
    enters, leaves = (end + gamma**2 * (end - mean) for end in (lower, upper))
    centres = np.array([lower, mean, upper])
    scales = np.array([gamma, spread, gamma])
    heights = -((centres - mean) ** 2) / 2
    best = np.clip(np.clip(mean, lower, upper), left, right)
    zone = 1 - (best < enters) + (best > leaves), np.arange(len(mean))
    greatest = np.full(count, -np.inf)
    np.maximum.at(greatest, index, heights[zone] - ((best - centres[zone]) / scales[zone]) ** 2 / 2)
    # Where T given V changes from outside to inside, if that is more abrupt than the density of V.
    narrow = spread * np.minimum(gamma, 1.0)
    reach = np.where(gamma < 1, TRANSITION * narrow, 0.0)
    middle = (enters + leaves) / 2
    inner = np.minimum(enters + reach, middle), np.maximum(leaves - reach, middle)
    infinite = np.full_like(mean, np.inf)
    ends = np.array([-infinite, enters, *inner, leaves, infinite])
    smooth = np.array([gamma, narrow, spread, narrow, gamma])
    kinds = np.array([0, 1, 1, 1, 2])
    centre, scale = centres[kinds], scales[kinds]
    room = NEGLIGIBLE + heights[kinds] - greatest[index]
    half = scale * np.sqrt(2 * np.maximum(room, 0.0))
    start = np.maximum(np.maximum(ends[:-1], left), centre - half)
    end = np.minimum(np.minimum(ends[1:], right), centre + half)
    some = (room > 0) & (start < end)
    start, end, centre, scale, smooth = start[some], end[some], centre[some], scale[some], smooth[some]
    one, other = np.abs(start - centre) / scale, np.abs(end - centre) / scale
    widths, falls = (end - start) / smooth, np.abs(one - other) * (one + other) / 2
    times = np.ceil(np.maximum(widths / PANEL, falls / FALL)).astype(np.int64)
    few = (widths <= NARROW * times) & (falls <= FLAT * times)
    panel = np.repeat(np.arange(len(times)), times)
    place = np.arange(len(panel)) - np.repeat(np.cumsum(times) - times, times)
    width = ((end - start) / times)[panel]
    return np.nonzero(some)[1][panel], start[panel] + place * width, width, few[panel]


def _log_integrals(given: _Strips, start: Floats, width: Floats, nodes: int) -> Floats:
    """Return the logs (p,) of the integrals over one panel of each rectangle."""
    places, weights = _GAUSS_LEGENDRE[nodes]
    step = width[:, None] * places
    variance = 1 + given.gamma**2
    logs = _log_given(given, start, step)
    logs -= step * ((start - given.mean)[:, None] + step / 2) / variance[:, None]
    greatest = logs.max(axis=1)
    some = ~np.isneginf(greatest)  # between ends that rounding makes one there is nothing
    sums = np.full_like(greatest, -np.inf)
    sums[some] = greatest[some] + np.log(np.exp(logs[some] - greatest[some, None]) @ weights * width[some])
    return np.asarray(_log_density(given, start) + sums)


def _log_given(given: _Strips, start: Floats, step: Floats) -> Floats:
    """Return log P(lower <= T <= upper given V = start + step), (p, n) for starts (p,) and steps (p, n)."""
    spread = np.sqrt(1 + given.gamma**2)
    scale = given.gamma / spread
    # Distances of the ends from the mean of T given V, in its standard deviations; they are linear in V.
    centre = given.mean + (start - given.mean) / spread**2
    bottom, top = (given.lower - centre) / scale, (given.upper - centre) / scale
    rise = step / (spread * given.gamma)[:, None]
    width = (given.upper - given.lower) / scale
    mirrored = bottom + top < rise[:, 0] + rise[:, -1]
    near = np.where(mirrored, -top, bottom)[:, None] + np.where(mirrored, 1.0, -1.0)[:, None] * rise
    logs = log_ndtr(-near)
    # What lies beyond the far end is subtracted, unless it is less than a rounding error.
    nearest = np.minimum(near[:, 0], near[:, -1])
    beyond = width * (width + 2 * nearest) + np.minimum(nearest, 0.0) ** 2 < 2 * ROUNDING
    wide = np.flatnonzero(beyond & (width >= 1))
    logs[wide] += np.log1p(-np.exp(log_ndtr(-near[wide] - width[wide, None]) - logs[wide]))
    short = np.flatnonzero(width < 1)
    logs[short] = log_mass(near[short], near[short] + width[short, None])
    return np.asarray(logs)
