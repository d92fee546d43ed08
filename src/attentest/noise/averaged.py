"""Noise of the mean of several images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from attentest.checks import whole_number
from attentest.errors import InputError
from attentest.noise.model import ChecksImages, FloatArray, NoiseModel

MOST_AVERAGED = 10**9


@dataclass(frozen=True, eq=False)
class Averaged:
    """Noise of the mean of independent images: Sigma / count, for a reference that is such a mean.

    Parameters
    ----------
    model
        Noise of one of the images.
    count
        How many there are.
    """

    model: NoiseModel
    count: int

    def __post_init__(self) -> None:
        if not isinstance(self.model, NoiseModel) or isinstance(self.model, type):
            raise InputError(f"what is averaged must be a noise model, got {type(self.model).__name__}.")
        object.__setattr__(self, "count", whole_number(self.count, "count", 1, MOST_AVERAGED))

    @property
    def size(self) -> int | None:
        """Length of the vectors it applies to, or None for any length."""
        return self.model.size

    def check_image(self, shape: tuple[int, int, int]) -> None:
        """Refuse images (C, H, W) that the model is not for."""
        if isinstance(self.model, ChecksImages):
            self.model.check_image(shape)

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``Sigma v / count`` along the last axis."""
        return self.model.apply(v) / self.count

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` vectors."""
        return self.model.sample(rng, k, n) / float(np.sqrt(self.count))

    def describe(self) -> dict[str, Any]:
        """Return what is averaged, and how many."""
        return {"model": "averaged", "count": self.count, "of": dict(self.model.describe())}
