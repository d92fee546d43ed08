"""One slice tested: what is kept of the result, and how the region lies to the tumour."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.api import AttentionTest
from attentest.results.result import AttentionTestResult
from attentest.studies.brain.emptiness import LEAST_BRIGHT
from attentest.studies.brain.slices import Slices
from attentest.studies.records import Row, isolated_rows

LEAST_LOG = -1e300
"""JSON has no infinite numbers."""


def overlap(region: NDArray[np.bool_], mask: NDArray[np.bool_]) -> float | None:
    """Return the intersection of two areas (H, W) over their union; None where the mask is empty."""
    if not mask.any():
        return None
    return float((region & mask).sum() / (region | mask).sum())


def slice_row(result: AttentionTestResult, flair: NDArray[np.uint8], mask: NDArray[np.bool_]) -> Row:
    """Return what is kept of a result, JSON-ready.

    Parameters
    ----------
    result
        Of the slice.
    flair, mask : (H, W)
        The slice and its tumour.
    """
    low, high = result.pvalue_bounds
    region = result.region
    row: Row = {
        "p": result.pvalue,
        "p_low": low,
        "p_high": high,
        "log_p": max(result.log_pvalue, LEAST_LOG),
        "statistic": result.statistic,
        "log_naive": result.naive_log_pvalue,
        "log_bonferroni": result.bonferroni_log_pvalue,
        "difference": result.difference,
        "standard_error": result.standard_error,
        "region": int(region.sum()),
        "iou": overlap(region, mask),
        "in_tumour": float(mask[region].mean()),
        "in_the_dark": float((flair[region] <= LEAST_BRIGHT).mean()),
        "evaluations": result.evaluations,
        "status": result.status,
    }
    level = result.settings["confidence_level"]
    if level is not None:
        interval = result.confidence_interval(level)
        row |= {"confidence_low": _finite(interval.low), "confidence_high": _finite(interval.high)}
    return row


def _finite(value: float) -> float | None:
    """Return a number for JSON, which has no infinite ones."""
    return float(value) if np.isfinite(value) else None


def rows_maker(test: AttentionTest, slices: Slices) -> Callable[[list[int]], list[Row]]:
    """Return what makes the rows of slices by their numbers; a slice that cannot be tested has its error."""

    def rows(numbers: list[int]) -> list[Row]:
        start = time.perf_counter()
        results = test.map(list(slices.flair[numbers]))
        seconds = (time.perf_counter() - start) / len(numbers)
        return [
            {
                "image": number,
                "seconds": seconds,
                **_identity(slices, number),
                **slice_row(result, slices.flair[number], slices.mask[number]),
            }
            for number, result in zip(numbers, results, strict=True)
        ]

    def isolated(numbers: list[int]) -> list[Row]:
        return [{**_identity(slices, row["image"]), **row} for row in isolated_rows(rows, numbers)]

    return isolated


def _identity(slices: Slices, number: int) -> dict[str, Any]:
    return {
        "patient": str(slices.patient[number]),
        "slice": int(slices.number[number]),
        "tumour": bool(slices.tumour[number]),
    }
