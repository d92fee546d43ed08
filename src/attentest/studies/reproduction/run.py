"""Running experiments: what determines a run, and its series one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from attentest.attention.device import usable_device
from attentest.progress import LabelledProgress
from attentest.runs.engine import Engine, LocalEngine, as_engine
from attentest.runs.records import check_numbers, check_texts, described_machine
from attentest.studies.measures import PlannedSeries, data_file, recorded_run, run_series
from attentest.studies.reproduction.experiment import (
    PRESETS,
    TESTS,
    Experiment,
    Preset,
    Series,
    chosen_experiments,
    plan_of,
)
from attentest.studies.reproduction.trial import Trials, check_row
from attentest.training.paper_model import ModelFolders

RUN_FIELDS = (
    *("preset", "counts", "experiments", "published", "tests", "seed"),  # what was asked for
    *("began", "seconds", "trials", "failed", "trained", "finished"),  # what happened
    *("device", "device_type", "threads"),  # where
)
"""Fields that every recorded run has."""

# Rough cost of an evaluation, for progress bars; that of the other models is one.
RELATIVE_COST = {"base8": 0.3, "small16": 0.3, "large16": 4.0, "huge16": 20.0}

EVALUATIONS = {"spectral": 70, "adaptive": 1500, "combination": 4500, "fixed": 27_000}
"""Rough number of evaluations per image, for progress bars; an adaptive step needs a derivative too."""


def check_run(entry: Mapping[str, Any]) -> None:
    """Check that a recorded run asks for what a run can ask for, and has its time and place."""
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


def run(
    settings: RunSettings,
    out: Path,
    progress: LabelledProgress = lambda done, total, label: None,
    engine: str | Engine = "local",
) -> dict[str, Any]:
    """Compute the trials that the directory ``out`` does not have yet, and return the run's record.

    Data of other settings in the directory are an error. Models are trained, and what is timed is timed, in this
    process, whatever the engine.
    """
    device = usable_device(settings.device)
    asked: dict[str, Any] = {
        "preset": settings.preset_name,
        "counts": asdict(settings.preset),
        "experiments": [experiment.name for experiment in settings.experiments],
        "published": settings.folders.published is not None,
        "tests": settings.tests,
        "seed": settings.seed,
        **described_machine(device),
    }

    def planned(series: Series, count: int) -> PlannedSeries:
        model = settings.folders.find(series.model, series.published)

        def work() -> tuple[Trials, dict[str, Any]]:
            trials = Trials(series, model.directory, device, settings.seed)
            return trials, {"series": series.describe(), "settings": trials.settings}

        return PlannedSeries(
            file=data_file(out, series.name),
            numbers=range(count),
            identity={"seed": settings.seed, "model_sha256": model.sha256},
            work=work,
            engine=LocalEngine() if series.timed else workers,
            label=series.name,
            cost=_cost(series),
            check=partial(check_row, series.work),
        )

    # A cluster that is not there is found out before models are trained.
    with as_engine(engine) as workers, recorded_run(out, {**asked, "trials": 0, "trained": {}}) as record:
        for model in settings.untrained():
            seconds = settings.folders.train(model, device=settings.device, progress=progress)
            record["trained"][model] = round(seconds, 3)
        plan = [planned(series, count) for series, count in settings.plan().items()]
        run_series(plan, record, "trials", settings.retry, progress)
    return record


def _cost(series: Series) -> float:
    """Return the rough cost of a trial in evaluations of the 16x16 base model."""
    evaluations = {
        "permutation": float(series.permutations or 0),
        "precision": 2.0 * EVALUATIONS["combination"],
        "curves": 1000.0,
        "evaluation": 500.0,
    }.get(series.work, float(EVALUATIONS[series.search]))
    return evaluations * RELATIVE_COST.get(series.model, 1.0)
