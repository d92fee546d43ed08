"""Results as rows of a table, one per image, that can be written to disk as soon as they are known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, get_args

import numpy as np

from attentest.results.many_pvalues import ManyPvalues
from attentest.results.result import AttentionTestResult, confidence_intervals_of, estimates_of
from attentest.statistics.multiplicity import Adjustment

Row: TypeAlias = dict[str, Any]
"""Values of one image by the names of their columns; of an image that could not be tested, its name and "error"."""

CERTIFICATE = ("pvalue", "agrees", "agreement", "draws", "steps", "seed", "moved")
"""What a table has of certificates, with the prefix ``certificate_``."""

RULES = ("threshold", "top_fraction")
"""Settings of the region rules: each result has one of them."""

COLUMNS = (
    "image",
    "component",
    "statistic",
    "pvalue",
    "pvalue_low",
    "pvalue_high",
    "log_pvalue",
    "log_pvalue_low",
    "log_pvalue_high",
    *(f"pvalue_{method}" for method in get_args(Adjustment)),
    *(f"certificate_{name}" for name in CERTIFICATE),
    "naive_pvalue",
    "bonferroni_pvalue",
    "difference",
    "standard_error",
    "estimate",
    "estimate_low",
    "estimate_high",
    "confidence_level",
    "confidence_low",
    "confidence_high",
    "confidence_error",
    "part_pixels",
    "region_pixels",
    "seen_pixels",
    "region_unit",
    *RULES,
    "gamma",
    "randomise_seed",
    "alternative",
    "contrast",
    "noise",
    "approximate_noise",
    "evaluations",
    "status",
    "audit_points",
    "audit_contradictions",
    "error",
)
"""Columns of a table, in order; a row may hold more."""

IF_ANY = {"component", *(f"certificate_{name}" for name in CERTIFICATE)}
"""Columns that are there only if a row has them."""


def rows_of(results: Sequence[AttentionTestResult], names: Sequence[object], confidence_level: float) -> list[Row]:
    """Return a row for each result; intervals and estimates are computed together."""
    estimates, intervals = estimates_of(results), confidence_intervals_of(results, confidence_level)
    return [
        {
            "image": name if isinstance(name, (int, str)) else str(name),
            "statistic": result.statistic,
            "pvalue": result.pvalue,
            "pvalue_low": result.pvalue_bounds[0],
            "pvalue_high": result.pvalue_bounds[1],
            "log_pvalue": result.log_pvalue,
            "log_pvalue_low": result.log_pvalue_bounds[0],
            "log_pvalue_high": result.log_pvalue_bounds[1],
            **_certified(result),
            "naive_pvalue": result.naive_pvalue,
            "bonferroni_pvalue": result.bonferroni_pvalue,
            "difference": result.difference,
            "standard_error": result.standard_error,
            "estimate": float(estimates.best[i]),
            "estimate_low": float(estimates.low[i]),
            "estimate_high": float(estimates.high[i]),
            "confidence_level": interval.confidence_level,
            "confidence_low": interval.low,
            "confidence_high": interval.high,
            "confidence_error": interval.error,
            "part_pixels": int(result.part.sum()),
            "region_pixels": int(result.region.sum()),
            "seen_pixels": int(result.seen.sum()),
            **_described(result.settings),
            "alternative": result.alternative,
            "evaluations": result.evaluations,
            "status": result.status,
            "audit_points": result.audit and result.audit.points,
            "audit_contradictions": result.audit and result.audit.contradictions,
        }
        for i, (name, result, interval) in enumerate(zip(names, results, intervals, strict=True))
    ]


def failed_row(name: object, reason: str) -> Row:
    """Return the row of an image that could not be tested."""
    return {"image": name if isinstance(name, (int, str)) else str(name), "error": reason}


def pvalues_of(rows: Iterable[Row]) -> ManyPvalues:
    """Return the p-values of rows that have one."""
    tested = [row for row in rows if "error" not in row]
    return ManyPvalues(
        log_low=np.array([row["log_pvalue_low"] for row in tested], dtype=np.float64),
        log_high=np.array([row["log_pvalue_high"] for row in tested], dtype=np.float64),
        naive=np.array([row["naive_pvalue"] for row in tested], dtype=np.float64),
        statuses=[row["status"] for row in tested],
        certified=["certificate_pvalue" in row for row in tested],
        references=[row.get("noisy_reference") for row in tested],
    )


def with_adjusted(rows: Sequence[Row]) -> list[Row]:
    """Return rows with their p-values adjusted together, each in the column of its method."""
    pvalues = pvalues_of(rows)
    adjusted = {
        f"pvalue_{method}": iter(pvalues.adjusted_bounds(method)[1].tolist()) for method in get_args(Adjustment)
    }
    return [
        row if "error" in row else {**row, **{name: next(values) for name, values in adjusted.items()}} for row in rows
    ]


def columns_of(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Return rows as columns of a table; what a row does not have is None."""
    held = {name for row in rows for name in row}
    return {name: [row.get(name) for row in rows] for name in COLUMNS if name in held or name not in IF_ANY}


def as_json(row: Mapping[str, Any]) -> Row:
    """Return a row with infinite numbers as "inf" and "-inf", because JSON has none."""
    return {name: _encoded(value) for name, value in row.items()}


def from_json(row: Mapping[str, Any]) -> Row:
    """Return a row as it was before :func:`as_json`."""
    return {name: float(value) if value in ("inf", "-inf") else value for name, value in row.items()}


def _encoded(value: Any) -> Any:
    if isinstance(value, list):
        return [as_json(each) if isinstance(each, Mapping) else _encoded(each) for each in value]
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def _certified(result: AttentionTestResult) -> Row:
    certificate = result.certificate
    if certificate is None:
        return {}
    values = {f"certificate_{name}": getattr(certificate, name) for name in CERTIFICATE}
    return {**values, "certificate_summary": certificate.summary()}


def _described(settings: Mapping[str, Any]) -> Row:
    randomisation, noise = settings.get("randomisation") or {}, settings["noise"]
    return {
        **{name: settings.get(name) for name in ("region_unit", *RULES)},
        "gamma": randomisation.get("gamma", 0.0),
        "randomise_seed": randomisation.get("seed"),
        "contrast": settings["contrast"]["name"],
        "noise": noise.get("model", ""),
        "approximate_noise": bool(noise.get("approximate", False)),
        "noisy_reference": settings.get("noisy_reference"),
    }
