"""Masses of rectangles under the normal distribution of a statistic T and of V = T + noise, in logs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

from attentest.statistics.log_probability import log_sums
from attentest.statistics.normal_mass import log_mass

Floats = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_NODES, _LOG_WEIGHTS = (_NODES + 1) / 2, np.log(_WEIGHTS / 2)  # on [0, 1]

NEGLIGIBLE = 42.0
"""Parts of an integral whose density is lower than the greatest by so many logs are left out."""

PANEL = 2.5
"""Greatest width of a panel of the quadrature, in standard deviations."""

FALL = 8.0
"""Most logs by which the density falls over a panel, where it falls all the way."""

TRANSITION = 8.0
"""Beyond so many of its standard deviations, whether T lies in the rectangle is decided by V."""

MOST_TOGETHER = 200_000
"""Panels that are processed at a time, to bound memory."""


class _Rectangles(NamedTuple):
    """Rectangles (m,) of V and T, with the parameters of their distributions and the V that masses are relative to."""

    left: Floats
    right: Floats
    lower: Floats
    upper: Floats
    gamma: Floats
    mean: Floats
    origin: Floats


def log_rectangle_mass(
    left: ArrayLike,
    right: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    *,
    gamma: ArrayLike,
    mean: ArrayLike,
    relative_to: ArrayLike,
) -> Floats:
    """Return log P(left <= V <= right, lower <= T <= upper), elementwise, for T ~ N(mean, 1) and V ~ N(T, gamma^2).

    The mass is divided by the density of V at ``relative_to``, up to the constant of the normal density.

    It is the integral over V of its density, N(mean, 1 + gamma^2), times the probability of T given V, which is normal
    too. The integrand is log-concave and looks like one of three normal densities: where the likeliest T for a V is in
    the rectangle, like the density of V; where it is outside, like that of V given that T is at the nearer end. The
    axis of V is divided accordingly, and each part into panels of Gauss-Legendre quadrature that are narrow enough
    for the integrand to be smooth. What is too light to matter is left out beforehand, so a rectangle in the tails
    costs no more than one in the middle. Nothing is ever subtracted.
    """
    columns = np.broadcast_arrays(
        *(np.asarray(x, dtype=np.float64) for x in (left, right, lower, upper, gamma, mean, relative_to))
    )
    shape = columns[0].shape
    all_rectangles = _Rectangles(*(column.ravel() for column in columns))
    some = np.flatnonzero((all_rectangles.left < all_rectangles.right) & (all_rectangles.lower < all_rectangles.upper))
    rectangles = _Rectangles(*(column[some] for column in all_rectangles))
    which, start, width = _panels(rectangles)
    logs = np.empty(len(which))
    for first in range(0, len(which), MOST_TOGETHER):
        part = slice(first, first + MOST_TOGETHER)
        logs[part] = _integrals(_Rectangles(*(c[which[part]] for c in rectangles)), start[part], width[part])
    masses = np.full(columns[0].size, -np.inf)
    masses[some] = log_sums(which, logs, len(some))
    return masses.reshape(shape)


def _panels(given: _Rectangles) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Return panels of the axis of V: the index of the rectangle, the start and the width of each."""
    left, right, lower, upper, gamma, mean, _ = given
    variance = 1 + gamma**2
    with np.errstate(invalid="ignore"):  # an end at infinity has no deviation from the mean
        # At these V the likeliest T, (gamma^2 mean + V) / (1 + gamma^2), is an end of the rectangle.
        enters, leaves = (np.where(np.isinf(end), end, end + gamma**2 * (end - mean)) for end in (lower, upper))
        below, above = (np.where(np.isinf(end), -np.inf, -((end - mean) ** 2) / 2) for end in (lower, upper))
    best = np.clip(np.clip(mean, lower, upper), left, right)
    centres, scales, heights = (
        (lower, mean, upper),
        (gamma, np.sqrt(variance), gamma),
        (below, np.zeros_like(mean), above),
    )
    zone = np.where(best < enters, 0, np.where(best > leaves, 2, 1))
    greatest = np.choose(zone, heights) - ((best - np.choose(zone, centres)) / np.choose(zone, scales)) ** 2 / 2
    # Where T given V changes from outside to inside, if that is more abrupt than the density of V.
    abrupt = gamma * np.sqrt(variance)
    reach = np.where(abrupt < scales[1], TRANSITION * abrupt, 0.0)
    with np.errstate(invalid="ignore"):
        middle = np.where(np.isinf(enters), -np.inf, np.where(np.isinf(leaves), np.inf, (enters + leaves) / 2))
    inner = np.minimum(enters + reach, middle), np.maximum(leaves - reach, middle)
    narrow = np.minimum(abrupt, scales[1])
    ends = np.stack([np.full_like(mean, -np.inf), enters, inner[0], inner[1], leaves, np.full_like(mean, np.inf)])
    kinds = np.array([0, 1, 1, 1, 2])
    widest = PANEL * np.stack([gamma, narrow, scales[1], narrow, gamma])
    centre, scale, height = (np.stack(three)[kinds] for three in (centres, scales, heights))
    room = NEGLIGIBLE + height - greatest
    with np.errstate(invalid="ignore"):
        half = scale * np.sqrt(2 * np.maximum(room, 0.0))
        start = np.maximum(np.maximum(ends[:-1], left), centre - half)
        end = np.minimum(np.minimum(ends[1:], right), centre + half)
    some = (room > 0) & (start < end)
    start, end, centre, scale = start[some], end[some], centre[some], scale[some]
    one, other = np.abs(start - centre) / scale, np.abs(end - centre) / scale
    falls = np.abs(one - other) * (one + other) / 2
    count = np.maximum(np.ceil((end - start) / widest[some]), np.ceil(falls / FALL)).astype(np.int64)
    which = np.broadcast_to(np.arange(len(mean)), some.shape)[some]
    panel = np.repeat(np.arange(len(which)), count)
    place = np.arange(len(panel)) - np.repeat(np.cumsum(count) - count, count)
    width = ((end - start) / count)[panel]
    return which[panel], start[panel] + place * width, width


def _integrals(given: _Rectangles, start: Floats, width: Floats) -> Floats:
    """Return the logs (p,) of the integrals over panels."""
    given = _Rectangles(*(column[:, None] for column in given))
    v = start[:, None] + width[:, None] * _NODES
    variance = 1 + given.gamma**2
    density = -(v - given.origin) * (v + given.origin - 2 * given.mean) / (2 * variance)
    logs = density + _log_given(given, v) + _LOG_WEIGHTS
    greatest = logs.max(axis=1)
    return np.asarray(greatest + np.log(np.exp(logs - greatest[:, None]).sum(axis=1)) + np.log(width))


def _log_given(given: _Rectangles, v: Floats) -> Floats:
    """Return log P(lower <= T <= upper given V = v), (p, n)."""
    variance = 1 + given.gamma**2
    scale = given.gamma / np.sqrt(variance)
    centre = given.mean + (v - given.mean) / variance
    logs = np.empty_like(v)
    from_below, from_above = (np.isinf(end[:, 0]) for end in (given.lower, given.upper))
    rows = np.flatnonzero(from_below)
    logs[rows] = log_ndtr((given.upper[rows] - centre[rows]) / scale[rows])
    rows = np.flatnonzero(from_above & ~from_below)
    logs[rows] = log_ndtr((centre[rows] - given.lower[rows]) / scale[rows])
    rows = np.flatnonzero(~from_below & ~from_above)
    logs[rows] = log_mass(
        (given.lower[rows] - centre[rows]) / scale[rows], (given.upper[rows] - centre[rows]) / scale[rows]
    )
    return logs
