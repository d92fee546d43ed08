"""From raw scores to the attention map (appendix A.2), and its extremes over pixels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from attentest.region.patch_grid import PatchAxis, PatchGrid

CONSTANT_MAP_TOLERANCE = 64 * torch.finfo(torch.float64).eps
"""A map whose range is less than this fraction of its largest score varies by rounding alone."""

LARGEST_SCORE = 1e100
"""Largest absolute score: squares of scores must not overflow."""


def attention_map(scores: Tensor, patch_grid: PatchGrid) -> Tensor:
    """Return the attention maps A (m, H, W) in [0, 1] of raw scores (m, gh, gw), min-max normalised image by image.

    H and W count the units of which regions consist: pixels, or whole patches. A constant map becomes zero everywhere:
    nothing exceeds any threshold.
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
        reached = float(largest[index])
        return index, f"the attention scores reach {reached:.3g}, more than the 1e100 allowed: scale them."
    if not bool(finite[index]):
        return index, "the attention scores are NaN or infinite: is the image in the range that the model takes?"
    return index, (
        f"the attention map is constant (every score is {float(largest[index]):.6g} to rounding), so there is no "
        "region to test: is the model trained, and does the image have any content?"
    )


COST_RATIO = 6
"""Computing one candidate takes about as long as this many pixels of a whole map, so candidates are used only where
they are fewer than all pixels by this factor."""

PIXELS_TOGETHER = 2**20
"""Pixels that are computed at a time."""


class Margins(ABC):
    """The margins of k observed regions, as a search uses them (``attentest.search.problem.Margins``).

    A few extremes of the upsampled scores over kinds of pixels, such as region and background, decide whether scores
    give the observed region. Most pixels cannot be extreme: see :class:`SparsePixels`.

    Parameters
    ----------
    kinds : (k, H, W)
        The kind of each pixel seen, on the device of the scores.
    patch_grid
        The patches over the image.
    signs : E numbers
        1 for the greatest pixel of a group of pixels, -1 for the least.
    weights : (J, E)
        The extremes e, times their signs, are those of the observed region where every entry of weights @ e is
        negative.
    """

    def __init__(
        self, kinds: Tensor, patch_grid: PatchGrid, signs: Sequence[float], weights: Sequence[Sequence[float]]
    ) -> None:
        self._kinds, self._patch_grid = kinds, patch_grid
        self._sparse = SparsePixels.of(kinds, patch_grid)
        self.signs = torch.tensor(signs, dtype=torch.float64, device=kinds.device)
        self.weights = self.signs.new_tensor(weights)

    @abstractmethod
    def __call__(self, image: Tensor, scores: Tensor) -> Tensor:
        """Return a margin per pixel (m, H * W) of images with indices (m,) and scores (m, gh, gw)."""

    @abstractmethod
    def _extremes(self, image: Tensor, kinds: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the extremes (m, E), times their signs, of pixels (m, n) of these kinds (m, n), and their indices."""

    def pixels(self, image: Tensor, scores: Tensor) -> Tensor:
        """Return the upsampled scores (m, n) of the pixels that can be extreme, for images with indices (m,)."""
        if self._sparse is None:
            return self._patch_grid.unit_scores(scores).flatten(1)
        return self._sparse.values(image, scores)

    def extremes(self, image: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the extremes (m, E), times their signs, and the indices (m, E) of the pixels that attain them."""
        kinds = self._kinds.flatten(1) if self._sparse is None else self._sparse.kinds
        return self._extremes(image, kinds[image], pixels)

    def inside(self, image: Tensor, scores: Tensor) -> Tensor:
        """Return whether images with indices (m,) and scores (m, gh, gw) have the observed regions, from all pixels."""
        height, width = self._patch_grid.size
        step = max(1, PIXELS_TOGETHER // (max(1, len(scores)) * width))
        extremes = []
        for row in range(0, height, step):
            rows = slice(row, row + step)
            kinds, pixels = self._kinds[:, rows][image], self._patch_grid.unit_scores(scores, rows)
            extremes.append(self._extremes(image, kinds.flatten(1), pixels.flatten(1))[0])
        return (torch.stack(extremes).amax(dim=0) @ self.weights.T < 0).all(dim=1)


class SparsePixels:
    """The candidates: pixels that can be the greatest or the least of their kind.

    Between four patch centres, upsampled scores are linear along each row and along each column. A pixel that lies, in
    its row or its column, between two others of its kind and between the same patch centres is therefore never the
    only greatest or least pixel of its kind, and can be left out. What remains are corners and the border of the
    region; their number does not grow with the area of the image.

    Parameters
    ----------
    patches : (4, k, n), weights : (4, k, n)
        The four patches from which each candidate is interpolated, and their weights.
    kinds : (k, n)
        The kind of each candidate.
    """

    def __init__(self, patches: Tensor, weights: Tensor, kinds: Tensor) -> None:
        self._patches, self._weights, self.kinds = patches, weights, kinds

    @classmethod
    def of(cls, kinds: Tensor, patch_grid: PatchGrid) -> SparsePixels | None:
        """Return the candidates of images with kinds of pixels (k, H, W), or None where there are too many."""
        candidate = _without_neighbour(kinds, patch_grid.columns) & _without_neighbour(kinds.mT, patch_grid.rows).mT
        counts = candidate.flatten(1).sum(dim=1)
        count = int(counts.max())
        if count * COST_RATIO > candidate[0].numel():
            return None
        place = candidate.flatten(1).nonzero()[:, 1]
        # Images with fewer candidates repeat their first one, which changes no extreme.
        number = torch.arange(count, device=kinds.device)
        first = (counts.cumsum(dim=0) - counts).unsqueeze(1)
        candidates = place[first + torch.where(number < counts.unsqueeze(1), number, 0)]
        width = candidate.shape[-1]
        (top, row_weights), (left, column_weights) = _two_patches(patch_grid.rows), _two_patches(patch_grid.columns)
        row, column = candidates // width, candidates % width
        patches_per_row = patch_grid.columns.matrix.shape[1]
        patches = top[row].unsqueeze(-1) * patches_per_row + left[column].unsqueeze(-2)
        weights = row_weights[row].unsqueeze(-1) * column_weights[column].unsqueeze(-2)
        # From (k, n, 2, 2) to (4, k, n).
        patches, weights = (values.flatten(-2).movedim(-1, 0).contiguous() for values in (patches, weights))
        return cls(patches, weights, kinds.flatten(1).gather(1, candidates))

    def values(self, image: Tensor, scores: Tensor) -> Tensor:
        """Return the upsampled scores (m, n) of the candidates of images with indices (m,) and scores (m, gh, gw)."""
        flat = scores.flatten(1)
        values = flat.new_zeros(len(flat), self.kinds.shape[1])
        # Patch after patch: all four at once would take four times the memory.
        for patches, weights in zip(self._patches, self._weights, strict=True):
            if len(patches) == 1:  # the same for all: no copy for each
                values.addcmul_(flat.gather(1, patches.expand(len(flat), -1)), weights)
            else:
                values.addcmul_(flat.gather(1, patches[image]), weights[image])
        return values


def _without_neighbour(kinds: Tensor, axis: PatchAxis) -> Tensor:
    """Return which pixels (k, H, W) have, in their row, a neighbour of another kind or beyond a patch centre."""
    changes = (kinds[..., 1:] != kinds[..., :-1]) | (axis.cell[1:] != axis.cell[:-1])
    changes = torch.nn.functional.pad(changes, (1, 1), value=True)
    return changes[..., :-1] | changes[..., 1:]


def _two_patches(axis: PatchAxis) -> tuple[Tensor, Tensor]:
    """Return the two patches (n, 2) between whose centres each pixel lies, and their weights (n, 2)."""
    patches = axis.matrix.shape[1]
    pair = torch.stack([axis.cell - 1, axis.cell], dim=1).clamp(0, patches - 1)
    weights = axis.matrix.gather(1, pair)
    weights[:, 1] = torch.where(pair[:, 0] == pair[:, 1], 0.0, weights[:, 1])
    return pair, weights
