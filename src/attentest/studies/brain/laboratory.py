"""A trained classifier and fitted noise, set up to test slices, and where results go."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from attentest.api import AttentionTest
from attentest.attention import ViTScores, load_model
from attentest.errors import InputError
from attentest.files import make_directory
from attentest.noise import Dense, save_noise
from attentest.search import SpectralSearch
from attentest.studies.brain.cohort import Cohort
from attentest.studies.brain.condition import ESTIMATORS, PAPER, Condition, FittedNoise
from attentest.studies.brain.trial import rows_maker
from attentest.studies.records import RecordFile, Row, recorded
from attentest.training.classifier import RECORD_FILE
from attentest.training.provenance import described_machine

SEARCH = SpectralSearch()
CONFIDENCE_LEVEL = 0.95

SENSITIVITY_SEARCH = SpectralSearch(tol=1e-4)
"""Under other conditions than the paper's p alone is searched for, and less closely."""


RECORDED = (
    "data",
    "settings",
    "accuracy",
    "parameters",
    "seconds",
    "device",
    "versions",
    "weights_sha256",
    "performance",
)
"""What is known of every classifier."""


def model_directory(out: Path) -> Path:
    """Return where the classifier of a study is."""
    return out / "model"


def data_file(out: Path, condition: Condition) -> RecordFile:
    """Return the file of a condition."""
    return RecordFile(out / "data" / f"{condition.name}.jsonl")


def read_record(out: Path) -> dict[str, Any]:
    """Return how the classifier of a study was trained, and how well it does."""
    path = model_directory(out) / RECORD_FILE
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        absent = set(RECORDED) - set(found)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path} cannot be read ({error}): remove {path.parent}, and it is trained anew.") from None
    if absent:
        raise InputError(f"{path} lacks {', '.join(sorted(absent))}: remove {path.parent}, and it is trained anew.")
    return found


def _check_weights(directory: Path, sha256: str) -> None:
    """Refuse weights that are not those that were trained: results of two models must not be mixed."""
    path = directory / "model.safetensors"
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): remove {directory}, and train anew.") from None
    if found != sha256:
        raise InputError(
            f"{path} is not what the training wrote (SHA-256 {found[:8]}, on record {sha256[:8]}): use another output "
            "directory, or remove this one."
        )


class Laboratory:
    """A classifier and fitted noise, set up to test slices.

    Parameters
    ----------
    cohort
        The slices.
    out
        Where the classifier is, and where results go.
    device
        Where to compute.
    """

    def __init__(self, cohort: Cohort, out: Path, device: torch.device | str) -> None:
        self._cohort, self._out = cohort, out
        self._record = read_record(out)
        _check_weights(model_directory(out), self._record["weights_sha256"])
        saved = load_model(model_directory(out))
        if saved.processor is None:
            raise InputError(
                f"{model_directory(out)} lacks its preprocessing: remove it, and the classifier is trained anew."
            )
        self._scores = ViTScores(saved.encoder, device=device, owned=True)
        self._preprocessing = saved.processor
        self._noise = FittedNoise(cohort.slices.flair[cohort.split.noise])

    def attention_test(self, condition: Condition) -> AttentionTest:
        """Return the test of a condition."""
        paper = condition == PAPER
        return AttentionTest(
            self._scores,
            noise=self._noise.noise(condition),
            contrast=self._noise.contrast(condition),
            threshold=condition.threshold,
            preprocessing=self._preprocessing,
            search=SEARCH if paper else SENSITIVITY_SEARCH,
            confidence_level=CONFIDENCE_LEVEL if paper else None,
        )

    def missing(self, condition: Condition, numbers: list[int], retry: bool) -> list[int]:
        """Return which slices were not tested under a condition yet; refuse data of another study.

        Parameters
        ----------
        condition, numbers
            As in :meth:`test`.
        retry
            Whether slices that could not be tested are missing too.
        """
        file = data_file(self._out, condition)
        records = file.read()
        file.check_same(records, self._identity(condition))
        return [n for n in numbers if n not in records.rows or (retry and "error" in records.rows[n])]

    def test(self, condition: Condition, numbers: list[int]) -> Iterator[list[Row]]:
        """Test slices under a condition and yield rows as they reach the disk.

        Parameters
        ----------
        condition
            How to test.
        numbers
            Of slices of the cohort.
        """
        if not numbers:
            return
        test = self.attention_test(condition)
        self._keep_noise(condition)
        header = {**self._identity(condition), "settings": test.settings, **described_machine(self._scores.device)}
        with data_file(self._out, condition).writing(header) as writer:
            yield from recorded(rows_maker(test, self._cohort.slices), numbers, writer, self._scores.device.type)

    def _identity(self, condition: Condition) -> dict[str, Any]:
        return {
            "series": {**condition.describe(), "data_sha256": self._cohort.sha256},
            "seed": self._cohort.seed,
            "model_sha256": self._record["weights_sha256"],
        }

    def _keep_noise(self, condition: Condition) -> None:
        """Save a fitted noise model for later use; not a full covariance, which would take 128 MiB."""
        if condition.noise in ESTIMATORS:
            model = self._noise.model(condition.noise)
            if not isinstance(getattr(model, "model", model), Dense):
                make_directory(self._out / "noise")
                save_noise(model, self._out / "noise" / f"{condition.noise}.json")
