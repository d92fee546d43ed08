"""Image files: reading one of any known format, with bounds on its size, and how far apart its pixels are."""

from __future__ import annotations

import importlib
import logging
import math
import os
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attentest.checks import positive_number, whole_number
from attentest.errors import InputError, shortened, worded
from attentest.registry import IMAGE_FORMATS

MAX_PIXELS = 64_000_000  # most pixels of an image that is read, 8000 x 8000: a larger one is a mistake or an attack

MAX_VOLUME_BYTES = 4 * 2**30
"""Most bytes, uncompressed, of a series of frames or slices from which one is read: 4 GiB."""

ZIP = b"PK\x03\x04"  # what an archive starts with

LONGEST_REASON = 200  # most characters of an error's message that another repeats: it may quote the file

DECODING_ERRORS = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RuntimeError,
    AssertionError,
    MemoryError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
"""Errors that decoders are known to raise on a damaged file."""


@contextmanager
def decoding(problem: str, *errors: type[Exception], quoted: bool = False) -> Iterator[None]:
    """Replace the errors that a decoder raises on a damaged file by an :class:`InputError`.

    They are ``DECODING_ERRORS`` and the others that are given. The problem is the sentence of the error, without its
    full stop; if ``quoted``, it ends with what the decoder said, in parentheses, which about a medical image may quote
    a tag about the patient.
    """
    caught: tuple[type[Exception], ...] = (*DECODING_ERRORS, *errors)
    try:
        yield
    except InputError:
        raise
    except caught as error:
        raise InputError(f"{problem} ({reason(error)})." if quoted else f"{problem}.") from None


def check_size(width: int, height: int, name: object, volume_bytes: int = 0) -> None:
    """Check that the size that an image's header announces is not too large, before any of its pixels is decoded.

    ``volume_bytes`` is the size, uncompressed, of the frames or slices that the image is taken from.
    """
    if width * height > MAX_PIXELS:
        raise InputError(
            f"{name} has {width} x {height} pixels, more than the {MAX_PIXELS} allowed: crop or shrink it first."
        )
    if volume_bytes > MAX_VOLUME_BYTES:
        raise InputError(
            f"{name} holds {volume_bytes} bytes of pixels, more than the {MAX_VOLUME_BYTES} allowed: split it first."
        )


def check_values(count: int, name: object) -> None:
    """Check that a signal or a volume has not too many values, before memory is taken for them."""
    if count > MAX_PIXELS:
        raise InputError(f"{name} holds {count} values, more than the {MAX_PIXELS} allowed: split it first.")


def chosen_frame(frame: int | None, count: int, name: object) -> int:
    """Return the index, from 0, of a chosen frame out of ``count``; None stands for the only one."""
    if frame is not None:
        return whole_number(frame, f"frame (of {name})", -count, count - 1) % count
    if count != 1:
        raise InputError(
            f"{name} has {count} frames and one is needed: pick it with frame= or --frame, from 0 to {count - 1}."
        )
    return 0


def reason(error: BaseException) -> str:
    """Return the first line of an error's message, shortened and without its full stop, to be put in parentheses."""
    lines = str(error).splitlines()
    first = lines[0] if lines else type(error).__name__
    return (first if len(first) <= LONGEST_REASON else f"{first[:LONGEST_REASON]}...").rstrip(".")


@contextmanager
def optional_package(
    file_format: str, name: str, extra: str, logger_name: str | None = None, *submodules: str
) -> Iterator[Any]:
    """Import a package of an extra, and submodules of it, and silence it while it is used.

    Its warnings and the messages of its logger may quote what a file says about a patient.
    """
    try:
        package = importlib.import_module(name)
        for submodule in submodules:
            importlib.import_module(submodule)
    except ImportError:
        raise InputError(f"reading {file_format} needs {name}: pip install 'attentest[{extra}]'.") from None
    logger = logging.getLogger(logger_name or name)
    before = logger.disabled
    logger.disabled = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield package
    finally:
        logger.disabled = before


UNITS = ("s", "mm", "um", "m", "")
"""Units of spacings; an empty one is not known, and only the proportions of an image are."""

CENTIMETRE = 10.0  # in millimetres: an area or a volume of at least one square or cubic centimetre is said in these


@dataclass(frozen=True)
class Spacing:
    """The distance of neighbouring pixels along each axis."""

    lengths: tuple[float, ...]
    unit: str = ""

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise InputError(f"the unit of a spacing must be one of {', '.join(UNITS)}, got {shortened(self.unit)}.")
        lengths = tuple(positive_number(length, "spacing (each length)") for length in self.lengths)
        object.__setattr__(self, "lengths", lengths)

    @classmethod
    def known(cls, lengths: Sequence[Any], unit: str) -> Spacing | None:
        """Return the spacing that a file tells; None if it tells none, or nonsense."""
        try:
            return cls(tuple(float(length) for length in lengths), unit)
        except (InputError, TypeError, ValueError):
            return None

    @property
    def size_unit(self) -> str:
        """The unit of a length, area or volume: "s", "mm2", "mm3"; empty if it is not known."""
        axes = len(self.lengths)
        return f"{self.unit}{axes}" if self.unit and axes > 1 else self.unit

    def size(self, count: int) -> float:
        """Return the length, area or volume of so many pixels."""
        return count * math.prod(self.lengths)

    def size_text(self, count: int) -> str:
        """Return the size of so many pixels: "0.41 s", "9.6 cm3"; empty if the unit is not known."""
        size, unit, axes = self.size(count), self.size_unit, len(self.lengths)
        if self.unit == "mm" and axes > 1 and size >= CENTIMETRE**axes:
            size, unit = size / CENTIMETRE**axes, f"cm{axes}"
        return f"{size:.3g} {unit}" if unit else ""


class Scan(NamedTuple):
    """What a file holds: its values, and how far apart and where in space they are, if it tells."""

    values: NDArray[Any]
    spacing: Spacing | None = None
    affine: NDArray[np.float64] | None = None
    """(4, 4). The place of a volume: from columns, rows and slices to lengths towards right, front and head; of an
    image, as of a volume of one slice."""


def read_image(
    path: str | os.PathLike[str],
    *,
    frame: int | None = None,
    window: bool = False,
    dimension: int = 2,
    channels: Sequence[str] = (),
) -> NDArray[Any]:
    """Return the pixels of one image, (H, W) or (H, W, C), of a signal, (C, T), or of a volume, (D, H, W).

    Parameters
    ----------
    path
        A .npy array (H, W) or (H, W, C); a DICOM file, by its suffix .dcm or .dicom or by its content; a NIfTI volume
        (.nii, .nii.gz); or a picture: PNG, JPEG, TIFF, BMP, GIF, WebP, PPM, JPEG 2000 or AVIF. DICOM and NIfTI need
        the `medical` extra. Signals are in EDF and WFDB files (.hea), which need the `signals` extra, in WAV files and
        in columns of CSV files; volumes in NIfTI files, DICOM files of several frames, or a folder of the slices of a
        DICOM series; both also in .npy arrays.
    frame
        Index of the page, frame or slice (NIfTI: along the last axis) to read, from 0; negative counts from the end.
        None reads the only one; it is an error if there are several.
    window
        Whether to apply the display window of a DICOM file; files of other formats have none.
    dimension
        Number of axes: 1 of a signal, 2 of an image, 3 of a volume.
    channels
        Names, or numbers from 0, of the channels of a signal to read; by default all.

    Returns
    -------
    Array
        Values as stored, in a dtype with the same range where they have one; float64 for DICOM and NIfTI, whose
        own scaling is applied.
    """
    return read_scan(path, frame=frame, window=window, dimension=dimension, channels=channels).values


def read_scan(
    path: str | os.PathLike[str], *, frame: int | None, window: bool, dimension: int, channels: Sequence[str]
) -> Scan:
    """Return what :func:`read_image` returns, with the spacing of the pixels where the file tells it."""
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"an image file must be given as a path, got {type(path).__name__}.")
    path = Path(path)
    is_folder = dimension == 3 and path.is_dir()
    head = b"" if is_folder else _first_bytes(path)
    formats = [kind for kind in IMAGE_FORMATS.values() if kind.is_folder == is_folder]
    by_suffix = [kind for kind in formats if kind.suffixes and path.name.lower().endswith(kind.suffixes)]
    by_content = [kind for kind in formats if kind.signature and head.startswith(kind.signature, kind.signature_offset)]
    others = [kind for kind in formats if not kind.suffixes and not kind.signature]
    if head.startswith(ZIP) and not by_suffix:
        raise InputError(f"{path} is a ZIP archive: unpack it, and give a file of it, or the folder of a DICOM series.")
    file_format = (by_suffix + by_content + others)[0]
    name = next(name for name, known in IMAGE_FORMATS.items() if known is file_format)
    if dimension not in file_format.dimensions:
        holds = " or ".join(worded("images", known) for known in file_format.dimensions)
        raise InputError(
            f"{path} is taken for {name}, which holds {holds}, and {worded('an image', dimension)} is needed: give "
            f"one, or a model of {holds}.",
            f"a model of {holds}",
        )
    if channels and dimension != 1:
        raise InputError(f"{path} is taken for {name}, whose channels have no names: leave channels (--channel) out.")
    if file_format.dimensions == (1,):
        if frame is not None:
            raise InputError(f"{path} is taken for {name}, which has no frames: leave frame (--frame) out.")
        return as_scan(file_format.load()(path, channels))
    axes = (dimension,) if len(file_format.dimensions) > 1 else ()
    if file_format.has_window:
        return as_scan(file_format.load()(path, frame, window, *axes))
    if window:
        windowed = " or ".join(name for name, kind in IMAGE_FORMATS.items() if kind.has_window and not kind.is_folder)
        raise InputError(
            f"only a {windowed} file has a display window, and {path} is none: leave window (--window) out."
        )
    scan = as_scan(file_format.load()(path, frame, *axes))
    if channels:  # of a signal in a format without names
        values = np.atleast_2d(scan.values)
        scan = scan._replace(values=values[chosen_channels([""] * len(values), channels, path)])
    return scan


def as_scan(read: Scan | NDArray[Any]) -> Scan:
    """Return what the function of a format returned, which may be the values alone."""
    return read if isinstance(read, Scan) else Scan(read)


SHOWN_NAMES = 12  # names of channels that a message lists


def chosen_channels(names: Sequence[str], asked: Sequence[str], path: Path) -> list[int]:
    """Return the places of channels that are asked for by name or, from 0, by number; all if none is."""
    known = [name.strip() for name in names]
    if not known:
        raise InputError(f"{path} has no channels.")
    places = []
    for channel in asked:
        alike = [place for place, name in enumerate(known) if name and name.lower() == channel.strip().lower()]
        if not alike and channel.strip().isdecimal() and int(channel) < len(known):
            alike = [int(channel)]
        if len(alike) != 1:
            shown = ", ".join(filter(None, known[:SHOWN_NAMES])) or f"{len(known)} without names"
            more = ", ..." if len(known) > SHOWN_NAMES else ""
            what = "several channels" if alike else "no channel"
            raise InputError(f"{path} has {what} {channel!r}: it has {shown}{more}; numbers count from 0.")
        places += alike
    return places or list(range(len(known)))


def check_regular(path: Path) -> None:
    """Check that a path is a regular file with content: a pipe, for example, cannot be read twice and may never end."""
    if not path.exists():
        raise InputError(f"there is no image file {path}.")
    if not path.is_file():
        raise InputError(f"{path} is not a regular file: save the image first.")
    if not path.stat().st_size:  # also of files of the system, whose content may never come
        raise InputError(f"{path} is empty: give a file that holds an image.")


def _first_bytes(path: Path) -> bytes:
    """Return as many first bytes of a file as any format needs to be recognised."""
    try:
        if path.is_dir():
            raise InputError(f"{path} is a directory: give an image file in it.")
        check_regular(path)
        with path.open("rb") as file:
            return file.read(max(kind.signature_offset + len(kind.signature) for kind in IMAGE_FORMATS.values()) or 1)
    except OSError as error:
        raise InputError(f"{path} cannot be opened ({error.strerror or reason(error)}).") from None
