"""What is known of the truncation sets of k images, and what it says about their p-values.

The z axis of each image is divided into segments: inside, undecided (in zones: runs of touching segments of one
piece), unexplored; what is in no segment is outside. Masses are logarithms throughout.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from attentest.statistics.intervals import Intervals
from attentest.statistics.truncated_normal import Alternative, extreme_and_ordinary_log_masses, log_sums, ordinary_range

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

INSIDE, UNDECIDED, UNEXPLORED = 0, 1, 2
NO_PIECE = -1


@dataclass(frozen=True, kw_only=True)
class Segments:
    """Segments (s,) of the z axes of images.

    ``best_left`` to ``best_right`` is the part that belongs to the set as found. ``piece`` is the interpolant that
    said so, ``zone`` the run an open segment belongs to, ``stalls`` how often refining it has not helped.
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
        """Return these segments and others."""
        names = [field.name for field in fields(self)]
        return Segments(**{name: np.concatenate([getattr(self, name), getattr(others, name)]) for name in names})


def unexplored(image: Integers, left: Floats, right: Floats, stalls: Integers | None = None) -> Segments:
    """Return segments of which nothing is known, each a zone."""
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
    """Open zones (q,) of images: where they are, and how far each can move its image's p-value.

    ``log_cost`` is how far, as the log of a unit of each image's own; ``log_extreme`` is the mass of what is at least
    as extreme as the observed statistic, ``log_mass`` that of all.
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


class Ledger:
    """The books of k images.

    Parameters
    ----------
    z_obs : (k,)
        Observed statistics.
    alternative
        Which values are at least as extreme.
    """

    def __init__(self, z_obs: Floats, alternative: Alternative) -> None:
        self._z_obs = z_obs
        self._lower, self._upper = (np.array(end) for end in ordinary_range(z_obs, alternative))
        self._mean = np.zeros(len(z_obs))
        self._count = len(z_obs)
        self._next_zone = 0
        none = np.empty(0, dtype=np.int64)
        self.segments = unexplored(none, np.empty(0), np.empty(0))
        self._extreme = np.empty(0)
        self._ordinary = np.empty(0)

    def add(self, segments: Segments) -> None:
        """Enter segments, their zones numbered from zero; they must not overlap what is there."""
        zone = np.where(segments.kind == INSIDE, -1, segments.zone + self._next_zone)
        self._next_zone = max(self._next_zone, int(zone.max(initial=-1)) + 1)
        extreme, ordinary = self._masses(segments)
        self._extreme = np.concatenate([self._extreme, extreme])
        self._ordinary = np.concatenate([self._ordinary, ordinary])
        before = len(self.segments)
        self.segments = self.segments.followed_by(segments)
        self.segments.zone[before:] = zone

    def aim_at(self, images: Integers, mean: Floats, alternative: Alternative) -> None:
        """Ask another question about some images (m,): p of another alternative, under another mean (m,)."""
        self._mean[images] = mean
        self._lower[images], self._upper[images] = ordinary_range(self._z_obs[images], alternative)
        rows = np.isin(self.segments.image, images)
        self._extreme[rows], self._ordinary[rows] = self._masses(self.segments.chosen(rows))

    def _masses(self, segments: Segments) -> tuple[Floats, Floats]:
        """Return log masses relative to the density at z_obs, extreme and ordinary: only their ratios matter."""
        image = segments.image
        ends = self._lower[image], self._upper[image]
        return extreme_and_ordinary_log_masses(
            segments.left, segments.right, *ends, mean=self._mean[image], relative_to=self._z_obs[image]
        )

    def keep(self, mask: Mask) -> None:
        """Drop the segments that are not in the mask."""
        self.segments = self.segments.chosen(mask)
        self._extreme, self._ordinary = self._extreme[mask], self._ordinary[mask]

    def log_bounds(self) -> tuple[Floats, Floats]:
        """Return the logs of the least and the greatest p-value (k,) compatible with the books."""
        extreme, ordinary, open_extreme, open_ordinary = self._totals()
        most = np.logaddexp(extreme, open_extreme)
        with np.errstate(invalid="ignore"):  # nothing is certain, or nothing open: -inf less -inf
            low = extreme - np.logaddexp(extreme, np.logaddexp(ordinary, open_ordinary))
            high = most - np.logaddexp(most, ordinary)
        return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), 0.0, high)

    def anything_inside(self) -> Mask:
        """Return for each image whether some of its set is known, so that masses can be compared with it."""
        extreme, ordinary, _, _ = self._totals()
        return np.asarray(np.maximum(extreme, ordinary) > -np.inf)

    def zones(self, log_unit: Floats) -> Zones:
        """Return the open zones, by image, those that can move its p-value least first, in units (k,) of each image.

        A zone of mass u among what is extreme moves p by no more than u (ordinary) / (M (M + u)), with M the mass
        known to be inside, and by no more than u / (M + u); one in what is ordinary by u (extreme) / (M (M + u)).
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
        log_cost = np.minimum(np.where(inside > -np.inf, relative, share), 0.0) - log_unit[image]
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

    def sets(self, images: Integers | None = None) -> list[tuple[Intervals, Intervals, Intervals]]:
        """Return for each image, or for some in order, the set as found, what is certainly in it, and what may be."""
        segments = self.segments
        if images is not None:
            segments = segments.chosen(np.isin(segments.image, images))
        segments = segments.chosen(np.lexsort((segments.left, segments.image)))
        found = segments.best_left < segments.best_right
        certain = segments.kind == INSIDE
        asked = np.arange(self._count) if images is None else images
        return list(
            zip(
                _unions(asked, segments.image[found], segments.best_left[found], segments.best_right[found]),
                _unions(asked, segments.image[certain], segments.left[certain], segments.right[certain]),
                _unions(asked, segments.image, segments.left, segments.right),
                strict=True,
            )
        )

    def _totals(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Return log masses (k,): extreme and ordinary for certain, extreme and ordinary open."""
        certain = self.segments.kind == INSIDE
        image = self.segments.image
        return (
            log_sums(image[certain], self._extreme[certain], self._count),
            log_sums(image[certain], self._ordinary[certain], self._count),
            log_sums(image[~certain], self._extreme[~certain], self._count),
            log_sums(image[~certain], self._ordinary[~certain], self._count),
        )


def _unions(asked: Integers, image: Integers, left: Floats, right: Floats) -> list[Intervals]:
    """Return the union of the intervals of each image asked for; they are sorted, do not overlap, but may touch."""
    starts = np.ones(len(image), dtype=np.bool_)
    starts[1:] = (image[1:] != image[:-1]) | (left[1:] > right[:-1])
    ends = np.ones_like(starts)
    ends[:-1] = starts[1:]
    intervals = np.column_stack([left[starts], right[ends]])
    first, last = (np.searchsorted(image[starts], asked, side=side) for side in ("left", "right"))
    return [intervals[a:b].copy() for a, b in zip(first, last, strict=True)]
