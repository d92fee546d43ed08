"""The images that a command is given: files, folders, patterns, stacks and lists of paths; nothing is read yet."""

from __future__ import annotations

import codecs
import glob
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attentest.cli.output import say
from attentest.errors import InputError, counted, shortened
from attentest.files import same_file
from attentest.registry import IMAGE_FORMATS, PICTURE_SUFFIXES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attentest.images.image_source import ImageSource


LISTS = (".txt", ".list")  # suffixes of text files with a path on each line

LARGEST_LIST, LONGEST_PATH = 2**26, 2**12
"""Most bytes of a list, enough for a million paths, and of a path, the limit of Linux."""


def image_sources(
    given: Sequence[Path],
    *,
    recursive: bool | None = None,
    stack: bool = False,
    frame: int | None = None,
    window: bool = False,
    channels: Sequence[str] = (),
) -> list[ImageSource]:
    """Return the images in the order in which they are given; those of a folder or a pattern by name.

    They are given as files, folders, patterns such as ``scans/*.npy``, and text files of paths. ``recursive`` says
    whether folders in folders count, None for a command that does not ask; ``stack``, whether files are stacks of
    images, which :func:`for_model` takes apart; the others are as in ``read_image``.
    """
    from attentest.images.image_source import SUFFIXES, ImageSource

    if stack and (frame is not None or window or channels):
        which = "--channel is" if channels else "--frame and --window are"
        raise InputError(f"{which} not for stacks of arrays: leave out --stack, or them.")
    read: dict[str, Any] = {"frame": frame, "window": window, "channels": tuple(channels)}
    sources: dict[str, ImageSource] = {}
    repeated = 0
    for path in _files(given, recursive, SUFFIXES if stack else None):
        source = ImageSource(path=path, **read)
        repeated += sources.setdefault(source.name, source) is not source
    if repeated:
        them = "is given more than once, and counts" if repeated == 1 else "are given more than once, and count"
        say(f"attentest: note: {counted(repeated, 'image')} {them} once.")
    return list(sources.values())


def for_model(sources: Sequence[ImageSource], dimension: int, stack: bool = False) -> list[ImageSource]:
    """Return what the files are to a model of so many axes.

    Files that are stacks are the images in them. To a model of volumes, slices of a DICOM series are one volume, which
    has the place of its first slice, and the name of the folder; where that has several series, with the name of the
    first file after it.
    """
    from attentest.images.dicom_series import grouped, is_dicom

    if stack:
        return [replace(source, member=place) for source in sources for place in _members(source.path, dimension)]
    if dimension != 3:
        return list(sources)
    files = grouped(source.path for source in sources if is_dicom(source.path))
    if files.without_image:
        what = counted(len(files.without_image), "DICOM file")
        say(f"attentest: note: left out {what} without an image, such as {files.without_image[0]}.")
    in_folder = Counter(series[0].parent for series in files.series)
    first = {series[0]: series for series in files.series}
    others = {*files.without_image, *(path for series in files.series for path in series)}
    volumes = []
    for source in sources:
        if series := first.get(source.path):
            folder = series[0].parent
            several = series[0].name if in_folder[folder] > 1 else ""
            volumes.append(replace(source, path=folder, slices=series, series=several))
        elif source.path not in others:
            volumes.append(source)
    if not volumes and files.without_image:
        raise InputError(f"there is no image in {files.without_image[0]}: give DICOM files that have pixels.")
    return volumes


def check_pairs(images: Sequence[ImageSource], references: Sequence[ImageSource]) -> None:
    """Raise an error if the number of references does not fit, or an image would be compared with itself."""
    if len(references) not in (0, 1, len(images)):
        or_each = f", or once for each of the {len(images)} images" if len(images) > 1 else ""
        raise InputError(f"--reference must be given once{or_each}, got it {len(references)} times.")
    paired = references if len(references) == len(images) else [*references] * len(images)
    for image, reference in zip(images, paired, strict=False):
        if same_file(image.path, reference.path):
            raise InputError(f"{image.path} would be compared with itself: give a --reference with independent noise.")


def say_other_spacing(images: Sequence[ImageSource], spacing: Sequence[float] | None) -> None:
    """Say so where a spacing is not that of a NIfTI file or a DICOM series, of which one is named."""
    if spacing is None or len(spacing) not in (2, 3):
        return  # headers of a million files take a while
    import numpy as np

    from attentest.images.dicom_series import affine_of_series
    from attentest.images.nifti import is_nifti

    for image in images:
        affine = None
        with suppress(InputError):  # which is reported when the image is needed
            if image.slices:
                affine = affine_of_series(image.slices)
            elif is_nifti(image.path):
                affine = _affine(image.path)
        if affine is None:
            continue
        own = np.sqrt(np.square(affine[:3, :3]).sum(axis=0))[::-1][-len(spacing) :]
        if not np.allclose(spacing, own, rtol=0.01):
            lengths = ",".join(f"{length:.4g}" for length in own)
            axes = ", ".join(("slices", "rows", "columns")[-len(own) :])
            say(f"attentest: note: --spacing is not that of {image.path}, {lengths} ({axes}).")
            return


def _affine(path: Path) -> NDArray[np.float64] | None:
    """Return the affine of a NIfTI file; None if it cannot be read, which is reported when it is needed."""
    try:
        import nibabel
    except ImportError:
        return None
    errors = nibabel.filebasedimages.ImageFileError, nibabel.spatialimages.HeaderDataError
    try:
        volume: Any = nibabel.load(path)
        affine: NDArray[np.float64] = volume.affine
    except (OSError, ValueError, EOFError, *errors):
        return None
    return affine


def _files(given: Iterable[Path], recursive: bool | None, suffixes: tuple[str, ...] | None) -> Iterator[Path]:
    for path in given:
        text = os.fspath(path)  # os.path says of a name that no file can have, too long or with a NUL, that it is not
        if os.path.isdir(text):
            yield from _files_in(path, recursive, suffixes)
        elif os.path.exists(text) and path.suffix.lower() in LISTS:
            for listed in _listed(path):
                yield from _files_in(listed, recursive, suffixes) if listed.is_dir() else [listed]
        elif os.path.exists(text):
            yield path
        elif glob.has_magic(text):
            matches = sorted(glob.glob(text, recursive=True))
            if not matches:
                raise InputError(f"there is no file that matches {text!r}.")
            yield from (Path(match) for match in matches if not os.path.isdir(match))
        else:
            raise InputError(f"there is no image file {path if len(text) <= LONGEST_PATH else shortened(text)}.")


def _files_in(folder: Path, recursive: bool | None, suffixes: tuple[str, ...] | None) -> list[Path]:
    """Return the files of a folder with these suffixes by name, or its image files; hidden ones are left out."""
    from attentest.images.dicom_series import is_dicom

    known = _suffixes() if suffixes is None else suffixes

    def unreadable(error: OSError) -> None:
        if error.filename == os.fspath(folder):
            raise InputError(f"the folder {folder} cannot be read ({error.strerror}).") from None
        say(f"attentest: note: the folder {error.filename} cannot be read ({error.strerror}), and is left out.")

    found: list[Path] = []
    for place, folders, files in os.walk(folder, onerror=unreadable):
        folders[:] = [name for name in folders if recursive and not name.startswith(".")]
        for name in [name for name in folders if _holds_records(Path(place, name))]:
            say(f"attentest: note: {Path(place, name)} holds the output of a run, and is left out.")
            folders.remove(name)
        listed = (Path(place, name) for name in files if not name.startswith("."))
        found.extend(
            path for path in listed if path.name.lower().endswith(known) or (suffixes is None and is_dicom(path))
        )
    if not found:
        more = "" if recursive is not False else "; --recursive looks into the folders in it too"
        if any(folder.glob("*.csv")):
            more += f"; signals in CSV files are given by a pattern, such as '{folder / '*.csv'}'"
        raise InputError(f"there is no image file in the folder {folder}{more}.")
    return sorted(found, key=lambda path: path.parts)


def _holds_records(folder: Path) -> bool:
    """Return whether a folder is the output of a run, whose saved maps and figures are no images to be tested."""
    from attentest.runs.record_lines import begins_as_records
    from attentest.runs.records import RESULTS, RUNS

    return any(begins_as_records(folder / name) for name in (RESULTS, RUNS))


def _listed(path: Path) -> list[Path]:
    """Return the paths in a text file, one on each line; empty lines and those that begin with # do not count."""
    if not path.is_file():  # a pipe or a device may never end
        raise InputError(f"the list of images {path} is not a regular file: save the list in a text file first.")
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_LIST + 1)
    except OSError as error:
        raise InputError(f"the list of images {path} cannot be read ({error.strerror}).") from None
    if len(content) > LARGEST_LIST:
        raise InputError(f"the list of images {path} has more than the {LARGEST_LIST} bytes allowed: split it.")
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # that of UTF-32 begins alike or with NUL
        raise InputError(f"the list of images {path} is a text in UTF-16 or UTF-32: save it as UTF-8.")
    paths = []
    for number, line in enumerate(content.removeprefix(codecs.BOM_UTF8).splitlines(), start=1):
        text = line.strip()
        if b"\0" in text:
            raise InputError(
                f"line {number} of the list of images {path} has a NUL byte, which no path has: save the list as a "
                "text in UTF-8."
            )
        if len(text) > LONGEST_PATH:
            raise InputError(
                f"line {number} of the list of images {path} has {len(text)} bytes, more than the {LONGEST_PATH} of "
                "the longest path: write one path on each line."
            )
        if text and not text.startswith(b"#"):
            paths.append(Path(os.fsdecode(text)))
    if not paths:
        raise InputError(f"the list of images {path} is empty: it must have the path of an image on each line.")
    return paths


def _members(path: Path, dimension: int) -> list[tuple[str | None, int]]:
    from attentest.images.image_source import stack_members

    try:
        return stack_members(path, dimension)
    except InputError:  # it will be said in the row of its first image
        return [(None, 0)]


def _suffixes() -> tuple[str, ...]:
    # A table in a folder is rather that of results than a signal.
    known = (suffix for kind in IMAGE_FORMATS.values() for suffix in kind.suffixes if suffix != ".csv")
    return (*known, *PICTURE_SUFFIXES)
