"""Noise of colour images."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from attentest.checks import float_array
from attentest.errors import InputError, counted
from attentest.noise.conversion import NoiseLike, as_noise
from attentest.noise.correlation import correlation_length, with_correlation_length
from attentest.noise.dense import Dense
from attentest.noise.model import ChecksImages, FloatArray, NoiseModel, SaveableNoise, facts_of
from attentest.noise.number_text import deviations_text, strongest_text
from attentest.noise.parameters import sample_shape, standard_deviation
from attentest.noise.pixel_variances import pixel_variances


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
