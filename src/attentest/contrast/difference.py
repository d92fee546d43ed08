"""Contrasts within one image: the mean of the region minus that of its background or neighbourhood, or by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from attentest.checks import real_number
from attentest.contrast.protocol import Mask, Weights, mean_weights, stacking
from attentest.errors import InputError


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
                f"radius must be finite and at least 1 pixel, or the ring around the region is empty, got {number}."
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
