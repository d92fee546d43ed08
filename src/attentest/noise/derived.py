"""Base class of noise models that are derived from another one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from attentest.errors import InputError
from attentest.noise.correlation import correlation_length, with_correlation_length
from attentest.noise.model import ChecksImages, FloatArray, NoiseModel, SaveableNoise
from attentest.noise.pixel_variances import pixel_variances


@dataclass(frozen=True, eq=False)
class DerivedNoise(SaveableNoise):
    """A noise model derived from another one, for the same images.

    Parameters
    ----------
    model
        The other noise model.
    """

    model: NoiseModel

    def __post_init__(self) -> None:
        if not isinstance(self.model, NoiseModel) or isinstance(self.model, type):
            raise InputError(
                f"the model of {type(self).__name__} must be a noise model, got {type(self.model).__name__}."
            )

    @property
    def size(self) -> int | None:
        """Length of the vectors it applies to, or None for any length."""
        return self.model.size

    def check_image(self, shape: tuple[int, int, int]) -> None:
        """Refuse images (C, H, W) that the model does not apply to."""
        if isinstance(self.model, ChecksImages):
            self.model.check_image(shape)

    def correlation_length(self) -> float:
        """Return the correlation length of the other model in pixels."""
        return correlation_length(self.model)

    def with_correlation_length(self, length: float, shape: tuple[int, int, int]) -> Self:
        """Return the same, derived from the other model with another correlation length."""
        return replace(self, model=with_correlation_length(self.model, length, shape))

    def variances(self, n: int) -> FloatArray:
        """Return the variance (n,) of each pixel; that of the other model, unless it is overridden."""
        return pixel_variances(self.model, n)
