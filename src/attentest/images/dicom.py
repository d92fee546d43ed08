"""Frames of DICOM files as grey values or colours, as DICOM PS3.3 defines them, and nothing about the patient."""

from __future__ import annotations

import math
from dataclasses import dataclass
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

GREY = ("MONOCHROME1", "MONOCHROME2")
COLOUR = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")
PALETTE = "PALETTE COLOR"

BIG_ENDIAN = "1.2.840.10008.1.2.2"
"""Transfer syntax whose numbers have their most significant byte first."""


@dataclass(frozen=True)
class PixelLayout:
    """How a DICOM file stores its pixels."""

    rows: int
    columns: int
    frames: int
    channels: int
    bits_allocated: int
    bits_stored: int
    signed: bool
    photometric: str
    syntax: Any

    @property
    def stored_range(self) -> tuple[float, float]:
        """The least and greatest value that the stored bits can represent."""
        if self.signed:
            return -float(2 ** (self.bits_stored - 1)), float(2 ** (self.bits_stored - 1) - 1)
        return 0.0, float(2**self.bits_stored - 1)


def grey_values(
    header: Any, stored: NDArray[Any], layout: PixelLayout, index: int, window: bool, path: Path
) -> NDArray[np.float64]:
    """Return the grey values (H, W) of one frame from its stored values (H, W)."""
    floating = stored.dtype.kind == "f"
    if floating and (window or layout.photometric == "MONOCHROME1"):
        raise InputError(
            f"{path} has floating-point pixels, whose range a window or MONOCHROME1 would need: "
            "leave window (--window) out or convert it to MONOCHROME2 first."
        )
    values, (low, high) = _modality_values(header, stored, layout, index, path)
    if window:
        values, (low, high) = _windowed(header, values, (low, high), layout, index, path)
    return low + high - values if layout.photometric == "MONOCHROME1" else values


def _modality_values(
    header: Any, stored: NDArray[Any], layout: PixelLayout, index: int, path: Path
) -> tuple[NDArray[np.float64], tuple[float, float]]:
    """Return grey values (H, W) in the units of the modality, and their possible range."""
    if header.get("ModalityLUTSequence"):
        table = _table_of(header.ModalityLUTSequence[0], layout)
        return table.look_up(stored), table.value_range
    tags = _frame_tags(header, index, "PixelValueTransformationSequence")
    slope, intercept = _number(tags, "RescaleSlope", 1.0), _number(tags, "RescaleIntercept", 0.0)
    if slope == 0 or not (math.isfinite(slope) and math.isfinite(intercept)):
        raise InputError(
            f"{path} has a rescale slope of {slope} and a rescale intercept of {intercept}, but they must be finite "
            "and the slope not 0: export it again from its source."
        )
    ends = sorted(slope * end + intercept for end in layout.stored_range)
    return slope * stored.astype(np.float64) + intercept, (ends[0], ends[1])


def _windowed(
    header: Any,
    values: NDArray[np.float64],
    value_range: tuple[float, float],
    layout: PixelLayout,
    index: int,
    path: Path,
) -> tuple[NDArray[np.float64], tuple[float, float]]:
    """Return grey values (H, W) after the first display table or window, and their possible range."""
    tags = _frame_tags(header, index, "FrameVOILUTSequence")
    if tags.get("VOILUTSequence"):
        table = _table_of(tags.VOILUTSequence[0], layout)
        return table.look_up(values), table.value_range
    centre, width = _number(tags, "WindowCenter", math.nan), _number(tags, "WindowWidth", math.nan)
    if not (math.isfinite(centre) and math.isfinite(width)):
        raise InputError(f"{path} has no display window to apply: leave window (--window) out.")
    function = str(tags.get("VOILUTFunction") or "LINEAR").upper()
    low, high = value_range
    return low + (high - low) * _window_share(values, centre, width, function, path), value_range


def _window_share(
    values: NDArray[np.float64], centre: float, width: float, function: str, path: Path
) -> NDArray[np.float64]:
    """Return the position of values between the dark (0) and the bright (1) end of a window (DICOM PS3.3 C.11.2)."""
    if function not in ("LINEAR", "LINEAR_EXACT", "SIGMOID"):
        raise InputError(
            f"{path} has a display window of an unknown kind (LINEAR, LINEAR_EXACT and SIGMOID are known): "
            "leave window (--window) out."
        )
    if width < 1 if function == "LINEAR" else width <= 0:
        raise InputError(f"{path} has a display window without width: leave window (--window) out.")
    if function == "SIGMOID":
        # tanh is the same curve as 1 / (1 + exp(-4 (x - c) / w)), and does not overflow far from the centre.
        share: NDArray[np.float64] = (1 + np.tanh(2 * (values - centre) / width)) / 2
        return share
    if function == "LINEAR":
        centre, width = centre - 0.5, width - 1
    if width == 0:
        return (values > centre).astype(np.float64)
    return np.clip((values - centre) / width + 0.5, 0, 1)


@dataclass(frozen=True)
class _Table:
    """A lookup table of a DICOM file: values below or above those it maps get its first or last entry."""

    entries: NDArray[Any]
    first_mapped: int
    bits: int

    @property
    def value_range(self) -> tuple[float, float]:
        return 0.0, float(2**self.bits - 1)

    def look_up(self, values: NDArray[Any]) -> NDArray[np.float64]:
        positions = np.rint(values.astype(np.float64) - self.first_mapped)
        positions = np.clip(positions, 0, len(self.entries) - 1).astype(np.int64)
        return self.entries[positions].astype(np.float64)


def _table_of(item: Any, layout: PixelLayout) -> _Table:
    return _table(item.LUTDescriptor, item.LUTData, layout)


def _table(descriptor: Any, data: Any, layout: PixelLayout) -> _Table:
    count, first_mapped, bits = (int(number) for number in descriptor)
    count = (count & 0xFFFF) or 2**16  # the tag cannot hold 65536 and stands for it with 0
    if isinstance(data, bytes):
        order = ">" if layout.syntax == BIG_ENDIAN else "<"
        wide = len(data) >= 2 * count
        entries = np.frombuffer(data, dtype=f"{order}u2" if wide else "u1")
    else:
        entries = np.atleast_1d(np.asarray(data, dtype=np.int64))
    if len(entries) < count:
        raise ValueError("the table is shorter than it says")
    return _Table(entries[:count], first_mapped, bits)


def palette_colours(header: Any, stored: NDArray[Any], layout: PixelLayout, path: Path) -> NDArray[np.float64]:
    """Return the colours (H, W, 3) of one frame from its stored values (H, W), which are indices into a palette."""
    names = [f"{colour}PaletteColorLookupTable" for colour in ("Red", "Green", "Blue")]
    if "AlphaPaletteColorLookupTableData" in header or any(f"{name}Data" not in header for name in names):
        raise InputError(
            f"{path} is {PALETTE} with a segmented or transparent palette or none: convert it to RGB first, "
            "for example with dcmconv or dcmj2pnm."
        )
    tables = [_table(header[f"{name}Descriptor"].value, header[f"{name}Data"].value, layout) for name in names]
    return np.stack([table.look_up(stored) for table in tables], axis=-1)


def _frame_tags(header: Any, index: int, group: str) -> Any:
    """Return the tags of a frame: its own, those that all frames share, or those of the file."""
    per_frame = header.get("PerFrameFunctionalGroupsSequence") or []
    shared = header.get("SharedFunctionalGroupsSequence") or []
    for tags in (*per_frame[index : index + 1], *shared[:1]):
        if tags.get(group):
            return tags[group].value[0]
    return header


def _number(tags: Any, name: str, default: float) -> float:
    """Return the number of a tag, the first one if it has several."""
    value = tags.get(name)
    if value is None or value == "":
        return default
    return float(value[0] if hasattr(value, "__getitem__") else value)


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
