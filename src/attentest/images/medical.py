"""Reading one image from a DICOM or NIfTI file: its pixel values, and nothing else that the file says."""

from __future__ import annotations

import gzip
import importlib
import logging
import math
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError
from attentest.images.pillow import DECODING_ERRORS, check_pixel_count, chosen_frame

MAX_VOLUME_BYTES = 4 * 2**30
"""Largest series of frames or slices, uncompressed, of which one is read: 4 GiB."""

MAX_EXTENSION_BYTES = 16 * 2**20
"""Farthest that the pixels of a NIfTI file may begin: what lies before them is read into memory."""

DEFLATED = "1.2.840.10008.1.2.1.99"
BIG_ENDIAN = "1.2.840.10008.1.2.2"

GREY = ("MONOCHROME1", "MONOCHROME2")
COLOUR = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")
PALETTE = "PALETTE COLOR"


def read_dicom(path: Path, frame: int | None, window: bool) -> NDArray[np.float64]:
    """Return one frame of a DICOM file: (H, W), or (H, W, 3) in colour.

    Grey values are those of the modality (rescale slope and intercept, or its table). With `window` they then go
    through the first display table or window of the file. MONOCHROME1, in which low values are bright, is inverted
    last, within the range that the bits stored can reach and never that of this image: a value that depended on the
    other pixels would be part of what selects the region. Colours are returned as RGB, unscaled, and a palette is
    looked up. No other tag is kept, and none is quoted in an error, except those on the geometry and coding of pixels.
    """
    pydicom = _package("pydicom", "DICOM", "pydicom.pixels")
    with _silence("pydicom"):
        header = _dicom_header(pydicom, path)
        try:
            layout = _dicom_layout(header, path)
            index = chosen_frame(frame, layout.frames, path)
            _check_dicom_size(layout, path)
            if window and layout.photometric not in GREY:
                raise InputError(
                    f"a display window belongs to grey images, and {path} is {layout.photometric}: "
                    "leave window (--window) out."
                )
            stored = _dicom_frame(pydicom, path, layout, index)
            if layout.photometric == PALETTE:
                return _look_up_colours(header, stored, layout, path)
            if layout.photometric in COLOUR:
                return stored.astype(np.float64)
            return _grey_values(header, stored, layout, index, window, path)
        except InputError:
            raise
        except _dicom_errors(pydicom):
            # What pydicom says may quote a tag, and so a patient.
            raise InputError(f"{path} is a DICOM file with broken tags: export it again from its source.") from None


def read_nifti(path: Path, frame: int | None) -> NDArray[np.float64]:
    """Return one slice of a NIfTI file, (H, W), scaled by its slope and intercept.

    The axes are those stored, whatever they mean in the patient: the first runs along the width (columns), the second
    along the height (rows), and slices are taken along the third. Nothing is flipped or reoriented. Only the slice
    asked for is kept in memory.
    """
    nibabel = _package("nibabel", "NIfTI")
    with _silence("nibabel.global"):
        try:
            _check_nifti_offset(path)
            volume = nibabel.load(path)
            shape = tuple(int(length) for length in volume.shape)
            stored = volume.header.get_data_dtype()
        except InputError:
            raise
        except _nifti_errors(nibabel):
            raise InputError(f"{path} is not a NIfTI file that can be read: check that it is whole.") from None
        if not isinstance(volume, nibabel.Nifti1Image):
            raise InputError(f"{path} is a {type(volume).__name__}, not a NIfTI image: save it as a plain .nii volume.")
        slices = _check_nifti_shape(shape, stored, path)
        index = chosen_frame(frame, slices, path)
        where = (slice(None), slice(None), index, *(0 for _ in shape[3:]))[: len(shape)]
        try:
            values = np.array(volume.dataobj[where], dtype=np.float64)
        except _nifti_errors(nibabel):
            raise InputError(f"{path} ends before its last pixel or is damaged: copy it again.") from None
    return np.ascontiguousarray(values.T)


def _package(name: str, kind: str, *parts: str) -> Any:
    try:
        package = importlib.import_module(name)
        for part in parts:
            importlib.import_module(part)
    except ImportError:
        raise InputError(f"reading {kind} needs {name}: pip install 'attentest[medical]'.") from None
    return package


@contextmanager
def _silence(name: str) -> Iterator[None]:
    """Keep a reader's warnings and log to itself: they may quote what a file says about a patient."""
    logger = logging.getLogger(name)
    before = logger.disabled
    logger.disabled = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.disabled = before


@dataclass(frozen=True)
class _Layout:
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
        """The least and greatest value that the bits stored can hold."""
        if self.signed:
            return -float(2 ** (self.bits_stored - 1)), float(2 ** (self.bits_stored - 1) - 1)
        return 0.0, float(2**self.bits_stored - 1)


def _dicom_errors(pydicom: Any) -> tuple[type[Exception], ...]:
    return (*DECODING_ERRORS, pydicom.errors.InvalidDicomError, pydicom.errors.BytesLengthException)


def _dicom_header(pydicom: Any, path: Path) -> Any:
    """Return all tags before the pixels."""
    try:
        meta = pydicom.filereader.read_file_meta_info(path)
        if meta.get("TransferSyntaxUID") != DEFLATED:
            return pydicom.dcmread(path, stop_before_pixels=True)
    except _dicom_errors(pydicom):
        raise InputError(f"{path} is not a DICOM file that can be read: check that it is whole.") from None
    # All of such a file has to be inflated, to whatever size, before its header can be read.
    raise InputError(f"{path} is a deflated DICOM file: inflate it first, for example with dcmconv.")


def _dicom_layout(header: Any, path: Path) -> _Layout:
    needed = ("Rows", "Columns", "BitsAllocated", "PhotometricInterpretation")
    if any(header.get(tag) in (None, "") for tag in needed):
        raise InputError(f"{path} is a DICOM file without an image: give one that has pixels.")
    syntax = header.file_meta.get("TransferSyntaxUID")
    if not syntax:
        raise InputError(f"{path} is a DICOM file that names no transfer syntax: export it again from its source.")
    allocated = int(header.BitsAllocated)
    layout = _Layout(
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


def _check_dicom_size(layout: _Layout, path: Path) -> None:
    if min(layout.rows, layout.columns, layout.frames, layout.channels, layout.bits_stored) < 1:
        raise InputError(f"{path} is a DICOM file without an image: give one that has pixels.")
    check_pixel_count(layout.columns, layout.rows, path)
    values = layout.rows * layout.columns * layout.channels * layout.frames
    _check_volume(values * layout.bits_allocated // 8, path)


def _check_volume(size: int, path: Path) -> None:
    if size > MAX_VOLUME_BYTES:
        raise InputError(
            f"{path} holds {size} bytes of pixels, more than the {MAX_VOLUME_BYTES} allowed: split it first."
        )


def _dicom_frame(pydicom: Any, path: Path, layout: _Layout, index: int) -> NDArray[Any]:
    """Return one frame as stored, YBR colours converted to RGB."""
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


def _grey_values(
    header: Any, stored: NDArray[Any], layout: _Layout, index: int, window: bool, path: Path
) -> NDArray[np.float64]:
    floating = stored.dtype.kind == "f"
    if floating and (window or layout.photometric == "MONOCHROME1"):
        raise InputError(
            f"{path} has floating-point pixels, whose range a window or MONOCHROME1 would need: "
            "leave window (--window) out or convert it to MONOCHROME2 first."
        )
    values, (low, high) = _modality_values(header, stored, layout, index)
    if window:
        values, (low, high) = _windowed(header, values, (low, high), layout, index, path)
    return low + high - values if layout.photometric == "MONOCHROME1" else values


def _modality_values(
    header: Any, stored: NDArray[Any], layout: _Layout, index: int
) -> tuple[NDArray[np.float64], tuple[float, float]]:
    """Return grey values in the units of the modality, and the range that these can reach."""
    if header.get("ModalityLUTSequence"):
        table = _table_of(header.ModalityLUTSequence[0], layout)
        return table.look_up(stored), table.value_range
    tags = _frame_tags(header, index, "PixelValueTransformationSequence")
    slope, intercept = _number(tags, "RescaleSlope", 1.0), _number(tags, "RescaleIntercept", 0.0)
    ends = sorted(slope * end + intercept for end in layout.stored_range)
    return slope * stored.astype(np.float64) + intercept, (ends[0], ends[1])


def _windowed(
    header: Any,
    values: NDArray[np.float64],
    value_range: tuple[float, float],
    layout: _Layout,
    index: int,
    path: Path,
) -> tuple[NDArray[np.float64], tuple[float, float]]:
    """Return grey values after the first display table or window, and the range that these can reach."""
    tags = _frame_tags(header, index, "FrameVOILUTSequence")
    if tags.get("VOILUTSequence"):
        table = _table_of(tags.VOILUTSequence[0], layout)
        return table.look_up(values), table.value_range
    centre, width = _number(tags, "WindowCenter", math.nan), _number(tags, "WindowWidth", math.nan)
    if math.isnan(centre) or math.isnan(width):
        raise InputError(f"{path} has no display window to apply: leave window (--window) out.")
    function = str(tags.get("VOILUTFunction") or "LINEAR").upper()
    low, high = value_range
    return low + (high - low) * _window_share(values, centre, width, function, path), value_range


def _window_share(
    values: NDArray[np.float64], centre: float, width: float, function: str, path: Path
) -> NDArray[np.float64]:
    """Return where values lie between the dark (0) and the bright (1) end of a window, as DICOM PS3.3 C.11.2 says."""
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
    """A lookup table of a DICOM file: values below or above the ones it maps get its first or last entry."""

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


def _table_of(item: Any, layout: _Layout) -> _Table:
    return _table(item.LUTDescriptor, item.LUTData, layout)


def _table(descriptor: Any, data: Any, layout: _Layout) -> _Table:
    count, first_mapped, bits = (int(number) for number in descriptor)
    count = (count & 0xFFFF) or 2**16  # 65536 does not fit the tag, which writes it as 0
    if isinstance(data, bytes):
        order = ">" if layout.syntax == BIG_ENDIAN else "<"
        wide = len(data) >= 2 * count
        entries = np.frombuffer(data, dtype=f"{order}u2" if wide else "u1")
    else:
        entries = np.atleast_1d(np.asarray(data, dtype=np.int64))
    if len(entries) < count:
        raise ValueError("the table is shorter than it says")
    return _Table(entries[:count], first_mapped, bits)


def _look_up_colours(header: Any, stored: NDArray[Any], layout: _Layout, path: Path) -> NDArray[np.float64]:
    names = [f"{colour}PaletteColorLookupTable" for colour in ("Red", "Green", "Blue")]
    if "AlphaPaletteColorLookupTableData" in header or any(f"{name}Data" not in header for name in names):
        raise InputError(
            f"{path} is {PALETTE} with a segmented or transparent palette or none: convert it to RGB first, "
            "for example with dcmconv or dcmj2pnm."
        )
    tables = [_table(header[f"{name}Descriptor"].value, header[f"{name}Data"].value, layout) for name in names]
    return np.stack([table.look_up(stored) for table in tables], axis=-1)


def _frame_tags(header: Any, index: int, group: str) -> Any:
    """Return the tags that hold for a frame: those of its own, those that all frames share, or those of the file."""
    per_frame = header.get("PerFrameFunctionalGroupsSequence") or []
    shared = header.get("SharedFunctionalGroupsSequence") or []
    for tags in (*per_frame[index : index + 1], *shared[:1]):
        if tags.get(group):
            return tags[group].value[0]
    return header


def _number(tags: Any, name: str, default: float) -> float:
    """Return a number of a tag, the first one if there are several."""
    value = tags.get(name)
    if value is None or value == "":
        return default
    return float(value[0] if hasattr(value, "__getitem__") else value)


def _nifti_errors(nibabel: Any) -> tuple[type[Exception], ...]:
    own = (nibabel.filebasedimages.ImageFileError, nibabel.spatialimages.HeaderDataError)
    return (*DECODING_ERRORS, *own)


def _check_nifti_offset(path: Path) -> None:
    """Refuse a file with a huge gap between header and pixels: nibabel reads what lies there, however much it is."""
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        head = file.read(540)
    for order in "<>":
        (kind,) = struct.unpack_from(f"{order}i", head)
        where = {348: ("f", 108), 540: ("q", 168)}.get(kind)
        if where is not None:
            (offset,) = struct.unpack_from(order + where[0], head, where[1])
            if not offset <= MAX_EXTENSION_BYTES:
                raise InputError(
                    f"{path} has its pixels after byte {offset:.0f}, more than the {MAX_EXTENSION_BYTES} allowed: "
                    "save it again without extensions."
                )


def _check_nifti_shape(shape: tuple[int, ...], stored: np.dtype[Any], path: Path) -> int:
    """Return the number of slices of a volume that can be read."""
    if stored.kind not in "iuf":
        raise InputError(f"{path} must hold one real number per pixel, got {stored}: convert it first.")
    if len(shape) < 2 or min(shape) < 1 or any(length > 1 for length in shape[3:]):
        raise InputError(
            f"{path} has shape {shape}, but an image (W, H) or a volume (W, H, slices) is needed: "
            "save one volume of it first."
        )
    check_pixel_count(shape[0], shape[1], path)
    _check_volume(math.prod(shape) * stored.itemsize, path)
    return shape[2] if len(shape) > 2 else 1
