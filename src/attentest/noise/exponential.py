"""Noise whose correlation falls exponentially with the distance."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attentest.noise.autoregression import covariance_product, neighbour_correlation, stationary_series
from attentest.noise.model import FloatArray
from attentest.noise.number_text import deviations_text
from attentest.noise.parameters import sample_shape


class Exponential:
    """Noise with the correlation exp(-(rows + columns) / length) of pixels so many rows and columns apart, in O(n).

    Channels are independent. It is what independent noise becomes if it is given a correlation length.

    Parameters
    ----------
    deviations : array of shape (C, H, W)
        Standard deviations of the pixels.
    length
        Correlation length in pixels; 0 for independent pixels.
    """

    def __init__(self, deviations: ArrayLike, length: float) -> None:
        self.deviations: FloatArray = np.array(deviations, dtype=np.float64)
        self.length = float(length)

    def __repr__(self) -> str:
        return f"Exponential(<sd {deviations_text(self.deviations.ravel() ** 2)}>, length={self.length:g})"

    @property
    def size(self) -> int:
        """Number of values."""
        return int(self.deviations.size)

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``Sigma v`` along the last axis, by recursive filters along rows and along columns."""
        planes = v.reshape(*v.shape[:-1], *self.deviations.shape) * self.deviations
        for axis in (-2, -1):
            planes = covariance_product(planes, neighbour_correlation(self.length), axis)
        return (planes * self.deviations).reshape(v.shape)

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` vectors."""
        draws, values = sample_shape(k, n, self.size)
        planes = rng.standard_normal((draws, *self.deviations.shape))
        for axis in (-2, -1):
            planes = stationary_series(planes, neighbour_correlation(self.length), axis)
        return (planes * self.deviations).reshape(draws, values)

    def describe(self) -> dict[str, Any]:
        """Return name and parameters."""
        return {"model": "exponential", "size": self.size, "correlation_length": self.length}

    def correlation_length(self) -> float:
        """Return the correlation length in pixels."""
        return self.length

    def with_correlation_length(self, length: float, shape: tuple[int, int, int]) -> Exponential:
        """Return the same with another correlation length."""
        return Exponential(self.deviations, length)
