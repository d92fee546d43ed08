"""From raw scores to the attention map (appendix A.2)."""

from __future__ import annotations

import torch
from torch import Tensor

from attentest.region.patch_grid import PatchGrid

CONSTANT_MAP_TOLERANCE = 64 * torch.finfo(torch.float64).eps
"""A map whose range is less than this fraction of its largest score varies by rounding alone."""

LARGEST_SCORE = 1e100
"""Largest absolute score: squares of scores must not overflow."""


def attention_map(scores: Tensor, patch_grid: PatchGrid) -> Tensor:
    """Return the attention map A in [0, 1]: scores of pixels or whole patches, min-max normalised image by image.

    Parameters
    ----------
    scores : (m, gh, gw)
        Raw scores on the patch grid.
    patch_grid
        The patches over the image, and the units of which regions consist.

    Returns
    -------
    Tensor of shape (m, H, W)
        On the units. A constant map becomes zero everywhere: nothing exceeds any threshold.
    """
    values = patch_grid.unit_scores(scores)
    low = values.amin(dim=(-2, -1), keepdim=True)
    span = values.amax(dim=(-2, -1), keepdim=True) - low
    values = values - low  # not in one line: of a large image, three maps at a time are one too many
    return values / torch.where(span > 0, span, 1.0)


def unusable_scores(scores: Tensor) -> tuple[int, str] | None:
    """Return the index of the first image whose scores (m, gh, gw) have no region, and the reason; None if all do."""
    flat = scores.flatten(1)
    finite = torch.isfinite(flat).all(dim=1)
    largest = flat.abs().amax(dim=1)
    huge = finite & (largest > LARGEST_SCORE)
    constant = ~(flat.amax(dim=1) - flat.amin(dim=1) > CONSTANT_MAP_TOLERANCE * largest)
    unusable = constant | huge | ~finite
    if not bool(unusable.any()):
        return None
    index = int(unusable.nonzero()[0, 0])
    if bool(huge[index]):
        return (
            index,
            f"the attention scores reach {float(largest[index]):.3g}, more than the 1e100 allowed: scale them.",
        )
    if not bool(finite[index]):
        return index, "the attention scores are NaN or infinite: is the image in the range that the model takes?"
    return index, (
        f"the attention map is constant (every score is {float(largest[index]):.6g} to rounding), so there is no "
        "region to test: is the model trained, and does the image have any content?"
    )
