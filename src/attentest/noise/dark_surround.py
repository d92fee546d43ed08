"""The dark surround of the object in a scan, which does not have the noise of the object."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError
from attentest.noise.protocol import FloatArray

LARGEST_RATIO = 1 / 3
"""Details of a surround are at most this share of those of the object."""

LEAST_BLOCKS = 16
"""Least number of blocks in the surround and in the object: the median of 16 details has a relative error of 29%, so
that two parts with the same noise hardly ever differ by a factor of three."""

WINDOW = 3
"""Side of the square whose median decides whether a pixel is dark: by its own value, dark pixels of pure noise would
have less noise than others, because they all lie on one side of the threshold."""

HISTOGRAM_BINS = 256


def object_blocks(plane: FloatArray, details: FloatArray) -> NDArray[np.bool_]:
    """Return which blocks of 2 x 2 pixels, (h, w), have the noise of the object: all if there is no dark surround.

    A surround is a dark area at the border with far smaller details than the rest of the image has.

    Parameters
    ----------
    plane : (H, W)
        Brightness of the image.
    details : (h, w)
        Absolute detail coefficient of each block; a last row or column that is in no block is left out.
    """
    height, width = details.shape
    pixels = _dark_area(plane)[: 2 * height, : 2 * width].reshape(height, 2, width, 2)
    surround, rest = pixels.all(axis=(1, 3)), np.logical_not(pixels.any(axis=(1, 3)))
    everything = np.ones(details.shape, dtype=bool)
    if surround.sum() < LEAST_BLOCKS or not rest.any():
        return everything
    if np.median(details[surround]) > LARGEST_RATIO * np.median(details[rest]) or not details[rest].any():
        return everything
    if rest.sum() >= LEAST_BLOCKS:
        return rest
    if surround.sum() < details.size / 2:
        return everything
    raise InputError(
        f"the image is a dark surround but for {rest.sum()} blocks of 2 x 2 pixels, and at least {LEAST_BLOCKS} are "
        "needed to estimate the noise of what is in it: give the noise as a standard deviation, or estimate it from "
        "reference images."
    )


def _dark_area(plane: FloatArray) -> NDArray[np.bool_]:
    """Return the pixels (H, W) that are connected with the border through pixels up to Otsu's threshold."""
    from scipy.ndimage import label, median_filter  # here because scipy.ndimage is slow to import

    scale = np.abs(plane).max()  # so that squares of large values do not overflow
    smooth = median_filter(plane / scale if scale > 0 else plane, WINDOW)
    labels, _ = label(smooth <= _otsu_threshold(smooth))
    border = np.concatenate([labels[0], labels[-1], labels[:, 0], labels[:, -1]])
    return np.isin(labels, np.unique(border[border > 0]))


def _otsu_threshold(plane: FloatArray) -> float:
    """Return the value that divides pixels into two classes with the least variance within them (Otsu 1979)."""
    counts, edges = np.histogram(plane, HISTOGRAM_BINS)
    sums, below = np.cumsum(counts * (edges[1:] + edges[:-1]) / 2), np.cumsum(counts)
    # The variance between the classes below and above each edge, times the square of the number of pixels.
    weight = np.maximum(below * (plane.size - below), 1.0)
    between = (sums[-1] * below - sums * plane.size) ** 2 / weight
    return float(edges[1 + np.argmax(between)])
