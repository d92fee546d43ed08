"""Reference images: independent images with the same mean up to a gain, from which the noise is estimated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError, speaking_of
from attentest.noise.model import LARGEST_SIGMA, SMALLEST_SIGMA, FloatArray, named_shape

if TYPE_CHECKING:
    from attentest.images.sample import ImageLike


MOST_ROUNDS = 50
GAIN_PRECISION = 1e-12
"""Relative change of the gains at which they are final."""

LEAST_SIMILARITY = 0.5
"""Least cosine between an image and the mean of the others: below it, more than 3/4 of the squares of its pixels are
not explained by a gain."""


def gain_against(image: FloatArray, mean: FloatArray) -> float:
    """Return the factor g of a mean image for which the sum of |image - g mean| is the least.

    It is the median of image / mean, weighted by |mean|, so that a lesion or a few bad pixels hardly change it.
    """
    weights = np.abs(mean).ravel()
    used = weights > 0
    if not used.any():
        return 0.0
    ratios = image.ravel()[used] / mean.ravel()[used]
    order = np.argsort(ratios, kind="stable")
    cumulated = np.cumsum(weights[used][order])
    return float(ratios[order][np.searchsorted(cumulated, cumulated[-1] / 2)])


def image_gains(images: FloatArray) -> FloatArray:
    """Return the gains (K,) of images (K, C, *axes) of one scene against each other; their median is 1."""
    flat = images.reshape(len(images), -1)
    flat = flat / np.abs(flat).max(axis=1, keepdims=True).clip(min=np.finfo(float).tiny)
    total = flat.sum(axis=0)
    for number, image in enumerate(flat):
        others = total - image
        scale = np.linalg.norm(image) * np.linalg.norm(others)
        if scale == 0 or image @ others < LEAST_SIMILARITY * scale:
            raise _other_scene(number)
    gains = np.ones(len(images))
    for _ in range(MOST_ROUNDS):
        mean = (images / _leading(gains, images)).mean(axis=0)
        refined = np.array([gain_against(image, mean) for image in images])
        if refined.min() <= 0:
            raise _other_scene(int(refined.argmin()))
        refined /= np.median(refined)
        done = np.abs(refined / gains - 1).max() <= GAIN_PRECISION
        gains = refined
        if done:
            break
    return gains


def _leading(values: FloatArray, array: FloatArray) -> FloatArray:
    """Return values (m,) in a shape that is broadcast along the first axis of an array (m, ...)."""
    return values.reshape(-1, *[1] * (array.ndim - 1))


def _other_scene(number: int) -> InputError:
    return InputError(
        f"reference image {number + 1} is not the same scene as the others up to a gain, so that no gain can be "
        "estimated: leave it out, or estimate the noise with one gain for all images.",
        f"reference image {number + 1}",
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class ReferenceImages:
    """Reference images of one shape as their mean and their residuals.

    Removing the mean of K images reduces the variance by a factor (K - 1) / K, so sums of products of residuals are
    divided by K - 1.
    """

    mean: FloatArray
    """(C, *axes). The mean image."""
    residuals: FloatArray
    """(K, C, *axes). The images minus their mean."""
    gains: FloatArray
    """(K,). The factors by which the images were divided before; their median is 1."""
    used: NDArray[np.bool_]
    """(*axes). The pixels that pooled estimates are made of."""

    @property
    def count(self) -> int:
        """Number of images, K."""
        return len(self.residuals)

    @property
    def channel_covariance(self) -> FloatArray:
        """Covariance (C, C) across channels, pooled over the pixels that are used."""
        planes = self.residuals[:, :, self.used]
        return np.asarray(np.einsum("kcn,kdn->cd", planes, planes) / ((self.count - 1) * planes.shape[2]))

    @property
    def pixel_variance(self) -> FloatArray:
        """Variance (C, *axes) of each pixel."""
        return np.asarray((self.residuals**2).sum(axis=0) / (self.count - 1))

    @property
    def standard_planes(self) -> FloatArray:
        """Residuals (K, C', *axes) of the C' channels that vary, over their standard deviations; 0 if not used."""
        variances = np.diag(self.channel_covariance)
        varying = variances > 0
        return np.asarray(self.residuals[:, varying] / _leading(np.sqrt(variances[varying]), self.mean) * self.used)


def varying_pixels(residuals: FloatArray) -> NDArray[np.bool_]:
    """Return whether each pixel (*axes) varies in some channel of residuals (K, C, *axes)."""
    return np.asarray(residuals.any(axis=(0, 1)))


def reference_images(
    images: Iterable[ImageLike],
    least: int,
    reason: str,
    per_image_gain: bool = False,
    ignore_constant: bool = False,
    dimension: int | None = None,
) -> ReferenceImages:
    """Return images of one shape as reference images; an error if they are fewer than ``least`` says the reason.

    With ``per_image_gain`` each image is divided by its gain; with ``ignore_constant`` pooled estimates leave out the
    pixels that have, in every channel, the same value in all images. The ``dimension`` is their number of axes, by
    default that of :func:`dimension_of` the first.
    """
    stack = _stack(images, dimension)
    with speaking_of(stack.ndim - 2):
        if len(stack) < least:
            raise InputError(f"at least {least} reference images are needed, {reason}, got {len(stack)}: give more.")
        gains = np.ones(len(stack))
        with np.errstate(over="ignore", invalid="ignore"):
            if per_image_gain:
                gains = image_gains(stack)
                stack = stack / _leading(gains, stack)
            # Relative to the first image, so that pixels with the same value in all images have exactly zero variance.
            offset = (stack - stack[0]).mean(axis=0)
            mean = stack[0] + offset
            residuals = (stack - stack[0]) - offset
            sigma = float(np.sqrt((residuals**2).sum() / ((len(stack) - 1) * mean.size)))
        if sigma == 0:
            raise InputError(
                f"the {len(stack)} reference images are all the same, so they show no noise: give independent ones."
            )
        if not SMALLEST_SIGMA <= sigma <= LARGEST_SIGMA:
            raise InputError(
                f"the reference images have a standard deviation of {sigma:.3g}, but it must be from "
                f"{SMALLEST_SIGMA:g} to {LARGEST_SIGMA:g}: give them in other units."
            )
        used = varying_pixels(residuals) if ignore_constant else np.ones(mean.shape[1:], dtype=bool)
        return ReferenceImages(mean=mean, residuals=residuals, gains=gains, used=used)


def dimension_of(image: Any) -> int:
    """Return how many axes an image has that does not say so: 1 if it is an array (T,), 3 if (C, D, H, W), else 2.

    A sample has its pixels (C, *axes), so that its number is known.
    """
    if isinstance(pixels := getattr(image, "pixels", None), np.ndarray):
        return pixels.ndim - 1
    return {1: 1, 4: 3}.get(getattr(image, "ndim", 2), 2)


def _stack(images: Iterable[ImageLike], dimension: int | None) -> FloatArray:
    from attentest.images.sample import as_sample  # here because torch is slow to import and noise models do without

    if isinstance(images, (str, bytes)):
        raise InputError("reference images must be a list of images, got a string: read them with read_image first.")
    if dimension is None and getattr(images, "ndim", 0) == 2:
        raise InputError(
            "an array with two axes is one image, or has signals as its rows: give a list of images, or dimension=1.",
            "dimension",
        )
    try:
        listed = iter(images)
    except TypeError:
        raise InputError(f"reference images must be a list of images, got {type(images).__name__}.") from None
    arrays: list[FloatArray] = []
    for number, image in enumerate(listed, start=1):
        dimension = dimension_of(image) if dimension is None else dimension
        with speaking_of(dimension):
            try:
                pixels = as_sample(image, dimension).pixels
            except InputError as error:
                name = f"reference image {number}"
                raise InputError(f"{name} cannot be used: {error}", name, *error.parameters) from None
            if arrays and pixels.shape != arrays[0].shape:
                raise InputError(
                    f"reference images must have one shape, but image 1 is {named_shape(arrays[0].shape)} and image "
                    f"{number} is {pixels.shape}: leave out those that differ.",
                    "image 1",
                    f"image {number}",
                )
            if pixels.min() == pixels.max():
                raise InputError(
                    f"reference image {number} has the value {float(pixels.flat[0]):g} in every pixel, so it shows no "
                    "noise: leave it out.",
                    f"reference image {number}",
                )
        arrays.append(pixels)
    if not arrays:
        raise InputError("at least 2 reference images are needed, got none.")
    return np.stack(arrays)
