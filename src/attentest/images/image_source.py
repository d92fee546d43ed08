"""Images that are still in files, read when they are needed: single ones, and arrays of many in .npy and .npz files."""

from __future__ import annotations

import math
import os
import zipfile
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError
from attentest.images.image_file import (
    DECODING_ERRORS,
    MAX_PIXELS,
    check_regular,
    chosen_frame,
    decoding,
    read_image,
)
from attentest.registry import IMAGE_FORMATS

SUFFIXES = IMAGE_FORMATS[".npy"].suffixes
"""Suffixes of files that may hold many images."""

COLOURS = (1, 3, 4)
"""Numbers of channels of ordinary images."""

Header: TypeAlias = "tuple[tuple[int, ...], bool, np.dtype[Any]]"
"""Shape, whether in Fortran order, and dtype of an array."""


def stack_members(path: Path) -> list[tuple[str | None, int]]:
    """Return the places of the images of a stack, without reading their pixels.

    Parameters
    ----------
    path
        A .npy file, or a .npz archive, every array of which is a stack.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"a stack (--stack) must be a .npy or .npz file, got {path}.")
    check_regular(path)
    with _stack_decoding(path):
        if path.suffix.lower() == ".npy":
            with path.open("rb") as file:
                counts: dict[str | None, int] = {None: _header(file, path, None)[0][0]}
        else:
            with zipfile.ZipFile(path) as archive:
                arrays = [name.removesuffix(".npy") for name in archive.namelist()]
                counts = {array: _images_in(archive, path, array) for array in arrays}
    if not counts:
        raise InputError(f"{path} holds no arrays.")
    return [(array, index) for array, count in counts.items() for index in range(count)]


def looks_like_a_stack(path: Path) -> bool:
    """Return whether a file may be a stack that was taken for a single image: (k, H, W) looks like (H, W, C)."""
    if path.suffix.lower() not in SUFFIXES or not path.is_file():
        return False
    if path.suffix.lower() == ".npz":
        return True
    try:
        with path.open("rb") as file:
            shape = _header(file, path, None)[0]
    except DECODING_ERRORS:
        return False
    return len(shape) == 4 or shape[-1] not in COLOURS


def read_member(path: Path, array: str | None, index: int) -> NDArray[Any]:
    """Return an image of a stack: (H, W) or (H, W, C). Nothing is unpickled."""
    check_regular(path)
    with _stack_decoding(path):
        if array is None:
            with path.open("rb") as file:
                _header(file, path, None)
            values = np.lib.format.open_memmap(path, mode="r")[index]
        else:
            values = _member_of_archive(path, array, index)
        return np.array(values, dtype=values.dtype.newbyteorder("="))


def _stack_decoding(path: Path) -> AbstractContextManager[None]:
    return decoding(f"{path} is not a readable stack of images", quoted=True)


def _images_in(archive: zipfile.ZipFile, path: Path, array: str) -> int:
    """Return the number of images of an array; 1 if it is no stack, so that reading it gives the reason."""
    try:
        with archive.open(f"{array}.npy") as file:
            return _header(file, path, array)[0][0]
    except DECODING_ERRORS:
        return 1


def _header(file: Any, path: Path, array: str | None) -> Header:
    """Return shape, order and dtype of a stack in .npy format, checked; the file is then at its first value."""
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in read:
        raise ValueError(f"version {version} of the .npy format")
    shape, fortran, dtype = read[version](file)
    where = str(path) if array is None else f"{array} in {path}"
    _check_real(dtype, where)
    if len(shape) not in (3, 4) or 0 in shape:
        raise InputError(f"{where} must be a stack (k, H, W) or (k, H, W, C), got an array of shape {shape}.")
    if math.prod(shape[1:]) > MAX_PIXELS:
        raise InputError(f"an image of {where} has shape {shape[1:]}, more than {MAX_PIXELS} values.")
    return shape, fortran, dtype


def _check_real(dtype: np.dtype[Any], where: object) -> None:
    if dtype.kind not in "biuf":
        raise InputError(f"{where} must hold real numbers, got an array of {dtype}.")


def _member_of_archive(path: Path, array: str, index: int) -> NDArray[Any]:
    """Return an image of an array in an archive; only the bytes up to its end are read."""
    with zipfile.ZipFile(path) as archive, archive.open(f"{array}.npy") as file:
        shape, fortran, dtype = _header(file, path, array)
        if fortran:  # the values of an image are spread over the whole array
            if math.prod(shape) > MAX_PIXELS:
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


ARCHIVE_SIGNATURE = b"PK"
"""First bytes of a .npz archive of arrays."""


def read_npy(path: Path, frame: int | None) -> NDArray[Any]:
    """Return the array (H, W) or (H, W, C) of a .npy file, in the machine's byte order; nothing is unpickled."""
    with path.open("rb") as file:
        is_archive = file.read(len(ARCHIVE_SIGNATURE)) == ARCHIVE_SIGNATURE
    if is_archive:
        raise InputError(f"{path} is an archive of arrays, not a .npy array: save the one array with numpy.save.")
    with (
        decoding(f"{path} is not a readable .npy array", quoted=True),
        np.errstate(over="raise"),  # of a shape whose product does not fit in 64 bits
    ):
        values = np.lib.format.open_memmap(path, mode="r")
    _check_real(values.dtype, path)
    if values.ndim not in (2, 3) or not values.size:
        raise InputError(f"{path} must hold one image (H, W) or (H, W, C), got an array of shape {values.shape}.")
    if values.size > MAX_PIXELS:
        raise InputError(f"{path} holds {values.size} values, more than the {MAX_PIXELS} allowed.")
    chosen_frame(frame, 1, path)
    return np.array(values, dtype=values.dtype.newbyteorder("="))


PathLike: TypeAlias = "str | os.PathLike[str]"


@dataclass(frozen=True, kw_only=True)
class ImageSource:
    """One image in a file.

    Parameters
    ----------
    path
        The file.
    frame, window
        Which frame of the file is read, and whether its display window is applied.
    member
        Which image of a stack: its index in the array of a .npy file, after the name of the array in an archive (.npz).
        None if the file is one image.
    """

    path: Path
    frame: int | None = None
    window: bool = False
    member: tuple[str | None, int] | None = None

    @property
    def name(self) -> str:
        """The path, followed for an image of a stack by its place: ``scans.npy[3]``, ``scans.npz[t1,3]``."""
        if self.member is None:
            return str(self.path)
        array, index = self.member
        return f"{self.path}[{index}]" if array is None else f"{self.path}[{array},{index}]"

    def read(self) -> NDArray[Any]:
        """Return the pixels: (H, W) or (H, W, C)."""
        if self.member is None:
            return read_image(self.path, frame=self.frame, window=self.window)
        return read_member(self.path, *self.member)

    def stamp(self) -> list[int]:
        """Return size and time of change of the file: with another stamp it is another image."""
        status = self.path.stat()
        return [status.st_size, status.st_mtime_ns]


def loaded(image: Any) -> Any:
    """Return the pixels of an image that is given as a file, and any other image as it is."""
    if isinstance(image, ImageSource):
        return image.read()
    return read_image(image) if isinstance(image, (str, os.PathLike)) else image
