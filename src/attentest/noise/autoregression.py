"""First-order autoregression along an axis, by recursive filters: covariances rho^abs(i - j) without a matrix."""

from __future__ import annotations

import numpy as np

from attentest.noise.model import FloatArray


def covariance_product(values: FloatArray, rho: float, axis: int = -1) -> FloatArray:
    """Return the product with the matrix rho^abs(i - j) along an axis: one filter forwards and one backwards."""
    backward = np.flip(_decayed(np.flip(values, axis), rho, axis), axis)
    return _decayed(values, rho, axis) + backward - values


def stationary_series(white: FloatArray, rho: float, axis: int = -1) -> FloatArray:
    """Return series with the covariance rho^abs(i - j) along an axis, made from independent standard normal numbers."""
    innovation = np.moveaxis(white, axis, -1).copy()
    innovation[..., 1:] *= np.sqrt(1.0 - rho**2)
    return np.moveaxis(_decayed(innovation, rho, -1), -1, axis)


def neighbour_correlation(length: float) -> float:
    """Return the rho with which correlations fall to 1/e within a length of 0 or more."""
    return float(np.exp(-1 / length)) if length else 0.0


def _decayed(v: FloatArray, rho: float, axis: int) -> FloatArray:
    """Return y with y_i = v_i + rho y_{i-1} along an axis."""
    from scipy.signal import lfilter  # here because scipy.signal is slow to import and few noise models need it

    return np.asarray(lfilter([1.0], [1.0, -rho], v, axis=axis), dtype=np.float64)
