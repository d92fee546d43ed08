"""DICOM series: which files are slices of one volume, and the volume."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError
from attentest.images.dicom import errors_of, read_dicom, read_header
from attentest.images.dicom_slice import NO_POSITION, Slice, affine_of, in_order
from attentest.images.image_file import Scan, Spacing, check_values, decoding, optional_package
from attentest.registry import IMAGE_FORMATS

MOST_SLICES = 10_000  # most files of a series
DIRECTORY = "dicomdir"  # name, in lower case, of the table of contents that comes with many series


def is_dicom(path: Path) -> bool:
    """Return whether a file is a DICOM file by its suffix, or, if that is of no other format, by its first bytes."""
    dicom, name = IMAGE_FORMATS["DICOM"], path.name.lower()
    if name.endswith(dicom.suffixes):
        return True
    if name == DIRECTORY or any(name.endswith(kind.suffixes) for kind in IMAGE_FORMATS.values()):
        return False
    try:
        if not path.is_file():  # to open a pipe may take forever
            return False
        with path.open("rb") as file:
            file.seek(dicom.signature_offset)
            return file.read(len(dicom.signature)) == dicom.signature
    except OSError:
        return False


@dataclass(frozen=True, kw_only=True)
class GroupedFiles:
    """What DICOM files are to a model of volumes."""

    series: list[tuple[Path, ...]]
    """The files of each series in a folder, sorted; a file that cannot be read is among those of the only series."""
    alone: list[Path]
    """Files that are read by themselves: those of several frames, and broken ones beside several series."""
    without_image: list[Path]
    """Files of something else, such as a report."""


def grouped(paths: Iterable[Path]) -> GroupedFiles:
    """Return which of the DICOM files in folders are slices of one series; of each, only the header is read."""
    folders: dict[Path, dict[str | None, list[Path]]] = {}
    result = GroupedFiles(series=[], alone=[], without_image=[])
    for path in paths:
        try:
            with optional_package("DICOM", "pydicom", "medical") as pydicom, decoding("", *errors_of(pydicom)):
                header = read_header(pydicom, path)
                series: str | None = str(header.get("SeriesInstanceUID"))
                kind, frames = header.get("SOPClassUID"), int(header.get("NumberOfFrames") or 1)
                if header.get("Rows") is None and (kind is None or kind.is_private or "Image" in kind.name):
                    raise InputError("")  # the header of an image ends early
                is_image = header.get("Rows") is not None
        except InputError:  # it will be said when it is read
            series, is_image, frames = None, True, 1
        if not is_image:
            result.without_image.append(path)
        elif frames > 1:
            result.alone.append(path)
        else:
            folders.setdefault(path.parent, {}).setdefault(series, []).append(path)
    for kinds in folders.values():
        broken = kinds.pop(None, [])
        if len(kinds) > 1:
            result.alone.extend(broken)
        elif broken:
            kinds.setdefault(next(iter(kinds), ""), []).extend(broken)
        result.series.extend(tuple(sorted(files)) for files in kinds.values())
    return result


def series_in(folder: Path) -> tuple[Path, ...]:
    """Return the files of the DICOM series in a folder, sorted; one of several series raises an error."""
    listed = [path for path in folder.iterdir() if not path.name.startswith(".") and path.is_file() and is_dicom(path)]
    series = grouped(listed).series
    if len(series) != 1:
        raise InputError(
            f"{folder} must hold the slices of one DICOM series, got those of {len(series)}: give each series a folder "
            "of its own."
        )
    return series[0]


def read_folder(folder: Path, frame: int | None, window: bool) -> Scan:
    """Return the volume (D, H, W) of the DICOM series in a folder."""
    return read_series(series_in(folder), frame, window)


def read_series(files: Sequence[Path], frame: int | None, window: bool) -> Scan:
    """Return the slices of a series as a volume (D, H, W), by their positions along its normal."""
    folder = files[0].parent
    if frame is not None:
        raise InputError(f"{folder} is read as a volume, of all slices of a DICOM series: leave frame (--frame) out.")
    if not 1 < len(files) <= MOST_SLICES:
        raise InputError(
            f"{folder} has {len(files)} slices of a DICOM series, and a volume is read from 2 to {MOST_SLICES}: give "
            "the folder of a whole series."
        )
    slices, step = in_order((_read_slice(*place) for place in enumerate(files)), "folder")
    shape = len(slices), *slices[0].size
    check_values(math.prod(shape), folder)
    volume = np.empty(shape)
    for plane, part in zip(volume, slices, strict=True):
        pixels = read_dicom(files[part.index], None, window).values
        if pixels.ndim != 2:
            raise InputError(f"{part.name} is a slice in colour, and a volume of grey values is needed.")
        plane[...] = pixels
    spacing = Spacing.known([step, *slices[0].spacing], "mm") if slices[0].spacing else None
    return Scan(volume, spacing, affine_of(slices))


def affine_of_series(files: Sequence[Path]) -> NDArray[np.float64] | None:
    """Return where the slices of a series lie in space, as :func:`affine_of`; of each, only the header is read."""
    return affine_of(sorted((_read_slice(*place) for place in enumerate(files)), key=lambda part: part.place))


def _read_slice(index: int, path: Path) -> Slice:
    with (
        optional_package("DICOM", "pydicom", "medical") as pydicom,
        decoding(f"{path} {NO_POSITION}", *errors_of(pydicom)),
    ):
        header = read_header(pydicom, path)
        return Slice.told(str(path), index, header, header, header, header)
