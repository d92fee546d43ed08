"""Whether a tested image can have the noise that a noise model says: a comparison of their finest details."""

from __future__ import annotations

import functools
import math

import numpy as np

from attentest.noise.few_pixels import few_pixels_variance
from attentest.noise.parameters import SMALLEST_SIGMA
from attentest.noise.protocol import FloatArray, NoiseModel
from attentest.noise.tested_image import MEDIAN_OF_NOISE

TOO_STRONG = 0.5
"""Details smaller than this, relative to what the noise alone would make them, cannot be."""

TOO_WEAK = 20.0
"""Details larger than this, relative to the noise, are seldom due to the content of an image, and rather to units."""

FEWEST_DETAILS = 64
"""Fewest details to judge by, those of 16 x 16 pixels: in 2,000 images of pure noise the ratio was 0.7 to 1.5."""

BLOCKS_TOGETHER = 2**16
"""Blocks of 2 x 2 pixels whose details are computed at a time."""


def implausible_noise(noise: NoiseModel, pixels: FloatArray, deviations: FloatArray | None = None) -> str | None:
    """Return a sentence if an image cannot have the noise that a model says, or None.

    The signal makes an image rougher than its noise, never smoother. So an image whose finest details (differences of
    diagonal neighbours in 2 x 2 pixels), edges included, are much smaller than the noise alone would make them does not
    have this noise; one in which even the median detail is very much larger is probably in other units. Constant areas
    are left out, and so are pixels that are cut off at the ends of the range.

    Parameters
    ----------
    noise
        The noise model.
    pixels : (C, H, W)
        The image.
    deviations : (C,)
        What :func:`detail_deviations` returned for the noise model, where it is known from another image.
    """
    predicted = detail_deviations(noise, pixels.shape) if deviations is None else deviations
    for channel, plane in enumerate(pixels):
        details = _details(plane)
        if len(details) < FEWEST_DETAILS or predicted[channel] < SMALLEST_SIGMA:
            continue
        details /= predicted[channel]
        largest = float(np.sqrt(details @ details / len(details)))
        of = f" in channel {channel}" if len(pixels) > 1 else ""
        if largest < TOO_STRONG:
            return (
                f"neighbouring pixels of the image differ{of} {_times(1 / max(largest, SMALLEST_SIGMA))} less than the "
                "noise alone would make them differ: the noise model is too strong, in other units, or lacks the "
                "correlation of neighbours."
            )
        # Half of the squares are at least that of the median, so it is seldom worth sorting for.
        if largest * math.sqrt(2) <= TOO_WEAK * MEDIAN_OF_NOISE:
            continue
        median = float(np.median(np.abs(details, out=details), overwrite_input=True)) / MEDIAN_OF_NOISE
        if median > TOO_WEAK:
            return (
                f"neighbouring pixels of the image differ{of} {_times(median)} more than the noise would make them "
                "differ: check that image and noise model are in the same units."
            )
    return None


def _times(ratio: float) -> str:
    return "more than 10,000 times" if ratio > 10_000 else f"{ratio:.2g} times" if ratio < 100 else f"{ratio:.0f} times"


def _details(plane: FloatArray) -> FloatArray:
    """Return the diagonal Haar coefficients (m,) of an image (H, W), where it is neither constant nor cut off."""
    ends = plane.min(), plane.max()
    height, width = (side // 2 for side in plane.shape)
    # Some rows at a time, so that a large image is never copied as a whole.
    rows = max(1, BLOCKS_TOGETHER // max(1, width))
    parts = [_details_of(plane[2 * i : 2 * min(i + rows, height), : 2 * width], ends) for i in range(0, height, rows)]
    return np.concatenate(parts) if parts else np.empty(0)


def _details_of(plane: FloatArray, ends: tuple[float, float]) -> FloatArray:
    """Return those (m,) of some rows, of even height and width; ``ends`` are the least and greatest pixel of all."""
    corners = plane[::2, ::2], plane[::2, 1::2], plane[1::2, ::2], plane[1::2, 1::2]
    low, high = functools.reduce(np.minimum, corners), functools.reduce(np.maximum, corners)
    used = low < high
    for end in ends:
        used &= sum((corner == end).astype(np.uint8) for corner in corners) <= 1
    first, second, third, fourth = (corner[used] for corner in corners)
    return np.asarray((first - second - third + fourth) / 2)


def detail_deviations(noise: NoiseModel, shape: tuple[int, ...]) -> FloatArray:
    """Return the standard deviation (C,) of a detail by the model, the median over a few places."""
    channels, height, width = shape
    if min(height, width) < 2:
        return np.zeros(channels)
    places = [
        (int(down * (height - 2)), int(across * (width - 2)))
        for down, across in ((0.5, 0.5), (0.25, 0.25), (0.25, 0.75), (0.75, 0.25), (0.75, 0.75))
    ]
    n = channels * height * width
    corners, weights = np.array([0, 1, width, width + 1]), np.array([0.5, -0.5, -0.5, 0.5])
    found = np.zeros(channels)
    for channel in range(channels):
        first = [(channel * height + row) * width + column for row, column in places]
        variances = [few_pixels_variance(noise, place + corners, weights, n) for place in first]
        found[channel] = np.sqrt(max(float(np.median(variances)), 0.0))
    return found
