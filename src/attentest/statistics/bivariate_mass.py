"""Masses of a statistic T and of V = T + noise under their normal distribution, in logs."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, log_ndtr

from attentest.statistics.bivariate_quadrature import FAR, Rectangles, log_integrals
from attentest.statistics.normal_mass import log_mass

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

MOST_OF_IT = 0.75
"""What is left of a mass is a difference if no greater share than this is subtracted: that costs two bits."""

MANY = 200
"""With no more intervals than this, a second pass over arrays costs more than it saves."""


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
    strips = Rectangles(*(column[some] for column in columns))
    count = len(strips.left)
    if count > MANY:
        masses[:, some] = _by_difference(strips)
    elif count:
        both = strips.chosen(np.tile(np.arange(count), 2))
        masses[:, some] = log_masses_of_part(both, np.arange(2 * count) < count).reshape(2, count)
    return masses[0], masses[1]


def log_masses_on_side(
    left: Floats,
    right: Floats,
    statistic: Floats,
    above: Mask,
    *,
    gamma: Floats,
    mean: Floats,
    relative_to: Floats,
) -> tuple[Floats, Floats]:
    """Return the log masses (m,) of left < V < right with T on one side of a statistic, and the means of T - t there.

    As in :func:`log_masses_outside_and_inside`, with ranges of T that have one end. In an exponential family the mean
    of T - t is the derivative of the log mass in the mean of T, up to a term that does not depend on the range.

    Parameters
    ----------
    left, right, statistic, gamma, mean, relative_to : (m,)
        As there; intervals have a positive width.
    above : (m,)
        Whether T is at or above its end t, or below it.
    """
    sign = np.where(above, 1.0, -1.0)
    lower, upper = np.where(above, statistic, -np.inf), np.where(above, np.inf, statistic)
    strips = Rectangles(left, right, lower, upper, gamma, mean, relative_to)
    spread = np.sqrt(1 + gamma**2)
    # Distances of t from the mean of T given V, in its standard deviations, towards this side: at both ends of V.
    at_ends = tuple(sign * (statistic - mean - (v - mean) / spread**2) * (spread / gamma) for v in (left, right))
    log_masses = np.empty(len(left))
    surely = np.maximum(*at_ends) < -FAR
    log_masses[surely] = _log_whole(strips.chosen(surely))
    rows = np.flatnonzero(~surely)
    log_masses[rows] = log_integrals(strips.chosen(rows), np.arange(len(rows)), len(rows))
    with np.errstate(over="ignore", invalid="ignore"):  # an interval without mass
        # The derivative of a mass is a sum over the four sides of its rectangle, of which one is at infinity.
        from_left, from_right = (
            np.exp(strips.log_density(v) + log_ndtr(-distance) - log_masses)
            for v, distance in zip((left, right), at_ends, strict=True)
        )
        at_origin = (statistic - mean - (relative_to - mean) / spread**2) * (spread / gamma)
        log_density = (((relative_to - statistic) / gamma) ** 2 - at_origin**2) / 2
        from_end = spread * np.exp(
            log_density + log_mass(*((v - statistic) / gamma for v in (left, right))) - log_masses
        )
        means = mean - statistic + (from_left - from_right) + sign * from_end
    # Between ends of V that are close to each other this is a difference of large numbers; the mean of T - t given V
    # increases with V.
    least, greatest = (sign * gamma / spread * _mean_beyond(distance) for distance in at_ends)
    return log_masses, np.minimum(np.maximum(means, least), greatest)


def _mean_beyond(distance: Floats) -> Floats:
    """Return E(Z - x | Z >= x) for Z ~ N(0, 1) and distances x (m,)."""
    with np.errstate(divide="ignore", invalid="ignore"):  # nothing is beyond infinity
        beyond = np.sqrt(2 / np.pi) / erfcx(distance / np.sqrt(2)) - distance
    return np.where(distance < np.inf, np.maximum(beyond, 0.0), 0.0)


def log_masses_of_part(strips: Rectangles, outside: Mask) -> Floats:
    """Return the log masses (m,) of intervals of V with T outside, or inside, its range."""
    outer, inner = np.flatnonzero(outside), np.flatnonzero(~outside)
    index = np.concatenate([outer, outer, inner])
    infinite = np.full(len(outer), np.inf)
    lower = np.concatenate([-infinite, strips.upper[outer], strips.lower[inner]])
    upper = np.concatenate([strips.lower[outer], infinite, strips.upper[inner]])
    some = lower < upper
    index = index[some]
    return log_integrals(strips.chosen(index)._replace(lower=lower[some], upper=upper[some]), index, len(outside))


def _by_difference(strips: Rectangles) -> Floats:
    """Return the log masses (2, m) with T outside and inside its range, for less work than integrating both.

    Their sum has a closed form. So only one of the two is integrated, which is the smaller one if the likeliest T
    tells, and the other is what remains; if that is little, it is integrated too.
    """
    left, right, lower, upper, gamma, mean, _ = strips
    whole = _log_whole(strips)
    # The likeliest T for the likeliest V of the interval.
    likeliest = mean + (np.clip(mean, left, right) - mean) / (1 + gamma**2)
    outside = (likeliest > lower) & (likeliest < upper)
    part = log_masses_of_part(strips, outside)
    share = np.exp(part - whole)
    rest = whole + np.log1p(-np.minimum(share, MOST_OF_IT))
    little = np.flatnonzero(share > MOST_OF_IT)
    if len(little):
        rest[little] = log_masses_of_part(strips.chosen(little), ~outside[little])
    return np.where(outside, (part, rest), (rest, part))


def _log_whole(strips: Rectangles) -> Floats:
    """Return the log masses (m,) with any T."""
    spread = np.sqrt(1 + strips.gamma**2)
    # From the point of the interval next to the origin, so that no digit of a narrow width is lost.
    anchor = np.clip(strips.origin, strips.left, strips.right)
    start, end, tilt = ((x - anchor) / spread for x in (strips.left, strips.right, strips.mean))
    return log_mass(start, end, tilt, relative_to=0.0) + np.log(spread) + strips.log_density(anchor)
