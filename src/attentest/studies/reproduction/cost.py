"""What the experiments cost: seconds an image of each search, and what a whole experiment takes here and on the CPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from attentest.studies.reproduction.rejection import Read
from attentest.studies.reproduction.series import Series
from attentest.studies.reproduction.tally import Tally

DERIVATIVE_COST = 3.4
"""An evaluation with its derivative, as the adaptive search makes it, in plain ones (docs/measurements.md)."""


def search_times(series: Sequence[Series], read: Read) -> list[dict[str, Any]]:
    """Return seconds and evaluations an image of each search, and how they compare with the spectral search."""
    searches = [one for one in series if one.work == "search"]
    found = [(one, tally) for one in searches if (tally := read(one, None)) is not None]
    entries = [
        {
            **tally.setting(),
            "search": one.search,
            "devices": list(dict.fromkeys(header.get("device", "unknown") for header in tally.headers)),
        }
        for one, tally in found
    ]
    spectral = {(entry["model"], entry["noise"]): entry for entry in entries if entry["search"] == "spectral"}
    for entry in entries:
        reference = spectral.get((entry["model"], entry["noise"]), {})
        for name in ("seconds", "evaluations"):
            entry[f"{name}_ratio"] = _ratio(entry[name], reference.get(name))
    return entries


def _ratio(value: float | None, reference: float | None) -> float | None:
    return value / reference if value is not None and reference else None


def evaluations_on_cpu(models: Iterable[str], read: Read) -> tuple[dict[str, float], list[int]]:
    """Return the median seconds of one evaluation of each model on the CPU, where it was timed, and the threads."""
    seconds: dict[str, float] = {}
    threads: set[int] = set()
    for model in models:
        tally = read(Series(work="evaluation", model=model, device="cpu"), None)
        if tally is not None and tally.good:
            seconds[model] = float(np.median([row["seconds_an_evaluation"] for row in tally.good]))
            threads |= {row["threads"] for row in tally.good}
    return seconds, sorted(threads)


def experiment_time(tallies: Sequence[Tally], on_cpu: Mapping[str, float]) -> dict[str, Any]:
    """Return the seconds that trials took, and what they would take on the CPU as far as its speed is known.

    Parameters
    ----------
    tallies
        The trials.
    on_cpu
        Seconds of one evaluation of each model.
    """
    rows = [(tally, row) for tally in tallies for row in tally.rows]
    estimated = [
        row["evaluations"] * on_cpu[tally.series.model] * (DERIVATIVE_COST if tally.series.search == "adaptive" else 1)
        for tally, row in rows
        if "evaluations" in row and tally.series.model in on_cpu
    ]
    return {
        "trials": len(rows),
        "seconds": float(sum(row["seconds"] for _, row in rows)),
        "evaluations": int(sum(row.get("evaluations", 0) for _, row in rows)),
        "cpu_seconds": float(sum(estimated)) if estimated else None,
        "cpu_unknown": sorted({tally.series.model for tally in tallies} - set(on_cpu)),
    }
