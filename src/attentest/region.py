"""From raw scores to the attention map and its region (appendix A.2 and section 2)."""

from __future__ import annotations

import torch
from torch import Tensor

from attentest.checks import real_number
from attentest.errors import InputError
from attentest.view import Axis, View

CONSTANT_MAP_TOLERANCE = 64 * torch.finfo(torch.float64).eps
"""A map whose range is below this share of its largest score varies by rounding alone."""

LARGEST_SCORE = 1e100
"""Squares of scores must not overflow."""

TIE = 1e-11
"""How far above tau a pixel of the region lies. Between the greatest and the least patch a pixel can lie exactly at
tau, whatever the scores are, and rounding alone would decide."""


def as_threshold(threshold: float) -> float:
    """Return tau as a plain float; refuse one outside (0, 1), where every region is empty or everything."""
    number = real_number(threshold, "threshold (tau)")
    if not 0.0 < number < 1.0:
        raise InputError(f"threshold (tau) must lie strictly between 0 and 1, got {number}.")
    return number


def attention_map(scores: Tensor, view: View) -> Tensor:
    """Return the attention map A in [0, 1]: scores upsampled, then min-max normalised image by image.

    Parameters
    ----------
    scores : (m, gh, gw)
        Raw scores on the patch grid.
    view
        How the grid lies over the image.

    Returns
    -------
    Tensor of shape (m, H, W)
        On the pixels that are seen. A constant map becomes zero everywhere: no pixel exceeds any threshold.
    """
    pixels = view.upsample(scores)
    low = pixels.amin(dim=(-2, -1), keepdim=True)
    span = pixels.amax(dim=(-2, -1), keepdim=True) - low
    return (pixels - low) / torch.where(span > 0, span, 1.0)


def region_of(attention: Tensor, threshold: float) -> Tensor:
    """Return the attention region M = {i : A_i > tau}, bool, of the map's shape; what lies at tau is outside."""
    return attention > threshold + TIE


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
    excess = attention - (threshold + TIE)
    return torch.where(region, -excess, excess).flatten(1)


class ThresholdMargins:
    """The margins of k observed regions A > tau, as a search wants them.

    With t = lowest + tau (highest - lowest), the region at z is the observed one where every pixel of it lies
    above t and every other below: four extremes of the upsampled scores decide, and min-max normalisation is not
    needed. Nor are most pixels: see :class:`_Candidates`.

    Parameters
    ----------
    regions : (k, H, W) bool
        The observed regions among the pixels that are seen, where the scores are.
    threshold
        tau.
    view
        How the grid lies over the image.
    """

    def __init__(self, regions: Tensor, threshold: float, view: View) -> None:
        self._regions = regions
        self._threshold = threshold
        self._view = view
        self._candidates = _Candidates.of(regions, view)
        # Of the lowest and the highest pixel, the lowest in the region and the highest outside it.
        self.signs = torch.tensor([-1.0, 1.0, -1.0, 1.0], dtype=torch.float64, device=regions.device)
        low, high = 1.0 - (threshold + TIE), threshold + TIE
        self.weights = self.signs.new_tensor([[-low, high, 1.0, 0.0], [low, -high, 0.0, 1.0]])

    def __call__(self, which: Tensor, scores: Tensor) -> Tensor:
        """Return the paper's margins f_i (m, H * W) of images ``which`` (m,) with scores (m, gh, gw)."""
        return margins(attention_map(scores, self._view), self._regions[which], self._threshold)

    def pixels(self, which: Tensor, scores: Tensor) -> Tensor:
        """Return the upsampled scores (m, n) of the pixels that may be extreme in images ``which`` (m,)."""
        if self._candidates is not None:
            return self._candidates.pixels(which, scores)
        return self._view.upsample(scores).flatten(1)

    def extremes(self, which: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the four extremes (m, 4), times their signs, and the pixels (m, 4) that attain them."""
        region = self._regions[which].flatten(1) if self._candidates is None else self._candidates.region[which]
        found = (
            pixels.min(dim=1),
            pixels.max(dim=1),
            pixels.masked_fill(~region, torch.inf).min(dim=1),
            pixels.masked_fill(region, -torch.inf).max(dim=1),
        )
        return self.signs * torch.stack([f.values for f in found], dim=1), torch.stack([f.indices for f in found], 1)


class _Candidates:
    """The pixels among which the extremes of region and background are, whatever the scores.

    Between four patch centres upsampled scores are linear along each row and along each column. So a pixel with
    others of its kind, region or background, on both sides of it in its row or in its column, and between the same
    centres, is never alone the greatest or the least of its kind: it can be left out. What remains are corners and
    the region's border, a number that does not grow with the area of the image.

    Parameters
    ----------
    patches : (k, n, 4), shares : (k, n, 4)
        The patches each candidate is averaged from, and their weights.
    region : (k, n) bool
        Whether it belongs to the region.
    """

    def __init__(self, patches: Tensor, shares: Tensor, region: Tensor) -> None:
        self._patches, self._shares, self.region = patches, shares, region

    @classmethod
    def of(cls, regions: Tensor, view: View) -> _Candidates | None:
        """Return the candidates of regions (k, H, W), or None where they are too many to be worth it."""
        kept = torch.zeros_like(regions)
        for kind in (regions, ~regions):
            kept |= _ends(kind, view.columns) & _ends(kind.mT, view.rows).mT
        count = int(kept.flatten(1).sum(dim=1).max())
        if count * WORTH_IT > kept[0].numel():
            return None
        # Nonzero entries first; images with fewer repeat their first, which changes no extreme.
        order = kept.flatten(1).to(torch.uint8).sort(dim=1, descending=True, stable=True)
        chosen = torch.where(order.values[:, :count] > 0, order.indices[:, :count], order.indices[:, :1])
        width = kept.shape[-1]
        (top, above), (left, before) = _two_patches(view.rows), _two_patches(view.columns)
        row, column = chosen // width, chosen % width
        across = view.columns.matrix.shape[1]
        patches = top[row].unsqueeze(-1) * across + left[column].unsqueeze(-2)
        shares = above[row].unsqueeze(-1) * before[column].unsqueeze(-2)
        return cls(patches.flatten(-2), shares.flatten(-2), regions.flatten(1).gather(1, chosen))

    def pixels(self, which: Tensor, scores: Tensor) -> Tensor:
        """Return the scores (m, n) of the candidates of images ``which`` (m,) with scores (m, gh, gw)."""
        patches = self._patches[which]
        values = scores.flatten(1).gather(1, patches.flatten(1)).unflatten(1, patches.shape[1:])
        return torch.sum(values * self._shares[which], dim=-1)


WORTH_IT = 6
"""A candidate costs about as much as this many pixels of a whole map, so they must be fewer by that."""


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


def unusable_scores(scores: Tensor) -> tuple[int, str] | None:
    """Return the index of the first image whose scores (m, gh, gw) give no region, and why; None if all do."""
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
        return index, "the attention scores are NaN or infinite: the model overflows on pixel values this large."
    return index, (
        f"the attention map is constant (every score is {float(largest[index]):.6g} to rounding), so there is no "
        "region to test: is the model trained, and does the image have any content?"
    )
