"""What a model makes of images as they are: their scores, maps and regions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from attentest.attention import ScoreFunction, ViTScores
from attentest.errors import AttentestError, InputError, ModelError
from attentest.pipeline.image_geometry import Frame
from attentest.region import RegionRule, attention_map, unusable_scores
from attentest.region.patch_grid import PatchGrid, Placement

PATCH_GRIDS_KEPT = 16
"""Making a patch grid takes as long as observing hundreds of small images, and most tests need but one."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Observation:
    """Images as observed: inputs (k, C, h, w), scores (k, gh, gw), maps and regions (k, H', W') of what is seen."""

    inputs: Tensor
    scores: Tensor
    patch_grid: PatchGrid
    attention: Tensor
    regions: Tensor

    def chosen(self, which: Tensor) -> Observation:
        """Return some of the images (m,), or some several times."""
        return replace(
            self,
            inputs=self.inputs[which],
            scores=self.scores[which],
            attention=self.attention[which],
            regions=self.regions[which],
        )

    def along(
        self, function: Callable[[Tensor], Tensor], direction: Tensor, origin: Tensor
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """Return a function of images' inputs as one of image numbers (m,) and points z (m,) on the images' lines.

        Parameters
        ----------
        function
            From inputs (m, C, h, w).
        direction : (k, C, h, w)
            Of each line, in the inputs.
        origin : (k,)
            The points at which the lines pass through the images.
        """

        def scores(which: Tensor, z: Tensor) -> Tensor:
            # a + b z, written around the observed image so that z_obs gives that image exactly.
            return function(self.inputs[which] + direction[which] * (z - origin[which])[:, None, None, None])

        return scores


class Observer:
    """Looks at images with a model.

    Parameters
    ----------
    scores
        The model's scores.
    rule
        How a map becomes a region.
    """

    def __init__(self, scores: ScoreFunction, rule: RegionRule) -> None:
        self._scores, self._rule = scores, rule

    @torch.no_grad()
    def __call__(self, images: Tensor, frame: Frame, first: int | None) -> Observation:
        """Observe images (k, C, H, W) of a frame; ``first`` is what errors call the first, if there are several."""
        inputs = frame.inputs(images.to(self._scores.device))
        scores = self._observed_scores(inputs)
        if scores.ndim != 3 or len(scores) != len(images) or scores.dtype != torch.float64 or scores.numel() == 0:
            raise ModelError(
                f"the score function must return float64 scores of shape ({len(images)}, gh, gw) for {len(images)} "
                f"images, but it returned {scores.dtype} of shape {tuple(scores.shape)}."
            )
        if unusable := unusable_scores(scores):
            index, reason = unusable
            raise InputError(reason if first is None else f"image {first + index}: {reason}")
        patch_grid = self._patch_grid(frame, (scores.shape[1], scores.shape[2]))
        attention = attention_map(scores, patch_grid)
        regions = self._rule.regions(attention, patch_grid)
        empty = (~regions.flatten(1).any(dim=1)).nonzero().flatten().tolist()
        if empty:
            which = "" if first is None else f"image {first + empty[0]}: "
            constant = not bool(attention[empty[0]].any())
            raise InputError(which + (_constant(patch_grid) if constant else _tied()))
        return Observation(inputs=inputs, scores=scores, patch_grid=patch_grid, attention=attention, regions=regions)

    def _observed_scores(self, inputs: Tensor) -> Tensor:
        if isinstance(self._scores, ViTScores):
            return self._scores(inputs)
        try:
            return self._scores(inputs.clone())  # the line starts there, and a foreign function may write into it
        except AttentestError:
            raise
        except Exception as error:
            raise ModelError(
                f"the score function failed on the observed image, given as float64 of shape {tuple(inputs.shape)}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _patch_grid(self, frame: Frame, grid: tuple[int, int]) -> PatchGrid:
        """Return how a grid of patches lies over the images of a frame."""
        covered = self._scores.covered if isinstance(self._scores, ViTScores) else self._scores.image_shape[1:]
        _, height, width = frame.shape
        return _made_patch_grid((height, width), grid, covered, frame.inputs.placement, self._scores.device)


@lru_cache(maxsize=PATCH_GRIDS_KEPT)
def _made_patch_grid(
    image_size: tuple[int, int],
    grid: tuple[int, int],
    covered: tuple[float, float],
    placement: Placement,
    device: torch.device,
) -> PatchGrid:
    return PatchGrid(image_size, grid, covered, placement, device)


def _constant(patch_grid: PatchGrid) -> str:
    height, width = patch_grid.size
    return (
        f"the attention map is constant on the {height} x {width} pixels the model sees, so there is no region to "
        "test: use a larger image, or a crop that leaves more of it."
    )


def _tied() -> str:
    return (
        "pixels of equal attention lie on both sides of the cut, so the top fraction is no definite region: use "
        "another top_fraction, or a threshold."
    )
