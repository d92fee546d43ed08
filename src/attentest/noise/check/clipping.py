"""Pixels exactly at the least or at the greatest value, where the range of the images cuts the noise off."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attentest.noise.protocol import FloatArray

RESOLUTION = 1e-9
"""Values closer than this share of their range are the same."""

LONGEST_GRID = 2**16
"""Most different values that are taken for numbers on a grid, such as grey levels of 16 bits."""


MOST_BINS = 64
"""Most bins of a histogram."""


@dataclass(frozen=True, kw_only=True)
class ValueRange:
    """The values that images have.

    Parameters
    ----------
    low, high
        Least and greatest value.
    step
        Distance of neighbouring grey levels; 0 where values do not lie on a grid.
    """

    low: float
    high: float
    step: float


def value_range(values: FloatArray) -> ValueRange:
    """Return the range of all values of some images, and the grid that they lie on."""
    low, high = float(values.min()), float(values.max())
    unit = max((high - low) * RESOLUTION, float(np.finfo(np.float64).tiny))
    levels = np.unique(np.round((values - low) / unit))
    step = 0.0
    if 2 <= len(levels) <= min(LONGEST_GRID, values.size // 2):
        step = float(np.median(np.diff(levels))) * unit
    return ValueRange(low=low, high=high, step=step)


def bin_edges(values: ValueRange) -> FloatArray:
    """Return the edges of about 64 equal bins; each has the same number of grey levels if there are such."""
    if values.step == 0:
        return np.linspace(values.low, values.high, MOST_BINS + 1)
    levels = round((values.high - values.low) / values.step) + 1
    width = -(-levels // MOST_BINS)
    return np.asarray(values.low + values.step * (width * np.arange(-(-levels // width) + 1) - 0.5), np.float64)


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
