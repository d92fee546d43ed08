"""Reading one image from a file, with a bound on its size."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError

MAX_PIXELS = 64_000_000
"""Largest image read: 8000 x 8000. Anything above it is an accident or an attack."""


def read_image(path: Path) -> NDArray[Any]:
    """Return the pixels of a .npy file or of an image file that Pillow reads, unscaled: (H, W) or (H, W, C)."""
    if not path.is_file():
        raise InputError(f"there is no image file {path}.")
    return _read_npy(path) if path.suffix.lower() == ".npy" else _read_picture(path)


def _read_npy(path: Path) -> NDArray[Any]:
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path} is not a readable .npy array ({_reason(error)}).") from None
    if not isinstance(values, np.ndarray):
        raise InputError(f"{path} is an archive of arrays, not a .npy array.")
    if values.size > MAX_PIXELS:
        raise InputError(f"{path} holds {values.size} values, more than the {MAX_PIXELS} allowed.")
    return np.array(values)


def _read_picture(path: Path) -> NDArray[Any]:
    from PIL import Image, UnidentifiedImageError

    from attentest.image import PIL_MODES

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own bound is checked below
            with Image.open(path) as picture:
                if picture.width * picture.height > MAX_PIXELS:
                    raise InputError(
                        f"{path} has {picture.width} x {picture.height} pixels, more than the {MAX_PIXELS} allowed."
                    )
                if picture.mode not in PIL_MODES:
                    raise InputError(
                        f"{path} has mode {picture.mode!r}, but one of {', '.join(PIL_MODES)} is needed: "
                        "convert it first."
                    )
                return np.asarray(picture)
    except InputError:
        raise
    except UnidentifiedImageError:
        raise InputError(f"{path} is not an image that can be read: give .npy, PNG, JPEG or TIFF.") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(f"{path} cannot be read as an image ({_reason(error)}).") from None


def _reason(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
