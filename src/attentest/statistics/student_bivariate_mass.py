"""Masses of a statistic T with an estimated standard error and of V = T + noise, in logs.

T has the density of :mod:`attentest.statistics.interval_mass`, and V given T is normal with standard deviation gamma.
The mass of an interval of V with T in a range is the integral over that range of the density of T times the probability
of the interval given T.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import log_ndtr

from attentest.statistics.bivariate_mass import Rectangles, in_chunks
from attentest.statistics.columns import Floats, Integers, repeated
from attentest.statistics.interval_mass import gauss_legendre, log_density, log_sums, support

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

_OUTER, _LOG_SQRT_2PI = np.sqrt(0.6), 0.5 * np.log(2 * np.pi)
_PLACES, _WEIGHTS = gauss_legendre(NODES)


@dataclass(frozen=True, kw_only=True, eq=False)
class StudentRectangles(Rectangles):
    """Rectangles (m,) whose intervals of V and ranges of T are distances from the observed T.

    The density of T is relative to its value at the observed one.

    Parameters
    ----------
    shift : (m,)
        The observed T minus the mean.
    degrees : (m,)
        Degrees of freedom.
    """

    shift: Floats
    degrees: Floats

    def log_density(self, t: Floats) -> Floats:
        """Return the log density at t (m,) or (m, n), relative to that at the observed T."""
        rows = (slice(None),) + (None,) * (t.ndim - 1)
        return log_density(t, 0.0, -self.shift[rows], self.degrees[rows])

    def log_bound(self, t: Floats) -> Floats:
        """Return an upper bound (m,) of the log of the integrand at t (m,), which has one maximum."""
        outside = np.maximum(np.maximum(self.left - t, t - self.right), 0.0)
        # With two degrees of freedom and fewer the density is greatest at the ends of its support: taken as constant.
        steep = np.where(self.degrees > 2, self.log_density(t), 0.0)
        return np.asarray(steep - (outside / self.gamma) ** 2 / 2)

    def log_integrals(self, index: Integers, count: int) -> Floats:
        """Return the log masses of the rectangles: see :meth:`Rectangles.log_integrals`."""
        ends = support(self.shift, self.degrees)
        lower, upper = np.clip(self.lower, *ends), np.clip(self.upper, *ends)
        rows = np.flatnonzero(lower < upper)
        wide = replace(self, lower=lower, upper=upper).take(rows)
        which, start, width = _panels(wide)
        logs = np.empty(len(which))
        for chunk in in_chunks(len(which)):
            panels = wide.take(which[chunk])
            t, log_weights = _nodes(panels, start[chunk], width[chunk])
            at = panels.log_density(t) + _log_interval(panels, t) + log_weights
            greatest = at.max(axis=1)
            shift = np.where(np.isneginf(greatest), 0.0, greatest)
            with np.errstate(divide="ignore"):
                logs[chunk] = shift + np.log(np.exp(at - shift[:, None]) @ _WEIGHTS)
        return log_sums(index[rows], log_sums(which, logs, len(rows)), count)


def _nodes(rectangles: StudentRectangles, start: Floats, width: Floats) -> tuple[Floats, Floats]:
    """Return the nodes (m, n) on panels (m,) of the axis of T, and the logs of the lengths (m, n) they stand for."""
    t = start[:, None] + width[:, None] * _PLACES
    log_lengths = np.broadcast_to(np.log(width)[:, None], t.shape).copy()
    blunt = np.flatnonzero(rectangles.degrees < BLUNT)
    if len(blunt):
        # With the distance from the mean as the sine of an angle the integrand is smooth where the support ends, too.
        shift = rectangles.shift[blunt]
        radius = np.hypot(np.sqrt(rectangles.degrees[blunt]), shift)
        ends = start[blunt] + shift, start[blunt] + width[blunt] + shift
        first, last = (np.arcsin(np.clip(end / radius, -1.0, 1.0)) for end in ends)
        angle = first[:, None] + (last - first)[:, None] * _PLACES
        t[blunt] = radius[:, None] * np.sin(angle) - shift[:, None]
        with np.errstate(divide="ignore"):
            log_lengths[blunt] = np.log((radius * (last - first))[:, None] * np.cos(angle))
    return t, log_lengths


def _log_interval(rectangles: StudentRectangles, t: Floats) -> Floats:
    """Return log P(left <= V <= right given T = t), (m, n) for t (m, n)."""
    width = ((rectangles.right - rectangles.left) / rectangles.gamma)[:, None]
    start, end = ((side[:, None] - t) / rectangles.gamma[:, None] for side in (rectangles.left, rectangles.right))
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


def _panels(rectangles: StudentRectangles) -> tuple[Integers, Floats, Floats]:
    """Return panels of the axis of T: the rectangle, the start and the width of each."""
    low, high = _effective_range(rectangles)
    reach = TRANSITION * rectangles.gamma
    infinite = np.full_like(low, np.inf)
    # Around the ends of the interval of V the integrand changes within gamma, elsewhere as slowly as the density of T.
    left, right = np.maximum(rectangles.left, low - reach), np.minimum(rectangles.right, high + reach)
    middle = (left + right) / 2
    inner = np.minimum(left + reach, middle), np.maximum(right - reach, middle)
    ends = np.array([-infinite, *inner, infinite])
    smooth = np.minimum(np.array([rectangles.gamma, np.ones_like(low), rectangles.gamma]), 1.0)
    start, end = np.maximum(ends[:-1], low), np.minimum(ends[1:], high)
    wide = start < end
    start, end, smooth = start[wide], end[wide], smooth[wide]
    times = np.maximum(np.ceil((end - start) / (PANEL * smooth)).astype(np.int64), LEAST_PANELS)
    panel, place = repeated(times)
    width = ((end - start) / times)[panel]
    return np.nonzero(wide)[1][panel], start[panel] + place * width, width


def _effective_range(rectangles: StudentRectangles) -> tuple[Floats, Floats]:
    """Return the part of the range of T (m,) in which the integrand is not negligible."""
    # The mode lies between the mean and the interval of V, as far as T gets there.
    mean, left, right = (
        np.clip(end, rectangles.lower, rectangles.upper)
        for end in (-rectangles.shift, rectangles.left, rectangles.right)
    )
    low, high = np.minimum(mean, left), np.maximum(mean, right)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        rises = _slope(rectangles, middle) > 0
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    mode = (low + high) / 2
    floor = rectangles.log_bound(mode) - NEGLIGIBLE
    # The log density of T is at least as curved everywhere as at the mean.
    half = np.sqrt(
        2 * NEGLIGIBLE * (rectangles.degrees + rectangles.shift**2) / np.maximum(rectangles.degrees - 2, 1e-9)
    )
    lower, upper = np.maximum(rectangles.lower, mode - half), np.minimum(rectangles.upper, mode + half)
    return _crossing(rectangles, mode, lower, floor), _crossing(rectangles, mode, upper, floor)


def _slope(rectangles: StudentRectangles, t: Floats) -> Floats:
    """Return the derivative (m,) of the log bound at t (m,)."""
    outside = np.maximum(rectangles.left - t, 0.0) - np.maximum(t - rectangles.right, 0.0)
    room = rectangles.degrees - t * (t + 2 * rectangles.shift)
    steep = np.maximum(rectangles.degrees - 2, 0.0) * (t + rectangles.shift)
    return np.asarray(outside / rectangles.gamma**2 - steep / np.maximum(room, np.finfo(np.float64).tiny))


def _crossing(rectangles: StudentRectangles, mode: Floats, end: Floats, floor: Floats) -> Floats:
    """Return where between its mode and an end the log bound falls to the floor; the end if it does not."""
    inside, outside = mode, end.copy()
    below = rectangles.log_bound(outside) < floor
    for _ in range(BISECTIONS):
        middle = (inside + outside) / 2
        lower = rectangles.log_bound(middle) < floor
        inside, outside = np.where(lower, inside, middle), np.where(lower, middle, outside)
    return np.where(below, outside, end)
