"""The study: split, train, judge the classifier, fit the noise, test slices under every condition; each on disk."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol

import torch

from attentest.attention.device import usable_device
from attentest.checks import whole_number
from attentest.errors import InputError
from attentest.files import make_directory, write_complete
from attentest.studies.brain.classifier_training import BrainTraining, train_brain_classifier
from attentest.studies.brain.cohort import Cohort, cohort_of
from attentest.studies.brain.condition import CONDITIONS, PAPER, Condition, available
from attentest.studies.brain.laboratory import Laboratory, model_directory, read_record
from attentest.studies.brain.logits import brain_logits
from attentest.studies.brain.performance import performance
from attentest.studies.brain.slices import Slices
from attentest.studies.records import alone_in, record_run
from attentest.training.classifier import check_target, save_or_rescue
from attentest.training.provenance import described_machine

FACTS = "study.json"

RUN_FIELDS = ("began", "seconds", "trained", "tested", "failed", "finished", "sensitivity_images", "device")
"""What is known of every run."""


class Progress(Protocol):
    """Called as work goes on, with what is being done and how much is done of how much."""

    def __call__(self, label: str, done: float, total: float) -> None:
        """Say that so much of so much is done, and what is being done."""


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """What determines a study, besides the slices.

    Parameters
    ----------
    noise_images, training_per_class
        How many slices the noise is estimated from, and how many of each class the classifier is trained on.
    training
        How; its seed is that of the split too.
    sensitivity_images
        So many test slices of each class are tested under other conditions than the paper's; None for all.
    """

    noise_images: int = 100
    training_per_class: int = 700
    training: BrainTraining = field(default_factory=BrainTraining)
    sensitivity_images: int | None = 100

    def __post_init__(self) -> None:
        if self.sensitivity_images is not None:
            whole_number(self.sensitivity_images, "sensitivity_images", 0, 10**8)

    def command(self) -> str:
        """Return the command line that repeats the study, but for how many slices other conditions get."""
        return (
            f"attentest brain --data DIR --noise-images {self.noise_images} --training-per-class "
            f"{self.training_per_class} --epochs {self.training.epochs} --seed {self.training.seed}"
        )

    def cohort(self, slices: Slices) -> Cohort:
        """Return what becomes of each slice."""
        return cohort_of(
            slices,
            noise_images=self.noise_images,
            training_per_class=self.training_per_class,
            seed=self.training.seed,
        )

    def plan(self, cohort: Cohort) -> dict[Condition, list[int]]:
        """Return which slices are to be tested under which conditions."""
        order = cohort.test_order()
        few = {tumour: numbers[: self.sensitivity_images] for tumour, numbers in order.items()}
        return {
            condition: sorted(
                number for numbers in (order if condition == PAPER else few).values() for number in numbers
            )
            for condition in available()
        }


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run did: slices tested, those among them that failed, seconds, and noise models left out."""

    tested: int
    failed: int
    seconds: float
    left_out: tuple[str, ...]


def run(
    cohort: Cohort,
    settings: StudySettings,
    out: Path,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
    retry: bool = False,
) -> Outcome:
    """Run what is not there yet.

    Parameters
    ----------
    cohort
        The slices, split by these settings.
    settings
        What to do.
    out
        Directory of the results; what it holds of the same study is not computed again.
    device
        Where to compute.
    progress
        Called as work goes on.
    retry
        Whether slices that could not be tested before are tried again.
    """
    where = usable_device(device)
    start, began = time.perf_counter(), datetime.now(UTC)
    trained, done, failed = 0.0, 0, 0

    def record(finished: bool) -> float:
        seconds = time.perf_counter() - start
        if not (trained or done):
            return seconds
        values = {
            "began": began.isoformat(timespec="seconds"),
            "seconds": round(seconds, 3),
            "trained": round(trained, 3),
            "tested": done,
            "failed": failed,
            "finished": finished,
            "sensitivity_images": settings.sensitivity_images,
            "command": settings.command(),
            **described_machine(where),
        }
        record_run(out, values)
        return seconds

    plan = settings.plan(cohort)
    make_directory(out)
    with alone_in(out):
        try:
            trained = _ready_classifier(cohort, settings, out, where, progress)
            facts = {"data": cohort.facts(), "command": settings.command()}
            write_complete(out / FACTS, (json.dumps(facts, indent=2) + "\n").encode(), "the facts of the study")
            laboratory = Laboratory(cohort, out, where)
            todo = {condition: laboratory.missing(condition, numbers, retry) for condition, numbers in plan.items()}
            total = sum(len(numbers) for numbers in todo.values())
            for condition, numbers in todo.items():
                for rows in laboratory.test(condition, numbers):
                    done, failed = done + len(rows), failed + sum("error" in row for row in rows)
                    if progress is not None:
                        progress(f"testing {condition.name}", done, total)
        except BaseException:
            with suppress(InputError):  # what stopped the run is worth more words
                record(finished=False)
            raise
        seconds = record(finished=True)
    left_out = tuple(dict.fromkeys(c.noise for c in CONDITIONS if c not in plan))
    return Outcome(tested=done, failed=failed, seconds=seconds, left_out=left_out)


def _ready_classifier(
    cohort: Cohort, settings: StudySettings, out: Path, device: torch.device, progress: Progress | None
) -> float:
    """Train the classifier if it is not there, and return the seconds that took; refuse one of another study."""
    directory = model_directory(out)
    identity = {"data": cohort.facts(), "settings": asdict(settings.training)}
    if directory.exists() and any(directory.iterdir()):
        record = read_record(out)
        for name, now in identity.items():
            if record.get(name) != now:
                raise InputError(
                    f"{directory} was trained with other {name} than are asked for now: use another output directory, "
                    "or remove it."
                )
        return 0.0
    check_target(directory)
    images = cohort.slices.take(cohort.split.training)
    start = time.perf_counter()
    trained = train_brain_classifier(
        images.flair,
        images.tumour,
        settings.training,
        command=settings.command(),
        device=device,
        progress=None if progress is None else partial(progress, "training the classifier"),
    )
    seconds = time.perf_counter() - start
    test = cohort.slices.take(cohort.split.test)
    logits = brain_logits(trained, test.flair, device)
    judged = performance(logits, test.tumour, test.patient)
    save_or_rescue(replace(trained, record={**trained.record, **identity, "performance": judged}), directory)
    return seconds
