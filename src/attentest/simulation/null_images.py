"""Null images by number, and their tests, with noise known or estimated anew: work that any engine can do."""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Iterator, Sequence
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
from attentest.pipeline.many_images import Tested
from attentest.progress import Progress
from attentest.registry import NOISE_ESTIMATORS
from attentest.results.result import AttentionTestResult
from attentest.runs.engine import FailedImage, timed_batches
from attentest.runs.records import Row
from attentest.simulation.calibration.calibration import PLUG_IN
from attentest.simulation.images import (
    ESTIMATION,
    IMAGE,
    REFERENCE,
    drawn_image,
    mean_image,
    noise_to_draw,
    reference_noise_to_draw,
    seed_from,
)

MOST_IMAGES = 10**5
"""Upper limit on the number of reference images, against typing errors."""

MOST_BY_DEFAULT = 100
"""With more reference images than this the noise is not estimated anew unless that is asked for: it takes long, and the
error of an estimate from so many changes little."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ReestimatedNoise:
    """The noise of an image, estimated from reference images that are drawn from the true noise for it alone.

    Parameters
    ----------
    truth
        The true noise.
    estimator
        How it is estimated.
    images
        Number of reference images.
    seed
        Whole numbers from which, together with the pixels of the image, its reference images are drawn.
    """

    truth: NoiseModel
    estimator: NoiseEstimator
    images: int
    seed: tuple[int, ...]

    def for_image(self, pixels: FloatArray) -> NoiseModel:
        """Return the noise of an image (C, H, W), estimated from reference images of its own."""
        found = hashlib.blake2b(digest_size=16)
        add_values(found, pixels)
        rng = np.random.default_rng([*self.seed, int.from_bytes(found.digest())])
        drawn = self.truth.sample(rng, self.images, pixels.size).reshape(self.images, *pixels.shape)
        # An array of one channel is an image (H, W); of several they come last.
        channels_last = drawn[:, 0] if pixels.shape[0] == 1 else np.moveaxis(drawn, 1, -1)
        return as_noise(copy.copy(self.estimator).fit(list(channels_last)))

    def describe(self) -> dict[str, Any]:
        """Return what is estimated, how and from how many images."""
        name = type(self.estimator).__name__
        return {"model": "estimated anew", "estimator": name, "images": self.images, "of": dict(self.truth.describe())}


def reestimated(
    truth: NoiseModel, estimator: str | NoiseEstimator | None, images: int, seed: tuple[int, ...]
) -> ReestimatedNoise:
    """Return noise that is estimated anew for each image.

    Parameters
    ----------
    truth
        The true noise.
    estimator
        An estimator, or its name; by default that of the true noise, or the one for noise of its kind.
    images
        Number of reference images.
    seed
        Whole numbers from which these are drawn.
    """
    chosen = complete(truth).fresh_estimator() if estimator is None else estimator
    if isinstance(chosen, str):
        chosen = NOISE_ESTIMATORS.load(chosen)()
    if not isinstance(chosen, NoiseEstimator):
        raise InputError(
            f"estimator must be one of {', '.join(NOISE_ESTIMATORS)}, or an estimator from attentest.noise, got "
            f"{type(chosen).__name__}."
        )
    count = whole_number(images, "the number of reference images", chosen.LEAST_IMAGES, MOST_IMAGES)
    return ReestimatedNoise(truth=truth, estimator=chosen, images=count, seed=seed)


FALSE_HYPOTHESIS = "false_hypothesis"
"""What the row of an image has whose mean makes the hypothesis false."""

ROUNDING = 1e-12
"""A sum below this fraction of its terms is rounding error."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NullImages:
    """Images of a mean and noise alone. Each depends on the seed and its number, and on nothing else.

    A row has the number of the image, the seconds that it took, its p-value with the bounds on it and its logarithm,
    its naive p-value, the status of the search and its evaluations; or the reason why the image could not be tested
    under "error".

    Parameters
    ----------
    test
        The test.
    mean
        Mean of the images, and of their references.
    noise
        Noise model of the images.
    reference_noise
        Noise model of their references, if the contrast is with one; None for references without noise.
    seed
        Whole numbers from which everything is drawn.
    estimated
        How the test knows the noise of each image, if that is estimated anew: from reference images that are drawn for
        it. None if the test has a noise model of its own.
    """

    test: AttentionTest
    mean: Sample
    noise: NoiseModel
    reference_noise: NoiseModel | None
    seed: tuple[int, ...]
    estimated: ReestimatedNoise | None = None

    @classmethod
    def of(
        cls,
        test: AttentionTest,
        rng: np.random.Generator | int,
        *,
        mean: ImageLike | None,
        image_shape: tuple[int, ...] | None,
        noise: NoiseLike | None,
        reference_images: int | None = None,
        estimator: str | NoiseEstimator | None = None,
    ) -> NullImages:
        """Return the null images of :func:`calibrate`; refuse those that the test cannot take."""
        if not isinstance(test, AttentionTest):
            raise InputError(f"test must be an AttentionTest, got {type(test).__name__}.")
        centre = mean_image(test, mean, image_shape)
        drawn_from = noise_to_draw(test, noise, [centre.shape])
        seed = seed_from(rng)
        if reference_images is None:
            if estimator is not None:
                raise InputError("an estimator is for reference images: say how many with reference_images=.")
            known_from = drawn_from.images if noise is None and isinstance(drawn_from, Estimated) else None
            reference_images = known_from if known_from is not None and known_from <= MOST_BY_DEFAULT else None
        estimated = None
        if reference_images is not None:
            estimated = reestimated(drawn_from, estimator, reference_images, (*seed, ESTIMATION))
        images = cls(
            test=(test if estimated is None else test.with_noise(estimated)).with_confidence_level(None),
            mean=centre,
            noise=drawn_from,
            reference_noise=reference_noise_to_draw(test, drawn_from),
            seed=seed,
            estimated=estimated,
        )
        test.check(images.image(0), reference=images.reference(0) if images.has_references else None)
        return images

    def image(self, number: int) -> Sample:
        """Return an image."""
        return drawn_image(self.mean, self.noise, (*self.seed, number, IMAGE))

    @property
    def has_references(self) -> bool:
        """Whether images are compared with references."""
        return self.test.contrast.reference is not None

    def reference(self, number: int) -> Sample:
        """Return the reference of an image: its mean with noise of its own."""
        return drawn_image(self.mean, self.reference_noise, (*self.seed, number, REFERENCE))

    def describe(self) -> dict[str, Any]:
        """Return what the rows of one file have in common, apart from the seed and the test, JSON-ready."""
        mean = hashlib.sha256()
        add_values(mean, self.mean.pixels)
        return {
            "images": "null images",
            "shape": list(self.mean.shape),
            "mean_sha256": mean.hexdigest(),
            "black_and_white": self.mean.levels,
            "drawn_noise": described(self.noise),
            **({} if self.estimated is None else {"estimated": self.estimated.describe()}),
        }

    @property
    def device(self) -> torch.device:
        """The device of the test."""
        return self.test.device

    def run(self, tasks: Sequence[int], progress: Progress | None = None) -> Iterator[list[Row]]:
        """Yield the rows of images, given by their numbers, batch by batch."""
        batches = self.test.stream_batches(
            map(self.image, tasks),
            None if progress is None else lambda done, _: progress(done, len(tasks)),
            references=map(self.reference, tasks) if self.has_references else None,
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
        values = {
            "p": result.pvalue,
            "p_low": result.pvalue_bounds[0],
            "p_high": result.pvalue_bounds[1],
            "log_p": result.log_pvalue,
            "naive_p": result.naive_pvalue,
            **({} if self.estimated is None else {PLUG_IN: result.with_known_noise().pvalue}),
            "status": result.status,
            "evaluations": result.evaluations,
        }
        return values | ({FALSE_HYPOTHESIS: True} if self._false_hypothesis(result) else {})

    def _false_hypothesis(self, result: AttentionTestResult) -> bool:
        """Return whether the compared means differ by themselves, because the mean is not constant."""
        if not self.mean.pixels.any():
            return False
        contrast, seen = self.test.contrast, (result.part, result.region, result.seen)
        terms = (contrast.weights(*seen) + contrast.reference_weights(*seen)) * self.mean.pixels
        return bool(np.abs(terms.sum(axis=(-2, -1))).max() > ROUNDING * np.abs(terms).sum())
