"""Training the classifier of slices with and without tumour."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attentest.attention.device import usable_device
from attentest.checks import real_number, whole_number
from attentest.errors import InputError
from attentest.studies.brain.augmentation import SliceAugmentation
from attentest.studies.brain.model_input import black_level, checked_slices, model_input, standardisation
from attentest.studies.brain.slices import SIDE
from attentest.training.classifier import (
    Progress,
    TrainedModel,
    accuracy_of,
    classifier_config,
    fit_classifier,
    parameters_of,
)
from attentest.training.provenance import described_machine

ARCHITECTURE = "base"

WARM_UP = 0.05
"""Share of the training over which the learning rate rises: AdamW's first steps are large in every direction."""


@dataclass(frozen=True, kw_only=True)
class BrainTraining:
    """What determines a training run, besides the slices.

    Parameters
    ----------
    seed
        Seeds the initial weights, the order of the batches, the dropout and the variation of the slices.
    epochs, batch_size
        Passes over the slices, and slices a step.
    learning_rate, weight_decay
        AdamW's; the learning rate rises over the first steps, then falls to 0 as a cosine.
    dropout
        Of the hidden layers.
    shift, gain
        How far slices are moved and how much brighter or darker they are made: see `SliceAugmentation`.
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
        checked = {
            "seed": whole_number(self.seed, "seed", 0, 2**63 - 1),
            "epochs": whole_number(self.epochs, "epochs", 1, 10**6),
            "batch_size": whole_number(self.batch_size, "batch_size", 1, 10**6),
            "shift": whole_number(self.shift, "shift", 0, SIDE // 2),
            **{name: real_number(getattr(self, name), name) for name in ("learning_rate", *_SHARES)},
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if not 0 < self.learning_rate <= 1:
            raise InputError(f"learning_rate must lie in (0, 1], got {self.learning_rate}.")
        for name in _SHARES:
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} must lie in [0, 1), got {getattr(self, name)}.")


_SHARES = ("weight_decay", "dropout", "gain")


def train_brain_classifier(
    images: NDArray[np.uint8],
    labels: NDArray[np.bool_],
    settings: BrainTraining | None = None,
    *,
    command: str | None = None,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> TrainedModel:
    """Train the paper's base classifier on slices with and without tumour.

    Parameters
    ----------
    images : (m, 64, 64) uint8
        The slices.
    labels : (m,) bool
        Which of them have a tumour.
    settings
        How to train.
    command
        What repeats the run, for the record.
    device
        Where to train. The same seed gives the same weights on a CPU; sums on a GPU may come in another order.
    progress
        Called with (epochs done, epochs in all).

    Returns
    -------
    TrainedModel
        On the CPU, with the preprocessing that lets it take slices as they are.
    """
    settings = BrainTraining() if settings is None else settings
    images = checked_slices(images)
    targets = torch.tensor(_checked_labels(labels, len(images)), dtype=torch.float32)
    device = usable_device(device)
    preprocessing = standardisation(images)
    inputs = model_input(images, preprocessing)
    start = time.perf_counter()
    model = fit_classifier(
        classifier_config(ARCHITECTURE, SIDE, settings.dropout),
        inputs,
        targets,
        optimizer=partial(torch.optim.AdamW, lr=settings.learning_rate, weight_decay=settings.weight_decay),
        schedule=_learning_rate_factor,
        augment=SliceAugmentation(shift=settings.shift, gain=settings.gain, black=black_level(preprocessing)),
        rng=np.random.default_rng(settings.seed),
        seed=settings.seed,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        device=device,
        progress=progress,
    )
    accuracy = accuracy_of(model, inputs, targets)  # before the clock is read: it waits for a GPU to be done
    record = {
        "command": command,
        "settings": asdict(settings),
        "images": {"without_tumour": int((targets == 0).sum()), "with_tumour": int((targets == 1).sum())},
        "image_mean": preprocessing["image_mean"][0],
        "image_std": preprocessing["image_std"][0],
        "accuracy": {"training": accuracy},
        "parameters": parameters_of(model),
        "seconds": time.perf_counter() - start,
        **described_machine(device),
    }
    return TrainedModel(model=model.cpu(), record=record, preprocessing=preprocessing)


def _learning_rate_factor(done: float) -> float:
    """Return the factor of the learning rate after a share of the training: up to 1 in a line, down as a cosine."""
    if done < WARM_UP:
        return (done + WARM_UP / 10) / (1.1 * WARM_UP)
    return 0.5 * (1 + math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP)))


def _checked_labels(labels: Any, count: int) -> NDArray[np.bool_]:
    if not isinstance(labels, np.ndarray) or labels.dtype != np.bool_ or labels.shape != (count,):
        received = (
            f"{labels.dtype} of shape {labels.shape}" if isinstance(labels, np.ndarray) else type(labels).__name__
        )
        raise InputError(f"labels must be an array of bool of shape ({count},), one for each image, got {received}.")
    if labels.all() or not labels.any():
        which = "with" if labels.all() else "without"
        raise InputError(f"labels must have both classes, but all {count} slices are {which} tumour: add the others.")
    return labels
