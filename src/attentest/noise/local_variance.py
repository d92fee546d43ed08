"""Whether noise is equally strong everywhere in the image: an analysis of variance over cells of reference images."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

from attentest.noise.model import FloatArray

SMALLEST_SIZE = 1e-6
"""Mean sizes of residuals below this, in standard deviations, count as this: those of a masked area are zero."""

RANK_TOLERANCE = 1e-9
"""Directions of differences between cells that are shorter than this, relative to the longest, are none."""

MOST_CELLS = 8
"""Most cells along a side."""

SMALLEST_CELL = 4
"""Least side of a cell in pixels, unless there would be fewer than two cells along the side."""


class Cells:
    """A division of images (H, W) into rectangular cells of nearly the same size, at most eight by eight.

    Parameters
    ----------
    shape
        Height and width of the images.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        counts = (min(MOST_CELLS, max(2, side // SMALLEST_CELL), side) for side in shape)
        edges = [np.linspace(0, side, count + 1).astype(np.int64) for side, count in zip(shape, counts, strict=True)]
        self._rows, self._columns = (ends[:-1] for ends in edges)
        self._heights, self._widths = map(np.diff, edges)
        self._down, self._across = (
            np.repeat(np.eye(len(lengths)) / lengths, lengths, axis=0) for lengths in (self._heights, self._widths)
        )

    def means(self, values: FloatArray) -> FloatArray:
        """Return the means (..., cells) of images (..., H, W) over each cell."""
        return np.asarray((self._down.T @ (values @ self._across)).reshape(*values.shape[:-2], -1))

    def image_means(self, values: FloatArray) -> FloatArray:
        """Return the means (...) of images over all pixels from those (..., cells) over each cell."""
        sizes = np.outer(self._heights, self._widths).ravel()
        return np.asarray(values @ (sizes / sizes.sum()))

    def spread(self, values: FloatArray) -> FloatArray:
        """Return images (..., H, W) that have in each pixel the value (..., cells) of its cell."""
        grid = values.reshape(*values.shape[:-1], len(self._rows), len(self._columns))
        return np.asarray(np.repeat(np.repeat(grid, self._heights, axis=-2), self._widths, axis=-1))

    def covariances(self, autocovariance: FloatArray) -> FloatArray:
        """Return the covariances (cells, cells) of the means over cells, from those of pixels by lag (2H-1, 2W-1)."""
        down, across = (
            _mean_pairs(starts, lengths)
            for starts, lengths in ((self._rows, self._heights), (self._columns, self._widths))
        )
        table = np.einsum("abi,ij,cdj->acbd", down, np.fft.ifftshift(autocovariance), across, optimize=True)
        return np.asarray(table.reshape(len(self._rows) * len(self._columns), -1))


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
    values, because squares have heavier tails; logs, so that images with more noise than others do not count more.
    Two things are allowed for. Noise that is correlated makes neighbouring cells alike, so both degrees of freedom are
    multiplied by Box's epsilon (1954), from the squared correlations, which are those of squared residuals. And
    residuals of K images have the correlation -1 / (K - 1) between images, since their mean was removed.

    Parameters
    ----------
    planes : (K, C, H, W)
        Residuals of K images, minus their mean, with variance 1; 0 where they are not used.
    used : (H, W)
        Whether a pixel is used.
    autocorrelation : (2H-1, 2W-1)
        Correlation of the residuals at each lag if they are stationary, 1 in the middle.

    Returns
    -------
    The p-value, and the standard deviation of the log of the strength over the image; None if there are too few images
    or cells to tell.
    """
    count, cells = len(planes), Cells(used.shape)
    shares = cells.means(used.astype(np.float64))
    filled = shares > 0
    if count < 3 or filled.sum() < 2:
        return None
    sizes = cells.means(np.abs(planes).mean(axis=1))[:, filled] / shares[filled]
    logs = np.log(np.maximum(sizes, SMALLEST_SIZE))
    covariance = cells.covariances(autocorrelation**2)[np.ix_(filled, filled)]
    rows, columns = (cells.means(axis - axis.mean())[filled] for axis in np.indices(used.shape, dtype=np.float64))
    smooth = np.stack([rows, columns, rows**2, rows * columns, columns**2])
    between = -1 / (count - 1)
    # Correlation of the absolute values of two normal variables of that correlation.
    alike = (np.sqrt(1 - between**2) + between * np.arcsin(between) - 1) / (np.pi / 2 - 1)
    found = []
    for differences in (np.eye(len(rows)), smooth):
        centred = differences - differences.mean(axis=1, keepdims=True)
        _, weights, basis = np.linalg.svd(centred, full_matrices=False)
        basis = basis[weights > RANK_TOLERANCE * weights.max()]
        parts, spread = logs @ basis.T, basis @ covariance @ basis.T
        mean = parts.mean(axis=0)
        within = ((parts - mean) ** 2).sum() / (count - 1) / (1 - alike)
        chance = within * (1 + (count - 1) * alike) / count
        degrees = np.trace(spread) ** 2 / (spread**2).sum()
        ratio = (mean @ mean) / max(chance, np.finfo(np.float64).tiny)
        deviation = np.sqrt(max(mean @ mean - chance, 0.0) / len(rows))
        found.append((float(fdtrc(degrees, (count - 1) * degrees, ratio)), float(deviation)))
    pvalue, deviation = min(found)
    return min(1.0, len(found) * pvalue), deviation
