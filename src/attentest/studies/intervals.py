"""Confidence intervals in rows of results, and how long many of them are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import norm

from attentest.results.records import Row
from attentest.results.result import AttentionTestResult
from attentest.statistics.confidence_interval import ConfidenceInterval

CONFIDENCE_LEVEL = 0.95

ENDS = ("confidence_low", "confidence_high", "confidence_error", "confidence_bound")
"""Numbers of an interval in a row, None where it is infinite."""

ROUNDING = 1e-9  # relative, by which an interval may exceed its bound


def interval_values(result: AttentionTestResult, interval: ConfidenceInterval) -> Row:
    """Return the values of an interval that are stored, JSON-ready: None for an infinite one."""
    values = (interval.low, interval.high, interval.error, result.interval_bound)
    return {name: float(value) if np.isfinite(value) else None for name, value in zip(ENDS, values, strict=True)}


def interval_lengths(rows: Sequence[Row]) -> dict[str, Any] | None:
    """Return how long the intervals of rows are, in units of the naive ones, and how many exceed their bounds.

    None if no row has an interval. There are bounds after randomised selection; each end may lie outside that of the
    exact interval by what its search left open, and this does not count.
    """
    rows = [row for row in rows if "confidence_low" in row]
    if not rows:
        return None
    naive = 2 * norm.ppf((1 + CONFIDENCE_LEVEL) / 2) * np.array([row["standard_error"] for row in rows])
    ends = [(row["confidence_low"], row["confidence_high"]) for row in rows]
    ratio = np.sort([np.inf if None in pair else pair[1] - pair[0] for pair in ends] / naive)
    over = [
        (pair[1] - pair[0] - 2 * row["confidence_error"]) / (row["confidence_bound"] * one)
        for row, pair, one in zip(rows, ends, naive.tolist(), strict=True)
        if None not in (row.get("confidence_bound"), row.get("confidence_error"), *pair)
    ]
    bounds = [row["confidence_bound"] for row in rows if row.get("confidence_bound") is not None]
    return {
        "median": float(ratio[len(ratio) // 2]) if np.isfinite(ratio[len(ratio) // 2]) else None,
        "mean": float(ratio.mean()) if np.isfinite(ratio[-1]) else None,
        "infinite": int(np.isinf(ratio).sum()),
        "bound": max(bounds, default=None),
        "bounded": len(over),
        "over_bound": sum(one > 1 + ROUNDING for one in over),
        "longest": max(over, default=None),
    }
