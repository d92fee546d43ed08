"""Variance of a weighted sum of a few pixels, for which the models of attentest need no vector as long as the image."""

from __future__ import annotations

from functools import singledispatch

import numpy as np
from numpy.typing import NDArray

from attentest.noise.ar1 import AR1, neighbour_correlation
from attentest.noise.dense import Dense
from attentest.noise.derived import Averaged, Estimated, PerChannel, Scaled
from attentest.noise.independent import Diagonal, Isotropic
from attentest.noise.locally_stationary import LocallyStationary
from attentest.noise.model import FloatArray, NoiseModel
from attentest.noise.stationary import Exponential, Stationary


def few_pixels_variance(noise: NoiseModel, places: NDArray[np.int64], weights: FloatArray, n: int) -> float:
    """Return the variance of the sum of a few pixels times their weights.

    Parameters
    ----------
    noise
        The noise model, which may be one of the user's own: then ``Sigma`` is applied to a vector of length ``n``.
    places : (m,)
        Indices of the pixels in the flattened image, each once.
    weights : (m,)
        Their weights.
    n
        Number of values of the image.
    """
    covariances = _covariances(noise, places, n)
    if covariances is not None:
        return float(weights @ covariances @ weights)
    vector = np.zeros(n)
    vector[places] = weights
    return float(weights @ noise.apply(vector)[places])


@singledispatch
def _covariances(noise: NoiseModel, places: NDArray[np.int64], n: int) -> FloatArray | None:
    """Return the covariances (m, m) of a few pixels; None where they are not known without applying the model."""
    return None


@_covariances.register
def _(noise: Isotropic, places: NDArray[np.int64], n: int) -> FloatArray:
    return noise.sigma**2 * np.eye(len(places))


@_covariances.register
def _(noise: Diagonal, places: NDArray[np.int64], n: int) -> FloatArray:
    return np.diag(noise.variance[places])


@_covariances.register
def _(noise: Dense, places: NDArray[np.int64], n: int) -> FloatArray:
    return np.asarray(noise.covariance[np.ix_(places, places)])


@_covariances.register
def _(noise: AR1, places: NDArray[np.int64], n: int) -> FloatArray:
    return np.asarray(noise.sigma**2 * noise.rho ** np.abs(np.subtract.outer(places, places)))


@_covariances.register
def _(noise: Exponential, places: NDArray[np.int64], n: int) -> FloatArray:
    channel, row, column = np.unravel_index(places, noise.deviations.shape)
    distance = sum(np.abs(np.subtract.outer(along, along)) for along in (row, column))
    correlation = neighbour_correlation(noise.length) ** distance * np.equal.outer(channel, channel)
    deviations = noise.deviations.ravel()[places]
    return np.asarray(np.outer(deviations, deviations) * correlation)


@_covariances.register
def _(noise: Stationary, places: NDArray[np.int64], n: int) -> FloatArray:
    return _by_lag(noise.autocovariance, places, noise.shape)


@_covariances.register
def _(noise: LocallyStationary, places: NDArray[np.int64], n: int) -> FloatArray:
    deviations = noise.deviations.ravel()[places]
    return np.outer(deviations, deviations) * _by_lag(noise.autocorrelation, places, noise.deviations.shape)


@_covariances.register
def _(noise: PerChannel, places: NDArray[np.int64], n: int) -> FloatArray | None:
    pixels = n // len(noise.channels)
    channel, pixel = np.divmod(places, pixels)
    # A pixel of the plane may be asked for in several channels, but is one of the spatial model.
    own, which = np.unique(pixel, return_inverse=True)
    spatial = _covariances(noise.spatial, own, pixels)
    return None if spatial is None else noise.channels[np.ix_(channel, channel)] * spatial[np.ix_(which, which)]


@_covariances.register
def _(noise: Estimated, places: NDArray[np.int64], n: int) -> FloatArray | None:
    return _covariances(noise.model, places, n)


@_covariances.register
def _(noise: Scaled, places: NDArray[np.int64], n: int) -> FloatArray | None:
    unscaled = _covariances(noise.model, places, n)
    return None if unscaled is None else noise.factor**2 * unscaled


@_covariances.register
def _(noise: Averaged, places: NDArray[np.int64], n: int) -> FloatArray | None:
    of_one = _covariances(noise.model, places, n)
    return None if of_one is None else of_one / noise.count


def _by_lag(by_lag: FloatArray, places: NDArray[np.int64], shape: tuple[int, ...]) -> FloatArray:
    """Return the entries (m, m) of values (2P+1, 2Q+1) by lag for the lags between pixels; zero at lags further out."""
    lags = [np.subtract.outer(along, along) for along in np.unravel_index(places, shape)]
    most = [side // 2 for side in by_lag.shape]
    within = (np.abs(lags[0]) <= most[0]) & (np.abs(lags[1]) <= most[1])
    row, column = (np.clip(lag + reach, 0, 2 * reach) for lag, reach in zip(lags, most, strict=True))
    return np.where(within, by_lag[row, column], 0.0)
