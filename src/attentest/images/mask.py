"""Masks: which pixels of images are looked at or compared, fixed before the images are seen."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError, shortened
from attentest.images.image_file import Scan
from attentest.images.image_source import ImageSource, loaded
from attentest.images.preprocessing import described_shape

ROUNDING = 1e-3  # how far a label may be from a whole number: a file may store it scaled


@dataclass(frozen=True, eq=False)
class Mask:
    """Pixels (*axes) bool, at least one of them within the mask."""

    pixels: NDArray[np.bool_]
    affine: NDArray[np.float64] | None = None
    """(4, 4). Where the mask lies in space, where its file tells."""

    @cached_property
    def sha256(self) -> str:
        """A hash of the pixels, with their shape."""
        return hashlib.sha256(str(self.pixels.shape).encode() + np.packbits(self.pixels).tobytes()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """Return the hash, the shape, and the number and the share of the pixels that lie within the mask."""
        shape, within = list(self.pixels.shape), int(self.pixels.sum())
        return {"sha256": self.sha256, "shape": shape, "pixels": within, "share": within / self.pixels.size}

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


@dataclass(frozen=True, eq=False)
class Masks:
    """A mask for each image, by its name or number; or files, in whose names "*" stands for that of an image."""

    known: Mapping[int | str, Mask] | str

    def describe(self) -> dict[str, Any]:
        """Return the names of the files, or a hash of all masks by their names, and how many there are."""
        if isinstance(self.known, str):
            return {"files": self.known}
        listed = sorted(f"{name}: {mask.sha256}" for name, mask in self.known.items())
        return {"sha256": hashlib.sha256("\n".join(listed).encode()).hexdigest(), "masks": len(listed)}

    def found(self, identity: int | str) -> list[Any]:
        """Return the masks of an image, by its name or number, or their files; "*" for those of all images."""
        if not isinstance(self.known, str):
            return [mask for name in (self.known if identity == "*" else [identity]) if (mask := self.known.get(name))]
        stem = identity if identity == "*" else glob.escape(os.path.splitext(str(identity))[0].removesuffix(".nii"))
        before, after = self.known.split("*")
        name = f"{stem}{glob.escape(after) or '.*'}"
        found = glob.glob(f"{glob.escape(before)}{name}")
        if not found and not after and before.endswith(os.sep):  # a folder, whose folders may be those of the images
            found = glob.glob(os.path.join(glob.escape(before), "**", name), recursive=True)
        return sorted(found)

    def of(self, identity: int | str) -> Mask:
        """Return the mask of an image, by its name or number."""
        found = self.found(identity)
        if len(found) != 1:
            where = f" in {self.known!r} (* stands for it, without its ending)" if isinstance(self.known, str) else ""
            said = f"there must be one mask of the name of {shortened(identity)}{where}, but there are"
            raise InputError(f"{said} {len(found) or 'none'}.", "mask")
        mask = as_mask(found[0])
        assert isinstance(mask, Mask)
        return mask


def _scan_of(path: Any) -> Scan:
    """Return what a file holds: an image, a volume, or a signal."""
    try:
        return loaded(path)
    except InputError as error:
        for dimension in (3, 1):
            with suppress(InputError):
                return loaded(path, dimension)
        raise error from None


def as_mask(value: Any) -> Mask | Masks | None:
    """Return a mask from an array (*axes) or a file: what is not 0 is within it.

    A folder, a pattern such as ``masks/*_mask.png``, or a mapping has a mask for each image, by its name.
    """
    if value is None or isinstance(value, (Mask, Masks)):
        return value
    if isinstance(value, Mapping):
        return Masks({name: mask for name, given in value.items() if isinstance(mask := as_mask(given), Mask)})
    path, affine = value, None
    if isinstance(value, (str, bytes, os.PathLike)):
        name = os.fsdecode(value)
        if os.path.isdir(name) or "*" in name:
            masks = Masks(name if "*" in name else os.path.join(name, "*"))
            if name.count("*") > 1 or not masks.found("*"):
                raise InputError(
                    f"mask {shortened(name)} must be a folder or a pattern with one *, which stands for the name of an "
                    "image, and there must be such files.",
                    "mask",
                )
            return masks
        if not os.path.exists(name):
            raise InputError(f"mask {shortened(name)} is neither a file nor a folder.", "mask")
    called = "mask"
    if isinstance(value, (str, bytes, os.PathLike, ImageSource)):
        value, _, affine = _scan_of(path)
        called = f"mask {path.name if isinstance(path, ImageSource) else os.fsdecode(path)}"
    pixels = np.asarray(value)
    if pixels.ndim == 3 and pixels.shape[-1] in (3, 4) and path is not value:  # a picture in colour
        pixels = pixels[..., :3].max(axis=-1)
    if pixels.dtype.kind not in "buif" or not 1 <= pixels.ndim <= 3:
        raise InputError(
            f"mask must be an array of truth values with the axes of the image, got {shortened(path)}.", "mask"
        )
    if pixels.dtype.kind == "f" and not np.isfinite(pixels).all():
        raise InputError(f"{called} must be made of truth values, but some of it is NaN or infinite.", "mask")
    if pixels.dtype.kind == "f" and np.abs(pixels - np.rint(pixels)).max() > ROUNDING and len(np.unique(pixels)) > 2:
        raise InputError(
            f"{called} must be made of truth values or labels, but it has fractions, as a mask that was interpolated "
            "or a map of probabilities has, of which all that is not 0 would be within it: give it as mask > 0.5.",
            "mask",
        )
    within = pixels != 0
    if not within.any():
        raise InputError(f"{called} is empty: at least one pixel must be within it.", "mask")
    within.setflags(write=False)
    return Mask(within, affine)
