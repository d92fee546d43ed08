"""First-order autoregressive noise over the flattened index: covariances rho^abs(i - j) by recursive filters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attentest.checks import real_number
from attentest.errors import InputError
from attentest.noise.model import MOST_LAGS, FloatArray, SaveableNoise, lags_text, sample_shape, standard_deviation

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
        given = np.flip(v[place], axis) if backwards else v[place]
        part, before = lfilter([1.0], [1.0, -rho], given, axis=axis, zi=before)
        yield place, np.flip(part, axis) if backwards else part


def _place(dimensions: int, axis: int, along: slice) -> tuple[slice, ...]:
    """Return the index of a part along one axis."""
    place = [slice(None)] * dimensions
    place[axis] = along
    return tuple(place)


@dataclass(frozen=True)
class AR1(SaveableNoise):
    """First-order autoregressive noise over the flattened index: Sigma_ij = sigma^2 rho^|i-j|, in O(n)."""

    saved: ClassVar = {"rho": float, "sigma": float}

    rho: float
    sigma: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", standard_deviation(self.sigma))
        object.__setattr__(self, "rho", real_number(self.rho, "rho"))
        if not -1.0 < self.rho < 1.0:
            raise InputError(f"rho must lie strictly between -1 and 1, got {self.rho}.")

    @property
    def size(self) -> None:
        """It applies to vectors of any length, which is what None stands for."""
        return None

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

    def describe(self) -> dict[str, Any]:
        """Return name and parameters."""
        return {"model": "ar1", "rho": self.rho, "sigma": self.sigma}

    def facts(self) -> dict[str, str]:
        """Return what there is to know, in words."""
        lags = lags_text(self.rho ** np.arange(1.0, MOST_LAGS + 1))
        return {"standard deviation": f"{self.sigma:.4g}", "correlation along rows": lags}

    def correlation_length(self) -> float:
        """Return the distance along the flattened image, in pixels, within which correlations fall to 1/e."""
        return -1 / float(np.log(abs(self.rho))) if self.rho else 0.0

    def with_correlation_length(self, length: float, shape: tuple[int, int, int]) -> AR1:
        """Return the same with another rate of decay: rho to the power of own over new length; its sign is kept."""
        return AR1(float(np.copysign(neighbour_correlation(length), self.rho)), self.sigma)
