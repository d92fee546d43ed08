"""Extremes of the upsampled scores of all pixels, some rows at a time: a map of a large image takes much memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from attentest.region.patch_grid import PatchGrid

PIXELS_TOGETHER = 2**20
"""Pixels that are computed at a time."""


def extremes_of_all(
    extremes: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
    kinds: Tensor,
    image: Tensor,
    scores: Tensor,
    patch_grid: PatchGrid,
) -> Tensor:
    """Return the extremes (m, E) over all pixels, for images with indices (m,) and scores (m, gh, gw).

    Parameters
    ----------
    extremes
        Returns the extremes (m, E) of some pixels, times their signs, and where they are, from images (m,), kinds of
        pixels (m, n) and their upsampled scores (m, n).
    kinds : (k, H, W)
        The kind of each pixel seen of k images.
    image, scores, patch_grid
        As in :class:`attentest.region.CandidatePixels`.
    """
    height, width = patch_grid.size
    rows = max(1, PIXELS_TOGETHER // (max(1, len(scores)) * width))
    found = []
    for row in range(0, height, rows):
        some = slice(row, row + rows)
        found.append(
            extremes(image, kinds[:, some][image].flatten(1), patch_grid.unit_scores(scores, some).flatten(1))[0]
        )
    return torch.stack(found).amax(dim=0)
