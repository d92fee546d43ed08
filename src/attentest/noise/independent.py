"""Independent noise: one standard deviation for all pixels, or a variance for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from attentest.checks import float_array
from attentest.errors import InputError
from attentest.noise.model import (
    FloatArray,
    NoiseModel,
    SaveableNoise,
    deviations_text,
    sample_shape,
    standard_deviation,
)
from attentest.noise.stationary import Exponential


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


class Diagonal(SaveableNoise):
    """Independent noise with a variance per pixel.

    Parameters
    ----------
    variance : array of shape (n,), (H, W) or (C, H, W)
        Variances, not standard deviations; non-negative, not all zero.
    """

    saved: ClassVar = {"variance": np.ndarray}

    def __init__(self, variance: ArrayLike) -> None:
        values = np.array(float_array(variance, "variance"))
        self.shape = values.shape
        flat = values.ravel()
        if not np.all(np.isfinite(flat)):
            raise InputError("variance must be finite, got NaN or infinite entries.")
        if np.any(flat < 0) or not np.any(flat > 0):
            raise InputError(
                "variance must be non-negative and not all zero, "
                f"got values from {flat.min(initial=0.0)} to {flat.max(initial=0.0)}."
            )
        flat.setflags(write=False)
        self.variance: FloatArray = flat

    def check_image(self, shape: tuple[int, int, int]) -> None:
        """Refuse images (C, H, W) of another shape than the variances, unless these are flat."""
        own = (1, *self.shape) if len(self.shape) == 2 else self.shape
        if len(self.shape) > 1 and own != shape:
            raise InputError(
                f"the variances have shape {self.shape}, but the image is (C, H, W) = {shape}: give them in that shape."
            )

    def saved_arguments(self) -> dict[str, Any]:
        """Return the variances in the shape in which they were given."""
        return {"variance": self.variance.reshape(self.shape)}

    def __repr__(self) -> str:
        return f"Diagonal(<{self.size} variances, sd {deviations_text(self.variance)}>)"

    @property
    def size(self) -> int:
        """Number of pixels."""
        return int(self.variance.size)

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``variance * v``."""
        return self.variance * v

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` vectors."""
        return np.sqrt(self.variance) * rng.standard_normal(sample_shape(k, n, self.size))

    def variances(self, n: int) -> FloatArray:
        """Return the variance (n,) of each pixel."""
        return self.variance

    def describe(self) -> dict[str, Any]:
        """Return name and size."""
        return {"model": "diagonal", "size": self.size}

    def facts(self) -> dict[str, str]:
        """Return what there is to know, in words."""
        return {
            "values per image": " x ".join(map(str, self.shape)),
            "standard deviations": deviations_text(self.variance),
            "median standard deviation": f"{np.sqrt(np.median(self.variance)):.3g}",
            "pixels": "independent",
        }

    def correlation_length(self) -> float:
        """Return 0: pixels are independent."""
        return 0.0

    def with_correlation_length(self, length: float, shape: tuple[int, int, int]) -> NoiseModel:
        """Return noise of the same variances with an exponential correlation."""
        return Exponential(np.sqrt(self.variance).reshape(shape), length)
