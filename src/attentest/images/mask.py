"""A mask: which pixels of an image are looked at or compared, fixed before the image is seen."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError, shortened
from attentest.images.image_source import loaded
from attentest.images.preprocessing import described_shape


@dataclass(frozen=True, eq=False)
class Mask:
    """Pixels (*axes) bool, at least one of them within the mask."""

    pixels: NDArray[np.bool_]

    def describe(self) -> dict[str, Any]:
        """Return a hash of the pixels, with their shape, and the share of them that lies within the mask."""
        shape = self.pixels.shape
        digest = hashlib.sha256(str(shape).encode() + np.packbits(self.pixels).tobytes()).hexdigest()
        return {"sha256": digest, "shape": list(shape), "share": float(self.pixels.mean())}

    def check_image(self, shape: tuple[int, ...]) -> None:
        """Raise an error for images (C, *axes) of another shape."""
        if self.pixels.shape != shape[1:]:
            raise InputError(
                f"the mask is for images of {described_shape((1, *self.pixels.shape))}, but this one has "
                f"{described_shape(shape)}: a mask must have the pixels of the image.",
                "mask",
            )

    def __repr__(self) -> str:
        return f"<mask of {int(self.pixels.sum())} of {self.pixels.size} pixels>"


def as_mask(value: Any) -> Mask | None:
    """Return a mask from an array (*axes) or a file: what is not 0 is within it."""
    if value is None or isinstance(value, Mask):
        return value
    path = value
    if isinstance(value, (str, bytes)) or hasattr(value, "__fspath__"):
        try:
            value = loaded(path).values
        except InputError:
            value = loaded(path, 3).values  # of a volume
    pixels = np.asarray(value)
    if pixels.ndim == 3 and pixels.shape[-1] in (3, 4) and path is not value:  # a picture in colour
        pixels = pixels[..., :3].max(axis=-1)
    if pixels.dtype.kind not in "buif" or not 1 <= pixels.ndim <= 3:
        raise InputError(
            f"mask must be an array of truth values with the axes of the image, got {shortened(path)}.", "mask"
        )
    if pixels.dtype.kind == "f" and not np.isfinite(pixels).all():
        raise InputError("mask must be made of truth values, but some of it is NaN or infinite.", "mask")
    within = pixels != 0
    if not within.any():
        raise InputError("mask is empty: at least one pixel must be within it.", "mask")
    within.setflags(write=False)
    return Mask(within)
