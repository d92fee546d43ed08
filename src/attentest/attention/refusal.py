"""Errors for models that cannot be read: what the model is, why it cannot be read, and what to do instead."""

from __future__ import annotations

from torch import nn

from attentest.attention.model_library import readable_models
from attentest.errors import ModelError

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


def refusal(model: nn.Module) -> ModelError:
    """Return the error for a live module that no library recognises."""
    config = getattr(model, "config", None)
    kind = str(getattr(config, "model_type", None) or type(model).__name__)
    return ModelError(f"the model is of type {kind!r}, {_reason(kind)}: {_what_to_do()}")


def refusal_of_type(kind: object, where: str) -> ModelError:
    """Return the error for a saved model of a type that is not read."""
    return ModelError(f"the model {where} is of type {kind!r}, {_reason(str(kind))}: {_what_to_do()}")


def _reason(kind: str) -> str:
    name = kind.lower().replace("-", "_")
    for reason, beginnings in REASONS.items():
        if any(name.startswith(beginning) or f"_{beginning}" in name for beginning in beginnings):
            return reason
    return "which attentest does not know"


def _what_to_do() -> str:
    return (
        f"give one of these: {readable_models()}, or a function from images to scores: "
        "AttentionTest(function, image_shape=...)."
    )
