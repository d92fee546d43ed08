"""Calibration of a test on null images, which hold noise alone."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.api import AttentionTest, Progress
from attentest.checks import as_generator, confidence, whole_number
from attentest.contrast import Contrast
from attentest.errors import AttentestWarning, InputError
from attentest.images.sample import ImageLike, Sample, as_sample
from attentest.noise import ImageNoise, NoiseLike, NoiseModel, as_noise, check_noise
from attentest.results.calibration import ALPHAS, Calibration, significance_levels
from attentest.results.result import AttentionTestResult

MOST_IMAGES = 10**8
"""Upper limit on the number of null images, against typing errors."""

ROUNDING = 1e-12
"""A sum below this fraction of its terms is rounding error."""

DRAWN_TOGETHER = 2**22
"""Number of pixels drawn at a time, to bound memory."""


def calibrate(
    test: AttentionTest,
    n: int = 1000,
    rng: np.random.Generator | int = 0,
    *,
    mean: ImageLike | None = None,
    image_shape: tuple[int, ...] | None = None,
    noise: NoiseLike | None = None,
    alphas: Sequence[float] = ALPHAS,
    confidence_level: float = 0.95,
    progress: Progress | None = None,
) -> Calibration:
    """Run a test on null images and compare its type I error with the nominal levels.

    Parameters
    ----------
    test
        The test, with its own model, noise model and settings.
    n
        Number of null images.
    rng
        A generator, or a seed for one.
    mean
        Mean of the null images; by default zero everywhere. With a mean that is not constant the hypothesis that
        region and background have equal means is false, and the rates show how often that is detected. For the
        contrast ``Reference`` each image is drawn with a reference of the same mean and the reference's noise, which
        replaces the reference image of the test.
    image_shape
        (H, W) or (C, H, W) of the images; by default that of the mean image, or of the model's input where there is no
        preprocessing.
    noise
        Noise to draw from; by default that of the test. Another one shows the effect of a wrong noise model.
    alphas
        Significance levels to report.
    confidence_level
        Level of the intervals of the rates.
    progress
        Called with (images done, number of images).
    """
    # Checked before hours of computation, not after.
    levels, confidence_level = significance_levels(alphas), confidence(confidence_level)
    results = null_results(test, n, rng, mean=mean, image_shape=image_shape, noise=noise, progress=progress)
    return Calibration.of(results, levels, confidence_level)


def null_results(
    test: AttentionTest,
    n: int = 1000,
    rng: np.random.Generator | int = 0,
    *,
    mean: ImageLike | None = None,
    image_shape: tuple[int, ...] | None = None,
    noise: NoiseLike | None = None,
    progress: Progress | None = None,
) -> Iterator[AttentionTestResult]:
    """Yield the results of the null images of :func:`calibrate`."""
    if not isinstance(test, AttentionTest):
        raise InputError(f"test must be an AttentionTest, got {type(test).__name__}.")
    if progress is not None and not callable(progress):
        raise InputError(f"progress must be a function of (done, total), got {progress!r}.")
    count = whole_number(n, "n (the number of null images)", 1, MOST_IMAGES)
    centre = _mean_image(test, mean, image_shape)
    drawn_from = _noise_to_draw(test.noise if noise is None else noise)
    try:
        check_noise(drawn_from, centre.shape)
    except InputError as error:
        drawn = "" if noise is None else "the noise that null images are drawn from: "
        raise InputError(f"{drawn}{error}") from None
    generator = as_generator(rng)
    reference = test.contrast.reference
    references = None
    if reference is not None:
        own = drawn_from if reference.noise is None else reference.noise
        references = _drawn(None if reference.exact else own, centre, count, _another(generator))
    results = test.with_confidence_level(None).stream(
        _drawn(drawn_from, centre, count, generator),
        None if progress is None else lambda done, _: progress(done, count),
        references=references,
    )
    return _with_true_hypotheses(results, test.contrast, centre.pixels)


def _another(generator: np.random.Generator) -> np.random.Generator:
    """Return a second generator, so that the images are the same with references and without."""
    try:
        return generator.spawn(1)[0]
    except TypeError:  # generators with an old bit generator cannot spawn
        return np.random.default_rng(generator.integers(2**63, size=4))


def _with_true_hypotheses(
    results: Iterator[AttentionTestResult], contrast: Contrast, mean: NDArray[np.float64]
) -> Iterator[AttentionTestResult]:
    """Yield results, and warn once if the hypothesis is false for one because the mean is not constant."""
    warned = not mean.any()
    for result in results:
        if not warned:
            seen = result.part, result.region, result.seen
            weights = contrast.weights(*seen) + contrast.reference_weights(*seen)
            terms = np.abs(weights * mean).sum()
            if np.abs((weights * mean).sum(axis=(-2, -1))).max() > ROUNDING * terms:
                warned = True
                warnings.warn(
                    "with this mean image the hypothesis is false, so rejections are not errors: the compared means "
                    "differ by themselves (for images with content use the contrast Reference()).",
                    AttentestWarning,
                    stacklevel=2,
                )
        yield result


def _drawn(noise: NoiseModel | None, centre: Sample, count: int, rng: np.random.Generator) -> Iterator[Sample]:
    """Yield images with a mean image, and with its black and white."""
    size = centre.pixels.size
    together = max(1, DRAWN_TOGETHER // size)
    for start in range(0, count, together):
        some = min(together, count - start)
        noises = np.zeros((some, size)) if noise is None else noise.sample(rng, some, size)
        for one in noises:
            yield Sample(pixels=centre.pixels + one.reshape(centre.shape), levels=centre.levels)


def _mean_image(test: AttentionTest, mean: ImageLike | None, image_shape: Any) -> Sample:
    if mean is not None:
        centre = as_sample(mean)
        if image_shape is not None and _as_shape(image_shape) != centre.shape:
            raise InputError(f"the mean image has (C, H, W) = {centre.shape}, but image_shape says {image_shape}.")
        return centre
    if image_shape is not None:
        return _zeros(_as_shape(image_shape))
    changes = test.preprocessing
    if changes is not None and (changes.resize is not None or changes.crop is not None):
        raise InputError(
            "the test's preprocessing takes images of any size: say with image_shape=(H, W) or (C, H, W) which to draw."
        )
    channels, height, width = test.image_shape
    one_channel = isinstance(test.noise, NoiseModel) and test.noise.size == height * width
    return _zeros((1 if one_channel else channels, height, width))


def _zeros(shape: tuple[int, ...]) -> Sample:
    return Sample(pixels=np.zeros(shape), levels=None)


def _as_shape(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, tuple) or len(shape) not in (2, 3):
        raise InputError(f"image_shape must be (H, W) or (C, H, W), got {shape!r}.")
    sides = tuple(whole_number(side, "a side in image_shape", 1, 2**20) for side in shape)
    return sides if len(sides) == 3 else (1, *sides)


def _noise_to_draw(noise: Any) -> NoiseModel:
    if isinstance(noise, ImageNoise):
        raise InputError(
            "the test makes its noise out of each image, so null images cannot be drawn from it: say with noise= what "
            "they are drawn from, such as noise=1.0."
        )
    return as_noise(noise)
