"""A noise model around another one."""

from __future__ import annotations

from dataclasses import dataclass

from attentest.errors import InputError
from attentest.noise.model import ChecksImages, NoiseModel


@dataclass(frozen=True, eq=False)
class Wrapped:
    """What noise models that hold another one have in common: they are for the same images.

    Parameters
    ----------
    model
        The noise model within.
    """

    model: NoiseModel

    def __post_init__(self) -> None:
        if not isinstance(self.model, NoiseModel) or isinstance(self.model, type):
            raise InputError(
                f"what {type(self).__name__} holds must be a noise model, got {type(self.model).__name__}."
            )

    @property
    def size(self) -> int | None:
        """Length of the vectors it applies to, or None for any length."""
        return self.model.size

    def check_image(self, shape: tuple[int, int, int]) -> None:
        """Refuse images (C, H, W) that the model is not for."""
        if isinstance(self.model, ChecksImages):
            self.model.check_image(shape)
