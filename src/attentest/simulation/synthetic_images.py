"""The paper's synthetic images (section 4): Gaussian noise, with or without a bright square."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError
from attentest.noise import Isotropic, NoiseLike, as_noise

UNIT_NOISE = Isotropic(1.0)
"""The noise of the paper's images."""


def null_images(rng: np.random.Generator, count: int, size: int, noise: NoiseLike = UNIT_NOISE) -> NDArray[np.float64]:
    """Draw images of zero mean.

    Parameters
    ----------
    rng
        Source of randomness.
    count, size
        Number of images and side of each in pixels.
    noise
        Noise model, or the standard deviation of independent noise.

    Returns
    -------
    images : (count, size, size) float64
    """
    if count < 1 or size < 1:
        raise InputError(f"count and size must be at least 1, got count={count} and size={size}.")
    return as_noise(noise).sample(rng, count, size * size).reshape(count, size, size)


def signal_images(
    rng: np.random.Generator,
    count: int,
    size: int,
    delta: float | tuple[float, float],
    noise: NoiseLike = UNIT_NOISE,
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Draw images whose mean is ``delta`` on a square of side ``size // 3`` placed at random.

    Parameters
    ----------
    rng, count, size, noise
        As in :func:`null_images`; ``size`` must be at least 3.
    delta
        Strength of the signal, or a pair (low, high) to draw it uniformly for each image.

    Returns
    -------
    images : (count, size, size) float64
    squares : (count, size, size) bool
        The pixels that have the signal.
    """
    if size < 3:
        raise InputError(f"a signal image needs size >= 3, got {size}.")
    side = size // 3
    low, high = delta if isinstance(delta, tuple) else (delta, delta)
    strength = rng.uniform(low, high, count)
    corner = rng.integers(0, size - side + 1, (count, 2))
    offset = np.arange(size) - corner[..., None]  # (count, 2, size)
    inside = (offset >= 0) & (offset < side)
    squares = inside[:, 0, :, None] & inside[:, 1, None, :]
    images = null_images(rng, count, size, noise) + strength[:, None, None] * squares
    return images, squares
