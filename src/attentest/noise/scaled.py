"""Noise of an image with another gain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attentest.noise.derived import DerivedNoise
from attentest.noise.model import FloatArray, NoiseModel, facts_of
from attentest.noise.parameters import standard_deviation


@dataclass(frozen=True, eq=False)
class Scaled(DerivedNoise):
    """Noise that is a multiple of another one, with the covariance gain^2 Sigma: for an image with another gain.

    Parameters
    ----------
    model
        Noise of an image of gain 1.
    gain
        Factor on its standard deviations.
    """

    saved: ClassVar = {"model": NoiseModel, "gain": float}

    gain: float

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "gain", standard_deviation(self.gain))

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``gain^2 Sigma v`` along the last axis."""
        return self.gain**2 * self.model.apply(v)

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` vectors."""
        return self.gain * self.model.sample(rng, k, n)

    def variances(self, n: int) -> FloatArray:
        """Return the variance (n,) of each pixel."""
        return self.gain**2 * super().variances(n)

    def describe(self) -> dict[str, Any]:
        """Return the gain and the noise of an image of gain 1."""
        return {"model": "scaled", "gain": self.gain, "of": dict(self.model.describe())}

    def facts(self) -> dict[str, str]:
        """Return what there is to know, in words."""
        of_one = {f"{name} at gain 1": fact for name, fact in facts_of(self.model).items()}
        return {"gain": f"{self.gain:.4g}", **of_one}
