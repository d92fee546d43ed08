"""Estimate of the correlation of stationary noise at every lag, with a smooth curve for long ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from attentest.checks import whole_number
from attentest.errors import InputError
from attentest.noise.model import MOST_DRAWN, FloatArray

Tail: TypeAlias = Callable[[FloatArray, FloatArray], FloatArray]
"""The correlation of pixels by the absolute lags in rows and in columns, which are broadcast."""

MOST_LAGS = 16
"""Most lags along a half axis that the curve is fitted to, evenly spaced in the logarithm: the cost is the same for
all sizes of images, and short lags, which are estimated from the most pairs, count for the most."""

SHORTEST_LENGTH, LONGEST_LENGTH = 0.3, 20.0
"""Correlation lengths of the curve: from this number of pixels, below which no neighbour is correlated, to this number
of sides, above which the correlation is 1 over the whole image."""

PRECISION, MOST_STEPS = 1e-4, 60
"""Relative change at which the least-squares fit ends, far below the error of the correlations, and most steps."""


def fitted_tail(correlation: FloatArray, weights: FloatArray) -> Tail:
    """Return the curve A exp(-((i / a)^q + (j / b)^q)^(p / q)) through correlations, for lags of i rows and j columns.

    With p = q = 1 it is an autoregression along both axes, with q = 2 a function of the distance alone (but for the
    two lengths), with p = q = 2 that of blurred noise; A < 1 leaves room for independent noise. Of the correlations
    (2H-1, 2W-1) at all lags, with 1 in the middle, those up to half of either side are used, with the weights
    (2H-1, 2W-1), their numbers of pairs.
    """
    from scipy.optimize import least_squares  # here because scipy.optimize is slow to import

    centre = [side // 2 for side in correlation.shape]
    down, across = (_lags((side + 1) // 2) for side in centre)
    # Opposite lags are the same, so those upwards are left out.
    i, j = (axis.ravel() for axis in np.meshgrid(down, np.r_[-across[:0:-1], across], indexing="ij"))
    used = (i > 0) | (j > 0)
    i, j = i[used], j[used]
    if not i.size:
        return lambda rows, columns: np.zeros(np.broadcast_shapes(rows.shape, columns.shape))
    measured = correlation[centre[0] + i, centre[1] + j]
    root = np.sqrt(weights[centre[0] + i, centre[1] + j])
    rows, columns = np.abs(i).astype(np.float64), np.abs(j).astype(np.float64)
    sides = [side + 1.0 for side in centre]
    lower = [0.0, *np.log([SHORTEST_LENGTH] * 2), 0.3, 1.0]
    upper = [1.0, *np.log([LONGEST_LENGTH * side for side in sides]), 2.0, 2.0]
    # The start is the best of a few lengths along both axes, because there may be a minimum for a short correlation
    # and another one for a long correlation.
    lengths = np.log(np.geomspace(1.0, max(2.0, max(sides)), 6))
    starts = [np.minimum([0.8, length, length, 1.0, 1.5], upper) for length in lengths]

    def error(parameters: FloatArray) -> FloatArray:
        return np.asarray(root * (_curve(parameters, rows, columns) - measured))

    def jacobian(parameters: FloatArray) -> FloatArray:
        return np.asarray(root[:, None] * _derivatives(parameters, rows, columns))

    start = min(starts, key=lambda parameters: float(np.sum(error(parameters) ** 2)))
    best = least_squares(error, start, jacobian, (lower, upper), ftol=PRECISION, xtol=PRECISION, max_nfev=MOST_STEPS).x
    return lambda rows, columns: _curve(best, rows, columns)


def _lags(furthest: int) -> NDArray[np.int64]:
    """Return 0 and at most ``MOST_LAGS`` lags up to the furthest."""
    if furthest < 1:
        return np.zeros(1, dtype=np.int64)
    return np.unique(np.r_[0, np.round(np.geomspace(1, furthest, MOST_LAGS))]).astype(np.int64)


def _curve(parameters: FloatArray, rows: FloatArray, columns: FloatArray) -> FloatArray:
    """Return the curve for parameters A, log a, log b, p and q."""
    amplitude, log_down, log_across, power, norm = parameters
    distance = ((rows * np.exp(-log_down)) ** norm + (columns * np.exp(-log_across)) ** norm) ** (power / norm)
    return np.asarray(amplitude * np.exp(-distance))


def _derivatives(parameters: FloatArray, rows: FloatArray, columns: FloatArray) -> FloatArray:
    """Return the derivatives (m, 5) of the curve by its parameters at lags (m,) that are not zero."""
    amplitude, log_down, log_across, power, norm = parameters
    down, across = rows * np.exp(-log_down), columns * np.exp(-log_across)
    down_part, across_part = down**norm, across**norm
    total = down_part + across_part
    distance = total ** (power / norm)
    falling = np.exp(-distance)
    slope = amplitude * falling * distance
    logs = xlogy(down_part, down) + xlogy(across_part, across)
    return np.stack(
        [
            falling,
            slope * power * down_part / total,
            slope * power * across_part / total,
            -slope * np.log(total) / norm,
            slope * power / norm * (np.log(total) / norm - logs / total),
        ],
        axis=1,
    )


PROJECTION_STEPS = 20
"""Steps towards the nearest spectrum that is nowhere negative; eta' Sigma eta changes by less than 0.2% after 10."""


def checked_max_lag(max_lag: Any) -> int | None:
    """Return the lag up to which correlations are taken as they are, or None for half of either side."""
    return None if max_lag is None else whole_number(max_lag, "max_lag", 0, MOST_DRAWN)


def stationary_correlation(planes: FloatArray, used: NDArray[np.bool_], max_lag: int | None) -> FloatArray:
    """Return the correlation of residuals at every lag, with a spectrum that is nowhere negative.

    The products of pixels at a lag are averaged over the pairs of pixels with that lag, which is unbiased, but long
    lags have few pairs. So beyond half of either side they give way to a smooth curve through the correlations at
    shorter lags or, beyond ``max_lag``, to zero. Of the correlations without negative power, the nearest is taken, in
    the sum of squares weighted by the number of pairs.

    Parameters
    ----------
    planes : (K, C, H, W)
        Residuals of K images, minus their mean, with variance 1; 0 where they are not used.
    used : (H, W)
        Whether a pixel is used.
    max_lag
        Largest lag at which correlations are taken as they are, falling to zero at twice that; None for half of
        either side and a curve beyond.

    Returns
    -------
    array of shape (2H-1, 2W-1)
        Correlations at lags from -(H-1) to H-1 and from -(W-1) to W-1, with 1 in the middle.
    """
    count, channels, height, width = planes.shape
    pairs = np.maximum(np.round(_products(used[None].astype(np.float64))), 0.0)
    products = _products(planes.reshape(-1, height, width)) / ((count - 1) * channels)
    variance = products[0, 0] / pairs[0, 0]
    if not 0 < variance < np.inf:
        raise InputError("the reference images give no usable covariance between pixels: give more or larger images.")
    measured = np.divide(products, pairs * variance, out=np.zeros_like(products), where=pairs > 0)
    trust = _trust(height, max_lag)[:, None] * _trust(width, max_lag) * (pairs > 0)
    weights = pairs / pairs[0, 0]
    correlation = trust * measured
    if max_lag is None:
        tail = fitted_tail(np.fft.fftshift(measured), np.fft.fftshift(weights))
        correlation += (1 - trust) * tail(_absolute_lags(height)[:, None], _absolute_lags(width))
    projected = np.fft.fftshift(_without_negative_power(correlation, weights))
    # Removing negative power adds power, so the sum is scaled back to a variance of 1.
    return np.asarray((projected + projected[::-1, ::-1]) / (2 * projected[height - 1, width - 1]))


def lag_weights(shape: tuple[int, int], max_lag: int | None) -> FloatArray:
    """Return the weights (2H-1, 2W-1) on the torus with which sums of products at each lag enter the correlations.

    They do by the share that is not taken from the curve through shorter lags, divided by the number of pairs.
    """
    down, across = (_trust(side, max_lag) / (side - _absolute_lags(side)) for side in shape)
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


def _absolute_lags(side: int) -> FloatArray:
    """Return the absolute lags (2 side - 1,) along an axis of the torus, 0 first, negative lags last."""
    return np.abs(np.fft.ifftshift(np.arange(1.0 - side, side)))


def _trust(side: int, max_lag: int | None) -> FloatArray:
    """Return weights (2 side - 1,): 1 up to the largest lag, falling as half a cosine to 0 at twice that."""
    flat = side / 2 if max_lag is None else float(max_lag)
    through = np.clip((_absolute_lags(side) - flat) / max(flat, 1.0), 0.0, 1.0)
    return np.asarray((1 + np.cos(np.pi * through)) / 2)
