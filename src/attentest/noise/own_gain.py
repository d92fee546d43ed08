"""Noise of each tested image by its own gain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from attentest.checks import float_array
from attentest.errors import InputError
from attentest.images.notebook_html import definition_table
from attentest.noise.conversion import as_noise
from attentest.noise.estimated import Estimated
from attentest.noise.estimators import NoiseEstimator
from attentest.noise.image_gains import gain_against
from attentest.noise.model import FloatArray, NoiseModel
from attentest.noise.scaled import Scaled


@dataclass(frozen=True, eq=False)
class OwnGain:
    """Noise of each tested image: that of a fitted estimator, scaled by the gain of the image.

    The gain is that of the tested image against the mean of the reference images. This is approximate: p-values take
    the noise to be known, and here its scale depends on the image.

    Parameters
    ----------
    estimator
        A fitted estimator; one with ``gain="per-image"`` has estimated the noise of an image of gain 1.
    """

    estimator: NoiseEstimator

    def __post_init__(self) -> None:
        if not isinstance(self.estimator, NoiseEstimator):
            raise InputError(
                "the gain of a tested image is that against the mean of reference images: give a fitted estimator of "
                f"attentest.noise, got {type(self.estimator).__name__}."
            )
        as_noise(self.estimator)  # raises an error if it is not fitted

    def for_image(self, pixels: FloatArray) -> NoiseModel:
        """Return the noise model of an image (C, H, W)."""
        values, mean = float_array(pixels, "the image"), self.estimator.mean_
        if values.shape != mean.shape:
            raise InputError(
                f"the reference images are (C, H, W) = {mean.shape}, but the image is {values.shape}: give reference "
                "images of that shape."
            )
        gain = gain_against(values, mean)
        if not 0 < gain < np.inf:
            raise InputError(
                f"the image has a gain of {gain:.3g} against the mean of the reference images, but it must be "
                "positive: is it another scene?"
            )
        return Estimated(Scaled(self.estimator.noise_, gain), self._origin())

    def describe(self) -> dict[str, Any]:
        """Return the method."""
        return {"model": "own gain", **self._origin(), "of": dict(self.estimator.noise_.describe())}

    def _repr_html_(self) -> str:
        return definition_table(repr(self), {"noise": "scaled by the gain of each tested image: approximate"})

    def _origin(self) -> dict[str, Any]:
        fitted = as_noise(self.estimator)
        return {
            **(fitted.origin if isinstance(fitted, Estimated) else {}),
            "method": "its gain against the mean of the reference images",
            "approximate": True,
            "origin": "scaled by the gain of the tested image itself",
        }
