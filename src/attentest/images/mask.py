"""Masks: which pixels of images are looked at or compared, fixed before the images are seen."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError, shortened, some
from attentest.images.image_file import Scan
from attentest.images.image_source import ImageSource, loaded
from attentest.images.preprocessing import described_shape
from attentest.registry import IMAGE_FORMATS, PICTURE_SUFFIXES

MOST_LABELS = 32  # most different values of a picture with white in it that are taken for labels
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
        folder, before = os.path.split(self.known.split("*")[0])
        after = self.known.split("*")[1]
        if identity == "*":  # also in folders, which are those of images of equal names
            anywhere = os.path.join(glob.escape(folder), "**", f"{glob.escape(before)}*{glob.escape(after)}")
            files = filter(os.path.isfile, glob.iglob(anywhere, recursive=True))
            return sorted(path for path in files if after or _without_suffix(path) != path)
        folders, name = os.path.split(_stem(str(identity)))
        path = os.path.join(folder, folders, f"{before}{name}{after}")
        if after:
            return [path] if os.path.isfile(path) else []
        return sorted(other for other in glob.glob(f"{glob.escape(path)}.*") if _without_suffix(other) == path)

    def of(self, identity: int | str) -> Mask:
        """Return the mask of an image, by its name or number."""
        found = self.found(identity)
        if len(found) != 1:
            where = f" in {self.known!r} (* stands for it, without its ending)" if isinstance(self.known, str) else ""
            said = f"there must be one mask of the name of {shortened(identity)}{where}, but there are"
            raise InputError(f"{said} {some([os.path.basename(path) for path in found]) or 'none'}.", "mask")
        mask = as_mask(found[0])
        assert isinstance(mask, Mask)
        return mask


SIGNALS = tuple(suffix for kind in IMAGE_FORMATS.values() if kind.dimensions == (1,) for suffix in kind.suffixes)
GREY = (*IMAGE_FORMATS[".npy"].suffixes, *IMAGE_FORMATS["NIfTI"].suffixes)  # the last axis of these is no colour
SUFFIXES = (*(suffix for kind in IMAGE_FORMATS.values() for suffix in kind.suffixes), *PICTURE_SUFFIXES)


def _without_suffix(name: str) -> str:
    """Return the name of a file without a known suffix: not every point in a name begins one."""
    suffix = max((suffix for suffix in SUFFIXES if name.lower().endswith(suffix)), key=len, default="")
    return name[: len(name) - len(suffix)]


def _stem(identity: str) -> str:
    """Return the name of an image without a frame or a number in a stack, and without a known suffix."""
    file = re.sub(r"\[frame -?\d+\]$", "", identity)
    stack = re.sub(r"\[([^\[\],]+,)?\d+\]$", "", file)
    return _without_suffix(stack if _without_suffix(stack) != stack else file)


def _scan_of(path: Any) -> Scan:
    """Return what a file holds: an image, a volume, or a signal."""
    try:
        return loaded(path)
    except InputError as error:
        for dimension in (3, 1):
            with suppress(InputError):
                return loaded(path, dimension)
        raise error from None


def _read(path: Any, name: str) -> Scan:
    """Return the mask in a file, with an axis for each of the image's."""
    scan, kind = _scan_of(path), name.lower()
    pixels = scan.values
    if kind.endswith(PICTURE_SUFFIXES):
        different = np.unique(pixels)
        is_jpeg, white = kind.endswith((".jpg", ".jpeg")), different[-1] in (255, 65535)
        if len(different) > 2 and (is_jpeg or (white and len(different) > MOST_LABELS)):
            raise InputError(
                f"mask {name} has {len(different)} different values, as one that was resized or saved as JPEG has at "
                "its edges: save it as PNG where it was made, or with its values above a threshold alone.",
                "mask",
            )
    if pixels.ndim == 3 and pixels.shape[-1] in (3, 4) and not kind.endswith(GREY):  # in colour
        pixels = pixels[..., :3].max(axis=-1)
    if pixels.ndim == 2 and kind.endswith(SIGNALS):
        if len(pixels) > 1:
            raise InputError(
                f"mask {name} has {len(pixels)} channels or columns, and the mask of a signal has one: give that of an "
                "image as a picture or .npy file.",
                "mask",
            )
        pixels = pixels[0]
    return scan._replace(values=pixels)


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
        name = value.name if isinstance(value, ImageSource) else os.fsdecode(value)
        value, _, affine = _read(path, name)
        called = f"mask {name}"
    pixels = np.asarray(value)
    if pixels.dtype.kind not in "buif" or not 1 <= pixels.ndim <= 3:
        raise InputError(
            f"mask must be an array of truth values with the axes of the image, got {shortened(path)}.", "mask"
        )
    if pixels.dtype.kind == "f" and not np.isfinite(pixels).all():
        raise InputError(
            f"{called} must be made of truth values, but some of it is NaN or infinite: give 0 for what is not within.",
            "mask",
        )
    labels = np.rint(pixels) if pixels.dtype.kind == "f" else pixels
    if labels is not pixels and np.abs(pixels - labels).max() > ROUNDING:
        if len(np.unique(pixels)) > 2:
            raise InputError(
                f"{called} must be made of truth values or labels, but it has fractions, as a mask that was "
                "interpolated or a map of probabilities has, of which all that is not 0 would be within it: give it "
                "as mask > 0.5.",
                "mask",
            )
        labels = pixels
    within = labels != 0
    if not within.any():
        within = pixels != 0  # of a mask that is stored as tiny numbers
    if not within.any():
        raise InputError(f"{called} is empty: at least one pixel must be within it.", "mask")
    within.setflags(write=False)
    return Mask(within, affine)
