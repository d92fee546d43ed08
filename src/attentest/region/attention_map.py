"""From raw scores to the attention map (appendix A.2), and its extremes over pixels."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from attentest.attention.score_function import Sign
from attentest.region.patch_grid import PatchAxis, PatchGrid

CONSTANT_MAP_TOLERANCE = 64 * torch.finfo(torch.float64).eps
"""A map whose range is less than this fraction of its largest score varies by rounding alone."""

LARGEST_SCORE = 1e100  # largest absolute score: squares of scores must not overflow


def attention_map(scores: Tensor, patch_grid: PatchGrid, sign: Sign = "signed") -> Tensor:
    """Return the attention maps A (m, *units) in [0, 1] of raw scores (m, *grid), normalised image by image.

    The units are those of which regions consist: pixels, or whole patches. Maps are min-max normalised, positive ones
    after values below zero are set to zero; absolute ones are divided by their greatest value. A constant map becomes
    zero everywhere: nothing exceeds any threshold.
    """
    values = patch_grid.unit_scores(scores)
    axes = tuple(range(1, values.ndim))
    values = signed_values(values, sign)
    low = values.amin(dim=axes, keepdim=True) if sign != "absolute" else torch.zeros_like(values[:1])
    span = values.amax(dim=axes, keepdim=True) - low
    values = values - low  # not in one line: of a large image, three maps at a time are one too many
    return values / torch.where(span > 0, span, 1.0)


def signed_values(values: Tensor, sign: Sign) -> Tensor:
    """Return values of a map as its sign has it: as they are, those below zero set to zero, or absolute ones."""
    return values if sign == "signed" else values.clamp(min=0) if sign == "positive" else values.abs()


def unusable_scores(scores: Tensor) -> dict[int, str]:
    """Return the images whose scores (m, *grid) have no region, by their indices, with the reasons."""
    flat = scores.flatten(1)
    finite = torch.isfinite(flat).all(dim=1)
    largest = flat.abs().amax(dim=1)
    huge = finite & (largest > LARGEST_SCORE)
    constant = ~(flat.amax(dim=1) - flat.amin(dim=1) > CONSTANT_MAP_TOLERANCE * largest)
    return {
        index: f"the attention scores reach {float(largest[index]):.3g}, more than the 1e100 allowed: scale them."
        if bool(huge[index])
        else "the attention scores are NaN or infinite: is the image in the range that the model takes?"
        if not bool(finite[index])
        else f"the attention map is constant (every score is {float(largest[index]):.6g} to rounding), so there is no "
        "region to test: is the model trained, and does the image have any content?"
        for index in (constant | huge | ~finite).nonzero().flatten().tolist()
    }


COST_RATIO = 6
"""Computing one candidate takes about as long as this many pixels of a whole map, so candidates are used only where
they are fewer than all pixels by this factor."""

PIXELS_TOGETHER = 2**20  # pixels that are computed at a time


class Margins(ABC):
    """The margins of k observed regions, as a search uses them (``attentest.search.problem.Margins``).

    A few extremes of the upsampled scores over kinds (k, *units) of pixels, such as region and background, decide
    whether scores give the observed region. They have E signs, 1 for the greatest pixel of a group of pixels and -1 for
    the least. The extremes e, times their signs, are those of the observed region where every entry of weights @ e is
    negative, with weights (J, E). Most pixels cannot be extreme: see :class:`SparsePixels`.
    """

    def __init__(
        self, kinds: Tensor, patch_grid: PatchGrid, signs: Sequence[float], weights: Sequence[Sequence[float]]
    ) -> None:
        self._kinds, self._patch_grid = kinds, patch_grid
        self._sparse = SparsePixels.of(kinds, patch_grid)
        self._directions = tuple(signs)
        self.signs = torch.tensor(signs, dtype=torch.float64, device=kinds.device)
        self.weights = self.signs.new_tensor(weights)

    @property
    def count(self) -> int:
        """Number n of the values that :meth:`pixels` returns for an image."""
        return self._kinds[0].numel() if self._sparse is None else self._sparse.kinds.shape[1]

    @abstractmethod
    def __call__(self, image: Tensor, scores: Tensor) -> Tensor:
        """Return a margin per pixel (m, n) of images with indices (m,) and scores (m, *grid)."""

    def _groups(self, image: Tensor, kinds: Tensor) -> list[Tensor]:
        """Return for each extreme which pixels (m, n) of these kinds (m, n) it is of."""
        raise NotImplementedError

    def _extremes(self, image: Tensor, kinds: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the extremes (m, E), times their signs, of pixels (m, n) of these kinds (m, n), and their indices."""
        extremes = [
            (pixels if sign > 0 else -pixels).masked_fill(~group, -torch.inf).max(dim=1)
            for sign, group in zip(self._directions, self._groups(image, kinds), strict=True)
        ]
        values = torch.stack([extreme.values for extreme in extremes], dim=1)
        return values, torch.stack([extreme.indices for extreme in extremes], dim=1)

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
        """Return whether images with indices (m,) and scores (m, *grid) have the observed regions, from all pixels."""
        rows, *others = self._patch_grid.size
        step = max(1, PIXELS_TOGETHER // (max(1, len(scores)) * math.prod(others)))
        extremes = []
        for row in range(0, rows, step):
            some = slice(row, row + step)
            kinds, pixels = self._kinds[:, some][image], self._patch_grid.unit_scores(scores, some)
            extremes.append(self._extremes(image, kinds.flatten(1), pixels.flatten(1))[0])
        return (torch.stack(extremes).amax(dim=0) @ self.weights.T < 0).all(dim=1)


class JointMargins:
    """The margins of several maps of k images, as a search uses them (``attentest.search.problem.Margins``).

    Scores (m, n) are those of the maps, one after the other, and then as many values as there are conditions, which
    must be negative, such as by how much the scores of other classes exceed that of the predicted one. Each map has its
    margins (:class:`Margins`, or joint ones) and the shape of its scores.
    """

    def __init__(self, maps: Sequence[tuple[Any, tuple[int, ...]]], conditions: int = 0) -> None:
        self._maps, self._conditions = tuple(maps), conditions
        of_maps = [margins for margins, _ in maps]
        one = of_maps[0].signs.new_ones(1)
        last = [one] if conditions else []
        self.signs = torch.cat([*(margins.signs for margins in of_maps), *last])
        self.weights = torch.block_diag(*(margins.weights for margins in of_maps), *(end.reshape(1, 1) for end in last))

    @property
    def count(self) -> int:
        """Number of the values that :meth:`pixels` returns for an image."""
        return self._conditions + sum(int(margins.count) for margins, _ in self._maps)

    def __call__(self, image: Tensor, scores: Tensor) -> Tensor:
        """Return the margins (m, n) of images with indices (m,) and scores."""
        maps, conditions = self._divided(scores)
        return torch.cat([*(margins(image, values) for margins, values in maps), conditions], dim=1)

    def pixels(self, image: Tensor, scores: Tensor) -> Tensor:
        """Return the deciding pixels of the maps (m, n), and the values that must be negative."""
        maps, conditions = self._divided(scores)
        return torch.cat([*(margins.pixels(image, values) for margins, values in maps), conditions], dim=1)

    def extremes(self, image: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the extremes (m, E), times their signs, and the indices (m, E) of the pixels that attain them."""
        extremes, attained, start = [], [], 0
        for margins, _ in self._maps:
            values, indices = margins.extremes(image, pixels[:, start : start + margins.count])
            extremes.append(values)
            attained.append(indices + start)
            start += margins.count
        if self._conditions:
            greatest = pixels[:, start:].max(dim=1, keepdim=True)
            extremes.append(greatest.values)
            attained.append(greatest.indices + start)
        return torch.cat(extremes, dim=1), torch.cat(attained, dim=1)

    def inside(self, image: Tensor, scores: Tensor) -> Tensor:
        """Return whether images with indices (m,) and scores have the observed regions and negative values."""
        maps, conditions = self._divided(scores)
        inside = (conditions < 0).all(dim=1)
        for margins, values in maps:
            inside &= margins.inside(image, values)
        return inside

    def _divided(self, scores: Tensor) -> tuple[list[tuple[Any, Tensor]], Tensor]:
        """Return the margins and the scores (m, *grid) of each map, and the values (m, c) that must be negative."""
        *maps, conditions = scores.split([*(math.prod(shape) for _, shape in self._maps), self._conditions], dim=1)
        pairs = zip(maps, self._maps, strict=True)
        return [(margins, values.unflatten(1, shape)) for values, (margins, shape) in pairs], conditions


class SparsePixels:
    """The candidates: pixels that can be the greatest or the least of their kind.

    Between patch centres, upsampled scores are linear along each axis. A pixel that lies, along some axis, between two
    others of its kind and between the same patch centres is therefore never the only greatest or least pixel of its
    kind, and can be left out. What remains are corners and the border of the region; of an image, their number does
    not grow with its area. The candidates (k, n) are interpolated from patches (p, k, n) with weights (p, k, n), two
    patches along each axis, so p = 4 of an image.
    """

    def __init__(self, patches: Tensor, weights: Tensor, kinds: Tensor) -> None:
        self._patches, self._weights, self.kinds = patches, weights, kinds

    @classmethod
    def of(cls, kinds: Tensor, patch_grid: PatchGrid) -> SparsePixels | None:
        """Return the candidates of images with kinds of pixels (k, *units), or None where there are too many."""
        looked = patch_grid.looked
        # What is not looked at is of no kind, and no candidate.
        told_apart = kinds if looked is None else torch.where(looked, kinds.to(torch.int16), -1)
        candidate = torch.ones_like(kinds, dtype=torch.bool) if looked is None else looked.expand_as(kinds).clone()
        for number, axis in enumerate(patch_grid.axes, start=1):
            candidate &= _without_neighbour(told_apart.movedim(number, -1), axis).movedim(-1, number)
        counts = candidate.flatten(1).sum(dim=1)
        count = int(counts.max())
        if count * COST_RATIO > candidate[0].numel():
            return None
        place = candidate.flatten(1).nonzero()[:, 1]
        # Images with fewer candidates repeat their first one, which changes no extreme.
        places = torch.arange(count, device=kinds.device)
        first = (counts.cumsum(dim=0) - counts).unsqueeze(1)
        candidates = place[first + torch.where(places < counts.unsqueeze(1), places, 0)]
        patches = torch.zeros(1, *candidates.shape, dtype=torch.long, device=kinds.device)
        weights = torch.ones(1, *candidates.shape, dtype=torch.float64, device=kinds.device)
        for axis, place in zip(patch_grid.axes, torch.unravel_index(candidates, patch_grid.size), strict=True):
            pair, shares = (values[place].movedim(-1, 0) for values in _two_patches(axis))  # (2, k, n)
            patches = (patches[:, None] * axis.matrix.shape[1] + pair).flatten(0, 1)
            weights = (weights[:, None] * shares).flatten(0, 1)
        return cls(patches.contiguous(), weights.contiguous(), kinds.flatten(1).gather(1, candidates))

    def values(self, image: Tensor, scores: Tensor) -> Tensor:
        """Return the upsampled scores (m, n) of the candidates of images with indices (m,) and scores (m, *grid)."""
        flat = scores.flatten(1)
        values = flat.new_zeros(len(flat), self.kinds.shape[1])
        # Patch after patch: all at once would take as many times the memory.
        for patches, weights in zip(self._patches, self._weights, strict=True):
            if len(patches) == 1:  # the same for all: no copy for each
                values.addcmul_(flat.gather(1, patches.expand(len(flat), -1)), weights)
            else:
                values.addcmul_(flat.gather(1, patches[image]), weights[image])
        return values


def _without_neighbour(kinds: Tensor, axis: PatchAxis) -> Tensor:
    """Return which pixels have, along the last axis, a neighbour of another kind or beyond a patch centre."""
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
