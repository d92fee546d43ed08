"""Libraries of vision transformers: how their models are recognised and read, and errors for those that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from attentest.attention.encoder import Encoder
from attentest.errors import ModelError
from attentest.registry import MODEL_LIBRARIES


@dataclass(frozen=True, kw_only=True)
class ModelLibrary:
    """How the models of one library are recognised and read.

    Parameters
    ----------
    models
        The models that are read, as error messages list them, such as ("ViT", "DeiT").
    package
        Name of the library's package. Its modules pass images unchanged to the vision transformer within them.
    recognises
        Returns whether a module is a vision transformer of this library that can be read.
    read
        Called with such a module, the size of the input (a side, (height, width), or None for that of training), the
        device (None: where the model is) and whether the module may be changed instead of copied; returns an encoder
        that computes in float64.
    """

    models: tuple[str, ...]
    package: str
    recognises: Callable[[nn.Module], bool]
    read: Callable[[nn.Module, Any, torch.device | str | None, bool], Encoder]


def model_libraries() -> dict[str, ModelLibrary]:
    """Return the registered libraries by name."""
    return {name: part.load() for name, part in MODEL_LIBRARIES.items()}


def readable_models() -> str:
    """Return the models that can be read as error messages list them: "ViT or DeiT of Hugging Face, ViT of timm"."""
    listed = []
    for name, library in model_libraries().items():
        *most, last = library.models
        listed.append(f"{', '.join(most)} or {last} of {name}" if most else f"{last} of {name}")
    return ", ".join(listed)


REASONS = {
    "which attends within windows, so no layer's attention spans the image": (
        "swin", "vitdet", "sam", "dinat", "nat", "maxvit", "maxxvit", "davit", "gcvit", "nest", "twins", "donut",
    ),
    "which is hierarchical, so its layers do not share one grid of patches": (
        "hiera", "pvt", "cvt", "segformer", "levit", "mvit", "pit", "coat", "crossvit", "mobilevit", "glpn",
    ),
    "which has no self-attention over patches": (
        "resnet", "convnext", "regnet", "efficientnet", "mobilenet", "densenet", "vgg", "bit", "resnext", "mixer",
    ),
    "whose attention is not a plain softmax over all patches": (
        "xcit", "cait", "volo", "focalnet", "swiftformer", "efficientformer", "poolformer", "perceiver", "beit3",
    ),
}  # fmt: skip
"""Why known types of model cannot be read, by the beginnings of their names or of words in them."""


def refusal(kind: object, model: str) -> ModelError:
    """Return the error for a model, as a message calls it, of a type that no library reads."""
    name = str(kind).lower().replace("-", "_")
    reasons = (
        reason
        for reason, beginnings in REASONS.items()
        if any(name.startswith(beginning) or f"_{beginning}" in name for beginning in beginnings)
    )
    return ModelError(
        f"{model} is of type {kind!r}, {next(reasons, 'which attentest does not know')}: give one of these: "
        f"{readable_models()}, or a function from images to scores: AttentionTest(function, image_shape=...)."
    )
