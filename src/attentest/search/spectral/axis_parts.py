"""Parts of the z axes of images: which of them lie in others, for all images at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attentest.search.spectral.masses import Floats, Integers, Mask


@dataclass(frozen=True, kw_only=True)
class AxisParts:
    """Parts (q,) of the z axes of images: the index of the image, and the ends."""

    image: Integers
    left: Floats
    right: Floats

    @classmethod
    def of(cls, image: int, ends: tuple[Floats, Floats]) -> AxisParts:
        """Return parts of the axis of one image."""
        return cls(image=np.full(len(ends[0]), image), left=ends[0], right=ends[1])

    @classmethod
    def stacked(cls, several: Sequence[AxisParts]) -> AxisParts:
        """Concatenate."""
        return cls(
            image=np.concatenate([np.empty(0, dtype=np.int64), *(parts.image for parts in several)]),
            left=np.concatenate([np.empty(0), *(parts.left for parts in several)]),
            right=np.concatenate([np.empty(0), *(parts.right for parts in several)]),
        )

    def chosen(self, rows: Mask | Integers) -> AxisParts:
        """Return some of the parts."""
        return AxisParts(image=self.image[rows], left=self.left[rows], right=self.right[rows])

    def outermost(self) -> Integers:
        """Return the indices of the parts that lie in no other, sorted by image and place; of equal ones, the first."""
        order = np.lexsort((-self.right, self.left, self.image))
        # A part that lies in another comes after it, and after no other that reaches farther.
        farthest = np.maximum.accumulate(_keys(self.image[order], self.right[order]))
        new = np.ones(len(order), dtype=np.bool_)
        new[1:] = farthest[1:] > farthest[:-1]
        return order[new]

    def contain(self, image: Integers, left: Floats, right: Floats) -> Mask:
        """Return whether intervals (m,) of images (m,) lie in one of the parts, which are sorted and do not overlap."""
        if len(self.image) == 0:
            return np.zeros(len(image), dtype=np.bool_)
        place = np.searchsorted(_keys(self.image, self.left), _keys(image, left), side="right") - 1
        return np.asarray((place >= 0) & (self.image[place] == image) & (self.right[place] >= right))


def _keys(image: Integers, z: Floats) -> np.ndarray[tuple[int], np.dtype[np.complex128]]:
    """Return keys that sort by image first, then by z."""
    keys = np.empty(len(image), dtype=np.complex128)
    keys.real, keys.imag = image, z
    return keys
