"""Parts of the z axes of images: segments, which are inside the truncation set, undecided or unexplored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attentest.statistics.columns import Columns, Floats, Integers, Mask

INSIDE, UNDECIDED, UNEXPLORED = 0, 1, 2
NO_PIECE = -1


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
