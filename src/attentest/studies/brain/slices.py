"""Brain slices: FLAIR images of 64 x 64 pixels, their tumour masks, and the patients they belong to."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.errors import InputError

SIDE = 64
"""Side of a slice in pixels, as in the paper."""

WHITE = 255

LEAST_BRIGHT = 20
"""Grey level that brain tissue exceeds: 99% of the pixels in the corners, outside the head, are below 10."""

LEAST_SHARE = 0.2
"""Share of the pixels that must exceed it, or the slice is nearly empty; in the median slice a third of them do.

On the data of Buda et al. (2019) this leaves 1,311 of the 1,373 slices with a tumour and 1,902 of the 2,556 without.
All 88 slices of one patient are left out, 37 of them with a tumour: that scan is dark, with nothing above 70.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Slices:
    """n slices of several patients, each slice once, as read-only copies of the arrays.

    ``flair`` (n, 64, 64) uint8 are the images and ``mask`` (n, 64, 64) bool the pixels of the tumour. ``tumour`` (n,)
    says whether there is one; it counts even if it is too small to leave a pixel in the mask at this size. ``patient``
    (n,) str and ``number`` (n,) int64 identify a slice.
    """

    flair: NDArray[np.uint8]
    mask: NDArray[np.bool_]
    tumour: NDArray[np.bool_]
    patient: NDArray[np.str_]
    number: NDArray[np.int64]

    def __post_init__(self) -> None:
        count = len(self.flair) if np.ndim(self.flair) else 0
        kinds = {"flair": np.uint8, "mask": np.bool_, "tumour": np.bool_, "patient": np.str_, "number": np.integer}
        for name, kind in kinds.items():
            shape = (count, SIDE, SIDE) if name in ("flair", "mask") else (count,)
            values = checked_array(getattr(self, name), name, kind, shape)
            own = values.astype(np.int64 if name == "number" else values.dtype)
            if name == "number" and (wrong := own < 0).any():  # also numbers that do not fit
                raise InputError(f"{name} must be at least 0 and below 2**63, got {values[wrong][0]}.")
            own.setflags(write=False)
            object.__setattr__(self, name, own)
        if (self.patient == "").any():
            raise InputError(f"patient must not be empty, but that of slice {np.argmax(self.patient == '')} is.")
        for (patient, number), times in Counter(self._keys()).items():
            if times > 1:
                raise InputError(f"slice {number} of patient {patient} is there twice: leave one of them out.")
        if (wrong := self.mask.any(axis=(1, 2)) & ~self.tumour).any():
            name = self.names[wrong.argmax()]
            raise InputError(f"slice {name} has pixels in its mask but no tumour: correct one of the two.")

    def __len__(self) -> int:
        return len(self.flair)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each slice: its patient and its number."""
        return tuple(f"{patient}_{number}" for patient, number in self._keys())

    def take(self, indices: ArrayLike) -> Slices:
        """Return some of the slices: by indices (k,), each at most once, or by booleans (n,)."""
        chosen = np.asarray(indices)
        if not chosen.size:
            chosen = chosen.astype(np.int64)  # an empty list becomes an array of floats
        return Slices(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})

    def shows_brain(self) -> NDArray[np.bool_]:
        """Return for each slice whether at least LEAST_SHARE of its pixels exceed LEAST_BRIGHT."""
        return np.asarray((self.flair > LEAST_BRIGHT).mean(axis=(1, 2)) >= LEAST_SHARE)

    def digest(self) -> str:
        """Return a SHA-256 of the slices in their order, the same on every machine."""
        content = hashlib.sha256(json.dumps([SIDE, self.patient.tolist(), self.number.tolist()]).encode())
        for values in (self.flair, self.mask, self.tumour):
            content.update(np.ascontiguousarray(values).data)
        return content.hexdigest()

    def _keys(self) -> list[tuple[str, int]]:
        return list(zip(self.patient.tolist(), self.number.tolist(), strict=True))


def checked_array(values: Any, name: str, kind: type[np.generic], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return an array; refuse it if it has another kind of dtype or another shape."""
    dtype = values.dtype if isinstance(values, np.ndarray) else None
    if dtype is None or not np.issubdtype(dtype, kind):
        expected = kind.__name__.rstrip("_")
        raise InputError(f"{name} must be an array of {expected}, got {dtype or type(values).__name__}.")
    if values.shape != shape:
        raise InputError(f"{name} must have shape {shape}, got {values.shape}.")
    return np.asarray(values)
