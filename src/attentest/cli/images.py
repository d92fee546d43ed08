"""The images that a command is given: files, folders, patterns, stacks and lists of paths; nothing is read yet."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attentest.cli.output import say
from attentest.errors import InputError, counted
from attentest.registry import IMAGE_FORMATS

if TYPE_CHECKING:
    from attentest.images.image_source import ImageSource


LISTS = (".txt", ".list")
"""Suffixes of text files with a path on each line."""

PICTURES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".pgm", ".ppm", ".pnm", ".jp2")
"""Suffixes of pictures in a folder; a picture with another suffix can be named itself."""


def image_sources(
    given: Sequence[Path],
    *,
    recursive: bool = False,
    stack: bool = False,
    frame: int | None = None,
    window: bool = False,
) -> list[ImageSource]:
    """Return the images in the order in which they are given; those of a folder or a pattern by name.

    Parameters
    ----------
    given
        Files, folders, patterns such as ``scans/*.npy``, and text files of paths.
    recursive
        Whether folders in folders count.
    stack
        Whether files are stacks of images.
    frame, window
        As in ``read_image``.
    """
    from attentest.images.image_source import SUFFIXES, ImageSource

    if stack and (frame is not None or window):
        raise InputError("--frame and --window are not for stacks of arrays: leave out --stack, or them.")
    sources: dict[str, ImageSource] = {}
    repeated = 0
    for path in _files(given, recursive, SUFFIXES if stack else _suffixes()):
        for source in _members(path) if stack else [ImageSource(path=path, frame=frame, window=window)]:
            repeated += sources.setdefault(source.name, source) is not source
    if repeated:
        them = "is given more than once, and counts" if repeated == 1 else "are given more than once, and count"
        say(f"attentest: note: {counted(repeated, 'image')} {them} once.")
    return list(sources.values())


def _files(given: Iterable[Path], recursive: bool, suffixes: tuple[str, ...]) -> Iterator[Path]:
    for path in given:
        text = os.fspath(path)
        if path.is_dir():
            yield from _files_in(path, recursive, suffixes)
        elif path.exists() and path.suffix.lower() in LISTS:
            yield from _listed(path)
        elif path.exists():
            yield path
        elif glob.has_magic(text):
            found = sorted(glob.glob(text, recursive=True))
            if not found:
                raise InputError(f"there is no file that matches {text!r}.")
            yield from (Path(one) for one in found if not os.path.isdir(one))
        else:
            raise InputError(f"there is no image file {path}.")


def _files_in(folder: Path, recursive: bool, suffixes: tuple[str, ...]) -> list[Path]:
    """Return the image files of a folder by name; hidden ones and other files are left out."""

    def unreadable(error: OSError) -> None:
        if error.filename == os.fspath(folder):
            raise InputError(f"the folder {folder} cannot be read ({error.strerror}).") from None
        say(f"attentest: note: the folder {error.filename} cannot be read ({error.strerror}), and is left out.")

    found: list[Path] = []
    for place, folders, files in os.walk(folder, onerror=unreadable):
        folders[:] = [name for name in folders if recursive and not name.startswith(".")]
        wanted = (name for name in files if name.lower().endswith(suffixes) and not name.startswith("."))
        found.extend(Path(place, name) for name in wanted)
    if not found:
        deeper = "" if recursive else "; --recursive looks into the folders in it too"
        raise InputError(f"there is no image file in the folder {folder}{deeper}.")
    return sorted(found, key=lambda path: path.parts)


def _listed(path: Path) -> list[Path]:
    """Return the paths in a text file, one on each line; empty lines and those that begin with # do not count."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InputError(f"the list of images {path} cannot be read ({error.strerror}).") from None
    found = [Path(os.fsdecode(line.strip())) for line in lines if line.strip() and not line.lstrip().startswith(b"#")]
    if not found:
        raise InputError(f"the list of images {path} is empty: it must have the path of an image on each line.")
    return found


def _members(path: Path) -> list[ImageSource]:
    from attentest.images.image_source import ImageSource, stack_members

    try:
        members = stack_members(path)
    except InputError:  # it will be said in the row of its first image
        members = [(None, 0)]
    return [ImageSource(path=path, member=member) for member in members]


def _suffixes() -> tuple[str, ...]:
    return (*(suffix for one in IMAGE_FORMATS.values() for suffix in one.suffixes), *PICTURES)
