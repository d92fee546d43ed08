"""The study: split the slices, train and judge the classifier, and test slices under every condition."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attentest.attention import ViTScores, load_model
from attentest.attention.device import usable_device
from attentest.checks import whole_number
from attentest.cohort.claims import estimates_of, shared_noise_degrees
from attentest.errors import InputError
from attentest.files import make_directory, write_complete
from attentest.noise import Dense, save_noise
from attentest.pipeline.attention_test import AttentionTest
from attentest.pipeline.many_images import stream_batches
from attentest.pipeline.run import Request
from attentest.progress import LabelledProgress, Progress
from attentest.results.result import AttentionTestResult
from attentest.runs.engine import Engine, FailedImage, as_engine, timed_batches
from attentest.runs.record_lines import alone_in
from attentest.runs.records import Row, check_texts, described_machine
from attentest.search import SpectralSearch
from attentest.statistics.inference import ConfidenceInterval, confidence_intervals_of
from attentest.studies import measures
from attentest.studies.brain.classifier import BrainTraining, train_brain_classifier
from attentest.studies.brain.condition import (
    ESTIMATORS,
    MOST_IMAGES,
    PAPER,
    Condition,
    FittedNoise,
    Split,
    available,
    split_by_patient,
)
from attentest.studies.brain.dataset import LEAST_BRIGHT, Slices
from attentest.studies.measures import CONFIDENCE_LEVEL, PlannedSeries
from attentest.studies.paper_model import PaperModel
from attentest.training.bundled import check_target
from attentest.training.classifier import RECORD_FILE, save_or_rescue

SEARCH = SpectralSearch()

SENSITIVITY_SEARCH = SpectralSearch(tol=1e-4)
"""Search under other conditions than the paper's: to a larger tolerance, and of p alone, unless they are ours."""

TRAINING_FIELDS = (
    *("data", "settings", "accuracy", "parameters", "seconds"),
    *("device", "versions", "weights_sha256", "performance"),
)
"""Fields that the record of every training must have."""

FACTS = "study.json"  # name of the file with the facts about the slices and the command

RUN_FIELDS = ("began", "seconds", "trained", "tested", "failed", "finished", "sensitivity_images", "device")
"""Fields that the record of every run must have."""

LEAST_LOG = -1e300  # replaces -inf, which JSON does not have


def model_directory(out: Path) -> Path:
    """Return the directory of the classifier of a study."""
    return out / "model"


def read_record(out: Path) -> dict[str, Any]:
    """Return the record of the training of the classifier, with its performance."""
    path = model_directory(out) / RECORD_FILE
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if missing := set(TRAINING_FIELDS) - set(record):
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")
        check_texts(record, ["weights_sha256"])
        dict(record["performance"]["by_patient"])
    except (OSError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise InputError(f"{path} cannot be read ({error}): remove {path.parent}, and it is trained anew.") from None
    return record


class SliceTests:
    """Tests of the slices of a split with the classifier and the noise models of a study in a directory."""

    def __init__(self, split: Split, out: Path, device: torch.device | str) -> None:
        self._split, self._out = split, out
        self._sha256 = PaperModel.read(model_directory(out)).sha256  # results of two models must not be mixed
        saved = load_model(model_directory(out))
        if saved.processor is None:
            raise InputError(f"{model_directory(out)} lacks its preprocessing: remove it, and it is trained anew.")
        self._scores = ViTScores(saved.encoder, device=device, owned=True)
        self._preprocessing = saved.processor
        self._noise = FittedNoise(split.slices.flair[split.noise])

    def attention_test(self, condition: Condition) -> AttentionTest:
        """Return the test of a condition."""
        paper = condition == PAPER
        return AttentionTest(
            self._scores,
            noise=self._noise.noise(condition),
            contrast=self._noise.contrast(condition),
            threshold=condition.threshold,
            region_unit=condition.region,
            randomise=condition.randomise,
            preprocessing=self._preprocessing,
            search=SEARCH if paper else SENSITIVITY_SEARCH,
            confidence_level=CONFIDENCE_LEVEL if paper or condition.ours else None,
        )

    def planned(self, condition: Condition, numbers: list[int], engine: Engine) -> PlannedSeries:
        """Return the tests of slices of the split under a condition."""
        series = {**vars(condition), "data_sha256": self._split.sha256}

        def work() -> tuple[SliceWork, dict[str, Any]]:
            if condition.noise in ESTIMATORS:
                model = self._noise.model(condition.noise)
                if not isinstance(getattr(model, "model", model), Dense):  # which would take 128 MiB
                    make_directory(self._out / "noise")
                    save_noise(model, self._out / "noise" / f"{condition.noise}.json")
            tests = SliceWork(test=self.attention_test(condition), slices=self._split.slices)
            return tests, {"settings": tests.test.settings}

        return PlannedSeries(
            file=measures.data_file(self._out, condition.name),
            numbers=numbers,
            identity={"series": series, "seed": self._split.seed, "model_sha256": self._sha256},
            work=work,
            engine=engine,
            label=f"testing {condition.name}",
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class SliceWork:
    """Tests of slices, given by their indices, as work for an engine; a slice that cannot be tested has the error."""

    test: AttentionTest
    slices: Slices

    @property
    def device(self) -> torch.device:
        """The device of the test."""
        return self.test.device

    def run(self, tasks: Sequence[int], progress: Progress | None = None) -> Iterator[list[Row]]:
        """Yield the rows of slices, batch by batch."""
        images = [self.slices.flair[task] for task in tasks]
        batches = stream_batches(self.test.pipeline, images, Request(), progress, names=tasks, on_error="row")
        for numbers, batch, start in timed_batches(tasks, batches):
            results = [tested[0] for tested in batch if not isinstance(tested, FailedImage)]
            level = results[0].confidence_level if results else None
            intervals = iter([None] * len(results) if level is None else confidence_intervals_of(results, level))
            values = [
                {"error": tested.reason}
                if isinstance(tested, FailedImage)
                else slice_values(tested[0], self.slices.flair[number], self.slices.mask[number], next(intervals))
                for number, tested in zip(numbers, batch, strict=True)
            ]
            seconds = (time.perf_counter() - start) / len(batch)
            yield [self._row(number, seconds, row) for number, row in zip(numbers, values, strict=True)]

    def lost(self, task: int, reason: str) -> Row:
        """Return the row of a slice, given by its index, that could not be tested for a reason outside the test."""
        return self._row(task, 0.0, {"error": reason})

    def _row(self, number: int, seconds: float, values: Row) -> Row:
        slices = self.slices
        return {
            "patient": str(slices.patient[number]),
            "slice": int(slices.number[number]),
            "tumour": bool(slices.tumour[number]),
            "image": number,
            "seconds": seconds,
            **values,
        }


def slice_values(
    result: AttentionTestResult,
    flair: NDArray[np.uint8],
    mask: NDArray[np.bool_],
    interval: ConfidenceInterval | None = None,
) -> Row:
    """Return the values of a result that are stored, JSON-ready; slice and tumour mask are (H, W).

    After randomised selection they include an unbiased ``estimate`` of the difference, and the degrees of freedom of
    the noise, None if infinite.
    """
    unbiased: Row = {}
    if result.settings["randomise"]:
        degrees = shared_noise_degrees(result)
        unbiased = {"estimate": float(estimates_of([result]).value[0])}
        unbiased["noise_degrees"] = degrees if np.isfinite(degrees) else None
    return {
        **measures.result_values(result, interval),
        **unbiased,
        "log_p": max(result.log_pvalue, LEAST_LOG),
        "difference": result.difference,
        "standard_error": result.standard_error,
        "room": room_of(result),
        "iou": overlap(result.region, mask),
        "in_tumour": float(mask[result.region].mean()),
        "in_the_dark": float((flair[result.region] <= LEAST_BRIGHT).mean()),
    }


def room_of(result: AttentionTestResult) -> float | None:
    """Return how far the compared difference can move before the region changes, in the units of the pixels.

    It is the length of the interval of the truncation set around the observed point: with randomised selection, around
    that of the image that the model saw. None if the interval has no end.
    """
    low, high = result.intervals.T
    around = (low <= result.law.z_obs[0]) & (result.law.z_obs[0] <= high)
    room = float((high - low)[around].max()) * result.standard_error
    return room if np.isfinite(room) else None


def overlap(region: NDArray[np.bool_], mask: NDArray[np.bool_]) -> float | None:
    """Return the intersection of two areas (H, W) over their union; None if the mask is empty."""
    return float((region & mask).sum() / (region | mask).sum()) if mask.any() else None


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

    def split(self, slices: Slices) -> Split:
        """Return the split of the slices."""
        counts = {"noise_images": self.noise_images, "training_per_class": self.training_per_class}
        return split_by_patient(slices, **counts, seed=self.training.seed)

    def plan(self, split: Split) -> dict[Condition, list[int]]:
        """Return the indices of the slices to be tested under each condition."""
        order = split.test_order().values()
        every = sorted(number for numbers in order for number in numbers)
        few = sorted(number for numbers in order for number in numbers[: self.sensitivity_images])
        return {condition: every if condition == PAPER else few for condition in available()}


def run(
    split: Split,
    settings: StudySettings,
    out: Path,
    device: torch.device | str = "cpu",
    progress: LabelledProgress = lambda done, total, label: None,
    retry: bool = False,
    engine: str | Engine = "local",
) -> dict[str, Any]:
    """Train the classifier and test the slices that these settings have split, and return the run's record.

    Results of the same study in the directory ``out`` are not computed again; with ``retry``, slices that could not be
    tested before are tried again. The engine tests slices; training is done in this process.
    """
    where, workers = usable_device(device), as_engine(engine)
    asked = {"sensitivity_images": settings.sensitivity_images, "command": settings.command()}
    values = {**asked, "trained": 0.0, "tested": 0, **described_machine(where)}
    plan = settings.plan(split)
    make_directory(out)
    # A cluster that is absent is found out before the training.
    with alone_in(out), workers, measures.recorded_run(out, values) as record:
        record["trained"] = prepare_classifier(split, settings, out, where, progress)
        facts = {"data": split.facts(), "command": settings.command()}
        write_complete(out / FACTS, (json.dumps(facts, indent=2) + "\n").encode(), "the facts of the study")
        tests = SliceTests(split, out, where)
        planned = [tests.planned(condition, numbers, workers) for condition, numbers in plan.items()]
        measures.run_series(planned, record, "tested", retry, progress)
    return record


def prepare_classifier(
    split: Split, settings: StudySettings, out: Path, device: torch.device, progress: LabelledProgress
) -> float:
    """Train the classifier if there is none, and return the seconds it took; one of another study is an error."""
    directory = model_directory(out)
    identity = {"data": split.facts(), "settings": asdict(settings.training)}
    if directory.exists() and any(directory.iterdir()):
        record = read_record(out)
        for name, now in identity.items():
            if record[name] != now:
                raise InputError(f"{directory} was trained with other {name}: use another output directory.")
        return 0.0
    check_target(directory)
    trained = train_brain_classifier(
        split.slices.take(split.training),
        split.slices.take(split.test),
        settings.training,
        command=settings.command(),
        device=device,
        progress=lambda done, total: progress(done, total or 0, "training the classifier"),
    )
    save_or_rescue(replace(trained, record={**trained.record, **identity}), directory)
    return round(float(trained.record["seconds"]), 3)
