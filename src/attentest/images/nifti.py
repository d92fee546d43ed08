"""Slices of NIfTI volumes."""

from __future__ import annotations

import gzip
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError
from attentest.images.image_file import (
    DECODING_ERRORS,
    check_pixel_count,
    check_volume,
    chosen_frame,
    optional_package,
    silenced,
)

MAX_EXTENSION_BYTES = 16 * 2**20
"""Largest offset of the pixels of a NIfTI file: nibabel reads everything before them into memory."""

LONGEST_HEADER = 540
"""Bytes of a NIfTI-2 header; one of NIfTI-1 has 348."""

SCALING_FIELDS = {348: ("2f", 112), 540: ("2d", 176)}
"""For each length of a header, the struct format and the place of the slope and the intercept of the pixels."""

OFFSET_FIELDS = {348: ("f", 108), 540: ("q", 168)}
"""For each length of a header, the struct format and the place of the offset of the pixels."""


def read_nifti(path: Path, frame: int | None) -> NDArray[np.float64]:
    """Return one slice of a NIfTI file, (H, W), scaled by its slope and intercept.

    The axes are those stored, whatever they mean in the patient: the first runs along the width (columns), the second
    along the height (rows), and slices are taken along the third. Nothing is flipped or reoriented. Only the chosen
    slice is read into memory.
    """
    nibabel = optional_package("nibabel", "NIfTI")
    with silenced("nibabel.global"):
        try:
            _check_header(path)
            volume = nibabel.load(path)
            shape = tuple(int(length) for length in volume.shape)
            stored = volume.header.get_data_dtype()
        except InputError:
            raise
        except _errors(nibabel):
            raise InputError(f"{path} is not a NIfTI file that can be read: check that it is whole.") from None
        if not isinstance(volume, nibabel.Nifti1Image):
            raise InputError(f"{path} is a {type(volume).__name__}, not a NIfTI image: save it as a plain .nii volume.")
        slices = _slice_count(shape, stored, path)
        index = chosen_frame(frame, slices, path)
        where = (slice(None), slice(None), index, *(0 for _ in shape[3:]))[: len(shape)]
        try:
            values = np.array(volume.dataobj[where], dtype=np.float64)
        except _errors(nibabel):
            raise InputError(f"{path} ends before its last pixel or is damaged: copy it again.") from None
    return np.ascontiguousarray(values.T)


def _errors(nibabel: Any) -> tuple[type[Exception], ...]:
    own = (nibabel.filebasedimages.ImageFileError, nibabel.spatialimages.HeaderDataError)
    return (*DECODING_ERRORS, *own)


def _check_header(path: Path) -> None:
    """Refuse a file with a huge gap between header and pixels or with a scaling that is not finite.

    Nibabel reads the gap, however large it is, and ignores such a scaling.
    """
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        head = file.read(LONGEST_HEADER)
    for order in "<>":
        (length,) = struct.unpack_from(f"{order}i", head)
        if length in OFFSET_FIELDS:
            field, place = OFFSET_FIELDS[length]
            (offset,) = struct.unpack_from(order + field, head, place)
            if not offset <= MAX_EXTENSION_BYTES:
                raise InputError(
                    f"{path} has its pixels after byte {offset:.0f}, more than the {MAX_EXTENSION_BYTES} allowed: "
                    "save it again without extensions."
                )
            field, place = SCALING_FIELDS[length]
            slope, intercept = struct.unpack_from(order + field, head, place)
            # A slope of zero says that there is no scaling, whatever the intercept is.
            if slope != 0 and not (math.isfinite(slope) and math.isfinite(intercept)):
                raise InputError(
                    f"{path} has a slope of {slope} and an intercept of {intercept} to scale its pixels with, but they "
                    "must be finite: save it again with the right scaling, or with a slope of 0 for none."
                )


def _slice_count(shape: tuple[int, ...], stored: np.dtype[Any], path: Path) -> int:
    """Return the number of slices of a volume; refuse one that cannot be read."""
    if stored.kind not in "iuf":
        raise InputError(f"{path} must hold one real number per pixel, got {stored}: convert it first.")
    if len(shape) < 2 or min(shape) < 1 or any(length > 1 for length in shape[3:]):
        raise InputError(
            f"{path} has shape {shape}, but an image (W, H) or a volume (W, H, slices) is needed: "
            "save one volume of it first."
        )
    check_pixel_count(shape[0], shape[1], path)
    check_volume(math.prod(shape) * stored.itemsize, path)
    return shape[2] if len(shape) > 2 else 1
