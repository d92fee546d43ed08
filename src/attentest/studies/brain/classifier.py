"""Training the classifier of slices with and without tumour, and judging it on patients it has not seen."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata
from torch import Tensor

from attentest.attention.device import usable_device
from attentest.checks import float_array, whole_number
from attentest.errors import InputError
from attentest.images.preprocessing import Preprocessing
from attentest.progress import Progress
from attentest.runs.records import described_machine
from attentest.studies.brain.dataset import SIDE, WHITE, Slices, checked_array
from attentest.studies.measures import BOOTSTRAP_DRAWS, BOOTSTRAP_SEED, INTERVAL
from attentest.training import classifier
from attentest.training.bundled import check_fit
from attentest.training.classifier import augmented, warm_up_and_cosine


def auc(scores: ArrayLike, labels: NDArray[np.bool_]) -> float:
    """Return the probability that of two slices, one of each class, the one with tumour has the greater score.

    This is Mann and Whitney's statistic of scores (m,) and labels (m,); ties count as one half.
    """
    values = float_array(scores, "scores")
    if values.ndim != 1 or not values.size or not np.isfinite(values).all():
        raise InputError(
            f"scores must be a row of at least one finite number, got shape {values.shape} with "
            f"{(~np.isfinite(values)).sum()} that are not finite: leave those slices out."
        )
    truth = checked_array(labels, "labels", np.bool_, values.shape)
    if not has_both_classes(truth):
        raise InputError(f"an AUC needs slices with and without tumour, got {truth.sum()} with among {truth.size}.")
    with_tumour = int(truth.sum())
    greater = rankdata(values)[truth].sum() - with_tumour * (with_tumour + 1) / 2
    return float(greater / (with_tumour * (truth.size - with_tumour)))


def performance(
    logits: NDArray[Any], labels: NDArray[np.bool_], patients: NDArray[np.str_], draws: int = BOOTSTRAP_DRAWS
) -> dict[str, Any]:
    """Judge a classifier by slices (m,) of at least two patients it was not trained on, JSON-ready.

    It predicts a tumour where a logit is positive. ``auc_interval`` is a 95% interval from drawing patients with
    replacement, each with all slices; ``bootstrap`` counts the draws with slices of one class only, which have no AUC
    and are repeated. The AUC of a patient with one class is None, and so is the mean over patients if all are.
    """
    overall = auc(logits, labels)
    names, owner = np.unique(checked_array(patients, "patients", np.str_, labels.shape), return_inverse=True)
    if len(names) < 2:
        raise InputError(f"patients must be at least two, got {len(names)}: one says nothing about others.")
    draws = whole_number(draws, "draws", 1, 10**7)
    right = (logits > 0) == labels
    slices = [np.flatnonzero(owner == index) for index in range(len(names))]
    by_patient = {
        str(name): {
            "slices": len(scans),
            "with_tumour": int(labels[scans].sum()),
            "accuracy": float(right[scans].mean()),
            "auc": auc(logits[scans], labels[scans]) if has_both_classes(labels[scans]) else None,
        }
        for name, scans in zip(names, slices, strict=True)
    }
    aucs = [patient["auc"] for patient in by_patient.values() if patient["auc"] is not None]
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    replicates: list[float] = []
    repeated = 0
    while len(replicates) < draws:
        drawn = np.concatenate([slices[index] for index in rng.integers(0, len(slices), len(slices))])
        if has_both_classes(labels[drawn]):
            replicates.append(auc(logits[drawn], labels[drawn]))
        else:
            repeated += 1
    return {
        "slices": labels.size,
        "with_tumour": int(labels.sum()),
        "patients": len(names),
        "accuracy": float(right.mean()),
        "sensitivity": float(right[labels].mean()),
        "specificity": float(right[~labels].mean()),
        "auc": overall,
        "auc_interval": np.percentile(replicates, INTERVAL).tolist(),
        "bootstrap": {"over": "patients", "draws": draws, "seed": BOOTSTRAP_SEED, "drawn_again": repeated},
        "mean_patient_auc": float(np.mean(aucs)) if aucs else None,
        "patients_with_auc": len(aucs),
        "by_patient": by_patient,
    }


def has_both_classes(labels: NDArray[np.bool_]) -> bool:
    """Return whether some labels are true and some false."""
    return bool(labels.any() and not labels.all())


ARCHITECTURE = "base"


@dataclass(frozen=True, kw_only=True)
class BrainTraining:
    """Everything that determines a training run, except the slices.

    The seed is that of the initial weights, the order of the batches, the dropout of the hidden layers and the
    augmentation (``shift``, ``gain``: see `augmented`). AdamW's learning rate rises over the first steps, then falls to
    0 as a cosine.
    """

    seed: int = 0
    epochs: int = 360
    batch_size: int = 64
    learning_rate: float = 5e-4
    weight_decay: float = 0.05
    dropout: float = 0.0
    shift: int = 4
    gain: float = 0.4

    def __post_init__(self) -> None:
        check_fit(self, {"shift": (0, SIDE // 2)}, ("weight_decay", "dropout", "gain"))


def train_brain_classifier(
    training: Slices,
    test: Slices,
    settings: BrainTraining,
    *,
    command: str | None = None,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> classifier.TrainedModel:
    """Train the paper's base classifier on slices with and without tumour, and judge it on others.

    The same seed gives the same weights on a CPU; on a GPU the order of sums may differ. ``command``, which repeats the
    run, is for the record. The model is returned on the CPU, with the preprocessing of its input, and its record has
    the `performance` on the test slices.
    """
    count, with_tumour = len(training), int(training.tumour.sum())
    if with_tumour in (0, count):
        raise InputError(
            f"training needs slices with and without tumour, but {with_tumour} of {count} slices have one: add others."
        )
    targets = torch.tensor(training.tumour, dtype=torch.float32)
    device = usable_device(device)
    preprocessing = standardisation(training.flair)
    inputs = model_input(training.flair, preprocessing)
    black = float(model_input(np.zeros((1, SIDE, SIDE), np.uint8), preprocessing)[0, 0, 0, 0])
    start = time.perf_counter()
    model = classifier.fit_classifier(
        classifier.classifier_config(ARCHITECTURE, SIDE, settings.dropout),
        inputs,
        targets,
        settings,
        optimizer=partial(torch.optim.AdamW, weight_decay=settings.weight_decay),
        schedule=warm_up_and_cosine,
        augment=partial(augmented, shift=settings.shift, gain=settings.gain, black=black),
        rng=np.random.default_rng(settings.seed),
        device=device,
        progress=progress,
    )
    accuracy = classifier.accuracy_of(model, inputs, targets)  # waits for a GPU to finish; the time is read after it
    seconds = time.perf_counter() - start
    logits = classifier.logits_of(model, model_input(test.flair, preprocessing)).numpy()
    record = {
        "command": command,
        "settings": asdict(settings),
        "images": {"without_tumour": count - with_tumour, "with_tumour": with_tumour},
        "image_mean": preprocessing["image_mean"][0],
        "image_std": preprocessing["image_std"][0],
        "accuracy": {"training": accuracy},
        "parameters": model.num_parameters(),
        "seconds": seconds,
        **described_machine(device),
        "performance": performance(logits, test.tumour, test.patient),
    }
    return classifier.TrainedModel(model=model.cpu(), record=record, preprocessing=preprocessing)


def standardisation(flair: NDArray[np.uint8]) -> dict[str, Any]:
    """Return the ``preprocessor_config.json`` that gives the pixels of slices (m, 64, 64) mean 0 and variance 1."""
    scaled = flair / WHITE
    mean, std = float(scaled.mean()), float(scaled.std())
    if std == 0:
        raise InputError(f"the slices must differ from pixel to pixel, but all are {flair.flat[0]}: give real slices.")
    # One mean and one standard deviation for all slices, not those of the tested slice: then the map from pixels to
    # the model's input is affine with constants that do not depend on the tested slice, and p-values stay exact.
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": False,
        "size": {"height": SIDE, "width": SIDE},
        "do_rescale": True,
        "rescale_factor": 1 / WHITE,
        "do_normalize": True,
        "image_mean": [mean],
        "image_std": [std],
    }


def model_input(flair: NDArray[np.uint8], preprocessing: Mapping[str, Any]) -> Tensor:
    """Return the model's input (m, 1, 64, 64) float32 for slices (m, 64, 64), as `AttentionTest` makes it."""
    pixels = torch.tensor(flair, dtype=torch.float64).unsqueeze(1)
    input_map = Preprocessing.from_processor(preprocessing).plan((1, SIDE, SIDE), 1, (0, WHITE))
    return input_map(pixels).float()
