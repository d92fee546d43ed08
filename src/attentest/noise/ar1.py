"""First-order autoregressive noise over the flattened index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attentest.checks import real_number
from attentest.errors import InputError
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
        forward = _decay(v, self.rho)
        backward = _decay(v[..., ::-1], self.rho)[..., ::-1]
        return self.sigma**2 * (forward + backward - v)

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` stationary vectors of length ``n``."""
        innovation = rng.standard_normal(sample_shape(k, n, None))
        innovation[:, 1:] *= np.sqrt(1.0 - self.rho**2)
        return self.sigma * _decay(innovation, self.rho)

    def describe(self) -> dict[str, Any]:
        """Return name and parameters."""
        return {"model": "ar1", "rho": self.rho, "sigma": self.sigma}

    def facts(self) -> dict[str, str]:
        """Return what there is to know, in words."""
        lags = lags_text(self.rho ** np.arange(1.0, MOST_LAGS + 1))
        return {"standard deviation": f"{self.sigma:.4g}", "correlation along rows": lags}


def _decay(v: FloatArray, rho: float) -> FloatArray:
    """Return y with y_i = v_i + rho y_{i-1} along the last axis."""
    from scipy.signal import lfilter  # here because scipy.signal is slow to import and only AR1 needs it

    return np.asarray(lfilter([1.0], [1.0, -rho], v, axis=-1), dtype=np.float64)
