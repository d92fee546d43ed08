"""The paper's region: where the attention map exceeds a threshold (section 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attentest.checks import real_number
from attentest.errors import InputError
from attentest.region.all_pixels import extremes_of_all
from attentest.region.attention_map import attention_map
from attentest.region.candidate_pixels import CandidatePixels
from attentest.region.patch_grid import PatchGrid

TIE = 1e-11
"""Margin by which a pixel of the region must exceed tau. A pixel between the patches of greatest and least attention
can lie exactly at tau whatever the scores are, and rounding would decide whether it belongs to the region."""


@dataclass(frozen=True)
class Threshold:
    """The region is where the attention map exceeds tau, strictly between 0 and 1."""

    tau: float = 0.6

    def __post_init__(self) -> None:
        object.__setattr__(self, "tau", as_threshold(self.tau))

    def regions(self, attention: Tensor, patch_grid: PatchGrid) -> Tensor:
        """Return the regions (m, H, W) of attention maps (m, H, W); that of a constant map is empty."""
        return region_of(attention, self.tau)

    def margins(self, regions: Tensor, patch_grid: PatchGrid) -> ThresholdMargins:
        """Return the margins of observed regions (k, H, W)."""
        return ThresholdMargins(regions, self.tau, patch_grid)

    def describe(self) -> dict[str, Any]:
        """Return the setting."""
        return {"threshold": self.tau}


def as_threshold(threshold: float) -> float:
    """Return tau as a plain float; refuse one outside (0, 1), for which every region is empty or the whole image."""
    number = real_number(threshold, "threshold (tau)")
    if not 0.0 < number < 1.0:
        raise InputError(f"threshold (tau) must lie strictly between 0 and 1, got {number}.")
    return number


def region_of(attention: Tensor, threshold: float) -> Tensor:
    """Return the attention region M = {i : A_i > tau}, bool, of the shape of the map; pixels at tau are outside."""
    return attention > threshold + TIE


def margins(attention: Tensor, region: Tensor, threshold: float) -> Tensor:
    """Return the margins f_i, all negative if and only if the map has the given region.

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
    excess = attention - (threshold + TIE)
    return torch.where(region, -excess, excess).flatten(1)


class ThresholdMargins:
    """The margins of k observed regions A > tau, as a search uses them (``attentest.search.problem.Margins``).

    With t = lowest + tau (highest - lowest), the region at z is the observed one if every pixel of it lies above t and
    every other pixel below: four extremes of the upsampled scores decide, without min-max normalisation. Most pixels
    cannot be extreme: see :class:`~attentest.region.candidate_pixels.SparsePixels`.

    Parameters
    ----------
    regions : (k, H, W) bool
        The observed regions on the pixels seen, on the device of the scores.
    threshold
        tau.
    patch_grid
        The patches over the image.
    """

    def __init__(self, regions: Tensor, threshold: float, patch_grid: PatchGrid) -> None:
        self._regions = regions
        self._threshold = threshold
        self._patch_grid = patch_grid
        self._candidates = CandidatePixels(regions, patch_grid)
        # Signs of the lowest and the highest pixel, the lowest in the region and the highest outside it.
        self.signs = torch.tensor([-1.0, 1.0, -1.0, 1.0], dtype=torch.float64, device=regions.device)
        low, high = 1.0 - (threshold + TIE), threshold + TIE
        self.weights = self.signs.new_tensor([[-low, high, 1.0, 0.0], [low, -high, 0.0, 1.0]])

    def __call__(self, image: Tensor, scores: Tensor) -> Tensor:
        """Return the paper's margins f_i (m, H * W) of images with indices (m,) and scores (m, gh, gw)."""
        return margins(attention_map(scores, self._patch_grid), self._regions[image], self._threshold)

    def pixels(self, image: Tensor, scores: Tensor) -> Tensor:
        """Return the upsampled scores (m, n) of the pixels that can be extreme, for images with indices (m,)."""
        return self._candidates.values(image, scores)

    def extremes(self, image: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the four extremes (m, 4), times their signs, and the indices (m, 4) of the pixels that attain them."""
        return self._extremes(image, self._candidates.kinds(image), pixels)

    def inside(self, image: Tensor, scores: Tensor) -> Tensor:
        """Return whether images with indices (m,) and scores (m, gh, gw) have the observed regions, from all pixels."""
        found = extremes_of_all(self._extremes, self._regions, image, scores, self._patch_grid)
        return (found @ self.weights.T < 0).all(dim=1)

    def _extremes(self, image: Tensor, region: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
        found = (
            pixels.min(dim=1),
            pixels.max(dim=1),
            torch.where(region, pixels, torch.inf).min(dim=1),
            torch.where(region, -torch.inf, pixels).max(dim=1),
        )
        return self.signs * torch.stack([f.values for f in found], dim=1), torch.stack([f.indices for f in found], 1)
