"""Model output for the observed images: scores, attention maps and regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.attention import ScoreFunction
from attentest.errors import AttentestError, InputError, ModelError
from attentest.images.sample import stacked
from attentest.pipeline.inputs import Input, Randomisation
from attentest.region import RegionRule, attention_map, unusable_scores
from attentest.region.patch_grid import PatchGrid


@dataclass(frozen=True, kw_only=True, eq=False)
class Observation:
    """A batch of k images of one geometry, and what the model makes of them.

    Parameters
    ----------
    batch
        The images, with their noise models and references.
    images : (k, C, H, W)
        Their pixels.
    added : (k, C, H, W)
        Noise that was added to the images before the model saw them, if any was.
    inputs : (k, C, h, w)
        Model inputs, on the device of the model, as all that follows.
    scores : (k, gh, gw)
        Raw scores.
    patch_grid
        How the patches lie on the pixels of the images.
    attention : (k, H', W'), regions : (k, H', W') bool
        Attention maps and regions on the units of regions: the pixels that the model sees, or whole patches.
    """

    batch: Sequence[Input]
    images: NDArray[np.float64]
    added: NDArray[np.float64] | None
    inputs: Tensor
    scores: Tensor
    patch_grid: PatchGrid
    attention: Tensor
    regions: Tensor

    @property
    def seen(self) -> NDArray[np.bool_]:
        """The pixels (H, W) that the model sees."""
        return self.patch_grid.seen.numpy()

    def seen_image(self, number: int) -> NDArray[np.float64]:
        """Return an image (C, H, W) as the model saw it: with the added noise, if there is any."""
        image: NDArray[np.float64] = self.images[number]
        return image if self.added is None else image + self.added[number]

    def chosen(self, image: NDArray[np.int64]) -> Observation:
        """Return the images with indices (m,), which may repeat."""
        rows = torch.from_numpy(image).to(self.scores.device)
        return replace(
            self,
            inputs=self.inputs[rows],
            scores=self.scores[rows],
            attention=self.attention[rows],
            regions=self.regions[rows],
        )

    @property
    def selectable(self) -> int:
        """Number of pixels, or of whole patches, from which the model chooses a region."""
        return self.regions[0].numel()

    def regions_on_images(self) -> NDArray[np.bool_]:
        """Return the regions (k, H, W) on all pixels of the images."""
        return np.asarray(self.patch_grid.on_image(self.regions).cpu().numpy())

    def maps_on_images(self) -> NDArray[np.float64]:
        """Return the attention maps (k, H, W) on all pixels of the images."""
        return np.asarray(self.patch_grid.on_image(self.attention).cpu().numpy())

    def along(
        self, function: Callable[[Tensor], Tensor], direction: Tensor, origin: Tensor
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """Return a function of model inputs as a function of image indices (m,) and points z (m,) on their lines.

        Parameters
        ----------
        function
            Maps inputs (m, C, h, w) to scores.
        direction : (k, C, h, w)
            Direction of each line, in the inputs.
        origin : (k,)
            The points z at which the lines pass through the observed inputs.
        """

        def scores(image: Tensor, z: Tensor) -> Tensor:
            # a + b z, written around the observed image so that z_obs gives that image exactly.
            return function(self.inputs[image] + direction[image] * (z - origin[image])[:, None, None, None])

        return scores


@torch.no_grad()
def observe(
    batch: Sequence[Input],
    scores: ScoreFunction,
    covered: tuple[int, int],
    rule: RegionRule,
    randomisation: Randomisation | None = None,
    first_number: int | None = None,
) -> Observation:
    """Evaluate a model on images of one geometry.

    Parameters
    ----------
    batch
        The images.
    scores
        The model.
    covered
        Height and width of the part of its input that the patches cover.
    rule
        How an attention map becomes a region.
    randomisation
        How the images are randomised before the model sees them, if they are.
    first_number
        Number of the first image in error messages; None for a single image.
    """
    geometry, images = batch[0].geometry, stacked([tested.image.pixels for tested in batch])
    added = None if randomisation is None else randomisation.added(batch)
    seen_images = images if added is None else images + added
    inputs = geometry.inputs(torch.from_numpy(seen_images).to(scores.device))
    found = _observed_scores(scores, inputs)
    if found.ndim != 3 or len(found) != len(images) or found.dtype != torch.float64 or found.numel() == 0:
        raise ModelError(
            f"the score function must return float64 scores of shape ({len(images)}, gh, gw) for {len(images)} "
            f"images, but it returned {found.dtype} of shape {tuple(found.shape)}."
        )
    if unusable := unusable_scores(found):
        index, reason = unusable
        raise InputError(_named(first_number, index) + reason)
    patch_grid = geometry.patch_grid((found.shape[1], found.shape[2]), covered, scores.device)
    attention = attention_map(found, patch_grid)
    if (constant := _first_empty(attention > 0)) is not None:
        raise InputError(_named(first_number, constant) + _constant(patch_grid))
    regions = rule.regions(attention, patch_grid)
    if (tied := _first_empty(regions)) is not None:
        raise InputError(_named(first_number, tied) + _tied(patch_grid))
    return Observation(
        batch=batch,
        images=images,
        added=added,
        inputs=inputs,
        scores=found,
        patch_grid=patch_grid,
        attention=attention,
        regions=regions,
    )


def _observed_scores(scores: ScoreFunction, inputs: Tensor) -> Tensor:
    try:
        found = scores(inputs.clone())  # a function of the user's may write into what it is given
    except AttentestError:
        raise
    except Exception as error:
        raise ModelError(
            f"the score function failed on the observed image, given as float64 of shape {tuple(inputs.shape)}: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, Tensor):
        raise ModelError(
            f"the score function must return a torch tensor, but it returned {type(found).__name__}: for a NumPy "
            "function use attentest.attention.NumpyScores(function, image_shape)."
        )
    return found


def _named(first_number: int | None, index: int) -> str:
    return "" if first_number is None else f"image {first_number + index}: "


def _first_empty(masks: Tensor) -> int | None:
    """Return the index of the first of masks (k, H', W') that is empty; None if there is none."""
    empty = (~masks.flatten(1).any(dim=1)).nonzero().flatten().tolist()
    return empty[0] if empty else None


def _constant(patch_grid: PatchGrid) -> str:
    height, width = patch_grid.size
    return (
        f"the attention map is constant on the {height} x {width} {patch_grid.units} of the image that the model sees, "
        "so there is no region to test: use a larger image, or a crop that leaves more of it."
    )


def _tied(patch_grid: PatchGrid) -> str:
    return (
        f"{patch_grid.units} of equal attention lie on both sides of the cut, so the top fraction does not define a "
        "region: use another top_fraction, or a threshold."
    )
