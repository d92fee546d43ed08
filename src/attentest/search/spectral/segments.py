"""What is known of the truncation sets of k images, and the bounds on p that follow from it.

The z axis of each image is divided into segments: inside the set, undecided, and unexplored; what belongs to no segment
is outside. Undecided segments of one piece that touch form a zone. Masses are logarithms throughout.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attentest.statistics.alternative import Tails, ordinary_range
from attentest.statistics.intervals import Intervals
from attentest.statistics.law import Law
from attentest.statistics.log_probability import LOG_2, log_sums, log_twice_the_smaller
from attentest.statistics.truncation_set import TruncationSet

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

INSIDE, UNDECIDED, UNEXPLORED = 0, 1, 2
NO_PIECE = -1


@dataclass(frozen=True, kw_only=True)
class Segments:
    """Segments (s,) of the z axes of images.

    Parameters
    ----------
    image : (s,)
        Index of the image.
    left, right : (s,)
        Ends.
    best_left, best_right : (s,)
        Ends of the part that belongs to the best estimate of the set; equal if none of it does.
    kind : (s,)
        INSIDE, UNDECIDED or UNEXPLORED.
    piece : (s,)
        Index of the interpolant that decided the kind, or NO_PIECE.
    zone : (s,)
        Number of the zone of a segment that is not inside.
    stalls : (s,)
        How often refining the segment has not improved it.
    """

    image: Integers
    left: Floats
    right: Floats
    best_left: Floats
    best_right: Floats
    kind: Integers
    piece: Integers
    zone: Integers
    stalls: Integers

    def __len__(self) -> int:
        return len(self.image)

    def chosen(self, rows: Mask | Integers | slice) -> Segments:
        """Return some of the segments."""
        return Segments(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def followed_by(self, others: Segments) -> Segments:
        """Concatenate."""
        names = [field.name for field in fields(self)]
        return Segments(**{name: np.concatenate([getattr(self, name), getattr(others, name)]) for name in names})


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


@dataclass(frozen=True, kw_only=True)
class Zones:
    """Open zones (q,): undecided or unexplored, with the influence of each on the p-value of its image.

    Parameters
    ----------
    zone, image, piece : (q,)
        Number of the zone, index of its image, and of its interpolant (NO_PIECE if it is unexplored).
    left, right : (q,)
        Ends.
    stalls : (q,)
        How often refining it has not improved it.
    log_mass, log_extreme : (q,)
        Log mass of the zone, and of its part where the statistic is at least as extreme as observed.
    log_cost : (q,)
        Log of the most by which it can move p, in units of its image.
    """

    zone: Integers
    image: Integers
    piece: Integers
    left: Floats
    right: Floats
    stalls: Integers
    log_mass: Floats
    log_extreme: Floats
    log_cost: Floats

    def chosen(self, rows: Mask | Integers) -> Zones:
        """Return some of the zones."""
        return Zones(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


class LogBounds(NamedTuple):
    """Logs of the least and the greatest p-value (k,) compatible with what is known."""

    low: Floats
    high: Floats


class SegmentTable:
    """Per-image list of z segments, and the bounds on p that follow from them.

    The bounds can be those of another p-value: :meth:`ask` changes the alternative and the mean of the statistic.

    Parameters
    ----------
    law
        The law of the k statistics.
    alternative
        Which values are at least as extreme as the observed ones.
    """

    def __init__(self, law: Law, alternative: Tails) -> None:
        self._law = law
        self._lower, self._upper = (np.array(end) for end in ordinary_range(law.statistic, alternative))
        self._equal_tailed = np.full(len(law), alternative == "equal-tailed")
        self._mean = np.zeros(len(law))
        self._next_zone = 0
        none = np.empty(0, dtype=np.int64)
        self.segments = unexplored(none, np.empty(0), np.empty(0))
        self._extreme = np.empty(0)
        self._ordinary = np.empty(0)

    def add(self, segments: Segments) -> None:
        """Add segments whose zones are numbered from zero; they must not overlap those in the table."""
        zone = np.where(segments.kind == INSIDE, -1, segments.zone + self._next_zone)
        self._next_zone = max(self._next_zone, int(zone.max(initial=-1)) + 1)
        extreme, ordinary = self.log_masses(segments.image, segments.left, segments.right)
        self._extreme = np.concatenate([self._extreme, extreme])
        self._ordinary = np.concatenate([self._ordinary, ordinary])
        self.segments = self.segments.followed_by(replace(segments, zone=zone))

    def remove(self, mask: Mask) -> None:
        """Remove the segments of a mask."""
        kept = ~mask
        self.segments = self.segments.chosen(kept)
        self._extreme, self._ordinary = self._extreme[kept], self._ordinary[kept]

    def doubt(self, image: int, left: Floats, right: Floats) -> None:
        """Take what was concluded about parts (q,) of an image's axis as a guess: nothing there is decided any more."""
        for start, end in zip(left, right, strict=True):
            segments = self.segments
            here = (segments.image == image) & (segments.left >= start) & (segments.right <= end)
            some = segments.chosen(here)
            edges = np.sort(np.concatenate([[start, end], some.left, some.right])).reshape(-1, 2)
            gaps = unexplored(np.full(len(edges), image), edges[:, 0], edges[:, 1])
            inside = unexplored(*(column[some.kind == INSIDE] for column in (some.image, some.left, some.right)))
            self.remove(here & (segments.kind == INSIDE))
            self.add(replace(inside, best_left=inside.left, best_right=inside.right))
            self.add(gaps.chosen(gaps.left < gaps.right))

    def log_shares(self, image: int, left: Floats, right: Floats) -> Floats:
        """Return the log masses of intervals (q,) of one image's axis, relative to what is known to be inside."""
        masses = np.logaddexp(*self.log_masses(np.full(len(left), image), left, right))
        inside = max(total[image] for total in self._totals()[:2])
        return np.asarray(masses - inside) if np.isfinite(inside) else np.zeros_like(masses)

    def renumber_pieces(self, number: Integers) -> None:
        """Replace the index of each piece by ``number[index]``."""
        self.segments = replace(self.segments, piece=number[self.segments.piece])

    def ask(self, images: Integers, mean: Floats, alternative: Tails) -> None:
        """Bound another p-value of some images (m,) from now on: under means (m,), for another alternative."""
        self._mean[images] = mean
        self._lower[images], self._upper[images] = ordinary_range(self._law.statistic[images], alternative)
        self._equal_tailed[images] = alternative == "equal-tailed"
        rows = np.isin(self.segments.image, images)
        some = self.segments.chosen(rows)
        self._extreme[rows], self._ordinary[rows] = self.log_masses(some.image, some.left, some.right)

    def log_bounds(self) -> LogBounds:
        """Return the logs of the least and the greatest p-value (k,) compatible with the segments."""
        extreme, ordinary, open_extreme, open_ordinary = self._totals()
        low, high = _share_bounds(extreme, ordinary, open_extreme, open_ordinary)
        rest_low, rest_high = _share_bounds(ordinary, extreme, open_ordinary, open_extreme)
        return LogBounds(
            np.where(self._equal_tailed, log_twice_the_smaller(low, rest_low), low),
            np.where(self._equal_tailed, log_twice_the_smaller(high, rest_high), high),
        )

    def anything_inside(self) -> Mask:
        """Return for each image (k,) whether some part of the axis is known to be inside."""
        extreme, ordinary, _, _ = self._totals()
        return np.asarray(np.maximum(extreme, ordinary) > -np.inf)

    def zones(self, log_unit: Floats) -> Zones:
        """Return the open zones sorted by image and cost, with costs in units (k,) of each image.

        A zone of mass u among what is extreme moves p by no more than u (ordinary) / (M (M + u)), with M the mass
        known to be inside, and by no more than u / (M + u); one in what is ordinary by u (extreme) / (M (M + u)).
        Where p is twice the smaller tail, it moves by no more than twice as much.
        """
        segments = self.segments
        open_ = np.flatnonzero(segments.kind != INSIDE)
        zone, first, index = np.unique(segments.zone[open_], return_index=True, return_inverse=True)
        first = open_[first]
        image = segments.image[first]
        left, right = np.full(len(zone), np.inf), np.full(len(zone), -np.inf)
        np.minimum.at(left, index, segments.left[open_])
        np.maximum.at(right, index, segments.right[open_])
        own_extreme = log_sums(index, self._extreme[open_], len(zone))
        own_ordinary = log_sums(index, self._ordinary[open_], len(zone))
        own = np.logaddexp(own_extreme, own_ordinary)
        extreme, ordinary, open_extreme, open_ordinary = (total[image] for total in self._totals())
        inside = np.logaddexp(extreme, ordinary)
        all_extreme, all_ordinary = np.logaddexp(extreme, open_extreme), np.logaddexp(ordinary, open_ordinary)
        with np.errstate(invalid="ignore"):  # nothing is inside yet: -inf less -inf
            with_it = np.logaddexp(inside, own)
            by_extreme = own_extreme + np.minimum(all_ordinary - inside, 0.0) - np.logaddexp(inside, own_extreme)
            relative = np.logaddexp(by_extreme, own_ordinary + all_extreme - inside - with_it)
        share = own - np.logaddexp(all_extreme, all_ordinary)
        most_moved = np.where(inside > -np.inf, relative, share) + LOG_2 * self._equal_tailed[image]
        log_cost = np.minimum(most_moved, 0.0) - log_unit[image]
        zones = Zones(
            zone=zone,
            image=image,
            piece=segments.piece[first],
            left=left,
            right=right,
            stalls=segments.stalls[first],
            log_mass=own,
            log_extreme=own_extreme,
            log_cost=log_cost,
        )
        return zones.chosen(np.lexsort((log_cost, image)))

    def sets(self, images: Integers | None = None) -> list[TruncationSet]:
        """Return the truncation set of each image as far as it is known, or of some images in ascending order."""
        segments = self.segments
        if images is not None:
            segments = segments.chosen(np.isin(segments.image, images))
        segments = segments.chosen(np.lexsort((segments.left, segments.image)))
        found = segments.best_left < segments.best_right
        certain = segments.kind == INSIDE
        asked = np.arange(len(self._law)) if images is None else images
        columns = (
            _unions(asked, segments.image[found], segments.best_left[found], segments.best_right[found]),
            _unions(asked, segments.image[certain], segments.left[certain], segments.right[certain]),
            _unions(asked, segments.image, segments.left, segments.right),
        )
        return [TruncationSet(intervals=i, certain=c, possible=p) for i, c, p in zip(*columns, strict=True)]

    def log_masses(self, image: Integers, left: Floats, right: Floats) -> tuple[Floats, Floats]:
        """Return log masses of intervals (m,): extreme and ordinary, for the p-value in question."""
        return self._law.log_masses(
            image,
            left,
            right,
            mean=self._mean[image],
            lower=self._lower[image],
            upper=self._upper[image],
        )

    def _totals(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Return log masses (k,): extreme and ordinary for certain, extreme and ordinary open."""
        certain = self.segments.kind == INSIDE
        image = self.segments.image
        count = len(self._law)
        return (
            log_sums(image[certain], self._extreme[certain], count),
            log_sums(image[certain], self._ordinary[certain], count),
            log_sums(image[~certain], self._extreme[~certain], count),
            log_sums(image[~certain], self._ordinary[~certain], count),
        )


def _share_bounds(part: Floats, rest: Floats, open_part: Floats, open_rest: Floats) -> LogBounds:
    """Return the logs of the least and the greatest share (k,) of a part, from log masses, certain and open, (k,)."""
    most = np.logaddexp(part, open_part)
    with np.errstate(invalid="ignore"):  # nothing is certain, or nothing open: -inf less -inf
        low = part - np.logaddexp(part, np.logaddexp(rest, open_rest))
        high = most - np.logaddexp(most, rest)
    return LogBounds(np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), 0.0, high))


def _unions(asked: Integers, image: Integers, left: Floats, right: Floats) -> list[Intervals]:
    """Return the union of the intervals of each image; they are sorted and do not overlap, but may touch."""
    starts = np.ones(len(image), dtype=np.bool_)
    starts[1:] = (image[1:] != image[:-1]) | (left[1:] > right[:-1])
    ends = np.ones_like(starts)
    ends[:-1] = starts[1:]
    intervals = np.column_stack([left[starts], right[ends]])
    first, last = (np.searchsorted(image[starts], asked, side=side) for side in ("left", "right"))
    return [intervals[a:b].copy() for a, b in zip(first, last, strict=True)]
