"""Base class of noise models that are derived from another one."""

from __future__ import annotations

from dataclasses import dataclass

from attentest.errors import InputError
from attentest.noise.model import ChecksImages, NoiseModel, SaveableNoise


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
