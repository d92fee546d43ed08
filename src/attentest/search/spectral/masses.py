"""The masses of segments for one p-value of each image."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attentest.statistics.alternative import Tails, ordinary_range
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

    def ask(self, images: Integers, mean: Floats, alternative: Tails) -> None:
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
