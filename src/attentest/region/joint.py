"""Conditions of several kinds at once: regions of several maps, and values that must be negative."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class JointMargins:
    """The margins of several maps of k images, as a search uses them (``attentest.search.problem.Margins``).

    Scores (m, n) are those of the maps, one after the other, and then as many values as there are conditions, which
    must be negative, such as by how much the scores of other classes exceed that of the predicted one. Each map has its
    margins (``attentest.region.attention_map.Margins``, or joint ones) and the shape of its scores.
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
        *maps, conditions = self._divided(scores)
        pairs = zip(self._maps, maps, strict=True)
        return torch.cat([*(margins(image, values) for (margins, _), values in pairs), conditions], dim=1)

    def pixels(self, image: Tensor, scores: Tensor) -> Tensor:
        """Return the deciding pixels of the maps (m, n), and the values that must be negative."""
        *maps, conditions = self._divided(scores)
        pairs = zip(self._maps, maps, strict=True)
        return torch.cat([*(margins.pixels(image, values) for (margins, _), values in pairs), conditions], dim=1)

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
        *maps, conditions = self._divided(scores)
        inside = (conditions < 0).all(dim=1)
        for (margins, _), values in zip(self._maps, maps, strict=True):
            inside &= margins.inside(image, values)
        return inside

    def _divided(self, scores: Tensor) -> list[Tensor]:
        """Return the scores (m, *grid) of each map, and the values (m, c) that must be negative."""
        *maps, conditions = scores.split([*(math.prod(shape) for _, shape in self._maps), self._conditions], dim=1)
        pairs = zip(maps, self._maps, strict=True)
        return [*(values.unflatten(1, shape) for values, (_, shape) in pairs), conditions]
