"""Statistics of residuals: correlation by lag, standard errors of means, analysis of variance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache, reduce

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfftn, next_fast_len, rfftn

from attentest.noise.model import FloatArray
from attentest.noise.stationary import STEPS

NEAR = 3
"""Largest lag along each axis whose correlations are tested one by one; longer ones are averaged in rings."""

LONGEST_SHARE = 0.5
"""Longest lag, as a share of a side: beyond it there are few pairs of pixels."""


TRANSFORMED_TOGETHER = 2**16
"""Most coefficients of transforms that are computed together: few fields at a time stay in the cache, while small ones
would cost more in calls than in computing."""


def autocorrelation(fields: FloatArray) -> FloatArray:
    """Return the correlation of pixels at each lag, averaged over fields (m, *axes) of mean 0.

    Returns
    -------
    array of shape (2P+1, 2Q+1) for two axes, and so on
        Correlations at lags from -P to P and from -Q to Q, where P and Q are half of the sides; 1 in the middle.
    """
    sides, axes = fields.shape[1:], range(1, fields.ndim)
    reach = [max(1, int(LONGEST_SHARE * side)) for side in sides]
    # Padded with zeros, so that no product of two pixels up to the longest lag wraps around.
    torus = [next_fast_len(side + longest, real=True) for side, longest in zip(sides, reach, strict=True)]
    power = np.zeros((*torus[:-1], torus[-1] // 2 + 1))
    together = max(1, TRANSFORMED_TOGETHER // power.size)
    for start in range(0, len(fields), together):
        waves = rfftn(fields[start : start + together], s=torus, axes=axes)
        power += sum(np.einsum("m...,m...->...", part, part) for part in (waves.real, waves.imag))
    sums = np.asarray(irfftn(power, s=torus))
    lags = [np.arange(-longest, longest + 1) for longest in reach]
    pairs = reduce(np.multiply.outer, [side - np.abs(along) for side, along in zip(sides, lags, strict=True)])
    covariances = sums[np.ix_(*lags)] / np.maximum(pairs, 1)
    return np.asarray(covariances / max(float(covariances[tuple(reach)]), np.finfo(np.float64).tiny))


def lag_values(correlation: FloatArray) -> FloatArray:
    """Return correlations at short lags, and averages over rings of longer ones; opposite lags count once."""
    near, rings = _lag_groups(*(side // 2 for side in correlation.shape))
    return np.concatenate([correlation[near], [correlation[ring].mean() for ring in rings.values()]])


def lag_names(correlation: FloatArray) -> list[str]:
    """Return what each of the values of :func:`lag_values` is about."""
    middle = [side // 2 for side in correlation.shape]
    near, rings = _lag_groups(*middle)
    names = []
    for lags in (np.argwhere(near) - middle).tolist():
        parts: list[str] = []
        for lag, (units, _) in zip(lags, STEPS[len(lags)], strict=True):
            if lag:  # the first of several has no direction, because opposite lags are the same
                direction = DIRECTIONS[units][lag > 0] if parts else ""
                parts.append(f"{abs(lag)} {units if abs(lag) > 1 else units[:-1]}{direction}")
        names.append(f"{' and '.join(parts)} apart")
    return [*names, *rings]


DIRECTIONS = {"rows": (" up", " down"), "columns": (" to the left", " to the right")}
"""Words for negative and positive lags."""


@cache
def _lag_groups(*reach: int) -> tuple[NDArray[np.bool_], dict[str, NDArray[np.bool_]]]:
    """Return masks, of the shape of the correlations, of the short lags, and of rings of longer ones by their names."""
    sides = [2 * longest + 1 for longest in reach]
    numbers = np.arange(math.prod(sides)).reshape(sides)
    once = numbers > numbers.size // 2  # the later ones of each two opposite lags
    distance = reduce(np.maximum.outer, [np.abs(np.arange(-longest, longest + 1)) for longest in reach])
    rings = {}
    start, longest = NEAR + 1, max(reach)
    while start <= longest:
        end = start + start // 2  # rings that widen with the lag: 4 to 6, 7 to 10, 11 to 16, ...
        rings[f"{start} to {min(end, longest)} pixels apart"] = once & (distance >= start) & (distance <= end)
        start = end + 1
    return once & (distance <= NEAR), rings


def region_sides(shape: Sequence[int]) -> list[int]:
    """Return the sides of square regions or cubes for which standard errors are compared: 2, 4, ... up to half."""
    longest = max(1, min(int(LONGEST_SHARE * side) for side in shape))
    return [side for side in (2**power for power in range(1, 20)) if side <= longest] or [longest]


def mean_deviations(correlation: FloatArray, sides: list[int]) -> FloatArray:
    """Return the standard deviation of the mean over a region of equal sides, in units of that of a pixel.

    The variance of a mean is the average of the correlations over all pairs of pixels in the region. Sides in pixels
    are at most one more than the longest lags of the :func:`autocorrelation`.
    """
    lags = [np.abs(np.arange(-(side // 2), side // 2 + 1)) for side in correlation.shape]
    averages = []
    for side in sides:
        pairs = reduce(np.multiply.outer, [np.maximum(side - along, 0) for along in lags])
        averages.append(float((pairs * correlation).sum()) / side ** (2 * len(lags)))
    # Measured correlations need not be those of a covariance, so the average may be negative by chance.
    return np.sqrt(np.maximum(averages, 0.0))


def row_effects(tables: Iterable[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Return whether the rows of tables (K, m) differ by more than their entries do: two-way analyses of variance.

    Returns
    -------
    ratios
        For each table the mean square between rows, divided by that of what remains without the effects of rows and of
        columns.
    deviations
        Standard deviations of the effects of rows, without the part that chance explains.
    """
    ratios, deviations = [], []
    for table in tables:
        count, width = table.shape
        mean = table.mean()
        of_rows, of_columns = table.mean(axis=1) - mean, table.mean(axis=0) - mean
        rest = table - of_rows[:, None]
        rest -= of_columns + mean
        between = width * float(of_rows @ of_rows) / (count - 1)
        flat = rest.ravel("K")  # in the order of memory, which needs no copy of a transposed table
        within = float(flat @ flat) / ((count - 1) * (width - 1))
        ratios.append(between / max(within, np.finfo(np.float64).tiny))
        deviations.append(np.sqrt(max(between - within, 0.0) / width))
    return np.array(ratios), np.array(deviations)
