"""Independent noise: one standard deviation for all pixels, or a variance for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.errors import InputError
from attentest.noise.autoregressive import Exponential
from attentest.noise.model import BaseNoise, FloatArray, deviations_text, finite_array, sample_shape, standard_deviation


@dataclass(frozen=True)
class Isotropic(BaseNoise):
    """Independent noise of one standard deviation: Sigma = sigma^2 I."""

    name: ClassVar = "isotropic"
    parameters: ClassVar = {"sigma": float}
    estimator: ClassVar = "pooled"

    sigma: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", standard_deviation(self.sigma))

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

    def covariances(self, places: NDArray[np.int64], n: int) -> FloatArray:
        """Return the covariances (m, m) of a few pixels."""
        return self.sigma**2 * np.eye(len(places))

    def degrees_per_image(self, eta: FloatArray, origin: Mapping[str, Any]) -> FloatArray:
        """Return the number of pixels."""
        return np.full(len(eta), float(eta.shape[1]))

    def correlation_length(self) -> float:
        """Return 0: pixels are independent."""
        return 0.0

    def _stretched(self, length: float, shape: tuple[int, int, int]) -> Exponential:
        return Exponential(np.full(shape, self.sigma), length)

    def words(self) -> str:
        """Return the model in words."""
        return f"Independent between pixels, with a standard deviation of {self.sigma:.6g}"


class Diagonal(BaseNoise):
    """Independent noise with a variance per pixel.

    Parameters
    ----------
    variance : array of shape (n,), (H, W) or (C, H, W)
        Variances, not standard deviations; non-negative, not all zero.
    """

    name: ClassVar = "diagonal"
    parameters: ClassVar = {"variance": np.ndarray}
    estimator: ClassVar = "pixel"

    def __init__(self, variance: ArrayLike) -> None:
        values = finite_array(variance, "variance")
        self.shape = values.shape
        flat = values.ravel()
        if np.any(flat < 0) or not np.any(flat > 0):
            raise InputError(
                "variance must be non-negative and not all zero, "
                f"got values from {flat.min(initial=0.0)} to {flat.max(initial=0.0)}."
            )
        flat.setflags(write=False)
        self.variance: FloatArray = flat

    def check_image(self, shape: tuple[int, int, int]) -> None:
        """Raise an error for images (C, H, W) of another shape than the variances, unless these are flat."""
        expected = (1, *self.shape) if len(self.shape) == 2 else self.shape
        if len(self.shape) > 1 and expected != shape:
            raise InputError(
                f"the variances have shape {self.shape}, but the image is (C, H, W) = {shape}: give them in that shape."
            )

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

    def covariances(self, places: NDArray[np.int64], n: int) -> FloatArray:
        """Return the covariances (m, m) of a few pixels."""
        return np.diag(self.variance[places])

    def degrees_per_image(self, eta: FloatArray, origin: Mapping[str, Any]) -> FloatArray:
        """Return those of a weighted sum of variances of pixels, each with one."""
        parts = eta**2 * self.variance
        return np.asarray(parts.sum(axis=1) ** 2 / (parts**2).sum(axis=1))

    def correlation_length(self) -> float:
        """Return 0: pixels are independent."""
        return 0.0

    def _stretched(self, length: float, shape: tuple[int, int, int]) -> Exponential:
        return Exponential(np.sqrt(self.variance).reshape(shape), length)

    def arguments(self) -> dict[str, Any]:
        """Return the variances in the shape in which they were given."""
        return {"variance": self.variance.reshape(self.shape)}

    def record(self) -> dict[str, Any]:
        """Return name and size."""
        return {"model": self.name, "size": self.size}

    def words(self) -> str:
        """Return the model in words."""
        median = float(np.sqrt(np.median(self.variance)))
        return (
            f"Independent between pixels, with a standard deviation of its own for each of {self.size:,}, "
            f"{deviations_text(self.variance)}, their median {median:.3g}"
        )
