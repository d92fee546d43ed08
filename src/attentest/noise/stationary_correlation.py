"""Estimate of the correlation of stationary noise at every lag."""

from __future__ import annotations

from typing import Any

import numpy as np

from attentest.checks import whole_number
from attentest.errors import InputError
from attentest.noise.model import FloatArray
from attentest.noise.parameters import MOST_DRAWN


def checked_max_lag(max_lag: Any) -> int | None:
    """Return the largest lag that is not damped as a plain int, or None for half of either side."""
    return None if max_lag is None else whole_number(max_lag, "max_lag", 0, MOST_DRAWN)


def stationary_correlation(fields: FloatArray, degrees: int, max_lag: int | None) -> FloatArray:
    """Return the correlation at every lag, with a spectrum that is nowhere negative.

    The products of pixels at a lag are averaged over the pairs of pixels with that lag, which is unbiased, and damped
    to zero beyond the largest lag, because long lags have few pairs. Negative power that remains is set to zero.

    Parameters
    ----------
    fields : (m, H, W)
        Fields of mean 0 and variance 1.
    degrees
        Degrees of freedom of their second moments: m minus the number of means that were removed.
    max_lag
        Largest lag that is not damped; None for half of either side.

    Returns
    -------
    array of shape (2H-1, 2W-1)
        Correlations at lags from -(H-1) to H-1 and from -(W-1) to W-1, with 1 in the middle.
    """
    height, width = fields.shape[1:]
    torus = 2 * height - 1, 2 * width - 1
    # The fields are padded with zeros, so that no product of two pixels wraps around the torus.
    power = sum(np.abs(np.fft.rfft2(field, s=torus)) ** 2 for field in fields)
    products = np.fft.irfft2(power, s=torus) / degrees
    lags = products / _pairs(height)[:, None] / _pairs(width)
    lags *= _damping(height, max_lag)[:, None] * _damping(width, max_lag)
    spectrum = np.maximum(np.fft.rfft2(lags).real, 0.0)
    clipped = np.fft.fftshift(np.fft.irfft2(spectrum, s=torus))
    variance = clipped[height - 1, width - 1]
    if not 0 < variance < np.inf:
        raise InputError("the reference images give no usable covariance between pixels: give more or larger images.")
    # Setting negative power to zero adds power, so the sum is scaled back to the variance before.
    return np.asarray((clipped + clipped[::-1, ::-1]) / (2 * variance))


def _lags(side: int) -> FloatArray:
    """Return the absolute lags (2 side - 1,) along an axis of the torus, 0 first, negative lags last."""
    return np.abs(np.fft.ifftshift(np.arange(1.0 - side, side)))


def _pairs(side: int) -> FloatArray:
    return side - _lags(side)


def _damping(side: int, max_lag: int | None) -> FloatArray:
    """Return weights (2 side - 1,): 1 up to the largest lag, falling as half a cosine to 0 at twice that."""
    flat = side / 2 if max_lag is None else float(max_lag)
    through = np.clip((_lags(side) - flat) / max(flat, 1.0), 0.0, 1.0)
    return np.asarray((1 + np.cos(np.pi * through)) / 2)
