"""Position embeddings for grids other than the one a model was trained on."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import interpolate


def resampled_positions(
    positions: Tensor, trained: tuple[int, int], grid: tuple[int, int], antialias: bool = False
) -> Tensor:
    """Return position embeddings (1, prefix + gh * gw, d) for another grid, bicubically, in their own dtype.

    Parameters
    ----------
    positions : (1, prefix + rows * columns, d)
        As trained; those of tokens before the patches are kept as they are.
    trained
        Rows and columns they were trained for.
    grid
        Rows and columns wanted.
    antialias
        Whether to smooth where the grid becomes coarser: each library has its own habit.
    """
    if trained == grid:
        return positions
    prefix = positions.shape[1] - trained[0] * trained[1]
    patches = positions[:, prefix:].unflatten(1, trained).permute(0, 3, 1, 2)
    patches = interpolate(patches, size=grid, mode="bicubic", align_corners=False, antialias=antialias)
    return torch.cat([positions[:, :prefix], patches.permute(0, 2, 3, 1).flatten(1, 2)], dim=1)
