"""What attentest asks of noise models and of estimators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError, shortened
from attentest.images.notebook_html import definition_table

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


class SaveableNoise:
    """Base class of the noise models that a noise file can hold: those in ``NOISE_MODELS`` of attentest.registry.

    Attributes
    ----------
    saved
        Constructor arguments that a file holds, with their types: ``NoiseModel`` for another noise model,
        ``np.ndarray`` for an array, anything else for JSON values.
    """

    saved: ClassVar[Mapping[str, type]]

    def saved_arguments(self) -> dict[str, Any]:
        """Return the constructor arguments with which the same model can be made again."""
        return {name: getattr(self, name) for name in self.saved}

    def facts(self) -> dict[str, str]:
        """Return what there is to know about the model, in words by name."""
        return {name: shortened(value) for name, value in self.saved_arguments().items()}

    def _repr_html_(self) -> str:
        return definition_table(type(self).__name__, self.facts())


def facts_of(noise: NoiseModel) -> dict[str, str]:
    """Return what there is to know about a noise model, in words by name; one of the user's own describes itself."""
    if isinstance(noise, SaveableNoise):
        return noise.facts()
    return {name: shortened(value) for name, value in noise.describe().items()}


@runtime_checkable
class ChecksImages(Protocol):
    """A noise model that checks the shape of the images, not only their number of pixels."""

    def check_image(self, shape: tuple[int, int, int]) -> None:
        """Refuse images (C, H, W) that the model does not apply to."""


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
