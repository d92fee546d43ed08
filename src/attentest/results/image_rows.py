"""The rows of many images in memory, without the names of their columns, which they share."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from attentest.results.rows import Row

FEW_TEXTS = ("alternative", "two_sided", "contrast", "noise", "region_unit", "status")
"""Columns of texts that many rows have in common; read from a file, each would be there many times."""


class ImageRows:
    """The rows of images: one of each image, or one of each component of its region.

    A row as a dictionary takes about three times the memory of its values, which is what is kept here.

    Parameters
    ----------
    names
        Names of the images, which say in which order their rows come.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._packed: dict[str, list[tuple[Any, ...]]] = {name: [] for name in names}
        self._columns: dict[tuple[str, ...], tuple[str, ...]] = {}

    def set(self, name: str, rows: Sequence[Row]) -> None:
        """Keep the rows of an image in place of those that it had; an image that was not named has none."""
        if name in self._packed:
            self._packed[name] = [self._values(row) for row in rows]

    @property
    def names(self) -> list[str]:
        """Names of the images that have rows, in order."""
        return [name for name, packed in self._packed.items() if packed]

    def __len__(self) -> int:
        """Return the number of images that have rows."""
        return len(self.names)

    def __iter__(self) -> Iterator[list[Row]]:
        """Yield the rows of each image that has some."""
        for packed in self._packed.values():
            if packed:
                yield [dict(zip(columns, values, strict=True)) for columns, *values in packed]

    def all(self) -> Iterator[Row]:
        """Yield the rows of all images."""
        for rows in self:
            yield from rows

    def _values(self, row: Row) -> tuple[Any, ...]:
        """Return the names of the columns, the same object for all rows that have them, and the values."""
        columns = tuple(row)
        values = (
            sys.intern(value) if column in FEW_TEXTS and isinstance(value, str) else value
            for column, value in row.items()
        )
        return self._columns.setdefault(columns, columns), *values
