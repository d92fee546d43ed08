"""The division of the z axis into pieces that are still unexplored, and how wide pieces may be."""

from __future__ import annotations

import numpy as np

from attentest.search.spectral.pieces import Pieces
from attentest.search.spectral.segments import UNEXPLORED, AxisParts, Segments, SegmentTable, Zones, unexplored
from attentest.statistics.columns import Floats, Integers, Mask, order_by_owner, repeated, run_ends
from attentest.statistics.law import Law

LOG_TAIL = 100.0
"""The pieces reach to where the density is this many logs below that at z_obs. The tails beyond matter only to a
truncation set narrower than 1e-30."""

FAR_OUT = 12.0
"""Beyond so many standard deviations z_obs is the middle of a piece instead of an end of two: what is inside of half a
piece towards zero is a million times as heavy there as all that is farther out, so that one piece settles p."""

MOST_PIECES = 2000
"""Most pieces per image at the start; with a statistic so large that more are needed, they become wider."""

NEAR = 4.0  # pieces within so many standard deviations of z from z_obs or zero, where p lives, are never merged

WIDENED_RATE, MOST_WIDENED = 0.15, 8
"""Farther away, unexplored pieces are merged where the coefficients of explored ones fall so fast that they would still
fall at this rate in wider pieces (the rate is proportional to the width), by at most this factor at a time. With a
rate of 0.4 a far statistic takes a fifth fewer evaluations, but dips of standard deviation 0.1 to 0.3 on the way to it
escape."""

BEYOND, BEYOND_SLOW = 6.0, 3.0
"""A piece beyond those that p needs, for an interval, is this many times as wide as they are at first, the second where
their coefficients fall slowly; from then on it is as wide as its distance from z_obs or from zero."""

SLOWLY = 0.65
"""Coefficients of a piece fall slowly if the ratio of one to the one before it is above this: a piece six times as wide
has little chance to be resolved, and what it takes is lost."""

SHARP = 0.01
"""Unresolved pieces count as evidence of narrow features if a score changes in them by this fraction of the distance
between the least and the greatest score. What is smaller is rounding, or a kink in a narrow piece."""

TRUSTED = 8.0  # pieces up to this many times as wide as the narrowest unresolved one are trusted

MOST_PARTS = 20_000
"""Most pieces of this width on the axis of an image, to bound memory: it can never be searched with so many."""


class Lattice:
    """The unexplored pieces of k images, which have so great a width (k,) at the start."""

    def __init__(self, law: Law, width: Floats) -> None:
        self._z_obs = law.z_obs
        self._spread = law.spread
        self._near = NEAR * law.spread
        self.reach = law.reach(LOG_TAIL)
        """(k,). The pieces end at this distance from zero; the tails begin there."""
        self._width = np.maximum(width, 2 * self.reach / MOST_PIECES)
        self._first_width = self._width
        self._beyond = np.full(len(width), BEYOND)
        self._explored_from, self._explored_to = self._z_obs.copy(), self._z_obs.copy()

    def segments(self) -> Segments:
        """Return unexplored pieces of the whole axis for each image.

        z_obs is an end of two of them, or far out the middle of one.
        """
        image, lower = np.divmod(np.arange(2 * len(self._z_obs)), 2)
        width = self._width[image]
        far_out = np.flatnonzero(np.abs(self._z_obs) > FAR_OUT * self._spread)
        half = np.zeros(len(self._z_obs))
        half[far_out] = self._width[far_out] / 2
        start = self._z_obs[image] + np.where(lower, -1.0, 1.0) * half[image]
        count = np.ceil((self.reach[image] + np.where(lower, start, -start)) / width).astype(np.int64)
        pieces = _outwards(image, lower > 0, start, width, np.maximum(count, 0))
        around = unexplored(far_out, (self._z_obs - half)[far_out], (self._z_obs + half)[far_out])
        pieces = Segments.concatenated([pieces, around])
        order = order_by_owner(pieces.image, pieces.left)
        return unexplored(pieces.image[order], pieces.left[order], pieces.right[order])

    def extend(self, table: SegmentTable, tails: Zones) -> None:
        """Cut a piece off each of some tails, the wider the farther away the tail is."""
        image = tails.image
        lower = np.isinf(tails.left)
        inner = np.where(lower, tails.right, tails.left)
        distance = np.minimum(np.abs(inner - self._z_obs[image]), np.abs(inner))
        width = np.maximum(distance, (self._beyond * np.minimum(self._first_width, self._width))[image])
        table.remove(np.isin(table.segments.zone, tails.zone))
        table.add(_outwards(image, lower, inner, width, np.ones(len(image), dtype=np.int64)))

    def join_tails(self, table: SegmentTable, images: Mask) -> None:
        """Make the outermost unexplored pieces of images (k,) part of their tails, from which :meth:`extend` cuts.

        Pieces near z_obs and zero stay as they are.
        """
        segments = table.segments
        image = segments.image
        outermost = np.maximum(self._z_obs, 0.0) + self._near, np.minimum(self._z_obs, 0.0) - self._near
        above = segments.left >= np.maximum(self._explored_to, outermost[0])[image]
        below = segments.right <= np.minimum(self._explored_from, outermost[1])[image]
        joined = images[image] & (above | below)
        inner = np.full((2, len(images)), np.inf)
        np.minimum.at(inner[0], image[joined & above], segments.left[joined & above])
        np.minimum.at(inner[1], image[joined & below], -segments.right[joined & below])
        upper, lower = (np.flatnonzero(np.isfinite(ends)) for ends in inner)
        table.remove(joined)
        table.add(unexplored(upper, inner[0, upper], np.full(len(upper), np.inf)))
        table.add(unexplored(lower, np.full(len(lower), -np.inf), -inner[1, lower]))

    def part_tails(self, table: SegmentTable, images: Mask) -> None:
        """Undo :meth:`join_tails` for images (k,): cut their tails into pieces as wide as p needs them."""
        segments = table.segments
        lower = np.isinf(segments.left)
        inner = np.where(lower, segments.right, segments.left)
        tails = lower | np.isinf(segments.right)
        parted = images[segments.image] & tails & (np.abs(inner) < self.reach[segments.image])
        if parted.any():
            image, lower = segments.image[parted], lower[parted]
            width = self._width[image]
            count = np.ceil((self.reach[image] - np.abs(inner[parted])) / width).astype(np.int64)
            table.remove(parted)
            table.add(_outwards(image, lower, inner[parted], width, count))

    def cut(self, table: SegmentTable, widest: Floats) -> None:
        """Cut unexplored pieces that are wider than is trusted (k,) into equal parts that are not."""
        self._width = np.minimum(self._width, widest)
        segments = table.segments
        width = segments.width
        wide: Mask = (segments.kind == UNEXPLORED) & np.isfinite(width) & (width > widest[segments.image])
        if not wide.any():
            return
        table.remove(wide)
        pieces = segments.take(wide)
        parts = np.ceil(width[wide] / widest[pieces.image]).astype(np.int64)
        which, place = repeated(parts)
        pieces, count = pieces.take(which), parts[which]
        left, step = pieces.left, pieces.width / count
        start, end = (np.where(at == 0, left, left + step * at) for at in (place, place + 1))
        end = np.where(place + 1 == count, pieces.right, end)
        table.add(unexplored(pieces.image, start, end, pieces.stalls))

    def widen(self, table: SegmentTable, explored: Pieces) -> None:
        """Merge neighbouring unexplored pieces of images whose scores are smoother than such narrow pieces need.

        Only explored pieces as wide as the unexplored ones count as evidence, so that each step is justified before
        the next.
        """
        np.minimum.at(self._explored_from, explored.image, explored.left)
        np.maximum.at(self._explored_to, explored.image, explored.right)
        slow = (explored.width > 0.9 * self._first_width[explored.image]) & (explored.rate > SLOWLY)
        self._beyond[explored.image[slow]] = BEYOND_SLOW
        count = len(self._width)
        as_wide = explored.width > 0.9 * self._width[explored.image]
        slowest = np.full(count, np.inf)
        slowest[explored.image[as_wide]] = 0.0
        np.maximum.at(slowest, explored.image[as_wide], explored.fall[as_wide])
        wider = WIDENED_RATE / np.maximum(slowest, 1e-3)
        together = 2 ** np.floor(np.log2(np.clip(wider, 1, MOST_WIDENED)))
        self._width = self._width * together
        segments = table.segments
        merged: Mask = (segments.kind == UNEXPLORED) & np.isfinite(segments.left) & np.isfinite(segments.right)
        # Neither near z_obs nor near zero.
        z_obs = self._z_obs[segments.image]
        from_obs = np.maximum(segments.left - z_obs, z_obs - segments.right)
        from_zero = np.maximum(segments.left, -segments.right)
        far = np.minimum(from_obs, from_zero) >= self._near[segments.image]
        merged &= (together[segments.image] > 1) & far
        if merged.any():
            table.remove(merged)
            pieces = segments.take(merged)
            table.add(_merged(pieces.take(np.lexsort((pieces.left, pieces.image))), together))


def _outwards(image: Integers, lower: Mask, inner: Floats, width: Floats, count: Integers) -> Segments:
    """Return tails (q,) that begin at ``inner``, ``lower`` ones downwards, as pieces of some width, and the rest."""
    which, place = repeated(count + 1)
    sign = np.where(lower, -1.0, 1.0)[which]
    near = inner[which] + sign * place * width[which]
    far = np.where(place == count[which], sign * np.inf, inner[which] + sign * (place + 1) * width[which])
    return unexplored(image[which], np.minimum(near, far), np.maximum(near, far))


def _merged(pieces: Segments, together: Floats) -> Segments:
    """Return unexplored pieces, sorted by image and place, merged by factors (k,) where they touch."""
    place = np.arange(len(pieces))
    breaks = (pieces.image[1:] != pieces.image[:-1]) | (pieces.left[1:] != pieces.right[:-1])
    starts, _ = run_ends(len(pieces), breaks)
    in_run = place - np.maximum.accumulate(np.where(starts, place, 0))
    first = in_run % together[pieces.image] == 0
    _, last = run_ends(len(pieces), first[1:])
    return unexplored(pieces.image[first], pieces.left[first], pieces.right[last])


class TrustedWidth:
    """Evidence of narrow features of the scores of k images, and which fresh pieces decided what so far.

    The axis of each image ends at the distance ``reach`` (k,) from zero.
    """

    def __init__(self, reach: Floats) -> None:
        self._narrowest = 2 * reach / MOST_PARTS
        self._spread = np.zeros(len(reach))
        self.widest = np.full(len(reach), np.inf)
        """(k,). Width above which a piece is not trusted; infinite without evidence."""
        self._decided = AxisParts(image=np.empty(0, dtype=np.int64), left=np.empty(0), right=np.empty(0))

    def learn(self, new: Pieces) -> Mask:
        """Take note of new pieces; return which images (k,) have less trusted width now."""
        fresh = new.degree > 0
        parts = AxisParts(image=new.image, left=new.left, right=new.right).take(fresh)
        self._decided = AxisParts.concatenated([self._decided, parts])
        np.maximum.at(self._spread, parts.image, new.spread[fresh])
        # What rough scores show may be noise; the exact ones, which follow, will tell.
        sharp = (np.isinf(new.error) & ~new.is_rough)[fresh]
        sharp &= new.change[fresh] > SHARP * self._spread[parts.image]
        before = self.widest.copy()
        np.minimum.at(self.widest, parts.image[sharp], TRUSTED * parts.width[sharp])
        self.widest = np.maximum(self.widest, self._narrowest)
        return np.asarray(self.widest < before)

    def parts_wider(self, image: int, widest: float) -> AxisParts:
        """Return the parts of an image's axis that were decided by pieces wider than this."""
        pieces = self._decided.take(self._decided.image == image)
        edges = np.unique(np.concatenate([pieces.left, pieces.right]))
        # The piece of each part between two edges; a later piece replaces what an earlier one said.
        owner = np.full(max(len(edges) - 1, 0), -1)
        places = zip(np.searchsorted(edges, pieces.left), np.searchsorted(edges, pieces.right), strict=True)
        for number, (start, end) in enumerate(places):
            owner[start:end] = number
        parts = np.flatnonzero((owner >= 0) & (pieces.width[owner] > widest))
        starts, ends = run_ends(len(parts), (np.diff(parts) > 1) | (np.diff(owner[parts]) != 0))
        left, right = edges[parts[starts]], edges[parts[ends] + 1]
        return AxisParts(image=np.full(len(left), image), left=left, right=right)

    def pieces_at(self, image: Integers, z: Floats) -> AxisParts:
        """Return the pieces (q,) that decided about points (q,)."""
        return self._decided.take(self._decided.last_at(image, z))
