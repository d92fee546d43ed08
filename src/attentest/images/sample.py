"""Images as they enter: PIL, NumPy or torch in, one checked (C, H, W) float64 tensor out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.errors import InputError
from attentest.images.pillow import picture_pixels

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage

ImageLike: TypeAlias = "PILImage | NDArray[Any] | Tensor | Sample"

LEVELS = {torch.uint8: (0.0, 255.0), torch.uint16: (0.0, 65535.0), torch.bool: (0.0, 1.0)}
"""What dtypes call black and white, where they say so."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """One image as a statistical sample.

    Parameters
    ----------
    pixels : (C, H, W) float64
        Pixel values unchanged, on the CPU; a copy, the caller's image is never shared.
    levels
        What the image's dtype calls black and white, None where it does not say.
    """

    pixels: Tensor
    levels: tuple[float, float] | None

    @property
    def shape(self) -> tuple[int, int, int]:
        """The (C, H, W)."""
        channels, height, width = self.pixels.shape
        return channels, height, width


def as_sample(image: ImageLike) -> Sample:
    """Return an image as a sample.

    Parameters
    ----------
    image
        PIL image, NumPy array (H, W) or (H, W, C), or torch tensor (H, W) or (C, H, W).
    """
    if isinstance(image, Sample):
        return image
    if isinstance(image, Tensor):
        if image.layout != torch.strided or image.is_meta or image.is_quantized:
            raise InputError("an image given as a torch tensor must be dense, with values, and not quantized.")
        pixels = image.detach().cpu()
        received, levels = "torch tensor", LEVELS.get(image.dtype)
    else:
        values, levels = _numpy_pixels(image)
        received = "image array"
        if values.ndim == 3:
            values = np.moveaxis(values, -1, 0)
        pixels = torch.from_numpy(np.ascontiguousarray(values))
    if pixels.is_complex():
        raise InputError("an image must have real pixel values, got complex ones.")
    if pixels.ndim == 2:
        pixels = pixels.unsqueeze(0)
    if pixels.ndim != 3 or pixels.numel() == 0:
        raise InputError(
            f"an image must be (H, W), or (H, W, C) as an array and (C, H, W) as a tensor, "
            f"but the {received} has shape {tuple(pixels.shape)}."
        )
    pixels = pixels.to(torch.float64, copy=True)
    if not bool(torch.isfinite(pixels).all()):
        bad = int((~torch.isfinite(pixels)).sum())
        raise InputError(f"an image must have finite pixel values, but {bad} of {pixels.numel()} are NaN or infinite.")
    return Sample(pixels=pixels, levels=levels)


def _numpy_pixels(image: Any) -> tuple[NDArray[Any], tuple[float, float] | None]:
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
    named = {"u1": torch.uint8, "u2": torch.uint16, "b1": torch.bool}.get(values.dtype.str[1:])
    # torch knows no unsigned integers above 8 bits and no long double, and these all fit in float64.
    return values.astype(np.float64), None if named is None else LEVELS[named]
