"""Base class of the noise models of attentest, and words about any noise model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, cast

from attentest.errors import shortened
from attentest.images.notebook_html import definition_table
from attentest.noise.protocol import ChecksImages, FitsNoise, FloatArray, ImageNoise, NoiseModel, check_noise

if TYPE_CHECKING:
    from attentest.images.sample import ImageLike
    from attentest.noise.check.noise_check import NoiseCheck

__all__ = [
    "ChecksImages",
    "FitsNoise",
    "FloatArray",
    "ImageNoise",
    "NoiseModel",
    "SaveableNoise",
    "check_noise",
    "facts_of",
]


class SaveableNoise:
    """Base class of the noise models that a noise file can hold: those in ``NOISE_MODELS`` of attentest.registry.

    Attributes
    ----------
    saved
        Constructor arguments that a file holds, with their types: ``NoiseModel`` for another noise model,
        ``np.ndarray`` for an array, anything else for JSON values.
    """

    saved: ClassVar[Mapping[str, type]]

    def saved_arguments(self) -> dict[str, Any]:
        """Return the constructor arguments with which the same model can be made again."""
        return {name: getattr(self, name) for name in self.saved}

    def facts(self) -> dict[str, str]:
        """Return what there is to know about the model, in words by name."""
        return {name: shortened(value) for name, value in self.saved_arguments().items()}

    def check(self, images: Iterable[ImageLike], **options: Any) -> NoiseCheck:
        """Test whether independent images of the same mean agree with this noise model, assumption by assumption.

        Options are those of :func:`attentest.noise.check_assumptions`.
        """
        from attentest.noise.check.run import checked  # here because few noise models are checked

        return checked(cast(NoiseModel, self), images, **options)

    def _repr_html_(self) -> str:
        return definition_table(type(self).__name__, self.facts())


def facts_of(noise: NoiseModel) -> dict[str, str]:
    """Return what there is to know about a noise model, in words by name; one of the user's own describes itself."""
    if isinstance(noise, SaveableNoise):
        return noise.facts()
    return {name: shortened(value) for name, value in noise.describe().items()}
