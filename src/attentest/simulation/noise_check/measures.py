"""What is measured on residuals for each assumption about the noise: correlations by lag and analyses of variance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfftn, next_fast_len, rfftn
from scipy.special import ndtri

from attentest.noise.model import FloatArray
from attentest.noise.residuals import Cells
from attentest.noise.stationary import STEPS

NEAR = 3  # largest lag along each axis whose correlations are tested one by one; longer ones are averaged in rings
LONGEST_SHARE = 0.5  # longest lag, as a share of a side: beyond it there are few pairs of pixels

TRANSFORMED_TOGETHER = 2**16
"""Most coefficients of transforms that are computed together: few fields at a time stay in the cache, while small ones
would cost more in calls than in computing."""


def autocorrelation(fields: FloatArray) -> FloatArray:
    """Return the correlation of pixels at each lag, averaged over fields (m, *axes) of mean 0.

    Lags are from -P to P, where P is half of a side, along each axis: (2P+1, 2Q+1) for two axes, with 1 in the middle.
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

    Returned are, for each table, the mean square between rows, divided by that of what remains without the effects of
    rows and of columns; and standard deviations of the effects of rows, without the part that chance explains.
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


RESOLUTION = 1e-9  # values closer than this share of their range are the same
LONGEST_GRID = 2**16  # most different values that are taken for numbers on a grid, such as grey levels of 16 bits
MOST_BINS = 64  # most bins of a histogram


def grey_step(values: FloatArray) -> float:
    """Return the distance of neighbouring grey levels of images; 0 where values do not lie on a grid."""
    low, high = float(values.min()), float(values.max())
    unit = max((high - low) * RESOLUTION, float(np.finfo(np.float64).tiny))
    levels = np.unique(np.round((values - low) / unit))
    on_a_grid = 2 <= len(levels) <= min(LONGEST_GRID, values.size // 2)
    return float(np.median(np.diff(levels))) * unit if on_a_grid else 0.0


def bin_edges(low: float, high: float, step: float) -> FloatArray:
    """Return the edges of about 64 equal bins; each has the same number of grey levels of a step if that is not 0."""
    if step == 0:
        return np.linspace(low, high, MOST_BINS + 1)
    levels = round((high - low) / step) + 1
    width = -(-levels // MOST_BINS)
    return np.asarray(low + step * (width * np.arange(-(-levels // width) + 1) - 0.5), np.float64)


def at_the_ends(values: FloatArray) -> FloatArray:
    """Return how many values (K, ...) lie exactly at the least, and at the greatest, value of all images (2,).

    One value for each image does not count: an image that was scaled to a range has one by necessity.
    """
    low, high = values.min(), values.max()
    near = (high - low) * RESOLUTION
    flat = values.reshape(len(values), -1)
    counts = [(flat <= low + near).sum(axis=1), (flat >= high - near).sum(axis=1)]
    return np.array([np.maximum(count - 1, 0).sum() for count in counts], dtype=np.float64)


def on_grid(values: FloatArray, step: float) -> FloatArray:
    """Return values rounded to grey levels of a step; as they are where it is 0."""
    return values if step == 0 else np.round(values / step) * step


SCALE: Final = "scale"
GAUSSIAN: Final = "Gaussian"
STATIONARY: Final = "variance map"
CORRELATION: Final = "correlation"
INDEPENDENCE: Final = "independent images"
GAIN: Final = "equal gain"
BRIGHTNESS: Final = "equal brightness"
CLIPPING: Final = "no clipping"


def spreads(dimension: int) -> list[str]:
    """Return the scales at which the variance map is tested, in order; a signal has no places across its axis."""
    between = [f"between {units}" for units, _ in STEPS[dimension]] if dimension > 1 else []
    return ["in blocks", *between, "from pixel to pixel"]


PROBABILITIES = np.r_[0.0005, 0.001, 0.002, 0.005, 0.01:0.99:99j, 0.995, 0.998, 0.999, 0.9995]
"""Probabilities of the quantiles that are compared."""

NORMAL_QUANTILES: FloatArray = ndtri(PROBABILITIES)

MOST_SORTED = 2**15
"""Most values whose quantiles are taken; of more, every second, third, ... is."""

SMALLEST_SHARE = 1e-6
"""Standard deviations below this share of the average count as this: residuals of a masked area are exactly zero."""

HALF_NORMAL = float(np.sqrt(0.5))  # mean of exp(-u^2 / 2) for standard normal u


@dataclass(frozen=True, kw_only=True, eq=False)
class Measures:
    """What was measured on one set of images."""

    tested: Mapping[str, FloatArray]
    """For each assumption the numbers (d,) that are compared with those of simulated images."""
    effects: Mapping[str, FloatArray]
    """For each assumption the same in units that can be interpreted, (d,)."""
    quantiles: FloatArray
    """(q,). Quantiles of the standardised residuals at ``PROBABILITIES``."""
    correlation: FloatArray
    """Correlation by lag, as many axes as the images have."""
    image_scales: FloatArray
    image_means: FloatArray
    """(K,). Standard deviation, and mean, of each image's residuals, in units of the average standard deviation."""
    value_range: tuple[float, float]
    """Least and greatest pixel value."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredNoise(Measures):
    """What was measured on the images, beside what the noise model says, for pictures.

    The band of quantiles holds 95% of the sets of images drawn from the model at each point; those of images hold all
    images of 95% of the sets.
    """

    quantile_band: FloatArray
    """(2, q). Band of the quantiles."""
    variance_map: FloatArray
    """(*axes). Standard deviation of each pixel over the images divided by the model's, the mean over channels."""
    model_correlation: FloatArray
    """Correlation by lag of images drawn from the model."""
    scale_band: FloatArray
    mean_band: FloatArray
    """(2,). Bands of the standard deviations, and of the means, of images."""
    counts: FloatArray
    """(b,). Numbers of pixel values in equal parts of their range."""
    edges: FloatArray
    """(b+1,). Ends of these parts."""


class ResidualImages:
    """Residuals of a set of images, from which each assumption is measured by itself; what several need is kept.

    Residuals (K, C, *axes) are images minus their mean, and deviations (C, *axes) the standard deviations of the pixels
    by the noise model. The images themselves, the values (K, C, *axes), are for clipping.
    """

    def __init__(self, residuals: FloatArray, deviations: FloatArray, values: FloatArray) -> None:
        self._values, self._count = values, len(residuals)
        self._standard = residuals * (1 / deviations)  # faster than a division by pixels
        self._levels = self._standard.mean(axis=_axes(residuals), keepdims=True)
        self._standard -= self._levels  # brightness is a question of its own
        self._cells = _cells(residuals.shape[2:])
        self._energies = self._cells.means(self._standard * self._standard)
        self._average = _positive(float(np.sqrt(self._energies.mean())))

    @cached_property
    def _evened(self) -> tuple[FloatArray, FloatArray]:
        return _evened(self._standard, self._energies, self._cells)

    @cached_property
    def _centred(self) -> FloatArray:
        shape_only, _ = self._evened
        return np.asarray(shape_only - shape_only.mean(axis=_axes(shape_only), keepdims=True))

    @cached_property
    def _correlation(self) -> FloatArray:
        return autocorrelation(self._centred.reshape(-1, *self._centred.shape[2:]))

    def numbers(self, name: str) -> tuple[FloatArray, FloatArray]:
        """Return the numbers (d,) that are tested for an assumption, and the same in units that can be interpreted."""
        return self._measured[name]()

    @property
    def _measured(self) -> dict[str, Callable[[], tuple[FloatArray, FloatArray]]]:
        cells, least = self._cells, SMALLEST_SHARE * self._average
        return {
            SCALE: lambda: _scale(self._energies, self._count),
            CORRELATION: self._lags,
            STATIONARY: lambda: _variance_map(self._standard, self._energies, cells, least),
            GAUSSIAN: lambda: _gaussian(self._evened[0], cells, self._count),
            CLIPPING: lambda: ((ends := at_the_ends(self._values)), ends / self._values.size),
            GAIN: lambda: _between_images(np.log(np.maximum(cells.means(np.abs(self._standard)), least))),
            BRIGHTNESS: lambda: _between_images(self._brightness() / self._average),
            INDEPENDENCE: lambda: _independence(self._centred),
        }

    def _brightness(self) -> FloatArray:
        return np.asarray(self._cells.means(self._standard) + self._levels.reshape(*self._levels.shape[:2], 1))

    def _lags(self) -> tuple[FloatArray, FloatArray]:
        channels = np.moveaxis(self._centred, 1, 0).reshape(self._centred.shape[1], -1)
        between = _correlations(channels)[np.triu_indices(len(channels), 1)]
        lags = np.concatenate([lag_values(self._correlation), between])
        return lags, lags

    def measures(self) -> Measures:
        """Return all of it."""
        numbers = {name: measured() for name, measured in self._measured.items()}
        flat = self._evened[0].ravel()
        flat = np.sort(flat[:: -(-flat.size // MOST_SORTED)])
        return Measures(
            tested={name: tested for name, (tested, _) in numbers.items()},
            effects={name: effects for name, (_, effects) in numbers.items()},
            quantiles=np.interp(PROBABILITIES * (flat.size - 1), np.arange(flat.size), flat),
            correlation=self._correlation,
            image_scales=self._evened[1],
            image_means=self._levels.reshape(self._count, -1).mean(axis=1) / self._average,
            value_range=(float(self._values.min()), float(self._values.max())),
        )


def correlation_names(correlation: FloatArray, channels: int) -> list[str]:
    """Return what each number that is tested for the correlation is about."""
    between = [f"channels {first} and {second}" for first, second in combinations(range(channels), 2)]
    return [*(f"pixels {lag}" for lag in lag_names(correlation)), *between]


_cells = cache(Cells)  # of all sets of images of a check, so that it is made once


def _axes(images: FloatArray) -> tuple[int, ...]:
    """Return the numbers of the axes of images (K, C, *axes) after that of the channels."""
    return tuple(range(2, images.ndim))


def _positive(value: float) -> float:
    return max(value, float(np.finfo(np.float64).tiny))


def _evened(standard: FloatArray, energies: FloatArray, cells: Cells) -> tuple[FloatArray, FloatArray]:
    """Return residuals divided by the standard deviations of their cell and of their image, and those of the images."""
    of_cells = np.sqrt(energies.mean(axis=0))
    of_cells = np.maximum(of_cells, SMALLEST_SHARE * _positive(float(of_cells.max())))
    of_images = np.sqrt(cells.image_means(energies / of_cells / of_cells).mean(axis=1))
    of_images = np.maximum(of_images, SMALLEST_SHARE * _positive(float(of_images.max())))
    even = standard / cells.spread(of_cells)
    even /= np.expand_dims(of_images, (1, *_axes(even)))
    return even, of_images / np.sqrt((of_images**2).mean())


def _student(table: FloatArray) -> float:
    """Return the mean of a table in units of its standard error, taking its entries as independent."""
    return float(table.mean() / _positive(float(table.std()) / np.sqrt(table.size)))


def _scale(energies: FloatArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Return how far the variance of each channel is from the model's, and the ratio of standard deviations."""
    variances = energies.mean(axis=(0, 2)) * count / (count - 1)
    relative_errors = energies.std(axis=(0, 2)) / np.sqrt(energies[:, 0].size) / np.maximum(variances, 1e-300)
    logs = np.log(np.maximum(variances, 1e-300))
    return logs / np.maximum(relative_errors, 1e-300), np.sqrt(variances)


def _gaussian(even: FloatArray, cells: Cells, count: int) -> tuple[FloatArray, FloatArray]:
    """Return two bounded measures of skewness and of tails, and the skewness and the excess kurtosis.

    Moments of heavy tails are dominated by single values, so u exp(-u^2/2) and exp(-u^2/2) are averaged instead.
    """
    squares = even * even
    bell = np.exp(squares * -0.5)
    tails = _student(cells.means(bell) - HALF_NORMAL)
    bell *= even
    tested = [_student(cells.means(bell)), tails]
    # The residuals of the mean of K images have smaller cumulants than the images.
    of_image, of_others = 1 - 1 / count, -1 / count
    third, fourth = (of_image**power + (count - 1) * of_others**power for power in (3, 4))
    skewness = float(np.vdot(squares, even) / even.size) * of_image**1.5 / third
    kurtosis = (float(np.vdot(squares, squares) / even.size) - 3.0) * of_image**2 / fourth
    return np.array(tested), np.array([skewness, kurtosis])


def _between_images(table: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return whether images differ in tables (K, C, cells), for each channel, and by how much."""
    return row_effects(np.moveaxis(table, 1, 0))


def _variance_map(
    standard: FloatArray, energies: FloatArray, cells: Cells, least: float
) -> tuple[FloatArray, FloatArray]:
    """Return whether residuals (K, C, *axes) are larger in some places, at each of the ``spreads``, and by how much.

    With few images the second is too small, because the median is as close to the values as it can be.
    """
    # Absolute deviations from the median over images, by Brown and Forsythe: squares would have heavy tails, and an
    # outlier would shift the mean and so enlarge the residuals of all images in its pixel.
    ordered, count = np.sort(standard, axis=0), len(standard)  # faster than a median along the first axis
    sizes = standard - (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    np.abs(sizes, out=sizes)
    axes = _axes(sizes)
    of_channels = np.maximum(np.sqrt(energies.mean(axis=(0, 2))), least)
    sizes /= np.expand_dims(of_channels, [axis - 1 for axis in axes])
    others = [tuple(other for other in axes if other != axis) for axis in axes]
    parts = [cells.means(sizes), *(sizes.mean(axis=rest) for rest in others if rest)]
    tables = [np.log(np.maximum(part, SMALLEST_SHARE)) for part in parts]
    sizes /= np.maximum(sizes.mean(axis=(1, *axes), keepdims=True), SMALLEST_SHARE)
    tables.append(sizes)
    return row_effects(table.reshape(len(standard), -1).T for table in tables)


def _independence(centred: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return whether residuals of two images, or of successive images, are alike, and their correlations."""
    count = len(centred)
    correlations = _correlations(centred.reshape(count, -1)) + 1 / (count - 1)
    pairs = correlations[np.triu_indices(count, 1)]
    spread = _positive(float(np.sqrt((pairs**2).mean())))
    greatest, successive = float(pairs.max()), float(np.diag(correlations, 1).mean())
    tested = np.array([greatest / spread, successive * np.sqrt(count - 1) / spread])
    return tested, np.array([greatest, successive])


def _correlations(vectors: FloatArray) -> FloatArray:
    """Return the correlations (k, k) of vectors (k, n) of mean 0."""
    lengths = np.sqrt(np.einsum("ki,ki->k", vectors, vectors))
    return np.asarray(vectors @ vectors.T / np.maximum(np.outer(lengths, lengths), 1e-300))
