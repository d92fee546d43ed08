"""Contrasts of the mean of a region: with its background, its neighbourhood, a reference image, or by a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from attentest.checks import real_number
from attentest.contrast.protocol import (
    LARGEST_WEIGHT,
    SMALLEST_WEIGHT,
    Contrast,
    ContrastLike,
    Mask,
    Weights,
    mean_weights,
    stacking,
)
from attentest.errors import InputError
from attentest.images.sample import ImageLike, Sample, as_sample
from attentest.noise import NoiseLike, NoiseModel, as_noise
from attentest.noise.model import check_shape
from attentest.registry import CONTRASTS


class WithinImage:
    """Base class of contrasts without a reference image."""

    @property
    def reference(self) -> None:
        """No reference image."""
        return None

    def reference_weights(self, part: Mask, region: Mask, seen: Mask) -> Weights:
        """Return zeros."""
        return np.zeros(part.shape)

    def check_image(self, shape: tuple[int, int, int]) -> None:
        """Accept any image."""


@dataclass(frozen=True)
class Background(WithinImage):
    """The mean inside the region minus the mean outside it, as in the paper."""

    @stacking
    def weights(self, part: Mask, region: Mask, seen: Mask) -> Weights:
        """Return the weight (..., H, W) of each pixel."""
        weights = mean_weights(part)
        weights -= mean_weights(seen & ~region)
        return weights

    def describe(self) -> dict[str, Any]:
        """Return the name."""
        return {"name": "background"}


@dataclass(frozen=True)
class Neighbourhood(WithinImage):
    """The mean inside the region minus the mean of a ring around it.

    Parameters
    ----------
    radius
        Greatest distance, in pixels and at least 1, of a pixel of the ring from the region. The ring ends at the border
        of what the model sees; it is never empty, because next to a region there is always a pixel that is not in it.
    """

    radius: float

    def __post_init__(self) -> None:
        number = real_number(self.radius, "radius")
        if not 1 <= number < np.inf:
            raise InputError(
                f"radius must be finite and at least 1 pixel, or the ring around the region is empty, got {number}.",
                "radius",
            )
        object.__setattr__(self, "radius", number)

    def weights(self, part: Mask, region: Mask, seen: Mask) -> Weights:
        """Return the weight (H, W) of each pixel."""
        from scipy.ndimage import distance_transform_edt  # here because scipy.ndimage is slow to import

        near = distance_transform_edt(~part) <= self.radius
        return mean_weights(part) - mean_weights(near & seen & ~region)

    def describe(self) -> dict[str, Any]:
        """Return name and radius."""
        return {"name": "neighbourhood", "radius": self.radius}


@dataclass(frozen=True)
class RegionMean(WithinImage):
    """The mean inside the region, compared with zero: for filtered images, which are zero where nothing is shown."""

    @stacking
    def weights(self, part: Mask, region: Mask, seen: Mask) -> Weights:
        """Return the weight (..., H, W) of each pixel."""
        return mean_weights(part)

    def describe(self) -> dict[str, Any]:
        """Return the name."""
        return {"name": "region mean"}


class FunctionContrast(WithinImage):
    """A contrast given as a function from a region (H, W) to weights (H, W) or (C, H, W)."""

    def __init__(self, function: Callable[[Mask], Any]) -> None:
        self._function = function

    def weights(self, part: Mask, region: Mask, seen: Mask) -> Weights:
        """Return the function's weights for the part of the region that is compared."""
        try:
            returned = self._function(part.copy())
            weights = np.asarray(returned)
        except Exception as error:  # whatever the caller's own function raises
            raise InputError(
                f"the contrast function failed on a region of shape {part.shape}: {type(error).__name__}: {error}"
            ) from error
        masked = np.ma.is_masked(returned)
        if masked or weights.dtype.kind not in "fiub" or weights.shape[-2:] != part.shape or weights.ndim not in (2, 3):
            raise InputError(
                "the contrast function must return real weights of shape (H, W) or (C, H, W), without a mask, for a "
                f"region (H, W) = {part.shape}, but it returned {'a masked array' if masked else weights.dtype} of "
                f"shape {weights.shape}."
            )
        with np.errstate(over="ignore"):  # a long double that is too large is refused below
            weights = weights.astype(np.float64)
        largest = np.abs(weights).max(initial=0.0)
        if not SMALLEST_WEIGHT < largest < LARGEST_WEIGHT:
            raise InputError(
                "the contrast function must return finite weights that are not all zero, the largest between "
                f"{SMALLEST_WEIGHT:g} and {LARGEST_WEIGHT:g}, got {largest:g}."
            )
        return weights

    def __repr__(self) -> str:
        return f"FunctionContrast({self.describe()['function']})"

    def describe(self) -> dict[str, Any]:
        """Return the function's name."""
        return {"name": "function", "function": getattr(self._function, "__name__", type(self._function).__name__)}


def as_contrast(contrast: ContrastLike) -> Contrast:
    """Return a contrast as it is, that of a name ("neighbourhood:5"), or that of a function."""
    if isinstance(contrast, str):
        named: Contrast = CONTRASTS.create(contrast)
        return named
    if isinstance(contrast, Contrast) and not isinstance(contrast, type):
        return contrast
    if callable(contrast) and not isinstance(contrast, type):
        return FunctionContrast(contrast)
    raise InputError(
        f"contrast must be a name ({CONTRASTS.choices()}), a contrast object from attentest.contrast with all methods "
        f"of Contrast, or a function from a region to weights, got {contrast!r}."
    )


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
        """Check that images (C, H, W) have the size of the reference."""
        if self.sample is not None:
            check_pair(shape, self.sample.shape)
        if self.noise is not None:
            try:
                check_shape(self.noise, shape)
            except InputError as error:
                raise InputError(f"the noise of the reference: {error}", *error.parameters) from None

    def describe(self) -> dict[str, Any]:
        """Return the name and the noise of the reference."""
        noise = "none" if self.exact else "that of the image" if self.noise is None else dict(self.noise.describe())
        return {"name": "reference", "noise": noise}

    def __repr__(self) -> str:
        image = "<one per image>" if self.sample is None else f"<{self.sample.shape} image>"
        return f"Reference({image}, noise={0 if self.exact else self.noise!r})"


def check_pair(shape: tuple[int, int, int], reference_shape: tuple[int, int, int]) -> None:
    """Check that a reference has the shape (C, H, W) of the image."""
    if reference_shape != shape:
        raise InputError(
            f"the reference image has (C, H, W) = {reference_shape}, but the image has {shape}: both must show the "
            "same pixels, so bring the reference to the image's size first."
        )
