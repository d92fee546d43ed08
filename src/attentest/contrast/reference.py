"""The contrast with a reference image: an earlier image of the same scene, or a healthy control."""

from __future__ import annotations

from typing import Any

import numpy as np

from attentest.checks import real_number
from attentest.contrast.protocol import Mask, Weights, mean_weights, stacking
from attentest.errors import InputError
from attentest.images.sample import ImageLike, Sample, as_sample
from attentest.noise import NoiseLike, NoiseModel, as_noise, check_noise


class Reference:
    """The mean inside the region minus the mean of the same pixels of a reference image.

    The noise of the reference is independent of that of the image. The model sees the image alone.

    Parameters
    ----------
    image
        The reference, of the size of the images. Left out if each image has its own: ``test(image, reference=...)``.
    noise
        Noise of the reference; by default that of the images. 0 for a reference without noise, such as a phantom or
        the mean of very many images.
    """

    def __init__(self, image: ImageLike | None = None, noise: NoiseLike | None = None) -> None:
        self.sample: Sample | None = None if image is None else as_sample(image)
        exact = isinstance(noise, (int, float, np.number)) and not isinstance(noise, bool) and noise == 0
        self.exact = exact and real_number(noise, "noise") == 0
        self.noise: NoiseModel | None = None if noise is None or self.exact else as_noise(noise)

    @property
    def reference(self) -> Reference:
        """The contrast itself, which holds the reference image."""
        return self

    @stacking
    def weights(self, part: Mask, region: Mask, seen: Mask) -> Weights:
        """Return the weight (..., H, W) of each pixel of the image."""
        return mean_weights(part)

    @stacking
    def reference_weights(self, part: Mask, region: Mask, seen: Mask) -> Weights:
        """Return the weight (..., H, W) of each pixel of the reference."""
        return -mean_weights(part)

    def check_image(self, shape: tuple[int, int, int]) -> None:
        """Refuse images (C, H, W) whose size is not that of the reference."""
        if self.sample is not None:
            check_pair(shape, self.sample.shape)
        if self.noise is not None:
            try:
                check_noise(self.noise, shape)
            except InputError as error:
                raise InputError(f"the noise of the reference: {error}") from None

    def describe(self) -> dict[str, Any]:
        """Return the name and the noise of the reference."""
        noise = "none" if self.exact else "that of the image" if self.noise is None else dict(self.noise.describe())
        return {"name": "reference", "noise": noise}

    def __repr__(self) -> str:
        image = "<one per image>" if self.sample is None else f"<{self.sample.shape} image>"
        return f"Reference({image}, noise={0 if self.exact else self.noise!r})"


def check_pair(shape: tuple[int, int, int], reference_shape: tuple[int, int, int]) -> None:
    """Refuse a reference of another shape than the image (C, H, W)."""
    if reference_shape != shape:
        raise InputError(
            f"the reference image has (C, H, W) = {reference_shape}, but the image has {shape}: both must show the "
            "same pixels, so bring the reference to the image's size first."
        )
