"""Slices of a DICOM volume: where they lie, and their order along the normal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError

NO_POSITION = "has no position in its series that can be read: export it again"  # what errors say of a slice
DIGITS = 4  # digits after the point to which angles (cosines) and spacings (mm) of slices must agree

UNEVEN, MISSING = 0.1, 1.5
"""Distances of neighbouring slices may differ by this share of the usual one; from this multiple on one is missing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Slice:
    """A slice of a series: a file of a folder, or a frame of a file."""

    name: str
    """What messages call it."""
    index: int
    """Its place among the files or frames that it is of."""
    position: NDArray[np.float64]
    """(3,). Place in space of its first pixel in mm."""
    orientation: NDArray[np.float64]
    """(2, 3). Directions of its rows and columns."""
    spacing: tuple[float, ...]
    """Distances of rows and of columns in mm."""
    size: tuple[int, int]

    @classmethod
    def told(cls, name: str, index: int, header: Any, position: Any, orientation: Any, spacing: Any) -> Slice:
        """Return a slice as tags tell it, those of its size, its position, its orientation and its spacing."""
        part = cls(
            name=name,
            index=index,
            position=np.array(position.ImagePositionPatient, dtype=np.float64).reshape(3),
            orientation=np.array(orientation.ImageOrientationPatient, dtype=np.float64).reshape(2, 3),
            spacing=tuple(float(length) for length in spacing.get("PixelSpacing") or ()),
            size=(int(header.Rows), int(header.Columns)),
        )
        if not math.isfinite(part.place):
            raise ValueError("position")
        return part

    @property
    def place(self) -> float:
        """Its position along the normal of the series."""
        return float(np.cross(*self.orientation) @ self.position)

    @property
    def layout(self) -> dict[str, tuple[float, ...]]:
        """What all slices have in common."""
        return {
            "size": self.size,
            "pixel spacing": _rounded(self.spacing),
            "orientation": _rounded(self.orientation.ravel()),
        }


def in_order(slices: Iterable[Slice], holder: str) -> tuple[list[Slice], float]:
    """Return slices by their positions along their normal, and their distance; raise an error if they are unlike.

    The holder is what a volume of them is given as: a "folder" or a "file".
    """
    ordered = sorted(slices, key=lambda part: part.place)
    for what in ("size", "pixel spacing", "orientation"):
        values = [part.layout[what] for part in ordered]
        usual = Counter(values).most_common(1)[0][0]
        odd = next((part for part, value in zip(ordered, values, strict=True) if value != usual), None)
        if odd is not None:
            raise InputError(
                f"{odd.name} has the {what} {_shown(odd.layout[what])}, and other slices of its series "
                f"{_shown(usual)}: give a {holder} of slices that are alike."
            )
    return ordered, _checked_step(ordered, holder)


def affine_of(slices: Sequence[Slice]) -> NDArray[np.float64] | None:
    """Return the matrix (4, 4) from columns, rows and slices to the place in space, in mm, as NIfTI has it.

    The slices are in order. None if they do not tell the spacing of their pixels.
    """
    first, last = slices[0], slices[-1]
    if len(first.spacing) != 2:
        return None
    affine, (across, down), (of_rows, of_columns) = np.eye(4), first.orientation, first.spacing
    step = (last.position - first.position) / max(1, len(slices) - 1)
    affine[:3] = np.stack([across * of_columns, down * of_rows, step, first.position], axis=1)
    affine[:2] *= -1  # DICOM counts towards left and back, NIfTI towards right and front
    return affine


def _rounded(numbers: Any) -> tuple[float, ...]:
    return tuple(round(float(number), DIGITS) + 0.0 for number in numbers)


def _shown(numbers: tuple[float, ...]) -> str:
    return " x ".join(f"{number:g}" for number in numbers) or "none"


def _checked_step(slices: Sequence[Slice], holder: str) -> float:
    """Return the distance of neighbouring slices; raise an error if one is missing or double, or lies elsewhere."""
    gaps = np.diff([part.place for part in slices])
    usual = float(np.sort(gaps)[(len(gaps) - 1) // 2])
    for gap, before, after in zip(gaps.tolist(), slices, slices[1:], strict=False):
        if gap <= UNEVEN * usual or gap == 0:
            raise InputError(
                f"{before.name} and {after.name} are slices of one series at the same position: give each of its "
                f"volumes a {holder} of its own."
            )
        if abs(gap - usual) > UNEVEN * usual:
            what = "and a slice is missing between them" if gap >= MISSING * usual else "so that steps are uneven"
            raise InputError(
                f"{before.name} and {after.name} are {gap:.4g} mm apart, and other slices of their series "
                f"{usual:.4g} mm, {what}: copy or export the whole series again."
            )
    return (slices[-1].place - slices[0].place) / len(gaps)
