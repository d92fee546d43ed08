"""Whether noise is equally strong everywhere in the image: an analysis of variance over cells of reference images."""

from __future__ import annotations

import functools
import math
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

from attentest.noise.model import FloatArray

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
