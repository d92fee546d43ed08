"""Masses of segments for a p-value, and the bounds on p that follow from them. Masses are logarithms throughout."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attentest.search.spectral.segments import INSIDE, AxisParts, Segments
from attentest.statistics.alternative import Alternative, ordinary_range
from attentest.statistics.columns import Floats, Integers, Mask
from attentest.statistics.interval_mass import LOG_2, log_sums, log_twice_the_smaller
from attentest.statistics.law import Law, Strips


class Totals(NamedTuple):
    """Log masses (k,) for one p-value: extreme and ordinary for certain, extreme and ordinary open."""

    extreme: Floats
    ordinary: Floats
    open_extreme: Floats
    open_ordinary: Floats


class LogBounds(NamedTuple):
    """Logs of the least and the greatest p-values compatible with what is known, (k,) or (PVALUES, k)."""

    low: Floats
    high: Floats


class Masses:
    """Log masses of segments (s,), extreme and ordinary, for a p-value that can change from round to round.

    Parameters
    ----------
    law
        The law of the k statistics.

    Attributes
    ----------
    asked : (k,) bool
        Which images the p-value is asked for. The masses of others are not computed.
    equal_tailed : (k,) bool
        Whether p is twice the smaller tail.
    extreme, ordinary : (s,)
        The masses; -inf of an image that is not asked for.
    """

    def __init__(self, law: Law) -> None:
        self._law = law
        count = len(law)
        self._mean, self._lower, self._upper = np.zeros((3, count))
        self.asked, self.equal_tailed = np.zeros((2, count), dtype=np.bool_)
        self.extreme, self.ordinary = np.empty((2, 0))
        self._totals: Totals | None = None

    def ask(self, images: Integers, mean: Floats, alternative: Alternative, segments: Segments) -> None:
        """Ask for the p-values of images (m,) under means (m,), and compute the masses of their segments."""
        self._mean[images] = mean
        self._lower[images], self._upper[images] = ordinary_range(self._law.statistic[images], alternative)
        self.equal_tailed[images] = alternative == "equal-tailed"
        self.asked[images] = True
        rows = np.flatnonzero(belong_to(images, segments, len(self._law)))
        self.extreme[rows], self.ordinary[rows] = self.of(segments.take(rows))
        self._totals = None

    def drop(self, images: Integers, segments: Segments) -> None:
        """Ask for the p-values of images (m,) no longer."""
        self.asked[images] = False
        rows = belong_to(images, segments, len(self._law))
        self.extreme[rows] = self.ordinary[rows] = -np.inf
        self._totals = None

    def of(self, parts: AxisParts) -> tuple[Floats, Floats]:
        """Return the log masses (m,) of parts of the axes: extreme and ordinary."""
        return self._law.log_masses(self._strips(parts))

    def quantiles(self, parts: AxisParts, share: Floats, extreme: Mask) -> Floats:
        """Return the points of finite parts (m,) before which shares (m,) of their extreme or ordinary mass lie."""
        return self._law.quantiles(self._strips(parts), share, extreme)

    def append(self, segments: Segments) -> None:
        """Add the masses of new segments (m,)."""
        extreme, ordinary = np.full((2, len(segments)), -np.inf)
        rows = np.flatnonzero(self.asked[segments.image])
        if len(rows):
            extreme[rows], ordinary[rows] = self.of(segments.take(rows))
        self.extreme = np.concatenate([self.extreme, extreme])
        self.ordinary = np.concatenate([self.ordinary, ordinary])
        self._totals = None

    def keep(self, kept: Mask) -> None:
        """Remove all but some of the segments (s,)."""
        self.extreme, self.ordinary = self.extreme[kept], self.ordinary[kept]
        self._totals = None

    def log_bounds(self, segments: Segments) -> LogBounds:
        """Return the logs of the least and the greatest p-values (k,) compatible with the segments; 0 if not asked."""
        extreme, ordinary, open_extreme, open_ordinary = self.totals(segments)
        low, high = _share_bounds(extreme, ordinary, open_extreme, open_ordinary)
        if self.equal_tailed.any():
            rest_low, rest_high = _share_bounds(ordinary, extreme, open_ordinary, open_extreme)
            low = np.where(self.equal_tailed, log_twice_the_smaller(low, rest_low), low)
            high = np.where(self.equal_tailed, log_twice_the_smaller(high, rest_high), high)
        return LogBounds(np.where(self.asked, low, 0.0), np.where(self.asked, high, 0.0))

    def log_costs(self, segments: Segments, image: Integers, zone_extreme: Floats, zone_ordinary: Floats) -> Floats:
        """Return the logs (q,) of the most by which zones of images (q,) can move p, from their masses (q,).

        A zone of mass u among what is extreme moves p by no more than u (ordinary) / (M (M + u)), with M the mass
        known to be inside, and by no more than u / (M + u); one in what is ordinary by u (extreme) / (M (M + u)).
        Where p is twice the smaller tail, it moves by no more than twice as much.
        """
        zone = np.logaddexp(zone_extreme, zone_ordinary)
        extreme, ordinary, open_extreme, open_ordinary = (total[image] for total in self.totals(segments))
        inside = np.logaddexp(extreme, ordinary)
        all_extreme, all_ordinary = np.logaddexp(extreme, open_extreme), np.logaddexp(ordinary, open_ordinary)
        with np.errstate(invalid="ignore"):  # nothing is inside yet, or nothing is asked for: -inf less -inf
            with_it = np.logaddexp(inside, zone)
            by_extreme = zone_extreme + np.minimum(all_ordinary - inside, 0.0) - np.logaddexp(inside, zone_extreme)
            relative = np.logaddexp(by_extreme, zone_ordinary + all_extreme - inside - with_it)
            share = zone - np.logaddexp(all_extreme, all_ordinary)
        most_moved = np.where(inside > -np.inf, relative, share) + LOG_2 * self.equal_tailed[image]
        return np.where(self.asked[image], np.minimum(most_moved, 0.0), -np.inf)

    def totals(self, segments: Segments) -> Totals:
        """Return the total masses; they are needed more than once while the segments are the same."""
        if self._totals is None:
            count = len(self._law)
            # One sum for both kinds of segments: those of open ones come after those of certain ones.
            group = segments.image + np.where(segments.kind == INSIDE, 0, count)
            extreme, ordinary = (log_sums(group, values, 2 * count) for values in (self.extreme, self.ordinary))
            self._totals = Totals(extreme[:count], ordinary[:count], extreme[count:], ordinary[count:])
        return self._totals

    def _strips(self, parts: AxisParts) -> Strips:
        image = parts.image
        limits = {"mean": self._mean[image], "lower": self._lower[image], "upper": self._upper[image]}
        return Strips(image=image, left=parts.left, right=parts.right, **limits)


def belong_to(images: Integers, segments: Segments, count: int) -> Mask:
    """Return which segments (s,) of so many images belong to some of them (m,)."""
    is_member = np.zeros(count, dtype=np.bool_)
    is_member[images] = True
    return is_member[segments.image]


def _share_bounds(part: Floats, rest: Floats, open_part: Floats, open_rest: Floats) -> LogBounds:
    """Return the logs of the least and the greatest share (k,) of a part, from log masses, certain and open, (k,)."""
    most = np.logaddexp(part, open_part)
    with np.errstate(invalid="ignore"):  # nothing is certain, or nothing open: -inf less -inf
        low = part - np.logaddexp(part, np.logaddexp(rest, open_rest))
        high = most - np.logaddexp(most, rest)
    return LogBounds(np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), 0.0, high))
