"""Images as they enter: PIL, NumPy or torch in, one checked (C, H, W) float64 tensor out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage

ImageLike: TypeAlias = "PILImage | NDArray[Any] | Tensor"

PIL_MODES = ("L", "I", "I;16", "F", "RGB")
"""PIL modes whose pixels are intensities; the others hold palettes, transparency or other colour spaces."""


def image_tensor(image: ImageLike, shape: tuple[int, int, int]) -> Tensor:
    """Return an image as a float64 tensor on the CPU, pixel values unchanged.

    Parameters
    ----------
    image
        PIL image, NumPy array (H, W) or (H, W, C), or torch tensor (H, W) or (C, H, W).
    shape
        The (C, H, W) that the model takes.

    Returns
    -------
    Tensor of shape (C, H, W), float64
        A copy: the caller's image is never shared.
    """
    if isinstance(image, Tensor):
        if image.layout != torch.strided or image.is_meta or image.is_quantized:
            raise InputError("an image given as a torch tensor must be dense, with values, and not quantized.")
        pixels = image.detach().cpu()
        received = "torch tensor"
    else:
        values = _numpy_pixels(image)
        received = "image array"
        if values.ndim == 3:
            values = np.moveaxis(values, -1, 0)
        pixels = torch.from_numpy(np.ascontiguousarray(values))
    if pixels.is_complex():
        raise InputError("an image must have real pixel values, got complex ones.")
    if pixels.ndim == 2:
        pixels = pixels.unsqueeze(0)
    if tuple(pixels.shape) != shape:
        channels, height, width = shape
        raise InputError(
            f"the model takes images of height {height}, width {width} and {channels} channel(s), "
            f"but the {received} has {_describe(pixels)}."
        )
    pixels = pixels.to(torch.float64, copy=True)
    if not bool(torch.isfinite(pixels).all()):
        bad = int((~torch.isfinite(pixels)).sum())
        raise InputError(f"an image must have finite pixel values, but {bad} of {pixels.numel()} are NaN or infinite.")
    return pixels


def _numpy_pixels(image: Any) -> NDArray[Any]:
    mode = getattr(image, "mode", None)
    if isinstance(mode, str) and mode not in PIL_MODES:
        raise InputError(
            f"a PIL image must have one of the modes {', '.join(PIL_MODES)}, got {mode!r}: "
            "convert it first, for example image.convert('L')."
        )
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
    # torch knows no unsigned integers above 8 bits and no long double, and these all fit in float64.
    return values.astype(np.float64)


def _describe(pixels: Tensor) -> str:
    if pixels.ndim != 3:
        return f"shape {tuple(pixels.shape)}"
    channels, height, width = pixels.shape
    return f"height {height}, width {width} and {channels} channel(s)"
