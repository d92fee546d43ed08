"""Estimate of the correlation of stationary noise at every lag, with a smooth curve for long ones."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from attentest.checks import whole_number
from attentest.errors import InputError
from attentest.noise.model import MOST_DRAWN, FloatArray

Tail: TypeAlias = Callable[..., FloatArray]
"""The correlation of pixels by the absolute lags along each axis, one array each, which are broadcast."""

MOST_LAGS = 16
"""Most lags along a half axis that the curve is fitted to, evenly spaced in the logarithm: the cost is the same for
all sizes of images, and short lags, which are estimated from the most pairs, count for the most."""

SHORTEST_LENGTH, LONGEST_LENGTH = 0.3, 20.0
"""Correlation lengths of the curve: from this number of pixels, below which no neighbour is correlated, to this number
of sides, above which the correlation is 1 over the whole image."""

PRECISION, MOST_STEPS = 1e-4, 60
"""Relative change at which the least-squares fit ends, far below the error of the correlations, and most steps."""


def fitted_tail(correlation: FloatArray, weights: FloatArray) -> Tail:
    """Return the curve A exp(-((i / a)^q + (j / b)^q + ...)^(p / q)) through correlations, for lags i, j, ... by axis.

    With p = q = 1 it is an autoregression along each axis, with q = 2 a function of the distance alone (but for the
    lengths a, b, ...), with p = q = 2 that of blurred noise; A < 1 leaves room for independent noise. Of the
    correlations at all lags, with 1 in the middle, those up to half of each side are used, with their numbers of pairs
    as weights.
    """
    from scipy.optimize import least_squares  # here because scipy.optimize is slow to import

    centre = [side // 2 for side in correlation.shape]
    down, *across = (_lags((side + 1) // 2) for side in centre)
    both_ways = [np.r_[-lags[:0:-1], lags] for lags in across]
    # Opposite lags are the same, so of each two only the later one in the table is used; lag zero is before them.
    before = math.prod(map(len, both_ways)) // 2 + 1
    lags = [axis.ravel()[before:] for axis in np.meshgrid(down, *both_ways, indexing="ij")]
    if not lags[0].size:
        return lambda *lags: np.zeros(np.broadcast_shapes(*(axis.shape for axis in lags)))
    places = tuple(middle + axis for middle, axis in zip(centre, lags, strict=True))
    measured, root = correlation[places], np.sqrt(weights[places])
    distances = [np.abs(axis).astype(np.float64) for axis in lags]
    sides = [side + 1.0 for side in centre]
    lower = [0.0, *np.log([SHORTEST_LENGTH] * len(sides)), 0.3, 1.0]
    upper = [1.0, *np.log([LONGEST_LENGTH * side for side in sides]), 2.0, 2.0]
    # The start is the best of a few lengths along all axes, because there may be a minimum for a short correlation
    # and another one for a long correlation.
    lengths = np.log(np.geomspace(1.0, max(2.0, max(sides)), 6))
    starts = [np.minimum([0.8, *[length] * len(sides), 1.0, 1.5], upper) for length in lengths]

    def error(parameters: FloatArray) -> FloatArray:
        return np.asarray(root * (_curve(parameters, distances) - measured))

    def jacobian(parameters: FloatArray) -> FloatArray:
        return np.asarray(root[:, None] * _derivatives(parameters, distances))

    start = min(starts, key=lambda parameters: float(np.sum(error(parameters) ** 2)))
    best = least_squares(error, start, jacobian, (lower, upper), ftol=PRECISION, xtol=PRECISION, max_nfev=MOST_STEPS).x
    return lambda *lags: _curve(best, lags)


def _lags(furthest: int) -> NDArray[np.int64]:
    """Return 0 and at most ``MOST_LAGS`` lags up to the furthest."""
    if furthest < 1:
        return np.zeros(1, dtype=np.int64)
    return np.unique(np.r_[0, np.round(np.geomspace(1, furthest, MOST_LAGS))]).astype(np.int64)


def _curve(parameters: FloatArray, lags: Sequence[FloatArray]) -> FloatArray:
    """Return the curve for parameters A, the log of a length for each axis, p and q."""
    amplitude, *logs, power, norm = parameters
    total = sum((axis * np.exp(-log)) ** norm for axis, log in zip(lags, logs, strict=True))
    return np.asarray(amplitude * np.exp(-(total ** (power / norm))))


def _derivatives(parameters: FloatArray, lags: Sequence[FloatArray]) -> FloatArray:
    """Return the derivatives (m, d + 3) of the curve by its parameters at lags (m,) that are not all zero."""
    amplitude, *logs, power, norm = parameters
    scaled = [axis * np.exp(-log) for axis, log in zip(lags, logs, strict=True)]
    parts = [axis**norm for axis in scaled]
    total = np.sum(parts, axis=0)
    distance = total ** (power / norm)
    falling = np.exp(-distance)
    slope = amplitude * falling * distance
    entropy = np.sum([xlogy(part, axis) for part, axis in zip(parts, scaled, strict=True)], axis=0)
    return np.stack(
        [
            falling,
            *(slope * power * part / total for part in parts),
            -slope * np.log(total) / norm,
            slope * power / norm * (np.log(total) / norm - entropy / total),
        ],
        axis=1,
    )


PROJECTION_STEPS = 20
"""Steps towards the nearest spectrum that is nowhere negative; eta' Sigma eta changes by less than 0.2% after 10."""


def checked_max_lag(max_lag: Any) -> int | None:
    """Return the lag up to which correlations are taken as they are, or None for half of each side."""
    return None if max_lag is None else whole_number(max_lag, "max_lag", 0, MOST_DRAWN)


def stationary_correlation(planes: FloatArray, used: NDArray[np.bool_], max_lag: int | None) -> FloatArray:
    """Return the correlation of residuals at every lag, with a spectrum that is nowhere negative.

    The products of pixels at a lag are averaged over the pairs of pixels with that lag, which is unbiased, but long
    lags have few pairs. So beyond half of each side they give way to a smooth curve through the correlations at
    shorter lags or, beyond ``max_lag``, to zero. Of the correlations without negative power, the nearest is taken, in
    the sum of squares weighted by the number of pairs.

    Parameters
    ----------
    planes : (K, C, *axes)
        Residuals of K images, minus their mean, with variance 1; 0 where they are not used.
    used : (*axes)
        Whether a pixel is used.
    max_lag
        Largest lag at which correlations are taken as they are, falling to zero at twice that; None for half of
        each side and a curve beyond.

    Returns
    -------
    array of shape (2H-1, 2W-1) for two axes, and so on
        Correlations at lags from -(H-1) to H-1 and from -(W-1) to W-1, with 1 in the middle.
    """
    count, channels, *sides = planes.shape
    pairs = np.maximum(np.round(_products(used[None].astype(np.float64))), 0.0)
    products = _products(planes.reshape(-1, *sides)) / ((count - 1) * channels)
    everywhere = pairs.flat[0]
    variance = products.flat[0] / everywhere
    if not 0 < variance < np.inf:
        raise InputError("the reference images give no usable covariance between pixels: give more or larger images.")
    measured = np.divide(products, pairs * variance, out=np.zeros_like(products), where=pairs > 0)
    trust = _outer(_trust(side, max_lag) for side in sides) * (pairs > 0)
    weights = pairs / everywhere
    correlation = trust * measured
    if max_lag is None:
        tail = fitted_tail(np.fft.fftshift(measured), np.fft.fftshift(weights))
        correlation += (1 - trust) * tail(*np.ix_(*map(_absolute_lags, sides)))
    projected = np.fft.fftshift(_without_negative_power(correlation, weights))
    # Removing negative power adds power, so the sum is scaled back to a variance of 1.
    return np.asarray((projected + np.flip(projected)) / (2 * projected[tuple(side - 1 for side in sides)]))


def lag_weights(shape: tuple[int, ...], max_lag: int | None) -> FloatArray:
    """Return the weights on the torus with which sums of products at each lag enter the correlations.

    They do by the share that is not taken from the curve through shorter lags, divided by the number of pairs.
    """
    return _outer(_trust(side, max_lag) / (side - _absolute_lags(side)) for side in shape)


def _outer(factors: Iterable[FloatArray]) -> FloatArray:
    """Return the products of one factor for each axis."""
    return functools.reduce(np.multiply.outer, factors)


def _products(fields: FloatArray) -> FloatArray:
    """Return the sums of the products of pixels at each lag on the torus, 2n-1 for a side of n, lag zero first."""
    # The fields are padded with zeros, so that no product of two pixels wraps around the torus.
    torus, axes = [2 * side - 1 for side in fields.shape[1:]], range(fields.ndim - 1)
    power = sum(np.abs(np.fft.rfftn(field, s=torus, axes=axes)) ** 2 for field in fields)
    return np.fft.irfftn(power, s=torus, axes=axes)


def _without_negative_power(correlation: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the function on the torus nearest to another in the weighted sum of squares, without negative power.

    These are steps of the projected gradient with Nesterov's momentum. Weights are at most 1, and then a step of 1 is
    short enough to converge.
    """
    power, axes = np.fft.rfftn(correlation).real, range(correlation.ndim)
    ahead, power, momentum = power, np.maximum(power, 0.0), 1.0
    for _ in range(PROJECTION_STEPS):
        error = np.fft.irfftn(ahead, s=correlation.shape, axes=axes) - correlation
        step = np.maximum(ahead - np.fft.rfftn(weights * error).real, 0.0)
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = step + (momentum - 1) / following * (step - power)
        power, momentum = step, following
    return np.fft.irfftn(power, s=correlation.shape, axes=axes)


def _absolute_lags(side: int) -> FloatArray:
    """Return the absolute lags (2 side - 1,) along an axis of the torus, 0 first, negative lags last."""
    return np.abs(np.fft.ifftshift(np.arange(1.0 - side, side)))


def _trust(side: int, max_lag: int | None) -> FloatArray:
    """Return weights (2 side - 1,): 1 up to the largest lag, falling as half a cosine to 0 at twice that."""
    flat = side / 2 if max_lag is None else float(max_lag)
    through = np.clip((_absolute_lags(side) - flat) / max(flat, 1.0), 0.0, 1.0)
    return np.asarray((1 + np.cos(np.pi * through)) / 2)
