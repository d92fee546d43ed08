"""First-order autoregressive noise over the flattened index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attentest.checks import real_number
from attentest.errors import InputError
from attentest.noise.autoregression import covariance_product, neighbour_correlation, stationary_series
from attentest.noise.model import FloatArray, SaveableNoise
from attentest.noise.number_text import MOST_LAGS, lags_text
from attentest.noise.parameters import sample_shape, standard_deviation


@dataclass(frozen=True)
class AR1(SaveableNoise):
    """First-order autoregressive noise over the flattened index: Sigma_ij = sigma^2 rho^|i-j|, in O(n)."""

    saved: ClassVar = {"rho": float, "sigma": float}

    rho: float
    sigma: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", standard_deviation(self.sigma))
        object.__setattr__(self, "rho", real_number(self.rho, "rho"))
        if not -1.0 < self.rho < 1.0:
            raise InputError(f"rho must lie strictly between -1 and 1, got {self.rho}.")

    @property
    def size(self) -> None:
        """It applies to vectors of any length, which is what None stands for."""
        return None

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``Sigma v`` by one recursive filter forwards and one backwards."""
        product = covariance_product(v, self.rho)
        product *= self.sigma**2
        return product

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` stationary vectors of length ``n``."""
        series = stationary_series(rng.standard_normal(sample_shape(k, n, None)), self.rho)
        series *= self.sigma
        return series

    def variances(self, n: int) -> FloatArray:
        """Return the variance (n,) of each pixel."""
        return np.full(n, self.sigma**2)

    def describe(self) -> dict[str, Any]:
        """Return name and parameters."""
        return {"model": "ar1", "rho": self.rho, "sigma": self.sigma}

    def facts(self) -> dict[str, str]:
        """Return what there is to know, in words."""
        lags = lags_text(self.rho ** np.arange(1.0, MOST_LAGS + 1))
        return {"standard deviation": f"{self.sigma:.4g}", "correlation along rows": lags}

    def correlation_length(self) -> float:
        """Return the distance along the flattened image, in pixels, within which correlations fall to 1/e."""
        return -1 / float(np.log(abs(self.rho))) if self.rho else 0.0

    def with_correlation_length(self, length: float, shape: tuple[int, int, int]) -> AR1:
        """Return the same with another rate of decay: rho to the power of own over new length; its sign is kept."""
        return AR1(float(np.copysign(neighbour_correlation(length), self.rho)), self.sigma)
