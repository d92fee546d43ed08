"""Masses of a statistic T with an estimated standard error S and of V = T + noise in proportion to S, in logs.

All lengths are in units of the observed S. With the mean and the sufficient statistic R^2 = nu S^2 + (T - mean)^2
given, T determines S (see :mod:`attentest.statistics.interval_mass`): with T - mean = R tanh y it is
R / (nu^(1/2) cosh y), and the density of y is proportional to cosh(y)^-nu. V given T is normal around T with standard
deviation gamma S, so that it is below an end e of an interval with the probability Phi(h / gamma), where

    h(y) = (e - T) / S = nu^(1/2) ((e - mean) cosh(y) / R - sinh(y)).

The mass of an interval of V with T in a range is the integral over y of the density times a difference of two such
probabilities. It has an upper bound, the density times exp(-(h / gamma)^2 / 2) outside the interval, whose log is
concave: that of the density is, and where h > 0 the second derivative of h^2 is 2 h'^2 + 2 h^2, because h'' = h. So the
part of the range that matters is found by Newton's method, and it is divided into panels of Gauss-Legendre quadrature
in which the integrand changes little. The relative error of a mass is below 2e-9.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from attentest.statistics.bivariate_mass import TRANSITION, Panels, Rectangles, tail_ratio
from attentest.statistics.columns import Floats, Integers, repeated
from attentest.statistics.roots import increasing_roots

NEGLIGIBLE, UNSURE = 50.0, 10.0
"""Where the integrand is lower than at its mode by so many logs, the rest is left out; and how far off that may be."""

FARTHEST = 64.0
"""Distance in y from the mean beyond which there is no mass: there cosh(y)^-nu is below 1e-27 for nu = 1."""

FLAT = 1e-30  # least second derivative of minus the log density, per degree of freedom

PANEL, STEEP, LONG = 3.5, 14.0, 2.0
"""Greatest width of a panel in standard deviations of a normal density like the integrand, the most logs by which that
falls over a panel, and the greatest width in y: the log of cosh has poles at distances of pi / 2 from the real line."""

NODES = 10  # nodes of Gauss-Legendre quadrature on a panel

NARROW = 0.2
"""If an interval of V is narrower than this, in units of gamma times its distance from T, three nodes measure it."""

_OUTER, _SQRT_2PI = np.sqrt(0.6), np.sqrt(2 * np.pi)


@dataclass(frozen=True, kw_only=True, eq=False)
class StudentRectangles(Rectangles):
    """Rectangles (m,) whose intervals of V and ranges of T are distances from the observed T.

    Masses are relative to the density of T at the observed one, and y is a distance from it, too: so no digit is lost
    next to T, however far away the mean is.
    """

    least: Floats
    greatest: Floats
    """(m,). The ends of the support of T: R less and R more than the mean."""
    degrees: Floats
    """(m,). Degrees of freedom."""

    @property
    def centre(self) -> Floats:
        """The y (m,) at which T is the mean."""
        return np.asarray(np.log(self.greatest / -self.least) / 2)

    @property
    def unit(self) -> Floats:
        """The derivative (m,) of T in y at the observed T, nu / R."""
        return np.asarray(-2 * self.least * self.greatest / (self.greatest - self.least))

    def place(self, end: Floats) -> Floats:
        """Return the y (m,) where T is at ends (m,), so that h is zero; outside the support, where h is least."""
        centre = self.centre
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = end / self.least, end / self.greatest
            towards_least, towards_greatest = (np.log1p(np.where(x < 1, -x, x - 2)) for x in ratios)
            place = np.where(np.isinf(end), centre, (towards_least - towards_greatest) / 2)
        return np.asarray(np.clip(place, centre - FARTHEST, centre + FARTHEST))

    def at(self, y: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the observed S over S at y (..., m), sinh(y), and the log density relative to that at T."""
        up, down = self._shares
        grown, above = np.exp(y), np.expm1(y)
        shrunk = 1 / grown
        below = -above * shrunk  # expm1(-y)
        cosh, excess = up * grown + down * shrunk, up * above + down * below
        near = np.abs(excess) < 0.5
        logs = np.where(near, np.log1p(np.where(near, excess, 0.0)), np.log(cosh))
        return cosh, (above - below) / 2, -self.degrees * logs

    @property
    def _shares(self) -> tuple[Floats, Floats]:
        """The weights (m,) of exp(y) and exp(-y) in the observed S over S."""
        width = self.greatest - self.least
        return -self.least / width, self.greatest / width

    def log_bound(self, y: Floats, margin: float = 0.0) -> tuple[Floats, Floats, Floats]:
        """Return an upper bound of the log of the integrand at y (..., m), and minus its first and second derivatives.

        The second derivative includes the terms of ends of the interval of V that are closer than a margin, in gammas.
        """
        cosh, sinh, bound = self.at(y)
        (up, down), grown = self._shares, np.exp(y)
        shrunk, unit = 1 / grown, self.unit
        cosh_slope, sinh_slope = up * grown - down * shrunk, (grown + shrunk) / 2
        steep = cosh_slope / cosh
        slope, curvature = self.degrees * steep, np.zeros_like(y)
        with np.errstate(invalid="ignore"):  # an infinite end
            for end, side in ((self.left, 1.0), (self.right, -1.0)):
                scale = side / self.gamma
                h, h_slope = scale * (end * cosh - unit * sinh), scale * (end * cosh_slope - unit * sinh_slope)
                curvature = np.where(h > -margin, np.maximum(curvature, h * h + h_slope * h_slope), curvature)
                bound = np.where(h > 0, bound - h * h / 2, bound)
                slope = np.where(h > 0, slope + h * h_slope, slope)
        return bound, slope, curvature + self.degrees * np.maximum(1 - steep * steep, FLAT)

    def panels(self, index: Integers, count: int) -> Iterator[tuple[int, Panels]]:
        """Yield the panels that matter: see :meth:`Rectangles.panels`."""
        lower, upper = (np.clip(end, self.least, self.greatest) for end in (self.lower, self.upper))
        rows = np.flatnonzero(lower < upper)
        if len(rows):
            which, start, width = _panels(replace(self, lower=lower, upper=upper).take(rows))
            yield NODES, Panels(rectangle=rows[which], start=start, width=width)

    def integrand(self, panels: Panels, step: Floats) -> tuple[Floats, Floats]:
        """Return the density times the probability of the interval of V: see :meth:`Rectangles.integrand`."""
        cosh, sinh, logs = self.at(panels.start + step)
        logs += _log_interval(self, cosh, sinh)
        greatest = np.maximum(logs.max(axis=0), np.finfo(np.float64).min)
        return greatest + np.log(self.unit), np.exp(logs - greatest)


def _log_interval(rectangles: StudentRectangles, cosh: Floats, sinh: Floats) -> Floats:
    """Return log P(left <= V <= right given T), (n, m) for what :meth:`StudentRectangles.at` returns, (n, m)."""
    scale = cosh / rectangles.gamma
    width = (rectangles.right - rectangles.left) * scale
    centre = (rectangles.unit / rectangles.gamma) * sinh
    start, end = (side * scale - centre for side in (rectangles.left, rectangles.right))
    with np.errstate(invalid="ignore"):  # -inf + inf, for the whole line: any order will do
        mirrored = start + end < 0
    near, far = np.where(mirrored, -end, start), np.where(mirrored, -start, end)  # |near| <= |far|, far >= 0
    closest = np.maximum(near, 0.0)
    # Probabilities in units of exp(-closest^2 / 2).
    chance = np.empty_like(scale)
    narrow = width * np.maximum(1.0, far) < NARROW
    rows = np.flatnonzero(~narrow.all(axis=0))
    start, end, first = near[:, rows], far[:, rows], closest[:, rows]
    tail = tail_ratio(np.abs(start))
    tail = np.where(start < 0, 1 - np.exp(-(start**2) / 2) * tail, tail)
    chance[:, rows] = tail - np.exp((first - end) * (first + end) / 2) * tail_ratio(end)
    middle, step = (near[narrow] + far[narrow]) / 2, width[narrow]
    offset = step / 2 * _OUTER
    mean = (8 + 10 * np.exp(-(offset**2) / 2) * np.cosh(middle * offset)) / 18  # Gauss-Legendre, three nodes
    chance[narrow] = step * mean * np.exp((closest[narrow] ** 2 - middle**2) / 2) / _SQRT_2PI
    return np.asarray(np.log(chance) - closest**2 / 2)


def _panels(rectangles: StudentRectangles) -> tuple[Integers, Floats, Floats]:
    """Return panels of the axis of y: the rectangle, the start and the width of each."""
    low, high, greatest = _effective_range(rectangles)
    # Far inside the interval of V the integrand changes as slowly as the density of T: such a part is one by itself.
    inner = []
    for end, side in ((rectangles.left, 1.0), (rectangles.right, -1.0)):
        away = TRANSITION * rectangles.gamma / rectangles.at(rectangles.place(end))[0]
        inner.append(np.clip(rectangles.place(end + side * away), low, high))
    slow = inner[1] - inner[0] > (high - low) / 2
    ends = np.array([low, np.where(slow, inner[0], low), np.where(slow, inner[1], low), high])
    part, which = np.nonzero(ends[:-1] < ends[1:])
    start, end = ends[part, which], ends[part + 1, which]
    finished: list[tuple[Integers, Floats, Floats]] = []
    while len(start):
        times = _times(rectangles.take(which), start, end, greatest[which])
        enough = times == 1
        finished.append((which[enough], start[enough], (end - start)[enough]))
        divided = times > 1
        row, place = repeated(times[divided])
        width = ((end - start)[divided] / times[divided])[row]
        which, start = which[divided][row], start[divided][row] + place * width
        end = start + width
    rows, starts, widths = zip(*finished, strict=True)
    return np.concatenate(rows), np.concatenate(starts), np.concatenate(widths)


def _times(rectangles: StudentRectangles, start: Floats, end: Floats, greatest: Floats) -> Integers:
    """Return into how many panels (m,) parts of the axis of y are divided, which may be divided again; 0 if empty."""
    (first, last), _, bends = rectangles.log_bound(np.array([start, end]), TRANSITION)
    centre = rectangles.centre
    around = (start < centre) & (centre < end)
    bend = np.maximum(bends.max(axis=0), np.where(around, rectangles.degrees, 0.0))
    depth = greatest - np.maximum(first, last)
    fall = np.abs(first - last) / (STEEP + depth / 2)
    width = end - start
    times = np.maximum(np.maximum(width * np.sqrt(bend) / PANEL, fall), width / LONG)
    return np.where(width > 0, np.clip(np.ceil(times), 1, 4), 0).astype(np.int64)


def _effective_range(rectangles: StudentRectangles) -> tuple[Floats, Floats, Floats]:
    """Return the part of the range of y (m,) in which the integrand is not negligible, and the log of its bound."""
    start, end = rectangles.place(rectangles.lower), rectangles.place(rectangles.upper)
    # The mode lies between the mean and the interval of V, as far as T gets there.
    centre = rectangles.centre
    first = np.where(rectangles.left > rectangles.least, rectangles.place(rectangles.left), -np.inf)
    last = np.where(rectangles.right < rectangles.greatest, rectangles.place(rectangles.right), np.inf)
    ends = centre, np.clip(centre, first, last)
    low, high = (np.clip(extreme(*ends), start, end) for extreme in (np.minimum, np.maximum))

    def slope(rows: Integers, y: Floats) -> tuple[Floats, Floats]:
        _, slope, curvature = rectangles.take(rows).log_bound(y)
        return slope / np.sqrt(2 * curvature), np.sqrt(curvature / 2)  # the square is what is missing to the greatest

    _, (at_low, at_high), _ = rectangles.log_bound(np.array([low, high]))
    mode = np.where(at_low >= 0, low, high)
    rows = np.flatnonzero((at_low < 0) & (at_high > 0))
    mode[rows] = increasing_roots(
        lambda some, y: slope(rows[some], y), ((low + high) / 2)[rows], close=2.0, between=(low[rows], high[rows])
    )
    greatest, _, curvature = rectangles.log_bound(mode)
    both = rectangles.take(np.tile(np.arange(len(mode)), 2))
    side = np.repeat([-1.0, 1.0], len(mode))
    farthest = np.concatenate([mode - start, end - mode])
    floor = np.tile(greatest, 2) - NEGLIGIBLE

    def depth(rows: Integers, distance: Floats) -> tuple[Floats, Floats]:
        bound, slope, _ = both.take(rows).log_bound(np.tile(mode, 2)[rows] + side[rows] * distance)
        return floor[rows] - bound, side[rows] * slope

    cut = np.flatnonzero(depth(np.arange(len(both)), farthest)[0] > 0)
    distance = farthest.copy()
    expected = np.sqrt(2 * NEGLIGIBLE / np.tile(curvature, 2))
    distance[cut] = increasing_roots(
        lambda rows, at: depth(cut[rows], at),
        np.minimum(expected, farthest)[cut],
        close=UNSURE,
        between=(np.zeros(len(cut)), farthest[cut]),
    )
    return mode - distance[: len(mode)], mode + distance[len(mode) :], greatest
