"""Calibration of a test on null images, which hold noise alone."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from attentest.api import AttentionTest
from attentest.checks import as_generator, confidence, whole_number
from attentest.contrast import Contrast
from attentest.errors import AttentestWarning, InputError
from attentest.images.sample import ImageLike
from attentest.noise import NoiseLike
from attentest.pipeline.stream import Progress
from attentest.results.calibration import ALPHAS, Calibration, significance_levels
from attentest.results.result import AttentionTestResult
from attentest.simulation.drawn_images import drawn_images, mean_image, noise_to_draw, reference_noise_to_draw

MOST_IMAGES = 10**8
"""Upper limit on the number of null images, against typing errors."""

ROUNDING = 1e-12
"""A sum below this fraction of its terms is rounding error."""


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
    centre = mean_image(test, mean, image_shape)
    drawn_from = noise_to_draw(test, noise, [centre.shape])
    generator = as_generator(rng)
    references = None
    if test.contrast.reference is not None:
        references = drawn_images(reference_noise_to_draw(test, drawn_from), centre, count, _another(generator))
    results = test.with_confidence_level(None).stream(
        drawn_images(drawn_from, centre, count, generator),
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
