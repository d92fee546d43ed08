"""Images, signals and volumes as statistical samples: from PIL, NumPy or torch to one checked (C, *axes) array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.checks import whole_number
from attentest.errors import InputError, worded
from attentest.images.image_file import MAX_PIXELS, Spacing
from attentest.images.image_source import ImageSource, PathLike, loaded
from attentest.images.pillow import picture_pixels

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage


ImageLike: TypeAlias = "PILImage | NDArray[Any] | Tensor | PathLike | ImageSource | Sample"
"""An image, or the file that it is in."""

LEVELS = {"u1": (0.0, 255.0), "u2": (0.0, 65535.0), "b1": (0.0, 1.0)}
"""The values of black and white, by the codes of the dtypes that define them, in any byte order."""

VALUES_TOGETHER = 2**17
"""Pixel values that are copied at a time where their bytes are read: a copy of a large image takes much memory."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """One image as a statistical sample."""

    pixels: NDArray[np.float64]
    """(C, *axes) float64. Pixel values unchanged; a copy, the caller's image is never shared."""
    levels: tuple[float, float] | None
    """The values that the dtype of the image uses for black and white, None where it defines none."""
    spacing: Spacing | None = None
    """How far apart the pixels are, where the file of the image tells."""
    affine: NDArray[np.float64] | None = None
    """(4, 4). Where it lies in space, as a volume does, where its file tells."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The (C, *axes)."""
        return self.pixels.shape


Layout: TypeAlias = tuple[tuple[int, ...], "tuple[float, float] | None"]
"""The (C, *axes) of an image, and its black and white."""

ARRAYS = {
    1: "a signal must be (T,), or (C, T) with several channels",
    2: "an image must be (H, W), or (H, W, C) as an array and (C, H, W) as a tensor",
    3: "a volume must be (D, H, W), or (C, D, H, W) with several channels",
}
"""Which arrays are taken, by the number of axes that the model has."""


def as_sample(image: ImageLike, dimension: int = 2) -> Sample:
    """Return a signal, an image, or a volume or video, of one to three axes, as a sample.

    An image is a PIL image, NumPy array (H, W) or (H, W, C), torch tensor (H, W) or (C, H, W), or the path of an image
    file. Signals and volumes are arrays or tensors with their axes, after that of the channels if there is one.
    """
    if isinstance(image, Sample):
        return image
    given, spacing, affine = loaded(image, dimension)
    values, levels = _checked_values(given, dimension)
    if spacing is not None and len(spacing.lengths) != dimension:
        spacing = None
    pixels = np.array(values, dtype=np.float64, order="C")
    return Sample(pixels=pixels, levels=levels, spacing=spacing, affine=affine)


AWAY = 0.1  # most pixels between the corners of an image and those of a mask or reference that lies where it does


def check_place(image: Sample, affine: NDArray[np.float64] | None, called: str) -> None:
    """Raise an error for a mask or a reference that lies elsewhere in space than its image, where both tell."""
    if image.affine is None or affine is None or not np.isfinite([image.affine, affine]).all():
        return
    sides = image.shape[:0:-1]  # columns first, as in the affine
    corners = np.array([(*place, *(0,) * (3 - len(sides)), 1) for place in product(*((0, side - 1) for side in sides))])
    with np.errstate(over="ignore", invalid="ignore"):
        away = np.linalg.norm((corners @ (affine - image.affine).T)[:, :3], axis=1).max()
        pixel = np.linalg.norm(image.affine[:3, : len(sides)], axis=0).min()
    if away <= AWAY * pixel:
        return
    order = ", ".join(("slices", "rows", "columns")[-len(sides) :])
    distance = f" by {away / pixel:.3g} pixels" if pixel > 0 and away / pixel < np.inf else ""
    raise InputError(
        f"the {called} lies elsewhere in space than its image{distance} (their affines differ), and pixels are "
        f"compared by their numbers: resample it onto the image or, if it has the pixels of the image in their order "
        f"({order}), give it as an array or .npy file."
    )


def check_image(image: ImageLike, dimension: int = 2) -> Layout:
    """Return the layout of an image that can become a sample, whose pixels are not converted."""
    if isinstance(image, Sample):
        return image.shape, image.levels
    values, levels = _checked_values(loaded(image, dimension).values, dimension)
    return values.shape, levels


def _checked_values(image: Any, dimension: int) -> tuple[NDArray[Any], tuple[float, float] | None]:
    """Return the pixel values (C, *axes) of an image, in their own dtype where NumPy has it, and its levels."""
    if isinstance(image, Tensor):
        if image.layout != torch.strided or image.is_meta or image.is_quantized:
            raise InputError("an image given as a torch tensor must be dense, with values, and not quantized.")
        if image.is_complex():
            raise InputError("an image must have real pixel values, got complex ones.")
        pixels = image.detach().cpu()
        narrow = pixels.is_floating_point() and pixels.dtype not in (torch.float32, torch.float64)
        values = pixels.to(torch.float64).numpy() if narrow else pixels.numpy()
        received = "torch tensor"
    else:
        values, received = _numpy_pixels(image), "image array" if dimension == 2 else "array"
        if values.ndim == 3 and dimension == 2:
            values = np.moveaxis(values, -1, 0)
    if values.ndim == dimension:
        values = values[None]
    if values.ndim != dimension + 1 or values.size == 0:
        raise InputError(f"{ARRAYS[dimension]}, but the {received} has shape {tuple(values.shape)}.")
    if values.dtype.kind == "f":
        wide = values.dtype.itemsize > np.dtype(np.float64).itemsize
        with np.errstate(over="ignore"):  # a long double that overflows float64 counts as infinite
            finite = np.count_nonzero(np.isfinite(values.astype(np.float64) if wide else values))
        if bad := values.size - finite:
            said = f"an image must have finite pixel values, but {bad} of {values.size} are NaN or infinite."
            raise InputError(worded(said, dimension))
    return values, LEVELS.get(values.dtype.str[1:])


def _numpy_pixels(image: Any) -> NDArray[Any]:
    if isinstance(getattr(image, "mode", None), str) and hasattr(image, "getbands"):
        image = picture_pixels(image)
    if np.ma.is_masked(image):
        raise InputError("an image must have a value for every pixel, but this array masks some: fill them first.")
    try:
        values = np.asarray(image)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"an image must be an array of numbers ({str(error).rstrip('.')}).") from None
    if values.dtype.kind == "c":
        raise InputError("an image must have real pixel values, got complex ones.")
    if values.dtype.kind not in "biuf":
        raise InputError(
            "an image must be a PIL image, a NumPy array (H, W) or (H, W, C) or a torch tensor (C, H, W) of numbers, "
            f"got {type(image).__name__} of {values.dtype}."
        )
    return values


def add_values(digest: Any, pixels: NDArray[np.float64]) -> None:
    """Add the bytes of pixel values, the same for equal values, also for 0.0 and -0.0, to a hash of hashlib."""
    flat = pixels.reshape(-1)
    for start in range(0, flat.size, VALUES_TOGETHER):
        digest.update((flat[start : start + VALUES_TOGETHER] + 0.0).tobytes())


def channels_last(pixels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return pixels (C, *axes), not a copy, as they are given and shown: without the axis of a single channel.

    Several channels come last in an image, and first in a signal or a volume.
    """
    if len(pixels) == 1:
        pixels = pixels[0]
    elif pixels.ndim == 3:
        pixels = np.moveaxis(pixels, 0, -1)
    return pixels


def stacked(arrays: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return arrays of one shape as one; not a copy of a single one, which may be large."""
    return arrays[0][None] if len(arrays) == 1 else np.stack(arrays)


LARGEST_SIDE = 2**20  # largest side of an image: a larger one is a mistake


def as_shape(shape: Any, dimension: int = 2) -> tuple[int, ...]:
    """Return the (C, *axes) of ``image_shape``, with or without C, with at most as many values as an image."""
    if not isinstance(shape, tuple) or len(shape) not in (dimension, dimension + 1):
        axes = {1: "T", 2: "H, W", 3: "D, H, W"}[dimension]
        alone = f"({axes},)" if dimension == 1 else f"({axes})"
        raise InputError(f"image_shape must be {alone} or (C, {axes}), got {shape!r}.", "image_shape")
    sides = [whole_number(side, "image_shape (each side)", 1, LARGEST_SIDE) for side in shape]
    if math.prod(sides) > MAX_PIXELS:
        product = " x ".join(str(side) for side in sides)
        raise InputError(
            f"image_shape must have at most {MAX_PIXELS} values, as many as an image that is read, but {product} has "
            f"{math.prod(sides)}: give smaller sides.",
            "image_shape",
        )
    return tuple(sides) if len(sides) > dimension else (1, *sides)
