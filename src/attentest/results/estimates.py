"""Estimates and confidence intervals of many results, computed together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from attentest.statistics.alternative import Alternative
from attentest.statistics.confidence_interval import ConfidenceInterval, Estimates, confidence_intervals, estimates
from attentest.statistics.law import Law
from attentest.statistics.truncation_set import TruncationSet


class Estimable(Protocol):
    """What estimates and confidence intervals need of a result."""

    @property
    def law(self) -> Law:
        """Law of the statistic given the truncation set."""
        ...

    @property
    def truncation_set(self) -> TruncationSet:
        """The truncation set, with what is certain and what is possible."""
        ...

    @property
    def standard_error(self) -> float:
        """Standard deviation of the compared difference."""
        ...

    @property
    def alternative(self) -> Alternative:
        """The alternative, which says on which sides an interval is bounded."""
        ...


def estimates_of(results: Sequence[Estimable]) -> Estimates:
    """Return the median-unbiased estimates of results, with bounds, (k,) each."""
    if not results:
        return Estimates(np.empty(0), np.empty(0), np.empty(0))
    groups, order = _by_law(results)
    columns = zip(*(estimates(law, sets, scales) for law, sets, scales, _ in groups), strict=True)
    return Estimates(*(np.concatenate(column)[order] for column in columns))


def confidence_intervals_of(
    results: Sequence[Estimable], confidence_level: float | list[float]
) -> list[ConfidenceInterval]:
    """Return the confidence intervals of results, at one level or at a level for each."""
    groups, order = _by_law(results)
    given = confidence_level if isinstance(confidence_level, list) else [confidence_level] * len(results)
    levels = [given[place] for place in np.argsort(order)]
    intervals: list[ConfidenceInterval] = []
    for law, sets, scales, alternatives in groups:
        own = levels[len(intervals) : len(intervals) + len(law)]
        intervals += confidence_intervals(law, sets, scales, alternatives, own)
    return [intervals[place] for place in order]


def _by_law(
    results: Sequence[Estimable],
) -> tuple[list[tuple[Law, list[TruncationSet], NDArray[np.float64], list[Alternative]]], NDArray[np.int64]]:
    """Return results grouped by the class of their law, to be computed together, and the place of each result."""
    places: dict[type[Law], list[int]] = {}
    for place, result in enumerate(results):
        places.setdefault(type(result.law), []).append(place)
    groups = []
    for kind, rows in places.items():
        some = [results[row] for row in rows]
        groups.append(
            (
                kind.stack([result.law for result in some]),
                [result.truncation_set for result in some],
                np.array([result.standard_error for result in some]),
                [result.alternative for result in some],
            )
        )
    return groups, np.argsort(np.concatenate([np.array(rows, dtype=np.int64) for rows in [[], *places.values()]]))
