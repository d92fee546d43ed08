"""Saying of a model that cannot be read what it is and what to do."""

from __future__ import annotations

from torch import nn

from attentest.attention.huggingface import FAMILIES
from attentest.errors import ModelError

READ = (
    "ViT, DeiT, BEiT, DINOv2 with and without registers, DINOv3 ViT, ViT-MAE, CLIP vision and SigLIP vision of "
    "Hugging Face, and the ViTs of timm and torchvision"
)

WINDOWED = ("swin", "vitdet", "sam", "dinat", "nat", "maxvit", "maxxvit", "davit", "gcvit", "nest", "twins", "donut")
HIERARCHICAL = ("hiera", "pvt", "cvt", "segformer", "levit", "mvit", "pit", "coat", "crossvit", "mobilevit", "glpn")
ELSEWHERE = ("xcit", "cait", "volo", "focalnet", "swiftformer", "efficientformer", "poolformer", "perceiver", "beit3")
CONVOLUTIONAL = (
    "resnet",
    "convnext",
    "regnet",
    "efficientnet",
    "mobilenet",
    "densenet",
    "vgg",
    "bit",
    "resnext",
    "mixer",
)


def refusal(model: nn.Module) -> ModelError:
    """Return the error for a live module that no adapter reads."""
    config = getattr(model, "config", None)
    kind = getattr(config, "model_type", None) or type(model).__name__
    return ModelError(f"the model is of type {str(kind)!r}, {reason(str(kind))}: {WHAT_TO_DO}")


def refusal_of_type(kind: object, where: str) -> ModelError:
    """Return the error for a saved model of a type that no adapter reads."""
    return ModelError(f"the model {where} is of type {kind!r}, {reason(str(kind))}: {WHAT_TO_DO}")


def reason(kind: str) -> str:
    """Return why a kind of model cannot be read, as far as its name tells."""
    name = kind.lower().replace("-", "_")
    if _named(name, WINDOWED):
        return "which attends within windows, so no layer's attention spans the image"
    if _named(name, HIERARCHICAL):
        return "which is hierarchical, so its layers do not share one grid of patches"
    if _named(name, CONVOLUTIONAL):
        return "which has no self-attention over patches"
    if _named(name, ELSEWHERE):
        return "whose attention is not a plain softmax over all patches"
    return "which attentest does not know"


def known_types() -> dict[str, str]:
    """Return the class of transformers that holds the encoder of each model type."""
    return {model_type: name for name, family in FAMILIES.items() for model_type in family.model_types}


def _named(name: str, kinds: tuple[str, ...]) -> bool:
    return any(name.startswith(kind) or f"_{kind}" in name for kind in kinds)


WHAT_TO_DO = f"give one of {READ}, or a function from images to scores: AttentionTest(function, image_shape=...)."
