"""Position embeddings for grids of patches other than that of training."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import interpolate


def resampled_positions(
    positions: Tensor, trained: tuple[int, int], grid: tuple[int, int], antialias: bool = False
) -> Tensor:
    """Return position embeddings (1, prefix + gh * gw, d) resampled to another grid, bicubically, in their own dtype.

    Parameters
    ----------
    positions : (1, prefix + rows * columns, d)
        As trained; those of the tokens before the patches do not change.
    trained
        Rows and columns of patches in training.
    grid
        Rows and columns (gh, gw) of patches wanted.
    antialias
        Whether to smooth where the grid becomes coarser; libraries differ in this.
    """
    if trained == grid:
        return positions
    prefix = positions.shape[1] - trained[0] * trained[1]
    patches = positions[:, prefix:].unflatten(1, trained).permute(0, 3, 1, 2)
    patches = interpolate(patches, size=grid, mode="bicubic", align_corners=False, antialias=antialias)
    return torch.cat([positions[:, :prefix], patches.permute(0, 2, 3, 1).flatten(1, 2)], dim=1)
