"""Everything the page of the study says, computed from its data files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kstest, spearmanr

from attentest.brain.clustered_rate import clustered_rate
from attentest.brain.condition import CONDITIONS, ESTIMATORS, PAPER
from attentest.brain.laboratory import data_file, read_record
from attentest.brain.performance import auc
from attentest.brain.study import FACTS, RUN_FIELDS
from attentest.calibration import ALPHAS
from attentest.errors import InputError
from attentest.record_file import Row
from attentest.run_log import read_runs

FORMAT = 1
"""Of the summary; a page is made from this one alone."""

CLASSES: Mapping[str, bool] = {"tumour": True, "free": False}
"""Names of the classes, and whether they have a tumour."""

TESTS: Mapping[str, str] = {"selective": "log_p", "naive": "log_naive", "bonferroni": "log_bonferroni"}
"""Tests, and where rows have the logarithms of their p-values."""

QUANTILES = np.linspace(0, 1, 101)

OVERLAPS = (0.0, 0.1, 0.3, 1.0)
"""Ends of the classes of IoU, besides none at all."""


def summarise(out: Path) -> dict[str, Any]:
    """Return what the data of a directory say, JSON-ready.

    Parameters
    ----------
    out
        Where ``attentest brain`` put its results.
    """
    facts = _facts(out)
    files = {condition: data_file(out, condition).read() for condition in CONDITIONS}
    rows = {condition: [row for _, row in sorted(file.rows.items())] for condition, file in files.items()}
    if not rows[PAPER]:
        raise InputError(f"{out} holds no tested slices: run attentest brain first, or name its directory.")
    record = read_record(out)
    return {
        "format": FORMAT,
        "command": facts["command"],
        "data": facts["data"],
        "noise": {
            condition.noise: file.headers[-1]["settings"]["noise"]
            for condition, file in files.items()
            if condition.noise in ESTIMATORS and file.headers
        },
        "classifier": {**{name: record[name] for name in RECORDED}, "performance": _performance(record["performance"])},
        "runs": read_runs(out, RUN_FIELDS),
        "conditions": [
            {"name": condition.name, **condition.describe(), **_condition(found)}
            for condition, found in rows.items()
            if found
        ],
        "overlap": _overlap(rows[PAPER]),
        "slices": _points(rows[PAPER]),
    }


RECORDED = ("settings", "accuracy", "parameters", "seconds", "device", "versions", "weights_sha256")
"""What the page says of the classifier."""


def _facts(out: Path) -> dict[str, Any]:
    path = out / FACTS
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}): run attentest brain first.") from None
    return found


def _performance(judged: Mapping[str, Any]) -> dict[str, Any]:
    """Return how well the classifier does, without the names of the patients."""
    return {**judged, "by_patient": list(judged["by_patient"].values())}


def _condition(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the numbers of a condition, by class and of both."""
    good = [row for row in rows if "error" not in row]
    both = {row["tumour"] for row in good} == {True, False}
    return {
        "classes": {
            name: _class([row for row in rows if row["tumour"] == tumour], tumour)
            for name, tumour in CLASSES.items()
            if any(row["tumour"] == tumour for row in rows)
        },
        # The probability that of two slices the one with the tumour has the smaller p-value.
        "separation": _separation(good, "log_p") if both else None,
        "naive_separation": _separation(good, "log_naive") if both else None,
        "seconds": float(sum(row["seconds"] for row in rows)),
        "evaluations": float(np.mean([row["evaluations"] for row in good])) if good else None,
    }


def _separation(rows: Sequence[Row], key: str) -> float:
    return auc([-row[key] for row in rows], np.array([row["tumour"] for row in rows]))


def _class(rows: Sequence[Row], tumour: bool) -> dict[str, Any]:
    """Return the numbers of a class. A failed slice is never dropped: without tumour it counts as rejected."""
    good = [row for row in rows if "error" not in row]
    patients = np.array([row["patient"] for row in rows])
    p = np.array([row["p"] for row in good])
    return {
        "images": len(rows),
        "patients": len(set(patients)),
        "failed": len(rows) - len(good),
        "errors": dict(Counter(row["error"] for row in rows if "error" in row).most_common(5)),
        "statuses": dict(Counter(row["status"] for row in good)),
        "rates": {
            test: {f"{alpha:g}": clustered_rate(_rejected(rows, key, alpha, not tumour), patients) for alpha in ALPHAS}
            for test, key in TESTS.items()
        },
        "quantiles": _rounded(np.quantile(p, QUANTILES)) if good else [],
        "ks_pvalue": float(kstest(p, "uniform").pvalue) if good else None,
        **{
            name: _spread([row[name] for row in good])
            for name in ("statistic", "log_naive", "difference", "standard_error", "region", "in_the_dark", "in_tumour")
        },
    }


def _rejected(rows: Sequence[Row], key: str, alpha: float, failed: bool) -> NDArray[np.bool_]:
    return np.array([failed if "error" in row else row[key] <= np.log(alpha) for row in rows])


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    """Return the median, the middle 90% and the extremes."""
    if not values:
        return None
    least, low, median, high, greatest = np.quantile(values, [0, 0.05, 0.5, 0.95, 1])
    return {
        "median": float(median),
        "low": float(low),
        "high": float(high),
        "least": float(least),
        "greatest": float(greatest),
    }


def _overlap(rows: Sequence[Row]) -> dict[str, Any] | None:
    """Return how p goes with the overlap of region and tumour."""
    good = [row for row in rows if "error" not in row and row["iou"] is not None]
    if len(good) < 2:
        return None
    iou = np.array([row["iou"] for row in good])
    log_p = np.array([row["log_p"] for row in good])
    patients = np.array([row["patient"] for row in good])
    kinds = [("none", iou == 0)] + [
        (f"{low:g} to {high:g}", (iou > low) & (iou <= high)) for low, high in pairwise(OVERLAPS)
    ]
    constant = iou.min() == iou.max() or log_p.min() == log_p.max()
    return {
        "images": len(good),
        "iou": _spread(iou.tolist()),
        "spearman": None if constant else float(spearmanr(iou, log_p).statistic),
        "by_iou": [
            {
                "iou": name,
                "images": int(chosen.sum()),
                "median_p": float(np.exp(np.median(log_p[chosen]))),
                "rate": clustered_rate(log_p[chosen] <= np.log(0.05), patients[chosen]),
            }
            for name, chosen in kinds
            if chosen.any()
        ],
    }


def _points(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Return every tested slice under the paper's condition, by column, for figures."""
    good = [row for row in rows if "error" not in row]
    return {
        "tumour": [int(row["tumour"]) for row in good],
        "p": _rounded([row["p"] for row in good]),
        "statistic": _rounded([row["statistic"] for row in good]),
        "log10_naive": _rounded([row["log_naive"] / np.log(10) for row in good]),
        "iou": [None if row["iou"] is None else float(f"{row['iou']:.4g}") for row in good],
        "in_the_dark": _rounded([row["in_the_dark"] for row in good]),
    }


def _rounded(values: Any) -> list[float]:
    """Return numbers for a picture: four digits are enough."""
    return [float(f"{value:.4g}") for value in values]
