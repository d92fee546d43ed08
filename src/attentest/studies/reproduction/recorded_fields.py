"""What rows, headers and runs on disk must have, so that every number of the page can be computed from them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np

from attentest.checks import whole_number
from attentest.results.records import Row, RowCheck, check_numbers, check_texts
from attentest.search import CONVERGED
from attentest.studies.intervals import ENDS
from attentest.studies.reproduction.experiment import COUNTS, MOST_IMAGES, PRESETS, TESTS, Preset, chosen_experiments

TEST = ("p", "log_naive", "log_bonferroni", "evaluations")

NUMBERS: Mapping[str, tuple[str, ...]] = {
    "selective": TEST,
    "search": TEST,
    "interval": (*TEST, "standard_error", "true_difference"),
    "permutation": ("p", "evaluations"),
    "curves": ("statistic", "evaluations"),
    "precision": ("p", "p_float64", "p_float32", "region_changed", "evaluations"),
    "evaluation": ("seconds_an_evaluation", "threads"),
}
"""Numbers that every row of a kind of work has, unless its trial failed."""


def row_check(work: str) -> RowCheck:
    """Return the check of the rows of a kind of work, which raises a ValueError."""
    return partial(_check_row, work)


def _check_row(work: str, row: Row) -> None:
    check_numbers(row, ["image"])
    if "error" in row:
        return
    check_numbers(row, NUMBERS[work])
    check_numbers(row, [name for name in ("iou", "batch") if name in row])
    if row.get("status", CONVERGED) != CONVERGED:
        check_texts(row, ["status"])
        check_numbers(row, ["p_low", "p_high"])
    if work == "interval":
        check_numbers(row, [name for name in ENDS if row[name] is not None])
    if work == "curves":
        for part in ("far", "close"):
            _check_curves(row[part], part)


def _check_curves(part: Any, name: str) -> None:
    """Refuse a part of a row whose curves do not have a value at each of its points."""
    if not isinstance(part, dict):
        raise ValueError(f"{name} must be an object, got {type(part).__name__}")
    check_numbers(part, ["closest_to_zero"])
    points = np.array(part["z"], dtype=np.float64)
    curves = [np.array(part[where], dtype=np.float64) for where in ("inside", "outside")]
    if points.ndim != 1 or len(points) < 2 or not any(curve.size for curve in curves):
        raise ValueError(f"{name} must have two or more points z, and curves")
    if any(curve.size and curve.shape != (len(curve), len(points)) for curve in curves):
        raise ValueError(f"the curves of {name} must have a value at each of its {len(points)} points")


def check_header(header: Mapping[str, Any]) -> None:
    """Refuse a header of rows whose settings do not say what the model takes."""
    shape = header["settings"]["model"]["input"]
    if not isinstance(shape, list) or len(shape) != 3:
        raise ValueError("the input in the settings of the model must be three numbers")


def check_run(entry: Mapping[str, Any]) -> None:
    """Refuse a run that asks for what no run can ask for, or lacks its time and place."""
    if entry["preset"] not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {entry['preset']!r}")
    if entry.get("tests", "all") not in TESTS:
        raise ValueError(f"tests must be one of {', '.join(TESTS)}, got {entry['tests']!r}")
    check_texts(entry, ["began", "device", "device_type"])
    datetime.fromisoformat(entry["began"])
    check_numbers(entry, ["seconds", "trials", "failed", "seed"])
    trained = entry["trained"] or {}
    if not isinstance(trained, dict):
        raise ValueError(f"trained must be an object, got {type(trained).__name__}")
    check_numbers(trained, trained)
    chosen_experiments(list(entry["experiments"]))
    preset = Preset(**entry["counts"])
    for name in (*COUNTS, "permutations", "curves", "precision"):
        whole_number(getattr(preset, name), name, 0, MOST_IMAGES)
    for search, count in preset.timed.items():
        whole_number(count, f"the number of images of {search}", 0, MOST_IMAGES)
    preset.with_models([*preset.models, *preset.timed_models])
