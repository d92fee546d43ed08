"""What a card of a report shows of an image: a small copy of it, of its attention map and of its region."""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attentest.results.figures.overlay import displayed
from attentest.results.result import AttentionTestResult

LONGEST_SIDE = 512
"""Most pixels of a copy on a side; a larger image is shown smaller."""

MOST_PARTS = 65_535
"""Most components of a region whose numbers are kept: what 16 bits can hold."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SmallPicture:
    """A tested image with its attention map and the compared parts of its region, all of one small size.

    Parameters
    ----------
    image : (h, w) or (h, w, 3) uint8
        The image, as it is shown.
    attention : (h, w) uint8
        The attention map: 255 is its maximum.
    parts : (h, w) uint16
        The number of the compared part at each pixel, from 1, and 0 outside of the region.
    """

    image: NDArray[np.uint8]
    attention: NDArray[np.uint8]
    parts: NDArray[np.uint16]

    def __post_init__(self) -> None:
        shape = self.attention.shape
        if not (
            len(shape) == 2
            and 1 <= max(shape) <= LONGEST_SIDE
            and self.parts.shape == shape
            and self.image.shape in (shape, (*shape, 3))
            and [array.dtype.name for array in (self.image, self.attention, self.parts)] == ["uint8", "uint8", "uint16"]
        ):
            raise ValueError("the arrays of a small picture do not go together")

    @classmethod
    def of_results(cls, results: Sequence[AttentionTestResult]) -> SmallPicture:
        """Return the picture of the results of one image: one, or one for each component of its region."""
        first = results[0]
        parts = np.zeros(first.region.shape, dtype=np.uint16)
        for number, result in enumerate(results[:MOST_PARTS], start=1):
            parts[result.part] = number
        step = math.ceil(max(parts.shape) / LONGEST_SIDE)
        rows, columns = (_middles(side, step) for side in first.region.shape)
        return cls(
            image=_eight_bits(_shrunk(displayed(first.image), step)),
            attention=_eight_bits(_shrunk(np.clip(first.attention, 0.0, 1.0), step)),
            parts=parts.take(rows, axis=0).take(columns, axis=1),
        )

    @classmethod
    def read(cls, path: Path) -> SmallPicture | None:
        """Return the picture in a file; None if there is none that can be read."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as saved:
                return cls(image=saved["image"], attention=saved["attention"], parts=saved["parts"])
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error):
            return None

    def to_bytes(self) -> bytes:
        """Return the content of a file."""
        content = io.BytesIO()
        np.savez_compressed(content, image=self.image, attention=self.attention, parts=self.parts)
        return content.getvalue()


def _shrunk(values: NDArray[np.float64], step: int) -> NDArray[np.float64]:
    """Return means over squares of ``step`` pixels, without the pixels at the ends that fill no square."""
    height, width = values.shape[:2]
    rows, columns = (len(_middles(side, step)) for side in (height, width))
    squares = values[: rows * step, : columns * step].reshape(
        rows, min(step, height), columns, min(step, width), *values.shape[2:]
    )
    return np.asarray(squares.mean(axis=(1, 3)))


def _middles(side: int, step: int) -> NDArray[np.int64]:
    """Return the pixels in the middle of the squares along one side, of which there is at least one."""
    return np.minimum(np.arange(max(side // step, 1)) * step + step // 2, side - 1)


def _eight_bits(values: NDArray[np.float64]) -> NDArray[np.uint8]:
    return np.asarray(np.rint(255 * values), dtype=np.uint8)
