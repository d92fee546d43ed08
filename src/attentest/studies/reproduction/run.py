"""Running experiments: series by series, chunk by chunk, each on disk before the next begins."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import torch

from attentest.attention.device import usable_device
from attentest.errors import InputError
from attentest.studies.records import RecordFile, Records, record_run, recorded
from attentest.studies.reproduction.experiment import Experiment, Plan, plan_of
from attentest.studies.reproduction.paper_model import RELATIVE_COST, Shelf
from attentest.studies.reproduction.preset import Preset
from attentest.studies.reproduction.series import Series
from attentest.studies.reproduction.trial import Bench
from attentest.training.provenance import described_machine

TIMED_TOGETHER = {"cpu": 2, "cuda": 100}
"""Images on which a search is timed together: on a GPU as many as a trial of the paper has."""

RUN_FIELDS = (
    "preset",
    "counts",
    "experiments",
    "published",
    "seed",
    "began",
    "seconds",
    "trials",
    "failed",
    "trained",
    "finished",
    "device",
    "device_type",
    "threads",
)
"""What is known of every run."""

EVALUATIONS = {"spectral": 70, "adaptive": 1500, "combination": 4500, "fixed": 27_000}
"""Of an image, roughly, for progress bars; an adaptive step takes a derivative too."""


class Progress(Protocol):
    """Called as work goes on, with what is being done and how much is done of how much."""

    def __call__(self, label: str, done: float, total: float) -> None:
        """Say that so much of so much is done, and what is being done."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What determines a run.

    Parameters
    ----------
    preset_name, preset
        How many images.
    experiments
        Which experiments.
    shelf
        Where models are.
    seed
        Of the images.
    device
        Where to compute.
    retry
        Whether trials that failed before are tried again.
    """

    preset_name: str
    preset: Preset
    experiments: tuple[Experiment, ...]
    shelf: Shelf
    seed: int = 0
    device: str = "cpu"
    retry: bool = False

    def counts(self) -> dict[str, Any]:
        """Return the preset as JSON-ready values."""
        return {**asdict(self.preset), "timed": dict(self.preset.timed)}

    def plan(self) -> Plan:
        """Return what there is to do."""
        return plan_of(self.experiments, self.preset, self.shelf.published is not None)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run did: trials done, and those among all that failed."""

    done: int
    failed: int
    seconds: float


def data_file(out: Path, series: Series) -> RecordFile:
    """Return the file of a series."""
    return RecordFile(out / "data" / f"{series.name}.jsonl")


def run(settings: RunSettings, out: Path, progress: Progress | None = None) -> Outcome:
    """Run what is not there yet.

    Parameters
    ----------
    settings
        What to run.
    out
        Directory of the data; what it holds of the same run is not computed again.
    progress
        Called as work goes on.
    """
    device = usable_device(settings.device)
    start, began = time.perf_counter(), datetime.now(UTC)
    plan = settings.plan()
    trained = _train_missing(settings, plan, progress)
    todo = _todo(settings, plan, out)
    total = sum(len(numbers) * _cost(series) for series, numbers in todo.items())
    done_cost, done, failed = 0.0, 0, 0

    def record(finished: bool) -> float:
        seconds = time.perf_counter() - start
        record_run(
            out,
            {
                "preset": settings.preset_name,
                "counts": settings.counts(),
                "experiments": [experiment.name for experiment in settings.experiments],
                "published": settings.shelf.published is not None,
                "seed": settings.seed,
                "began": began.isoformat(timespec="seconds"),
                "seconds": round(seconds, 3),
                "trials": done,
                "failed": failed,
                "trained": trained,
                "finished": finished,
                **described_machine(device),
            },
        )
        return seconds

    try:
        for series, numbers in todo.items():
            for rows in _run_series(series, numbers, settings, device, out):
                done, done_cost = done + len(rows), done_cost + len(rows) * _cost(series)
                failed += sum("error" in row for row in rows)
                if progress is not None:
                    progress(series.name, done_cost, total)
    except BaseException:
        with suppress(InputError):  # what stopped the run is worth more words
            record(finished=False)
        raise
    return Outcome(done=done, failed=failed, seconds=record(finished=True))


def _train_missing(settings: RunSettings, plan: Plan, progress: Progress | None) -> dict[str, float]:
    """Train the models that are needed and not there, and return the seconds each took."""
    wanted = dict.fromkeys(series.model for series in plan if not series.published)

    def report(model: str, done: float, total: float) -> None:
        if progress is not None:
            progress(f"training {model}", done, total)

    missing = settings.shelf.missing(wanted)
    return {model: round(settings.shelf.train(model, settings.device, report), 3) for model in missing}


def _todo(settings: RunSettings, plan: Plan, out: Path) -> dict[Series, list[int]]:
    """Return which images of each series are to be done; refuse a directory whose data are of another run."""
    todo = {}
    for series, count in plan.items():
        file = data_file(out, series)
        records = file.read()
        model = settings.shelf.find(series.model, series.published)
        file.check_same(records, {"seed": settings.seed, "model_sha256": model.sha256})
        todo[series] = _missing(records, range(count), settings.retry)
    return todo


def _missing(records: Records, numbers: Iterable[int], retry: bool) -> list[int]:
    rows = records.rows
    return [number for number in numbers if number not in rows or (retry and "error" in rows[number])]


def _run_series(
    series: Series, numbers: list[int], settings: RunSettings, device: torch.device, out: Path
) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of images as they reach the disk."""
    if not numbers:
        return
    model = settings.shelf.find(series.model, series.published)
    bench = Bench(series, model.directory, device, settings.seed)
    header = {
        "series": series.describe(),
        "seed": settings.seed,
        "model_sha256": model.sha256,
        "settings": bench.settings(),
        **described_machine(bench.device),
    }
    with data_file(out, series).writing(header) as writer:
        numbers = _missing(writer.records, numbers, settings.retry)  # another run may have done some since
        bench.warm_up()
        together = TIMED_TOGETHER[bench.device.type] if series.work == "search" else None
        yield from recorded(bench.rows, numbers, writer, bench.device.type, together)


def _cost(series: Series) -> float:
    """Return roughly what a trial costs, in evaluations of the 16x16 base model."""
    evaluations = {
        "permutation": float(series.permutations or 0),
        "precision": 2.0 * EVALUATIONS["combination"],
        "curves": 1000.0,
        "evaluation": 500.0,
    }.get(series.work, float(EVALUATIONS[series.search]))
    return evaluations * RELATIVE_COST.get(series.model, 1.0)
