"""Training the paper's classifiers on its synthetic images (section 4, appendices A.1 and C.2)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor
from transformers import ViTConfig

from attentest.attention.device import usable_device
from attentest.checks import whole_number
from attentest.errors import InputError
from attentest.simulation.synthetic_images import null_images, signal_images
from attentest.training.classifier import (
    ARCHITECTURES,
    Progress,
    TrainedModel,
    accuracy_of,
    classifier_config,
    fit_classifier,
    parameters_of,
    patch_size_of,
)
from attentest.training.provenance import versions

TRAINING_DELTA = (1.0, 4.0)
"""Range of the strength of the signal in training images, as in the paper."""

LARGEST_SIDE = 1024
"""Largest side of training images in pixels; the paper's have 64 at most."""

MOST_VALUES = 2**28
"""Most pixels of all training images together, which are drawn at once: 2 GiB of float64."""


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """The settings of a training run; the defaults are the paper's 16x16 base model.

    Parameters
    ----------
    image_size
        Side of the images in pixels. The patch size is max(2, image_size // 8) and must divide it.
    architecture
        "small", "base", "large" or "huge".
    seed
        Seeds the images, the initial weights, the order of the batches and the dropout.
    images_per_class
        Number of training images without and with a signal, each.
    """

    image_size: int = 16
    architecture: str = "base"
    seed: int = 0
    epochs: int = 100
    batch_size: int = 32
    learning_rate: float = 1e-4
    dropout: float = 0.1
    images_per_class: int = 1000

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            raise InputError(f"architecture must be one of {', '.join(ARCHITECTURES)}, got {self.architecture!r}.")
        bounds = {
            "image_size": (4, LARGEST_SIDE),
            "epochs": (1, 10**6),
            "batch_size": (1, 10**6),
            "images_per_class": (1, 10**6),
            "seed": (0, 2**63 - 1),
        }
        for name, (least, most) in bounds.items():
            object.__setattr__(self, name, whole_number(getattr(self, name), name, least, most))
        if self.image_size % self.patch_size:
            raise InputError(
                f"image_size must be a multiple of the patch size max(2, image_size // 8) "
                f"= {self.patch_size}, got {self.image_size}."
            )
        values = 2 * self.images_per_class * self.image_size**2
        if values > MOST_VALUES:
            raise InputError(
                f"images_per_class is {self.images_per_class} and image_size {self.image_size}, which makes {values} "
                f"pixels in all, but at most {MOST_VALUES} are drawn: use fewer or smaller images."
            )
        if not 0 < self.learning_rate <= 1:
            raise InputError(f"learning_rate must lie in (0, 1], got {self.learning_rate}.")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout must lie in [0, 1), got {self.dropout}.")

    @property
    def patch_size(self) -> int:
        """Side of a patch: max(2, image_size // 8), as in the paper's own models."""
        return patch_size_of(self.image_size)

    def command(self) -> str:
        """Return the command line that repeats this run."""
        options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in asdict(self).items())
        return f"attentest train DIRECTORY {options}"

    def model_config(self) -> ViTConfig:
        """Return the Hugging Face configuration of the classifier: one channel, one logit."""
        return classifier_config(self.architecture, self.image_size, self.dropout)


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
