"""Masses of a statistic T in a range and of V = T + noise in an interval, in logs.

A mass is an integral over a rectangle of the plane of T and V. One of the two is integrated out in closed form, and the
other by Gauss-Legendre quadrature on panels that are narrow enough for the integrand to be smooth: a law says which
panels matter and what the integrand is there.

Under the normal distribution the integral is over V, of its density, N(mean, 1 + gamma^2), times the probability of T
given V, which is normal too. An integral over T would take six times as long: intervals of V are narrow, ranges of T
are not. For T in a range the integrand is log-concave and is one of three normal densities times a factor that changes
slowly: where the likeliest T for a V is in the range, the density of V times a probability of at least 1/2 (or, in a
narrow range, a smooth one); where it is outside, the density of V given that T is at the nearer end, times a Mills
ratio. The axis of V is divided accordingly. What is too light to matter is left out beforehand, so a mass in the tails
costs no more than one in the middle. Nothing is ever subtracted but what lies beyond the farther end of the range of T.

If the standard error is estimated, T given V has no such law, and the integral is over T:
:mod:`attentest.statistics.student_bivariate_mass`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr

from attentest.statistics.columns import Columns, Floats, Integers, Mask, repeated
from attentest.statistics.interval_mass import gauss_legendre, log_mass, log_sums

NEGLIGIBLE = 42.0  # parts of an integral whose density is lower than the greatest by so many logs are left out

PANELS = ((6, 0.5, 1.0), (10, 1.5, 4.0), (20, 5.0, 20.0), (32, 8.0, 45.0))
"""Numbers of Gauss-Legendre nodes, with the greatest width of a panel, in standard deviations, and the most logs by
which the density falls over it, for which so many are enough: the relative error is then less than 3e-14."""

TRANSITION = 8.0
"""Beyond so many standard deviations of T given V, whether T lies in its range is decided by V; and the other way
round."""

SHORT = 12  # nodes of Gauss-Legendre quadrature for a range of T over which its density given V falls by little
FAR = 8.5  # a normal number is greater than this with a probability of less than a rounding error of one
FEW = 300  # with fewer parts than this, a rule of their own costs more than the nodes it saves
MOST_TOGETHER = 4_000  # panels that are processed at a time: their nodes fit into the cache

MOST_OF_IT = 0.75
"""What is left of a mass is a difference if no greater share than this is subtracted: that costs two bits."""

MANY = 200  # with no more intervals than this, a second pass over arrays costs more than it saves

_SQRT_HALF = np.sqrt(0.5)


@dataclass(frozen=True, kw_only=True, eq=False)
class Panels(Columns):
    """Panels (p,) of the axis of an integral, in which the integrand of a rectangle is smooth."""

    rectangle: Integers
    start: Floats
    width: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Rectangles(Columns, ABC):
    """Rectangles (m,), and the parameters of the law of T and V."""

    left: Floats
    right: Floats
    """(m,). Ends of the intervals of V."""
    lower: Floats
    upper: Floats
    """(m,). Ends of the ranges of T."""
    gamma: Floats
    """(m,). Standard deviation of V given T."""

    @abstractmethod
    def panels(self, index: Integers, count: int) -> Iterator[tuple[int, Panels]]:
        """Yield numbers of nodes, and the panels for so many; rectangles with the same index (m,) are one mass."""

    @abstractmethod
    def integrand(self, panels: Any, step: Floats) -> tuple[Floats, Floats]:
        """Return the log (p,) of a unit, and the integrand (n, p) in that unit at steps (n, p) from the panels' starts.

        Row by row, the rectangles are those of the panels.
        """

    def log_integrals(self, index: Integers, count: int) -> Floats:
        """Return the log masses (count,) of the rectangles; those with the same index (m,) are added up."""
        which, logs = [index[:0]], [self.left[:0]]
        for nodes, panels in self.panels(index, count):
            places, weights = gauss_legendre(nodes)
            for first in range(0, len(panels), MOST_TOGETHER):
                chunk = panels.take(slice(first, first + MOST_TOGETHER))
                level, factor = self.take(chunk.rectangle).integrand(chunk, places[:, None] * chunk.width)
                which.append(chunk.rectangle)
                with np.errstate(divide="ignore"):  # between ends that rounding makes one there is nothing
                    logs.append(level + np.log(weights @ factor * chunk.width))
        return log_sums(index[np.concatenate(which)], np.concatenate(logs), count)

    def log_masses(self) -> Floats:
        """Return the log masses (2, m) of intervals of V that have a width, with T outside and inside its range."""
        count = len(self)
        both = self.take(np.tile(np.arange(count), 2))
        return both.log_masses_of_part(np.arange(2 * count) < count).reshape(2, count)

    def log_masses_of_part(self, outside: Mask) -> Floats:
        """Return the log masses (m,) of intervals of V with T outside, or inside, its range."""
        outer, inner = np.flatnonzero(outside), np.flatnonzero(~outside)
        index = np.concatenate([outer, outer, inner])
        infinite = np.full(len(outer), np.inf)
        lower = np.concatenate([-infinite, self.upper[outer], self.lower[inner]])
        upper = np.concatenate([self.lower[outer], infinite, self.upper[inner]])
        wide = (lower < upper) & (self.left < self.right)[index]
        index = index[wide]
        return replace(self.take(index), lower=lower[wide], upper=upper[wide]).log_integrals(index, len(outside))


@dataclass(frozen=True, kw_only=True, eq=False)
class NormalPanels(Panels):
    """Panels (p,) of the axis of V on which the integrand is a normal density times a factor."""

    centre: Floats  # of the normal density
    scale: Floats  # its standard deviation
    outside: Mask  # the likeliest T is outside its range


@dataclass(frozen=True, kw_only=True, eq=False)
class NormalRectangles(Rectangles):
    """Rectangles under T ~ N(mean, 1) and V ~ N(T, gamma^2).

    Masses are divided by the density of V at the origin, up to the constant of the normal density.
    """

    mean: Floats
    origin: Floats
    """(m,). Means of T, and the V that masses are relative to."""

    def log_density(self, v: Floats) -> Floats:
        """Return the log density of V at v (m,), relative to that at the origin."""
        return np.asarray(-(v - self.origin) * (v + self.origin - 2 * self.mean) / (2 * (1 + self.gamma**2)))

    def log_masses(self) -> Floats:
        """Return the log masses with T outside and inside its range: see :meth:`Rectangles.log_masses`.

        Their sum has a closed form. So of many intervals only one of the two is integrated, which is the smaller one
        if the likeliest T tells, and the other is what remains; if that is little, it is integrated too.
        """
        if len(self) <= MANY:
            return super().log_masses()
        whole = self.log_whole()
        # The likeliest T for the likeliest V of the interval.
        likeliest = self.mean + (np.clip(self.mean, self.left, self.right) - self.mean) / (1 + self.gamma**2)
        outside = (likeliest > self.lower) & (likeliest < self.upper)
        part = self.log_masses_of_part(outside)
        share = np.exp(part - whole)
        rest = whole + np.log1p(-np.minimum(share, MOST_OF_IT))
        little = np.flatnonzero(share > MOST_OF_IT)
        if len(little):
            rest[little] = self.take(little).log_masses_of_part(~outside[little])
        return np.where(outside, (part, rest), (rest, part))

    def log_whole(self) -> Floats:
        """Return the log masses (m,) with any T."""
        spread = np.sqrt(1 + self.gamma**2)
        # From the point of the interval next to the origin, so that no digit of a narrow width is lost.
        anchor = np.clip(self.origin, self.left, self.right)
        start, end, tilt = ((x - anchor) / spread for x in (self.left, self.right, self.mean))
        return log_mass(start, end, tilt, relative_to=0.0) + np.log(spread) + self.log_density(anchor)

    def panels(self, index: Integers, count: int) -> Iterator[tuple[int, NormalPanels]]:
        """Yield the panels that matter: see :meth:`Rectangles.panels`."""
        parts, smooth = self._parts(index, count)
        first, last = ((end - parts.centre) / parts.scale for end in (parts.start, parts.start + parts.width))
        widths, falls = parts.width / smooth, np.abs(first - last) * np.abs(first + last) / 2
        rest = np.arange(len(parts))
        for nodes, widest, steepest in PANELS:
            fits = (widths[rest] <= widest) & (falls[rest] <= steepest)
            if nodes == PANELS[-1][0]:
                fits[:] = True  # they are divided
            elif np.count_nonzero(fits) < FEW:
                continue
            rows, rest = rest[fits], rest[~fits]
            times = np.ceil(np.maximum(widths[rows] / widest, falls[rows] / steepest)).astype(np.int64)
            row, place = repeated(times)
            panels = parts.take(rows[row])
            width = panels.width / times[row]
            yield nodes, replace(panels, start=panels.start + place * width, width=width)

    def _parts(self, index: Integers, count: int) -> tuple[NormalPanels, Floats]:
        """Return the parts of the axis of V that matter, and the distances (p,) over which their factors change little.

        Rectangles (m,) with the same index, below ``count``, are one mass.
        """
        lower, upper, gamma, mean = self.lower, self.upper, self.gamma, self.mean
        spread = np.sqrt(1 + gamma**2)
        # At these V the likeliest T, (gamma^2 mean + V) / (1 + gamma^2), is an end of the rectangle.
        enters, leaves = (end + gamma**2 * (end - mean) for end in (lower, upper))
        centres = np.array([lower, mean, upper])
        scales = np.array([gamma, spread, gamma])
        heights = -((centres - mean) ** 2) / 2
        best = np.clip(np.clip(mean, lower, upper), self.left, self.right)
        zone = 1 - (best < enters) + (best > leaves), np.arange(len(mean))
        greatest = np.full(count, -np.inf)
        np.maximum.at(greatest, index, heights[zone] - ((best - centres[zone]) / scales[zone]) ** 2 / 2)
        infinite = np.full_like(mean, np.inf)
        bounds, smooth, kinds = [-infinite, enters, leaves, infinite], scales, np.arange(3)
        if np.any(gamma < 1):
            # Where T given V changes from outside to inside, if that is more abrupt than the density of V.
            narrow = spread * np.minimum(gamma, 1.0)
            reach = np.where(gamma < 1, TRANSITION * narrow, 0.0)
            middle = (enters + leaves) / 2
            bounds[2:2] = np.minimum(enters + reach, middle), np.maximum(leaves - reach, middle)
            smooth, kinds = np.array([gamma, narrow, spread, narrow, gamma]), np.array([0, 1, 1, 1, 2])
        centre, scale = centres[kinds], scales[kinds]
        room = NEGLIGIBLE + heights[kinds] - greatest[index]
        half = scale * np.sqrt(2 * np.maximum(room, 0.0))
        start = np.maximum(np.maximum(bounds[:-1], self.left), centre - half)
        end = np.minimum(np.minimum(bounds[1:], self.right), centre + half)
        heavy = np.nonzero((room > 0) & (start < end))
        parts = NormalPanels(
            rectangle=heavy[1],
            start=start[heavy],
            width=end[heavy] - start[heavy],
            centre=centre[heavy],
            scale=scale[heavy],
            outside=kinds[heavy[0]] != 1,
        )
        return parts, smooth[heavy]

    def integrand(self, panels: NormalPanels, step: Floats) -> tuple[Floats, Floats]:
        """Return a normal density times a probability or a Mills ratio: see :meth:`Rectangles.integrand`."""
        variance = 1 + self.gamma**2
        per_v = 1 / (self.gamma * np.sqrt(variance))
        # Distances by which the mean of T given V is outside the range, in its standard deviations: linear in V.
        below, above = (
            sign * (panels.start - end - self.gamma**2 * (end - self.mean)) * per_v
            for sign, end in ((-1, self.lower), (1, self.upper))
        )
        near = np.maximum(below, above)
        level = self.log_density(panels.start) - np.where(panels.outside, near, 0.0) ** 2 / 2
        chance = _chance(
            near + step * np.where(above > below, per_v, -per_v),
            (self.upper - self.lower) * (per_v * variance),
            panels.outside,
        )
        step *= 2 * (panels.start - panels.centre) + step
        step /= -2 * panels.scale**2
        chance *= np.exp(step, out=step)
        return level, chance

    def log_masses_on_side(self, above: Mask) -> tuple[Floats, Floats]:
        """Return the log masses (m,) of intervals of V with T on one side of a point t, and the means of T - t there.

        In an exponential family the mean of T - t is the derivative of the log mass in the mean of T, up to a term that
        does not depend on the range.

        The intervals have a positive width, and t is ``upper``. A mask says whether T is at or above t, or below it.
        """
        gamma, mean, t = self.gamma, self.mean, self.upper
        sign = np.where(above, 1.0, -1.0)
        sides = replace(self, lower=np.where(above, t, -np.inf), upper=np.where(above, np.inf, t))
        spread = np.sqrt(1 + gamma**2)
        ends = self.left, self.right
        # Distances of t from the mean of T given V, in its standard deviations, towards this side: at both ends of V.
        at_ends = tuple(sign * (t - mean - (v - mean) / spread**2) * (spread / gamma) for v in ends)
        log_masses = np.empty(len(self))
        surely = np.maximum(*at_ends) < -FAR
        log_masses[surely] = self.take(surely).log_whole()
        rows = np.flatnonzero(~surely)
        log_masses[rows] = sides.take(rows).log_integrals(np.arange(len(rows)), len(rows))
        with np.errstate(over="ignore", invalid="ignore"):  # an interval without mass
            # The derivative of a mass is a sum over the four sides of its rectangle, of which one is at infinity.
            from_left, from_right = (
                np.exp(self.log_density(v) + log_ndtr(-distance) - log_masses)
                for v, distance in zip(ends, at_ends, strict=True)
            )
            at_origin = (t - mean - (self.origin - mean) / spread**2) * (spread / gamma)
            log_density = (((self.origin - t) / gamma) ** 2 - at_origin**2) / 2
            from_end = spread * np.exp(log_density + log_mass(*((v - t) / gamma for v in ends)) - log_masses)
            means = mean - t + (from_left - from_right) + sign * from_end
        # Between ends of V that are close to each other this is a difference of large numbers, but the mean of T - t
        # given V increases with V.
        least, greatest = (sign * gamma / spread * _mean_beyond(distance) for distance in at_ends)
        return log_masses, np.minimum(np.maximum(means, least), greatest)


def _chance(near: Floats, width: Floats, outside: Mask) -> Floats:
    """Return P(near <= Z <= near + width) for Z ~ N(0, 1), (n, p) for distances near (n, p) and widths (p,).

    Where zero is outside the interval, it is in units of exp(-near^2 / 2).
    """
    nearest = np.minimum(near[0], near[-1])
    falls = width * (width / 2 + np.maximum(nearest, 0.0))
    short = np.where(outside, falls, width) < 1
    chance = np.empty_like(near)
    rows, others = np.flatnonzero(outside), np.flatnonzero(~outside)
    chance[:, rows], chance[:, others] = tail_ratio(near[:, rows]), ndtr(-near[:, others])
    rows = np.flatnonzero(outside & ~short & (falls < NEGLIGIBLE))
    x, w = near[:, rows], width[rows]
    chance[:, rows] -= np.exp(-w * (x + w / 2)) * tail_ratio(x + w)
    rows = np.flatnonzero(~outside & ~short & (width + nearest < FAR))
    chance[:, rows] -= ndtr(-near[:, rows] - width[rows])
    rows = np.flatnonzero(short)
    if len(rows):
        x = near[:, rows]
        chance[:, rows] = np.exp(-(np.where(outside[rows], 0.0, x) ** 2) / 2) * _short_integral(x, width[rows])
    return chance


def tail_ratio(x: Floats) -> Floats:
    """Return P(Z > x) / exp(-x^2 / 2) for Z ~ N(0, 1)."""
    return np.asarray(0.5 * erfcx(x * _SQRT_HALF))


def _short_integral(near: Floats, width: Floats) -> Floats:
    """Return the integrals of exp(-y near - y^2 / 2) / (2 pi)^(1/2) for y from 0 to the width, (n, p)."""
    places, weights = gauss_legendre(SHORT)
    integral = np.zeros_like(near)
    for place, weight in zip(places, weights, strict=True):
        y = place * width
        integral += weight * np.exp(-y * (near + y / 2))
    return np.asarray(integral * (width / np.sqrt(2 * np.pi)))


def _mean_beyond(distance: Floats) -> Floats:
    """Return E(Z - x | Z >= x) for Z ~ N(0, 1) and distances x (m,)."""
    with np.errstate(divide="ignore", invalid="ignore"):  # nothing is beyond infinity
        beyond = np.sqrt(2 / np.pi) / erfcx(distance / np.sqrt(2)) - distance
    return np.where(distance < np.inf, np.maximum(beyond, 0.0), 0.0)
