"""Images drawn from a noise model around a mean image."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from attentest.api import AttentionTest
from attentest.errors import InputError
from attentest.images.sample import ImageLike, Sample, as_sample
from attentest.images.shape import as_shape
from attentest.noise import ImageNoise, NoiseLike, NoiseModel, as_noise, check_noise

DRAWN_TOGETHER = 2**22
"""Number of pixels drawn at a time, to bound memory."""


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


def drawn_images(noise: NoiseModel | None, centre: Sample, count: int, rng: np.random.Generator) -> Iterator[Sample]:
    """Yield images with a mean image, and with its black and white."""
    size = centre.pixels.size
    together = max(1, DRAWN_TOGETHER // size)
    for start in range(0, count, together):
        some = min(together, count - start)
        noises = np.zeros((some, size)) if noise is None else noise.sample(rng, some, size)
        for one in noises:
            yield Sample(pixels=centre.pixels + one.reshape(centre.shape), levels=centre.levels)


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
