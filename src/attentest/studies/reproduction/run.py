"""Runs of experiments: what determines one, its series one after the other, and the numbers of the page from data."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from attentest.attention.device import usable_device
from attentest.errors import InputError
from attentest.progress import LabelledProgress
from attentest.runs.engine import Engine, LocalEngine, as_engine
from attentest.runs.records import check_numbers, check_texts, described_machine, read_runs
from attentest.studies.measures import PlannedSeries, data_file, ending, recorded_run, run_series
from attentest.studies.paper_model import ALL_MODELS, ModelFolders, architecture_of
from attentest.studies.reproduction.experiment import (
    EXPERIMENTS,
    PRESETS,
    TESTS,
    Experiment,
    Preset,
    Series,
    chosen_experiments,
    plan_of,
)
from attentest.studies.reproduction.measures import SeriesRows, measured
from attentest.studies.reproduction.trial import Trials, check_row

RUN_FIELDS = (
    *("preset", "counts", "experiments", "published", "tests", "seed"),  # what was asked for
    *("began", "seconds", "trials", "failed", "trained", "finished"),  # what happened
    *("device", "device_type", "threads"),  # where
)
"""Fields that every recorded run has."""

# Rough cost of an evaluation by model or architecture, for progress bars; that of the other models is one.
RELATIVE_COST = {"base8": 0.3, "small": 0.3, "large": 4.0, "huge": 20.0}

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
    preset.with_models([*preset.models, *preset.timed_models, *preset.series_models, preset.series_model])


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
    return evaluations * RELATIVE_COST.get(series.model, RELATIVE_COST.get(architecture_of(series.model), 1.0))


FORMAT = 1  # version of the summary's format

DERIVATIVE_COST = 3.4
"""Cost of an evaluation with its derivative, for the adaptive search, in plain ones: benchmarks/evaluation.py."""


def summarise(out: Path) -> dict[str, Any]:
    """Return the numbers of the experiments whose data are in a directory, JSON-ready."""
    read = cache(partial(SeriesRows.read, out))
    by_experiment: dict[str, list[SeriesRows]] = {}
    everything: dict[str, SeriesRows] = {}
    small = replace(PRESETS["full"], series_model=PRESETS["quick"].series_model)  # the power on series of a quick run
    for name, experiment in EXPERIMENTS.items():
        plan = plan_of([experiment], PRESETS["full"], published=True) | plan_of([experiment], small, published=True)
        found = [rows for series in plan if (rows := read(series)) is not None]
        everything |= {rows.series.name: rows for rows in found}
        if name == "type-i-error":  # the additional trials have more of its images
            found = [rows for whole in found if (rows := whole.below(PRESETS["paper"].null)) is not None]
        by_experiment[name] = found
    if not everything:
        raise InputError(
            f"{out} holds no results of experiments: run attentest reproduce first, or name its directory."
        )
    timed = {name: rows.good for name, rows in everything.items() if rows.series.work == "evaluation" and rows.good}
    on_cpu = {
        everything[name].series.model: float(np.median([row["seconds_an_evaluation"] for row in rows]))
        for name, rows in timed.items()
    }
    runs = [{name: entry[name] for name in RUN_FIELDS} for entry in read_runs(out, RUN_FIELDS, check_run)]
    asked: dict[Series, int] = {}
    for entry in runs:
        experiments, preset = chosen_experiments(entry["experiments"]), Preset(**entry["counts"])
        for series, count in plan_of(experiments, preset, bool(entry["published"]), entry["tests"]).items():
            asked[series] = max(asked.get(series, 0), count)
    trials = {name: len(rows.rows) for name, rows in everything.items()}
    return {
        "format": FORMAT,
        "made": _origin(everything.values()),
        "runs": runs,
        "models": _models(everything.values(), ModelFolders(trained=out / "models")),
        "experiments": {
            name: {
                "title": EXPERIMENTS[name].title,
                "where": EXPERIMENTS[name].where,
                "made": _origin(rows),
                "time": _time(rows, on_cpu),
                **measured(name, rows),
            }
            for name, rows in by_experiment.items()
            if rows
        },
        "time": {
            "cpu_seconds_an_evaluation": on_cpu,
            "cpu_threads": sorted({row["threads"] for rows in timed.values() for row in rows}),
            "each_series_once": _time(everything.values(), on_cpu),
        },
        "failures": [
            {"series": name, **ended}
            for name, rows in everything.items()
            if (ended := ending(rows.rows))["failed"] or ended["statuses"]
        ],
        "missing": [  # series with fewer trials than a run was asked for, as after an interruption
            {"series": series.name, "trials": trials.get(series.name, 0), "asked": count}
            for series, count in asked.items()
            if trials.get(series.name, 0) < count
        ],
    }


def _origin(recorded: Iterable[SeriesRows]) -> dict[str, Any]:
    """Return how rows were made: seeds, devices, versions, and the hash of each model."""
    headers = [(rows.series, header) for rows in recorded for header in rows.headers]
    versions: dict[str, dict[str, None]] = {}
    for _, header in headers:
        for package, version in header["versions"].items():
            versions.setdefault(package, {})[version] = None
    fields = {"seeds": "seed", "devices": "device", "device_types": "device_type"}
    return {
        **{name: list(dict.fromkeys(header[field] for _, header in headers)) for name, field in fields.items()},
        "versions": {package: list(known) for package, known in versions.items()},
        "models": {"published " * used.published + used.model: header["model_sha256"] for used, header in headers},
    }


def _time(recorded: Collection[SeriesRows], on_cpu: Mapping[str, float]) -> dict[str, Any]:
    """Return the seconds that trials took, and an estimate for the CPU from the seconds of one evaluation there."""
    trials = [(rows.series, row) for rows in recorded for row in rows.rows]
    estimated = [
        row["evaluations"] * on_cpu[series.model] * (DERIVATIVE_COST if series.search == "adaptive" else 1)
        for series, row in trials
        if "evaluations" in row and series.model in on_cpu
    ]
    return {
        "trials": len(trials),
        "seconds": float(sum(row["seconds"] for _, row in trials)),
        "evaluations": int(sum(row.get("evaluations", 0) for _, row in trials)),
        "cpu_seconds": float(sum(estimated)) if estimated else None,
        "cpu_unknown": sorted({rows.series.model for rows in recorded} - set(on_cpu)),
    }


def _models(recorded: Iterable[SeriesRows], folders: ModelFolders) -> list[dict[str, Any]]:
    """Return the models that were used, with their training records where these are known."""
    used: dict[tuple[bool, int], dict[str, None]] = {}
    for rows in recorded:
        hashes = used.setdefault((rows.series.published, ALL_MODELS.index(rows.series.model)), {})
        hashes |= dict.fromkeys(header["model_sha256"] for header in rows.headers)
    entries = []
    for (published, index), hashes in sorted(used.items()):
        name, training = ALL_MODELS[index], {}
        if not published and not folders.missing([name]):
            model = folders.find(name)
            # A record of other weights says nothing about those that were used.
            training = model.training if list(hashes) == [model.sha256] else {}
        entry = {
            "model": name,
            "published": published,
            "sha256": list(hashes),
            "parameters": training.get("parameters"),
        }
        accuracy = training.get("accuracy", {}).get("held_out")
        entries.append({**entry, "held_out_accuracy": accuracy, "command": training.get("command")})
    return entries
