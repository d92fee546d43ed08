"""Reading one image from a file, with a bound on its size."""

from __future__ import annotations

import os
import tokenize
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError
from attentest.images.pillow import DECODING_ERRORS, MAX_PIXELS, check_pixel_count, chosen_frame, picture_pixels, reason

__all__ = ["MAX_PIXELS", "read_image"]

DICOM_MARK = slice(128, 132)
"""Where a DICOM file says that it is one: after a preamble in which other formats may put anything."""

ARCHIVE_MARK = b"PK"
"""How a .npz archive of arrays begins."""


def read_image(path: str | os.PathLike[str], *, frame: int | None = None, window: bool = False) -> NDArray[Any]:
    """Return the pixels of one image: (H, W) or (H, W, C).

    Parameters
    ----------
    path
        A .npy array (H, W) or (H, W, C); a DICOM file, by its suffix .dcm or .dicom or by its content; a NIfTI volume
        (.nii, .nii.gz); or anything that Pillow reads. DICOM and NIfTI need the `medical` extra.
    frame
        Which page, frame or slice (NIfTI: along the last axis) to take, from 0; negative counts from the end.
        None takes the only one, and is refused if there are several.
    window
        Whether to apply the display window of a DICOM file; other files have none.

    Returns
    -------
    Array
        Values as stored, of a dtype that carries their range where there is one; float64 for DICOM and NIfTI, whose
        own scaling is applied.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"an image file must be given as a path, got {type(path).__name__}.")
    path = Path(path)
    head = _head(path)
    suffix = path.suffix.lower()
    is_dicom = suffix in (".dcm", ".dicom") or (suffix not in (".npy", ".npz") and head[DICOM_MARK] == b"DICM")
    if is_dicom:
        from attentest.images.medical import read_dicom

        return read_dicom(path, frame, window)
    if window:
        raise InputError(f"only a DICOM file has a display window, and {path} is none: leave window (--window) out.")
    if suffix in (".npy", ".npz"):
        return _read_npy(path, head, frame)
    if path.name.lower().endswith((".nii", ".nii.gz")):
        from attentest.images.medical import read_nifti

        return read_nifti(path, frame)
    return _read_picture(path, frame)


def _head(path: Path) -> bytes:
    """Return the first bytes of a file that is there and not empty."""
    try:
        if path.is_dir():
            raise InputError(f"{path} is a directory: give an image file in it.")
        if not path.is_file():
            raise InputError(f"there is no image file {path}.")
        with path.open("rb") as file:
            head = file.read(DICOM_MARK.stop)
    except OSError as error:
        raise InputError(f"{path} cannot be opened ({error.strerror or reason(error)}).") from None
    if not head:
        raise InputError(f"{path} is empty: give a file that holds an image.")
    return head


def _read_npy(path: Path, head: bytes, frame: int | None) -> NDArray[Any]:
    if head.startswith(ARCHIVE_MARK):
        raise InputError(f"{path} is an archive of arrays, not a .npy array: save the one array with numpy.save.")
    try:
        values = np.lib.format.open_memmap(path, mode="r")
    except (*DECODING_ERRORS, tokenize.TokenError) as error:
        raise InputError(f"{path} is not a readable .npy array ({reason(error)}).") from None
    if values.dtype.kind not in "biuf":
        raise InputError(f"{path} must hold real numbers, got an array of {values.dtype}.")
    if values.ndim not in (2, 3) or not values.size:
        raise InputError(f"{path} must hold one image (H, W) or (H, W, C), got an array of shape {values.shape}.")
    if values.size > MAX_PIXELS:
        raise InputError(f"{path} holds {values.size} values, more than the {MAX_PIXELS} allowed.")
    chosen_frame(frame, 1, path)
    return np.array(values, dtype=values.dtype.newbyteorder("="))


def _read_picture(path: Path, frame: int | None) -> NDArray[Any]:
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about metadata, and about sizes, for which our own bound is checked
            with Image.open(path) as picture:
                check_pixel_count(picture.width, picture.height, path)
                index = chosen_frame(frame, getattr(picture, "n_frames", 1), path)
                if index != picture.tell():
                    picture.seek(index)
                    check_pixel_count(picture.width, picture.height, path)
                return picture_pixels(picture, name=str(path))
    except InputError:
        raise
    except UnidentifiedImageError:
        raise InputError(
            f"{path} is not an image that can be read: give .npy, PNG, JPEG, TIFF, DICOM or NIfTI."
        ) from None
    except Image.DecompressionBombError:
        raise InputError(f"{path} has more than the {MAX_PIXELS} pixels allowed: crop or shrink it first.") from None
    except DECODING_ERRORS as error:
        raise InputError(f"{path} cannot be read as an image ({reason(error)}).") from None
