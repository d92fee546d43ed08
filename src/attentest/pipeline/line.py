"""The line X(z) = a + b z that conditioning on the nuisance leaves of the image space (section 3)."""

from __future__ import annotations

from collections.abc import Sequence
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
    covariance_eta : (k, n)
        Sigma eta.
    z_obs : (k,)
        Observed statistics T(X) = eta' X / sqrt(eta' Sigma eta).
    standard_error : (k,)
        sqrt(eta' Sigma eta), in the units of the pixels.
    """

    images: NDArray[np.float64]
    covariance_eta: NDArray[np.float64]
    z_obs: NDArray[np.float64]
    standard_error: NDArray[np.float64]

    @property
    def b(self) -> NDArray[np.float64]:
        """Directions (k, n): Sigma eta / sqrt(eta' Sigma eta)."""
        return self.covariance_eta / self.standard_error[:, None]

    @property
    def a(self) -> NDArray[np.float64]:
        """Origins (k, n): the nuisance component Q of the paper."""
        return self.images - self.b * self.z_obs[:, None]


@dataclass(frozen=True, kw_only=True)
class ReferenceParts:
    """What references add to contrasts: values (k,) eta' R of theirs and variances (k,) eta' Sigma_R eta of these."""

    values: NDArray[np.float64]
    variances: NDArray[np.float64]


def lines_through(
    images: NDArray[np.float64],
    eta: NDArray[np.float64],
    noise: NoiseModel | Sequence[NoiseModel],
    references: ReferenceParts | None = None,
) -> Lines:
    """Return the lines through images along which only the tested contrast varies.

    Parameters
    ----------
    images : (k, n)
        Observed images, flattened.
    eta : (k, n)
        Contrast of each image.
    noise
        The covariance Sigma, of all or of each.
    references
        With references, image and reference are one vector with independent noise, and the line is a line through both;
        what is returned is its way through the image, which alone the model sees.
    """
    covariance_eta = covariance_times(noise, eta)
    variance = np.einsum("ki,ki->k", eta, covariance_eta)
    # A variance at rounding level of its own terms is zero: the noise does not reach the tested contrast.
    terms = eta * covariance_eta
    floor = eta.shape[1] * np.finfo(np.float64).eps * np.abs(terms, out=terms).sum(axis=1)
    values = np.einsum("ki,ki->k", eta, images)
    if references is not None:
        variance, values = variance + references.variances, values + references.values
    if not np.all(np.isfinite(variance)):
        raise InputError("the variance of what is compared overflows: use a contrast and noise in smaller units.")
    if np.any(variance <= floor):
        raise InputError(
            f"the noise model gives what is compared no variance ({float(variance.min()):.3g}): there is no noise to "
            "test it against."
        )
    scale = np.sqrt(variance)
    return Lines(images=images, covariance_eta=covariance_eta, z_obs=values / scale, standard_error=scale)


def covariance_times(noise: NoiseModel | Sequence[NoiseModel], eta: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Sigma eta (k, n) of contrasts (k, n), with one noise model or one for each."""
    models = noise if isinstance(noise, Sequence) else [noise]
    for model in models:
        if model.size not in (None, eta.shape[1]):
            raise InputError(f"the noise model is for {model.size} pixels, but the image has {eta.shape[1]}.")
    if isinstance(noise, Sequence):
        return np.stack([model.apply(row) for model, row in zip(noise, eta, strict=True)])
    return noise.apply(eta)
