"""What residuals of reference images say: the correlation at every lag, and whether noise is as strong everywhere."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations_with_replacement
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc, xlogy

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
    """Return the correlation of residuals at every lag (2H-1, 2W-1, ...), with a spectrum that is nowhere negative.

    Planes (K, C, *axes) are residuals of K images, minus their mean, with variance 1, and 0 at pixels (*axes) that are
    not used. The products of pixels at a lag are averaged over the pairs of pixels with that lag, which is unbiased,
    but long lags have few pairs. So beyond half of each side they give way to a smooth curve through the correlations
    at shorter lags or, from ``max_lag`` to twice that, fall to zero. Of the correlations without negative power, the
    nearest is taken, in the sum of squares weighted by the number of pairs. Lag zero, with 1, is in the middle.
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


SMALLEST_SIZE = 1e-6
"""Mean sizes of residuals below this, in standard deviations, count as this: those of a masked area are zero."""

RANK_TOLERANCE = 1e-9
"""Directions of differences between cells that are shorter than this, relative to the longest, are none."""

MOST_CELLS = 8  # most cells along a side
SMALLEST_CELL = 4  # least side of a cell in pixels, unless there would be fewer than two cells along the side


class Cells:
    """A division of images (*axes) into rectangular cells of nearly the same size, at most eight along each axis."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        counts = (min(MOST_CELLS, max(2, side // SMALLEST_CELL), side) for side in shape)
        edges = [np.linspace(0, side, count + 1).astype(np.int64) for side, count in zip(shape, counts, strict=True)]
        self._starts = [ends[:-1] for ends in edges]
        self._lengths = [np.diff(ends) for ends in edges]
        self._shares = [np.repeat(np.eye(len(lengths)) / lengths, lengths, axis=0) for lengths in self._lengths]

    def means(self, values: FloatArray) -> FloatArray:
        """Return the means (..., cells) of images (..., *axes) over each cell."""
        means = values @ self._shares[-1]
        for share in self._shares[-2::-1]:
            means = share.T @ means
            means = means.reshape(*means.shape[:-2], -1)
        return np.asarray(means)

    def image_means(self, values: FloatArray) -> FloatArray:
        """Return the means (...) of images over all pixels from those (..., cells) over each cell."""
        sizes = functools.reduce(np.multiply.outer, self._lengths).ravel()
        return np.asarray(values @ (sizes / sizes.sum()))

    def spread(self, values: FloatArray) -> FloatArray:
        """Return images (..., *axes) that have in each pixel the value (..., cells) of its cell."""
        grid = values.reshape(*values.shape[:-1], *map(len, self._starts))
        for axis, lengths in enumerate(self._lengths, start=values.ndim - 1):
            grid = np.repeat(grid, lengths, axis=axis)
        return np.asarray(grid)

    def covariances(self, autocovariance: FloatArray) -> FloatArray:
        """Return the covariances (cells, cells) of the means over cells, from those of pixels at every lag."""
        table = np.fft.ifftshift(autocovariance)
        for starts, lengths in zip(self._starts, self._lengths, strict=True):
            # The first axis, of lags, gives way to two of cells at the end.
            table = np.tensordot(table, _mean_pairs(starts, lengths), (0, 2))
        cells = math.prod(map(len, self._starts))
        return table.transpose(*range(0, table.ndim, 2), *range(1, table.ndim, 2)).reshape(cells, cells)


def _mean_pairs(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> FloatArray:
    """Return the share (m, m, 2 side - 1) of pairs of places, one in each of two cells, at each lag; lag zero first."""
    places = np.arange(lengths.sum())
    inside = (places >= starts[:, None]) & (places < (starts + lengths)[:, None])
    waves = np.fft.rfft(inside / lengths[:, None], n=2 * len(places) - 1)
    return np.fft.irfft(waves[:, None] * waves.conj(), n=2 * len(places) - 1)


def equal_strength(
    planes: FloatArray, used: NDArray[np.bool_], autocorrelation: FloatArray
) -> tuple[float, float] | None:
    """Test whether stationary noise is equally strong in all parts of the image.

    The logs of the mean absolute residuals are a table of cells and images. Do cells differ by more than they scatter
    from image to image? Fisher's F is computed twice, for any difference between cells and for a smooth one, a
    polynomial of degree two over the image, which few images show as well; the smaller p-value is doubled. Absolute
    values, because squares have heavier tails; logs, so that images with more noise than others do not count more. Two
    things are allowed for. Noise that is correlated makes neighbouring cells alike, so both degrees of freedom are
    multiplied by Box's epsilon (1954), from the squared correlations, which are those of squared residuals. And
    residuals of K images have the correlation -1 / (K - 1) between images, since their mean was removed.

    Planes, the pixels used and the autocorrelation are those of :func:`stationary_correlation`. Returned are the
    p-value, and the standard deviation of the log of the strength over the image; None if there are too few images or
    cells to tell.
    """
    count, cells = len(planes), Cells(used.shape)
    shares = cells.means(used.astype(np.float64))
    filled = shares > 0
    if count < 3 or filled.sum() < 2:
        return None
    sizes = cells.means(np.abs(planes).mean(axis=1))[:, filled] / shares[filled]
    logs = np.log(np.maximum(sizes, SMALLEST_SIZE))
    covariance = cells.covariances(autocorrelation**2)[np.ix_(filled, filled)]
    places = [cells.means(axis - axis.mean())[filled] for axis in np.indices(used.shape, dtype=np.float64)]
    smooth = np.stack([*places, *(first * second for first, second in combinations_with_replacement(places, 2))])
    between = -1 / (count - 1)
    # Correlation of the absolute values of two normal variables of that correlation.
    alike = (np.sqrt(1 - between**2) + between * np.arcsin(between) - 1) / (np.pi / 2 - 1)
    found = []
    for differences in (np.eye(logs.shape[1]), smooth):
        centred = differences - differences.mean(axis=1, keepdims=True)
        _, weights, basis = np.linalg.svd(centred, full_matrices=False)
        basis = basis[weights > RANK_TOLERANCE * weights.max()]
        parts, spread = logs @ basis.T, basis @ covariance @ basis.T
        mean = parts.mean(axis=0)
        within = ((parts - mean) ** 2).sum() / (count - 1) / (1 - alike)
        chance = within * (1 + (count - 1) * alike) / count
        degrees = np.trace(spread) ** 2 / (spread**2).sum()
        ratio = (mean @ mean) / max(chance, np.finfo(np.float64).tiny)
        deviation = np.sqrt(max(mean @ mean - chance, 0.0) / logs.shape[1])
        found.append((float(fdtrc(degrees, (count - 1) * degrees, ratio)), float(deviation)))
    pvalue, deviation = min(found)
    return min(1.0, len(found) * pvalue), deviation
