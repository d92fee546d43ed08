"""Noise whose correlation falls exponentially, along the flattened index or along both axes: by recursive filters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.checks import real_number
from attentest.errors import InputError
from attentest.noise.model import BaseNoise, FloatArray, deviations_text, sample_shape, standard_deviation

STEP = 1e-4
"""Step of the numerical derivative with respect to a correlation."""

VALUES_TOGETHER = 2**20
"""Values that are filtered at a time: a filter takes several times the memory of what it filters."""


def covariance_product(values: FloatArray, rho: float, axis: int = -1) -> FloatArray:
    """Return the product with the matrix rho^abs(i - j) along an axis: one filter forwards and one backwards."""
    product = np.empty(values.shape)
    for place, part in _decayed(values, rho, axis):
        product[place] = part
    for place, part in _decayed(values, rho, axis, backwards=True):
        product[place] += part
        product[place] -= values[place]
    return product


def stationary_series(white: FloatArray, rho: float, axis: int = -1) -> FloatArray:
    """Return series with the covariance rho^abs(i - j) along an axis, made from independent standard normal numbers."""
    series: FloatArray = np.sqrt(1.0 - rho**2) * white
    first = _place(white.ndim, axis, slice(0, 1))
    series[first] = white[first]
    for place, part in _decayed(series, rho, axis):
        series[place] = part
    return series


def neighbour_correlation(length: float) -> float:
    """Return the rho with which correlations fall to 1/e within a length of 0 or more."""
    return float(np.exp(-1 / length)) if length else 0.0


def _decayed(
    v: FloatArray, rho: float, axis: int, backwards: bool = False
) -> Iterator[tuple[tuple[slice, ...], FloatArray]]:
    """Yield y with y_i = v_i + rho y_{i-1} along an axis, or backwards rho y_{i+1}, in parts and with their places."""
    from scipy.signal import lfilter  # here because scipy.signal is slow to import and few noise models need it

    length = v.shape[axis]
    together = max(1, VALUES_TOGETHER * length // max(1, v.size))
    starts = range(0, length, together)
    before = np.zeros_like(v[_place(v.ndim, axis, slice(0, 1))])  # rho times the last y of the part before
    for start in reversed(starts) if backwards else starts:
        place = _place(v.ndim, axis, slice(start, start + together))
        values = np.flip(v[place], axis) if backwards else v[place]
        part, before = lfilter([1.0], [1.0, -rho], values, axis=axis, zi=before)
        yield place, np.flip(part, axis) if backwards else part


def _place(dimensions: int, axis: int, along: slice) -> tuple[slice, ...]:
    """Return the index of a part along one axis."""
    place = [slice(None)] * dimensions
    place[axis] = along
    return tuple(place)


@dataclass(frozen=True)
class AR1(BaseNoise):
    """First-order autoregressive noise over the flattened index: Sigma_ij = sigma^2 rho^|i-j|, in O(n)."""

    name: ClassVar = "ar1"
    parameters: ClassVar = {"rho": float, "sigma": float}
    estimator: ClassVar = "ar1"

    rho: float
    sigma: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", standard_deviation(self.sigma))
        object.__setattr__(self, "rho", real_number(self.rho, "rho"))
        if not -1.0 < self.rho < 1.0:
            raise InputError(f"rho must lie strictly between -1 and 1, got {self.rho}.", "rho")

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``Sigma v`` by one recursive filter forwards and one backwards."""
        product = covariance_product(v, self.rho)
        product *= self.sigma**2
        return product

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` stationary vectors of length ``n``."""
        series = stationary_series(rng.standard_normal(sample_shape(k, n, None)), self.rho)
        series *= self.sigma
        return series

    def variances(self, n: int) -> FloatArray:
        """Return the variance (n,) of each pixel."""
        return np.full(n, self.sigma**2)

    def covariances(self, places: NDArray[np.int64], n: int) -> FloatArray:
        """Return the covariances (m, m) of a few pixels."""
        return np.asarray(self.sigma**2 * self.rho ** np.abs(np.subtract.outer(places, places)))

    def degrees_per_image(self, eta: FloatArray, origin: Mapping[str, Any]) -> FloatArray:
        """Return those of v g(r / v), with v the mean of y_i^2 and r that of y_i y_(i+1): linear in (v, r) nearby."""
        rho = self.rho
        step = STEP * (1 - abs(rho))
        low, value, high = (np.einsum("ki,ki->k", eta, AR1(at).apply(eta)) for at in (rho - step, rho, rho + step))
        slope = (high - low) / (2 * step)
        by_variance, by_product = value - rho * slope, slope
        # Bartlett's formula: n times the variances of v and r, and their covariance, over a long series of variance 1.
        rest = 1 - rho**2
        of_variance, crossed = 2 * (1 + rho**2) / rest, 4 * rho / rest
        of_product = (1 + rho**2) / rest + rho**2 + 2 * rho**2 / rest
        variance = by_variance**2 * of_variance + 2 * by_variance * by_product * crossed + by_product**2 * of_product
        return np.asarray(2 * value**2 * eta.shape[1] / variance)

    def correlation_length(self) -> float:
        """Return the distance along the flattened image, in pixels, within which correlations fall to 1/e."""
        return -1 / float(np.log(abs(self.rho))) if self.rho else 0.0

    def _stretched(self, length: float, shape: tuple[int, int, int]) -> AR1:
        """Return the same with another rate of decay; the sign of rho is kept."""
        return AR1(float(np.copysign(neighbour_correlation(length), self.rho)), self.sigma)

    def words(self) -> str:
        """Return the model in words."""
        return (
            f"A standard deviation of {self.sigma:.6g}, and a correlation of {self.rho:.6g} to the power of the "
            "distance between two pixels in reading order"
        )


class Exponential(BaseNoise):
    """Noise with the correlation exp(-(rows + columns) / length) of pixels so many rows and columns apart, in O(n).

    Channels are independent. It is what independent noise becomes if it is given a correlation length.

    Parameters
    ----------
    deviations : array of shape (C, H, W)
        Standard deviations of the pixels.
    length
        Correlation length in pixels; 0 for independent pixels.
    """

    name: ClassVar = "exponential"
    parameters: ClassVar = {"deviations": np.ndarray, "length": float}

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

    def variances(self, n: int) -> FloatArray:
        """Return the variance (n,) of each value."""
        return self.deviations.ravel() ** 2

    def covariances(self, places: NDArray[np.int64], n: int) -> FloatArray:
        """Return the covariances (m, m) of a few values."""
        channel, row, column = np.unravel_index(places, self.deviations.shape)
        distance = sum(np.abs(np.subtract.outer(along, along)) for along in (row, column))
        correlation = neighbour_correlation(self.length) ** distance * np.equal.outer(channel, channel)
        deviations = self.deviations.ravel()[places]
        return np.asarray(np.outer(deviations, deviations) * correlation)

    def degrees_per_image(self, eta: FloatArray, origin: Mapping[str, Any]) -> FloatArray:
        """Return those of one variance of pixels with correlations r^(rows + columns): fewer by the sum of squares."""
        r = neighbour_correlation(self.length)
        return np.full(len(eta), float(eta.shape[1])) * ((1 - r**2) / (1 + r**2)) ** 2

    def correlation_length(self) -> float:
        """Return the correlation length in pixels."""
        return self.length

    def _stretched(self, length: float, shape: tuple[int, int, int]) -> Exponential:
        return Exponential(self.deviations, length)

    def record(self) -> dict[str, Any]:
        """Return name and parameters."""
        return {"model": self.name, "size": self.size, "correlation_length": self.length}

    def words(self) -> str:
        """Return the model in words."""
        return (
            f"A standard deviation of {deviations_text(self.variances(self.size))}, and a correlation that falls to "
            f"1/e within {self.length:.6g} pixels along rows and along columns"
        )
