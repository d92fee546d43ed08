"""Unions of intervals on the real line, as (k, 2) float64 arrays: sorted, disjoint, ends possibly infinite."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.errors import InputError

Intervals: TypeAlias = NDArray[np.float64]

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


def clip(intervals: Intervals, lower: float, upper: float) -> Intervals:
    """Return the part of a union of intervals that lies in [lower, upper]; parts of no width are dropped."""
    clipped = np.clip(intervals, lower, upper)
    return clipped[clipped[:, 0] < clipped[:, 1]]


def contains(intervals: Intervals, z: float) -> bool:
    """Tell whether z lies in a union of closed intervals."""
    return bool(np.any((intervals[:, 0] <= z) & (z <= intervals[:, 1])))
