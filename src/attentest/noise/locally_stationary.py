"""Noise with a standard deviation for each pixel and a correlation that depends on the lag only."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from attentest.checks import float_array
from attentest.errors import InputError
from attentest.noise.exponential import Exponential
from attentest.noise.model import FloatArray, NoiseModel, SaveableNoise
from attentest.noise.number_text import deviations_text
from attentest.noise.parameters import LARGEST_SIGMA, SMALLEST_SIGMA
from attentest.noise.stationary import Stationary

ROUNDING = 1e-9
"""A correlation at lag zero that is closer to 1 than this is 1 up to rounding error."""


class LocallyStationary(SaveableNoise):
    """Noise of grey images with a standard deviation per pixel and a correlation by lag, in O(n log n).

    Sigma = D R D, with D the diagonal matrix of the standard deviations and R the correlation of a
    :class:`Stationary` model.

    Parameters
    ----------
    deviations : array of shape (H, W)
        Standard deviation of each pixel; non-negative, not all zero.
    autocorrelation : array of shape (2P+1, 2Q+1)
        Correlations at lags -P..P by -Q..Q, 1 in the middle; zero at lags further out.
    """

    saved: ClassVar = {"deviations": np.ndarray, "autocorrelation": np.ndarray}

    def __init__(self, deviations: ArrayLike, autocorrelation: ArrayLike) -> None:
        self.deviations: FloatArray = _deviations(deviations)
        self._correlation = Stationary(autocorrelation, self.deviations.shape)
        rows, columns = self.autocorrelation.shape
        middle = float(self.autocorrelation[rows // 2, columns // 2])
        if abs(middle - 1) > ROUNDING:
            raise InputError(f"autocorrelation must be 1 in the middle, at lag zero, got {middle:.6g} there.")

    @property
    def autocorrelation(self) -> FloatArray:
        """Correlations (2P+1, 2Q+1)."""
        return self._correlation.autocovariance

    def check_image(self, shape: tuple[int, int, int]) -> None:
        """Refuse images (C, H, W) of another shape or of several channels."""
        self._correlation.check_image(shape)

    def __repr__(self) -> str:
        return "LocallyStationary(<{} x {} pixels, sd {}>)".format(*self.deviations.shape, self._range)

    @property
    def size(self) -> int:
        """Number of pixels."""
        return self._correlation.size

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``Sigma v`` along the last axis."""
        if v.shape[-1] != self.size:
            raise InputError(f"this noise model is for {self.size} pixels, but {v.shape[-1]} were given.")
        return self._flat * self._correlation.apply(self._flat * v)

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` vectors."""
        return self._flat * self._correlation.sample(rng, k, n)

    def variances(self, n: int) -> FloatArray:
        """Return the variance (n,) of each pixel."""
        return self._flat**2

    def correlation_length(self) -> float:
        """Return the distance in pixels within which correlations fall to 1/e."""
        return self._correlation.correlation_length()

    def with_correlation_length(self, length: float, shape: tuple[int, int, int]) -> NoiseModel:
        """Return the same with its lags stretched; independent noise gets an exponential correlation."""
        other = self._correlation.with_correlation_length(length, shape)
        if isinstance(other, Stationary):
            return LocallyStationary(self.deviations, other.autocovariance)
        return Exponential(self.deviations.reshape(shape), length)

    def describe(self) -> dict[str, Any]:
        """Return name, size, root mean square, least and greatest standard deviation, and the largest lags."""
        stationary = self._correlation.describe()
        return {
            "model": "locally stationary",
            "shape": stationary["shape"],
            "sigma": float(np.sqrt(np.mean(self._flat**2))),
            "sigmas": [float(self._flat.min()), float(self._flat.max())],
            "lags": stationary["lags"],
        }

    def facts(self) -> dict[str, str]:
        """Return what there is to know, in words."""
        facts = {**self._correlation.facts(), "standard deviation": f"{self._range}, by the pixel"}
        if not self._flat.all():
            facts["pixels without noise"] = f"{np.mean(self._flat == 0):.1%}"
        return facts

    @property
    def _flat(self) -> FloatArray:
        return self.deviations.ravel()

    @property
    def _range(self) -> str:
        return deviations_text(self._flat**2)


def _deviations(values: ArrayLike) -> FloatArray:
    deviations = np.array(float_array(values, "deviations"))
    if deviations.ndim != 2:
        raise InputError(f"deviations must have the shape (H, W) of the images, got {deviations.shape}.")
    if not np.all(np.isfinite(deviations)):
        raise InputError("deviations must be finite, got NaN or infinite entries.")
    lowest, highest = deviations.min(initial=np.inf), deviations.max(initial=0.0)
    if lowest < 0 or not SMALLEST_SIGMA <= highest <= LARGEST_SIGMA:
        raise InputError(
            f"deviations must be non-negative, and the greatest from {SMALLEST_SIGMA:g} to {LARGEST_SIGMA:g}, got "
            f"values from {lowest} to {highest}."
        )
    deviations.setflags(write=False)
    return deviations
