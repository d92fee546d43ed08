"""The study: split the slices, train and judge the classifier, fit the noise, test slices under every condition."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from attentest.attention.device import usable_device
from attentest.checks import whole_number
from attentest.errors import InputError
from attentest.files import make_directory, write_complete
from attentest.runs.engine import Engine, as_engine
from attentest.runs.records import alone_in
from attentest.studies.brain.classifier import BrainTraining, train_brain_classifier
from attentest.studies.brain.condition import MOST_IMAGES, PAPER, Cohort, Condition, available, split_by_patient
from attentest.studies.brain.dataset import Slices
from attentest.studies.brain.slice_tests import SliceTests, model_directory, read_record
from attentest.studies.measures import recorded_run, succeeded
from attentest.training.bundled import check_target
from attentest.training.classifier import described_machine, save_or_rescue

FACTS = "study.json"
"""Name of the file with the facts about the slices and the command."""

RUN_FIELDS = ("began", "seconds", "trained", "tested", "failed", "finished", "sensitivity_images", "device")
"""Fields that the record of every run must have."""

Progress = Callable[[str, float, float], None]
"""Called during the work with what is being done, how much of it is done, and how much there is to do."""


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """Everything that determines a study, except the slices; the seed of the training is also that of the split.

    Under other conditions than the paper's ``sensitivity_images`` test slices of each class are tested; None for all.
    """

    noise_images: int = 100
    training_per_class: int = 700
    training: BrainTraining = field(default_factory=BrainTraining)
    sensitivity_images: int | None = 100

    def __post_init__(self) -> None:
        if self.sensitivity_images is not None:
            whole_number(self.sensitivity_images, "sensitivity_images", 0, MOST_IMAGES)

    def command(self) -> str:
        """Return the command line that repeats the study, without the option --sensitivity-images."""
        return (
            f"attentest brain --data DIR --noise-images {self.noise_images} --training-per-class "
            f"{self.training_per_class} --epochs {self.training.epochs} --seed {self.training.seed}"
        )

    def cohort(self, slices: Slices) -> Cohort:
        """Return the split of the slices."""
        counts = {"noise_images": self.noise_images, "training_per_class": self.training_per_class}
        return split_by_patient(slices, **counts, seed=self.training.seed)

    def plan(self, cohort: Cohort) -> dict[Condition, list[int]]:
        """Return the indices of the slices to be tested under each condition."""
        order = cohort.test_order().values()
        every = sorted(number for numbers in order for number in numbers)
        few = sorted(number for numbers in order for number in numbers[: self.sensitivity_images])
        return {condition: every if condition == PAPER else few for condition in available()}


def run(
    cohort: Cohort,
    settings: StudySettings,
    out: Path,
    device: torch.device | str = "cpu",
    progress: Progress = lambda label, done, total: None,
    retry: bool = False,
    engine: str | Engine = "local",
) -> dict[str, Any]:
    """Train the classifier and test the slices of a cohort that these settings split, and return the run's record.

    Results of the same study in the directory ``out`` are not computed again; with ``retry``, slices that could not be
    tested before are tried again. The engine tests slices; training is done in this process.
    """
    where, chosen = usable_device(device), as_engine(engine)
    asked = {"sensitivity_images": settings.sensitivity_images, "command": settings.command()}
    values = {**asked, "trained": 0.0, "tested": 0, **described_machine(where)}
    plan = settings.plan(cohort)
    make_directory(out)
    with alone_in(out), chosen, recorded_run(out, values) as record:  # a cluster that is absent is found out at once
        record["trained"] = _prepare_classifier(cohort, settings, out, where, progress)
        facts = {"data": cohort.facts(), "command": settings.command()}
        write_complete(out / FACTS, (json.dumps(facts, indent=2) + "\n").encode(), "the facts of the study")
        tests = SliceTests(cohort, out, where)
        todo = {condition: tests.missing(condition, numbers, retry) for condition, numbers in plan.items()}
        total = sum(len(numbers) for numbers in todo.values())
        for condition, numbers in todo.items():
            for rows in tests.test(condition, numbers, chosen, retry):
                record["tested"] += len(rows)
                record["failed"] += len(rows) - len(succeeded(rows))
                progress(f"testing {condition.name}", record["tested"], total)
    return record


def _prepare_classifier(
    cohort: Cohort, settings: StudySettings, out: Path, device: torch.device, progress: Progress
) -> float:
    """Train the classifier if there is none, and return the seconds it took; refuse one of another study."""
    directory = model_directory(out)
    identity = {"data": cohort.facts(), "settings": asdict(settings.training)}
    if directory.exists() and any(directory.iterdir()):
        record = read_record(out)
        for name, now in identity.items():
            if record[name] != now:
                raise InputError(f"{directory} was trained with other {name}: use another output directory.")
        return 0.0
    check_target(directory)
    trained = train_brain_classifier(
        cohort.slices.take(cohort.training),
        cohort.slices.take(cohort.test),
        settings.training,
        command=settings.command(),
        device=device,
        progress=partial(progress, "training the classifier"),
    )
    save_or_rescue(replace(trained, record={**trained.record, **identity}), directory)
    return round(float(trained.record["seconds"]), 3)
