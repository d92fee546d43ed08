"""Stacks of images: arrays (k, H, W) or (k, H, W, C) in .npy files and in .npz archives of such arrays."""

from __future__ import annotations

import tokenize
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError
from attentest.images.image_file import DECODING_ERRORS, MAX_PIXELS, reason

SUFFIXES = (".npy", ".npz")

UNREADABLE = (*DECODING_ERRORS, tokenize.TokenError, zipfile.BadZipFile, NotImplementedError, RuntimeError)


def stack_members(path: Path) -> list[tuple[str | None, int]]:
    """Return the places of the images of a stack, without reading their pixels.

    Parameters
    ----------
    path
        A .npy file, or a .npz archive, every array of which is a stack.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"a stack (--stack) must be a .npy or .npz file, got {path}.")
    return [(array, index) for array, shape in _shapes(path).items() for index in range(shape[0])]


def read_member(path: Path, array: str | None, index: int) -> NDArray[Any]:
    """Return one image of a stack: (H, W) or (H, W, C). Nothing is unpickled."""
    try:
        if array is None:
            values = np.lib.format.open_memmap(path, mode="r")[index]
        else:
            values = _member_of_archive(path, array, index)
    except (*UNREADABLE, KeyError, IndexError) as error:
        raise InputError(f"{path} is not a readable stack of images ({reason(error)}).") from None
    return np.array(values, dtype=values.dtype.newbyteorder("="))


def _shapes(path: Path) -> dict[str | None, tuple[int, ...]]:
    """Return the checked shapes of the arrays of a file by their names; None names that of a .npy file."""
    try:
        if path.suffix.lower() == ".npy":
            with path.open("rb") as file:
                found: dict[str | None, tuple[Any, ...]] = {None: _header(file)}
        else:
            with zipfile.ZipFile(path) as archive:
                found = {}
                for member in archive.namelist():
                    with archive.open(member) as file:
                        found[member.removesuffix(".npy")] = _header(file)
    except UNREADABLE as error:
        raise InputError(f"{path} is not a readable stack of images ({reason(error)}).") from None
    for name, (shape, _, dtype) in found.items():
        where = str(path) if name is None else f"{name} in {path}"
        if dtype.kind not in "biuf":
            raise InputError(f"{where} must hold real numbers, got an array of {dtype}.")
        if len(shape) not in (3, 4) or 0 in shape:
            raise InputError(f"{where} must be a stack (k, H, W) or (k, H, W, C), got an array of shape {shape}.")
        if int(np.prod(shape[1:], dtype=object)) > MAX_PIXELS:
            raise InputError(f"an image of {where} has shape {shape[1:]}, more than {MAX_PIXELS} values.")
    if not found:
        raise InputError(f"{path} holds no arrays.")
    return {name: shape for name, (shape, _, _) in found.items()}


def _header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, order and dtype of an array in .npy format; the file is then at its first value."""
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in read:
        raise ValueError(f"version {version} of the .npy format")
    shape, fortran, dtype = read[version](file)
    return shape, fortran, dtype


def _member_of_archive(path: Path, array: str, index: int) -> NDArray[Any]:
    """Return one image of an array in an archive; only the bytes up to its end are read."""
    with zipfile.ZipFile(path) as archive, archive.open(f"{array}.npy") as file:
        shape, fortran, dtype = _header(file)
        if fortran:  # the values of one image are spread over the whole array
            if int(np.prod(shape, dtype=object)) > MAX_PIXELS:
                raise InputError(f"{array} in {path} is stored in Fortran order and too large: save it in C order.")
            whole = np.frombuffer(_exactly(file, dtype.itemsize * int(np.prod(shape))), dtype)
            return np.asarray(whole.reshape(shape, order="F")[index])
        size = int(np.prod(shape[1:])) * dtype.itemsize
        file.seek(index * size, 1)
        return np.frombuffer(_exactly(file, size), dtype).reshape(shape[1:])


def _exactly(file: Any, size: int) -> bytes:
    content: bytes = file.read(size)
    if len(content) != size:
        raise ValueError("it ends early")
    return content
