"""Images in .npy files of NumPy."""

from __future__ import annotations

import tokenize
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError
from attentest.images.image_file import DECODING_ERRORS, MAX_PIXELS, chosen_frame, reason

ARCHIVE_SIGNATURE = b"PK"
"""First bytes of a .npz archive of arrays."""


def read_npy(path: Path, frame: int | None) -> NDArray[Any]:
    """Return the array (H, W) or (H, W, C) of a .npy file, in the machine's byte order; nothing is unpickled."""
    with path.open("rb") as file:
        is_archive = file.read(len(ARCHIVE_SIGNATURE)) == ARCHIVE_SIGNATURE
    if is_archive:
        raise InputError(f"{path} is an archive of arrays, not a .npy array: save the one array with numpy.save.")
    try:
        with np.errstate(over="raise"):  # of a shape whose product does not fit in 64 bits
            values = np.lib.format.open_memmap(path, mode="r")
    except (*DECODING_ERRORS, tokenize.TokenError) as error:
        raise InputError(f"{path} is not a readable .npy array ({reason(error)}).") from None
    if values.dtype.kind not in "biuf":
        raise InputError(f"{path} must hold real numbers, got an array of {values.dtype}.")
    if values.ndim not in (2, 3) or not values.size:
        raise InputError(f"{path} must hold one image (H, W) or (H, W, C), got an array of shape {values.shape}.")
    if values.size > MAX_PIXELS:
        raise InputError(f"{path} holds {values.size} values, more than the {MAX_PIXELS} allowed.")
    chosen_frame(frame, 1, path)
    return np.array(values, dtype=values.dtype.newbyteorder("="))
