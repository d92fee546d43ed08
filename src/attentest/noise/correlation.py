"""The correlation length of noise, and noise of the same variances with another one."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from attentest.checks import real_number
from attentest.errors import InputError
from attentest.noise.model import NoiseModel, check_noise


@runtime_checkable
class HasCorrelationLength(Protocol):
    """A noise model that belongs to a family with any correlation length; one of your own may, too."""

    def correlation_length(self) -> float:
        """Return the distance in pixels within which correlations fall to 1/e; 0 if pixels are independent."""

    def with_correlation_length(self, length: float, shape: tuple[int, int, int]) -> NoiseModel:
        """Return noise of images (C, H, W) with the same variances and a correlation length of 0 or more pixels."""


def correlation_length(noise: NoiseModel) -> float:
    """Return the distance in pixels within which the correlations of noise fall to 1/e; 0 if pixels are independent."""
    return _checked(noise).correlation_length()


def with_correlation_length(noise: NoiseModel, length: float, shape: tuple[int, int, int]) -> NoiseModel:
    """Return noise of the same variances whose correlations reach farther, or less far.

    The correlations of ``AR1`` and ``Stationary`` are stretched, to those at the lags divided by the ratio of the two
    lengths. Independent noise, of ``Isotropic`` and ``Diagonal``, gets the correlation exp(-(rows + columns) / length)
    of pixels that are so many rows and columns apart. The models that are made of others change those.

    Parameters
    ----------
    noise
        The noise model.
    length
        Correlation length in pixels, 0 for independent pixels; its own gives the model itself.
    shape
        The (C, H, W) of the images.
    """
    own = correlation_length(noise)
    number = real_number(length, "a correlation length")
    if not 0 <= number < np.inf:
        raise InputError(f"a correlation length must be 0 or a positive number of pixels, got {number}.")
    check_noise(noise, shape)
    return noise if number == own else _checked(noise).with_correlation_length(number, shape)


def _checked(noise: NoiseModel) -> HasCorrelationLength:
    if isinstance(noise, HasCorrelationLength):
        return noise
    raise InputError(
        f"the noise model {type(noise).__name__} has no correlation length that could be changed: test the image with "
        "each covariance that you think possible, or give the model the methods correlation_length and "
        "with_correlation_length."
    )
