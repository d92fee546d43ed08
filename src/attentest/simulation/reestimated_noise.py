"""Noise that is estimated anew for each drawn image, as a user estimates it: from a number of reference images."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np

from attentest.checks import whole_number
from attentest.errors import InputError
from attentest.images.sample import add_values
from attentest.noise import (
    AR1,
    Averaged,
    Dense,
    Diagonal,
    Estimated,
    FloatArray,
    Isotropic,
    LocallyStationary,
    NoiseEstimator,
    NoiseModel,
    PerChannel,
    Stationary,
    as_noise,
)
from attentest.registry import NOISE_ESTIMATORS

MOST_IMAGES = 10**5
"""Upper limit on the number of reference images, against typing errors."""

MOST_BY_DEFAULT = 100
"""With more reference images than this the noise is not estimated anew unless that is asked for: it takes long, and the
error of an estimate from so many changes little."""

KINDS: dict[type, str] = {
    Isotropic: "pooled",
    Diagonal: "pixel",
    AR1: "ar1",
    Stationary: "stationary",
    LocallyStationary: "locally-stationary",
    Dense: "shrunk",
}
"""Names of the estimators of noise models by the class of the model."""


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
        An estimator, or its name; by default the one for noise of this kind.
    images
        Number of reference images.
    seed
        Whole numbers from which these are drawn.
    """
    chosen = estimator_of(truth) if estimator is None else estimator
    if isinstance(chosen, str):
        chosen = NOISE_ESTIMATORS.load(chosen)()
    if not isinstance(chosen, NoiseEstimator):
        raise InputError(
            f"estimator must be one of {', '.join(NOISE_ESTIMATORS)}, or an estimator from attentest.noise, got "
            f"{type(chosen).__name__}."
        )
    count = whole_number(images, "the number of reference images", chosen.LEAST_IMAGES, MOST_IMAGES)
    return ReestimatedNoise(truth=truth, estimator=chosen, images=count, seed=seed)


def estimator_of(noise: NoiseModel) -> str | NoiseEstimator:
    """Return the estimator of a noise model: the one that it is the result of, or else the one for its kind."""
    if isinstance(noise, Estimated):
        for kind in map(NOISE_ESTIMATORS.load, NOISE_ESTIMATORS):
            if kind.__name__ == noise.origin.get("estimator"):
                own = {name: noise.origin[name] for name in signature(kind).parameters if name in noise.origin}
                same: NoiseEstimator = kind(**own)
                return same
    if isinstance(noise, (Estimated, Averaged)):
        return estimator_of(noise.model)
    model = type(noise.spatial if isinstance(noise, PerChannel) else noise)
    if model not in KINDS:
        raise InputError(
            f"no estimator is known for noise of the kind {model.__name__}: say which, one of "
            f"{', '.join(NOISE_ESTIMATORS)}."
        )
    return KINDS[model]
