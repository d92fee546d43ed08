"""Running experiments: series by series, with each row on disk as soon as it is known, and what rows must hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from attentest.attention.device import usable_device
from attentest.progress import LabelledProgress
from attentest.runs.engine import Engine, LocalEngine, as_engine
from attentest.runs.records import RecordFile, Row, RowCheck, check_numbers, check_texts
from attentest.studies.measures import ENDS, check_trial, recorded, recorded_run, succeeded
from attentest.studies.reproduction.experiment import (
    PRESETS,
    TESTS,
    Experiment,
    Preset,
    Series,
    chosen_experiments,
    plan_of,
)
from attentest.studies.reproduction.trial import Trials
from attentest.training.classifier import described_machine
from attentest.training.paper_model import ModelFolders

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
    check_trial(row, NUMBERS[work], ENDS if work == "interval" else ())
    check_numbers(row, [name for name in ("iou", "batch") if name in row])
    if work == "curves" and "error" not in row:
        for part in ("far", "close"):
            _check_curves(row[part], part)


def _check_curves(part: Any, name: str) -> None:
    """Check that the curves in a part of a row have a value at each of its points."""
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
    """Check that the settings in a header of rows say what the model takes."""
    shape = header["settings"]["model"]["input"]
    if not isinstance(shape, list) or len(shape) != 3:
        raise ValueError("the input in the settings of the model must be three numbers")


def check_run(entry: Mapping[str, Any]) -> None:
    """Check that a run asks for what a run can ask for, and has its time and place."""
    if entry["preset"] not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {entry['preset']!r}")
    if entry["tests"] not in TESTS:
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
    preset.with_models([*preset.models, *preset.timed_models])


# Rough cost of an evaluation, for progress bars; that of the other models is one.
RELATIVE_COST = {"base8": 0.3, "small16": 0.3, "large16": 4.0, "huge16": 20.0}

RUN_FIELDS = (
    *("preset", "counts", "experiments", "published", "tests", "seed"),  # what was asked for
    *("began", "seconds", "trials", "failed", "trained", "finished"),  # what happened
    *("device", "device_type", "threads"),  # where
)
"""Fields that every recorded run has."""

EVALUATIONS = {"spectral": 70, "adaptive": 1500, "combination": 4500, "fixed": 27_000}
"""Rough number of evaluations per image, for progress bars; an adaptive step needs a derivative too."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What determines a run."""

    preset_name: str
    preset: Preset
    experiments: tuple[Experiment, ...]
    folders: ModelFolders
    seed: int = 0  # of the images
    device: str = "cpu"
    retry: bool = False  # whether trials that failed before are repeated
    tests: str = "all"  # or only "paper", or only "ours"

    def plan(self) -> dict[Series, int]:
        """Return the series, with the number of images of each."""
        return plan_of(self.experiments, self.preset, self.folders.published is not None, self.tests)

    def untrained(self) -> list[str]:
        """Return the models that have to be trained first."""
        return self.folders.missing(dict.fromkeys(series.model for series in self.plan() if not series.published))


class Outcome(NamedTuple):
    """Trials that a run computed, how many of them failed, and its seconds."""

    done: int
    failed: int
    seconds: float


def data_file(out: Path, series: Series) -> RecordFile:
    """Return the file of a series."""
    return RecordFile(out / "data" / f"{series.name}.jsonl")


def run(
    settings: RunSettings,
    out: Path,
    progress: LabelledProgress = lambda done, total, label: None,
    engine: str | Engine = "local",
) -> Outcome:
    """Compute the trials that the directory ``out`` does not have yet; it must not hold data of other settings.

    Models are trained, and what is timed is timed, in this process, whatever the engine.
    """
    device = usable_device(settings.device)
    with as_engine(engine) as chosen:  # a cluster that is not there is found out before models are trained
        return _run(settings, out, progress, device, chosen)


def _run(settings: RunSettings, out: Path, progress: LabelledProgress, device: torch.device, engine: Engine) -> Outcome:
    train = partial(settings.folders.train, device=settings.device, progress=progress)
    asked: dict[str, Any] = {
        "preset": settings.preset_name,
        "counts": asdict(settings.preset),
        "experiments": [experiment.name for experiment in settings.experiments],
        "published": settings.folders.published is not None,
        "tests": settings.tests,
        "seed": settings.seed,
        **described_machine(device),
    }
    with recorded_run(out, {**asked, "trials": 0, "trained": {}}) as record:
        for model in settings.untrained():
            record["trained"][model] = round(train(model), 3)
        todo = _todo(settings, out)
        total = sum(len(numbers) * _cost(series) for series, numbers in todo.items())
        done_cost = 0.0
        for series, numbers in todo.items():
            where = LocalEngine() if series.timed else engine
            for rows in _run_series(series, numbers, settings, device, out, where):
                record["trials"] += len(rows)
                record["failed"] += len(rows) - len(succeeded(rows))
                done_cost += len(rows) * _cost(series)
                progress(done_cost, total, series.name)
    return Outcome(record["trials"], record["failed"], record["seconds"])


def _todo(settings: RunSettings, out: Path) -> dict[Series, list[int]]:
    """Return the images of each series that have no row yet; raise an error for data of another seed or model."""
    todo = {}
    for series, count in settings.plan().items():
        file = data_file(out, series)
        records = file.read(row_check(series.work))
        model = settings.folders.find(series.model, series.published)
        file.check_same(records, {"seed": settings.seed, "model_sha256": model.sha256})
        todo[series] = records.missing(range(count), settings.retry)
    return todo


def _run_series(
    series: Series, numbers: list[int], settings: RunSettings, device: torch.device, out: Path, engine: Engine
) -> Iterator[list[Row]]:
    """Yield the rows of images as they reach the disk."""
    if not numbers:
        return
    model = settings.folders.find(series.model, series.published)
    trials = Trials(series, model.directory, device, settings.seed)
    header = {
        "series": series.describe(),
        "seed": settings.seed,
        "model_sha256": model.sha256,
        "settings": trials.settings,
    }
    yield from recorded(trials, numbers, data_file(out, series), header, engine, settings.retry)


def _cost(series: Series) -> float:
    """Return the rough cost of a trial in evaluations of the 16x16 base model."""
    evaluations = {
        "permutation": float(series.permutations or 0),
        "precision": 2.0 * EVALUATIONS["combination"],
        "curves": 1000.0,
        "evaluation": 500.0,
    }.get(series.work, float(EVALUATIONS[series.search]))
    return evaluations * RELATIVE_COST.get(series.model, 1.0)
