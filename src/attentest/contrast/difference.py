"""Contrasts within one image: the region against its background, against its neighbourhood, or by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from attentest.checks import real_number
from attentest.contrast.channels import LARGEST_WEIGHT, SMALLEST_WEIGHT
from attentest.errors import InputError

if TYPE_CHECKING:
    from attentest.contrast.reference import Reference

Mask: TypeAlias = NDArray[np.bool_]
Weights: TypeAlias = NDArray[np.float64]


@runtime_checkable
class Contrast(Protocol):
    """Which linear combination of pixels is tested: a function of the region alone, or the test would not be valid."""

    @property
    def reference(self) -> Reference | None:
        """The reference image's part in it, where there is one."""

    def weights(self, part: Mask, region: Mask, seen: Mask) -> Weights:
        """Return the weight of each pixel, (H, W), or (C, H, W) with channels weighed as well.

        Parameters
        ----------
        part : (H, W) bool
            What is compared: the region, or one component of it.
        region : (H, W) bool
            The whole region.
        seen : (H, W) bool
            Pixels that the model sees; the others belong neither to a region nor to a background.
        """

    def reference_weights(self, part: Mask, region: Mask, seen: Mask) -> Weights:
        """Return the weight of each pixel of the reference image; zero without one."""

    def check_image(self, shape: tuple[int, int, int]) -> None:
        """Refuse images (C, H, W) that it is not for."""

    def describe(self) -> Mapping[str, Any]:
        """Return name and parameters as JSON-ready values."""


Weigh = TypeVar("Weigh", bound=Callable[..., Weights])


def stacking(method: Weigh) -> Weigh:
    """Mark a method of a contrast that takes many masks at once, part and region (..., H, W), for weights (..., H, W).

    A contrast need not: to the others, and to methods that override marked ones, masks are given one at a time.
    """
    method.takes_stacks = True  # type: ignore[attr-defined]
    return method


def takes_stacks(method: Callable[..., Weights]) -> bool:
    """Return whether a contrast's method takes many masks at once."""
    return bool(getattr(method, "takes_stacks", False))


ContrastLike: TypeAlias = "Contrast | Callable[[Mask], Any]"
"""A contrast, or a function from a region (H, W) to weights (H, W), or (C, H, W) in place of ``channels``."""


class WithinImage:
    """What contrasts without a reference image have in common."""

    @property
    def reference(self) -> None:
        """There is none."""
        return None

    def reference_weights(self, part: Mask, region: Mask, seen: Mask) -> Weights:
        """Return zeros."""
        return np.zeros(part.shape)

    def check_image(self, shape: tuple[int, int, int]) -> None:
        """Take any image."""


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
    """The mean inside the region by itself, against zero: for filtered images, of which nothing means zero."""

    @stacking
    def weights(self, part: Mask, region: Mask, seen: Mask) -> Weights:
        """Return the weight (..., H, W) of each pixel."""
        return mean_weights(part)

    def describe(self) -> dict[str, Any]:
        """Return the name."""
        return {"name": "region mean"}


class Written(WithinImage):
    """A contrast that somebody wrote as a function from a region (H, W) to weights (H, W) or (C, H, W)."""

    def __init__(self, function: Callable[[Mask], Any]) -> None:
        self._function = function

    def weights(self, part: Mask, region: Mask, seen: Mask) -> Weights:
        """Return what the function gives for the part of the region that is compared."""
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
        return f"Written({self.describe()['function']})"

    def describe(self) -> dict[str, Any]:
        """Return the function's name."""
        return {"name": "function", "function": getattr(self._function, "__name__", type(self._function).__name__)}


def as_contrast(contrast: ContrastLike) -> Contrast:
    """Return a contrast as it is, or one of a function."""
    if isinstance(contrast, Contrast) and not isinstance(contrast, type):
        return contrast
    if callable(contrast) and not isinstance(contrast, type):
        return Written(contrast)
    raise InputError(
        "contrast must be one from attentest.contrast, such as Neighbourhood(radius=5), or a function from a region "
        f"to weights, got {contrast!r}."
    )


def mean_weights(mask: Mask) -> Weights:
    """Return the weights (..., H, W) of the mean over each of masks that are not empty."""
    return np.asarray(mask * (1.0 / mask.sum(axis=(-2, -1), keepdims=True)))
