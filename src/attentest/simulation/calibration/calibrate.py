"""Calibration of a test on null images, which hold noise alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attentest.checks import confidence, whole_number
from attentest.images.sample import ImageLike
from attentest.noise import NoiseEstimator, NoiseLike
from attentest.pipeline.attention_test import AttentionTest
from attentest.progress import ProgressLike, progress_reports
from attentest.runs.engine import Engine, as_engine
from attentest.simulation.calibration.calibration import ALPHAS, Calibration, significance_levels
from attentest.simulation.calibration.null_images import NullImages

MOST_IMAGES = 10**8
"""Upper limit on the number of null images, against typing errors."""


def calibrate(
    test: AttentionTest,
    n: int = 1000,
    rng: np.random.Generator | int = 0,
    *,
    mean: ImageLike | None = None,
    image_shape: tuple[int, ...] | None = None,
    true_noise: NoiseLike | None = None,
    reference_images: int | None = None,
    estimator: str | NoiseEstimator | None = None,
    alphas: Sequence[float] = ALPHAS,
    confidence_level: float = 0.95,
    engine: str | Engine = "local",
    progress: ProgressLike = None,
) -> Calibration:
    """Run a test on null images and compare its type I error with the nominal levels.

    Each image is drawn from a generator of its own, by the seed and its number: the first images of a larger ``n`` are
    the same, and so are those of another engine.

    Parameters
    ----------
    test
        The test, with its own model, noise model and settings.
    n
        Number of null images.
    rng
        A seed; or a generator, from which a seed is drawn.
    mean
        Mean of the null images; by default zero everywhere. With a mean that is not constant the hypothesis that
        region and background have equal means is false, and the rates show how often that is detected. For the
        contrast ``Reference`` each image is drawn with a reference of the same mean and the reference's noise, which
        replaces the reference image of the test.
    image_shape
        (H, W) or (C, H, W) of the images; by default that of the mean image, or of the model's input where there is no
        preprocessing.
    true_noise
        Noise to draw from; by default that of the test. Another one shows the effect of a wrong noise model.
    reference_images
        Estimate the noise anew for each null image, from so many reference images drawn for it, and test with the
        estimate: this shows what estimating costs. By default as many as the noise of the test was estimated from, if
        that is an estimate from at most 100 images; none if the noise is known.
    estimator
        How it is estimated: an estimator from ``attentest.noise``, or its name; by default that of the test's noise, or
        the one for noise of that kind.
    alphas
        Significance levels to report.
    confidence_level
        Level of the intervals of the rates.
    engine
        Where the images are tested: "local", in this process; "processes", by workers on this machine; "ray", by
        workers on one machine or on many; or a configured engine, such as ``attentest.ProcessEngine(workers=4)``.
    progress
        True for a progress bar; or a function, which is called with (images done, number of images).
    """
    # Checked before hours of computation, not after.
    levels, confidence_level = significance_levels(alphas), confidence(confidence_level)
    numbers, chosen = range(image_count(n)), as_engine(engine)
    images = NullImages.of(
        test,
        rng,
        mean=mean,
        image_shape=image_shape,
        true_noise=true_noise,
        reference_images=reference_images,
        estimator=estimator,
    )
    with progress_reports(progress, len(numbers)) as report:
        return Calibration.of(images.rows(numbers, chosen, report), levels, confidence_level)


def image_count(n: int) -> int:
    """Check a number of null images."""
    return whole_number(n, "n (the number of null images)", 1, MOST_IMAGES)
