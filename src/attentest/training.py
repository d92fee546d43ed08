"""Training the paper's classifiers on its synthetic images (section 4, appendices A.1 and C.2)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import ViTConfig, ViTForImageClassification

from attentest.device import usable_device
from attentest.errors import InputError
from attentest.machine import versions
from attentest.quiet import quiet_transformers
from attentest.synthetic import null_images, signal_images

RECORD_FILE = "training.json"
TRAINING_DELTA = (1.0, 4.0)
EVALUATION_BATCH = 256

Progress = Callable[[float, float], None]


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One row of the paper's table of architectures (appendix C.2)."""

    layers: int
    hidden: int
    heads: int


ARCHITECTURES: Mapping[str, Architecture] = {
    "small": Architecture(layers=4, hidden=32, heads=2),
    "base": Architecture(layers=8, hidden=64, heads=4),
    "large": Architecture(layers=12, hidden=128, heads=8),
    "huge": Architecture(layers=16, hidden=256, heads=16),
}


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """What determines a training run; the defaults are the paper's 16x16 base model.

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
        if self.image_size < 4 or self.image_size % self.patch_size:
            raise InputError(
                f"image_size must be at least 4 and a multiple of the patch size max(2, image_size // 8) "
                f"= {self.patch_size}, got {self.image_size}."
            )
        for name in ("epochs", "batch_size", "images_per_class"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"seed must be at least 0 and below 2^63, got {self.seed}.")
        if not 0 < self.learning_rate <= 1:
            raise InputError(f"learning_rate must lie in (0, 1], got {self.learning_rate}.")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout must lie in [0, 1), got {self.dropout}.")

    @property
    def patch_size(self) -> int:
        """Side of a patch: max(2, image_size // 8), as the paper's own models have it."""
        return max(2, self.image_size // 8)

    def command(self) -> str:
        """Return the command line that repeats this run."""
        options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in asdict(self).items())
        return f"attentest train DIRECTORY {options}"

    def model_config(self) -> ViTConfig:
        """Return the Hugging Face configuration of the classifier: one channel, one logit."""
        shape = ARCHITECTURES[self.architecture]
        return ViTConfig(
            hidden_size=shape.hidden,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            intermediate_size=4 * shape.hidden,
            hidden_act="gelu",
            hidden_dropout_prob=self.dropout,
            attention_probs_dropout_prob=0.0,
            layer_norm_eps=1e-6,
            image_size=self.image_size,
            patch_size=self.patch_size,
            num_channels=1,
            num_labels=1,
        )


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """A trained classifier and the record of how it came to be."""

    model: ViTForImageClassification
    record: Mapping[str, Any]

    def save(self, directory: Path) -> None:
        """Write weights, configuration and record to a new or empty directory, all or nothing."""
        check_target(directory)
        directory = directory.resolve()
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".training-") as scratch:
            staging = Path(scratch) / directory.name
            try:
                with quiet_transformers():
                    self.model.save_pretrained(staging)
            except SafetensorError as error:  # how a full disk shows
                raise OSError(f"the weights cannot be written to {directory.parent}: {error}") from None
            weights = hashlib.sha256((staging / "model.safetensors").read_bytes()).hexdigest()
            record = {**self.record, "weights_sha256": weights}
            (staging / RECORD_FILE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
            if directory.exists():
                directory.rmdir()
            shutil.move(staging, directory)


def check_target(directory: Path) -> None:
    """Refuse a directory that already holds something, before hours of training rather than after."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InputError(f"{directory} already exists and is not an empty directory: name a new one.")
    ancestor = next(parent for parent in directory.resolve().parents if parent.exists())
    if not (ancestor.is_dir() and os.access(ancestor, os.W_OK)):
        raise InputError(f"{directory} cannot be made: {ancestor} is not a directory that can be written to.")


def train(
    settings: TrainingSettings, device: torch.device | str = "cpu", progress: Progress | None = None
) -> TrainedModel:
    """Train a classifier of noise against signal with binary cross-entropy and Adam.

    Parameters
    ----------
    settings
        What to train.
    device
        Where to train.
    progress
        Called with (epochs done, epochs in all).

    Returns
    -------
    TrainedModel
        The model on the CPU in evaluation mode; accuracy is measured on as many new images.
    """
    device = usable_device(device)
    rng = np.random.default_rng(settings.seed)
    images, labels = _labelled_images(rng, settings)
    # Initial weights and dropout can only be seeded through torch's own generators: fork them, so that the
    # caller's random state is as it was.
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(settings.seed)
        model = ViTForImageClassification(settings.model_config()).to(device)
        model.train()
        optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
        loss_function = torch.nn.BCEWithLogitsLoss()
        inputs, targets = images.to(device), labels.to(device)
        for epoch in range(settings.epochs):
            order = torch.from_numpy(rng.permutation(len(inputs))).to(device)
            for batch in order.split(settings.batch_size):
                optimizer.zero_grad()
                logits = model(pixel_values=inputs[batch]).logits[:, 0]
                loss = loss_function(logits, targets[batch])
                loss.backward()
                optimizer.step()
            if progress is not None:
                progress(epoch + 1, settings.epochs)
    model.eval()
    held_out = _labelled_images(rng, settings)
    record = {
        "command": settings.command(),
        "settings": asdict(settings),
        "accuracy": {
            "training": _accuracy(model, images, labels),
            "held_out": _accuracy(model, *held_out),
            "images_each": len(images),
        },
        "parameters": sum(p.numel() for p in model.parameters()),
        "device": device.type,
        "versions": versions(),
    }
    return TrainedModel(model=model.cpu(), record=record)


def _labelled_images(rng: np.random.Generator, settings: TrainingSettings) -> tuple[Tensor, Tensor]:
    """Draw images (2m, 1, d, d) and labels (2m,), float32: m of noise, then m with a signal."""
    count, size = settings.images_per_class, settings.image_size
    null = null_images(rng, count, size)
    signal, _ = signal_images(rng, count, size, TRAINING_DELTA)
    images = torch.from_numpy(np.concatenate([null, signal])).float().unsqueeze(1)
    return images, torch.cat([torch.zeros(count), torch.ones(count)])


@torch.no_grad()
def _accuracy(model: ViTForImageClassification, images: Tensor, labels: Tensor) -> float:
    logits = torch.cat(
        [model(pixel_values=b.to(model.device)).logits[:, 0].cpu() for b in images.split(EVALUATION_BATCH)]
    )
    return float(((logits > 0) == (labels > 0.5)).double().mean())
