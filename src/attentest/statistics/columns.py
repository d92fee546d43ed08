"""Tables whose columns are arrays, and how their rows are repeated, sorted and divided into runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class Columns:
    """A table: a subclass is a frozen dataclass whose fields are arrays with one row each along their last axis."""

    def __len__(self) -> int:
        return int(getattr(self, fields(self)[0].name).shape[-1])

    def take(self, rows: Integers | Mask | slice) -> Self:
        """Return the table of some of the rows, given by index, mask or slice."""
        if not isinstance(rows, slice) and rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)  # once for all columns
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        # An ellipsis takes twice as long where there is nothing to leave out.
        return type(self)(
            **{name: array[rows] if array.ndim == 1 else array[..., rows] for name, array in columns.items()}
        )

    @classmethod
    def concatenated(cls, tables: Sequence[Self]) -> Self:
        """Return the rows of several tables, one or more, as one table."""
        columns = {field.name: [getattr(table, field.name) for table in tables] for field in fields(cls)}
        return cls(**{name: np.concatenate(parts, axis=-1) for name, parts in columns.items()})


def repeated(times: Integers) -> tuple[Integers, Integers]:
    """Return the numbers (n,) of rows repeated so many times (m,), and the place (n,) of each among the repetitions."""
    row = np.repeat(np.arange(len(times)), times)
    return row, np.arange(len(row)) - np.repeat(np.cumsum(times) - times, times)


def run_ends(count: int, breaks: Mask) -> tuple[Mask, Mask]:
    """Return which of so many rows begin a run and which end one, (count,) each.

    ``breaks`` says of every row but the first whether a new run begins with it.
    """
    starts, ends = np.ones(count, dtype=np.bool_), np.ones(count, dtype=np.bool_)
    starts[1:], ends[:-1] = breaks, breaks
    return starts, ends


def order_by_owner(owner: Integers, values: Floats) -> Integers:
    """Return the order that sorts by owner (n,), and by value (n,) where owners are equal.

    It is that of ``np.lexsort``, in half the time: integers of two bytes are sorted by their digits.
    """
    order = np.argsort(values, kind="stable")
    small = owner if owner.max(initial=0) > np.iinfo(np.uint16).max else owner.astype(np.uint16)
    return np.asarray(order[np.argsort(small[order], kind="stable")])
