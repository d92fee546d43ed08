"""NIfTI volumes, and slices of them."""

from __future__ import annotations

import gzip
import math
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError
from attentest.images.image_file import (
    Scan,
    Spacing,
    check_size,
    check_values,
    chosen_frame,
    decoding,
    optional_package,
)
from attentest.registry import IMAGE_FORMATS

MAX_EXTENSION_BYTES = 16 * 2**20
"""Largest offset of the pixels of a NIfTI file: nibabel reads everything before them into memory."""

MAX_TRAILING_BYTES = 16 * 2**20
"""Most bytes after the last pixel of a compressed NIfTI file: all are read, since its checksum comes after them."""

PIECE = 2**20  # bytes of a compressed file that are in memory at a time while its checksum is verified

LONGEST_HEADER = 540  # bytes of a NIfTI-2 header

FIELDS = {348: (("f", 108), ("2f", 112)), 540: (("q", 168), ("2d", 176))}
"""For each length of a header, of NIfTI-1 and NIfTI-2, struct format and place of the offset of the pixels, and of
their slope and intercept."""

UNITS = {1: "m", 2: "mm", 3: "um"}  # codes of the units of lengths

PLACE = (
    *("pixdim", "xyzt_units", "qform_code", "quatern_b", "quatern_c", "quatern_d"),
    *("qoffset_x", "qoffset_y", "qoffset_z", "sform_code", "srow_x", "srow_y", "srow_z"),
)
"""Fields of a header that tell where a volume lies in space."""


def read_nifti(path: Path, frame: int | None, dimension: int = 2) -> Scan:
    """Return one slice of a NIfTI file, (H, W), or its volume, (slices, H, W), scaled by its slope and intercept.

    The axes are those stored, whatever they mean in the patient: the first runs along the width (columns), the second
    along the height (rows), and slices are taken along the third. Nothing is flipped or reoriented. Of a chosen
    slice only its pixels are read into memory, although a compressed file is read to its end for its checksum.
    """
    with optional_package("NIfTI", "nibabel", "medical", "nibabel.global") as nibabel:
        errors = nibabel.filebasedimages.ImageFileError, nibabel.spatialimages.HeaderDataError
        with decoding(f"{path} is not a NIfTI file that can be read: check that it is whole", *errors):
            _check_header(path)
            volume = nibabel.load(path)
            shape = tuple(int(length) for length in volume.shape)
            stored = volume.header.get_data_dtype()
        if not isinstance(volume, nibabel.Nifti1Image):
            raise InputError(f"{path} is a {type(volume).__name__}, not a NIfTI image: save it as a plain .nii volume.")
        if stored.kind not in "iuf":
            raise InputError(f"{path} must hold one real number per pixel, got {stored}: convert it first.")
        if len(shape) < 2 or min(shape) < 1 or any(length > 1 for length in shape[3:]):
            raise InputError(
                f"{path} has shape {shape}, but an image (W, H) or a volume (W, H, slices) is needed: "
                "save one volume of it first."
            )
        check_size(shape[0], shape[1], path, math.prod(shape) * stored.itemsize)
        index: Any = slice(None)
        if dimension == 2:
            index = chosen_frame(frame, shape[2] if len(shape) > 2 else 1, path)
        elif len(shape) < 3 or frame is not None:
            raise InputError(f"{path} has shape {shape}, and is read as a volume: it must have slices, and no frame=.")
        else:
            check_values(math.prod(shape), path)
        where = (slice(None), slice(None), index, *(0 for _ in shape[3:]))[: len(shape)]
        with decoding(f"{path} ends before its last pixel or is damaged: copy it again", *errors):
            _check_whole(path, int(volume.dataobj.offset) + math.prod(shape) * stored.itemsize)
            values = np.array(volume.dataobj[where], dtype=np.float64)
        # The header has so many digits as str shows.
        lengths = [str(np.float32(size)) for size in nibabel.affines.voxel_sizes(volume.affine)[: values.ndim][::-1]]
        unit = UNITS.get(int(volume.header["xyzt_units"]) % 8, "")  # the higher bits are the unit of time
        # Without either of these codes the file does not say where it lies, and Nibabel makes an affine of its shape.
        is_placed = int(volume.header["sform_code"]) or int(volume.header["qform_code"])
    affine = volume.affine if is_placed else None
    if affine is not None and dimension == 2:
        affine = affine.copy()
        with np.errstate(over="ignore", invalid="ignore"):  # it may hold any number
            affine[:3, 3] += index * affine[:3, 2]
    return Scan(np.ascontiguousarray(values.T), Spacing.known(lengths, unit), affine)


def is_nifti(path: Path) -> bool:
    """Return whether a file is a NIfTI file by its name."""
    return path.name.lower().endswith(IMAGE_FORMATS["NIfTI"].suffixes)


def nifti_like(source: Path | NDArray[np.float64], values: NDArray[Any]) -> bytes | None:
    """Return the content of a NIfTI file with a mask or a map (slices, H, W) of a volume, in its place in space.

    The volume is in a NIfTI file, or is given by its affine (4, 4), in mm; None if its affine is not finite. Of a
    file only the place in space is taken: its range of display, intent and texts are not those of the map.
    """
    stored = values.T.astype(np.uint8 if values.dtype == np.bool_ else values.dtype)
    with optional_package("NIfTI", "nibabel", "medical", "nibabel.global") as nibabel:
        if isinstance(source, np.ndarray):
            if not np.isfinite(source).all():
                return None
            volume = nibabel.Nifti1Image(stored, source)
            volume.header.set_xyzt_units("mm")
            content: bytes = volume.to_bytes()
            return content
        volume = nibabel.load(source)
        if not np.isfinite(volume.affine).all():
            return None
        header = type(volume.header)()
        for field in PLACE:
            header[field] = volume.header[field]
        header.set_data_dtype(stored.dtype)
        header.set_slope_inter(1, 0)
        shape = (*stored.shape, *volume.shape[stored.ndim :])
        content = type(volume)(stored.reshape(shape), volume.affine, header).to_bytes()
        return content


def _check_header(path: Path) -> None:
    """Check that the gap between header and pixels is not huge, and that the scaling of the pixels is finite.

    Nibabel reads the gap, however large it is, and ignores a scaling that is not finite.
    """
    if _is_compressed(path) and path.stat().st_size > PIECE:
        with path.open("rb") as file:
            file.seek(-PIECE, os.SEEK_END)
            if not any(file.read(PIECE)):  # the rest of an unfinished copy, which gzip would skip byte by byte
                raise InputError(f"{path} ends in zeros and is damaged: copy it again.")
    with gzip.open(path) if _is_compressed(path) else path.open("rb") as file:
        head = file.read(LONGEST_HEADER)
    for order in "<>":
        (length,) = struct.unpack_from(f"{order}i", head)
        if length not in FIELDS:
            continue
        offset, slope, intercept = (
            number for field, place in FIELDS[length] for number in struct.unpack_from(order + field, head, place)
        )
        if not offset <= MAX_EXTENSION_BYTES:
            raise InputError(
                f"{path} has its pixels after byte {offset:.0f}, more than the {MAX_EXTENSION_BYTES} allowed: "
                "save it again without extensions."
            )
        # A slope of zero says that there is no scaling, whatever the intercept is.
        if slope != 0 and not (math.isfinite(slope) and math.isfinite(intercept)):
            raise InputError(
                f"{path} has a slope of {slope} and an intercept of {intercept} to scale its pixels with, but they "
                "must be finite: save it again with the right scaling, or with a slope of 0 for none."
            )


def _check_whole(path: Path, announced: int) -> None:
    """Check the checksum of a compressed file, and that it holds not far more bytes than its header announces.

    Nibabel stops at the last pixel that it needs, and the checksum comes after all of them.
    """
    if not _is_compressed(path):
        return
    most = announced + MAX_TRAILING_BYTES
    held = 0
    with gzip.open(path) as file:
        while held <= most and file.read(PIECE):
            held = file.tell()
    if held > most:
        raise InputError(
            f"{path} goes on for more than {MAX_TRAILING_BYTES // 2**20} MiB after its last pixel: save it again "
            "without what is there."
        )


def _is_compressed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"
