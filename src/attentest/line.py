"""The line X(z) = a + b z that conditioning on the nuisance leaves of the image space (section 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError
from attentest.noise import NoiseModel


@dataclass(frozen=True, kw_only=True)
class Lines:
    """One line for each of k images.

    Parameters
    ----------
    images : (k, n)
        The observed images, flattened: the points X(z_obs).
    b : (k, n)
        Directions, Sigma eta / sqrt(eta' Sigma eta).
    z_obs : (k,)
        Observed statistics T(X) = eta' X / sqrt(eta' Sigma eta).
    """

    images: NDArray[np.float64]
    b: NDArray[np.float64]
    z_obs: NDArray[np.float64]

    @property
    def a(self) -> NDArray[np.float64]:
        """Origins (k, n): the nuisance component Q of the paper."""
        return self.images - self.b * self.z_obs[:, None]


def lines_through(images: NDArray[np.float64], eta: NDArray[np.float64], noise: NoiseModel) -> Lines:
    """Return the lines through images along which only the tested contrast varies.

    Parameters
    ----------
    images : (k, n)
        Observed images, flattened.
    eta : (k, n)
        Contrast of each image.
    noise
        The covariance Sigma.
    """
    n = images.shape[1]
    if noise.size is not None and noise.size != n:
        raise InputError(f"the noise model is for {noise.size} pixels, but the image has {n}.")
    covariance_eta = noise.apply(eta)
    variance = np.einsum("ki,ki->k", eta, covariance_eta)
    # A variance at rounding level of its own terms is zero: the noise does not reach the tested contrast.
    floor = n * np.finfo(np.float64).eps * np.einsum("ki,ki->k", np.abs(eta), np.abs(covariance_eta))
    if not np.all(np.isfinite(variance)) or np.any(variance <= floor):
        raise InputError(
            "the noise model gives the difference between region and background no variance "
            f"({float(variance.min()):.3g}): there is no noise to test it against."
        )
    scale = np.sqrt(variance)
    return Lines(
        images=images,
        b=covariance_eta / scale[:, None],
        z_obs=np.einsum("ki,ki->k", eta, images) / scale,
    )
