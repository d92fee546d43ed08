"""Segments of the z axes of images: inside the truncation set, undecided, or unexplored.

What belongs to no segment is outside. Undecided segments of one piece that touch form a zone.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from attentest.search.spectral.masses import Floats, Integers, Mask

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
