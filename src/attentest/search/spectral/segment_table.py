"""What is known of the truncation sets of k images, and the bounds on p that follow from it.

Masses are logarithms throughout.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np

from attentest.search.spectral.segments import INSIDE, UNEXPLORED, Floats, Integers, Mask, Masses, Segments, unexplored
from attentest.statistics.alternative import Alternative
from attentest.statistics.interval_mass import LOG_2, log_sums, log_twice_the_smaller
from attentest.statistics.law import Law
from attentest.statistics.truncation_set import Unions, order_by_owner

QUESTIONS = 2
"""P-values of an image that are bounded at the same time: its own one, or those at both ends of an interval."""

MOST_LOGS = 1e18
"""No error at all is taken to be one that is smaller than all others by so many logs."""


@dataclass(frozen=True, kw_only=True)
class Zones:
    """Open zones (q,): undecided or unexplored, with the influence of each on the p-values of its image.

    Parameters
    ----------
    zone, image, piece : (q,)
        Number of the zone, index of its image, and of its interpolant (NO_PIECE if it is unexplored).
    left, right : (q,)
        Ends.
    stalls : (q,)
        How often refining it has not improved it.
    log_mass, log_extreme : (QUESTIONS, q)
        Log mass of the zone, and of its part where the statistic is at least as extreme as observed.
    log_cost : (QUESTIONS, q)
        Log of the most by which it can move each p, in units of its image.
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
        return Zones(**{field.name: getattr(self, field.name)[..., rows] for field in fields(self)})


class Totals(NamedTuple):
    """Log masses (k,) for one p-value: extreme and ordinary for certain, extreme and ordinary open."""

    extreme: Floats
    ordinary: Floats
    open_extreme: Floats
    open_ordinary: Floats


class LogBounds(NamedTuple):
    """Logs of the least and the greatest p-values (QUESTIONS, k) compatible with what is known; 0 if not asked for."""

    low: Floats
    high: Floats


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
        self._law = law
        self.masses = tuple(Masses(law) for _ in range(QUESTIONS))
        self._totals: list[Totals | None] = [None] * QUESTIONS
        self._next_zone = 0
        none = np.empty(0, dtype=np.int64)
        self.segments = unexplored(none, np.empty(0), np.empty(0))
        self._aside = self.segments
        self.ask(0, np.arange(len(law)), np.zeros(len(law)), alternative)

    def add(self, segments: Segments) -> None:
        """Add segments whose zones are numbered from zero; they must not overlap those in the table."""
        zone = np.where(segments.kind == INSIDE, -1, segments.zone + self._next_zone)
        self._next_zone = max(self._next_zone, int(zone.max(initial=-1)) + 1)
        self._append(replace(segments, zone=zone))

    def _append(self, segments: Segments) -> None:
        self._totals = [None] * QUESTIONS
        for masses in self.masses:
            masses.append(segments.image, segments.left, segments.right)
        self.segments = self.segments.followed_by(segments)

    def remove(self, mask: Mask) -> None:
        """Remove the segments of a mask."""
        self._totals = [None] * QUESTIONS
        kept = ~mask
        self.segments = self.segments.chosen(kept)
        for masses in self.masses:
            masses.keep(kept)

    def set_aside(self, images: Mask) -> None:
        """Leave the segments of images (k,) out of the table until :meth:`bring_back`; nothing is bounded for them.

        The work of each round is that of the segments in the table, and most images are done long before the last.
        """
        rows = images[self.segments.image]
        self._aside = self._aside.followed_by(self.segments.chosen(rows))
        self.remove(rows)
        for masses in self.masses:
            masses.asked &= ~images

    def bring_back(self) -> None:
        """Put all segments that were set aside into the table again."""
        self._append(self._aside)
        self._aside = self._aside.chosen(slice(0))

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
        """Return the log masses of intervals (q,) of one image's axis, relative to what is known to be inside.

        Of the p-values that are asked for, the one to which each matters most counts.
        """
        shares = np.full(len(left), -np.inf)
        certain = np.flatnonzero((self.segments.image == image) & (self.segments.kind == INSIDE))
        for masses in self.masses:
            if masses.asked[image]:
                inside = max(np.logaddexp.reduce(part[certain]) for part in (masses.extreme, masses.ordinary))
                own = np.logaddexp(*masses.of(np.full(len(left), image), left, right))
                shares = np.maximum(shares, own - inside if np.isfinite(inside) else 0.0)
        return shares

    def renumber_pieces(self, number: Integers) -> None:
        """Replace the index of each piece by ``number[index]``."""
        self.segments = replace(self.segments, piece=number[self.segments.piece])
        self._aside = replace(self._aside, piece=number[self._aside.piece])

    def ask(self, question: int, images: Integers, mean: Floats, alternative: Alternative) -> None:
        """Bound another p-value of some images (m,) from now on: under means (m,), for another alternative."""
        self._totals[question] = None
        masses = self.masses[question]
        masses.ask(images, mean, alternative)
        rows = np.flatnonzero(self._belong_to(images))
        some = self.segments
        masses.extreme[rows], masses.ordinary[rows] = masses.of(some.image[rows], some.left[rows], some.right[rows])

    def drop(self, question: int, images: Integers) -> None:
        """Bound this p-value of some images (m,) no longer."""
        self._totals[question] = None
        masses = self.masses[question]
        masses.asked[images] = False
        rows = self._belong_to(images)
        masses.extreme[rows] = masses.ordinary[rows] = -np.inf

    def _belong_to(self, images: Integers) -> Mask:
        """Return which segments belong to images (m,)."""
        own = np.zeros(len(self._law), dtype=np.bool_)
        own[images] = True
        return own[self.segments.image]

    def log_bounds(self) -> LogBounds:
        """Return the logs of the least and the greatest p-values (QUESTIONS, k) compatible with the segments."""
        bounds = np.zeros((2, QUESTIONS, len(self._law)))
        for question, masses in enumerate(self.masses):
            if masses.asked.any():
                bounds[:, question] = np.where(masses.asked, self._bounds(question), 0.0)
        return LogBounds(*bounds)

    def _bounds(self, question: int) -> LogBounds:
        masses = self.masses[question]
        extreme, ordinary, open_extreme, open_ordinary = self._totals_of(question)
        low, high = _share_bounds(extreme, ordinary, open_extreme, open_ordinary)
        if not masses.equal_tailed.any():
            return LogBounds(low, high)
        rest_low, rest_high = _share_bounds(ordinary, extreme, open_ordinary, open_extreme)
        return LogBounds(
            np.where(masses.equal_tailed, log_twice_the_smaller(low, rest_low), low),
            np.where(masses.equal_tailed, log_twice_the_smaller(high, rest_high), high),
        )

    def anything_inside(self) -> Mask:
        """Return for each image (k,) whether some part of the axis is known to be inside."""
        certain = self.segments.image[self.segments.kind == INSIDE]
        return np.bincount(certain, minlength=len(self._law)) > 0

    def zones(self, log_unit: Floats, images: Mask) -> Zones:
        """Return the open zones of some images (k,), with costs in units (QUESTIONS, k) of each."""
        segments = self.segments
        open_ = np.flatnonzero((segments.kind != INSIDE) & images[segments.image])
        zone, first, index = np.unique(segments.zone[open_], return_index=True, return_inverse=True)
        first = open_[first]
        image = segments.image[first]
        left, right = np.full(len(zone), np.inf), np.full(len(zone), -np.inf)
        np.minimum.at(left, index, segments.left[open_])
        np.maximum.at(right, index, segments.right[open_])
        log_mass, log_extreme, log_cost = np.full((3, QUESTIONS, len(zone)), -np.inf)
        unit = np.maximum(log_unit, -MOST_LOGS)
        for question, masses in enumerate(self.masses):
            if masses.asked.any():
                extreme = log_sums(index, masses.extreme[open_], len(zone))
                ordinary = log_sums(index, masses.ordinary[open_], len(zone))
                log_mass[question], log_extreme[question] = np.logaddexp(extreme, ordinary), extreme
                costs = self._log_costs(question, image, extreme, ordinary) - unit[question][image]
                log_cost[question] = np.where(masses.asked[image], costs, -np.inf)
        return Zones(
            zone=zone,
            image=image,
            piece=segments.piece[first],
            left=left,
            right=right,
            stalls=segments.stalls[first],
            log_mass=log_mass,
            log_extreme=log_extreme,
            log_cost=log_cost,
        )

    def _log_costs(self, question: int, image: Integers, own_extreme: Floats, own_ordinary: Floats) -> Floats:
        """Return the logs (q,) of the most by which zones of images (q,) can move p, from their masses (q,).

        A zone of mass u among what is extreme moves p by no more than u (ordinary) / (M (M + u)), with M the mass
        known to be inside, and by no more than u / (M + u); one in what is ordinary by u (extreme) / (M (M + u)).
        Where p is twice the smaller tail, it moves by no more than twice as much.
        """
        own = np.logaddexp(own_extreme, own_ordinary)
        extreme, ordinary, open_extreme, open_ordinary = (total[image] for total in self._totals_of(question))
        inside = np.logaddexp(extreme, ordinary)
        all_extreme, all_ordinary = np.logaddexp(extreme, open_extreme), np.logaddexp(ordinary, open_ordinary)
        with np.errstate(invalid="ignore"):  # nothing is inside yet, or nothing is asked for: -inf less -inf
            with_it = np.logaddexp(inside, own)
            by_extreme = own_extreme + np.minimum(all_ordinary - inside, 0.0) - np.logaddexp(inside, own_extreme)
            relative = np.logaddexp(by_extreme, own_ordinary + all_extreme - inside - with_it)
            share = own - np.logaddexp(all_extreme, all_ordinary)
        most_moved = np.where(inside > -np.inf, relative, share) + LOG_2 * self.masses[question].equal_tailed[image]
        return np.asarray(np.minimum(most_moved, 0.0))

    def unions(self, images: Integers) -> tuple[Unions, Unions, Unions]:
        """Return the best estimates of the truncation sets of images (m,), and what is certain and possible of them."""
        segments = self.segments.chosen(self._belong_to(images))
        segments = segments.chosen(order_by_owner(segments.image, segments.left))
        found = segments.best_left < segments.best_right
        certain = segments.kind == INSIDE
        by_image = (
            _unions(len(self._law), segments.image[found], segments.best_left[found], segments.best_right[found]),
            _unions(len(self._law), segments.image[certain], segments.left[certain], segments.right[certain]),
            _unions(len(self._law), segments.image, segments.left, segments.right),
        )
        return by_image[0].chosen(images), by_image[1].chosen(images), by_image[2].chosen(images)

    def likely_unions(self, images: Integers) -> tuple[Unions, Unions]:
        """Return the best estimates of the truncation sets of images (m,), without and with all that is unexplored."""
        segments = self.segments.chosen(self._belong_to(images))
        segments = segments.chosen(order_by_owner(segments.image, segments.left))
        new = segments.kind == UNEXPLORED
        found = segments.best_left < segments.best_right
        left = np.where(new, segments.left, segments.best_left)
        right = np.where(new, segments.right, segments.best_right)
        without, with_it = (
            _unions(len(self._law), segments.image[rows], left[rows], right[rows]).chosen(images)
            for rows in (found & ~new, found | new)
        )
        return without, with_it

    def _totals_of(self, question: int) -> Totals:
        """Return the masses for a p-value; they are needed more than once while the table is the same."""
        known = self._totals[question]
        if known is None:
            count = len(self._law)
            masses = self.masses[question]
            # One sum for both kinds of segments: those of open ones come after those of certain ones.
            group = self.segments.image + np.where(self.segments.kind == INSIDE, 0, count)
            extreme, ordinary = (log_sums(group, values, 2 * count) for values in (masses.extreme, masses.ordinary))
            known = Totals(extreme[:count], ordinary[:count], extreme[count:], ordinary[count:])
            self._totals[question] = known
        return known


def _share_bounds(part: Floats, rest: Floats, open_part: Floats, open_rest: Floats) -> LogBounds:
    """Return the logs of the least and the greatest share (k,) of a part, from log masses, certain and open, (k,)."""
    most = np.logaddexp(part, open_part)
    with np.errstate(invalid="ignore"):  # nothing is certain, or nothing open: -inf less -inf
        low = part - np.logaddexp(part, np.logaddexp(rest, open_rest))
        high = most - np.logaddexp(most, rest)
    return LogBounds(np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), 0.0, high))


def _unions(count: int, image: Integers, left: Floats, right: Floats) -> Unions:
    """Return the unions (count,) of the intervals of each image; they are sorted and do not overlap, but may touch."""
    starts = np.ones(len(image), dtype=np.bool_)
    starts[1:] = (image[1:] != image[:-1]) | (left[1:] > right[:-1])
    ends = np.ones_like(starts)
    ends[:-1] = starts[1:]
    return Unions(count=np.bincount(image[starts], minlength=count), left=left[starts], right=right[ends])
