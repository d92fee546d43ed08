"""Noise models made from others, and a noise model from whatever a user gives: a number, a model, an estimator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from attentest.checks import float_array, positive_number, whole_number
from attentest.errors import NOISE_GUIDE, InputError, counted
from attentest.noise.correlation import correlation_length, with_correlation_length
from attentest.noise.dense import Dense
from attentest.noise.independent import Isotropic
from attentest.noise.model import (
    LARGEST_SIGMA,
    SMALLEST_SIGMA,
    ChecksImages,
    FitsNoise,
    FloatArray,
    ImageNoise,
    NoiseModel,
    SaveableNoise,
    deviations_text,
    facts_of,
    pixel_variances,
    sample_shape,
    standard_deviation,
    strongest_text,
)


@dataclass(frozen=True, eq=False)
class DerivedNoise(SaveableNoise):
    """A noise model derived from another one, for the same images.

    Parameters
    ----------
    model
        The other noise model.
    """

    model: NoiseModel

    def __post_init__(self) -> None:
        if not isinstance(self.model, NoiseModel) or isinstance(self.model, type):
            raise InputError(
                f"the model of {type(self).__name__} must be a noise model, got {type(self.model).__name__}."
            )

    @property
    def size(self) -> int | None:
        """Length of the vectors it applies to, or None for any length."""
        return self.model.size

    def check_image(self, shape: tuple[int, int, int]) -> None:
        """Refuse images (C, H, W) that the model does not apply to."""
        if isinstance(self.model, ChecksImages):
            self.model.check_image(shape)

    def correlation_length(self) -> float:
        """Return the correlation length of the other model in pixels."""
        return correlation_length(self.model)

    def with_correlation_length(self, length: float, shape: tuple[int, int, int]) -> Self:
        """Return the same, derived from the other model with another correlation length."""
        return replace(self, model=with_correlation_length(self.model, length, shape))

    def variances(self, n: int) -> FloatArray:
        """Return the variance (n,) of each pixel; that of the other model, unless it is overridden."""
        return pixel_variances(self.model, n)


LONGEST_ORIGIN = 60
"""Most characters of the record that the representation of a model has."""


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

    saved: ClassVar = {"model": NoiseModel, "origin": dict}

    origin: Mapping[str, Any]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.origin, Mapping) or not all(isinstance(key, str) for key in self.origin):
            raise InputError(f"the origin of a noise model must be a mapping with names as keys, got {self.origin!r}.")
        try:
            # A copy, with the types that it has after being saved and loaded.
            own = json.loads(json.dumps(dict(self.origin), allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"the origin of a noise model must be JSON-ready values ({error}).") from None
        object.__setattr__(self, "origin", own)

    @property
    def images(self) -> int | None:
        """Number K of independent reference images, if the record says so."""
        count = self.origin.get("images")
        return count if type(count) is int and count > 1 else None

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``Sigma v`` along the last axis."""
        return self.model.apply(v)

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` vectors."""
        return self.model.sample(rng, k, n)

    def describe(self) -> dict[str, Any]:
        """Return name and parameters of the model, and the record."""
        return {**self.origin, **self.model.describe()}

    def facts(self) -> dict[str, str]:
        """Return the record, and what there is to know about the model, in words."""
        return {**{name: str(value) for name, value in self.origin.items()}, **facts_of(self.model)}

    def __repr__(self) -> str:
        origin = ", ".join(f"{name}={value!r}" for name, value in self.origin.items())
        if len(origin) > LONGEST_ORIGIN:
            origin = f"{origin[:LONGEST_ORIGIN]}..."
        return f"Estimated({self.model!r}, {origin})"


NoiseLike: TypeAlias = "NoiseModel | FitsNoise | float"


@runtime_checkable
class RecordsEstimation(Protocol):
    """An estimator that says how it estimated its noise model."""

    def record(self) -> Mapping[str, Any]:
        """Return the name of the estimator, the number of images and its parameters as JSON-ready values."""


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
            "call its for_image(pixels) with the image's (C, H, W) pixels."
        )
    raise InputError(
        f"noise must be a standard deviation, or a model or a fitted estimator from attentest.noise, "
        f"got {type(noise).__name__}: see {NOISE_GUIDE}."
    )


def as_noise_or_maker(noise: NoiseLike | ImageNoise) -> NoiseModel | ImageNoise:
    """Return a noise model, or an estimator of the noise from each image as it is."""
    if isinstance(noise, ImageNoise) and not isinstance(noise, (type, NoiseModel)):
        return noise
    return as_noise(noise)  # type: ignore[arg-type]  # raises an error for a class


def _fitted(estimator: FitsNoise) -> NoiseModel:
    name = type(estimator).__name__
    model = getattr(estimator, "noise_", None)
    if model is None:
        raise InputError(f"this {name} is not fitted yet: call its fit(images) with reference images first.")
    if not isinstance(model, NoiseModel):
        raise InputError(f"the noise_ of a fitted {name} must be a noise model, got {type(model).__name__}.")
    if isinstance(model, Estimated):
        return model
    if isinstance(estimator, RecordsEstimation):
        return Estimated(model, estimator.record())
    return Estimated(model, {"estimator": name, "images": getattr(estimator, "n_images_", None)})


MOST_AVERAGED = 10**9
"""Largest number of images: a larger one is a mistake."""


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

    saved: ClassVar = {"model": NoiseModel, "count": int}

    count: int

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "count", whole_number(self.count, "count", 1, MOST_AVERAGED))

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``Sigma v / count`` along the last axis."""
        return self.model.apply(v) / self.count

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` vectors."""
        return self.model.sample(rng, k, n) / float(np.sqrt(self.count))

    def variances(self, n: int) -> FloatArray:
        """Return the variance (n,) of each pixel."""
        return pixel_variances(self.model, n) / self.count

    def describe(self) -> dict[str, Any]:
        """Return the number of images and the noise of one."""
        return {"model": "averaged", "count": self.count, "of": dict(self.model.describe())}

    def facts(self) -> dict[str, str]:
        """Return what there is to know, in words."""
        of_one = {f"{name} of one image": fact for name, fact in facts_of(self.model).items()}
        return {"images averaged": str(self.count), **of_one}


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

    saved: ClassVar = {"model": NoiseModel, "factor": float}

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

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``factor^2 Sigma v`` along the last axis."""
        return self.factor**2 * self.model.apply(v)

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` vectors."""
        return self.factor * self.model.sample(rng, k, n)

    def variances(self, n: int) -> FloatArray:
        """Return the variance (n,) of each pixel."""
        return self.factor**2 * super().variances(n)

    def describe(self) -> dict[str, Any]:
        """Return the factor and the other noise model."""
        return {"model": "scaled", "factor": self.factor, "of": dict(self.model.describe())}

    def facts(self) -> dict[str, str]:
        """Return what there is to know, in words."""
        unscaled = {f"{name} before scaling": fact for name, fact in facts_of(self.model).items()}
        return {"factor on standard deviations": f"{self.factor:.4g}", **unscaled}


class PerChannel(SaveableNoise):
    """Noise of colour images: the same correlation in space for every channel, and a covariance across channels.

    The covariance of pixel i in channel c and pixel j in channel d is channels_cd times the spatial model's
    covariance of i and j.

    Parameters
    ----------
    channels : array of shape (C, C) or (C,)
        Covariance across channels, or their standard deviations where channels are independent.
    spatial
        Noise model of one channel's pixels; by default independent with standard deviation 1.
    """

    saved: ClassVar = {"channels": np.ndarray, "spatial": NoiseModel}

    def __init__(self, channels: ArrayLike, spatial: NoiseLike = 1.0) -> None:
        values = float_array(channels, "channels")
        if values.ndim == 1:
            values = np.diag([standard_deviation(sigma) ** 2 for sigma in values.tolist()])
        self._mixing = Dense(values)
        self.spatial = as_noise(spatial)

    def check_image(self, shape: tuple[int, int, int]) -> None:
        """Refuse images (C, H, W) of another number of channels."""
        if shape[0] != self._mixing.size:
            raise InputError(
                f"the noise model is for images of {counted(self._mixing.size, 'channel')}, but the image has "
                f"{shape[0]}."
            )
        if isinstance(self.spatial, ChecksImages):
            self.spatial.check_image((1, *shape[1:]))

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
        return np.outer(np.diag(self.channels), pixel_variances(self.spatial, pixels)).ravel()

    def describe(self) -> dict[str, Any]:
        """Return name and parameters."""
        return {
            "model": "per channel",
            "channels": self.channels.tolist(),
            "spatial": dict(self.spatial.describe()),
        }

    def facts(self) -> dict[str, str]:
        """Return what there is to know, in words."""
        return {
            "channels": str(self._mixing.size),
            "standard deviations of channels": deviations_text(np.diag(self.channels)),
            "strongest correlation of channels": strongest_text(self.channels),
            **{f"{name} within a channel": fact for name, fact in facts_of(self.spatial).items()},
        }

    def correlation_length(self) -> float:
        """Return the correlation length within a channel in pixels."""
        return correlation_length(self.spatial)

    def with_correlation_length(self, length: float, shape: tuple[int, int, int]) -> PerChannel:
        """Return the same with another correlation length within channels."""
        return PerChannel(self.channels, with_correlation_length(self.spatial, length, (1, *shape[1:])))

    def _planes(self, length: int) -> tuple[int, int]:
        channels = self._mixing.size
        if length % channels:
            raise InputError(f"this noise model is for images of {channels} channels, but {length} values were given.")
        return channels, length // channels
