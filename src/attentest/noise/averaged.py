"""Noise of the mean of several images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attentest.checks import whole_number
from attentest.noise.derived import DerivedNoise
from attentest.noise.model import FloatArray, NoiseModel, facts_of
from attentest.noise.pixel_variances import pixel_variances

MOST_AVERAGED = 10**9
"""Largest number of images: a larger one is a mistake."""


@dataclass(frozen=True, eq=False)
class Averaged(DerivedNoise):
    """Noise of the mean of independent images, Sigma / count: for a reference image that is such a mean.

    Parameters
    ----------
    model
        Noise of one of the images.
    count
        Number of images.
    """

    saved: ClassVar = {"model": NoiseModel, "count": int}

    count: int

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "count", whole_number(self.count, "count", 1, MOST_AVERAGED))

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``Sigma v / count`` along the last axis."""
        return self.model.apply(v) / self.count

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` vectors."""
        return self.model.sample(rng, k, n) / float(np.sqrt(self.count))

    def variances(self, n: int) -> FloatArray:
        """Return the variance (n,) of each pixel."""
        return pixel_variances(self.model, n) / self.count

    def describe(self) -> dict[str, Any]:
        """Return the number of images and the noise of one."""
        return {"model": "averaged", "count": self.count, "of": dict(self.model.describe())}

    def facts(self) -> dict[str, str]:
        """Return what there is to know, in words."""
        of_one = {f"{name} of one image": fact for name, fact in facts_of(self.model).items()}
        return {"images averaged": str(self.count), **of_one}
