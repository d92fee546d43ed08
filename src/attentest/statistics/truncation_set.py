"""Truncation sets: unions of intervals on the real line, one or many in flat arrays, as far as a search knows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from attentest.errors import InputError
from attentest.statistics.columns import Columns, Floats, Integers, Mask, repeated

Intervals: TypeAlias = Floats  # a union of intervals: an array (n, 2) of their ends, sorted, without overlap

EMPTY: Intervals = np.empty((0, 2))
EMPTY.setflags(write=False)


def union(*parts: ArrayLike) -> Intervals:
    """Return the union of any intervals, given as (k, 2) arrays: sorted, with touching ones merged."""
    stacked = np.concatenate([EMPTY, *(np.asarray(part, dtype=np.float64).reshape(-1, 2) for part in parts)])
    if np.isnan(stacked).any() or (stacked[:, 0] > stacked[:, 1]).any():
        raise InputError("an interval must be a pair (lower, upper) with lower <= upper and no NaN.")
    stacked = stacked[np.argsort(stacked[:, 0], kind="stable")]
    if len(stacked) == 0:
        return stacked
    reach = np.maximum.accumulate(stacked[:, 1])
    starts = np.flatnonzero(np.r_[True, stacked[1:, 0] > reach[:-1]])
    ends = np.r_[starts[1:] - 1, len(stacked) - 1]
    return np.column_stack([stacked[starts, 0], reach[ends]])


@dataclass(frozen=True, kw_only=True)
class TruncationSet:
    """The values of z at which the model would choose the observed region, as far as a search knows them."""

    intervals: Intervals
    """(n, 2). The best estimate of the set; contains the observed z."""
    certain: Intervals
    possible: Intervals
    """(n, 2). A subset and a superset of the true set, under the assumptions of the search."""

    def __repr__(self) -> str:
        counts = (f"{name}=<{len(intervals)}>" for name, intervals in vars(self).items())
        return f"TruncationSet({', '.join(counts)})"

    def __truediv__(self, divisor: float) -> TruncationSet:
        """Return the set in units that are greater by a factor."""
        return TruncationSet(**{name: intervals / divisor for name, intervals in vars(self).items()})


@dataclass(frozen=True, kw_only=True, eq=False)
class Unions(Columns):
    """Unions (m,) of n intervals in all, those of the first union first."""

    count: Integers
    """(m,). Number of intervals of each union."""
    left: Floats
    right: Floats
    """(n,). Their ends."""

    @classmethod
    def of(cls, sets: Sequence[Intervals]) -> Unions:
        """Return unions that are given as arrays (n_i, 2)."""
        ends = np.concatenate([EMPTY, *sets])
        count = np.fromiter(map(len, sets), dtype=np.int64, count=len(sets))
        return cls(count=count, left=ends[:, 0], right=ends[:, 1])

    def arrays(self) -> list[Intervals]:
        """Return the unions as arrays (n_i, 2)."""
        ends = np.column_stack([self.left, self.right])
        last = np.cumsum(self.count)
        return [ends[i:j].copy() for i, j in zip((last - self.count).tolist(), last.tolist(), strict=True)]

    @property
    def owner(self) -> Integers:
        """Index (n,) of the union that each interval belongs to."""
        return np.repeat(np.arange(len(self.count)), self.count)

    def contain(self, points: Floats) -> Mask:
        """Tell of each union whether its point (m,) lies in it; intervals are closed."""
        owner = self.owner
        point = points[owner]
        return np.bincount(owner[(self.left <= point) & (point <= self.right)], minlength=len(self.count)) > 0

    def take(self, rows: Integers | Mask | slice) -> Unions:
        """Return some of the unions, possibly repeated."""
        count = self.count[rows]
        row, place = repeated(count)
        interval = (np.cumsum(self.count) - self.count)[rows][row] + place
        return Unions(count=count, left=self.left[interval], right=self.right[interval])

    def where(self, kept: Mask) -> Unions:
        """Return the unions of those intervals that a mask (n,) names."""
        count = np.bincount(self.owner[kept], minlength=len(self.count))
        return Unions(count=count, left=self.left[kept], right=self.right[kept])
