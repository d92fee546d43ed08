"""What is compared in images, and the lines along which only that varies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attentest.case import Case
from attentest.contrast import Contrast, Reference, labelled_components
from attentest.errors import InputError
from attentest.line import Lines, ReferenceParts, covariance_times, lines_through
from attentest.noise import ImageNoise, NoiseModel


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """The part of an image's region that is compared: all of it, or a component.

    Parameters
    ----------
    owner
        Number of the image.
    region : (H, W) bool
        Its region.
    labels : (H, W)
        The components of the region; None to compare the region as a whole.
    component
        Number of the component.
    """

    owner: int
    region: NDArray[np.bool_]
    labels: NDArray[np.int32] | None = None
    component: int = 0

    def mask(self) -> NDArray[np.bool_]:
        """Return the pixels (H, W) of it; made when asked for, because there may be hundreds."""
        return self.region if self.labels is None else np.asarray(self.labels == self.component)


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparisons:
    """Some comparisons (r,) of images.

    Parameters
    ----------
    owner : (r,)
        Image each is about.
    masks
        The part (H, W) of the region that each compares.
    lines
        The lines, one each.
    noise
        The noise model of each.
    """

    owner: NDArray[np.int64]
    masks: Sequence[NDArray[np.bool_]]
    lines: Lines
    noise: Sequence[NoiseModel]


def parts_of(regions: Sequence[NDArray[np.bool_]], connectivity: int | None) -> list[Part]:
    """Return what is compared of regions (H, W): each as a whole, or its components."""
    if connectivity is None:
        return [Part(owner=owner, region=region) for owner, region in enumerate(regions)]
    parts = []
    for owner, region in enumerate(regions):
        labels, count = labelled_components(region, connectivity)
        parts += [Part(owner=owner, region=region, labels=labels, component=i + 1) for i in range(count)]
    return parts


def comparisons(
    cases: Sequence[Case],
    parts: Sequence[Part],
    seen: NDArray[np.bool_],
    channels: NDArray[np.float64],
    contrast: Contrast,
    noise: NoiseModel | ImageNoise,
) -> Comparisons:
    """Return what is compared in images of one shape, and along which lines.

    Parameters
    ----------
    cases
        The images, with their references.
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
    """
    owner = np.array([part.owner for part in parts])
    masks = [part.mask() for part in parts]
    images = [case.image.pixels.numpy() for case in cases]
    shape = images[0].shape
    places = [(mask, part.region, seen) for mask, part in zip(masks, parts, strict=True)]
    eta = np.stack([_eta(contrast.weights(*place), channels, shape) for place in places])
    models = _models(noise, images)
    references = None
    if contrast.reference is not None:
        reference_eta = np.stack([_eta(contrast.reference_weights(*place), channels, shape) for place in places])
        references = _reference_parts(cases, owner, reference_eta, contrast.reference, noise)
    lines = lines_through(
        np.stack([images[i].ravel() for i in owner]), eta, _for_each(models, owner, noise), references
    )
    return Comparisons(owner=owner, masks=masks, lines=lines, noise=[models[i] for i in owner])


def _eta(weights: NDArray[np.float64], channels: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the contrast (n,) of an image (C, H, W) with weights (H, W) or (C, H, W)."""
    if weights.ndim == 2:
        weights = channels[:, None, None] * weights
    if weights.shape != shape:
        raise InputError(
            f"the contrast gives weights of shape {weights.shape}, but the image has (C, H, W) = {shape}: give (H, W) "
            "for all channels together, or one plane for each."
        )
    return weights.ravel()


def _models(noise: NoiseModel | ImageNoise, images: Sequence[NDArray[np.float64]]) -> list[NoiseModel]:
    if isinstance(noise, ImageNoise):
        return [noise.for_image(image) for image in images]
    return [noise] * len(images)


def _for_each(
    models: Sequence[NoiseModel], owner: NDArray[np.int64], noise: NoiseModel | ImageNoise
) -> NoiseModel | list[NoiseModel]:
    """Return the one model of all images, which is applied to all at once, or that of each comparison."""
    return [models[i] for i in owner] if isinstance(noise, ImageNoise) else noise


def _reference_parts(
    cases: Sequence[Case],
    owner: NDArray[np.int64],
    eta: NDArray[np.float64],
    reference: Reference,
    noise: NoiseModel | ImageNoise,
) -> ReferenceParts:
    """Return what references with contrasts (r, n) add to comparisons."""
    images = [case.reference.pixels.numpy() for case in cases if case.reference is not None]
    values = np.array([row @ images[i].ravel() for i, row in zip(owner, eta, strict=True)])
    if reference.exact:
        return ReferenceParts(values=values, variances=np.zeros(len(owner)))
    own = noise if reference.noise is None else reference.noise
    covariance = covariance_times(_for_each(_models(own, images), owner, own), eta)
    return ReferenceParts(values=values, variances=np.einsum("ki,ki->k", eta, covariance))
