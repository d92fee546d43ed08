"""The training of the classifiers of noise against signal that are bundled, and of those of the paper."""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np
import torch
from torch import Tensor

from attentest.attention.device import usable_device
from attentest.progress import Progress
from attentest.runs.records import versions
from attentest.simulation.images import null_images, signal_images
from attentest.training.bundled import TrainingSettings
from attentest.training.classifier import TrainedModel, accuracy_of, classifier_config, fit_classifier

TRAINING_DELTA = (1.0, 4.0)  # range of the strength of the signal in training images, as in the paper
SERIES_SHARE = 10  # a series has a signal in a tenth of it, an image in a square of a third of its side


def train(
    settings: TrainingSettings, device: torch.device | str = "cpu", progress: Progress | None = None
) -> TrainedModel:
    """Train a classifier of noise against signal with binary cross-entropy and Adam, and report the epochs done.

    The model that is returned is on the CPU in evaluation mode; its record holds the accuracy on the training images
    and on as many new ones.
    """
    device = usable_device(device)
    rng = np.random.default_rng(settings.seed)
    images, labels = _labelled_images(rng, settings)
    model = fit_classifier(
        classifier_config(settings.architecture, settings.image_size, settings.dropout, settings.axes, settings.series),
        images,
        labels,
        settings,
        optimizer=torch.optim.Adam,
        rng=rng,
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
        "parameters": model.num_parameters(),
        "device": device.type,
        "versions": versions(),
    }
    return TrainedModel(model=model.cpu(), record=record)


def _labelled_images(rng: np.random.Generator, settings: TrainingSettings) -> tuple[Tensor, Tensor]:
    """Draw images (2m, 1, *axes) and labels (2m,), float32: m images of noise, then m with a signal."""
    count, size, axes = settings.images_per_class, settings.image_size, settings.axes
    null = null_images(rng, count, size, axes=axes)
    # Larger squares are as visible as those of 16 x 16 pixels if they are less bright.
    factor = 1.0 if axes == 2 or settings.series else math.sqrt(25 / (size // 3) ** axes)
    low, high = (delta * factor for delta in TRAINING_DELTA)
    signal, _ = signal_images(rng, count, size, (low, high), axes=axes, share=SERIES_SHARE if settings.series else 3)
    images = torch.from_numpy(np.concatenate([null, signal])).float().unsqueeze(1)
    return images, torch.cat([torch.zeros(count), torch.ones(count)])
