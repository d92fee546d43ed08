"""From raw scores to the attention map and its region (appendix A.2 and section 2)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from attentest.checks import real_number
from attentest.errors import InputError

CONSTANT_MAP_TOLERANCE = 64 * torch.finfo(torch.float64).eps
"""A map whose range is below this share of its largest score varies by rounding alone."""


def as_threshold(threshold: float) -> float:
    """Return tau as a plain float; refuse one outside (0, 1), where every region is empty or everything."""
    number = real_number(threshold, "threshold (tau)")
    if not 0.0 < number < 1.0:
        raise InputError(f"threshold (tau) must lie strictly between 0 and 1, got {number}.")
    return number


def upsample(scores: Tensor, size: tuple[int, int]) -> Tensor:
    """Return scores (m, gh, gw) on the pixels, (m, H, W), bilinearly with half-pixel centres."""
    return interpolate(scores.unsqueeze(1), size=size, mode="bilinear", align_corners=False).squeeze(1)


def attention_map(scores: Tensor, size: tuple[int, int]) -> Tensor:
    """Return the attention map A in [0, 1]: scores upsampled, then min-max normalised image by image.

    Parameters
    ----------
    scores : (m, gh, gw)
        Raw scores on the patch grid.
    size
        The (H, W) of the image.

    Returns
    -------
    Tensor of shape (m, H, W)
        A constant map becomes zero everywhere: no pixel exceeds any threshold.
    """
    pixels = upsample(scores, size)
    low = pixels.amin(dim=(-2, -1), keepdim=True)
    span = pixels.amax(dim=(-2, -1), keepdim=True) - low
    return (pixels - low) / torch.where(span > 0, span, 1.0)


def region_of(attention: Tensor, threshold: float) -> Tensor:
    """Return the attention region M = {i : A_i > tau}, bool, of the map's shape."""
    return attention > threshold


def margins(attention: Tensor, region: Tensor, threshold: float) -> Tensor:
    """Return f_i: negative for every pixel where, and only where, the map has the given region.

    Parameters
    ----------
    attention : (m, H, W)
        Attention maps.
    region : (m, H, W) bool
        The observed region of each.
    threshold
        tau.

    Returns
    -------
    Tensor of shape (m, H * W)
        tau - A_i inside the region, A_i - tau outside.
    """
    excess = attention - threshold
    return torch.where(region, -excess, excess).flatten(1)


class ThresholdMargins:
    """The margins of k observed regions A > tau, as a search wants them.

    With t = lowest + tau (highest - lowest), the region at z is the observed one where every pixel of it lies
    above t and every other below: four extremes of the upsampled scores decide, and min-max normalisation is not
    needed.

    Parameters
    ----------
    regions : (k, H, W) bool
        The observed regions, where the scores are.
    threshold
        tau.
    """

    def __init__(self, regions: Tensor, threshold: float) -> None:
        self._regions = regions
        self._threshold = threshold
        # Of the lowest and the highest pixel, the lowest in the region and the highest outside it.
        self.signs = torch.tensor([-1.0, 1.0, -1.0, 1.0], dtype=torch.float64, device=regions.device)
        low, high = 1.0 - threshold, threshold
        self.weights = self.signs.new_tensor([[-low, high, 1.0, 0.0], [low, -high, 0.0, 1.0]])

    def __call__(self, which: Tensor, scores: Tensor) -> Tensor:
        """Return the paper's margins f_i (m, H * W) of images ``which`` (m,) with scores (m, gh, gw)."""
        return margins(attention_map(scores, self._size), self._regions[which], self._threshold)

    def pixels(self, scores: Tensor) -> Tensor:
        """Return the upsampled scores (m, H * W)."""
        return upsample(scores, self._size).flatten(1)

    def extremes(self, which: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the four extremes (m, 4), times their signs, and the pixels (m, 4) that attain them."""
        region = self._regions[which].flatten(1)
        found = (
            pixels.min(dim=1),
            pixels.max(dim=1),
            pixels.masked_fill(~region, torch.inf).min(dim=1),
            pixels.masked_fill(region, -torch.inf).max(dim=1),
        )
        return self.signs * torch.stack([f.values for f in found], dim=1), torch.stack([f.indices for f in found], 1)

    @property
    def _size(self) -> tuple[int, int]:
        return self._regions.shape[-2], self._regions.shape[-1]


def unusable_scores(scores: Tensor) -> tuple[int, str] | None:
    """Return the index of the first image whose scores (m, gh, gw) give no region, and why; None if all do."""
    flat = scores.flatten(1)
    finite = torch.isfinite(flat).all(dim=1)
    largest = flat.abs().amax(dim=1)
    constant = ~(flat.amax(dim=1) - flat.amin(dim=1) > CONSTANT_MAP_TOLERANCE * largest)
    if not bool((constant | ~finite).any()):
        return None
    index = int((constant | ~finite).nonzero()[0, 0])
    if not bool(finite[index]):
        return index, "the attention scores are NaN or infinite: the model overflows on pixel values this large."
    return index, (
        f"the attention map is constant (every score is {float(largest[index]):.6g} to rounding), so there is no "
        "region to test: is the model trained, and does the image have any content?"
    )
