"""Whether a tested image can have the noise that a noise model says: a comparison of their finest details."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from attentest.noise.model import SMALLEST_SIGMA, FloatArray, NoiseModel, complete
from attentest.noise.tested_image import MEDIAN_OF_NOISE, block_corners, haar_details

TOO_STRONG = 0.5  # details smaller than this, relative to what the noise alone would make them, cannot be

TOO_WEAK = 20.0
"""Details larger than this, relative to the noise, are seldom due to the content of an image, and rather to units."""

FEWEST_DETAILS = 64
"""Fewest details to judge by, those of 16 x 16 pixels: in 2,000 images of pure noise the ratio was 0.7 to 1.5."""

NO_NOISE = ("the image is constant", "the image has only two values")
"""Beginnings of the sentences about an image without any detail, and about a mask."""

SMOOTHER = "less than the noise alone would make them differ"
"""Part of the sentence about an image whose details are too small; in the other they are too large."""

BLOCKS_TOGETHER = 2**16  # blocks of two pixels along each axis whose details are computed at a time


def noise_doubts(images: FloatArray, noise: Sequence[NoiseModel]) -> list[str | None]:
    """Return for each image a sentence if it cannot have the noise that its noise model says, or None.

    The signal makes an image rougher than its noise, never smoother. So an image (C, *axes) whose finest details
    (differences along all axes in blocks of two pixels), edges included, are much smaller than the noise alone would
    make them does not have this noise; one in which even the median detail is very much larger is probably in other
    units. Constant areas are left out, and so are pixels that are cut off at the ends of the range. Where this leaves
    too little, as in a mask, the whole range of the image is compared with the noise instead: no detail is larger.
    """
    models = {id(model): model for model in noise}
    deviations_of = {key: detail_deviations(model, images.shape[1:]) for key, model in models.items()}
    predicted = np.array([deviations_of[id(model)] for model in noise])
    doubts: list[str | None] = [None] * len(images)
    axes = tuple(range(2, images.ndim))
    enough = math.prod(side // 2 for side in images.shape[2:]) >= FEWEST_DETAILS
    ends = np.array([images.min(axis=axes), images.max(axis=axes)])
    few = np.ones(len(images), dtype=bool)
    for channel in range(images.shape[1]):
        planes, deviations = images[:, channel], predicted[:, channel]
        count, mean_square = _mean_squares(planes, deviations)
        judged = (deviations >= SMALLEST_SIGMA) & enough
        few &= count < FEWEST_DETAILS
        span = (ends[1] - ends[0])[:, channel] / np.where(judged, deviations, 1.0)
        largest = np.where(count < FEWEST_DETAILS, np.where(span < TOO_STRONG, span, 1.0), np.sqrt(mean_square))
        # Half of the squares are at least that of the median, so it is seldom worth sorting for.
        ordinary = (largest >= TOO_STRONG) & (largest * math.sqrt(2) <= TOO_WEAK * MEDIAN_OF_NOISE)
        of = f" in channel {channel}" if images.shape[1] > 1 else ""
        for image in np.flatnonzero(judged & ~ordinary).tolist():
            if doubts[image] is None:
                doubts[image] = _doubt(planes[image], float(deviations[image]), float(largest[image]), of)
    constant = (ends[0] == ends[1]).all(axis=1)
    for image in np.flatnonzero(constant | (few & enough)).tolist():
        low, high = np.expand_dims(ends[:, image], axes)
        if constant[image] or ((images[image] == low) | (images[image] == high)).all():
            seen = NO_NOISE[0 if constant[image] else 1]
            doubts[image] = f"{seen}: it does not have the assumed noise, which would make its pixels differ."
    return doubts


def _doubt(plane: FloatArray, deviation: float, largest: float, of: str) -> str | None:
    """Return the sentence about a channel (*axes), if there is one, from the root mean square of its details."""
    if largest < TOO_STRONG:
        return (
            f"neighbouring pixels of the image differ{of} {_times(1 / max(largest, SMALLEST_SIGMA))} {SMOOTHER}: the "
            "noise model is too strong, in other units, or lacks the correlation of neighbours."
        )
    details = np.concatenate([part[used] for _, part, used in _details(plane[None])]) / deviation
    median = float(np.median(np.abs(details, out=details), overwrite_input=True)) / MEDIAN_OF_NOISE
    if median > TOO_WEAK:
        return (
            f"neighbouring pixels of the image differ{of} {_times(median)} more than the noise would make them "
            "differ: check that image and noise model are in the same units."
        )
    return None


def _times(ratio: float) -> str:
    return "more than 10,000 times" if ratio > 10_000 else f"{ratio:.2g} times" if ratio < 100 else f"{ratio:.0f} times"


def _mean_squares(planes: FloatArray, deviations: FloatArray) -> tuple[NDArray[np.int64], FloatArray]:
    """Return the number (k,) of details of channels (k, *axes), and the mean squares (k,) of details / deviations.

    Deviations below ``SMALLEST_SIGMA``, with which nothing is compared, count as 1.
    """
    scale = np.where(deviations < SMALLEST_SIGMA, 1.0, deviations)
    count, total = np.zeros(len(planes), dtype=np.int64), np.zeros(len(planes))
    for images, details, used in _details(planes):
        flat = details.reshape(len(details), -1)
        flat /= scale[images, None]
        flat[~used.reshape(flat.shape)] = 0.0
        count[images] += np.count_nonzero(used, axis=tuple(range(1, used.ndim)))
        total[images] += np.einsum("ki,ki->k", flat, flat)
    return count, total / np.maximum(count, 1)


def _details(planes: FloatArray) -> Iterator[tuple[slice, FloatArray, NDArray[np.bool_]]]:
    """Yield the Haar coefficients of channels (k, *axes), some at a time: a large image is not copied as a whole.

    With the m channels that they are of come the coefficients of their blocks in some rows, and where in these blocks
    the channels are neither constant nor cut off.
    """
    axes = tuple(range(1, planes.ndim))
    ends = planes.min(axis=axes, keepdims=True), planes.max(axis=axes, keepdims=True)
    height, *others = (side // 2 for side in planes.shape[1:])
    width = max(1, math.prod(others))
    rows = max(1, min(height, BLOCKS_TOGETHER // width))
    step = max(1, BLOCKS_TOGETHER // (rows * width))
    for image in range(0, len(planes), step):
        images = slice(image, image + step)
        for row in range(0, height, rows):
            corners = block_corners(planes[images, 2 * row : 2 * min(row + rows, height)], len(axes))
            used = functools.reduce(np.minimum, corners) < functools.reduce(np.maximum, corners)
            low, high = (sum((corner == end[images]).view(np.uint8) for corner in corners) for end in ends)
            used &= (np.maximum(low, high) <= 1) & (low + high < len(corners))
            yield images, haar_details(corners), used


def detail_deviations(noise: NoiseModel, shape: tuple[int, ...]) -> FloatArray:
    """Return the standard deviation (C,) of a detail by the model, the median over a few places."""
    channels, *sides = shape
    deviations = np.zeros(channels)
    if min(sides) < 2:
        return deviations
    model, weights = complete(noise), haar_details(list(np.eye(2 ** len(sides))))
    corners = np.array([np.ravel_multi_index(corner, sides) for corner in product((0, 1), repeat=len(sides))])
    shares = [(0.5,) * len(sides), *product((0.25, 0.75), repeat=len(sides))]
    starts = [[int(share * (side - 2)) for share, side in zip(place, sides, strict=True)] for place in shares]
    for channel in range(channels):
        places = [np.ravel_multi_index([channel, *start], shape) + corners for start in starts]
        variances = [float(weights @ model.covariances(place, math.prod(shape)) @ weights) for place in places]
        deviations[channel] = np.sqrt(max(float(np.median(variances)), 0.0))
    return deviations
