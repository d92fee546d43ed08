"""The few pixels that decide what the region is."""

from __future__ import annotations

import torch
from torch import Tensor

from attentest.region.patch_grid import Axis, PatchGrid

WORTH_IT = 6
"""A candidate costs about as much as this many pixels of a whole map, so they must be fewer by that."""


class DecidingPixels:
    """The pixels of k images that decide: all, or the candidates where these are few.

    Parameters
    ----------
    kinds : (k, H, W)
        The kind of each pixel seen, such as region and background.
    patch_grid
        How the grid lies over the image.
    """

    def __init__(self, kinds: Tensor, patch_grid: PatchGrid) -> None:
        self._patch_grid = patch_grid
        self._all = kinds.flatten(1)
        self._few = Candidates.of(kinds, patch_grid)

    def values(self, which: Tensor, scores: Tensor) -> Tensor:
        """Return the upsampled scores (m, n) of images ``which`` (m,) with scores (m, gh, gw)."""
        return self._patch_grid.upsample(scores).flatten(1) if self._few is None else self._few.pixels(which, scores)

    def kinds(self, which: Tensor) -> Tensor:
        """Return the kinds (m, n) of the same pixels."""
        return self._all[which] if self._few is None else self._few.kinds[which]


class Candidates:
    """The pixels among which the extremes of every kind of pixel are, whatever the scores.

    Between four patch centres upsampled scores are linear along each row and along each column. So a pixel with
    others of its kind, region or background, on both sides of it in its row or in its column, and between the same
    centres, is never alone the greatest or the least of its kind: it can be left out. What remains are corners and
    the region's border, a number that does not grow with the area of the image.

    Parameters
    ----------
    patches : (k, n, 4), shares : (k, n, 4)
        The patches each candidate is averaged from, and their weights.
    kinds : (k, n)
        The kind of each.
    """

    def __init__(self, patches: Tensor, shares: Tensor, kinds: Tensor) -> None:
        self._patches, self._shares, self.kinds = patches, shares, kinds

    @classmethod
    def of(cls, kinds: Tensor, patch_grid: PatchGrid) -> Candidates | None:
        """Return the candidates of images with kinds of pixels (k, H, W), or None where there are too many."""
        kept = torch.zeros_like(kinds, dtype=torch.bool)
        for value in kinds.unique():
            kind = kinds == value
            kept |= _ends(kind, patch_grid.columns) & _ends(kind.mT, patch_grid.rows).mT
        count = int(kept.flatten(1).sum(dim=1).max())
        if count * WORTH_IT > kept[0].numel():
            return None
        # Nonzero entries first; images with fewer repeat their first, which changes no extreme.
        order = kept.flatten(1).to(torch.uint8).sort(dim=1, descending=True, stable=True)
        chosen = torch.where(order.values[:, :count] > 0, order.indices[:, :count], order.indices[:, :1])
        width = kept.shape[-1]
        (top, above), (left, before) = _two_patches(patch_grid.rows), _two_patches(patch_grid.columns)
        row, column = chosen // width, chosen % width
        across = patch_grid.columns.matrix.shape[1]
        patches = top[row].unsqueeze(-1) * across + left[column].unsqueeze(-2)
        shares = above[row].unsqueeze(-1) * before[column].unsqueeze(-2)
        return cls(patches.flatten(-2), shares.flatten(-2), kinds.flatten(1).gather(1, chosen))

    def pixels(self, which: Tensor, scores: Tensor) -> Tensor:
        """Return the scores (m, n) of the candidates of images ``which`` (m,) with scores (m, gh, gw)."""
        patches = self._patches[which]
        values = scores.flatten(1).gather(1, patches.flatten(1)).unflatten(1, patches.shape[1:])
        return torch.sum(values * self._shares[which], dim=-1)


def _ends(kind: Tensor, axis: Axis) -> Tensor:
    """Return which pixels of a kind (k, H, W) are its first or last in their row and cell."""
    count = torch.nn.functional.pad(kind.cumsum(dim=-1), (1, 0))
    before = count[..., torch.searchsorted(axis.cell, axis.cell)]
    after = count[..., torch.searchsorted(axis.cell, axis.cell, right=True)]
    here = count[..., 1:]
    return kind & ((here == before + 1) | (here == after))


def _two_patches(axis: Axis) -> tuple[Tensor, Tensor]:
    """Return the two patches (n, 2) between which each pixel lies, and their weights (n, 2)."""
    patches = axis.matrix.shape[1]
    pair = torch.stack([axis.cell - 1, axis.cell], dim=1).clamp(0, patches - 1)
    shares = axis.matrix.gather(1, pair)
    shares[:, 1] = torch.where(pair[:, 0] == pair[:, 1], 0.0, shares[:, 1])
    return pair, shares
