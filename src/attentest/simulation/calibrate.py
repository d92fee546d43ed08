"""Calibration of a test on null images, drawn by number, with noise known or estimated anew, by any engine."""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from attentest.checks import whole_number
from attentest.errors import InputError
from attentest.images.sample import ImageLike, Sample, add_values
from attentest.noise import Estimated, FloatArray, NoiseEstimator, NoiseLike, NoiseModel, as_noise
from attentest.noise.model import complete, described
from attentest.pipeline.attention_test import AttentionTest
from attentest.pipeline.many_images import Tested, stream_batches
from attentest.pipeline.run import Request
from attentest.progress import Progress, ProgressLike, progress_reports
from attentest.registry import NOISE_ESTIMATORS
from attentest.results.result import AttentionTestResult
from attentest.runs.engine import Engine, FailedImage, as_engine, timed_batches
from attentest.runs.records import Row
from attentest.simulation.calibration import ALPHAS, FALSE_HYPOTHESIS, PLUG_IN, Calibration
from attentest.simulation.images import SimulatedImages

ESTIMATION = 2  # follows the seed of the reference images from which the noise of an image is estimated
MOST_REFERENCES = 10**5  # upper limit on the number of reference images, against typing errors

MOST_BY_DEFAULT = 100
"""With more reference images than this the noise is not estimated anew unless that is asked for: it takes long, and the
error of an estimate from so many changes little."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ReestimatedNoise:
    """The noise of an image, estimated from reference images that are drawn from the true noise for it alone."""

    truth: NoiseModel
    """The true noise."""
    estimator: NoiseEstimator
    """How it is estimated."""
    images: int
    """Number of reference images."""
    seed: tuple[int, ...]
    """Whole numbers from which, together with the pixels of the image, its reference images are drawn."""

    def for_image(self, pixels: FloatArray) -> NoiseModel:
        """Return the noise of an image (C, *axes), estimated from reference images of its own."""
        digest = hashlib.blake2b(digest_size=16)
        add_values(digest, pixels)
        rng = np.random.default_rng([*self.seed, int.from_bytes(digest.digest())])
        drawn = self.truth.sample(rng, self.images, pixels.size).reshape(self.images, *pixels.shape)
        return as_noise(copy.copy(self.estimator).fit([Sample(pixels=image, levels=None) for image in drawn]))

    def describe(self) -> dict[str, Any]:
        """Return what is estimated, how and from how many images."""
        name = type(self.estimator).__name__
        return {"model": "estimated anew", "estimator": name, "images": self.images, "of": dict(self.truth.describe())}


ROUNDING = 1e-12  # a sum below this fraction of its terms is rounding error


class NullImages:
    """Images of a mean and noise alone, and their tests. Each depends on the seed and its number, and on nothing else.

    A row has the number of the image, the seconds that it took, its p-value with the bounds on it and its logarithm,
    its naive p-value, the status of the search and its evaluations; or the reason why the image could not be tested
    under "error". Parameters are those of :func:`calibrate`.
    """

    def __init__(
        self,
        test: AttentionTest,
        rng: np.random.Generator | int,
        *,
        mean: ImageLike | None = None,
        image_shape: tuple[int, ...] | None = None,
        true_noise: NoiseLike | None = None,
        reference_images: int | None = None,
        estimator: str | NoiseEstimator | None = None,
    ) -> None:
        self.images = SimulatedImages(test, rng, means=[mean], image_shape=image_shape, true_noise=true_noise)
        """The images, all with the same background."""
        self.estimated: ReestimatedNoise | None = None
        """How the test knows the noise of each image, if that is estimated anew: from reference images that are drawn
        for it. None if the test has a noise model of its own."""
        truth = self.images.noise
        if reference_images is None:
            if estimator is not None:
                raise InputError(
                    "an estimator is for reference images: say how many with reference_images.", "reference_images"
                )
            known_from = truth.images if true_noise is None and isinstance(truth, Estimated) else None
            if known_from is not None and known_from <= MOST_BY_DEFAULT:
                reference_images = known_from
        if reference_images is not None:
            if estimator is None:
                estimator = complete(truth).fresh_estimator()
            elif isinstance(estimator, str):
                estimator = NOISE_ESTIMATORS.load(estimator)()
            if not isinstance(estimator, NoiseEstimator):
                raise InputError(
                    f"estimator must be one of {', '.join(NOISE_ESTIMATORS)}, or an estimator from attentest.noise, "
                    f"got {type(estimator).__name__}."
                )
            least = estimator.LEAST_IMAGES
            count = whole_number(reference_images, "the number of reference images", least, MOST_REFERENCES)
            seed = (*self.images.seed, ESTIMATION)
            self.estimated = ReestimatedNoise(truth=truth, estimator=estimator, images=count, seed=seed)
            test = test.replace(noise=self.estimated)
        self.test = test.replace(confidence_level=None)
        """The test of the images."""

    def describe(self) -> dict[str, Any]:
        """Return what the rows of one file have in common, apart from the seed and the test, JSON-ready."""
        (mean,) = self.images.backgrounds
        digest = hashlib.sha256()
        add_values(digest, mean.pixels)
        return {
            "images": "null images",
            "shape": list(mean.shape),
            "mean_sha256": digest.hexdigest(),
            "black_and_white": mean.levels,
            "drawn_noise": described(self.images.noise),
            **({} if self.estimated is None else {"estimated": self.estimated.describe()}),
        }

    def rows(
        self,
        numbers: Sequence[int],
        engine: Engine,
        progress: Progress | None = None,
        write: Callable[[list[Row]], object] | None = None,
    ) -> Iterator[Row]:
        """Yield the rows of images, given by their numbers, as they are finished, in whatever order that is.

        Before they are yielded, ``write`` is called with those that are finished together.
        """
        for _, rows in engine.run(self, numbers, progress):
            if write is not None:
                write(rows)
            yield from rows

    @property
    def device(self) -> torch.device:
        """The device of the test."""
        return self.test.device

    def run(self, tasks: Sequence[int], progress: Progress | None = None) -> Iterator[list[Row]]:
        """Yield the rows of images, given by their numbers, batch by batch."""
        batches = stream_batches(
            self.test.pipeline,
            map(self.images.image, tasks),
            Request(),
            None if progress is None else lambda done, _: progress(done, len(tasks)),
            references=self.images.references(tasks),
            names=tasks,
            on_error="row",
        )
        for numbers, batch, start in timed_batches(tasks, batches):
            seconds = (time.perf_counter() - start) / len(batch)
            yield [
                {"image": number, "seconds": round(seconds, 6), **self._values(tested)}
                for number, tested in zip(numbers, batch, strict=True)
            ]

    def lost(self, task: int, reason: str) -> Row:
        """Return the row of an image, given by its number, that could not be tested for a reason outside the test."""
        return {"image": task, "seconds": 0.0, "error": reason}

    def _values(self, tested: Tested) -> dict[str, Any]:
        if isinstance(tested, FailedImage):
            return {"error": tested.reason}
        (result,) = tested
        return {
            "p": result.pvalue,
            "p_low": result.pvalue_bounds[0],
            "p_high": result.pvalue_bounds[1],
            "log_p": result.log_pvalue,
            "naive_p": result.naive_pvalue,
            **({} if self.estimated is None else {PLUG_IN: result.with_known_noise().pvalue}),
            "status": result.status,
            "evaluations": result.evaluations,
            **({FALSE_HYPOTHESIS: True} if self._is_false(result) else {}),
        }

    def _is_false(self, result: AttentionTestResult) -> bool:
        """Return whether the compared means differ by themselves, because the mean is not constant."""
        if not self.images.mean(0).any():
            return False
        terms = self.images.contrast_terms(result, 0)
        return bool(abs(terms.sum()) > ROUNDING * np.abs(terms).sum())


MOST_NULL_IMAGES = 10**8  # upper limit on the number of null images, against typing errors


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
    numbers, where = range(image_count(n)), as_engine(engine)
    images = NullImages(
        test,
        rng,
        mean=mean,
        image_shape=image_shape,
        true_noise=true_noise,
        reference_images=reference_images,
        estimator=estimator,
    )
    with progress_reports(progress, len(numbers)) as report:
        return Calibration.of(images.rows(numbers, where, report), alphas, confidence_level, images.images.dimension)


def image_count(n: int) -> int:
    """Check a number of null images."""
    return whole_number(n, "n (the number of null images)", 1, MOST_NULL_IMAGES)
