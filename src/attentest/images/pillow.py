"""Pixels of pictures that Pillow reads, exactly as stored, or an error that says why that is impossible."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError
from attentest.images.image_file import MAX_PIXELS, check_size, chosen_frame, decoding
from attentest.registry import IMAGE_FORMATS, Registry

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage

FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "GIF", "WEBP", "PPM", "JPEG2000", "AVIF")
"""Formats that are read, by Pillow's names, whatever a file is called: of others, one starts another program."""

PLAIN_MODES = ("1", "L", "I;16", "I", "F", "RGB")  # modes whose pixels are read unchanged

READABLE_MODES = (*PLAIN_MODES, "I;16L", "I;16B", "I;16N", "P", "LA", "RGBA", "PA")
"""Modes that can be read; the others hold premultiplied values or other colour spaces."""

GREY_STEP = {"L;2": 85, "L;4": 17}  # factor by which Pillow spreads grey levels of 2 and 4 bits over 0 to 255


def read_picture(path: Path, frame: int | None) -> NDArray[Any]:
    """Return the pixels of one frame of a picture file, (H, W) or (H, W, 3), as :func:`picture_pixels` does."""
    from PIL import Image, UnidentifiedImageError

    with warnings.catch_warnings(), decoding(f"{path} cannot be read as an image", quoted=True):
        warnings.simplefilter("ignore")  # about metadata, and about sizes, which are checked here
        Image.init()  # all formats are known then; some are left out where their libraries are not there
        try:
            with Image.open(path, formats=[known for known in FORMATS if known in Image.OPEN]) as picture:
                check_size(picture.width, picture.height, path)
                index = chosen_frame(frame, getattr(picture, "n_frames", 1), path)
                if index != picture.tell():
                    picture.seek(index)
                    check_size(picture.width, picture.height, path)
                return picture_pixels(picture, name=str(path))
        except UnidentifiedImageError:
            known = {name: kind for name, kind in IMAGE_FORMATS.items() if 2 in kind.dimensions}
            choices = Registry("image file", known).choices()
            raise InputError(f"{path} is not an image that can be read: give {choices}.") from None
        except Image.DecompressionBombError:
            raise InputError(
                f"{path} has more than the {MAX_PIXELS} pixels allowed: crop or shrink it first."
            ) from None


def picture_pixels(picture: PILImage, *, name: str = "the picture") -> NDArray[Any]:
    """Return the pixels (H, W) or (H, W, 3) of a Pillow picture, unscaled, and upright as its EXIF orientation says.

    A picture opened from a file should not be loaded yet: afterwards it no longer shows that Pillow reduced 16 bits per
    channel to 8. Pixels are bool, uint8 or uint16, whose range is that of the picture, or int32 or float32, which have
    no range. A palette is replaced by its colours, or grey values if all colours used are grey. An alpha channel is
    dropped if every pixel is opaque. Errors call the picture by its name.
    """
    from PIL import ImageOps

    stored = _stored_pixels(picture)
    _check_depth(picture, stored, name)
    if picture.mode not in READABLE_MODES:
        raise InputError(
            f"{name} has mode {picture.mode!r}, but one of {', '.join((*PLAIN_MODES, 'P'))} is needed: "
            "convert it first, for example image.convert('RGB')."
        )
    with warnings.catch_warnings(), decoding(f"{name} cannot be read as an image", quoted=True):
        warnings.simplefilter("ignore")  # about metadata that is not used
        _load(picture)
        pixels, transparent = _split_transparency(ImageOps.exif_transpose(picture), {mode for mode, _ in stored})
    if transparent:
        raise InputError(
            f"{name} has mode {picture.mode!r}, and {transparent} of its {picture.width * picture.height} pixels are "
            "transparent, and the model would see what transparency hides: flatten it onto a background first."
        )
    unsigned = tuple(getattr(picture, "tag_v2", {339: (0,)}).get(339, (1,))) == (1,)  # of a TIFF
    if picture.mode == "I" and unsigned and bool((pixels < 0).any()):  # which Pillow has converted from unsigned ones
        raise InputError(f"{name} has pixel values above {2**31 - 1}, which Pillow cannot hold: save it as .npy.")
    return pixels


def _load(picture: PILImage) -> None:
    """Decode a picture; an uncompressed TIFF without a memory map, which scrambles one to be turned by 90 degrees."""
    filename = getattr(picture, "filename", None)
    if picture.format != "TIFF" or not filename:
        picture.load()
        return
    # Pillow maps only files whose name it knows, and swaps height and width too early.
    picture.filename = ""  # type: ignore[attr-defined]
    try:
        picture.load()
    finally:
        picture.filename = filename  # type: ignore[attr-defined]


def _stored_pixels(picture: PILImage) -> set[tuple[str, int]]:
    """Return how the file of a picture that is not loaded yet stores its pixels.

    These are Pillow's raw modes, each with the greatest level of a PPM picture, which Pillow keeps next to it, or 255.
    """
    stored = set()
    for tile in getattr(picture, "tile", []):
        arguments = tile[3] if len(tile) > 3 else None
        listed = arguments if isinstance(arguments, tuple) and arguments else (arguments,)
        if isinstance(listed[0], str):
            stored.add((listed[0], listed[1] if tile[0] in ("ppm", "ppm_plain") and len(listed) > 1 else 255))
    return stored


def _check_depth(picture: PILImage, stored: set[tuple[str, int]], name: str) -> None:
    """Check that Pillow reads all bits of a picture."""
    if picture.mode.startswith("I") or picture.mode == "F":
        return
    bits_per_sample = getattr(picture, "tag_v2", {}).get(258, (8,))  # of a TIFF
    if max(bits_per_sample) > 8 or any(re.search(";16[BLN]", mode) or greatest > 255 for mode, greatest in stored):
        raise InputError(
            f"{name} has 16 bits per channel, of which Pillow reads only 8: read it with a package that reads all of "
            "them and give the array, or save it as .npy."
        )
    if picture.format == "JPEG2000" and picture.mode != "L":
        raise InputError(
            f"{name} is a JPEG 2000 in colour, of which Pillow reads 8 bits per channel however many it has: "
            "read it with a package that reads all of them and give the array, or save it as .npy."
        )


def _split_transparency(picture: PILImage, raw_modes: set[str]) -> tuple[NDArray[Any], int]:
    """Return the pixels without an alpha channel, and the number of pixels that are not opaque."""
    if picture.mode in ("LA", "RGBA"):
        bands = np.array(picture)
        pixels = bands[..., 0] if picture.mode == "LA" else bands[..., :3]
        return np.ascontiguousarray(pixels), int((bands[..., -1] < 255).sum())
    if picture.mode in ("P", "PA"):
        bands = np.array(picture.convert("RGBA"))
        grey = bool((bands[..., :3] == bands[..., :1]).all())
        return np.ascontiguousarray(bands[..., 0] if grey else bands[..., :3]), int((bands[..., 3] < 255).sum())
    pixels = np.array(picture)
    pixels = pixels.astype(pixels.dtype.newbyteorder("="), copy=False)
    transparent = picture.info.get("transparency")  # the one colour that the file declares transparent
    if transparent is None:
        return pixels, 0
    if pixels.ndim == 3:
        return pixels, int((pixels == np.asarray(transparent)).all(axis=-1).sum())
    if pixels.dtype == np.bool_:
        return pixels, int((pixels == bool(transparent)).sum())
    # Pillow returns this colour as stored, while it spreads the grey levels of the pixels.
    step = max((GREY_STEP.get(raw, 1) for raw in raw_modes), default=1)
    return pixels, int((pixels == transparent * step).sum())
