"""Noise that is a multiple of another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attentest.checks import positive_number
from attentest.errors import InputError
from attentest.noise.derived import DerivedNoise
from attentest.noise.model import FloatArray, NoiseModel, facts_of
from attentest.noise.parameters import LARGEST_SIGMA, SMALLEST_SIGMA


@dataclass(frozen=True, eq=False)
class Scaled(DerivedNoise):
    """Noise that is a multiple of another one, with the covariance factor^2 Sigma: for an image with another gain.

    Parameters
    ----------
    model
        The other noise model.
    factor
        Factor on its standard deviations.
    """

    saved: ClassVar = {"model": NoiseModel, "factor": float}

    factor: float

    def __post_init__(self) -> None:
        super().__post_init__()
        factor = positive_number(self.factor, "factor")
        if not SMALLEST_SIGMA <= factor <= LARGEST_SIGMA:
            raise InputError(
                f"factor must be from {SMALLEST_SIGMA:g} to {LARGEST_SIGMA:g}, so that its square neither underflows "
                f"nor overflows, got {factor:g}."
            )
        object.__setattr__(self, "factor", factor)

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``factor^2 Sigma v`` along the last axis."""
        return self.factor**2 * self.model.apply(v)

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` vectors."""
        return self.factor * self.model.sample(rng, k, n)

    def variances(self, n: int) -> FloatArray:
        """Return the variance (n,) of each pixel."""
        return self.factor**2 * super().variances(n)

    def describe(self) -> dict[str, Any]:
        """Return the factor and the other noise model."""
        return {"model": "scaled", "factor": self.factor, "of": dict(self.model.describe())}

    def facts(self) -> dict[str, str]:
        """Return what there is to know, in words."""
        unscaled = {f"{name} before scaling": fact for name, fact in facts_of(self.model).items()}
        return {"factor on standard deviations": f"{self.factor:.4g}", **unscaled}
