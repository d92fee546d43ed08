"""Reading one image from a file of any known format."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from attentest.errors import InputError
from attentest.images.image_file import MAX_PIXELS, reason
from attentest.registry import IMAGE_FORMATS, ImageFormat

__all__ = ["MAX_PIXELS", "read_image"]


def read_image(path: str | os.PathLike[str], *, frame: int | None = None, window: bool = False) -> NDArray[Any]:
    """Return the pixels of one image: (H, W) or (H, W, C).

    Parameters
    ----------
    path
        A .npy array (H, W) or (H, W, C); a DICOM file, by its suffix .dcm or .dicom or by its content; a NIfTI volume
        (.nii, .nii.gz); or any picture that Pillow reads. DICOM and NIfTI need the `medical` extra.
    frame
        Index of the page, frame or slice (NIfTI: along the last axis) to read, from 0; negative counts from the end.
        None reads the only one, and is refused if there are several.
    window
        Whether to apply the display window of a DICOM file; files of other formats have none.

    Returns
    -------
    Array
        Values as stored, in a dtype with the same range where they have one; float64 for DICOM and NIfTI, whose
        own scaling is applied.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"an image file must be given as a path, got {type(path).__name__}.")
    path = Path(path)
    file_format = _format_of(path, _first_bytes(path))
    if file_format.has_window:
        return file_format.load()(path, frame, window)  # type: ignore[no-any-return]
    if window:
        windowed = " or ".join(name for name, one in IMAGE_FORMATS.items() if one.has_window)
        raise InputError(
            f"only a {windowed} file has a display window, and {path} is none: leave window (--window) out."
        )
    return file_format.load()(path, frame)  # type: ignore[no-any-return]


def _format_of(path: Path, head: bytes) -> ImageFormat:
    """Return the format of a file: by its suffix, else by its first bytes, else the one that needs neither."""
    formats = IMAGE_FORMATS.values()
    name = path.name.lower()
    by_suffix = [one for one in formats if one.suffixes and name.endswith(one.suffixes)]
    by_content = [one for one in formats if one.signature and head.startswith(one.signature, one.signature_offset)]
    others = [one for one in formats if not one.suffixes and not one.signature]
    return (by_suffix + by_content + others)[0]


def check_regular(path: Path) -> None:
    """Refuse what is no file, or one that cannot be read twice and may never end, such as a pipe."""
    if not path.exists():
        raise InputError(f"there is no image file {path}.")
    if not path.is_file():
        raise InputError(f"{path} is not a regular file: save the image first.")


def _first_bytes(path: Path) -> bytes:
    """Return as many first bytes of a file as any format needs to be recognised; refuse a missing or empty file."""
    try:
        if path.is_dir():
            raise InputError(f"{path} is a directory: give an image file in it.")
        check_regular(path)
        with path.open("rb") as file:
            head = file.read(max(one.signature_offset + len(one.signature) for one in IMAGE_FORMATS.values()) or 1)
    except OSError as error:
        raise InputError(f"{path} cannot be opened ({error.strerror or reason(error)}).") from None
    if not head:
        raise InputError(f"{path} is empty: give a file that holds an image.")
    return head
