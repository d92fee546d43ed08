"""Noise models made from others, and a noise model from whatever a user gives: a number, a model, an estimator."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from typing import Any, ClassVar, Self, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.checks import float_array, positive_number, whole_number
from attentest.errors import NOISE_GUIDE, InputError, counted
from attentest.noise.correlated import Dense, Isotropic
from attentest.noise.model import (
    LARGEST_SIGMA,
    SMALLEST_SIGMA,
    BaseNoise,
    FitsNoise,
    FloatArray,
    ImageNoise,
    NoiseModel,
    complete,
    deviations_text,
    sample_shape,
    standard_deviation,
)
from attentest.registry import NOISE_ESTIMATORS

LEAST_DEGREES = 2.0
"""Fewest degrees of freedom: with fewer, p-values would not be monotone in the mean of the statistic, because its
density would be greatest at the ends of its support. Estimates so poor are rare, and their number is rough itself."""

FROM_IMAGE = "estimated from the tested image itself"
"""What a record says of noise that was not estimated from other images."""

LONGEST_ORIGIN = 48  # most characters of the record that the representation of a model has
VALUES_TOGETHER = 2**18  # values of contrasts of channels whose degrees of freedom are computed at a time
MOST_AVERAGED = 10**9  # largest number of images: a larger one is a mistake


Method = TypeVar("Method", bound=Callable[..., Any])


def _of_other(method: Method) -> Method:
    """Return a method of noise that is made from another model: what it returns is that of the other model."""

    @wraps(method)
    def forwarded(self: DerivedNoise | PerChannel, *arguments: Any) -> Any:
        return getattr(self.of, method.__name__)(*arguments)

    return cast(Method, forwarded)


@dataclass(frozen=True, eq=False)
class DerivedNoise(BaseNoise):
    """Noise that is a multiple of another one, for the same images: all that it says follows from the other one."""

    model: NoiseModel
    """The other noise model."""

    def __post_init__(self) -> None:
        if not isinstance(self.model, NoiseModel) or isinstance(self.model, type):
            raise InputError(
                f"the model of {type(self).__name__} must be a noise model, got {type(self.model).__name__}."
            )

    @property
    def of(self) -> BaseNoise:
        """The other noise model, with all methods."""
        return complete(self.model)

    @property
    def variance_factor(self) -> float:
        """The factor on the covariance of the other model."""
        return 1.0

    @property
    def size(self) -> int | None:
        """Length of the vectors it applies to, or None for any length."""
        return self.model.size

    def _times(self, factor: float, values: FloatArray) -> FloatArray:
        return values if factor == 1 else factor * values

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``Sigma v`` along the last axis."""
        return self._times(self.variance_factor, self.model.apply(v))

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` vectors."""
        return self._times(float(np.sqrt(self.variance_factor)), self.model.sample(rng, k, n))

    def variances(self, n: int) -> FloatArray:
        """Return the variance (n,) of each pixel."""
        return self._times(self.variance_factor, self.of.variances(n))

    def covariances(self, places: NDArray[np.int64], n: int) -> FloatArray:
        """Return the covariances (m, m) of a few pixels."""
        return self._times(self.variance_factor, self.of.covariances(places, n))

    check_image = _of_other(BaseNoise.check_image)
    degrees_of_freedom = _of_other(BaseNoise.degrees_of_freedom)
    degrees_per_image = _of_other(BaseNoise.degrees_per_image)
    correlation_length = _of_other(BaseNoise.correlation_length)
    fresh_estimator = _of_other(BaseNoise.fresh_estimator)
    origin_words = _of_other(BaseNoise.origin_words)

    def _stretched(self, length: float, shape: tuple[int, ...]) -> Self:
        return replace(self, model=self.of.with_correlation_length(length, shape))

    def record(self) -> dict[str, Any]:
        """Return name and parameters, and those of the other model."""
        parameters = {name: value for name, value in self.arguments().items() if name != "model"}
        return {"model": self.name, **parameters, "of": self.of.record()}


@dataclass(frozen=True, eq=False)
class Estimated(DerivedNoise):
    """A noise model together with a record of how it was estimated, which is part of its description.

    Parameters
    ----------
    model
        The noise model.
    origin
        The record, by name, as JSON-ready values.
    """

    name: ClassVar = "estimated"
    parameters: ClassVar = {"model": NoiseModel, "origin": dict}

    origin: Mapping[str, Any]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.origin, Mapping) or not all(isinstance(key, str) for key in self.origin):
            raise InputError(f"the origin of a noise model must be a mapping with names as keys, got {self.origin!r}.")
        try:
            # A copy, with the types that it has after being saved and loaded.
            copied = json.loads(json.dumps(dict(self.origin), allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"the origin of a noise model must be JSON-ready values ({error}).") from None
        object.__setattr__(self, "origin", copied)

    @property
    def images(self) -> int | None:
        """Number K of independent reference images, if the record says so."""
        return reference_count(self.origin)

    def degrees_of_freedom(self, eta: FloatArray) -> FloatArray:
        """Return the degrees of freedom (k,) of the variances of contrasts (k, n), by the number of reference images.

        A noise model that was estimated from the tested image itself is not independent of it, so degrees of freedom
        would not tell how far to trust it: they are those of a known model, and its description says that it is
        approximate.
        """
        if self.images is None:
            return super().degrees_of_freedom(eta)
        # Pixels that never varied told nothing.
        share = float(self.origin.get("used_share", 1.0))
        return np.maximum((self.images - 1) * share * self.degrees_per_image(eta, self.origin), LEAST_DEGREES)

    def fresh_estimator(self) -> Any:
        """Return an estimator like the one that the model was estimated by, not fitted."""
        for kind in map(NOISE_ESTIMATORS.load, NOISE_ESTIMATORS):
            if kind.__name__ == self.origin.get("estimator"):
                return kind(**{name: self.origin[name] for name in signature(kind).parameters if name in self.origin})
        return super().fresh_estimator()

    def record(self) -> dict[str, Any]:
        """Return name and parameters of the model, and how it was estimated."""
        return {**self.origin, **self.of.record()}

    def words(self) -> str:
        """Return the model in words."""
        return self.of.words()

    def origin_words(self) -> str:
        """Return how the model was estimated, and whether p allows for that."""
        return estimation_words(self.origin) or super().origin_words()

    def __repr__(self) -> str:
        origin = ", ".join(f"{name}={value!r}" for name, value in self.origin.items())
        if len(origin) > LONGEST_ORIGIN:
            origin = f"{origin[:LONGEST_ORIGIN]}..."
        return f"Estimated({self.model!r}, {origin})"


def reference_count(origin: Mapping[str, Any]) -> int | None:
    """Return the number K of reference images in a record of an estimation: with it, tests allow for the estimate."""
    count = origin.get("images")
    return count if type(count) is int and count > 1 else None


def estimation_words(origin: Mapping[str, Any]) -> str:
    """Return in words how noise was estimated and whether p allows for that; empty if the record does not say."""
    words = []
    if "estimator" in origin or reference_count(origin) is not None:
        count = reference_count(origin)
        images = "reference images" if count is None else f"{count} reference images"
        choice = f" chose {origin['choice']}" if "choice" in origin else ""
        by = f" ({origin['estimator']}{choice})" if "estimator" in origin else ""
        allowed = "the test does not know that it is an estimate" if count is None else "p and interval allow for that"
        words.append(f"estimated from {images}{by}, and {allowed}")
    if origin.get("approximate"):
        method = f" ({origin['method']})" if origin.get("method") else ""
        words.append(f"{origin.get('origin', FROM_IMAGE)}{method}, so that p is approximate")
    return "; ".join(words)


@dataclass(frozen=True, eq=False)
class Averaged(DerivedNoise):
    """Noise of the mean of independent images, Sigma / count: for a reference image that is such a mean.

    Parameters
    ----------
    model
        Noise of one of the images.
    count
        Number of images.
    """

    name: ClassVar = "averaged"
    parameters: ClassVar = {"model": NoiseModel, "count": int}

    count: int

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "count", whole_number(self.count, "count", 1, MOST_AVERAGED))

    @property
    def variance_factor(self) -> float:
        """One over the number of images."""
        return 1 / self.count

    def words(self) -> str:
        """Return the model in words."""
        return f"That of the mean of {self.count} images, each with this noise: {_lower(self.of.words())}"


@dataclass(frozen=True, eq=False)
class Scaled(DerivedNoise):
    """Noise that is a multiple of another one, with the covariance factor^2 Sigma: for an image with another gain.

    Parameters
    ----------
    model
        The other noise model.
    factor
        Factor on its standard deviations.
    """

    name: ClassVar = "scaled"
    parameters: ClassVar = {"model": NoiseModel, "factor": float}

    factor: float

    def __post_init__(self) -> None:
        super().__post_init__()
        factor = positive_number(self.factor, "factor")
        if not SMALLEST_SIGMA <= factor <= LARGEST_SIGMA:
            raise InputError(
                f"factor must be from {SMALLEST_SIGMA:g} to {LARGEST_SIGMA:g}, so that its square neither underflows "
                f"nor overflows, got {factor:g}."
            )
        object.__setattr__(self, "factor", factor)

    @property
    def variance_factor(self) -> float:
        """The square of the factor."""
        return self.factor**2

    def words(self) -> str:
        """Return the model in words."""
        return f"{self.factor:.6g} times as large as this noise: {_lower(self.of.words())}"


NoiseLike: TypeAlias = "NoiseModel | FitsNoise | float"


def as_noise(noise: NoiseLike) -> NoiseModel:
    """Return a noise model as it is, that of a fitted estimator, or independent noise of a standard deviation."""
    if isinstance(noise, (int, float, np.integer, np.floating)) and not isinstance(noise, bool):
        return Isotropic(noise)
    if isinstance(noise, NoiseModel) and not isinstance(noise, type):
        return noise
    if isinstance(noise, FitsNoise) and not isinstance(noise, type):
        return _fitted(noise)
    if isinstance(noise, ImageNoise) and not isinstance(noise, type):
        raise InputError(
            f"one noise model for all images is needed here, but {type(noise).__name__} makes one per image: "
            "call its for_image(pixels) with the image's (C, *axes) pixels."
        )
    raise InputError(
        f"noise must be a standard deviation, or a model or a fitted estimator from attentest.noise, "
        f"got {type(noise).__name__}: see {NOISE_GUIDE}."
    )


def _fitted(estimator: FitsNoise) -> NoiseModel:
    name = type(estimator).__name__
    model = getattr(estimator, "noise_", None)
    if model is None:
        raise InputError(f"this {name} is not fitted yet: call its fit(images) with reference images first.")
    if not isinstance(model, NoiseModel):
        raise InputError(f"the noise_ of a fitted {name} must be a noise model, got {type(model).__name__}.")
    if isinstance(model, Estimated):
        return model
    record = getattr(estimator, "record", None)
    images = getattr(estimator, "n_images_", None)
    return Estimated(model, record() if callable(record) else {"estimator": name, "images": images})


class PerChannel(BaseNoise):
    """Noise of several channels, colours or leads: the same correlation within each, and a covariance across them.

    The covariance of pixel i in channel c and pixel j in channel d is channels_cd times the spatial model's
    covariance of i and j.

    Parameters
    ----------
    channels : array of shape (C, C) or (C,)
        Covariance across channels, or their standard deviations where channels are independent.
    spatial
        Noise model of one channel's pixels; by default independent with standard deviation 1.
    """

    name: ClassVar = "per channel"
    parameters: ClassVar = {"channels": np.ndarray, "spatial": NoiseModel}

    def __init__(self, channels: ArrayLike, spatial: NoiseLike = 1.0) -> None:
        values = float_array(channels, "channels")
        if values.ndim == 1:
            values = np.diag([standard_deviation(sigma) ** 2 for sigma in values.tolist()])
        self._mixing = Dense(values)
        self.spatial = as_noise(spatial)
        self.of = complete(self.spatial)

    def check_image(self, shape: tuple[int, ...]) -> None:
        """Raise an error for images (C, *axes) of another number of channels."""
        if shape[0] != self._mixing.size:
            raise InputError(
                f"the noise model is for images of {counted(self._mixing.size, 'channel')}, but the image has "
                f"{shape[0]}."
            )
        self.of.check_image((1, *shape[1:]))

    def __repr__(self) -> str:
        return f"PerChannel(<sd {deviations_text(np.diag(self.channels))}>, {self.spatial!r})"

    @property
    def channels(self) -> FloatArray:
        """Covariance (C, C) across channels."""
        return self._mixing.covariance

    @property
    def size(self) -> int | None:
        """Number of values of all channels, or None where the spatial model applies to any image."""
        return None if self.spatial.size is None else self._mixing.size * self.spatial.size

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``Sigma v`` along the last axis."""
        planes = self._planes(v.shape[-1])
        filtered = self.spatial.apply(v.reshape(*v.shape[:-1], *planes))
        return np.asarray(np.einsum("cd,...dn->...cn", self.channels, filtered).reshape(v.shape))

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` vectors."""
        draws, length = sample_shape(k, n, self.size)
        channels, pixels = self._planes(length)
        planes = self.spatial.sample(rng, draws * channels, pixels).reshape(draws, channels, pixels)
        return np.asarray(np.einsum("cd,kdn->kcn", self._mixing.factor, planes).reshape(draws, length))

    def variances(self, n: int) -> FloatArray:
        """Return the variance (n,) of each value."""
        _, pixels = self._planes(n)
        return np.outer(np.diag(self.channels), self.of.variances(pixels)).ravel()

    def covariances(self, places: NDArray[np.int64], n: int) -> FloatArray:
        """Return the covariances (m, m) of a few values."""
        _, pixels = self._planes(n)
        channel, pixel = np.divmod(places, pixels)
        # A pixel of the plane may be asked for in several channels, but is one of the spatial model.
        planar, which = np.unique(pixel, return_inverse=True)
        spatial = self.of.covariances(planar, pixels)
        return np.asarray(self.channels[np.ix_(channel, channel)] * spatial[np.ix_(which, which)])

    def degrees_per_image(self, eta: FloatArray, origin: Mapping[str, Any]) -> FloatArray:
        """Return those of the worst channel that has weight.

        This is as if the covariance of the channels were known: it is pooled over the pixels as the correlation in
        space is.
        """
        planes = eta.reshape(len(eta), len(self.channels), -1)
        degrees = np.full(len(eta), np.inf)
        contrast, channel = np.nonzero(planes.any(axis=2))
        together = max(1, VALUES_TOGETHER // planes.shape[2])  # several leads at a time, because they share the draws
        for start in range(0, len(contrast), together):
            part = slice(start, start + together)
            of_channel = self.of.degrees_per_image(planes[contrast[part], channel[part]], origin)
            np.minimum.at(degrees, contrast[part], of_channel)
        return degrees

    correlation_length = _of_other(BaseNoise.correlation_length)
    fresh_estimator = _of_other(BaseNoise.fresh_estimator)

    def _stretched(self, length: float, shape: tuple[int, ...]) -> PerChannel:
        return PerChannel(self.channels, self.of.with_correlation_length(length, (1, *shape[1:])))

    def record(self) -> dict[str, Any]:
        """Return name and parameters."""
        return {"model": self.name, "channels": self.channels.tolist(), "spatial": self.of.record()}

    def words(self) -> str:
        """Return the model in words."""
        within = _lower(self.of.words())
        rounded = [[float(f"{value:.4g}") for value in row] for row in self.channels.tolist()]
        return f"Channels with the covariance {json.dumps(rounded)}, and within each channel: {within}"

    def _planes(self, length: int) -> tuple[int, int]:
        channels = self._mixing.size
        if length % channels:
            raise InputError(f"this noise model is for images of {channels} channels, but {length} values were given.")
        return channels, length // channels


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
