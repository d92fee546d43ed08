"""What is known of the truncation sets of k images: segments of their z axes with their masses, and bounds on p."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attentest.statistics.alternative import Alternative, ordinary_range
from attentest.statistics.columns import Columns, Floats, Integers, Mask, order_by_owner, run_ends
from attentest.statistics.interval_mass import LOG_2, log_sums, log_twice_the_smaller
from attentest.statistics.law import Law, Strips
from attentest.statistics.truncation_set import Unions

INSIDE, UNDECIDED, UNEXPLORED = 0, 1, 2  # kinds of segments
NO_PIECE = -1  # index of the piece of what is unexplored

PVALUES = 2
"""P-values of an image that are bounded at the same time: that of the test, or those at both ends of an interval."""

MOST_LOGS = 1e18  # no error at all is taken to be one that is smaller than all others by so many logs


@dataclass(frozen=True, kw_only=True, eq=False)
class AxisParts(Columns):
    """Parts (q,) of the z axes of images."""

    image: Integers
    left: Floats
    right: Floats
    """(q,). Index of the image, and ends."""

    @property
    def width(self) -> Floats:
        """Widths (q,)."""
        return self.right - self.left

    @property
    def middle(self) -> Floats:
        """Middles (q,)."""
        return (self.left + self.right) / 2

    def at(self, part: Integers, x: Floats) -> Floats:
        """Return the points on the z axis of coordinates x in [-1, 1] of parts, elementwise."""
        inner = self.middle[part] + self.width[part] / 2 * x
        return np.where(x <= -1, self.left[part], np.where(x >= 1, self.right[part], inner))

    def outermost(self) -> Integers:
        """Return the indices of the parts that lie in no other, sorted by image and place; of equal ones, the first."""
        order = np.lexsort((-self.right, self.left, self.image))
        # A part that lies in another comes after it, and after no other that reaches farther.
        farthest = np.maximum.accumulate(sort_keys(self.image[order], self.right[order]))
        new = np.ones(len(order), dtype=np.bool_)
        new[1:] = farthest[1:] > farthest[:-1]
        return order[new]

    def last_at(self, image: Integers, z: Floats) -> Integers:
        """Return the index of the last part in which points z (m,) of images (m,) lie; -1 for those in none."""
        order = np.argsort(self.image, kind="stable")
        first, end = (np.searchsorted(self.image[order], image, side=side) for side in ("left", "right"))
        last = np.full(len(image), -1)
        for number in range(int((end - first).max(initial=0))):
            points = np.flatnonzero(first + number < end)
            part = order[first[points] + number]
            here = (self.left[part] <= z[points]) & (z[points] <= self.right[part])
            last[points[here]] = part[here]
        return last

    def last_before(self, image: Integers, z: Floats) -> Integers:
        """Return the index of the last part that begins at or before points z (m,) of images (m,), of sorted parts."""
        return np.searchsorted(sort_keys(self.image, self.left), sort_keys(image, z), side="right") - 1

    def contain(self, others: AxisParts) -> Mask:
        """Return whether other parts (m,) lie in one of these, which are sorted and do not overlap."""
        if len(self) == 0:
            return np.zeros(len(others), dtype=np.bool_)
        place = self.last_before(others.image, others.left)
        return np.asarray((place >= 0) & (self.image[place] == others.image) & (self.right[place] >= others.right))


def sort_keys(image: Integers, z: Floats) -> NDArray[np.complex128]:
    """Return image + i z for points (m,): keys that sort by image first, then by z."""
    keys = np.empty(len(image), dtype=np.complex128)
    keys.real, keys.imag = image, z
    return keys


@dataclass(frozen=True, kw_only=True, eq=False)
class Segments(AxisParts):
    """Segments (s,)."""

    best_left: Floats
    best_right: Floats
    """(s,). Ends of the part that belongs to the best estimate of the set; equal if none of it does."""
    kind: Integers
    """(s,). INSIDE, UNDECIDED or UNEXPLORED."""
    piece: Integers
    """(s,). Index of the interpolant that decided the kind, or NO_PIECE."""
    zone: Integers
    """(s,). Number of the zone of a segment that is not inside."""
    stalls: Integers
    """(s,). How often refining the segment has not improved it."""


def unexplored(image: Integers, left: Floats, right: Floats, stalls: Integers | None = None) -> Segments:
    """Return unexplored segments, each a zone of its own."""
    count = len(image)
    nowhere = np.zeros(count)
    return Segments(
        image=image,
        left=left,
        right=right,
        best_left=nowhere,
        best_right=nowhere,
        kind=np.full(count, UNEXPLORED),
        piece=np.full(count, NO_PIECE),
        zone=np.arange(count),
        stalls=np.zeros(count, dtype=np.int64) if stalls is None else stalls,
    )


class LogBounds(NamedTuple):
    """Logs of the least and the greatest p-values compatible with what is known, (k,) or (PVALUES, k)."""

    low: Floats
    high: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Zones(AxisParts):
    """Open zones (q,): undecided or unexplored, with the influence of each on the p-values of its image."""

    zone: Integers
    piece: Integers
    """(q,). Number of the zone, and index of its interpolant (NO_PIECE if it is unexplored)."""
    stalls: Integers
    """(q,). How often refining it has not improved it."""
    log_mass: Floats
    log_extreme: Floats
    """(PVALUES, q). Log mass of the zone, and of its part where the statistic is at least as extreme as observed."""
    log_cost: Floats
    """(PVALUES, q). Log of the most by which it can move each p, in units of its image."""


class SegmentTable:
    """Per-image list of z segments, their log masses, and the bounds on p that follow from them.

    The bounds can be those of other p-values, and of two at a time: :meth:`ask` changes the alternative and the mean of
    the statistic.
    """

    def __init__(self, law: Law, alternative: Alternative) -> None:
        count = len(law)
        self._law = law
        self._mean, self._lower, self._upper = np.zeros((3, PVALUES, count))
        self.asked, self._equal_tailed = np.zeros((2, PVALUES, count), dtype=np.bool_)
        """(PVALUES, k) each. The p-values that are asked for: masses for others are not computed, but are -inf."""
        self._next_zone = 0
        self.segments = unexplored(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))
        """The segments (s,)."""
        self._aside = self.segments
        self._masses = np.empty((2, PVALUES, 0))  # extreme and ordinary
        self._sums: Floats | None = None
        self.ask(0, np.ones(count, dtype=np.bool_), np.zeros(count), alternative)

    def add(self, segments: Segments) -> None:
        """Add segments whose zones are numbered from zero; they must not overlap those in the table."""
        zone = np.where(segments.kind == INSIDE, -1, segments.zone + self._next_zone)
        self._next_zone = max(self._next_zone, int(zone.max(initial=-1)) + 1)
        self._append(replace(segments, zone=zone))

    def _append(self, segments: Segments) -> None:
        masses = np.full((2, PVALUES, len(segments)), -np.inf)
        for pvalue, asked in enumerate(self.asked):
            rows = np.flatnonzero(asked[segments.image])
            if len(rows):
                masses[:, pvalue, rows] = self.log_masses(pvalue, segments.take(rows))
        self._masses = np.concatenate([self._masses, masses], axis=-1)
        self.segments = Segments.concatenated([self.segments, segments])
        self._sums = None

    def remove(self, mask: Mask) -> None:
        """Remove the segments of a mask."""
        kept = np.flatnonzero(~mask)
        self.segments = self.segments.take(kept)
        self._masses = self._masses[..., kept]
        self._sums = None

    def set_aside(self, images: Mask) -> None:
        """Leave the segments of images (k,) out of the table until :meth:`bring_back`; nothing is bounded for them.

        The work of each round is that of the segments in the table, and most images are done long before the last.
        """
        rows = images[self.segments.image]
        self._aside = Segments.concatenated([self._aside, self.segments.take(rows)])
        self.remove(rows)
        self.asked &= ~images

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
        for pvalue in np.flatnonzero(self.asked[:, image]).tolist():
            inside = np.logaddexp.reduce(self._masses[:, pvalue, certain], axis=1).max()
            log_mass = np.logaddexp(*self.log_masses(pvalue, parts))
            shares = np.maximum(shares, log_mass - inside if np.isfinite(inside) else 0.0)
        return shares

    def renumber_pieces(self, number: Integers) -> None:
        """Replace the index of each piece by ``number[index]``."""
        self.segments = replace(self.segments, piece=number[self.segments.piece])
        self._aside = replace(self._aside, piece=number[self._aside.piece])

    def ask(self, pvalue: int, images: Mask, mean: Floats, alternative: Alternative) -> None:
        """Bound another p-value of some images (k,) from now on: under means (k,), for another alternative."""
        lower, upper = ordinary_range(self._law.statistic, alternative)
        for values, new in ((self._mean, mean), (self._lower, lower), (self._upper, upper)):
            values[pvalue, images] = new[images]
        self._equal_tailed[pvalue, images] = alternative == "equal-tailed"
        self.asked[pvalue, images] = True
        rows = np.flatnonzero(images[self.segments.image])
        self._masses[:, pvalue, rows] = self.log_masses(pvalue, self.segments.take(rows))
        self._sums = None

    def drop(self, pvalue: int, images: Mask) -> None:
        """Bound this p-value of some images (k,) no longer."""
        self.asked[pvalue, images] = False
        self._masses[:, pvalue, images[self.segments.image]] = -np.inf
        self._sums = None

    def log_masses(self, pvalue: int, parts: AxisParts) -> tuple[Floats, Floats]:
        """Return the log masses (m,) of parts of the axes for a p-value: extreme and ordinary."""
        return self._law.log_masses(self._strips(pvalue, parts))

    def quantiles(self, pvalue: int, parts: AxisParts, share: Floats, extreme: Mask) -> Floats:
        """Return the points of finite parts (m,) before which shares (m,) of their extreme or ordinary mass lie."""
        return self._law.quantiles(self._strips(pvalue, parts), share, extreme)

    def _strips(self, pvalue: int, parts: AxisParts) -> Strips:
        image = parts.image
        limits = {"lower": self._lower[pvalue, image], "upper": self._upper[pvalue, image]}
        return Strips(image=image, left=parts.left, right=parts.right, mean=self._mean[pvalue, image], **limits)

    def _totals(self, pvalue: int) -> Floats:
        """Return the total masses (4, k): extreme and ordinary for certain, extreme and ordinary open."""
        if self._sums is None:
            # They are needed more than once while the segments are the same.
            count = len(self._law)
            self._sums = np.full((4, PVALUES, count), -np.inf)
            # One sum for both kinds of segments: those of open ones come after those of certain ones.
            group = self.segments.image + np.where(self.segments.kind == INSIDE, 0, count)
            for asked in np.flatnonzero(self.asked.any(axis=1)):
                sums = [log_sums(group, part[asked], 2 * count).reshape(2, count) for part in self._masses]
                self._sums[:, asked] = np.stack(sums, axis=1).reshape(4, count)
        return self._sums[:, pvalue]

    def log_bounds(self) -> LogBounds:
        """Return the logs of the least and the greatest p-values (PVALUES, k) compatible with the segments.

        They are 0 where p is not asked for.
        """
        bounds = np.zeros((2, PVALUES, len(self._law)))
        for pvalue in np.flatnonzero(self.asked.any(axis=1)).tolist():
            extreme, ordinary, open_extreme, open_ordinary = self._totals(pvalue)
            both = np.array(_share_bounds(extreme, ordinary, open_extreme, open_ordinary))
            equal_tailed = self._equal_tailed[pvalue]
            if equal_tailed.any():
                rest = np.array(_share_bounds(ordinary, extreme, open_ordinary, open_extreme))
                both = np.where(equal_tailed, log_twice_the_smaller(both, rest), both)
            bounds[:, pvalue] = np.where(self.asked[pvalue], both, 0.0)
        return LogBounds(*bounds)

    def anything_inside(self) -> Mask:
        """Return for each image (k,) whether some part of the axis is known to be inside."""
        certain = self.segments.image[self.segments.kind == INSIDE]
        return np.bincount(certain, minlength=len(self._law)) > 0

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
        for pvalue in np.flatnonzero(self.asked.any(axis=1)).tolist():
            extreme, ordinary = (log_sums(index, part[pvalue, open_], len(zone)) for part in self._masses)
            log_mass[pvalue], log_extreme[pvalue] = np.logaddexp(extreme, ordinary), extreme
            log_cost[pvalue] = self._log_costs(pvalue, image, extreme, ordinary) - unit[pvalue][image]
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

    def _log_costs(self, pvalue: int, image: Integers, zone_extreme: Floats, zone_ordinary: Floats) -> Floats:
        """Return the logs (q,) of the most by which zones of images (q,) can move p, from their masses (q,).

        A zone of mass u among what is extreme moves p by no more than u (ordinary) / (M (M + u)), with M the mass
        known to be inside, and by no more than u / (M + u); one in what is ordinary by u (extreme) / (M (M + u)).
        Where p is twice the smaller tail, it moves by no more than twice as much.
        """
        zone = np.logaddexp(zone_extreme, zone_ordinary)
        extreme, ordinary, open_extreme, open_ordinary = self._totals(pvalue)[:, image]
        inside = np.logaddexp(extreme, ordinary)
        all_extreme, all_ordinary = np.logaddexp(extreme, open_extreme), np.logaddexp(ordinary, open_ordinary)
        with np.errstate(invalid="ignore"):  # nothing is inside yet, or nothing is asked for: -inf less -inf
            with_it = np.logaddexp(inside, zone)
            by_extreme = zone_extreme + np.minimum(all_ordinary - inside, 0.0) - np.logaddexp(inside, zone_extreme)
            relative = np.logaddexp(by_extreme, zone_ordinary + all_extreme - inside - with_it)
            share = zone - np.logaddexp(all_extreme, all_ordinary)
        most_moved = np.where(inside > -np.inf, relative, share) + LOG_2 * self._equal_tailed[pvalue, image]
        return np.where(self.asked[pvalue, image], np.minimum(most_moved, 0.0), -np.inf)

    def unions(self, images: Mask) -> tuple[Unions, Unions, Unions]:
        """Return the best estimates of the truncation sets of images (k,), and what is certain and possible of them."""
        segments = self._sorted(images)
        likely = segments.take(segments.best_left < segments.best_right)
        certain = segments.take(segments.kind == INSIDE)
        return (
            _unions(images, likely.image, likely.best_left, likely.best_right),
            _unions(images, certain.image, certain.left, certain.right),
            _unions(images, segments.image, segments.left, segments.right),
        )

    def likely_unions(self, images: Mask) -> tuple[Unions, Unions]:
        """Return the best estimates of the truncation sets of images (k,), without and with all that is unexplored."""
        segments = self._sorted(images)
        new = segments.kind == UNEXPLORED
        likely = segments.best_left < segments.best_right
        left = np.where(new, segments.left, segments.best_left)
        right = np.where(new, segments.right, segments.best_right)
        without, with_new = (
            _unions(images, segments.image[rows], left[rows], right[rows]) for rows in (likely & ~new, likely | new)
        )
        return without, with_new

    def _sorted(self, images: Mask) -> Segments:
        """Return the segments of images (k,), sorted by image and place."""
        segments = self.segments.take(images[self.segments.image])
        return segments.take(order_by_owner(segments.image, segments.left))


def _unions(images: Mask, image: Integers, left: Floats, right: Floats) -> Unions:
    """Return the unions of images (k,), from intervals (n,) that are sorted and do not overlap, but may touch."""
    starts, ends = run_ends(len(image), (image[1:] != image[:-1]) | (left[1:] > right[:-1]))
    count = np.bincount(image[starts], minlength=len(images))
    return Unions(count=count[images], left=left[starts], right=right[ends])


def _share_bounds(part: Floats, rest: Floats, open_part: Floats, open_rest: Floats) -> LogBounds:
    """Return the logs of the least and the greatest share (k,) of a part, from log masses, certain and open, (k,)."""
    most = np.logaddexp(part, open_part)
    with np.errstate(invalid="ignore"):  # nothing is certain, or nothing open: -inf less -inf
        low = part - np.logaddexp(part, np.logaddexp(rest, open_rest))
        high = most - np.logaddexp(most, rest)
    return LogBounds(np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), 0.0, high))
