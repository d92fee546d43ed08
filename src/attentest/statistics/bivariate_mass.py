"""Masses of a statistic T in a range and of V = T + noise in an interval, in logs.

A mass is an integral over a rectangle of the plane of T and V. Under the normal distribution it is the integral over V
of its density, N(mean, 1 + gamma^2), times the probability of T given V, which is normal too. For T in a range the
integrand is log-concave and is one of three normal densities times a factor that changes slowly: where the likeliest T
for a V is in the range, the density of V times a probability of at least 1/2 (or, in a narrow range, a smooth one);
where it is outside, the density of V given that T is at the nearer end, times a Mills ratio. The axis of V is divided
accordingly. A part is divided into panels of Gauss-Legendre quadrature that are narrow enough for the integrand to be
smooth, or, if it is all of a tail, integrated by Gauss-Laguerre quadrature in the exponent of its density. What is too
light to matter is left out beforehand, so a mass in the tails costs no more than one in the middle. Nothing is ever
subtracted but what lies beyond the farther end of the range of T.

If the standard error is estimated, T given V has no such law, and the integral is over T:
:mod:`attentest.statistics.student_bivariate_mass`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.polynomial.laguerre import laggauss
from scipy.special import erfcx, log_ndtr, ndtr

from attentest.statistics.columns import Columns, Floats, Integers, Mask, repeated
from attentest.statistics.interval_mass import gauss_legendre, log_mass, log_sums

NEGLIGIBLE = 42.0
"""Parts of an integral whose density is lower than the greatest by so many logs are left out."""

PANELS = ((4, 0.1, 0.2), (6, 0.5, 1.0), (8, 0.8, 3.0), (12, 2.5, 8.0), (20, 5.0, 20.0))
"""Numbers of Gauss-Legendre nodes, with the greatest width of a panel, in standard deviations, and the most logs by
which the density falls over it, for which so many are enough: the relative error is then less than 3e-14."""

TAILS = ((8, 12.0), (12, 6.0), (20, 4.0))
"""Numbers of Gauss-Laguerre nodes, with the least distance of a tail from the centre of its density, in standard
deviations, for which so many are enough."""

TRANSITION = 8.0
"""Beyond so many standard deviations of T given V, whether T lies in its range is decided by V; and the other way
round."""

ROUNDING = 38.0
"""What is lighter than the rest by so many logs does not change the sum."""

SHORT = 3
"""Rule of Gauss-Legendre quadrature for a range of T over which its density given V falls by little."""

FAR = 8.5
"""A normal number is greater than this with a probability of less than a rounding error of one."""

FEW = 300
"""With fewer parts than this, a rule of their own costs more than the nodes it saves."""

MOST_TOGETHER = 4_000
"""Panels that are processed at a time: their nodes fit into the cache."""

MOST_OF_IT = 0.75
"""What is left of a mass is a difference if no greater share than this is subtracted: that costs two bits."""

MANY = 200
"""With no more intervals than this, a second pass over arrays costs more than it saves."""

_LEGENDRE = [gauss_legendre(count) for count, _, _ in PANELS]

_LAGUERRE = [laggauss(count) for count, _ in TAILS]

_SQRT_HALF = np.sqrt(0.5)


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
    def log_integrals(self, index: Integers, count: int) -> Floats:
        """Return the log masses (count,) of the rectangles; those with the same index (m,) are added up."""

    def log_masses(self) -> tuple[Floats, Floats]:
        """Return the log masses (m,) of the intervals of V with T outside and inside its range."""
        outside, inside = masses = np.full((2, len(self)), -np.inf)
        rows = np.flatnonzero(self.left < self.right)
        if len(rows):
            masses[:, rows] = self.take(rows).log_masses_of_both()
        return outside, inside

    def log_masses_of_both(self) -> Floats:
        """Return the same masses (2, m) of intervals that have a width."""
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


def in_chunks(count: int) -> Iterator[slice]:
    """Yield slices of so many panels, of as many as are processed at a time."""
    for first in range(0, count, MOST_TOGETHER):
        yield slice(first, first + MOST_TOGETHER)


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

    def log_masses_of_both(self) -> Floats:
        """Return the log masses with T outside and inside its range: see :meth:`Rectangles.log_masses_of_both`.

        Their sum has a closed form. So of many intervals only one of the two is integrated, which is the smaller one
        if the likeliest T tells, and the other is what remains; if that is little, it is integrated too.
        """
        if len(self) <= MANY:
            return super().log_masses_of_both()
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

    def log_integrals(self, index: Integers, count: int) -> Floats:
        """Return the log masses of the rectangles: see :meth:`Rectangles.log_integrals`."""
        parts = _parts(self, index, count)
        first, last = (np.abs(end - parts.centre) / parts.scale for end in (parts.start, parts.end))
        widths, falls = (parts.end - parts.start) / parts.smooth, np.abs(first - last) * (first + last) / 2
        # In tails the density falls all the way, over a distance that is short for the factor too.
        tail = (falls > ROUNDING) & ((parts.start >= parts.centre) | (parts.end <= parts.centre))
        steep = np.where(tail, np.minimum(first, last) * np.minimum(parts.smooth / parts.scale, 1.0), 0.0)
        rule_of_tail, rule_of_panel = np.full(len(steep), -1), np.full(len(steep), len(PANELS) - 1)
        for number, (_, least) in reversed(list(enumerate(TAILS))):
            rule_of_tail[steep >= least] = number
        for number, (_, widest, steepest) in reversed(list(enumerate(PANELS[:-1]))):
            rule_of_panel[(widths <= widest) & (falls <= steepest)] = number
        rule_of_panel[rule_of_tail >= 0] = -1
        for rules, rule_of in ((TAILS, rule_of_tail), (PANELS, rule_of_panel)):
            for number in range(len(rules) - 1):
                rows = (rule_of == number).nonzero()[0]
                if len(rows) < FEW:
                    rule_of[rows] += 1  # the next rule has more nodes
        which, logs = [index[:0]], [widths[:0]]
        for inside in (True, False):
            candidates = (parts.side == 0) == inside
            for number, rule in enumerate(_LAGUERRE):
                rows = np.flatnonzero(candidates & (rule_of_tail == number))
                for chunk in in_chunks(len(rows)):
                    tails = parts.take(rows[chunk])
                    which.append(tails.rectangle)
                    logs.append(_log_tails(self.take(tails.rectangle), tails, rule, inside))
            for number, (rule, (_, widest, steepest)) in enumerate(zip(_LEGENDRE, PANELS, strict=True)):
                rows = np.flatnonzero(candidates & (rule_of_panel == number))
                times = np.ceil(np.maximum(widths[rows] / widest, falls[rows] / steepest)).astype(np.int64)
                row, place = repeated(times)
                for chunk in in_chunks(len(row)):
                    panels = parts.take(rows[row[chunk]])
                    width = (panels.end - panels.start) / times[row[chunk]]
                    start = panels.start + place[chunk] * width
                    which.append(panels.rectangle)
                    logs.append(_log_panels(self.take(panels.rectangle), panels, start, width, rule, inside))
        return log_sums(index[np.concatenate(which)], np.concatenate(logs), count)

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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Parts(Columns):
    """Parts (p,) of the axis of V on which the integrand is a normal density times a factor."""

    rectangle: Integers
    start: Floats
    end: Floats
    centre: Floats  # of the normal density
    scale: Floats  # its standard deviation
    smooth: Floats  # distance over which the factor changes little
    side: Integers  # the likeliest T is below (-1), in (0) or above (1) the range


def _parts(rectangles: NormalRectangles, index: Integers, count: int) -> _Parts:
    """Return the parts of rectangles (m,) that matter; those with the same index, below ``count``, are one mass."""
    lower, upper, gamma, mean = rectangles.lower, rectangles.upper, rectangles.gamma, rectangles.mean
    spread = np.sqrt(1 + gamma**2)
    # At these V the likeliest T, (gamma^2 mean + V) / (1 + gamma^2), is an end of the rectangle.
    enters, leaves = (end + gamma**2 * (end - mean) for end in (lower, upper))
    centres = np.array([lower, mean, upper])
    scales = np.array([gamma, spread, gamma])
    heights = -((centres - mean) ** 2) / 2
    best = np.clip(np.clip(mean, lower, upper), rectangles.left, rectangles.right)
    zone = 1 - (best < enters) + (best > leaves), np.arange(len(mean))
    greatest = np.full(count, -np.inf)
    np.maximum.at(greatest, index, heights[zone] - ((best - centres[zone]) / scales[zone]) ** 2 / 2)
    infinite = np.full_like(mean, np.inf)
    if np.any(gamma < 1):
        # Where T given V changes from outside to inside, if that is more abrupt than the density of V.
        narrow = spread * np.minimum(gamma, 1.0)
        reach = np.where(gamma < 1, TRANSITION * narrow, 0.0)
        middle = (enters + leaves) / 2
        inner = np.minimum(enters + reach, middle), np.maximum(leaves - reach, middle)
        ends = np.array([-infinite, enters, *inner, leaves, infinite])
        smooth = np.array([gamma, narrow, spread, narrow, gamma])
        kinds = np.array([0, 1, 1, 1, 2])
    else:
        ends, smooth, kinds = np.array([-infinite, enters, leaves, infinite]), scales, np.arange(3)
    centre, scale = centres[kinds], scales[kinds]
    room = NEGLIGIBLE + heights[kinds] - greatest[index]
    half = scale * np.sqrt(2 * np.maximum(room, 0.0))
    start = np.maximum(np.maximum(ends[:-1], rectangles.left), centre - half)
    end = np.minimum(np.minimum(ends[1:], rectangles.right), centre + half)
    heavy = np.nonzero((room > 0) & (start < end))
    return _Parts(
        rectangle=heavy[1],
        start=start[heavy],
        end=end[heavy],
        centre=centre[heavy],
        scale=scale[heavy],
        smooth=smooth[heavy],
        side=kinds[heavy[0]] - 1,
    )


def _log_tails(rectangles: NormalRectangles, parts: _Parts, rule: tuple[Floats, Floats], inside: bool) -> Floats:
    """Return the logs (p,) of the integrals over parts from their nearer ends to infinity.

    The variable of the integral is the exponent u of the density relative to its value at the nearer end, a standard
    deviations from the centre: dV = scale du / (a^2 + 2 u)^(1/2).
    """
    exponents, weights = rule[0][:, None], rule[1]
    upwards = parts.start > parts.centre
    first = np.where(upwards, parts.start, parts.end)
    distance = np.abs(first - parts.centre) / parts.scale
    root = np.sqrt(distance**2 + 2 * exponents)
    step = 2 * exponents / (root + distance) * np.where(upwards, parts.scale, -parts.scale)
    level, factor = _level_and_factor(rectangles, parts.side, first, step, inside)
    factor /= root
    return np.asarray(level + np.log(weights @ factor * parts.scale))


def _log_panels(
    rectangles: NormalRectangles,
    parts: _Parts,
    start: Floats,
    width: Floats,
    rule: tuple[Floats, Floats],
    inside: bool,
) -> Floats:
    """Return the logs (p,) of the integrals over panels of parts (p,)."""
    places, weights = rule
    step = places[:, None] * width
    level, factor = _level_and_factor(rectangles, parts.side, start, step, inside)
    step *= 2 * (start - parts.centre) + step
    step /= -2 * parts.scale**2
    factor *= np.exp(step, out=step)
    with np.errstate(divide="ignore"):  # between ends that rounding makes one there is nothing
        return np.asarray(level + np.log(weights @ factor * width))


def _level_and_factor(
    rectangles: NormalRectangles, side: Integers, v: Floats, step: Floats, inside: bool
) -> tuple[Floats, Floats]:
    """Return the logs (p,) of the normal densities at v (p,), and the factors (n, p) at v + step (n, p).

    The likeliest T is inside the range for all of them, or outside for all.
    """
    lower, upper, gamma, mean = rectangles.lower, rectangles.upper, rectangles.gamma, rectangles.mean
    variance = 1 + gamma**2
    per_v = 1 / (gamma * np.sqrt(variance))
    width = (upper - lower) * (per_v * variance)
    # Distances of the ends of the range from the mean of T given V, in its standard deviations; they are linear in V.
    above_lower, above_upper = ((v - end - gamma**2 * (end - mean)) * per_v for end in (lower, upper))
    level = rectangles.log_density(v)
    if inside:
        mirrored = -above_upper < above_lower
        near = np.where(mirrored, -above_upper, above_lower) + step * np.where(mirrored, -per_v, per_v)
        return level, _probability_inside(near, width)
    above = side > 0
    at_v = np.where(above, above_upper, -above_lower)
    level -= at_v**2 / 2
    return level, _mills_ratio(at_v + step * np.where(above, per_v, -per_v), width)


def _probability_inside(near: Floats, width: Floats) -> Floats:
    """Return P(-near <= Z <= width - near) for Z ~ N(0, 1), (n, p) for near (n, p) >= 0 and widths (p,)."""
    chance = ndtr(near)
    rows = np.flatnonzero(width - np.maximum(near[0], near[-1]) < FAR)
    chance[:, rows] -= ndtr(near[:, rows] - width[rows])
    short = rows[width[rows] < 1]
    if len(short):
        x = near[:, short]
        chance[:, short] = np.exp(-(x**2) / 2) * _short_integral(-x, width[short])
    return np.asarray(chance)


def _mills_ratio(near: Floats, width: Floats) -> Floats:
    """Return P(near <= Z <= near + width) / exp(-near^2 / 2) for Z ~ N(0, 1), (n, p), and widths (p,)."""
    ratio = 0.5 * erfcx(near * _SQRT_HALF)
    nearest = np.maximum(np.minimum(near[0], near[-1]), 0.0)
    falls = width * (width / 2 + nearest)
    rows = np.flatnonzero((falls < ROUNDING) & (falls >= 1))
    x, w = near[:, rows], width[rows]
    ratio[:, rows] -= 0.5 * np.exp(-w * (x + w / 2)) * erfcx((x + w) * _SQRT_HALF)
    short = np.flatnonzero(falls < 1)
    if len(short):
        ratio[:, short] = _short_integral(near[:, short], width[short])
    return np.asarray(ratio)


def _short_integral(near: Floats, width: Floats) -> Floats:
    """Return the integrals of exp(-y near - y^2 / 2) / (2 pi)^(1/2) for y from 0 to the width, (n, p)."""
    places, weights = _LEGENDRE[SHORT]
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
