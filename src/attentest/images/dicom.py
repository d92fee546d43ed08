"""Frames of DICOM files as grey values or colours, as DICOM PS3.3 defines them, and nothing about the patient."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError
from attentest.images import image_file
from attentest.images.dicom_slice import NO_POSITION, Slice, affine_of, in_order
from attentest.images.image_file import Scan, Spacing

GREY = ("MONOCHROME1", "MONOCHROME2")
COLOUR = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")
PALETTE = "PALETTE COLOR"
"""Photometric interpretations that are read."""

NEEDED_TAGS = ("Rows", "Columns", "BitsAllocated", "PhotometricInterpretation")

WINDOWS = ("LINEAR", "LINEAR_EXACT", "SIGMOID")  # kinds of display windows

DEFLATED, BIG_ENDIAN = "1.2.840.10008.1.2.1.99", "1.2.840.10008.1.2.2"
"""Transfer syntaxes of files compressed as a whole, and of numbers whose most significant byte comes first."""


def errors_of(pydicom: Any) -> tuple[type[Exception], ...]:
    """Return the errors of pydicom about a damaged file that are no usual ones."""
    return pydicom.errors.InvalidDicomError, pydicom.errors.BytesLengthException


def read_header(pydicom: Any, path: Path) -> Any:
    """Return all tags of a DICOM file before its pixels."""
    with image_file.decoding(
        f"{path} is not a DICOM file that can be read: check that it is whole", *errors_of(pydicom)
    ):
        if pydicom.filereader.read_file_meta_info(path).get("TransferSyntaxUID") == DEFLATED:
            # Such a file must be inflated as a whole, to an unknown size, before its header can be read.
            raise InputError(f"{path} is a deflated DICOM file: inflate it first, for example with dcmconv.")
        return pydicom.dcmread(path, stop_before_pixels=True)


def read_dicom(path: Path, frame: int | None, window: bool, dimension: int = 2) -> Scan:
    """Return one frame of a DICOM file, (H, W), or (H, W, 3) in colour, or all of its frames as a volume (D, H, W).

    Grey values are those of the modality (rescale slope and intercept, or its lookup table). With `window` the first
    display table or window of the file is applied to them. MONOCHROME1, in which low values are bright, is inverted
    last, within the range of the stored bits and not that of this image: values that depended on other pixels would
    make the preprocessing depend on the data. Colours are returned as RGB, unscaled, and a palette is looked up. Errors
    quote only tags about the geometry and coding of pixels.
    """
    with image_file.optional_package("DICOM", "pydicom", "medical", None, "pydicom.pixels") as pydicom:
        header = read_header(pydicom, path)
        with image_file.decoding(
            f"{path} is a DICOM file with broken tags: export it again from its source", *errors_of(pydicom)
        ):
            if dimension == 3:
                return _frames(pydicom, header, path, frame, window)
            image = _Frame(pydicom, header, path, frame)
            if window and image.photometric not in GREY:
                raise InputError(
                    f"a display window belongs to grey images, and {path} is {image.photometric}: "
                    "leave window (--window) out."
                )
            stored = image.stored_values()
            if image.photometric == PALETTE:
                pixels = image.palette_colours(stored)
            elif image.photometric in COLOUR:
                pixels = stored.astype(np.float64)
            else:
                pixels = image.grey_values(stored, window)
            return Scan(pixels, image.spacing(), image.affine())


def _frames(pydicom: Any, header: Any, path: Path, frame: int | None, window: bool) -> Scan:
    """Return all frames of a DICOM file as a volume (D, H, W).

    They are sorted by their positions along the normal; without positions of their own they stay as stored.
    """
    count = int(header.get("NumberOfFrames") or 1)
    if count < 2 or frame is not None:
        raise InputError(
            f"{path} has {count} frames, and is read as a volume: give a file of several, without frame=, or the "
            "folder of the slices of a series."
        )
    image_file.check_values(count * int(header.get("Rows") or 0) * int(header.get("Columns") or 0), path)
    first = _Frame(pydicom, header, path, 0)
    order, spacing, affine = list(range(count)), first.spacing("SpacingBetweenSlices"), None
    if any(tags.get("PlanePositionSequence") for tags in header.get("PerFrameFunctionalGroupsSequence") or []):
        slices, step = in_order((_Frame(pydicom, header, path, number).place() for number in order), "file")
        order, lengths, affine = [part.index for part in slices], slices[0].spacing, affine_of(slices)
        spacing = Spacing.known([step, *lengths], "mm") if lengths else None
    planes = [read_dicom(path, number, window).values for number in order]
    if planes[0].ndim != 2:
        raise InputError(f"{path} is in colour, and a volume of grey values is needed.")
    return Scan(np.stack(planes), spacing, affine)


class _Grey(NamedTuple):
    """Grey values (H, W), and the least and the greatest value that they can have."""

    values: NDArray[np.float64]
    low: float
    high: float


class _Frame:
    """A frame of a DICOM file of which all tags before the pixels, but not these, have been read as its header."""

    def __init__(self, pydicom: Any, header: Any, path: Path, frame: int | None) -> None:
        self._pydicom, self._header, self._path = pydicom, header, path
        if any(header.get(tag) in (None, "") for tag in NEEDED_TAGS):
            raise InputError(f"{path} is a DICOM file without an image: give one that has pixels.")
        self._syntax = header.file_meta.get("TransferSyntaxUID")
        if not self._syntax:
            raise InputError(f"{path} is a DICOM file that names no transfer syntax: export it again from its source.")
        self.photometric = str(header.PhotometricInterpretation)
        if self.photometric not in (*GREY, *COLOUR, PALETTE):
            raise InputError(
                f"{path} has the photometric interpretation {self.photometric!r}, but one of "
                f"{', '.join((*GREY, *COLOUR, PALETTE))} is needed: convert it first, for example with dcmconv or "
                "dcmj2pnm."
            )
        self._shape = int(header.Rows), int(header.Columns)
        allocated = int(header.BitsAllocated)
        self._bits = int(header.get("BitsStored") or allocated)
        self._frames = frames = int(header.get("NumberOfFrames") or 1)
        channels = int(header.get("SamplesPerPixel") or 1)
        self._index = image_file.chosen_frame(frame, frames, path)
        if min(*self._shape, frames, channels, self._bits) < 1:
            raise InputError(f"{path} is a DICOM file without an image: give one that has pixels.")
        rows, columns = self._shape
        image_file.check_size(columns, rows, path, rows * columns * channels * frames * allocated // 8)

    def spacing(self, *between: str) -> Spacing | None:
        """Return the distances of rows and columns, after that in a tag; None if there is none that can be read."""
        broken: tuple[type[Exception], ...] = (*image_file.DECODING_ERRORS, *errors_of(self._pydicom))
        try:
            tags = self._tags("PixelMeasuresSequence")
            return Spacing.known([*(tags.get(tag) for tag in between), *tags.get("PixelSpacing")], "mm")
        except broken:
            return None

    def place(self) -> Slice:
        """Return where the frame lies, as its own position and its orientation, or that of all frames, tell."""
        name = f"frame {self._index} of {self._path}"
        with image_file.decoding(f"{name} {NO_POSITION}", *errors_of(self._pydicom)):
            if self._frames == 1:
                own = self._tags("PlanePositionSequence")
            else:  # a position of all frames is that of the first
                own = self._header.PerFrameFunctionalGroupsSequence[self._index].PlanePositionSequence[0]
            plane, measures = self._tags("PlaneOrientationSequence"), self._tags("PixelMeasuresSequence")
            return Slice.told(name, self._index, self._header, own, plane, measures)

    def affine(self) -> NDArray[np.float64] | None:
        """Return where the frame lies, as a volume of one slice; None if it does not tell."""
        try:
            return affine_of([self.place()])
        except InputError:
            return None

    def stored_values(self) -> NDArray[Any]:
        """Return the stored values (H, W) or (H, W, 3); YBR colours are converted to RGB."""
        pixels, path = self._pydicom.pixels, self._path
        try:
            decodable = pixels.get_decoder(self._syntax).is_available
        except NotImplementedError:
            decodable = False
        if not decodable:
            known = self._syntax.is_transfer_syntax and not self._syntax.is_private
            raise InputError(
                f"{path} is compressed as {self._syntax.name if known else 'an unknown transfer syntax'}, for which no "
                "decoder is installed: install pylibjpeg with its plugins, or decompress it first, for example with "
                "gdcmconv --raw."
            )
        try:
            stored: NDArray[Any] = pixels.pixel_array(path, index=self._index)
        except AttributeError:
            raise InputError(
                f"{path} is a DICOM file without pixel data or without a tag needed to decode it: give one that has "
                "pixels."
            ) from None
        except Exception:  # noqa: BLE001  # each decoder has errors of its own
            raise InputError(
                f"the pixel data of {path} ends before its last pixel or is damaged: copy the file again."
            ) from None
        expected = (*self._shape, 3) if self.photometric in COLOUR else self._shape
        if stored.shape != expected:
            raise InputError(
                f"{path} is {self.photometric} and should decode to {expected}, but its pixels have shape "
                f"{stored.shape}: export it again from its source."
            )
        return stored

    def palette_colours(self, stored: NDArray[Any]) -> NDArray[np.float64]:
        """Return the colours (H, W, 3) of stored values (H, W), which are indices into a palette."""
        header = self._header
        names = [f"{colour}PaletteColorLookupTable" for colour in ("Red", "Green", "Blue")]
        if "AlphaPaletteColorLookupTableData" in header or any(f"{name}Data" not in header for name in names):
            raise InputError(
                f"{self._path} is {PALETTE} with a segmented or transparent palette or none: convert it to RGB first, "
                "for example with dcmconv or dcmj2pnm."
            )
        tables = [(header[f"{name}Descriptor"].value, header[f"{name}Data"].value) for name in names]
        return np.stack([self._looked_up(stored, *table).values for table in tables], axis=-1)

    def grey_values(self, stored: NDArray[Any], window: bool) -> NDArray[np.float64]:
        """Return the grey values (H, W) of stored values (H, W)."""
        inverted = self.photometric == "MONOCHROME1"
        if stored.dtype.kind == "f" and (window or inverted):
            raise InputError(
                f"{self._path} has floating-point pixels, whose range a window or MONOCHROME1 would need: "
                "leave window (--window) out or convert it to MONOCHROME2 first."
            )
        grey = self._modality_values(stored)
        if window:
            grey = self._windowed(grey)
        return grey.low + grey.high - grey.values if inverted else grey.values

    def _modality_values(self, stored: NDArray[Any]) -> _Grey:
        """Return grey values in the units of the modality."""
        if table := self._header.get("ModalityLUTSequence"):
            return self._looked_up(stored, table[0].LUTDescriptor, table[0].LUTData)
        tags = self._tags("PixelValueTransformationSequence")
        slope, intercept = _number(tags, "RescaleSlope", 1.0), _number(tags, "RescaleIntercept", 0.0)
        if slope == 0 or not (math.isfinite(slope) and math.isfinite(intercept)):
            raise InputError(
                f"{self._path} has a rescale slope of {slope} and a rescale intercept of {intercept}, but they must be "
                "finite and the slope not 0: export it again from its source."
            )
        levels = 2.0**self._bits
        first = -levels / 2 if self._header.get("PixelRepresentation") else 0.0
        low, high = sorted(slope * end + intercept for end in (first, first + levels - 1))
        return _Grey(slope * stored.astype(np.float64) + intercept, low, high)

    def _windowed(self, grey: _Grey) -> _Grey:
        """Return grey values after the first display table or window (DICOM PS3.3 C.11.2)."""
        tags = self._tags("FrameVOILUTSequence")
        if table := tags.get("VOILUTSequence"):
            return self._looked_up(grey.values, table[0].LUTDescriptor, table[0].LUTData)
        centre, width = _number(tags, "WindowCenter", math.nan), _number(tags, "WindowWidth", math.nan)
        function = str(tags.get("VOILUTFunction") or WINDOWS[0]).upper()
        if not (math.isfinite(centre) and math.isfinite(width)):
            raise InputError(f"{self._path} has no display window to apply: leave window (--window) out.")
        if function not in WINDOWS:
            raise InputError(
                f"{self._path} has a display window of an unknown kind ({', '.join(WINDOWS[:-1])} and {WINDOWS[-1]} "
                "are known): leave window (--window) out."
            )
        if width < 1 if function == "LINEAR" else width <= 0:
            raise InputError(f"{self._path} has a display window without width: leave window (--window) out.")
        # pydicom takes the range of its output from the tags, and inverts it where the rescale slope is negative: these
        # tags, of unsigned values of one bit, give the position between the dark (0) and the bright (1) end.
        only_window = self._pydicom.Dataset()
        only_window.PhotometricInterpretation, only_window.BitsStored, only_window.PixelRepresentation = GREY[1], 1, 0
        only_window.WindowCenter, only_window.WindowWidth, only_window.VOILUTFunction = centre, width, function
        share = self._pydicom.pixels.apply_windowing(grey.values, only_window)
        return grey._replace(values=grey.low + (grey.high - grey.low) * share)

    def _tags(self, group: str) -> Any:
        """Return the tags of a group: those of the frame, those that all frames share, or those of the file."""
        per_frame = self._header.get("PerFrameFunctionalGroupsSequence") or []
        shared = self._header.get("SharedFunctionalGroupsSequence") or []
        for tags in (*per_frame[self._index : self._index + 1], *shared[:1]):
            if tags.get(group):
                return tags[group].value[0]
        return self._header

    def _looked_up(self, values: NDArray[Any], descriptor: Any, data: Any) -> _Grey:
        """Return the entries of a lookup table at values (H, W): its first or last entry beyond those it maps.

        pydicom looks positions up in the dtype of the entries, in which they wrap around, and knows no tables of 8 bits
        that are packed.
        """
        count, first_mapped, bits = (int(number) for number in descriptor)
        count = (count & 0xFFFF) or 2**16  # the tag cannot hold 65536 and stands for it with 0
        if isinstance(data, bytes):
            wide = ">u2" if self._syntax == BIG_ENDIAN else "<u2"
            entries = np.frombuffer(data, dtype=wide if len(data) >= 2 * count else "u1")
        else:
            entries = np.atleast_1d(np.asarray(data, dtype=np.int64))
        if len(entries) < count:
            raise ValueError("the table is shorter than it says")
        positions = np.rint(values.astype(np.float64) - first_mapped).clip(0, count - 1).astype(np.int64)
        return _Grey(entries[positions].astype(np.float64), 0.0, float(2**bits - 1))


def _number(tags: Any, name: str, default: float) -> float:
    """Return the number of a tag, the first one if it has several."""
    value = tags.get(name)
    if value is None or value == "":
        return default
    return float(value[0] if hasattr(value, "__getitem__") else value)
