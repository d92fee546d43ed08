"""Training the paper's classifiers on its synthetic images (section 4, appendices A.1 and C.2)."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

import numpy as np
import torch
from torch import Tensor

from attentest.attention.device import usable_device
from attentest.results.versions import versions
from attentest.simulation.synthetic_images import null_images, signal_images
from attentest.training.classifier import (
    Progress,
    TrainedModel,
    accuracy_of,
    fit_classifier,
    parameters_of,
)
from attentest.training.training_settings import TrainingSettings

TRAINING_DELTA = (1.0, 4.0)
"""Range of the strength of the signal in training images, as in the paper."""


def train(
    settings: TrainingSettings, device: torch.device | str = "cpu", progress: Progress | None = None
) -> TrainedModel:
    """Train a classifier of noise against signal with binary cross-entropy and Adam.

    Parameters
    ----------
    settings
        Settings of the training.
    device
        Device to train on.
    progress
        Called with (epochs done, all epochs).

    Returns
    -------
    TrainedModel
        The model on the CPU in evaluation mode; its record holds the accuracy on the training images and on as many
        new ones.
    """
    device = usable_device(device)
    rng = np.random.default_rng(settings.seed)
    images, labels = _labelled_images(rng, settings)
    model = fit_classifier(
        settings.model_config(),
        images,
        labels,
        optimizer=partial(torch.optim.Adam, lr=settings.learning_rate),
        rng=rng,
        seed=settings.seed,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        device=device,
        progress=progress,
    )
    held_out = _labelled_images(rng, settings)
    record = {
        "command": settings.command(),
        "settings": asdict(settings),
        "accuracy": {
            "training": accuracy_of(model, images, labels),
            "held_out": accuracy_of(model, *held_out),
            "images_each": len(images),
        },
        "parameters": parameters_of(model),
        "device": device.type,
        "versions": versions(),
    }
    return TrainedModel(model=model.cpu(), record=record)


def _labelled_images(rng: np.random.Generator, settings: TrainingSettings) -> tuple[Tensor, Tensor]:
    """Draw images (2m, 1, d, d) and labels (2m,), float32: m images of noise, then m with a signal."""
    count, size = settings.images_per_class, settings.image_size
    null = null_images(rng, count, size)
    signal, _ = signal_images(rng, count, size, TRAINING_DELTA)
    images = torch.from_numpy(np.concatenate([null, signal])).float().unsqueeze(1)
    return images, torch.cat([torch.zeros(count), torch.ones(count)])
