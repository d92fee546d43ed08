"""First-order autoregression along an axis, by recursive filters: covariances rho^abs(i - j) without a matrix."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attentest.noise.model import FloatArray

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
