"""A selection on nine pixels, and a brute-force sampler of images given it: no line, no search, no interval."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

SIDE = 3
PIXELS = SIDE * SIDE
_RNG = np.random.default_rng(12)
MIXING = 0.9 * np.eye(PIXELS) + 0.35 * _RNG.normal(size=(PIXELS, PIXELS))
_FACTOR = _RNG.normal(size=(PIXELS, PIXELS + 3)) / 3
COVARIANCE = _FACTOR @ _FACTOR.T
_FACTOR = _RNG.normal(size=(PIXELS, PIXELS + 3)) / 4
REFERENCE_COVARIANCE = _FACTOR @ _FACTOR.T


def scores(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """One attention layer with a key for each pixel: smooth, and each score depends on all pixels."""
    logits = images.reshape(len(images), PIXELS) @ MIXING.T
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return (weights / weights.sum(axis=1, keepdims=True)).reshape(-1, SIDE, SIDE)


def by_threshold(images: NDArray[np.float64], tau: float = 0.4) -> NDArray[np.bool_]:
    values = scores(images).reshape(len(images), PIXELS)
    low, high = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    return (values - low) / (high - low) > tau


def by_rank(images: NDArray[np.float64], count: int) -> NDArray[np.bool_]:
    values = scores(images).reshape(len(images), PIXELS)
    return values.argsort(axis=1).argsort(axis=1) >= PIXELS - count


Select = Callable[[NDArray[np.float64]], NDArray[np.bool_]]


def mean_of(mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    return mask / mask.sum()


def ring_of(mask: NDArray[np.bool_], radius: float) -> NDArray[np.bool_]:
    """Pixels not in a mask (9,) and no farther from it than a radius, pixel by pixel."""
    places = np.indices((SIDE, SIDE)).reshape(2, -1).T
    distance = np.linalg.norm(places[:, None] - places[mask][None], axis=2).min(axis=1)
    return ~mask & (distance <= radius)


def filter_matrix(kernel: NDArray[np.float64]) -> NDArray[np.float64]:
    """The 9 x 9 matrix of a filter, column by column through SciPy."""
    columns = [ndimage.correlate(unit.reshape(SIDE, SIDE), kernel).ravel() for unit in np.eye(PIXELS)]
    return np.column_stack(columns)


class Sampler:
    """Draws the statistic given that the region is the observed one and that the nuisance is.

    Parameters
    ----------
    x : (n,)
        The observed vector: an image, or an image and its reference.
    eta : (n,)
        The contrast.
    covariance : (n, n)
        Of the vector.
    select
        From images (m, 9) to regions (m, 9).
    added : (9,)
        Noise that is added to the image before the selection.
    gamma
        Its standard deviation in units of that of the image's own.
    """

    def __init__(
        self,
        x: NDArray[np.float64],
        eta: NDArray[np.float64],
        covariance: NDArray[np.float64],
        select: Select,
        added: NDArray[np.float64] | None = None,
        gamma: float = 0.0,
    ) -> None:
        self.standard_error = float(np.sqrt(eta @ covariance @ eta))
        self.z_obs = float(eta @ x) / self.standard_error
        direction = covariance @ eta / self.standard_error
        projection = np.eye(len(x)) - np.outer(covariance @ eta, eta) / (eta @ covariance @ eta)
        self._nuisance, self._direction = (projection @ x)[:PIXELS], direction[:PIXELS]
        self._added = np.zeros(PIXELS) if added is None else added
        self._select, self._observed = select, select(x[None, :PIXELS] + self._added)[0]
        # The added noise moves along the contrast of the image alone, with the variance that it has there.
        own, own_covariance = eta[:PIXELS], covariance[:PIXELS, :PIXELS]
        variance = own @ own_covariance @ own
        self._added_direction = own_covariance @ own / np.sqrt(variance)
        self._added_nuisance = self._added - self._added_direction * (own @ self._added) / np.sqrt(variance)
        self._gamma = gamma

    def draw(self, rng: np.random.Generator, mean: float, count: int) -> NDArray[np.float64]:
        """Return draws of the statistic with a mean, as many of ``count`` as select the observed region."""
        z = rng.normal(mean, 1.0, size=count)
        images = self._nuisance + np.outer(z, self._direction)
        if self._gamma > 0:
            noise = rng.normal(0.0, self._gamma, size=count)
            images = images + self._added_nuisance + np.outer(noise, self._added_direction)
        return z[(self._select(images) == self._observed).all(axis=1)]
