"""What attentest asks of noise models, their base class, and checks and words that they share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from attentest.checks import real_number, whole_number
from attentest.errors import InputError, shortened
from attentest.markup import definition_table

if TYPE_CHECKING:
    pass


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


__all__ = [
    "ChecksImages",
    "FitsNoise",
    "FloatArray",
    "ImageNoise",
    "NoiseModel",
    "SaveableNoise",
    "check_noise",
    "facts_of",
]


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


MOST_DRAWN = 10**12
"""Largest number of draws or pixels: a larger one is a mistake."""

SMALLEST_SIGMA, LARGEST_SIGMA = 1e-150, 1e150
"""Limits between which a variance neither underflows nor overflows."""


def standard_deviation(sigma: float) -> float:
    """Return a standard deviation as a plain float."""
    number = real_number(sigma, "sigma (a standard deviation)")
    if not SMALLEST_SIGMA <= number <= LARGEST_SIGMA:
        raise InputError(
            f"sigma (a standard deviation) must be positive and finite, from {SMALLEST_SIGMA:g} to {LARGEST_SIGMA:g} "
            f"so that its square is too, got {number}."
        )
    return number


def sample_shape(count: int, asked: int | None, own: int | None) -> tuple[int, int]:
    """Return the shape of a sample: number of draws and number of pixels.

    Parameters
    ----------
    count
        Number of draws.
    asked
        Number of pixels that the caller asks for, or None.
    own
        Number of pixels that the noise model is for, or None for any.
    """
    if asked is None and own is None:
        raise InputError("this noise model applies to any image: say how many pixels to draw, sample(rng, k, n).")
    if asked is not None and own is not None and asked != own:
        raise InputError(f"this noise model is for {own} pixels, but {asked} were asked for.")
    length = whole_number(asked if own is None else own, "the number of pixels", 1, MOST_DRAWN)
    return whole_number(count, "the number of draws", 0, MOST_DRAWN), length


MOST_LISTED = 4
"""Most standard deviations that are listed; of more, the least and the greatest are given."""

MOST_LAGS = 4
"""Most lags whose correlations are listed."""


def deviations_text(variances: FloatArray) -> str:
    """Return the standard deviations of variances (n,) as text: each of a few, "0.8 to 1.2" of many."""
    if variances.size <= MOST_LISTED:
        return ", ".join(f"{deviation:.3g}" for deviation in np.sqrt(variances))
    ends = (f"{np.sqrt(variance):.3g}" for variance in (variances.min(), variances.max()))
    return " to ".join(dict.fromkeys(ends))  # one number if they are the same


def strongest_text(covariance: FloatArray) -> str:
    """Return the strongest correlation between two different values of a covariance (n, n) as text."""
    deviations = np.sqrt(np.diag(covariance))
    scale = np.outer(deviations, deviations)
    correlations = np.divide(covariance, scale, out=np.zeros_like(covariance), where=scale > 0)
    np.fill_diagonal(correlations, 0.0)
    return f"{correlations.flat[np.abs(correlations).argmax()]:z.2f}"


def lags_text(correlations: FloatArray) -> str:
    """Return correlations at the lags 1, 2, ... as text, the first of them."""
    listed = correlations[:MOST_LAGS]
    if not len(listed):
        return "0"
    values = ", ".join(f"{value:z.2f}" for value in listed)
    return f"{values} at {'lags' if len(listed) > 1 else 'lag'} {', '.join(map(str, range(1, len(listed) + 1)))}"


def falls_within(correlations: FloatArray) -> float:
    """Return where correlations at the lags 1, 2, ... have fallen to 1/e, interpolated; beyond the last they are 0."""
    falling = np.r_[1.0, correlations, 0.0]
    after = int(np.argmax(falling <= np.exp(-1)))
    before = falling[after - 1]
    return float(after - 1 + (before - np.exp(-1)) / (before - falling[after]))


def described(noise: NoiseModel | ImageNoise) -> dict[str, Any]:
    """Return the description of a noise model; where that leaves out its many numbers, with one that depends on all."""
    values = dict(noise.describe())
    if isinstance(noise, NoiseModel) and noise.size is not None:
        weights = np.random.default_rng(0).standard_normal((1, noise.size))
        values["checksum"] = float((weights * noise.apply(weights)).sum())
    return values


DRAWS = 256
"""Draws from which variances are estimated if a model does not know them: their relative standard error is 9%."""


def pixel_variances(noise: NoiseModel, n: int) -> FloatArray:
    """Return the variances (n,) of the values of an image, estimated from draws if the model does not know them."""
    if isinstance(noise, KnowsVariances):
        return noise.variances(n)
    rng = np.random.default_rng(0)  # the same for the same model
    return sum((noise.sample(rng, 1, n)[0] ** 2 for _ in range(DRAWS)), np.zeros(n)) / DRAWS
