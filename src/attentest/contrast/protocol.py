"""What the test asks of a contrast, and of what it is made: channels and connected components."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from attentest.checks import real_number, whole_number
from attentest.errors import InputError, counted
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
        """Raise an error for images (C, H, W) that the contrast does not apply to."""

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


Channels: TypeAlias = "Literal['mean'] | int | Sequence[float]"
"""Which channels of a colour image are compared: their mean, one of them by number, or a weight per channel."""

SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-100, 1e100
"""Limits between which the square of a weight neither underflows nor overflows."""


def as_channels(channels: Channels) -> Channels:
    """Return the channels that are compared as "mean", a plain int, or a tuple of plain floats."""
    if isinstance(channels, str) and channels == "mean":
        return "mean"
    if isinstance(channels, (int, np.integer)) and not isinstance(channels, bool):
        return whole_number(channels, "channels (the number of a channel)", 0, 2**20)
    listed: Any = channels.tolist() if hasattr(channels, "tolist") else channels
    if isinstance(listed, Sequence) and not isinstance(listed, str):
        weights = tuple(real_number(weight, "channels (each weight)") for weight in listed)
        if not np.all(np.isfinite(weights)) or not SMALLEST_WEIGHT < np.abs(weights).max(initial=0) < LARGEST_WEIGHT:
            raise InputError(
                f"channels (as weights) must be finite and not all zero, and neither huge nor tiny, got {listed}.",
                "channels",
            )
        return weights
    raise InputError(
        f"channels must be 'mean', the number of a channel, or a weight per channel, got {channels!r}.", "channels"
    )


def channel_weights(channels: Channels, count: int) -> NDArray[np.float64]:
    """Return the weight (count,) of each channel of an image in the contrast."""
    compared = as_channels(channels)
    if isinstance(compared, str):
        return np.full(count, 1.0 / count)
    if isinstance(compared, int):
        if compared >= count:
            raise InputError(
                f"channels = {compared} is no channel of the image, which has 0 to {count - 1}.", "channels"
            )
        return np.asarray(np.eye(count)[compared])
    if len(compared) != count:
        raise InputError(
            f"channels gives {counted(len(compared), 'weight')}, but the image has {counted(count, 'channel')}.",
            "channels",
        )
    return np.array(compared)


def as_connectivity(value: Any) -> int:
    """Return a connectivity: 1 if components are joined by shared edges, 2 if by shared corners as well."""
    return whole_number(value, "connectivity (1 for shared edges, 2 for shared corners as well)", 1, 2)


def labelled_components(region: NDArray[np.bool_], connectivity: int) -> tuple[NDArray[np.int32], int]:
    """Return the number of each pixel's component (H, W), 0 outside the region, and the number of components."""
    from scipy.ndimage import generate_binary_structure, label  # here because scipy.ndimage is slow to import

    labels, count = label(region, generate_binary_structure(2, connectivity))
    return np.asarray(labels, dtype=np.int32), int(count)
