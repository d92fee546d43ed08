"""The lines X(z) = a + b z along which only the tested contrast varies (section 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError
from attentest.noise import NoiseModel, degrees_of_freedom
from attentest.noise.linear_system import solved

PRODUCTS_TOGETHER = 2**18
"""Products that are added at a time."""


@dataclass(frozen=True, kw_only=True)
class Lines:
    """One line for each of k images: of it, all that does not follow from the image that the model sees.

    Parameters
    ----------
    covariance_eta : (k, n)
        Sigma eta.
    statistic : (k,)
        Observed statistics T(X) = eta' X / sqrt(eta' Sigma eta).
    z_obs : (k,)
        Coordinates of the images that the model sees: the statistics, unless noise was added to the images.
    standard_error : (k,)
        sqrt(eta' Sigma eta), in the units of the pixels; with a reference, that of both together.
    own_share : (k,)
        Share of the image's own noise in the variance of the contrast: 1, unless there is a noisy reference. If noise
        of another covariance was added to the image, b' times its inverse times b, which is the same for its own.
    degrees : (k,)
        Degrees of freedom of the estimates of that variance: infinite for noise that is known.
    """

    covariance_eta: NDArray[np.float64]
    statistic: NDArray[np.float64]
    z_obs: NDArray[np.float64]
    standard_error: NDArray[np.float64]
    own_share: NDArray[np.float64]
    degrees: NDArray[np.float64]

    @property
    def b(self) -> NDArray[np.float64]:
        """Directions (k, n): Sigma eta / sqrt(eta' Sigma eta)."""
        return self.covariance_eta / self.standard_error[:, None]


@dataclass(frozen=True, kw_only=True)
class ReferenceTerms:
    """What references R add to contrasts, (k,) each.

    Parameters
    ----------
    values, variances
        eta' R, and eta' Sigma_R eta.
    degrees
        Degrees of freedom of the estimates of these variances: infinite for noise that is known.
    """

    values: NDArray[np.float64]
    variances: NDArray[np.float64]
    degrees: NDArray[np.float64]


def lines_through(
    images: NDArray[np.float64],
    eta: NDArray[np.float64],
    noise: Sequence[NoiseModel],
    references: ReferenceTerms | None = None,
    added: NDArray[np.float64] | None = None,
    added_noise: Sequence[NoiseModel] | None = None,
) -> Lines:
    """Return the lines through images along which only the tested contrast varies.

    Parameters
    ----------
    images : (k, n)
        Observed images, flattened.
    eta : (k, n)
        Contrast of each image.
    noise
        Noise model of each image.
    references
        With references, image and reference form one vector with independent noise, and the line passes through both;
        what is returned is its projection on the image, which is all that the model sees.
    added : (k, n)
        Noise W that was added to the images before the model saw them, and to no reference. The contrast of X and that
        of W move X + W in the same direction, but X moves less where a reference takes its share of the noise. The
        coordinate of X + W counts W accordingly.
    added_noise
        Noise model Sigma_W, up to a factor, of the added noise of each image; by default ``noise``. What is left of
        X + W beside its coordinate z = T + v' W must depend on neither, so that Sigma_W v must point along the line:
        v = x / b' x with Sigma_W x = b. For Sigma_W = Sigma this is eta up to a factor.
    """
    error = np.sqrt(2 / by_model(degrees_of_freedom, noise, eta))  # of the estimated variance, relative to it
    covariance_eta = covariance_times(noise, eta)
    variance = np.einsum("ki,ki->k", eta, covariance_eta)
    # A variance at the level of the rounding of its own terms is zero.
    floor = eta.shape[1] * np.finfo(np.float64).eps * _sums_of_absolute_products(eta, covariance_eta)
    values = np.einsum("ki,ki->k", eta, images)
    own = variance
    if references is not None:
        variance, values = variance + references.variances, values + references.values
    if not np.all(np.isfinite(variance)):
        raise InputError("the variance of the compared difference overflows: use smaller units for contrast and noise.")
    if np.any(variance <= floor):
        raise InputError(
            f"the noise model gives the compared difference no variance ({float(variance.min()):.3g}): there is no "
            "noise to test it against."
        )
    scale = np.sqrt(variance)
    statistic, own_share = values / scale, own / variance
    if references is not None:
        # Both may be the same estimate: their errors are added as if they were.
        error = own_share * error + (1 - own_share) * np.sqrt(2 / references.degrees)
    z_obs = statistic
    if added is not None:
        if np.any(own <= floor):
            raise InputError(
                "the noise model gives the pixels that are compared no variance, so that nothing can be randomised: "
                "use randomise=0."
            )
        moved = np.einsum("ki,ki->k", eta, added) / scale
        for row, (model, own_model) in enumerate(zip(added_noise or noise, noise, strict=True)):
            if model is not own_model:
                direction = covariance_eta[row] / scale[row]
                dual = solved(model, direction)  # x in the explanation of added_noise; otherwise it is eta / scale
                own_share[row], moved[row] = direction @ dual, dual @ added[row]
        z_obs = statistic + moved / own_share
    return Lines(
        covariance_eta=covariance_eta,
        statistic=statistic,
        z_obs=z_obs,
        standard_error=scale,
        own_share=own_share,
        degrees=_degrees(error),
    )


def _sums_of_absolute_products(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums (k,) of the absolute products of values (k, n), some at a time: images may be large."""
    sums = np.zeros(len(first))
    step = max(1, PRODUCTS_TOGETHER // max(1, len(first)))
    for start in range(0, first.shape[1], step):
        products = first[:, start : start + step] * second[:, start : start + step]
        sums += np.abs(products, out=products).sum(axis=1)
    return sums


def _degrees(error: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the degrees of freedom (k,) of variances with relative standard errors (k,)."""
    with np.errstate(divide="ignore"):
        return np.asarray(2 / error**2)


def covariance_times(noise: Sequence[NoiseModel], eta: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Sigma eta (k, n) of contrasts (k, n) with the noise model of each."""
    for model in noise:
        if model.size not in (None, eta.shape[1]):
            raise InputError(f"the noise model is for {model.size} pixels, but the image has {eta.shape[1]}.")
    return by_model(lambda model, rows: model.apply(rows), noise, eta)


def by_model(
    function: Callable[[NoiseModel, NDArray[np.float64]], NDArray[np.float64]],
    noise: Sequence[NoiseModel],
    eta: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return a function of noise models and contrasts (k, n) for contrasts with the noise model of each."""
    if all(model is noise[0] for model in noise):
        return function(noise[0], eta)
    return np.concatenate([function(model, row[None]) for model, row in zip(noise, eta, strict=True)])
