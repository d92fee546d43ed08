"""Segments of the z axes of images, inside the truncation set, undecided or unexplored, and their masses."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from attentest.statistics.alternative import Alternative, ordinary_range
from attentest.statistics.law import Law

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]


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
        self._mean, self._lower, self._upper = np.zeros(count), np.zeros(count), np.zeros(count)
        self.asked = np.zeros(count, dtype=np.bool_)
        self.equal_tailed = np.zeros(count, dtype=np.bool_)
        self.extreme, self.ordinary = np.empty(0), np.empty(0)

    def ask(self, images: Integers, mean: Floats, alternative: Alternative) -> None:
        """Ask for the p-values of images (m,) under means (m,); their masses have to be computed anew."""
        self._mean[images] = mean
        self._lower[images], self._upper[images] = ordinary_range(self._law.statistic[images], alternative)
        self.equal_tailed[images] = alternative == "equal-tailed"
        self.asked[images] = True

    def of(self, image: Integers, left: Floats, right: Floats) -> tuple[Floats, Floats]:
        """Return the log masses of intervals (m,): extreme and ordinary."""
        return self._law.log_masses(
            image,
            left,
            right,
            mean=self._mean[image],
            lower=self._lower[image],
            upper=self._upper[image],
        )

    def quantiles(self, image: Integers, left: Floats, right: Floats, share: Floats, extreme: Mask) -> Floats:
        """Return the points of finite intervals (m,) before which shares (m,) of their extreme or ordinary mass lie."""
        return self._law.quantiles(
            image,
            left,
            right,
            share,
            mean=self._mean[image],
            lower=self._lower[image],
            upper=self._upper[image],
            extreme=extreme,
        )

    def append(self, image: Integers, left: Floats, right: Floats) -> None:
        """Add the masses of new segments (m,)."""
        extreme, ordinary = np.full((2, len(image)), -np.inf)
        rows = np.flatnonzero(self.asked[image])
        if len(rows):
            extreme[rows], ordinary[rows] = self.of(image[rows], left[rows], right[rows])
        self.extreme = np.concatenate([self.extreme, extreme])
        self.ordinary = np.concatenate([self.ordinary, ordinary])

    def keep(self, kept: Mask) -> None:
        """Remove all but some of the segments (s,)."""
        self.extreme, self.ordinary = self.extreme[kept], self.ordinary[kept]


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
