"""The paper's classifiers (appendix C.2): their architectures, training and files."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from attentest.attention.model_files import quiet_transformers
from attentest.errors import InputError
from attentest.progress import Progress
from attentest.runs.records import versions
from attentest.training.bundled import ARCHITECTURES, check_target, patch_size_of
from attentest.training.gradients import gradients_of

if TYPE_CHECKING:
    from transformers import ViTConfig, ViTForImageClassification


RECORD_FILE = "training.json"
PREPROCESSING_FILE = "preprocessor_config.json"
EVALUATION_BATCH = 256

Augmentation = Callable[[Tensor, np.random.Generator], Tensor]
"""From inputs (m, 1, d, d) to augmented ones (m, 1, d, d), in the same order."""


def classifier_config(architecture: str, image_size: int, dropout: float) -> ViTConfig:
    """Return the Hugging Face configuration of a classifier: one channel, one logit.

    Parameters
    ----------
    architecture
        "small", "base", "large" or "huge".
    image_size
        Side of the images in pixels, a multiple of `patch_size_of` it.
    dropout
        Dropout of the hidden layers in training; attention weights are never dropped.
    """
    from transformers import ViTConfig

    shape = ARCHITECTURES[architecture]
    return ViTConfig(
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.hidden,
        hidden_act="gelu",
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=0.0,
        layer_norm_eps=1e-6,
        image_size=image_size,
        patch_size=patch_size_of(image_size),
        num_channels=1,
        num_labels=1,
    )


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """A trained classifier and the record of its training.

    Parameters
    ----------
    model
        The classifier, on the CPU, in evaluation mode.
    record
        Settings of the training, accuracy and versions, JSON-ready.
    preprocessing
        Content of its ``preprocessor_config.json``; None if the model takes images unchanged.
    """

    model: ViTForImageClassification
    record: Mapping[str, Any]
    preprocessing: Mapping[str, Any] | None = None

    def save(self, directory: Path) -> None:
        """Write weights, configuration, preprocessing and record to a new or empty directory, or nothing at all."""
        check_target(directory)
        directory = directory.resolve()
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".training-") as scratch:
            staging = Path(scratch) / directory.name
            try:
                with quiet_transformers():
                    self.model.save_pretrained(staging)
            except SafetensorError as error:  # raised when the disk is full
                raise OSError(f"the weights cannot be written to {directory.parent}: {error}") from None
            weights = hashlib.sha256((staging / "model.safetensors").read_bytes()).hexdigest()
            _write_json(staging / RECORD_FILE, {**self.record, "weights_sha256": weights})
            if self.preprocessing is not None:
                _write_json(staging / PREPROCESSING_FILE, self.preprocessing)
            if directory.exists():
                directory.rmdir()
            shutil.move(staging, directory)


def save_or_rescue(trained: TrainedModel, directory: Path) -> None:
    """Save a model; if that fails, save it in a temporary directory that the error names, so that it is not lost."""
    try:
        trained.save(directory)
    except (OSError, InputError) as error:
        rescue = Path(tempfile.mkdtemp(prefix="attentest-")) / directory.name
        trained.save(rescue)
        raise InputError(f"{directory} cannot be written ({error}); the trained model is in {rescue}.") from None


def fit_classifier(
    config: ViTConfig,
    inputs: Tensor,
    labels: Tensor,
    *,
    optimizer: Callable[..., torch.optim.Optimizer],
    rng: np.random.Generator,
    seed: int,
    epochs: int,
    batch_size: int,
    device: torch.device,
    schedule: Callable[[float], float] | None = None,
    augment: Augmentation | None = None,
    progress: Progress | None = None,
) -> ViTForImageClassification:
    """Fit a new classifier with binary cross-entropy.

    Parameters
    ----------
    config
        Configuration of the classifier: see `classifier_config`.
    inputs : (m, 1, d, d) float32
        The model's inputs.
    labels : (m,) float32
        0 or 1.
    optimizer
        Returns the optimizer of the parameters it is given; with ``fused=True``, one that updates all of them at once.
    rng
        Source of the order of the batches and of the augmentation.
    seed
        Seed of the initial weights and the dropout.
    epochs, batch_size
        Passes over the images, and images per step.
    device
        Device to train on.
    schedule
        From the fraction of the steps done, in [0, 1), to the factor of the learning rate; by default one.
    augment
        Augments the images of an epoch, all at once on the device, so that no batch waits for it.
    progress
        Called with (epochs done, all epochs).

    Returns
    -------
    ViTForImageClassification
        On the device, in evaluation mode.
    """
    from transformers import ViTForImageClassification

    # Initial weights and dropout can only be seeded through torch's global generators: fork them, so that the
    # caller's random state does not change.
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        model = ViTForImageClassification(config).to(device)
        model.train()
        gradients = gradients_of(model)
        steps = optimizer(model.parameters(), fused=device.type == "cuda")
        all_steps = epochs * -(-len(inputs) // batch_size)
        rate = None if schedule is None else LambdaLR(steps, lambda done: schedule(done / all_steps))
        inputs, targets = inputs.to(device), labels.to(device)
        for epoch in range(epochs):
            order = torch.from_numpy(rng.permutation(len(inputs))).to(device)
            augmented = inputs if augment is None else augment(inputs, rng)
            for batch in order.split(batch_size):
                gradients(augmented[batch], targets[batch])
                steps.step()
                if rate is not None:
                    rate.step()
            if progress is not None:
                progress(epoch + 1, epochs)
    return model.eval()


@torch.no_grad()
def logits_of(model: ViTForImageClassification, inputs: Tensor) -> Tensor:
    """Return the logits (m,) of inputs (m, 1, d, d), on the CPU, computed on the device of the model."""
    batches = inputs.split(EVALUATION_BATCH)
    return torch.cat([model(pixel_values=batch.to(model.device)).logits[:, 0] for batch in batches]).cpu()


def accuracy_of(model: ViTForImageClassification, inputs: Tensor, labels: Tensor) -> float:
    """Return the fraction of inputs (m, 1, d, d) that are classified as their labels (m,), 0 or 1, say."""
    return float(((logits_of(model, inputs) > 0) == (labels > 0.5)).double().mean())


def parameters_of(model: ViTForImageClassification) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def described_machine(device: torch.device) -> dict[str, Any]:
    """Return the name of a device, the number of threads and the versions, JSON-ready."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
        "device_type": device.type,
        "threads": torch.get_num_threads(),
        "versions": versions(),
    }
