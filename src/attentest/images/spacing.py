"""How far apart the pixels, voxels or samples of a file are, and what a region of so many of them measures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from numpy.typing import NDArray

from attentest.checks import positive_number
from attentest.errors import InputError, shortened

UNITS = ("s", "mm", "um", "m", "")
"""Units of spacings; an empty one is not known, and only the proportions of an image are."""

CENTIMETRE = 10.0  # in millimetres: an area or a volume of at least one square or cubic centimetre is said in these


@dataclass(frozen=True)
class Spacing:
    """The distance of neighbouring pixels along each axis."""

    lengths: tuple[float, ...]
    unit: str = ""

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise InputError(f"the unit of a spacing must be one of {', '.join(UNITS)}, got {shortened(self.unit)}.")
        lengths = tuple(positive_number(length, "spacing (each length)") for length in self.lengths)
        object.__setattr__(self, "lengths", lengths)

    @classmethod
    def known(cls, lengths: Sequence[Any], unit: str) -> Spacing | None:
        """Return the spacing that a file tells; None if it tells none, or nonsense."""
        try:
            return cls(tuple(float(length) for length in lengths), unit)
        except (InputError, TypeError, ValueError):
            return None

    @property
    def size_unit(self) -> str:
        """The unit of a length, area or volume: "s", "mm2", "mm3"; empty if it is not known."""
        axes = len(self.lengths)
        return f"{self.unit}{axes}" if self.unit and axes > 1 else self.unit

    def size(self, count: int) -> float:
        """Return the length, area or volume of so many pixels."""
        return count * math.prod(self.lengths)

    def size_text(self, count: int) -> str:
        """Return the size of so many pixels: "0.41 s", "9.6 cm3"; empty if the unit is not known."""
        size, unit, axes = self.size(count), self.size_unit, len(self.lengths)
        if self.unit == "mm" and axes > 1 and size >= CENTIMETRE**axes:
            size, unit = size / CENTIMETRE**axes, f"cm{axes}"
        return f"{size:.3g} {unit}" if unit else ""


class Scan(NamedTuple):
    """What a file holds: its values, and how far apart they are, if it tells."""

    values: NDArray[Any]
    spacing: Spacing | None = None
