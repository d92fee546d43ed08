"""Model output for the observed images: scores, attention maps and regions."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.attention import ScoreFunction
from attentest.attention.score_function import Sign
from attentest.definition import Definition
from attentest.errors import AttentestError, InputError, ModelError
from attentest.images.sample import stacked
from attentest.noise import Poisson
from attentest.pipeline.inputs import Input
from attentest.region.attention_map import JointMargins, Margins, attention_map, signed_values, unusable_scores
from attentest.region.patch_grid import PatchGrid
from attentest.region.rule import Level, RegionRule

KEY = b"attentest randomised selection 2"
"""Changes with every change of how the noise of randomised selection is drawn."""

IN_THREADS = 2**14
"""Values of an image from which on drawing its noise takes longer than starting a thread: NumPy draws in parallel."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Observation:
    """A batch of k images of one geometry, and what the model makes of them."""

    batch: Sequence[Input]
    """The images, with their noise models and references."""
    images: NDArray[np.float64]
    """(k, C, *axes). Their pixels."""
    added: NDArray[np.float64] | None
    """(k, C, *axes). Noise that was added to the images before the model saw them, if any was."""
    inputs: Tensor
    """(k, C, *sides). Model inputs, on the device of the model, as all that follows."""
    scores: Tensor
    """(k, *grid). Raw scores."""
    patch_grid: PatchGrid
    """How the patches lie on the pixels of the images."""
    attention: Tensor
    """(k, *units). Attention maps on the units of regions: the pixels that the model sees, or whole patches."""
    regions: Tensor
    """(k, *units) bool. Regions on these units."""
    choice: Tensor | None = None
    """(k,). What the scores are those of, where the model chose it by looking at the image: its predicted class."""
    leads: Tensor | None = None
    """(k, c). Values that are negative where the model makes that choice, of the size of the scores."""

    @cached_property
    def same_image(self) -> NDArray[np.int64]:
        """(k,). The first of the batch with the same image and noise, of which several draws may be tested together."""
        first: dict[tuple[int, int], int] = {}
        keys = ((id(tested.image), id(tested.noise)) for tested in self.batch)
        return np.array([first.setdefault(key, row) for row, key in enumerate(keys)], dtype=np.int64)

    @cached_property
    def seen(self) -> NDArray[np.bool_]:
        """The pixels (*axes) that the model sees, and that are compared if there is a mask for it."""
        seen, compared = self.patch_grid.seen.numpy(), self.batch[0].geometry.compared
        return seen if compared is None else seen & compared

    def chosen(self, image: NDArray[np.int64]) -> Observation:
        """Return the images with indices (m,), which may repeat."""
        rows = torch.from_numpy(image).to(self.scores.device)
        names = ("inputs", "scores", "attention", "regions", "choice", "leads")
        values = {name: getattr(self, name) for name in names}
        return replace(self, **{name: value[rows] for name, value in values.items() if value is not None})

    def reasons_against(self, rule: RegionRule, sign: Sign) -> dict[int, str]:
        """Return why images cannot be tested that have no region, or nothing but a region, by their indices."""
        regions = self.patch_grid.repeated(self.regions)
        size, units = " x ".join(map(str, self.patch_grid.size)), self.patch_grid.units
        constant = (
            f"the attention map is constant on the {size} {units} of the image that the model sees, so there is no "
            "region to test: use a larger image, or a crop that leaves more of it."
        )
        if sign == "positive":
            constant = (
                "no value of the map is positive, so nothing in the image speaks for the class and there is no region "
                "to test: use another target, or sign='signed'."
            )
        elif self.patch_grid.looked is not None:
            constant = "the map is constant within the mask, so there is no region to test: use a larger mask."
        tied = (
            f"{units} of equal attention lie on both sides of the cut, so the top fraction does not define a region: "
            "use another top_fraction, or a threshold."
        )
        whole = "every value of the map exceeds the threshold, so nothing is left to compare: use a greater one."

        def of_cut(index: int, quantity: str, reason: str) -> str:
            """Return the reason of a cut through all values; that of a level says what they are."""
            if not isinstance(rule, Level):
                return reason
            values = signed_values(self.patch_grid.unit_scores(self.scores[index : index + 1]), sign)
            return (
                f"{quantity} value of the map exceeds the level {rule.level:g}, so there is nothing to compare: the "
                f"map ranges from {float(values.min()):.4g} to {float(values.max()):.4g} here, so use a level in "
                "between, or a threshold."
            )

        # What comes last is the first that is wrong with an image.
        return {
            **self._reasons_of_mask(),
            **{index: of_cut(index, "no", tied) for index in _empty(regions)},
            **{index: of_cut(index, "every", whole) for index in _empty(~regions)},
            **dict.fromkeys(_empty(self.attention > 0), constant),
            **unusable_scores(self.scores),
        }

    def _reasons_of_mask(self) -> dict[int, str]:
        """Return why images cannot be tested whose contrast would have an empty side within the mask."""
        if self.batch[0].geometry.compared is None:
            return {}
        seen, regions = torch.from_numpy(self.seen), self.patch_grid.on_image(self.regions).cpu()
        no_outside = (
            "the mask leaves no pixel outside the region to compare it with: use a larger mask, or a smaller region."
        )
        no_inside = (
            "no pixel of the region lies within the mask, so there is nothing to compare: use another mask, or "
            "mask_use='both', which chooses the region within it."
        )
        return {
            **dict.fromkeys(_empty(seen & ~regions), no_outside),
            **dict.fromkeys(_empty(seen & regions), no_inside),
        }

    @cached_property
    def selectable(self) -> int:
        """Number of pixels, or of whole patches, from which the model chooses a region."""
        looked = self.patch_grid.looked
        return self.regions[0].numel() if looked is None else int(looked.sum())

    def regions_on_images(self) -> NDArray[np.bool_]:
        """Return the regions (k, *axes) on all pixels of the images."""
        return np.asarray(self.patch_grid.on_image(self.regions).cpu().numpy())

    def maps_on_images(self) -> NDArray[np.float64]:
        """Return the attention maps (k, *axes) on all pixels of the images."""
        return np.asarray(self.patch_grid.on_image(self.attention).cpu().numpy())

    def along(
        self, function: Callable[..., Tensor], direction: Tensor, origin: Tensor
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """Return a function of model inputs as a function of image indices (m,) and points z (m,) on their lines.

        It maps inputs (m, C, *sides), and the choices made for them if any were, to scores. The lines have directions
        (k, C, *sides), in the inputs, and pass through the observed inputs at the points z that are their origins (k,).
        """

        def scores(image: Tensor, z: Tensor) -> Tensor:
            # a + b z, written around the observed image so that z_obs gives that image exactly.
            inputs = self.inputs[image] + direction[image] * expanded(z - origin[image], direction)
            if self.choice is None:
                return function(inputs)
            values = function(inputs, self.choice[image])
            values[:, count:] *= factor[image]
            return values

        count, factor = self.scores[0].numel(), self._size_of_leads()
        return scores

    def _size_of_leads(self) -> Tensor:
        """Return the factors (k, 1) that give the leads the size of the scores: one error bounds those of both."""
        flat = self.scores.flatten(1)
        span = flat.amax(dim=1, keepdim=True) - flat.amin(dim=1, keepdim=True)
        if self.leads is None or self.leads.shape[1] == 0:
            return span
        return span / self.leads.abs().amax(dim=1, keepdim=True)

    def searched_scores(self) -> Tensor:
        """Return what :meth:`along` returns at the observed images: scores (k, *grid), or with the leads (k, n + c)."""
        if self.leads is None:
            return self.scores
        return torch.cat([self.scores.flatten(1), self.leads * self._size_of_leads()], dim=1)

    def margins(self, rule: RegionRule, sign: Sign) -> Margins | JointMargins:
        """Return the margins of the observed regions, and of the choices that were made, if any were."""
        margins = rule.margins(self.patch_grid.repeated(self.regions), self.patch_grid, self.scores, sign)
        if self.leads is None:
            return margins
        return JointMargins([(margins, tuple(self.scores.shape[1:]))], self.leads.shape[1])


def expanded(values: Tensor, like: Tensor) -> Tensor:
    """Return values (m,) with axes of length one after their own, as many as another tensor has."""
    return values.reshape(-1, *[1] * (like.ndim - 1))


@torch.no_grad()
def observe(
    batch: Sequence[Input],
    scores: ScoreFunction,
    rule: RegionRule,
    definition: Definition,
    failed: dict[int, InputError] | None = None,
) -> Observation:
    """Evaluate a model on images of one geometry, whose maps become regions by a rule.

    The definition of the test says how the images are randomised before the model sees them, if they are. An image
    without a region raises an error; with ``failed`` the errors are put there, by the indices of their images, and the
    observation is that of the other images, of which there may be none.
    """
    geometry = batch[0].geometry
    images, added, inputs = model_inputs(batch, definition, scores.device)
    properties, choice, leads = geometry.properties, None, None
    if properties.chooses:
        choosing: Any = scores
        choice = choosing.choose(inputs)
        values = choosing.given(inputs, choice)
        count = math.prod(choosing.grid_shape)
        observed, leads = values[:, :count].unflatten(1, choosing.grid_shape), values[:, count:]
    else:
        observed = _observed_scores(scores, inputs)
    patch_grid = geometry.patch_grid(tuple(observed.shape[1:]))
    attention = attention_map(observed, patch_grid, properties.sign)
    regions = rule.regions(attention, patch_grid, properties.sign, observed)
    if patch_grid.looked is not None:
        attention, regions = attention * patch_grid.looked, regions & patch_grid.looked
    observation = Observation(
        batch=batch,
        images=images,
        added=added,
        inputs=inputs,
        scores=observed,
        patch_grid=patch_grid,
        attention=attention,
        regions=regions,
        choice=choice,
        leads=leads,
    )
    reasons = observation.reasons_against(rule, properties.sign)
    if not reasons:
        return observation
    subjects = ["" if tested.number is None else f"image {tested.number}: " for tested in batch]
    errors = {index: InputError(f"{subjects[index]}{reason}") for index, reason in sorted(reasons.items())}
    if failed is None:
        raise next(iter(errors.values()))
    failed.update(errors)
    kept = np.array([index for index in range(len(batch)) if index not in errors], dtype=np.int64)
    return replace(
        observation.chosen(kept),
        batch=[batch[index] for index in kept],
        images=images[kept],
        added=None if added is None else added[kept],
    )


def model_inputs(
    batch: Sequence[Input], definition: Definition, device: torch.device
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None, Tensor]:
    """Return the pixels (k, C, *axes) of images, what is added to them if anything is, and the inputs of the model."""
    images = stacked([tested.image.pixels for tested in batch])
    added = None if definition.randomise == 0 else stacked(_added_noises(batch, definition))
    seen_images = images if added is None else images + added
    return images, added, batch[0].geometry.inputs(torch.from_numpy(seen_images).to(device))


def _added_noises(batch: Sequence[Input], definition: Definition) -> list[NDArray[np.float64]]:
    """Return the noise (C, *axes) that randomised selection adds to each image; large ones are drawn in threads."""
    draw = partial(_added_noise, definition=definition)
    if len(batch) == 1 or batch[0].image.pixels.size < IN_THREADS:
        return list(map(draw, batch))
    with ThreadPoolExecutor() as threads:
        return list(threads.map(draw, batch))


def _added_noise(tested: Input, definition: Definition) -> NDArray[np.float64]:
    """Return the noise (C, *axes) that randomised selection adds to an image: gamma times noise as the image has.

    It comes from the seed of the test, the identity of the image and the number of the draw. It does not depend on the
    pixels, so that p is as continuous a function of them as without it.
    """
    pixels, noise = tested.image.pixels, tested.selection_noise or tested.noise
    key = json.dumps([definition.randomise_seed, tested.identity, tested.draw]).encode()
    digest = hashlib.blake2b(key, key=KEY, digest_size=32).digest()
    rng = np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))
    if isinstance(noise, Poisson):
        return noise.thinned(rng, pixels, definition.randomise) - pixels
    return definition.randomise * noise.sample(rng, 1, pixels.size).reshape(pixels.shape)


def _observed_scores(scores: ScoreFunction, inputs: Tensor) -> Tensor:
    """Return the scores (k, *grid) of inputs (k, C, *sides); a function of the user's may return anything."""
    try:
        observed = scores(inputs.clone())  # it may write into what it is given
    except AttentestError:
        raise
    except Exception as error:
        raise ModelError(
            f"the score function failed on the observed image, given as float64 of shape {tuple(inputs.shape)}: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not isinstance(observed, Tensor):
        raise ModelError(
            f"the score function must return a torch tensor, but it returned {type(observed).__name__}: for a NumPy "
            "function use attentest.attention.NumpyScores(function, image_shape)."
        )
    count = len(inputs)
    axes = {1: "g", 2: "gh, gw", 3: "gd, gh, gw"}[inputs.ndim - 2]
    if (
        observed.ndim != inputs.ndim - 1
        or len(observed) != count
        or observed.dtype != torch.float64
        or observed.numel() == 0
    ):
        raise ModelError(
            f"the score function must return float64 scores of shape ({count}, {axes}) for {count} images, but it "
            f"returned {observed.dtype} of shape {tuple(observed.shape)}."
        )
    return observed


def _empty(masks: Tensor) -> list[int]:
    """Return the indices of those of masks (k, *units) that are empty."""
    indices: list[int] = (~masks.flatten(1).any(dim=1)).nonzero().flatten().tolist()
    return indices
