"""What is compared in images, and the lines along which only that varies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attentest.case import Case
from attentest.contrast import Contrast, labelled_components
from attentest.errors import InputError
from attentest.line import Lines, ReferenceParts, covariance_times, lines_through
from attentest.noise import ImageNoise, NoiseModel


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparisons:
    """The r comparisons of k images: one of each, or one of each component.

    Parameters
    ----------
    owner : (r,)
        Image each is about.
    parts : (r, H, W) bool
        The part of the region that is compared.
    lines
        The lines, one each.
    noise
        The noise model of each.
    """

    owner: NDArray[np.int64]
    parts: NDArray[np.bool_]
    lines: Lines
    noise: Sequence[NoiseModel]


def comparisons(
    cases: Sequence[Case],
    regions: NDArray[np.bool_],
    seen: NDArray[np.bool_],
    channels: NDArray[np.float64],
    contrast: Contrast,
    noise: NoiseModel | ImageNoise,
    connectivity: int | None,
) -> Comparisons:
    """Return what is compared in images of one shape.

    Parameters
    ----------
    cases
        k images with their references.
    regions : (k, H, W) bool
        The regions.
    seen : (H, W) bool
        The pixels that the model sees.
    channels : (C,)
        Weight of each channel.
    contrast
        What regions are compared with.
    noise
        One model for all images, or what makes one out of each.
    connectivity
        Of components; None to compare regions as a whole.
    """
    owner, parts = _parts(regions, connectivity)
    images = np.stack([case.image.pixels.numpy() for case in cases])
    shape = images.shape[1:]
    eta = np.stack(
        [_eta(contrast.weights(part, regions[i], seen), channels, shape) for i, part in zip(owner, parts, strict=True)]
    )
    models = _models(noise, images)
    own: NoiseModel | list[NoiseModel] = [models[i] for i in owner] if isinstance(noise, ImageNoise) else noise
    lines = lines_through(
        images.reshape(len(cases), -1)[owner],
        eta,
        own,
        _reference_parts(cases, owner, parts, regions, seen, channels, contrast, noise),
    )
    return Comparisons(owner=owner, parts=parts, lines=lines, noise=[models[i] for i in owner])


def _parts(regions: NDArray[np.bool_], connectivity: int | None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    if connectivity is None:
        return np.arange(len(regions)), regions
    owner, parts = [], []
    for image, region in enumerate(regions):
        labels, count = labelled_components(region, connectivity)
        for number in range(1, count + 1):
            owner.append(image)
            parts.append(labels == number)
    return np.array(owner), np.stack(parts)


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


def _models(noise: NoiseModel | ImageNoise, images: NDArray[np.float64]) -> list[NoiseModel]:
    if isinstance(noise, ImageNoise):
        return [noise.for_image(image) for image in images]
    return [noise] * len(images)


def _reference_parts(
    cases: Sequence[Case],
    owner: NDArray[np.int64],
    parts: NDArray[np.bool_],
    regions: NDArray[np.bool_],
    seen: NDArray[np.bool_],
    channels: NDArray[np.float64],
    contrast: Contrast,
    noise: NoiseModel | ImageNoise,
) -> ReferenceParts | None:
    reference = contrast.reference
    if reference is None:
        return None
    images = np.stack([case.reference.pixels.numpy() for case in cases if case.reference is not None])
    eta = np.stack(
        [
            _eta(contrast.reference_weights(part, regions[i], seen), channels, images.shape[1:])
            for i, part in zip(owner, parts, strict=True)
        ]
    )
    values = np.einsum("ki,ki->k", eta, images.reshape(len(images), -1)[owner])
    if reference.exact:
        return ReferenceParts(values=values, variances=np.zeros(len(owner)))
    own = noise if reference.noise is None else reference.noise
    models = _models(own, images)
    covariance = covariance_times([models[i] for i in owner] if isinstance(own, ImageNoise) else own, eta)
    return ReferenceParts(values=values, variances=np.einsum("ki,ki->k", eta, covariance))
