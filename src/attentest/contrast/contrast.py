"""Contrasts: what the test asks of one, those of the mean of a region, and the channels and components they are of."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from attentest.checks import positive_number, real_number, whole_number
from attentest.errors import InputError, counted
from attentest.images.image_source import loaded
from attentest.images.sample import ImageLike, Sample, as_sample
from attentest.noise import NoiseLike, NoiseModel, as_noise
from attentest.noise.model import check_shape
from attentest.registry import CONTRASTS

Mask: TypeAlias = NDArray[np.bool_]
Weights: TypeAlias = NDArray[np.float64]


@runtime_checkable
class Contrast(Protocol):
    """Which linear combination of pixels is tested: a function of the region alone, or the test would not be valid."""

    @property
    def reference(self) -> Reference | None:
        """The reference image, or None for a contrast within one image."""

    def weights(self, part: Mask, region: Mask, seen: Mask) -> Weights:
        """Return the weight of each pixel, (*axes), or (C, *axes) to weight the channels as well.

        Parameters
        ----------
        part : (*axes) bool
            What is compared: the region, or one component of it.
        region : (*axes) bool
            The whole region.
        seen : (*axes) bool
            Pixels that the model sees; the others belong neither to a region nor to a background.
        """

    def reference_weights(self, part: Mask, region: Mask, seen: Mask) -> Weights:
        """Return the weight of each pixel of the reference image; zeros without one."""

    def check_image(self, shape: tuple[int, ...]) -> None:
        """Raise an error for images (C, *axes) that the contrast does not apply to."""

    def describe(self) -> Mapping[str, Any]:
        """Return name and parameters as JSON-ready values."""


ContrastLike: TypeAlias = "Contrast | str | Callable[[Mask], Any]"
"""A contrast, its name, or a function from a region (*axes) to weights (*axes), or (C, *axes) without ``channels``."""

WeightMethod = TypeVar("WeightMethod", bound=Callable[..., Weights])


def stacking(method: WeightMethod) -> WeightMethod:
    """Mark a method of a contrast that takes many masks at once, part and region (m, *axes), for weights (m, *axes).

    Methods without the mark, such as those that override a marked one, are called with one mask at a time.
    """
    method.takes_stacks = True  # type: ignore[attr-defined]
    return method


def takes_stacks(method: Callable[..., Weights]) -> bool:
    """Return whether a contrast's method takes many masks at once."""
    return bool(getattr(method, "takes_stacks", False))


def mean_weights(mask: Mask, seen: Mask) -> Weights:
    """Return the weights of the mean over each of masks that are not empty and have the axes of what is seen."""
    return np.asarray(mask * (1.0 / mask.sum(axis=tuple(range(-seen.ndim, 0)), keepdims=True)))


@dataclass(frozen=True)
class WithinImage:
    """Base class of contrasts without a reference image, whose fields are their parameters."""

    name: ClassVar[str]

    @property
    def reference(self) -> None:
        """No reference image."""
        return None

    def reference_weights(self, part: Mask, region: Mask, seen: Mask) -> Weights:
        """Return zeros."""
        return np.zeros(part.shape)

    def check_image(self, shape: tuple[int, ...]) -> None:
        """Accept any image."""

    def describe(self) -> dict[str, Any]:
        """Return name and parameters as JSON-ready values."""
        return {"name": self.name, **{name: value for name, value in asdict(self).items() if value is not None}}


class ComparedMeans:
    """Base class of contrasts of the mean of one set of pixels with that of another, or with zero."""

    reach: float = np.inf  # greatest distance, in pixels, of the other set from the part that is compared

    def compared(self, part: Mask, region: Mask, seen: Mask) -> tuple[Mask, Mask | None]:
        """Return both sets, the second None for zero; parameters are those of ``weights``, or stacks of them."""
        raise NotImplementedError

    @stacking
    def weights(self, part: Mask, region: Mask, seen: Mask) -> Weights:
        """Return the weight of each pixel."""
        inside, outside = self.compared(part, region, seen)
        weights = mean_weights(inside, seen)
        if outside is not None:
            weights -= mean_weights(outside, seen)
        return weights


def compared_means(contrast: Contrast) -> ComparedMeans | None:
    """Return a contrast that compares means; None for any other, such as one that weighs pixels in its own way."""
    own = getattr(contrast.weights, "__func__", None) is not ComparedMeans.weights
    return None if own or not isinstance(contrast, ComparedMeans) else contrast


@dataclass(frozen=True)
class Background(ComparedMeans, WithinImage):
    """The mean inside the region minus the mean outside it, as in the paper."""

    name: ClassVar = "background"

    def compared(self, part: Mask, region: Mask, seen: Mask) -> tuple[Mask, Mask]:
        """Return the part, and everything seen outside of the region."""
        return part, seen & ~region


@dataclass(frozen=True)
class Neighbourhood(ComparedMeans, WithinImage):
    """The mean inside the region minus the mean of a ring around it.

    Parameters
    ----------
    radius
        Greatest distance, in pixels and at least 1, of a pixel of the ring from the region. The ring ends at the border
        of what the model sees; it is never empty, because next to a region there is always a pixel that is not in it.
    spacing
        Distance of neighbouring pixels along each axis, such as (2.5, 0.7, 0.7) in mm for slices of a volume: the
        radius is then in the same unit, and at least the largest of them. By default 1 along each axis.
    """

    name: ClassVar = "neighbourhood"

    radius: float
    spacing: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        number, least = real_number(self.radius, "radius"), 1.0
        if self.spacing is not None:
            try:
                lengths = tuple(positive_number(length, "spacing (each length)") for length in self.spacing)
            except TypeError:
                raise InputError(f"spacing must be a length for each axis, got {self.spacing!r}.", "spacing") from None
            object.__setattr__(self, "spacing", lengths)
            least = max(lengths, default=1.0)
        if not least <= number < np.inf:
            one = "1 pixel" if self.spacing is None else f"{least:g}, the largest distance of neighbouring pixels"
            raise InputError(
                f"radius must be finite and at least {one}, or the ring around the region is empty, got {number}.",
                "radius",
            )
        object.__setattr__(self, "radius", number)

    @property
    def reach(self) -> float:  # type: ignore[override]
        """The radius in pixels, along the axis on which it has most of them."""
        return self.radius / min(self.spacing or (1.0,))

    def check_image(self, shape: tuple[int, ...]) -> None:
        """Check that images (C, *axes) have as many axes as the spacing."""
        if self.spacing is not None and len(self.spacing) != len(shape) - 1:
            raise InputError(
                f"spacing must have a length for each of the {len(shape) - 1} axes of the images, got "
                f"{len(self.spacing)}.",
                "spacing",
            )

    def compared(self, part: Mask, region: Mask, seen: Mask) -> tuple[Mask, Mask]:
        """Return the part, and the ring around it."""
        from scipy.ndimage import distance_transform_edt  # here because scipy.ndimage is slow to import

        masks = part.reshape(-1, *seen.shape)
        near = [distance_transform_edt(~mask, sampling=self.spacing) <= self.radius for mask in masks]
        return part, np.reshape(near, part.shape) & seen & ~region


@dataclass(frozen=True)
class RegionMean(ComparedMeans, WithinImage):
    """The mean inside the region, compared with zero: for filtered images, which are zero where nothing is shown."""

    name: ClassVar = "region mean"

    def compared(self, part: Mask, region: Mask, seen: Mask) -> tuple[Mask, None]:
        """Return the part."""
        return part, None


@dataclass(frozen=True)
class FunctionContrast(WithinImage):
    """A contrast given as a function from a region (*axes) to weights (*axes) or (C, *axes)."""

    name: ClassVar = "function"

    function: Callable[[Mask], Any]

    def weights(self, part: Mask, region: Mask, seen: Mask) -> Weights:
        """Return the function's weights for the part of the region that is compared."""
        try:
            returned = self.function(part.copy())
            weights = np.asarray(returned)
        except Exception as error:  # whatever the caller's own function raises
            raise InputError(
                f"the contrast function failed on a region of shape {part.shape}: {type(error).__name__}: {error}"
            ) from error
        masked = np.ma.is_masked(returned)
        of_channels = weights.ndim - part.ndim
        if (
            masked
            or weights.dtype.kind not in "fiub"
            or of_channels not in (0, 1)
            or weights.shape[of_channels:] != part.shape
        ):
            raise InputError(
                "the contrast function must return real weights of the shape of the region, or one such plane for each "
                f"channel, without a mask, for a region of shape {part.shape}, but it returned "
                f"{'a masked array' if masked else weights.dtype} of shape {weights.shape}."
            )
        with np.errstate(over="ignore"):  # a long double that is too large is an error below
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
        return {"name": self.name, "function": getattr(self.function, "__name__", type(self.function).__name__)}


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


class Reference(ComparedMeans):
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
        self._image = None if image is None else copy.deepcopy(loaded(image).values)
        self._samples: dict[int, Sample] = {}  # by their number of axes
        self.sample({1: 1, 4: 3}.get(getattr(self._image, "ndim", 2), 2))  # what is no image is said at once
        exact = isinstance(noise, (int, float, np.number)) and not isinstance(noise, bool) and noise == 0
        self.exact = exact and real_number(noise, "noise") == 0
        self.noise: NoiseModel | None = None if noise is None or self.exact else as_noise(noise)

    def sample(self, dimension: int) -> Sample | None:
        """Return the reference image with so many axes; None if each image has its own."""
        if self._image is None:
            return None
        if dimension not in self._samples:
            self._samples[dimension] = as_sample(self._image, dimension)
        return self._samples[dimension]

    @property
    def reference(self) -> Reference:
        """The contrast itself, which holds the reference image."""
        return self

    def compared(self, part: Mask, region: Mask, seen: Mask) -> tuple[Mask, None]:
        """Return the part; that of the reference is taken from the mean."""
        return part, None

    @stacking
    def reference_weights(self, part: Mask, region: Mask, seen: Mask) -> Weights:
        """Return the weight of each pixel of the reference."""
        return -mean_weights(part, seen)

    def check_image(self, shape: tuple[int, ...]) -> None:
        """Check that images (C, *axes) have the size of the reference."""
        sample = self.sample(len(shape) - 1)
        if sample is not None:
            check_pair(shape, sample.shape)
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
        image = "<one per image>" if self._image is None else f"<{next(iter(self._samples.values())).shape} image>"
        return f"Reference({image}, noise={0 if self.exact else self.noise!r})"


def check_pair(shape: tuple[int, ...], reference_shape: tuple[int, ...]) -> None:
    """Check that a reference has the shape (C, *axes) of the image."""
    if reference_shape != shape:
        raise InputError(
            f"the reference image has the shape {reference_shape}, channels first, but the image has {shape}: both "
            "must show the same pixels, so bring the reference to the image's size first."
        )


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
        if max(weights) <= 0:
            raise InputError(
                f"channels (as weights) must have a positive one, got {listed}: none would turn the sign of the "
                "difference, so leave the minus out and choose the alternative.",
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


def per_pixel(weights: Weights, channel_weights: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return weights (m, *axes) or (m, C, *axes) as contrasts (m, n) of images (C, *axes)."""
    if weights.ndim == len(shape):
        weights = channel_weights.reshape(-1, *[1] * (len(shape) - 1)) * weights[:, None]
    if weights.shape[1:] != shape:
        raise InputError(
            f"the contrast gives weights of shape {weights.shape[1:]}, but the image has {shape}, channels first: give "
            "weights of one channel for all together, or those of each."
        )
    return weights.reshape(len(weights), -1)


def as_connectivity(value: Any, name: str = "connectivity", dimension: int = 2) -> int:
    """Return a connectivity: 1 if components are joined by shared edges, 2 if by shared corners as well.

    Voxels are joined by shared faces (1), edges (2) or corners (3), samples of a signal by being neighbours (1).
    """
    meanings = {
        1: "1 for neighbours",
        2: "1 for shared edges, 2 for shared corners as well",
        3: "1 for shared faces, 2 for edges, 3 for corners as well",
    }
    return whole_number(value, f"{name} ({meanings[dimension]})", 1, dimension)


def labelled_components(region: NDArray[np.bool_], connectivity: int) -> tuple[NDArray[np.int32], int]:
    """Return the number of each pixel's component, 0 outside the region (*axes), and the number of components."""
    from scipy.ndimage import generate_binary_structure, label  # here because scipy.ndimage is slow to import

    labels, count = label(region, generate_binary_structure(region.ndim, connectivity))
    return np.asarray(labels, dtype=np.int32), int(count)
