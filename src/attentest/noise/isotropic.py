"""Independent noise of one standard deviation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attentest.noise.exponential import Exponential
from attentest.noise.model import FloatArray, NoiseModel, SaveableNoise
from attentest.noise.parameters import sample_shape, standard_deviation


@dataclass(frozen=True)
class Isotropic(SaveableNoise):
    """Independent noise of one standard deviation: Sigma = sigma^2 I."""

    saved: ClassVar = {"sigma": float}

    sigma: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", standard_deviation(self.sigma))

    @property
    def size(self) -> None:
        """It applies to vectors of any length, which is what None stands for."""
        return None

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``sigma^2 v``."""
        return self.sigma**2 * v

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` vectors of length ``n``."""
        draws = rng.standard_normal(sample_shape(k, n, None))
        draws *= self.sigma
        return draws

    def variances(self, n: int) -> FloatArray:
        """Return the variance (n,) of each pixel."""
        return np.full(n, self.sigma**2)

    def describe(self) -> dict[str, Any]:
        """Return name and parameters."""
        return {"model": "isotropic", "sigma": self.sigma}

    def facts(self) -> dict[str, str]:
        """Return what there is to know, in words."""
        return {"standard deviation": f"{self.sigma:.4g}", "pixels": "independent"}

    def correlation_length(self) -> float:
        """Return 0: pixels are independent."""
        return 0.0

    def with_correlation_length(self, length: float, shape: tuple[int, int, int]) -> NoiseModel:
        """Return noise of the same standard deviation with an exponential correlation."""
        return Exponential(np.full(shape, self.sigma), length)
