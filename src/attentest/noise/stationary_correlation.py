"""Estimate of the correlation of stationary noise at every lag."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.checks import whole_number
from attentest.errors import InputError
from attentest.noise.correlation_tail import fitted_tail
from attentest.noise.parameters import MOST_DRAWN
from attentest.noise.protocol import FloatArray

PROJECTION_STEPS = 20
"""Steps towards the nearest spectrum that is nowhere negative; eta' Sigma eta changes by less than 0.2% after 10."""


def checked_max_lag(max_lag: Any) -> int | None:
    """Return the lag up to which correlations are taken as they are, or None for half of either side."""
    return None if max_lag is None else whole_number(max_lag, "max_lag", 0, MOST_DRAWN)


def stationary_correlation(
    fields: FloatArray, degrees: int, max_lag: int | None, used: NDArray[np.bool_]
) -> FloatArray:
    """Return the correlation at every lag, with a spectrum that is nowhere negative.

    The products of pixels at a lag are averaged over the pairs of pixels with that lag, which is unbiased, but long
    lags have few pairs. So beyond half of either side they give way to a smooth curve through the correlations at
    shorter lags or, beyond ``max_lag``, to zero. Of the correlations without negative power, the nearest is taken, in
    the sum of squares weighted by the number of pairs.

    Parameters
    ----------
    fields : (m, H, W)
        Fields of mean 0 and variance 1; 0 where they are not used.
    degrees
        Degrees of freedom of their second moments: m minus the number of means that were removed.
    max_lag
        Largest lag at which correlations are taken as they are, falling to zero at twice that; None for half of
        either side and a curve beyond.
    used : (H, W)
        Whether a pixel is used.

    Returns
    -------
    array of shape (2H-1, 2W-1)
        Correlations at lags from -(H-1) to H-1 and from -(W-1) to W-1, with 1 in the middle.
    """
    height, width = fields.shape[1:]
    pairs = np.maximum(np.round(_products(used[None].astype(np.float64))), 0.0)
    products = _products(fields) / degrees
    variance = products[0, 0] / pairs[0, 0]
    if not 0 < variance < np.inf:
        raise InputError("the reference images give no usable covariance between pixels: give more or larger images.")
    measured = np.divide(products, pairs * variance, out=np.zeros_like(products), where=pairs > 0)
    trust = _trust(height, max_lag)[:, None] * _trust(width, max_lag) * (pairs > 0)
    weights = pairs / pairs[0, 0]
    correlation = trust * measured
    if max_lag is None:
        tail = fitted_tail(np.fft.fftshift(measured), np.fft.fftshift(weights))
        correlation += (1 - trust) * tail(_lags(height)[:, None], _lags(width))
    projected = np.fft.fftshift(_without_negative_power(correlation, weights))
    # Removing negative power adds power, so the sum is scaled back to a variance of 1.
    return np.asarray((projected + projected[::-1, ::-1]) / (2 * projected[height - 1, width - 1]))


def lag_weights(shape: tuple[int, int], max_lag: int | None) -> FloatArray:
    """Return the weights (2H-1, 2W-1) on the torus with which sums of products at each lag enter the correlations.

    They do by the share that is not taken from the curve through shorter lags, divided by the number of pairs.
    """
    down, across = (_trust(side, max_lag) / (side - _lags(side)) for side in shape)
    return np.asarray(down[:, None] * across)


def _products(fields: FloatArray) -> FloatArray:
    """Return the sums of the products of pixels at each lag (2H-1, 2W-1) on the torus, lag zero first."""
    # The fields are padded with zeros, so that no product of two pixels wraps around the torus.
    torus = 2 * fields.shape[1] - 1, 2 * fields.shape[2] - 1
    power = sum(np.abs(np.fft.rfft2(field, s=torus)) ** 2 for field in fields)
    return np.fft.irfft2(power, s=torus)


def _without_negative_power(correlation: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the function on the torus nearest to another in the weighted sum of squares, without negative power.

    These are steps of the projected gradient with Nesterov's momentum. Weights are at most 1, and then a step of 1 is
    short enough to converge.
    """
    power = np.fft.rfft2(correlation).real
    ahead, power, momentum = power, np.maximum(power, 0.0), 1.0
    for _ in range(PROJECTION_STEPS):
        error = np.fft.irfft2(ahead, s=correlation.shape) - correlation
        step = np.maximum(ahead - np.fft.rfft2(weights * error).real, 0.0)
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = step + (momentum - 1) / following * (step - power)
        power, momentum = step, following
    return np.fft.irfft2(power, s=correlation.shape)


def _lags(side: int) -> FloatArray:
    """Return the absolute lags (2 side - 1,) along an axis of the torus, 0 first, negative lags last."""
    return np.abs(np.fft.ifftshift(np.arange(1.0 - side, side)))


def _trust(side: int, max_lag: int | None) -> FloatArray:
    """Return weights (2 side - 1,): 1 up to the largest lag, falling as half a cosine to 0 at twice that."""
    flat = side / 2 if max_lag is None else float(max_lag)
    through = np.clip((_lags(side) - flat) / max(flat, 1.0), 0.0, 1.0)
    return np.asarray((1 + np.cos(np.pi * through)) / 2)
