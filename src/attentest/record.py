"""Numbers and intervals as JSON-ready values."""

from __future__ import annotations

from typing import Any

import numpy as np

from attentest.statistics.confidence_interval import ConfidenceInterval
from attentest.statistics.truncation_set import Intervals


def json_number(value: float) -> float | str:
    """Return a number, or "inf", "-inf" or "nan" for one that JSON does not have."""
    return float(value) if np.isfinite(value) else str(float(value))


def json_intervals(intervals: Intervals) -> list[list[float | str]]:
    """Return a union of intervals (n, 2) as pairs of numbers."""
    return [[json_number(end) for end in ends] for ends in intervals.tolist()]


def json_interval(interval: ConfidenceInterval) -> dict[str, Any]:
    """Return a confidence interval as a dictionary."""
    return {
        "low": json_number(interval.low),
        "high": json_number(interval.high),
        "confidence_level": interval.confidence_level,
        "error": json_number(interval.error),
    }
