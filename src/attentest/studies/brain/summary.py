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

from attentest.errors import InputError
from attentest.results.calibration import ALPHAS
from attentest.studies.brain.clustered_rate import clustered_rate
from attentest.studies.brain.condition import CONDITIONS, ESTIMATORS, PAPER, Condition
from attentest.studies.brain.laboratory import RECORDED, data_file, read_record
from attentest.studies.brain.performance import auc
from attentest.studies.brain.study import FACTS, RUN_FIELDS
from attentest.studies.records import RecordFile, Records, Row, read_runs

FORMAT = 1
"""Of the summary; a page is made from this one alone."""

CLASSES: Mapping[str, bool] = {"tumour": True, "free": False}
"""Names of the classes, and whether they have a tumour."""

TESTS: Mapping[str, str] = {"selective": "log_p", "naive": "log_naive", "bonferroni": "log_bonferroni"}
"""Tests, and where rows have the logarithms of their p-values."""

NUMBERS_OF_ROWS = (
    "p",
    "log_p",
    "log_naive",
    "log_bonferroni",
    "statistic",
    "difference",
    "standard_error",
    "region",
    "in_tumour",
    "in_the_dark",
    "evaluations",
)
"""What every slice that was tested has."""

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
    files = {condition: _checked(data_file(out, condition)) for condition in CONDITIONS}
    rows = {condition: [row for _, row in sorted(file.rows.items())] for condition, file in files.items()}
    if not rows[PAPER]:
        raise InputError(f"{out} holds no tested slices: run attentest brain first, or name its directory.")
    record = read_record(out)
    return {
        "format": FORMAT,
        "command": f"{facts['command']} --sensitivity-images {_sensitivity(rows, facts['data'])}",
        "data": facts["data"],
        "noise": {
            condition.noise: file.headers[-1]["settings"]["noise"]
            for condition, file in files.items()
            if condition.noise in ESTIMATORS and file.headers
        },
        "classifier": {
            **{name: record[name] for name in RECORDED if name != "data"},
            "performance": _performance(record["performance"]),
        },
        "runs": read_runs(out, RUN_FIELDS),
        "conditions": [
            {"name": condition.name, **condition.describe(), **_condition(found)}
            for condition, found in rows.items()
            if found
        ],
        "overlap": _overlap(rows[PAPER]),
        "slices": _points(rows[PAPER]),
    }


def _facts(out: Path) -> dict[str, Any]:
    path = out / FACTS
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}): run attentest brain first.") from None
    return found


def _checked(file: RecordFile) -> Records:
    """Return what a file holds, if its rows have all that a summary needs."""
    records = file.read()
    try:
        for header in records.headers:
            dict(header["settings"]["noise"])
        for number, row in records.rows.items():
            if type(row["tumour"]) is not bool or not isinstance(row["patient"], str):
                raise ValueError(f"slice {number} has no class or no patient")
            if "error" not in row:
                sum(float(row[name]) for name in NUMBERS_OF_ROWS)
                if not (row["iou"] is None or 0 <= row["iou"] <= 1):
                    raise ValueError(f"slice {number} has the IoU {row['iou']}")
                str(row["status"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{file.path} is damaged ({error!r}): remove it, the next run makes it anew.") from None
    return records


def _sensitivity(rows: Mapping[Condition, Sequence[Row]], data: Mapping[str, Any]) -> str:
    """Return how many slices of each class other conditions than the paper's have, as an option says it."""
    test = data["split"]["test"]
    counts = [
        sum(row["tumour"] == tumour for row in found)
        for condition, found in rows.items()
        for tumour in (True, False)
        if condition != PAPER
    ]
    most = max(counts, default=0)
    return "all" if most and most >= max(test["with_tumour"], test["without_tumour"]) else f"{most}"


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
    """Return the numbers of a class.

    A failed slice is never dropped. It counts against what is claimed: as rejected without tumour, as missed with one,
    and with the naive test, of which the paper says that it always rejects, as not rejected.
    """
    good = [row for row in rows if "error" not in row]
    patients = np.array([row["patient"] for row in rows])
    p = np.array([row["p"] for row in good])
    return {
        "images": len(rows),
        "patients": len(set(patients)),
        "failed": len(rows) - len(good),
        "errors": dict(Counter(row["error"] for row in rows if "error" in row).most_common(5)),
        "statuses": dict(Counter(row["status"] for row in good)),
        "rates": {test: _rates(rows, test, patients, not tumour and test != "naive") for test in TESTS},
        "quantiles": _rounded(np.quantile(p, QUANTILES)) if good else [],
        "ks_pvalue": float(kstest(p, "uniform").pvalue) if good else None,
        **{
            name: _spread([row[name] for row in good])
            for name in ("statistic", "log_naive", "difference", "standard_error", "region", "in_the_dark", "in_tumour")
        },
    }


def _rates(rows: Sequence[Row], test: str, patients: NDArray[np.str_], failed: bool) -> dict[str, Any]:
    """Return how often a test rejects at each level, where a failed slice counts as given."""
    return {f"{alpha:g}": clustered_rate(_rejected(rows, TESTS[test], alpha, failed), patients) for alpha in ALPHAS}


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
