"""The gain of an image: the factor by which it is brighter than another one of the same scene."""

from __future__ import annotations

import numpy as np

from attentest.errors import InputError
from attentest.noise.protocol import FloatArray

MOST_ROUNDS = 50
GAIN_PRECISION = 1e-12
"""Relative change of the gains at which they are final."""

LEAST_SIMILARITY = 0.5
"""Least cosine between an image and the mean of the others: below it, more than 3/4 of the squares of its pixels are
not explained by a gain."""


def gain_against(image: FloatArray, mean: FloatArray) -> float:
    """Return the factor g of the mean image for which the sum of |image - g mean| is the least.

    It is the median of image / mean, weighted by |mean|, so that a lesion or a few bad pixels hardly change it.

    Parameters
    ----------
    image, mean
        Images of one shape.
    """
    weights = np.abs(mean).ravel()
    used = weights > 0
    if not used.any():
        return 0.0
    ratios = image.ravel()[used] / mean.ravel()[used]
    order = np.argsort(ratios, kind="stable")
    cumulated = np.cumsum(weights[used][order])
    return float(ratios[order][np.searchsorted(cumulated, cumulated[-1] / 2)])


def image_gains(images: FloatArray) -> FloatArray:
    """Return the gains (K,) of images (K, C, H, W) of one scene against each other; their median is 1."""
    _check_similarity(images)
    gains = np.ones(len(images))
    for _ in range(MOST_ROUNDS):
        mean = (images / gains[:, None, None, None]).mean(axis=0)
        found = np.array([gain_against(image, mean) for image in images])
        if found.min() <= 0:
            _refuse(int(found.argmin()))
        found /= np.median(found)
        done = np.abs(found / gains - 1).max() <= GAIN_PRECISION
        gains = found
        if done:
            break
    return gains


def _check_similarity(images: FloatArray) -> None:
    flat = images.reshape(len(images), -1)
    flat = flat / np.abs(flat).max(axis=1, keepdims=True).clip(min=np.finfo(float).tiny)
    total = flat.sum(axis=0)
    for number, image in enumerate(flat):
        others = total - image
        scale = np.linalg.norm(image) * np.linalg.norm(others)
        if scale == 0 or image @ others < LEAST_SIMILARITY * scale:
            _refuse(number)


def _refuse(number: int) -> None:
    raise InputError(
        f"reference image {number + 1} is not the same scene as the others up to a gain, so that no gain can be "
        "estimated: leave it out, or estimate the noise with one gain for all images."
    )
