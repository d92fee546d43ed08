"""Statistics of residuals: correlation by lag, standard errors of means, analysis of variance."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft2, next_fast_len, rfft2

from attentest.noise.model import FloatArray

NEAR = 3
"""Largest lag along either side whose correlations are tested one by one; longer ones are averaged in rings."""

LONGEST_SHARE = 0.5
"""Longest lag, as a share of the shorter side: beyond it there are few pairs of pixels."""


TRANSFORMED_TOGETHER = 2**16
"""Most coefficients of transforms that are computed together: few fields at a time stay in the cache, while small ones
would cost more in calls than in computing."""


def autocorrelation(fields: FloatArray) -> FloatArray:
    """Return the correlation of pixels at each lag, averaged over fields (m, H, W) of mean 0.

    Returns
    -------
    array of shape (2P+1, 2Q+1)
        Correlations at lags from -P to P and from -Q to Q, where P and Q are half of the sides; 1 in the middle.
    """
    height, width = fields.shape[1:]
    down, across = (max(1, int(LONGEST_SHARE * side)) for side in (height, width))
    # Padded with zeros, so that no product of two pixels up to the longest lag wraps around.
    torus = next_fast_len(height + down, real=True), next_fast_len(width + across, real=True)
    power = np.zeros((torus[0], torus[1] // 2 + 1))
    together = max(1, TRANSFORMED_TOGETHER // power.size)
    for start in range(0, len(fields), together):
        waves = rfft2(fields[start : start + together], s=torus)
        power += sum(np.einsum("mij,mij->ij", part, part) for part in (waves.real, waves.imag))
    sums = np.asarray(irfft2(power, s=torus))
    lags_down, lags_across = np.arange(-down, down + 1), np.arange(-across, across + 1)
    pairs = (height - np.abs(lags_down))[:, None] * (width - np.abs(lags_across))
    covariances = sums[np.ix_(lags_down, lags_across)] / np.maximum(pairs, 1)
    return np.asarray(covariances / max(float(covariances[down, across]), np.finfo(np.float64).tiny))


def lag_values(correlation: FloatArray) -> FloatArray:
    """Return correlations at short lags, and averages over rings of longer ones; opposite lags count once.

    Parameters
    ----------
    correlation : (2P+1, 2Q+1)
        As :func:`autocorrelation` returns it.
    """
    near, rings = _lag_groups(correlation.shape[0] // 2, correlation.shape[1] // 2)
    return np.concatenate([correlation[near], [correlation[ring].mean() for ring in rings.values()]])


def lag_names(correlation: FloatArray) -> list[str]:
    """Return what each of the values of :func:`lag_values` is about."""
    middle = correlation.shape[0] // 2, correlation.shape[1] // 2
    near, rings = _lag_groups(*middle)
    names = []
    for down, across in (np.argwhere(near) - middle).tolist():
        rows = [f"{down} row{'s' * (down > 1)}"] if down else []
        sideways = "" if not down or not across else " to the right" if across > 0 else " to the left"
        columns = [f"{abs(across)} column{'s' * (abs(across) > 1)}{sideways}"] if across else []
        names.append(f"{' and '.join([*rows, *columns])} apart")
    return [*names, *rings]


@cache
def _lag_groups(most_down: int, most_across: int) -> tuple[NDArray[np.bool_], dict[str, NDArray[np.bool_]]]:
    """Return masks (2P+1, 2Q+1) of the short lags, and of rings of longer ones by their names."""
    down, across = np.mgrid[-most_down : most_down + 1, -most_across : most_across + 1]
    once = (down > 0) | ((down == 0) & (across > 0))
    distance = np.maximum(np.abs(down), np.abs(across))
    rings = {}
    start, longest = NEAR + 1, max(most_down, most_across)
    while start <= longest:
        end = start + start // 2  # rings that widen with the lag: 4 to 6, 7 to 10, 11 to 16, ...
        rings[f"{start} to {min(end, longest)} pixels apart"] = once & (distance >= start) & (distance <= end)
        start = end + 1
    return once & (distance <= NEAR), rings


def region_sides(shape: tuple[int, int]) -> list[int]:
    """Return the sides of square regions for which standard errors are compared: 2, 4, ... up to half of the image."""
    longest = max(1, min(int(LONGEST_SHARE * side) for side in shape))
    return [side for side in (2**power for power in range(1, 20)) if side <= longest] or [longest]


def mean_deviations(correlation: FloatArray, sides: list[int]) -> FloatArray:
    """Return the standard deviation of the mean over a square region for each side, in units of that of a pixel.

    The variance of a mean is the average of the correlations over all pairs of pixels in the region.

    Parameters
    ----------
    correlation : (2P+1, 2Q+1)
        As :func:`autocorrelation` returns it.
    sides
        Sides in pixels, at most P + 1 and Q + 1.
    """
    down, across = (np.abs(np.arange(-(side // 2), side // 2 + 1)) for side in correlation.shape)
    averages = []
    for side in sides:
        pairs = np.maximum(side - down, 0)[:, None] * np.maximum(side - across, 0)
        averages.append(float((pairs * correlation).sum()) / side**4)
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
