"""The classifiers of the paper and of its authors' later work on series: bundled, trained, or those they published."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from attentest.errors import InputError
from attentest.progress import LabelledProgress
from attentest.training.bundled import (
    ARCHITECTURES,
    BUNDLED,
    BUNDLED_SERIES,
    FOLDER,
    TrainingSettings,
    bundled_model,
    check_target,
)
from attentest.training.signal_classifier import train

MODELS = ("base8", "small16", "base16", "large16", "huge16", "base32", "base64")
"""Names of the classifiers of images: architecture and side of the images."""

SERIES = "series-"
SERIES_MODELS = tuple(
    SERIES + model for model in ("base128", "small256", "base256", "large256", "huge256", "base512", "base1024")
)
"""Names of the classifiers of series, with their lengths."""

ALL_MODELS = (*MODELS, *SERIES_MODELS)

PUBLISHED = {"base8": "d8", "small16": "d16small", "base16": "d16", "base32": "d32", "base64": "d64"}
"""Directories of the models that the authors published."""


def architecture_of(model: str) -> str:
    """Return the architecture of a model: "base" for "base16" and for "series-base256"."""
    return model.removeprefix(SERIES).rstrip("0123456789")


def side_of(model: str) -> int:
    """Return the side of a model's images in pixels, or the length of its series: 16 for "base16"."""
    return int(model.removeprefix(SERIES).removeprefix(architecture_of(model)))


def axes_of(model: str) -> int:
    """Return the number of axes of a model's images: 1 of series, otherwise 2."""
    return 1 if model.startswith(SERIES) else 2


def size_of(model: str) -> str:
    """Return the size of a model's images as words have it: "16x16", and "256" of series."""
    return "x".join([str(side_of(model))] * axes_of(model))


def model_name(model: str, between: str = " ") -> str:
    """Return a model in words: "base 16x16"."""
    return f"{architecture_of(model)}{between}{size_of(model)}"


def is_bundled(model: str) -> bool:
    """Return whether a model is part of attentest."""
    return model == BUNDLED_SERIES or (architecture_of(model), side_of(model)) in BUNDLED


@dataclass(frozen=True, kw_only=True)
class PaperModel:
    """A model on disk, the SHA-256 of its weights, and its training record (empty for the authors' models)."""

    directory: Path
    sha256: str
    training: dict[str, Any]

    @classmethod
    def read(cls, directory: Path) -> PaperModel:
        """Read what identifies a model; raise an error if its weights do not match its training record."""
        weights, record = directory / "model.safetensors", directory / "training.json"
        try:
            sha256 = hashlib.sha256(weights.read_bytes()).hexdigest()
            training = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
            accuracy = training.get("accuracy", {}) if isinstance(training, dict) else None
            if not isinstance(accuracy, dict) or not all(
                isinstance(value, (int, float)) for value in accuracy.values()
            ):
                raise ValueError(f"{record.name} is not the record of a training")
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(
                f"{directory} holds no complete model ({error}): name a directory that does, or remove this one."
            ) from None
        if training.get("weights_sha256", sha256) != sha256:
            raise InputError(f"{weights} is not the file that {record} was written for: remove the directory.")
        return cls(directory=directory, sha256=sha256, training=training)


@dataclass(frozen=True, kw_only=True)
class ModelFolders:
    """The directories in which models are found."""

    trained: Path  # models that are not bundled; missing ones are trained into it
    published: Path | None = None  # the authors' models, if they are used

    def find(self, model: str, published: bool = False) -> PaperModel:
        """Return a model; raise an error for another architecture or image size than its name says."""
        if published:
            if self.published is None or model not in PUBLISHED:
                raise InputError(f"there is no published model {model}: say where the authors' models are.")
            return _checked(model, self.published / PUBLISHED[model])
        if is_bundled(model) and axes_of(model) == 2:
            return PaperModel.read(bundled_model(side_of(model), architecture_of(model)))
        return _checked(model, (FOLDER if is_bundled(model) else self.trained) / model)

    def missing(self, models: Iterable[str]) -> list[str]:
        """Return the models that have to be trained."""
        return [model for model in models if not is_bundled(model) and not (self.trained / model).exists()]

    def train(self, model: str, device: torch.device | str, progress: LabelledProgress) -> float:
        """Train a model as ``attentest train`` does by default, with seed 0, and return the seconds it took."""
        directory = self.trained / model
        check_target(directory)
        series: dict[str, Any] = {"axes": 1, "series": True, "batch_size": 256} if axes_of(model) == 1 else {}
        settings = TrainingSettings(image_size=side_of(model), architecture=architecture_of(model), **series)
        start = time.perf_counter()
        train(settings, device, lambda done, total: progress(done, total or 0, f"training {model}")).save(directory)
        return time.perf_counter() - start


def _checked(model: str, directory: Path) -> PaperModel:
    saved = PaperModel.read(directory)
    try:
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        kind = {name: config[name] for name in ("image_size", "num_hidden_layers", "hidden_size")}
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"{directory / 'config.json'} does not say what the model is ({error!r}).") from None
    shape = ARCHITECTURES[architecture_of(model)]
    side = side_of(model) if axes_of(model) == 2 else [side_of(model)]
    wanted = {"image_size": side, "num_hidden_layers": shape.layers, "hidden_size": shape.hidden}
    if kind != wanted:
        raise InputError(f"{directory} is no {model}: its configuration has {kind}, but it must have {wanted}.")
    return saved
