"""Images drawn from a noise model around a mean image."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from attentest.api import AttentionTest
from attentest.checks import as_generator
from attentest.errors import InputError
from attentest.images.sample import ImageLike, Sample, as_sample
from attentest.images.shape import as_shape
from attentest.noise import ImageNoise, NoiseLike, NoiseModel, as_noise, check_noise

IMAGE, REFERENCE, ESTIMATION = 0, 1, 2
"""What is drawn for an image, as the last of the numbers that seed it: itself, its reference in the contrast, and the
images from which its noise is estimated."""


def noise_to_draw(test: AttentionTest, noise: NoiseLike | None, shapes: Iterable[tuple[int, int, int]]) -> NoiseModel:
    """Return the noise model to draw images of shapes (C, H, W) from: as given, or that of the test."""
    chosen = test.noise if noise is None else noise
    if isinstance(chosen, ImageNoise):
        raise InputError(
            "the test makes its noise out of each image, so images cannot be drawn from it: say with noise= what they "
            "are drawn from, such as noise=1.0."
        )
    model = as_noise(chosen)
    try:
        for shape in shapes:
            check_noise(model, shape)
    except InputError as error:
        drawn = "" if noise is None else "the noise that images are drawn from: "
        raise InputError(f"{drawn}{error}") from None
    return model


def reference_noise_to_draw(test: AttentionTest, noise: NoiseModel) -> NoiseModel | None:
    """Return the noise of the reference images of images with a noise; None if references have none."""
    reference = test.contrast.reference
    if reference is None or reference.exact:
        return None
    return noise if reference.noise is None else reference.noise


def seed_from(rng: np.random.Generator | int) -> tuple[int, ...]:
    """Return whole numbers that seed all images of a run: drawn once from a generator, or from a seed for one."""
    return tuple(as_generator(rng).integers(2**63, size=2).tolist())


def drawn_image(mean: Sample, noise: NoiseModel | None, seed: Sequence[int]) -> Sample:
    """Return an image with a mean image, its black and white, and noise from a generator of its own.

    Parameters
    ----------
    mean
        The mean image.
    noise
        Noise model; None for an image without noise.
    seed
        Whole numbers that this image alone has. It is drawn by itself, so that it does not depend on any other image,
        not even in the last digit of a product of matrices.
    """
    if noise is None:
        return mean
    drawn = noise.sample(np.random.default_rng(seed), 1, mean.pixels.size)
    return Sample(pixels=mean.pixels + drawn.reshape(mean.shape), levels=mean.levels)


def mean_image(test: AttentionTest, mean: ImageLike | None, image_shape: Any) -> Sample:
    """Return the mean of the images to draw: as given, or zero with the shape that is given or that the model takes."""
    if mean is not None:
        centre = as_sample(mean)
        if image_shape is not None and as_shape(image_shape) != centre.shape:
            raise InputError(f"the mean image has (C, H, W) = {centre.shape}, but image_shape says {image_shape}.")
        return centre
    if image_shape is not None:
        return _zeros(as_shape(image_shape))
    changes = test.preprocessing
    if changes is not None and (changes.resize is not None or changes.crop is not None):
        raise InputError(
            "the test's preprocessing takes images of any size: say with image_shape=(H, W), or in colour with "
            "image_shape=(C, H, W), which to draw."
        )
    channels, height, width = test.image_shape
    one_channel = isinstance(test.noise, NoiseModel) and test.noise.size == height * width
    return _zeros((1 if one_channel else channels, height, width))


def _zeros(shape: tuple[int, ...]) -> Sample:
    return Sample(pixels=np.zeros(shape), levels=None)
