"""The slices of a whole study in one .npz file."""

from __future__ import annotations

import tokenize
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError
from attentest.images.image_file import DECODING_ERRORS, reason
from attentest.studies.brain.slices import SIDE, Slices

LARGEST = 2**31
"""Most bytes that may be unpacked: those of some 450,000 slices. Anything above it is an accident or an attack."""

MOST_MASK_PIXELS = 256 * 256
"""Pixels of a mask at its original size."""

PACKED = {
    "flair": ("u", (SIDE, SIDE), "uint8"),
    "mask": ("u", (SIDE * SIDE // 8,), "uint8"),
    "mask_pixels_256": ("iu", (), "int"),
    "patient": ("U", (), "str"),
    "slice": ("iu", (), "int"),
}
"""The arrays of a packed file: the kind of their dtype, their shape after (n,), and the dtype in words."""


def read_packed(path: Path) -> Slices:
    """Read slices from a packed file, in its order.

    Parameters
    ----------
    path
        An .npz with arrays flair (n, 64, 64) uint8; mask (n, 512) uint8, the 64 rows of each mask with 8 pixels a
        byte, the first in the highest bit; mask_pixels_256 (n,) int, how many pixels the mask had at its original
        size; patient (n,) str and slice (n,) int.
    """
    arrays = _arrays(path)
    count = len(arrays["flair"]) if arrays["flair"].ndim else 0
    for name, (kind, shape, words) in PACKED.items():
        values = arrays[name]
        if values.dtype.kind not in kind or (words == "uint8" and values.dtype != np.uint8):
            raise InputError(f"the array {name!r} of {path} must be of {words}, got {values.dtype}.")
        if values.shape != (count, *shape):
            raise InputError(
                f"the array {name!r} of {path} must have shape {(count, *shape)}, as 'flair' has {count} slices, "
                f"got {values.shape}."
            )
    if not ((arrays["mask_pixels_256"] >= 0) & (arrays["mask_pixels_256"] <= MOST_MASK_PIXELS)).all():
        raise InputError(f"the array 'mask_pixels_256' of {path} must be counts from 0 to {MOST_MASK_PIXELS}.")
    if not count:
        raise InputError(f"{path} holds no slices: give a packed file with some.")
    mask = np.unpackbits(arrays["mask"].reshape(count, SIDE, SIDE // 8), axis=2)
    try:
        return Slices(
            flair=arrays["flair"],
            mask=mask.astype(bool),
            tumour=arrays["mask_pixels_256"] > 0,
            patient=arrays["patient"],
            number=arrays["slice"],
        )
    except InputError as error:
        raise InputError(f"{path} cannot be used: {error}") from None


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return what a packed file must hold; nothing in it is ever executed."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > LARGEST:
            raise InputError(f"{path} unpacks to {size} bytes, more than the {LARGEST} allowed: is it something else?")
        with np.load(path, allow_pickle=False) as archive:
            missing = [name for name in PACKED if name not in archive.files]
            if missing:
                raise InputError(
                    f"{path} lacks {', '.join(map(repr, missing))}: a packed file of brain slices has the arrays "
                    f"{', '.join(PACKED)}."
                )
            arrays = {name: archive[name] for name in PACKED}
    except InputError:
        raise
    except (*DECODING_ERRORS, zipfile.BadZipFile, tokenize.TokenError) as error:
        raise InputError(
            f"{path} cannot be read as a packed file of brain slices ({reason(error)}): get or make it again."
        ) from None
    for name, values in arrays.items():
        if not isinstance(values, np.ndarray):  # NumPy gives the bytes of what is no array
            raise InputError(f"{name!r} in {path} is no array: make the file again with numpy.savez_compressed.")
    return arrays
