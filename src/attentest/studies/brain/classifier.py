"""Training the classifier of slices with and without tumour, and judging it on patients it has not seen."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.attention.device import usable_device
from attentest.checks import real_number, whole_number
from attentest.errors import InputError
from attentest.images.preprocessing import Preprocessing
from attentest.studies.brain.performance import performance
from attentest.studies.brain.slices import SIDE, WHITE, Slices
from attentest.training import classifier
from attentest.training.augmentation import augmented, warm_up_and_cosine
from attentest.training.provenance import described_machine

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
        bounds = {"seed": (0, 2**63 - 1), "epochs": (1, 10**6), "batch_size": (1, 10**6), "shift": (0, SIDE // 2)}
        for name, (least, most) in bounds.items():
            object.__setattr__(self, name, whole_number(getattr(self, name), name, least, most))
        for name in ("learning_rate", "weight_decay", "dropout", "gain"):
            object.__setattr__(self, name, real_number(getattr(self, name), name))
        if not 0 < self.learning_rate <= 1:
            raise InputError(f"learning_rate must lie in (0, 1], got {self.learning_rate}.")
        for name in ("weight_decay", "dropout", "gain"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} must lie in [0, 1), got {getattr(self, name)}.")


def train_brain_classifier(
    training: Slices,
    test: Slices,
    settings: BrainTraining,
    *,
    command: str | None = None,
    device: torch.device | str = "cpu",
    progress: classifier.Progress | None = None,
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
        optimizer=partial(torch.optim.AdamW, lr=settings.learning_rate, weight_decay=settings.weight_decay),
        schedule=warm_up_and_cosine,
        augment=partial(augmented, shift=settings.shift, gain=settings.gain, black=black),
        rng=np.random.default_rng(settings.seed),
        seed=settings.seed,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
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
        "parameters": classifier.parameters_of(model),
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
