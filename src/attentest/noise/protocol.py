"""What attentest asks of noise models and of estimators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError

FloatArray: TypeAlias = NDArray[np.float64]


@runtime_checkable
class NoiseModel(Protocol):
    """A covariance Sigma of the pixels; a class of your own with these methods is a noise model, too."""

    @property
    def size(self) -> int | None:
        """Length of the vectors it applies to, or None for any length."""

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``Sigma v`` along the last axis of an array of shape (..., n)."""

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` noise vectors; shape (k, n). ``n`` is needed where ``size`` is None."""

    def describe(self) -> Mapping[str, Any]:
        """Return the model's name and parameters as JSON-ready values."""


@runtime_checkable
class ChecksImages(Protocol):
    """A noise model that checks the shape of the images, not only their number of pixels."""

    def check_image(self, shape: tuple[int, int, int]) -> None:
        """Refuse images (C, H, W) that the model does not apply to."""


@runtime_checkable
class KnowsVariances(Protocol):
    """A noise model that knows the variance of each pixel."""

    def variances(self, n: int) -> FloatArray:
        """Return the diagonal (n,) of Sigma for vectors of length ``n``."""


@runtime_checkable
class ImageNoise(Protocol):
    """An estimator of the noise of each tested image from its own pixels."""

    def for_image(self, pixels: FloatArray) -> NoiseModel:
        """Return the noise model of an image (C, H, W)."""

    def describe(self) -> Mapping[str, Any]:
        """Return the method as JSON-ready values."""


@runtime_checkable
class FitsNoise(Protocol):
    """An estimator from reference images; once fitted, its attribute ``noise_`` is the noise model."""

    def fit(self, images: Any) -> Any:
        """Estimate the noise from independent reference images and return the estimator."""


def check_noise(noise: NoiseModel | ImageNoise, shape: tuple[int, int, int]) -> None:
    """Refuse a noise model that does not apply to images (C, H, W)."""
    pixels = int(np.prod(shape))
    if isinstance(noise, NoiseModel) and noise.size not in (None, pixels):
        raise InputError(f"the noise model is for {noise.size} pixels, but the image has {pixels}.")
    if isinstance(noise, ChecksImages):
        noise.check_image(shape)
