"""Brain slices as the study uses them: small FLAIR images, the tumour in each, and whose they are."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.errors import InputError

SIDE = 64
"""Side of a slice in pixels, that of the images the paper's models look at."""

KINDS = {"flair": "u", "mask": "b", "tumour": "b", "patient": "U", "number": "iu"}
"""What the dtype of each array may be, in NumPy's letters."""

WORDS = {"flair": "uint8", "mask": "bool", "tumour": "bool", "patient": "str", "number": "int"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Slices:
    """Slices of several patients, each there once; read-only.

    Parameters
    ----------
    flair : (n, 64, 64) uint8
        FLAIR images.
    mask : (n, 64, 64) bool
        Where the tumour is.
    tumour : (n,) bool
        Whether there is a tumour. One so small that no pixel of its mask is left at this size is one all the same.
    patient : (n,) str
        Whose slice it is.
    number : (n,) int64
        Its number among those of the patient.
    """

    flair: NDArray[np.uint8]
    mask: NDArray[np.bool_]
    tumour: NDArray[np.bool_]
    patient: NDArray[np.str_]
    number: NDArray[np.int64]

    def __post_init__(self) -> None:
        for name in KINDS:
            object.__setattr__(self, name, _own(name, getattr(self, name)))
        count = len(self.flair)
        for name in KINDS:
            values = getattr(self, name)
            shape = (count, SIDE, SIDE) if name in ("flair", "mask") else (count,)
            if values.shape != shape:
                raise InputError(f"{name} must have shape {shape}, as flair has {count} slices, got {values.shape}.")
        nobody = np.flatnonzero(self.patient == "")
        if len(nobody):
            raise InputError(f"every slice must have a patient, but the name of that of slice {nobody[0]} is empty.")
        self._check_once()
        torn = self.mask.any(axis=(1, 2)) & ~self.tumour
        if torn.any():
            raise InputError(
                f"the slice {self.names[int(torn.argmax())]} has pixels in its mask but is said to show no tumour: "
                "correct either."
            )

    def __len__(self) -> int:
        return len(self.flair)

    @property
    def names(self) -> tuple[str, ...]:
        """What to call each slice: its patient and its number."""
        return tuple(f"{patient}_{number}" for patient, number in self._keys())

    def take(self, indices: ArrayLike) -> Slices:
        """Return some of the slices, in the order asked for.

        Parameters
        ----------
        indices : (k,) int or (n,) bool
            Which slices, from 0, each at most once; or for each whether to take it.
        """
        chosen = np.asarray(indices)
        if chosen.size == 0 and chosen.shape == (0,):
            chosen = chosen.astype(np.int64)  # an empty list has no dtype of its own
        if chosen.ndim != 1 or chosen.dtype.kind not in "biu":
            raise InputError(f"slices are taken by whole numbers or booleans (k,), got {chosen.dtype} {chosen.shape}.")
        if chosen.dtype.kind == "b" and len(chosen) != len(self):
            raise InputError(f"booleans must be as many as the {len(self)} slices, got {len(chosen)}.")
        if chosen.dtype.kind != "b" and not ((chosen >= 0) & (chosen < len(self))).all():
            raise InputError(f"indices must be from 0 to {len(self) - 1}, got {chosen.min()} to {chosen.max()}.")
        return Slices(**{name: getattr(self, name)[chosen] for name in KINDS})

    def digest(self) -> str:
        """Return a SHA-256 of the slices in their order, the same on every machine: what a study was made of."""
        content = hashlib.sha256(json.dumps([SIDE, self.patient.tolist(), self.number.tolist()]).encode())
        for values in (self.flair, self.mask, self.tumour):
            content.update(np.ascontiguousarray(values).data)
        return content.hexdigest()

    def _keys(self) -> list[tuple[str, int]]:
        return list(zip(self.patient.tolist(), self.number.tolist(), strict=True))

    def _check_once(self) -> None:
        seen: set[tuple[str, int]] = set()
        for key in self._keys():
            if key in seen:
                raise InputError(f"slice {key[1]} of patient {key[0]} is there twice: leave one of them out.")
            seen.add(key)


def _own(name: str, values: Any) -> NDArray[Any]:
    """Return a read-only copy of an array of the right kind."""
    if not isinstance(values, np.ndarray) or values.dtype.kind not in KINDS[name]:
        received = values.dtype if isinstance(values, np.ndarray) else type(values).__name__
        raise InputError(f"{name} must be an array of {WORDS[name]}, got {received}.")
    if name == "flair" and values.dtype != np.uint8:
        raise InputError(f"flair must be an array of uint8, got {values.dtype}.")
    if not values.ndim:
        raise InputError(f"{name} must have one value or image for each slice, got a single value.")
    if name == "number":
        wrong = (values < 0) | (values > np.iinfo(np.int64).max)
        if wrong.any():
            raise InputError(f"number must be at least 0 and below 2**63, got {values[wrong].flat[0]}.")
    own = np.array(values, dtype=np.int64 if name == "number" else None)
    own.setflags(write=False)
    return own
