"""What is compared in images, and the lines along which only that varies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from attentest.contrast import Contrast, Reference, labelled_components
from attentest.contrast.difference import takes_stacks
from attentest.errors import InputError
from attentest.noise import ImageNoise, NoiseModel
from attentest.pipeline.line import Lines, ReferenceParts, covariance_times, lines_through

Scalar = TypeVar("Scalar", bound=np.generic)

Places: TypeAlias = tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]
"""What contrasts are a function of, for r of them: masks (r, H, W), whole regions (r, H, W) and pixels seen (H, W)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Parts:
    """What is compared of the regions of k images: each as a whole, or some components of them.

    Parameters
    ----------
    owner : (r,)
        Image that each part is of.
    regions : (k, H, W) bool
        The images' regions.
    labels : (k, H, W)
        The components of the regions; None to compare regions as a whole.
    component : (r,)
        Number of the component that each part is.
    """

    owner: NDArray[np.int64]
    regions: NDArray[np.bool_]
    labels: NDArray[np.int32] | None
    component: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.owner)

    def masks(self) -> NDArray[np.bool_]:
        """Return the pixels (r, H, W) of each; made when asked for, because there may be hundreds an image."""
        if self.labels is None:
            return self.of_each(self.regions)
        return np.asarray(self.of_each(self.labels) == self.component[:, None, None])

    def of_each(self, values: NDArray[Scalar]) -> NDArray[Scalar]:
        """Return what images have, (k, ...), for each part, (r, ...); not a copy where all are compared as a whole."""
        whole = self.labels is None and len(self) == len(values)
        return values if whole else values[self.owner]

    def chunks(self, size: int) -> Iterator[Parts]:
        """Yield them in turn, so many at a time."""
        for start in range(0, len(self), size):
            some = slice(start, start + size)
            yield replace(self, owner=self.owner[some], component=self.component[some])


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparisons:
    """Some comparisons (r,) of images.

    Parameters
    ----------
    owner : (r,)
        Image each is about.
    masks : (r, H, W) bool
        The part of the region that each compares.
    lines
        The lines, one each.
    noise
        The noise model of each.
    """

    owner: NDArray[np.int64]
    masks: NDArray[np.bool_]
    lines: Lines
    noise: Sequence[NoiseModel]


def parts_of(regions: NDArray[np.bool_], connectivity: int | None) -> Parts:
    """Return what is compared of regions (k, H, W): each as a whole, or its components."""
    if connectivity is None:
        each = np.arange(len(regions))
        return Parts(owner=each, regions=regions, labels=None, component=np.zeros_like(each))
    labelled = [labelled_components(region, connectivity) for region in regions]
    counts = [count for _, count in labelled]
    return Parts(
        owner=np.repeat(np.arange(len(regions)), counts),
        regions=regions,
        labels=np.stack([labels for labels, _ in labelled]),
        component=np.concatenate([np.arange(1, count + 1) for count in counts]),
    )


def comparisons(
    images: NDArray[np.float64],
    parts: Parts,
    seen: NDArray[np.bool_],
    channels: NDArray[np.float64],
    contrast: Contrast,
    noise: NoiseModel | ImageNoise,
    reference_images: NDArray[np.float64] | None = None,
) -> Comparisons:
    """Return what is compared in images of one shape, and along which lines.

    Parameters
    ----------
    images : (k, C, H, W)
        The images.
    parts
        What is compared of them.
    seen : (H, W) bool
        The pixels that the model sees.
    channels : (C,)
        Weight of each channel.
    contrast
        What regions are compared with.
    noise
        One model for all images, or what makes one out of each.
    reference_images : (k, C, H, W)
        The images' references, where the contrast has one.
    """
    owner, masks, shape = parts.owner, parts.masks(), images.shape[1:]
    places = masks, parts.of_each(parts.regions), seen
    eta = _eta(contrast.weights, places, channels, shape)
    models = _models(noise, images)
    references = None
    if contrast.reference is not None and reference_images is not None:
        reference_eta = _eta(contrast.reference_weights, places, channels, shape)
        references = _reference_parts(reference_images, owner, reference_eta, contrast.reference, noise)
    lines = lines_through(
        parts.of_each(images.reshape(len(images), -1)), eta, _for_each(models, owner, noise), references
    )
    return Comparisons(owner=owner, masks=masks, lines=lines, noise=[models[i] for i in owner])


def _eta(
    weigh: Callable[..., NDArray[np.float64]],
    places: Places,
    channels: NDArray[np.float64],
    shape: tuple[int, ...],
) -> NDArray[np.float64]:
    """Return the contrasts (r, n) of images (C, H, W), all at once where a contrast's method can."""
    masks, regions, seen = places
    if takes_stacks(weigh):
        return _of_pixels(weigh(masks, regions, seen), channels, shape)
    one_by_one = (weigh(mask, region, seen) for mask, region in zip(masks, regions, strict=True))
    return np.concatenate([_of_pixels(weights[None], channels, shape) for weights in one_by_one])


def _of_pixels(
    weights: NDArray[np.float64], channels: NDArray[np.float64], shape: tuple[int, ...]
) -> NDArray[np.float64]:
    """Return the contrasts (m, n) of images (C, H, W) with weights (m, H, W) or (m, C, H, W)."""
    if weights.ndim == 3:
        weights = channels[:, None, None] * weights[:, None]
    if weights.shape[1:] != shape:
        raise InputError(
            f"the contrast gives weights of shape {weights.shape[1:]}, but the image has (C, H, W) = {shape}: give "
            "(H, W) for all channels together, or one plane for each."
        )
    return weights.reshape(len(weights), -1)


def _models(noise: NoiseModel | ImageNoise, images: NDArray[np.float64]) -> list[NoiseModel]:
    if isinstance(noise, ImageNoise):
        return [noise.for_image(image) for image in images]
    return [noise] * len(images)


def _for_each(
    models: Sequence[NoiseModel], owner: NDArray[np.int64], noise: NoiseModel | ImageNoise
) -> NoiseModel | list[NoiseModel]:
    """Return the one model of all images, which is applied to all at once, or that of each comparison."""
    return [models[i] for i in owner] if isinstance(noise, ImageNoise) else noise


def _reference_parts(
    images: NDArray[np.float64],
    owner: NDArray[np.int64],
    eta: NDArray[np.float64],
    reference: Reference,
    noise: NoiseModel | ImageNoise,
) -> ReferenceParts:
    """Return what references (k, C, H, W) with contrasts (r, n) add to comparisons."""
    values = np.einsum("ki,ki->k", eta, images.reshape(len(images), -1)[owner])
    if reference.exact:
        return ReferenceParts(values=values, variances=np.zeros(len(owner)))
    own = noise if reference.noise is None else reference.noise
    covariance = covariance_times(_for_each(_models(own, images), owner, own), eta)
    return ReferenceParts(values=values, variances=np.einsum("ki,ki->k", eta, covariance))
