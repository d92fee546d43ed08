"""What is known of the truncation sets of k images: the segments of their axes, and the zones that are open."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from attentest.search.spectral.masses import LogBounds, Masses, belong_to
from attentest.search.spectral.segments import INSIDE, UNEXPLORED, AxisParts, Segments, unexplored
from attentest.statistics.alternative import Alternative
from attentest.statistics.columns import Floats, Integers, Mask, order_by_owner, run_ends
from attentest.statistics.interval_mass import log_sums
from attentest.statistics.law import Law
from attentest.statistics.truncation_set import Unions

PVALUES = 2
"""P-values of an image that are bounded at the same time: that of the test, or those at both ends of an interval."""

MOST_LOGS = 1e18
"""No error at all is taken to be one that is smaller than all others by so many logs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Zones(AxisParts):
    """Open zones (q,): undecided or unexplored, with the influence of each on the p-values of its image.

    Parameters
    ----------
    zone, piece : (q,)
        Number of the zone, and index of its interpolant (NO_PIECE if it is unexplored).
    stalls : (q,)
        How often refining it has not improved it.
    log_mass, log_extreme : (PVALUES, q)
        Log mass of the zone, and of its part where the statistic is at least as extreme as observed.
    log_cost : (PVALUES, q)
        Log of the most by which it can move each p, in units of its image.
    """

    zone: Integers
    piece: Integers
    stalls: Integers
    log_mass: Floats
    log_extreme: Floats
    log_cost: Floats


class SegmentTable:
    """Per-image list of z segments, and the bounds on p that follow from them.

    The bounds can be those of other p-values, and of two at a time: :meth:`ask` changes the alternative and the mean of
    the statistic.

    Parameters
    ----------
    law
        The law of the k statistics.
    alternative
        Which values are at least as extreme as the observed ones.
    """

    def __init__(self, law: Law, alternative: Alternative) -> None:
        self._count = len(law)
        self.masses = tuple(Masses(law) for _ in range(PVALUES))
        self._next_zone = 0
        self.segments = unexplored(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))
        self._aside = self.segments
        self.ask(0, np.arange(len(law)), np.zeros(len(law)), alternative)

    def add(self, segments: Segments) -> None:
        """Add segments whose zones are numbered from zero; they must not overlap those in the table."""
        zone = np.where(segments.kind == INSIDE, -1, segments.zone + self._next_zone)
        self._next_zone = max(self._next_zone, int(zone.max(initial=-1)) + 1)
        self._append(replace(segments, zone=zone))

    def _append(self, segments: Segments) -> None:
        for masses in self.masses:
            masses.append(segments)
        self.segments = Segments.concatenated([self.segments, segments])

    def remove(self, mask: Mask) -> None:
        """Remove the segments of a mask."""
        self.segments = self.segments.take(~mask)
        for masses in self.masses:
            masses.keep(~mask)

    def set_aside(self, images: Mask) -> None:
        """Leave the segments of images (k,) out of the table until :meth:`bring_back`; nothing is bounded for them.

        The work of each round is that of the segments in the table, and most images are done long before the last.
        """
        rows = images[self.segments.image]
        self._aside = Segments.concatenated([self._aside, self.segments.take(rows)])
        self.remove(rows)
        for masses in self.masses:
            masses.asked &= ~images

    def bring_back(self) -> None:
        """Put all segments that were set aside into the table again."""
        self._append(self._aside)
        self._aside = self._aside.take(slice(0))

    def doubt(self, image: int, parts: AxisParts) -> None:
        """Take what was concluded about parts of an image's axis as a guess: nothing there is decided any more."""
        for start, end in zip(parts.left, parts.right, strict=True):
            segments = self.segments
            here = (segments.image == image) & (segments.left >= start) & (segments.right <= end)
            within = segments.take(here)
            edges = np.sort(np.concatenate([[start, end], within.left, within.right])).reshape(-1, 2)
            gaps = unexplored(np.full(len(edges), image), edges[:, 0], edges[:, 1])
            certain = within.take(within.kind == INSIDE)
            inside = unexplored(certain.image, certain.left, certain.right)
            self.remove(here & (segments.kind == INSIDE))
            self.add(replace(inside, best_left=inside.left, best_right=inside.right))
            self.add(gaps.take(gaps.left < gaps.right))

    def log_shares(self, image: int, parts: AxisParts) -> Floats:
        """Return the log masses of parts (q,) of one image's axis, relative to what is known to be inside.

        Of the p-values that are asked for, the one to which each matters most counts.
        """
        shares = np.full(len(parts), -np.inf)
        certain = np.flatnonzero((self.segments.image == image) & (self.segments.kind == INSIDE))
        for masses in self.masses:
            if masses.asked[image]:
                inside = max(np.logaddexp.reduce(part[certain]) for part in (masses.extreme, masses.ordinary))
                log_mass = np.logaddexp(*masses.of(parts))
                shares = np.maximum(shares, log_mass - inside if np.isfinite(inside) else 0.0)
        return shares

    def renumber_pieces(self, number: Integers) -> None:
        """Replace the index of each piece by ``number[index]``."""
        self.segments = replace(self.segments, piece=number[self.segments.piece])
        self._aside = replace(self._aside, piece=number[self._aside.piece])

    def ask(self, pvalue: int, images: Integers, mean: Floats, alternative: Alternative) -> None:
        """Bound another p-value of some images (m,) from now on: under means (m,), for another alternative."""
        self.masses[pvalue].ask(images, mean, alternative, self.segments)

    def drop(self, pvalue: int, images: Integers) -> None:
        """Bound this p-value of some images (m,) no longer."""
        self.masses[pvalue].drop(images, self.segments)

    def log_bounds(self) -> LogBounds:
        """Return the logs of the least and the greatest p-values (PVALUES, k) compatible with the segments."""
        bounds = np.zeros((2, PVALUES, self._count))
        for pvalue, masses in enumerate(self.masses):
            if masses.asked.any():
                bounds[:, pvalue] = masses.log_bounds(self.segments)
        return LogBounds(*bounds)

    def anything_inside(self) -> Mask:
        """Return for each image (k,) whether some part of the axis is known to be inside."""
        certain = self.segments.image[self.segments.kind == INSIDE]
        return np.bincount(certain, minlength=self._count) > 0

    def zones(self, log_unit: Floats, images: Mask) -> Zones:
        """Return the open zones of some images (k,), with costs in units (PVALUES, k) of each."""
        segments = self.segments
        open_ = np.flatnonzero((segments.kind != INSIDE) & images[segments.image])
        zone, first, index = np.unique(segments.zone[open_], return_index=True, return_inverse=True)
        first = open_[first]
        image = segments.image[first]
        left, right = np.full(len(zone), np.inf), np.full(len(zone), -np.inf)
        np.minimum.at(left, index, segments.left[open_])
        np.maximum.at(right, index, segments.right[open_])
        log_mass, log_extreme, log_cost = np.full((3, PVALUES, len(zone)), -np.inf)
        unit = np.maximum(log_unit, -MOST_LOGS)
        for pvalue, masses in enumerate(self.masses):
            if masses.asked.any():
                extreme = log_sums(index, masses.extreme[open_], len(zone))
                ordinary = log_sums(index, masses.ordinary[open_], len(zone))
                log_mass[pvalue], log_extreme[pvalue] = np.logaddexp(extreme, ordinary), extreme
                log_cost[pvalue] = masses.log_costs(segments, image, extreme, ordinary) - unit[pvalue][image]
        return Zones(
            image=image,
            left=left,
            right=right,
            zone=zone,
            piece=segments.piece[first],
            stalls=segments.stalls[first],
            log_mass=log_mass,
            log_extreme=log_extreme,
            log_cost=log_cost,
        )

    def unions(self, images: Integers) -> tuple[Unions, Unions, Unions]:
        """Return the best estimates of the truncation sets of images (m,), and what is certain and possible of them."""
        segments = self._sorted(images)
        likely = segments.take(segments.best_left < segments.best_right)
        certain = segments.take(segments.kind == INSIDE)
        return (
            self._unions(images, likely.image, likely.best_left, likely.best_right),
            self._unions(images, certain.image, certain.left, certain.right),
            self._unions(images, segments.image, segments.left, segments.right),
        )

    def likely_unions(self, images: Integers) -> tuple[Unions, Unions]:
        """Return the best estimates of the truncation sets of images (m,), without and with all that is unexplored."""
        segments = self._sorted(images)
        new = segments.kind == UNEXPLORED
        likely = segments.best_left < segments.best_right
        left = np.where(new, segments.left, segments.best_left)
        right = np.where(new, segments.right, segments.best_right)
        without, with_new = (
            self._unions(images, segments.image[rows], left[rows], right[rows])
            for rows in (likely & ~new, likely | new)
        )
        return without, with_new

    def _sorted(self, images: Integers) -> Segments:
        """Return the segments of images (m,), sorted by image and place."""
        segments = self.segments.take(belong_to(images, self.segments, self._count))
        return segments.take(order_by_owner(segments.image, segments.left))

    def _unions(self, images: Integers, image: Integers, left: Floats, right: Floats) -> Unions:
        """Return the unions of images (m,), from intervals (n,) that are sorted and do not overlap, but may touch."""
        starts, ends = run_ends(len(image), (image[1:] != image[:-1]) | (left[1:] > right[:-1]))
        count = np.bincount(image[starts], minlength=self._count)
        return Unions(count=count, left=left[starts], right=right[ends]).take(images)
