"""Everything the results page says, computed from the data files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attentest.errors import InputError
from attentest.results.calibration import ALPHAS
from attentest.studies.records import read_runs
from attentest.studies.reproduction.cost import evaluations_on_cpu, experiment_time, search_times
from attentest.studies.reproduction.experiment import EXPERIMENTS, Plan, chosen_experiments, plan_of
from attentest.studies.reproduction.float_precision import precision
from attentest.studies.reproduction.paper_model import MODELS, Shelf
from attentest.studies.reproduction.preset import PRESETS, Preset
from attentest.studies.reproduction.rejection import (
    NON_GAUSSIAN_ALPHAS,
    PAPER_COUNT,
    Read,
    null_levels,
    power,
    type_i_error,
)
from attentest.studies.reproduction.run import RUN_FIELDS
from attentest.studies.reproduction.series import Series
from attentest.studies.reproduction.tally import Tally, origin
from attentest.studies.reproduction.target_function import demonstration

FORMAT = 1
"""Of the summary; a page is made from this one alone."""

ERRORS_SHOWN = 5
"""Kinds of error that are named, a series."""

ERROR_LENGTH = 300
"""Characters of an error that are shown."""


def summarise(out: Path) -> dict[str, Any]:
    """Return what the data of a directory say, JSON-ready; whatever is there is used.

    Parameters
    ----------
    out
        Where ``attentest reproduce`` put its data.
    """
    known: dict[tuple[str, int | None], Tally | None] = {}

    def read(series: Series, most: int | None) -> Tally | None:
        key = (series.name, most)
        if key not in known:
            known[key] = Tally.read(out, series, most)
        return known[key]

    chosen = {
        name: [series for series, _ in experiment.series(PRESETS["full"], True)]
        for name, experiment in EXPERIMENTS.items()
    }
    tallies = {name: _read_all(series, read, name) for name, series in chosen.items()}
    everything = {tally.series.name: tally for name in tallies for tally in _read_all(chosen[name], read, None)}
    if not everything:
        raise InputError(
            f"{out} holds no results of experiments: run attentest reproduce first, or name its directory."
        )
    on_cpu, threads = evaluations_on_cpu(MODELS, read)
    runs = [_run(entry) for entry in read_runs(out, RUN_FIELDS)]
    experiments = {
        name: {
            "title": EXPERIMENTS[name].title,
            "where": EXPERIMENTS[name].where,
            "made": origin(found),
            "time": experiment_time(found, on_cpu),
            "settings": _settings(name, chosen[name], read),
        }
        for name, found in tallies.items()
        if found
    }
    return {
        "format": FORMAT,
        "made": origin(everything.values()),
        "runs": runs,
        "models": _models(everything.values(), Shelf(trained=out / "models")),
        "experiments": experiments,
        "time": {
            "cpu_seconds_an_evaluation": on_cpu,
            "cpu_threads": threads,
            "each_series_once": experiment_time(list(everything.values()), on_cpu),
        },
        "failures": _failures(everything.values()),
        "missing": _missing(runs, {name: len(tally.rows) for name, tally in everything.items()}),
    }


def _read_all(series: Iterable[Series], read: Read, experiment: str | None) -> list[Tally]:
    most = PAPER_COUNT if experiment == "type-i-error" else None
    return [tally for one in series if (tally := read(one, most)) is not None]


def _settings(name: str, series: Sequence[Series], read: Read) -> list[dict[str, Any]]:
    """Return the numbers of an experiment, one entry a setting."""
    if name == "type-i-error":
        return type_i_error(series, read)
    if name in ("additional-trials", "estimated-variance"):
        return null_levels(series, read, ALPHAS)
    if name == "non-gaussian":
        return null_levels(series, read, NON_GAUSSIAN_ALPHAS)
    if name == "power":
        return power(series, read)
    if name == "computation-time":
        return search_times(series, read)
    tallies = _read_all(series, read, name)
    if name == "demonstration":
        return [image for tally in tallies for image in demonstration(tally)]
    return [entry for tally in tallies if (entry := precision(tally)) is not None]


def _run(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: entry[name] for name in RUN_FIELDS}


def _missing(runs: Iterable[Mapping[str, Any]], found: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the series of which runs were asked for more trials than there are, as after an interruption."""
    wanted: Plan = {}
    for run in runs:
        chosen = chosen_experiments(run["experiments"])
        for series, count in plan_of(chosen, Preset.from_counts(run["counts"]), bool(run["published"])).items():
            wanted[series] = max(wanted.get(series, 0), count)
    return [
        {"series": series.name, "trials": found.get(series.name, 0), "asked": count}
        for series, count in wanted.items()
        if found.get(series.name, 0) < count
    ]


def _models(tallies: Iterable[Tally], shelf: Shelf) -> list[dict[str, Any]]:
    """Return the models that were used, with what is known of their training."""
    used: dict[tuple[bool, str], list[str]] = {}
    for tally in tallies:
        hashes = used.setdefault((tally.series.published, tally.series.model), [])
        hashes += [found for header in tally.headers if (found := header["model_sha256"]) not in hashes]
    order = {model: i for i, model in enumerate(MODELS)}
    entries = []
    for published, model in sorted(used, key=lambda key: (key[0], order[key[1]])):
        hashes = used[published, model]
        training: dict[str, Any] = {}
        if not published and not shelf.missing([model]):
            found = shelf.find(model)
            # A record of other weights says nothing about those that were used.
            training = found.training if hashes == [found.sha256] else {}
        accuracy = training.get("accuracy", {})
        entries.append(
            {
                "model": model,
                "published": published,
                "sha256": hashes,
                "parameters": training.get("parameters"),
                "held_out_accuracy": accuracy.get("held_out"),
                "command": training.get("command"),
            }
        )
    return entries


def _failures(tallies: Iterable[Tally]) -> list[dict[str, Any]]:
    """Return the series in which trials failed or did not converge, with the errors."""
    entries = []
    for tally in tallies:
        ending = tally.ending()
        if ending["failed"] or ending["statuses"]:
            errors = Counter(str(row["error"])[:ERROR_LENGTH] for row in tally.rows if "error" in row)
            entries.append({"series": tally.series.name, **ending, "errors": dict(errors.most_common(ERRORS_SHOWN))})
    return entries
