"""The paper's classifiers (appendix C.2): their architectures, training and files."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, dropout, pad
from torch.optim.lr_scheduler import LambdaLR

from attentest.attention.device import warm_up
from attentest.attention.model_files import quiet_transformers
from attentest.attention.stored_vit import ViTModel, ViTSettings
from attentest.errors import InputError
from attentest.files import make_directory, sync_directory
from attentest.progress import Progress
from attentest.training.bundled import ARCHITECTURES, check_target, patch_size_of

if TYPE_CHECKING:
    from transformers import ViTConfig, ViTForImageClassification


RECORD_FILE = "training.json"
PREPROCESSING_FILE = "preprocessor_config.json"
EVALUATION_BATCH = 256

INITIAL_DEVIATION = 0.02  # standard deviation of initial weights, that of transformers

Augmentation = Callable[[Tensor, np.random.Generator], Tensor]
"""From inputs (m, 1, *axes) to augmented ones (m, 1, *axes), in the same order."""


@dataclass(frozen=True, kw_only=True)
class PlainSettings(ViTSettings):
    """Settings of a classifier of signals or volumes."""

    hidden_dropout_prob: float = 0.0


class PlainClassifier(torch.nn.Module):
    """A classifier of signals or volumes, which transformers does not have, with the methods of its classifiers."""

    def __init__(self, config: PlainSettings) -> None:
        super().__init__()
        self.config = config
        self.vit = ViTModel(config)
        self.classifier = torch.nn.Linear(config.hidden_size, 1)
        for name, weights in self.named_parameters():
            if weights.ndim > 1:
                torch.nn.init.trunc_normal_(weights, std=INITIAL_DEVIATION)
            else:
                torch.nn.init.constant_(weights, float("norm" in name and name.endswith("weight")))
        for layer in self.vit.layers:
            parts: Any = layer.attention["o_proj"], layer.mlp["fc2"]  # type: ignore[index]
            for part in parts:
                part.register_forward_hook(self._dropped)

    def _dropped(self, _: Any, __: Any, output: Tensor) -> Tensor:
        return dropout(output, self.config.hidden_dropout_prob, self.training)

    def forward(self, pixel_values: Tensor) -> SimpleNamespace:
        """Return the logits (m, 1) of inputs (m, C, *axes)."""
        return SimpleNamespace(logits=self.classifier(self.vit(pixel_values)[:, 0]))

    @property
    def device(self) -> torch.device:
        """The device it computes on."""
        return self.classifier.weight.device

    def num_parameters(self) -> int:
        """Return the number of parameters."""
        return sum(weights.numel() for weights in self.parameters())

    def save_pretrained(self, directory: Path) -> None:
        """Write weights and configuration as the classifiers of transformers do."""
        make_directory(directory)
        save_file(self.state_dict(), directory / "model.safetensors", {"format": "pt"})
        _write_json(directory / "config.json", asdict(self.config))


def classifier_config(
    architecture: str, image_size: int, dropped: float, axes: int = 2, series: bool = False
) -> ViTConfig | PlainSettings:
    """Return the configuration of a classifier, for images that of Hugging Face: one channel, one logit.

    The side of the images is a multiple of `patch_size_of` it. ``dropped`` is the dropout of the hidden layers in
    training; attention weights are never dropped. The patches of a series overlap by half, as in the authors' models.
    """
    shape, patch_size = ARCHITECTURES[architecture], patch_size_of(image_size, axes)
    common: dict[str, Any] = {
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "intermediate_size": 4 * shape.hidden,
        "hidden_act": "gelu",
        "hidden_dropout_prob": dropped,
        "layer_norm_eps": 1e-6,
        "num_channels": 1,
    }
    if axes != 2:
        # Where patches overlap by half, each has a half for itself and reaches a quarter beyond it on either side.
        side, margin = (patch_size // 2, patch_size // 4) if series else (patch_size, 0)
        return PlainSettings(**common, image_size=(image_size,) * axes, patch_size=(side,) * axes, patch_margin=margin)
    from transformers import ViTConfig

    return ViTConfig(
        **common, attention_probs_dropout_prob=0.0, image_size=image_size, patch_size=patch_size, num_labels=1
    )


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """A trained classifier and the record of its training."""

    model: ViTForImageClassification | PlainClassifier  # on the CPU, in evaluation mode
    record: Mapping[str, Any]  # settings of the training, accuracy and versions, JSON-ready
    preprocessing: Mapping[str, Any] | None = None  # its preprocessor_config.json; None if it takes images unchanged

    def save(self, directory: Path) -> None:
        """Write weights, configuration, preprocessing and record to a new or empty directory, or nothing at all."""
        check_target(directory)
        directory = directory.resolve()
        make_directory(directory.parent)
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
        sync_directory(directory.parent)


def save_or_rescue(trained: TrainedModel, directory: Path) -> None:
    """Save a model; if that fails, save it in a temporary directory that the error names, so that it is not lost."""
    try:
        trained.save(directory)
    except (OSError, InputError) as error:
        rescue = Path(tempfile.mkdtemp(prefix="attentest-")) / directory.name
        trained.save(rescue)
        raise InputError(f"{directory} cannot be written ({error}); the trained model is in {rescue}.") from None


def set_gradients(model: Any, inputs: Tensor, labels: Tensor) -> None:
    """Set the gradients of a model to those of its binary cross-entropy on inputs (b, 1, *axes) and labels (b,)."""
    model.zero_grad()
    logits = model(pixel_values=inputs).logits[:, 0]
    binary_cross_entropy_with_logits(logits, labels).backward()


Captured: TypeAlias = tuple[torch.cuda.CUDAGraph, tuple[Tensor, Tensor], list[Tensor | None]]
"""A pass as a graph, the inputs and labels it reads a batch from, and the gradients it writes."""


class GraphedGradients:
    """Does the same for a model on a GPU by a CUDA graph for each size of a batch.

    A pass of a small model has about a thousand short operations: starting them one by one takes several times as long
    as running them.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._captured: dict[int, Captured] = {}

    def __call__(self, inputs: Tensor, labels: Tensor) -> None:
        """Set the gradients to those of a batch."""
        if len(inputs) not in self._captured:
            self._captured[len(inputs)] = self._capture(inputs.clone(), labels.clone())
        graph, (inputs_there, labels_there), gradients = self._captured[len(inputs)]
        inputs_there.copy_(inputs)
        labels_there.copy_(labels)
        graph.replay()
        for parameter, gradient in zip(self._model.parameters(), gradients, strict=True):
            parameter.grad = gradient  # each graph writes to tensors of its own

    def _capture(self, inputs: Tensor, labels: Tensor) -> Captured:
        warm_up(lambda: set_gradients(self._model, inputs, labels), inputs.device)
        self._model.zero_grad()  # so that the graph allocates gradients and does not add to old ones
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            set_gradients(self._model, inputs, labels)
        return graph, (inputs, labels), [parameter.grad for parameter in self._model.parameters()]


def fit_classifier(
    config: ViTConfig | PlainSettings,
    inputs: Tensor,
    labels: Tensor,
    settings: Any,
    *,
    optimizer: Callable[..., torch.optim.Optimizer],
    rng: np.random.Generator,
    device: torch.device,
    schedule: Callable[[float], float] | None = None,
    augment: Augmentation | None = None,
    progress: Progress | None = None,
) -> Any:
    """Fit a new classifier with binary cross-entropy, and return it on the device, in evaluation mode.

    Inputs (m, 1, *axes) and labels (m,), 0 or 1, are float32. The settings are some that `check_fit` has checked, and
    the optimizer is a class of torch's. The order of the batches and the augmentation come from ``rng``, the initial
    weights and the dropout from the seed of the settings. The schedule maps the fraction of the steps done, in [0, 1),
    to the factor of the learning rate, by default one. All images of an epoch are augmented at once on the device, so
    that no batch waits for it. Progress is in epochs.
    """
    if isinstance(config, PlainSettings):
        new_classifier: Any = PlainClassifier
    else:
        from transformers import ViTForImageClassification

        new_classifier = ViTForImageClassification

    # Initial weights and dropout can only be seeded through torch's global generators: fork them, so that the
    # caller's random state does not change.
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(settings.seed)
        model = new_classifier(config).to(device)
        model.train()
        gradients = GraphedGradients(model) if device.type == "cuda" else partial(set_gradients, model)
        steps = optimizer(model.parameters(), lr=settings.learning_rate, fused=device.type == "cuda")
        all_steps = settings.epochs * -(-len(inputs) // settings.batch_size)
        rate = None if schedule is None else LambdaLR(steps, lambda done: schedule(done / all_steps))
        inputs, targets = inputs.to(device), labels.to(device)
        for epoch in range(settings.epochs):
            order = torch.from_numpy(rng.permutation(len(inputs))).to(device)
            augmented = inputs if augment is None else augment(inputs, rng)
            for batch in order.split(settings.batch_size):
                gradients(augmented[batch], targets[batch])
                steps.step()
                if rate is not None:
                    rate.step()
            if progress is not None:
                progress(epoch + 1, settings.epochs)
    return model.eval()


@torch.no_grad()
def logits_of(model: Any, inputs: Tensor) -> Tensor:
    """Return the logits (m,) of inputs (m, 1, *axes), on the CPU, computed on the device of the model."""
    batches = inputs.split(EVALUATION_BATCH)
    return torch.cat([model(pixel_values=batch.to(model.device)).logits[:, 0] for batch in batches]).cpu()


def accuracy_of(model: Any, inputs: Tensor, labels: Tensor) -> float:
    """Return the fraction of inputs (m, 1, *axes) that are classified as their labels (m,), 0 or 1, say."""
    return float(((logits_of(model, inputs) > 0) == (labels > 0.5)).double().mean())


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


AUGMENTATION_WARM_UP = 0.05
"""Fraction of the training over which the learning rate rises, because the first steps of AdamW are too large."""


def augmented(inputs: Tensor, rng: np.random.Generator, *, shift: int, gain: float, black: float) -> Tensor:
    """Return inputs (m, 1, h, w) of which half are mirrored left to right, and all are moved and scaled.

    Random numbers are drawn on the CPU, so that all devices get the same images. An image is moved by at most ``shift``
    pixels in either direction; pixels that come in have the input of a black one. Moves are by whole pixels, because
    interpolation would smooth the noise of the training images alone. Intensities above black are multiplied by a
    number between 1 - gain and 1 + gain.
    """
    count, _, height, width = inputs.shape
    mirrored = rng.random(count) < 0.5
    corner = rng.integers(0, 2 * shift + 1, (count, 2))
    factor = rng.uniform(1 - gain, 1 + gain, (count, 1, 1))
    rows = corner[:, :1] + np.arange(height)
    columns = corner[:, 1:] + np.where(mirrored[:, None], np.arange(width)[::-1], np.arange(width))
    padded = pad(inputs[:, 0] - black, (shift,) * 4)
    images = torch.arange(count, device=inputs.device)
    rows_there, columns_there = (torch.from_numpy(index).to(inputs.device) for index in (rows, columns))
    varied = padded[images[:, None, None], rows_there[:, :, None], columns_there[:, None, :]]
    return (varied * torch.from_numpy(factor).to(inputs) + black).unsqueeze(1)


def warm_up_and_cosine(done: float) -> float:
    """Return the factor of the learning rate after a fraction of the training: a linear rise, then a cosine."""
    if done < AUGMENTATION_WARM_UP:
        return (done + AUGMENTATION_WARM_UP / 10) / (1.1 * AUGMENTATION_WARM_UP)
    return 0.5 * (1 + math.cos(math.pi * (done - AUGMENTATION_WARM_UP) / (1 - AUGMENTATION_WARM_UP)))
