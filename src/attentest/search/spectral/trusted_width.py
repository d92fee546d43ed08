"""How wide a piece of an image may be to be trusted: as wide as the narrowest features seen on its axis allow.

A piece shows that its nodes follow what happens between them, unless that is a spike that no node comes near. Scores
that have a steep step or a spike in one place are likely to have others elsewhere. So where a piece of width w turns
out to be too wide for what it holds, no piece of the image that is wider than a few w is trusted any more.
"""

from __future__ import annotations

import numpy as np

from attentest.search.spectral.masses import Floats, Integers, Mask
from attentest.search.spectral.pieces import Pieces

SHARP = 0.01
"""Unresolved pieces count as evidence if a score changes in them by this fraction of the distance between the least and
the greatest score. What is smaller is rounding, or a kink in a narrow piece."""

TRUSTED = 8.0
"""Pieces up to this many times as wide as the narrowest unresolved one are trusted."""

MOST_PARTS = 20_000
"""Most pieces of this width on the axis of an image, to bound memory: it can never be searched with so many."""


class TrustedWidth:
    """Evidence of narrow features of the scores of k images, and which pieces decided what so far.

    Parameters
    ----------
    reach : (k,)
        The axis of each image ends at this distance from zero.

    Attributes
    ----------
    widest : (k,)
        Width above which a piece is not trusted; infinite without evidence.
    """

    def __init__(self, reach: Floats) -> None:
        self._narrowest = 2 * reach / MOST_PARTS
        self._spread = np.zeros(len(reach))
        self.widest = np.full(len(reach), np.inf)
        self._image: Integers = np.empty(0, dtype=np.int64)
        self._left, self._right = np.empty(0), np.empty(0)

    def learn(self, new: Pieces) -> Mask:
        """Take note of new pieces; return which images (k,) have less trusted width now."""
        fresh = new.degree > 0
        image = new.image[fresh]
        self._image = np.concatenate([self._image, image])
        self._left = np.concatenate([self._left, new.left[fresh]])
        self._right = np.concatenate([self._right, new.right[fresh]])
        np.maximum.at(self._spread, image, new.spread[fresh])
        # What rough scores show may be noise; the exact ones, which follow, will tell.
        sharp = np.isinf(new.error[fresh]) & ~new.is_rough[fresh]
        sharp &= new.change[fresh] > SHARP * self._spread[image]
        return self.limit(image[sharp], TRUSTED * (new.right - new.left)[fresh][sharp])

    def limit(self, image: Integers, width: Floats) -> Mask:
        """Trust no pieces of images (q,) wider than this (q,); return which images (k,) have less trusted width now."""
        before = self.widest.copy()
        np.minimum.at(self.widest, image, width)
        self.widest = np.maximum(self.widest, self._narrowest)
        return np.asarray(self.widest < before)

    def parts_wider(self, image: int, widest: float) -> tuple[Floats, Floats]:
        """Return the ends of the parts of an image's axis that were decided by pieces wider than this."""
        edges, owner, width = self._owners(image)
        parts = np.flatnonzero((owner >= 0) & (width[owner] > widest))
        starts = np.ones(len(parts), dtype=np.bool_)
        starts[1:] = (np.diff(parts) > 1) | (np.diff(owner[parts]) != 0)
        ends = np.ones_like(starts)
        ends[:-1] = starts[1:]
        return edges[parts[starts]], edges[parts[ends] + 1]

    def pieces_at(self, image: Integers, z: Floats) -> tuple[Floats, Floats]:
        """Return the ends (q,) of the pieces that decided about points (q,)."""
        left, right = np.empty(len(z)), np.empty(len(z))
        for row, (one, point) in enumerate(zip(image, z, strict=True)):
            here = np.flatnonzero((self._image == one) & (self._left <= point) & (self._right >= point))[-1]
            left[row], right[row] = self._left[here], self._right[here]
        return left, right

    def _owners(self, image: int) -> tuple[Floats, Integers, Floats]:
        """Return the edges (n + 1,) of all pieces of an image, and for each part between them its piece, or -1.

        And the widths of the pieces.
        """
        own = self._image == image
        left, right = self._left[own], self._right[own]
        edges = np.unique(np.concatenate([left, right]))
        owner = np.full(max(len(edges) - 1, 0), -1)
        for row, (start, end) in enumerate(zip(*(np.searchsorted(edges, e) for e in (left, right)), strict=True)):
            owner[start:end] = row  # a later piece replaces what an earlier one said
        return edges, owner, right - left
