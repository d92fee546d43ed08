"""All numbers of the results page, computed from the data files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from attentest.errors import InputError
from attentest.runs.records import read_runs
from attentest.studies.measures import ending
from attentest.studies.reproduction.experiment import EXPERIMENTS, PRESETS, Preset, Series, chosen_experiments, plan_of
from attentest.studies.reproduction.measures import SeriesRows, measured
from attentest.studies.reproduction.run import RUN_FIELDS, check_run
from attentest.training.paper_model import MODELS, ModelFolders

FORMAT = 1
"""Version of the summary's format."""

DERIVATIVE_COST = 3.4
"""Cost of an evaluation with its derivative, as the adaptive search needs it, in plain ones (docs/measurements.md)."""


def summarise(out: Path) -> dict[str, Any]:
    """Return the numbers of the experiments whose data are in a directory, JSON-ready."""
    read = cache(partial(SeriesRows.read, out))
    by_experiment: dict[str, list[SeriesRows]] = {}
    everything: dict[str, SeriesRows] = {}
    for name, experiment in EXPERIMENTS.items():
        plan = plan_of([experiment], PRESETS["full"], published=True)
        # The additional trials have more of the images of the type I error.
        most = PRESETS["paper"].null if name == "type-i-error" else None
        by_experiment[name] = [rows for series in plan if (rows := read(series, most)) is not None]
        everything |= {rows.series.name: rows for series in plan if (rows := read(series, None)) is not None}
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
    for run in runs:
        experiments, preset = chosen_experiments(run["experiments"]), Preset(**run["counts"])
        for series, count in plan_of(experiments, preset, bool(run["published"]), run["tests"]).items():
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
    return {
        "seeds": list(dict.fromkeys(header["seed"] for _, header in headers)),
        "devices": list(dict.fromkeys(header["device"] for _, header in headers)),
        "device_types": list(dict.fromkeys(header["device_type"] for _, header in headers)),
        "versions": {package: list(known) for package, known in versions.items()},
        "models": {
            "published " * series.published + series.model: header["model_sha256"] for series, header in headers
        },
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
        hashes = used.setdefault((rows.series.published, MODELS.index(rows.series.model)), {})
        hashes |= dict.fromkeys(header["model_sha256"] for header in rows.headers)
    entries = []
    for (published, index), hashes in sorted(used.items()):
        training: dict[str, Any] = {}
        if not published and not folders.missing([MODELS[index]]):
            model = folders.find(MODELS[index])
            # A record of other weights says nothing about those that were used.
            training = model.training if list(hashes) == [model.sha256] else {}
        entries.append(
            {
                "model": MODELS[index],
                "published": published,
                "sha256": list(hashes),
                "parameters": training.get("parameters"),
                "held_out_accuracy": training.get("accuracy", {}).get("held_out"),
                "command": training.get("command"),
            }
        )
    return entries
