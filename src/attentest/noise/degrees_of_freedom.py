"""Degrees of freedom of the variance of a contrast under an estimated noise model.

The variance eta' Sigma eta of a contrast is a quadratic form of the residuals of K reference images: a residual image y
contributes q(y) = y' Q y, and Q depends on the contrast and on the kind of model. With K - 1 degrees of freedom of the
residuals its estimate has the mean E q and the variance Var q / (K - 1), so it varies like a multiple of a chi-squared
variable with (K - 1) 2 (E q)^2 / Var q degrees of freedom (Satterthwaite 1946). Both moments are those under the
estimated model.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import singledispatch
from typing import Any

import numpy as np

from attentest.noise.ar1 import AR1, neighbour_correlation
from attentest.noise.dense import Dense
from attentest.noise.derived import Averaged, Estimated, PerChannel, Scaled
from attentest.noise.independent import Diagonal, Isotropic
from attentest.noise.locally_stationary import LocallyStationary, default_smoothing
from attentest.noise.model import FloatArray, NoiseModel
from attentest.noise.stationary import Exponential, Stationary
from attentest.noise.stationary_correlation import lag_weights

DRAWS = 256
"""Draws of noise from which the variance of a quadratic form is estimated, to within 9%, one standard error."""

TOGETHER = 2**22
"""Values of draws that are held at a time."""

STEP = 1e-4
"""Step of the numerical derivative with respect to a correlation."""


LEAST = 2.0
"""Fewest degrees of freedom: with fewer, p-values would not be monotone in the mean of the statistic, because its
density would be greatest at the ends of its support. Estimates so poor are rare, and their number is rough itself."""


def degrees_of_freedom(noise: NoiseModel, eta: FloatArray) -> FloatArray:
    """Return the degrees of freedom (k,) of the variances of contrasts (k, n); infinite for noise that is known.

    A noise model that was estimated from the tested image itself is not independent of it, so degrees of freedom would
    not tell how far to trust it: they are infinite, too, and its description says that it is approximate.
    """
    if isinstance(noise, (Averaged, Scaled)):
        return degrees_of_freedom(noise.model, eta)
    if not isinstance(noise, Estimated) or noise.images is None:
        return np.full(len(eta), np.inf)
    # Pixels that never varied told nothing.
    share = float(noise.origin.get("used_share", 1.0))
    return np.maximum((noise.images - 1) * share * _per_image(noise.model, eta, noise.origin), LEAST)


@singledispatch
def _per_image(model: NoiseModel, eta: FloatArray, origin: Mapping[str, Any]) -> FloatArray:
    """Return 2 (E q)^2 / Var q (k,) of contrasts (k, n), where q is what one residual image contributes.

    Of a model of an unknown kind it is 1, which is the least: as if each residual image gave one value of the contrast.
    """
    return np.ones(len(eta))


@_per_image.register
def _(model: Isotropic, eta: FloatArray, origin: Mapping[str, Any]) -> FloatArray:
    return np.full(len(eta), float(eta.shape[1]))


@_per_image.register
def _(model: Exponential, eta: FloatArray, origin: Mapping[str, Any]) -> FloatArray:
    # One variance, of pixels that are correlated by r^(rows + columns): fewer by the sum of the squares of these.
    r = neighbour_correlation(model.length)
    return np.full(len(eta), float(eta.shape[1])) * ((1 - r**2) / (1 + r**2)) ** 2


@_per_image.register
def _(model: Diagonal, eta: FloatArray, origin: Mapping[str, Any]) -> FloatArray:
    parts = eta**2 * model.variance
    return np.asarray(parts.sum(axis=1) ** 2 / (parts**2).sum(axis=1))


@_per_image.register
def _(model: AR1, eta: FloatArray, origin: Mapping[str, Any]) -> FloatArray:
    # With v the mean of y_i^2 and r that of y_i y_(i+1), the variance is v g(r / v), which is linear in (v, r) nearby.
    rho = model.rho
    step = STEP * (1 - abs(rho))
    low, value, high = (np.einsum("ki,ki->k", eta, AR1(at).apply(eta)) for at in (rho - step, rho, rho + step))
    slope = (high - low) / (2 * step)
    by_variance, by_product = value - rho * slope, slope
    # Bartlett's formula: n times the variances of v and r, and their covariance, over a long series of variance 1.
    rest = 1 - rho**2
    own, crossed = 2 * (1 + rho**2) / rest, 4 * rho / rest
    product = (1 + rho**2) / rest + rho**2 + 2 * rho**2 / rest
    variance = by_variance**2 * own + 2 * by_variance * by_product * crossed + by_product**2 * product
    return np.asarray(2 * value**2 * eta.shape[1] / variance)


@_per_image.register
def _(model: Stationary, eta: FloatArray, origin: Mapping[str, Any]) -> FloatArray:
    shape = model.shape
    torus = 2 * shape[0] - 1, 2 * shape[1] - 1
    fields = eta.reshape(-1, *shape)
    products = np.fft.irfft2(np.abs(np.fft.rfft2(fields, s=torus)) ** 2, s=torus)
    weights = np.fft.rfft2(products * lag_weights(shape, origin.get("max_lag"))).real
    # The columns of rfft2 that stand for two.
    weights[..., 1:] *= 2
    flat = weights.reshape(len(eta), -1)
    rng = np.random.default_rng(0)
    forms = np.empty((DRAWS, len(eta)))
    together = max(1, TOGETHER // (torus[0] * torus[1]))
    for first in range(0, DRAWS, together):
        some = slice(first, min(first + together, DRAWS))
        draws = model.sample(rng, some.stop - some.start).reshape(-1, *shape)
        power = np.abs(np.fft.rfft2(draws, s=torus)) ** 2
        forms[some] = power.reshape(len(draws), -1) @ flat.T
    return np.asarray(2 * forms.mean(axis=0) ** 2 / forms.var(axis=0, ddof=1))


@_per_image.register
def _(model: LocallyStationary, eta: FloatArray, origin: Mapping[str, Any]) -> FloatArray:
    # The errors of the variances and those of the correlation, added as if they were independent.
    correlation, shape = Stationary(model.autocorrelation, model.deviations.shape), model.deviations.shape
    squares = float((model.autocorrelation**2).sum())
    smoothing = origin.get("smoothing") or default_smoothing(model.autocorrelation, origin["images"] - 1, shape)
    by_correlation = _per_image(correlation, model.deviations.ravel() * eta, origin)
    return np.asarray(1 / (1 / by_correlation + squares / (4 * np.pi * smoothing**2)))


@_per_image.register
def _(model: PerChannel, eta: FloatArray, origin: Mapping[str, Any]) -> FloatArray:
    # As if the covariance of the channels were known: it is pooled over the pixels as the correlation in space is.
    planes = eta.reshape(len(eta), len(model.channels), -1)
    found = np.full(len(eta), np.inf)
    for channel in range(planes.shape[1]):
        some = planes[:, channel].any(axis=1)  # a channel without weight has no say
        if some.any():
            own = _per_image(model.spatial, planes[some, channel], origin)
            found[some] = np.minimum(found[some], own)
    return found


@_per_image.register
def _(model: Scaled, eta: FloatArray, origin: Mapping[str, Any]) -> FloatArray:
    return _per_image(model.model, eta, origin)


@_per_image.register
def _(model: Dense, eta: FloatArray, origin: Mapping[str, Any]) -> FloatArray:
    return np.ones(len(eta))  # each residual image gives one value of the contrast
