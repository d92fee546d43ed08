"""Noise of counts: each pixel is a Poisson count, whose mean may be another one in every pixel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError
from attentest.noise.model import BaseNoise, FloatArray

LARGEST_COUNT = 2.0**53  # beyond it float64 does not hold every whole number


@dataclass(frozen=True)
class Poisson(BaseNoise):
    """Pixels that count photons, decays or particles, as the noise of an AttentionTest: ``noise="poisson"``.

    Before the model sees an image, each count is divided at random: a share 1 / (1 + gamma^2) of it, on average, is
    what the model chooses the region on, and the rest is what is tested (gamma is the test's ``randomise``, by default
    1, a half). Parts of a Poisson count are independent of each other. So the test is exact, with no noise model and
    no search: of the counts put aside, the number in the region is binomial if the mean rates are equal, whatever the
    rates of single pixels are. The image must be the counts themselves, neither scaled nor corrected.

    Parameters
    ----------
    rate
        Mean count of an image: one with far smaller differences between neighbours can hardly be counts, and is said
        not to have the noise. 0 where it is not known.
    """

    name: ClassVar = "poisson"
    parameters: ClassVar[Mapping[str, type]] = {}

    rate: float = field(default=0.0, repr=False)

    def for_image(self, pixels: FloatArray) -> Poisson:
        """Return the noise of an image (C, *axes); raise an error if its pixels are no counts."""
        counts = np.asarray(pixels, dtype=np.float64)
        wrong = ~(np.isfinite(counts) & (counts >= 0) & (counts <= LARGEST_COUNT) & (counts == np.floor(counts)))
        if wrong.any():
            raise InputError(
                f"noise='poisson' is for images of counts, whole numbers from 0 to 2^53, but a pixel is "
                f"{counts[wrong][0]:.6g}: give the counts before they are scaled or corrected, or another noise.",
                "noise",
            )
        return Poisson(rate=float(counts.mean()))

    def thinned(self, rng: np.random.Generator, counts: FloatArray, gamma: float) -> FloatArray:
        """Return what the model sees of counts, in their own scale: a random part of each, divided by its share."""
        return np.asarray(rng.binomial(counts.astype(np.int64), seen_share(gamma)) / seen_share(gamma))

    def apply(self, v: FloatArray) -> NoReturn:
        """Raise an error: there is no covariance."""
        raise InputError(
            "noise='poisson' has no covariance: counts can be tested, but certificates, margins, permutation tests, "
            "sensitivity, calibration and power need Gaussian noise.",
            "noise",
        )

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> NoReturn:
        """Raise an error: the noise depends on the rates."""
        self.apply(np.empty(0))

    def covariances(self, places: NDArray[np.int64], n: int) -> FloatArray:
        """Return the variances of pixels of the mean rate."""
        return self.rate * np.eye(len(places))

    def words(self) -> str:
        """Return the noise in words."""
        return "Poisson counts, of any mean in each pixel"

    def origin_words(self) -> str:
        """Return what the test makes of it."""
        return "the test of counts that the model did not see is exact, without a noise model"


def seen_share(gamma: float) -> float:
    """Return the share of each count that the model sees: the one whose noise is sqrt(1 + gamma^2) times as large."""
    return 1 / (1 + gamma**2)
