"""What the test asks of a contrast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from attentest.images.sample import Sample
from attentest.noise import NoiseModel

Mask: TypeAlias = NDArray[np.bool_]
Weights: TypeAlias = NDArray[np.float64]


class ReferenceImage(Protocol):
    """The reference image of a contrast, and its noise.

    Attributes
    ----------
    sample
        The image, or None if each tested image has its own.
    noise
        The noise model of the reference, or None for that of the tested images.
    exact
        Whether the reference is without noise.
    """

    sample: Sample | None
    noise: NoiseModel | None
    exact: bool


@runtime_checkable
class Contrast(Protocol):
    """Which linear combination of pixels is tested: a function of the region alone, or the test would not be valid."""

    @property
    def reference(self) -> ReferenceImage | None:
        """The reference image, or None for a contrast within one image."""

    def weights(self, part: Mask, region: Mask, seen: Mask) -> Weights:
        """Return the weight of each pixel, (H, W), or (C, H, W) to weight the channels as well.

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
        """Return the weight of each pixel of the reference image; zeros without one."""

    def check_image(self, shape: tuple[int, int, int]) -> None:
        """Refuse images (C, H, W) that the contrast does not apply to."""

    def describe(self) -> Mapping[str, Any]:
        """Return name and parameters as JSON-ready values."""


ContrastLike: TypeAlias = "Contrast | str | Callable[[Mask], Any]"
"""A contrast, its name, or a function from a region (H, W) to weights (H, W), or (C, H, W) in place of ``channels``."""

WeightMethod = TypeVar("WeightMethod", bound=Callable[..., Weights])


def stacking(method: WeightMethod) -> WeightMethod:
    """Mark a method of a contrast that takes many masks at once, part and region (..., H, W), for weights (..., H, W).

    Methods without the mark, such as those that override a marked one, are called with one mask at a time.
    """
    method.takes_stacks = True  # type: ignore[attr-defined]
    return method


def takes_stacks(method: Callable[..., Weights]) -> bool:
    """Return whether a contrast's method takes many masks at once."""
    return bool(getattr(method, "takes_stacks", False))


def mean_weights(mask: Mask) -> Weights:
    """Return the weights (..., H, W) of the mean over each of masks (..., H, W) that are not empty."""
    return np.asarray(mask * (1.0 / mask.sum(axis=(-2, -1), keepdims=True)))
