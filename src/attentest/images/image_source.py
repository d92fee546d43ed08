"""Images that are still in files, read when they are needed: single ones, and arrays of many in .npy and .npz files."""

from __future__ import annotations

import hashlib
import math
import os
import stat
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError, shortened, worded
from attentest.images import image_file
from attentest.images.image_file import Scan
from attentest.images.signal_file import samples_of
from attentest.registry import IMAGE_FORMATS

SUFFIXES = IMAGE_FORMATS[".npy"].suffixes  # suffixes of files that may hold many images
MAX_IMAGES = 1_000_000  # most images of a stack: each is known by name before the first is read
COLOURS = (1, 3, 4)  # numbers of channels of ordinary images

Header: TypeAlias = "tuple[tuple[int, ...], bool, np.dtype[Any]]"
"""Shape, whether in Fortran order, and dtype of an array."""

STACKS = {1: "(k, T) or (k, C, T)", 2: "(k, H, W) or (k, H, W, C)", 3: "(k, D, H, W) or (k, C, D, H, W)"}
"""Shapes of a stack of signals, images or volumes, by their number of axes."""


def stack_members(path: Path, dimension: int) -> list[tuple[str | None, int]]:
    """Return the places of the images of a .npy file, or of every array of a .npz archive; no pixels are read."""
    return [(array, index) for array, count in _image_counts(path, dimension).items() for index in range(count)]


def _image_counts(path: Path, dimension: int) -> dict[str | None, int]:
    """Return the number of images of each array of a stack, of which a .npy file has one without a name."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"a stack (--stack) must be a .npy or .npz file, got {path}.")
    image_file.check_regular(path)
    with image_file.decoding(f"{path} is not a readable stack of images", quoted=True):
        if path.suffix.lower() == ".npy":
            with path.open("rb") as file:
                counts: dict[str | None, int] = {None: _header(file, path, None, _size(file), dimension)[0][0]}
        else:
            with zipfile.ZipFile(path) as archive:
                arrays = [name.removesuffix(".npy") for name in archive.namelist()]
                counts = {array: _images_in(archive, path, array, dimension) for array in arrays}
    if not counts:
        raise InputError(f"{path} holds no arrays.")
    if sum(counts.values()) > MAX_IMAGES:
        raise InputError(f"{path} holds {sum(counts.values())} images, more than the {MAX_IMAGES} allowed: split it.")
    return counts


def looks_like_a_stack(path: Path, dimension: int) -> bool:
    """Return whether a file may be a stack that was taken for a single image: (k, H, W) looks like (H, W, C)."""
    if path.suffix.lower() not in SUFFIXES or not path.is_file():
        return False
    if path.suffix.lower() == ".npz":
        return True
    try:
        with path.open("rb") as file:
            shape = _header(file, path, None, _size(file), dimension)[0]
    except image_file.DECODING_ERRORS:
        return False
    return len(shape) == dimension + 2 or dimension != 2 or shape[-1] not in COLOURS


def read_member(path: Path, array: str | None, index: int, dimension: int) -> NDArray[Any]:
    """Return an image of a stack: (H, W) or (H, W, C), a signal or a volume. Nothing is unpickled."""
    image_file.check_regular(path)
    with image_file.decoding(f"{path} is not a readable stack of images", quoted=True):
        if array is None:
            _image_counts(path, dimension)  # raises an error for one that cannot be read
            values = np.lib.format.open_memmap(path, mode="r")[index]
        else:
            values = _member_of_archive(path, array, index, dimension)
        return np.array(values, dtype=values.dtype.newbyteorder("="))


def _images_in(archive: zipfile.ZipFile, path: Path, array: str, dimension: int) -> int:
    """Return the number of images of an array; 1 if it is no stack, so that reading it gives the reason."""
    try:
        with archive.open(f"{array}.npy") as file:
            return _header(file, path, array, archive.getinfo(f"{array}.npy").file_size, dimension)[0][0]
    except image_file.DECODING_ERRORS:
        return 1


def _header(file: Any, path: Path, array: str | None, size: int, dimension: int) -> Header:
    """Return shape, order and dtype of a stack in .npy format, checked; the file is then at its first value."""
    where = str(path) if array is None else f"{array} in {path}"
    header = shape, _, _ = _array_header(file, where, size, dimension, stacked=True)
    if math.prod(shape[1:]) > image_file.MAX_PIXELS:
        most = image_file.MAX_PIXELS
        raise InputError(f"{worded('an image', dimension)} of {where} has shape {shape[1:]}, more than {most} values.")
    return header


def _array_header(file: Any, where: object, size: int, dimension: int, stacked: bool = False) -> Header:
    """Return shape, order and dtype of an array in .npy format of so many bytes; the file is then at its first value.

    The array is an image of so many axes, perhaps with channels, or a stack of them.
    """
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in read:
        raise ValueError(f"version {version} of the .npy format")
    shape, fortran, dtype = read[version](file)
    if dtype.kind not in "biuf":
        raise InputError(f"{where} must hold real numbers, got an array of {dtype}.")
    fitting = [known for known in WANTED if len(shape) - stacked in (known, known + 1)]
    if dimension not in fitting or min(shape) < 1:
        wanted = f"be a stack {STACKS[dimension]}" if stacked else f"hold {WANTED[dimension]}"
        model = f"a model of {' or '.join(worded('images', known) for known in fitting)}"
        advice = f": give one, or {model}" if fitting and dimension not in fitting else ""
        raise InputError(f"{where} must {wanted}, got an array of shape {shortened(shape)}{advice}.", model)
    if file.tell() + math.prod(shape) * dtype.itemsize > size:
        raise ValueError(f"it ends before the array of shape {shortened(shape)} that its header announces")
    return shape, fortran, dtype


def _size(file: Any) -> int:
    return os.fstat(file.fileno()).st_size


def _member_of_archive(path: Path, array: str, index: int, dimension: int) -> NDArray[Any]:
    """Return an image of an array in an archive; only the bytes up to its end are read."""
    with zipfile.ZipFile(path) as archive, archive.open(f"{array}.npy") as file:
        shape, fortran, dtype = _header(file, path, array, archive.getinfo(f"{array}.npy").file_size, dimension)
        if fortran:  # the values of an image are spread over the whole array
            if math.prod(shape) > image_file.MAX_PIXELS:
                raise InputError(f"{array} in {path} is stored in Fortran order and too large: save it in C order.")
            return np.asarray(_values(file, shape, dtype, "F")[index])
        file.seek(index * math.prod(shape[1:]) * dtype.itemsize, 1)
        return _values(file, shape[1:], dtype, "C")


def _values(file: Any, shape: tuple[int, ...], dtype: np.dtype[Any], order: Literal["C", "F"]) -> NDArray[Any]:
    """Return the next values of an array in an archive."""
    size = math.prod(shape) * dtype.itemsize
    content: bytes = file.read(size)
    if len(content) != size:
        raise ValueError("it ends early")
    return np.frombuffer(content, dtype).reshape(shape, order=order)


ARCHIVE_SIGNATURE = b"PK"  # first bytes of a .npz archive of arrays

WANTED = {1: "one signal (T,) or (C, T)", 2: "one image (H, W) or (H, W, C)", 3: "one volume (D, H, W) or (C, D, H, W)"}
"""What a .npy file must hold, by the number of axes."""


def read_npy(path: Path, frame: int | None, dimension: int = 2) -> NDArray[Any]:
    """Return the array of a .npy file, perhaps with channels, in the machine's byte order; nothing is unpickled."""
    with path.open("rb") as file:
        is_archive = file.read(len(ARCHIVE_SIGNATURE)) == ARCHIVE_SIGNATURE
    if is_archive:
        raise InputError(f"{path} is an archive of arrays, not a .npy array: save the one array with numpy.save.")
    with image_file.decoding(f"{path} is not a readable .npy array", quoted=True):
        with path.open("rb") as file:
            _array_header(file, path, _size(file), dimension)
        values = np.lib.format.open_memmap(path, mode="r")
    if values.size > image_file.MAX_PIXELS:
        raise InputError(f"{path} holds {values.size} values, more than the {image_file.MAX_PIXELS} allowed.")
    image_file.chosen_frame(frame, 1, path)
    return np.array(values, dtype=values.dtype.newbyteorder("="))


SMALL_FILE = 2**26  # bytes of a file that is hashed in a moment, whatever it holds

PathLike: TypeAlias = "str | os.PathLike[str]"


@lru_cache(maxsize=16)
def _content_hash(path: Path, *status: int) -> str:
    """Return a hash of a file; that of a stack is computed once for all its images, as long as its status stays."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


@dataclass(frozen=True, kw_only=True)
class ImageSource:
    """One image in a file."""

    path: Path
    """The file."""
    frame: int | None = None
    window: bool = False
    """Which frame of the file is read, and whether its display window is applied."""
    member: tuple[str | None, int] | None = None
    """Which image of a stack: its index in the array of a .npy file, after the name of the array in an archive (.npz).
    None if the file is one image."""
    channels: tuple[str, ...] = ()
    """Which channels of a signal are read, by name or number; all, if there are none."""
    known_as: str | None = None
    """Another name than its file's for the noise that randomised selection adds, where files have equal names."""
    slices: tuple[Path, ...] = ()
    """The files, sorted, if it is a DICOM series; the path is then that of their folder."""
    series: str = ""
    """Name of its first file, where the folder has several series."""

    @property
    def name(self) -> str:
        """The path, followed by a place in it: ``scans.npy[3]``, ``scans.npz[t1,3]``, ``head.nii[frame 3]``."""
        return f"{self.path}{self._place}"

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are read: those of a series, or the file; beside a WFDB header the samples that it names."""
        named = samples_of(self.path) if self.path.suffix.lower() == ".hea" else ()
        return self.slices or (self.path, *(path for path in named if path.is_file()))

    @property
    def _place(self) -> str:
        if self.member is None:
            frame = "" if self.frame is None else f"[frame {self.frame}]"
            return f"[{self.series}]{frame}" if self.series else frame
        array, index = self.member
        return f"[{index}]" if array is None else f"[{array},{index}]"

    @property
    def identity(self) -> str:
        """A name that stays when the folder is moved: that of the file with the place in it, unless another was given.

        ``known_as`` tells apart files of one run that have equal names.
        """
        return self.known_as or f"{self.path.absolute().name}{self._place}"

    def read(self, dimension: int = 2) -> NDArray[Any]:
        """Return the pixels: (H, W) or (H, W, C); a signal or a volume with so many axes."""
        return self.scan(dimension).values

    def scan(self, dimension: int) -> Scan:
        """Return the pixels with their spacing, where the file tells it."""
        if self.slices and dimension == 3:
            from attentest.images.dicom_series import read_series

            return read_series(self.slices, self.frame, self.window)
        if self.member is None:
            options: dict[str, Any] = {"frame": self.frame, "window": self.window, "channels": self.channels}
            return image_file.read_scan(self.path, dimension=dimension, **options)
        return Scan(read_member(self.path, *self.member, dimension))

    def status(self) -> tuple[int, ...] | None:
        """Return what changes whenever a file does; None if one is no regular file with content."""
        known = [_status(path) for path in self.files]
        return None if None in known else tuple(number for status in known for number in status or ())

    def stamp(self, *, is_image: bool = True) -> dict[str, Any] | None:
        """Return a hash of the file and what of it is read: with another stamp it is another image.

        That of several files is of their hashes, whatever they are called. None if there is no such file, or none
        that can be read. A large file that is not known to be an image is not read for this: its size and its time
        stand for the hash.
        """
        status = [status for path in self.files if (status := _status(path)) is not None]
        if len(status) < len(self.files):
            return None
        known: dict[str, Any] = {
            "bytes": sum(size for size, *_ in status),
            "modified": max(time for _, time, *_ in status),
        }
        if is_image or known["bytes"] <= SMALL_FILE:
            try:
                hashes = [_content_hash(path, *now) for path, now in zip(self.files, status, strict=True)]
            except OSError:
                return None
            known = {"blake2b": hashes[0]}
            if len(hashes) > 1:
                known = {"blake2b": hashlib.blake2b("".join(sorted(hashes)).encode(), digest_size=16).hexdigest()}
        chosen = {"channels": list(self.channels)} if self.channels else {}
        return {**known, "frame": self.frame, "window": self.window, **chosen}


def _status(path: Path) -> tuple[int, ...] | None:
    """Return size, time and place of a file, of which one changes whenever it does; None if it is no file to read."""
    try:
        status = path.stat()
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode) or not status.st_size:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_dev, status.st_ino


def loaded(image: Any, dimension: int = 2) -> Scan:
    """Return the pixels of an image that is given as a file, and any other image as it is, without a spacing."""
    if isinstance(image, (str, os.PathLike)):
        image = ImageSource(path=Path(image))
    return image.scan(dimension) if isinstance(image, ImageSource) else Scan(image)


def told_apart(images: Sequence[ImageSource]) -> list[ImageSource]:
    """Return the images of one run such that no two of other files have one identity: those get their folders too."""
    different = list(images)
    deepest = max((len(image.path.absolute().parts) for image in images), default=0)
    for depth in range(1, deepest):
        files: dict[str, set[Path]] = {}
        for image in different:
            files.setdefault(image.identity, set()).add(image.path.absolute())
        alike = {identity for identity, paths in files.items() if len(paths) > 1}
        if not alike:
            break
        for place, image in enumerate(different):
            if image.identity in alike:
                folders = image.path.absolute().parts[:-1][-depth:]
                different[place] = replace(image, known_as="/".join((*folders, images[place].identity)))
    return different


def identity_of(image: Any) -> str | None:
    """Return the name by which an image is known wherever it lies, if it is a file; None otherwise."""
    if isinstance(image, ImageSource):
        return image.identity
    return os.path.basename(os.fspath(image)) if isinstance(image, (str, os.PathLike)) else None
