"""Frames of DICOM files: only their pixel values are returned, nothing about the patient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError
from attentest.images.dicom_values import COLOUR, GREY, PALETTE, PixelLayout, grey_values, palette_colours
from attentest.images.image_file import (
    DECODING_ERRORS,
    check_pixel_count,
    check_volume,
    chosen_frame,
    optional_package,
    silenced,
)

DEFLATED = "1.2.840.10008.1.2.1.99"
"""Transfer syntax of files compressed as a whole."""


def read_dicom(path: Path, frame: int | None, window: bool) -> NDArray[np.float64]:
    """Return one frame of a DICOM file: (H, W), or (H, W, 3) in colour.

    Grey values are those of the modality (rescale slope and intercept, or its lookup table). With `window` the first
    display table or window of the file is applied to them. MONOCHROME1, in which low values are bright, is inverted
    last, within the range of the stored bits and not that of this image: values that depended on other pixels would
    make the preprocessing depend on the data. Colours are returned as RGB, unscaled, and a palette is looked up. Errors
    quote only tags about the geometry and coding of pixels.
    """
    pydicom = optional_package("pydicom", "DICOM", "pydicom.pixels")
    with silenced("pydicom"):
        header = _header(pydicom, path)
        try:
            layout = _layout(header, path)
            index = chosen_frame(frame, layout.frames, path)
            _check_size(layout, path)
            if window and layout.photometric not in GREY:
                raise InputError(
                    f"a display window belongs to grey images, and {path} is {layout.photometric}: "
                    "leave window (--window) out."
                )
            stored = _stored_values(pydicom, path, layout, index)
            if layout.photometric == PALETTE:
                return palette_colours(header, stored, layout, path)
            if layout.photometric in COLOUR:
                return stored.astype(np.float64)
            return grey_values(header, stored, layout, index, window, path)
        except InputError:
            raise
        except _errors(pydicom):
            # The message of pydicom is not shown: it may quote a tag about the patient.
            raise InputError(f"{path} is a DICOM file with broken tags: export it again from its source.") from None


def _errors(pydicom: Any) -> tuple[type[Exception], ...]:
    return (*DECODING_ERRORS, pydicom.errors.InvalidDicomError, pydicom.errors.BytesLengthException)


def _header(pydicom: Any, path: Path) -> Any:
    """Return all tags before the pixels."""
    try:
        meta = pydicom.filereader.read_file_meta_info(path)
        if meta.get("TransferSyntaxUID") != DEFLATED:
            return pydicom.dcmread(path, stop_before_pixels=True)
    except _errors(pydicom):
        raise InputError(f"{path} is not a DICOM file that can be read: check that it is whole.") from None
    # Such a file must be inflated as a whole, to an unknown size, before its header can be read.
    raise InputError(f"{path} is a deflated DICOM file: inflate it first, for example with dcmconv.")


def _layout(header: Any, path: Path) -> PixelLayout:
    needed = ("Rows", "Columns", "BitsAllocated", "PhotometricInterpretation")
    if any(header.get(tag) in (None, "") for tag in needed):
        raise InputError(f"{path} is a DICOM file without an image: give one that has pixels.")
    syntax = header.file_meta.get("TransferSyntaxUID")
    if not syntax:
        raise InputError(f"{path} is a DICOM file that names no transfer syntax: export it again from its source.")
    allocated = int(header.BitsAllocated)
    layout = PixelLayout(
        rows=int(header.Rows),
        columns=int(header.Columns),
        frames=int(header.get("NumberOfFrames") or 1),
        channels=int(header.get("SamplesPerPixel") or 1),
        bits_allocated=allocated,
        bits_stored=int(header.get("BitsStored") or allocated),
        signed=bool(header.get("PixelRepresentation")),
        photometric=str(header.PhotometricInterpretation),
        syntax=syntax,
    )
    if layout.photometric not in (*GREY, *COLOUR, PALETTE):
        raise InputError(
            f"{path} has the photometric interpretation {layout.photometric!r}, but one of "
            f"{', '.join((*GREY, *COLOUR, PALETTE))} is needed: convert it first, for example with dcmconv or dcmj2pnm."
        )
    return layout


def _check_size(layout: PixelLayout, path: Path) -> None:
    if min(layout.rows, layout.columns, layout.frames, layout.channels, layout.bits_stored) < 1:
        raise InputError(f"{path} is a DICOM file without an image: give one that has pixels.")
    check_pixel_count(layout.columns, layout.rows, path)
    values = layout.rows * layout.columns * layout.channels * layout.frames
    check_volume(values * layout.bits_allocated // 8, path)


def _stored_values(pydicom: Any, path: Path, layout: PixelLayout, index: int) -> NDArray[Any]:
    """Return the stored values (H, W) or (H, W, 3) of one frame; YBR colours are converted to RGB."""
    try:
        decodable = pydicom.pixels.get_decoder(layout.syntax).is_available
    except NotImplementedError:
        decodable = False
    if not decodable:
        known = layout.syntax.is_transfer_syntax and not layout.syntax.is_private
        raise InputError(
            f"{path} is compressed as {layout.syntax.name if known else 'an unknown transfer syntax'}, for which no "
            "decoder is installed: install pylibjpeg with its plugins, or decompress it first, for example with "
            "gdcmconv --raw."
        )
    try:
        stored: NDArray[Any] = pydicom.pixels.pixel_array(path, index=index)
    except AttributeError:
        raise InputError(
            f"{path} is a DICOM file without pixel data or without a tag needed to decode it: give one that has pixels."
        ) from None
    except Exception:  # noqa: BLE001 - each decoder has errors of its own
        raise InputError(
            f"the pixel data of {path} ends before its last pixel or is damaged: copy the file again."
        ) from None
    expected = (layout.rows, layout.columns) + ((3,) if layout.photometric in COLOUR else ())
    if stored.shape != expected:
        raise InputError(
            f"{path} is {layout.photometric} and should decode to {expected}, but its pixels have shape "
            f"{stored.shape}: export it again from its source."
        )
    return stored
