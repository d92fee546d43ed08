"""From images to raw attention scores on the patch grid."""

from __future__ import annotations

from typing import Any

import torch

from attentest.attention.aggregation import (
    Aggregation,
    AggregationLike,
    LayerAttention,
    PoolingAttention,
    Rollout,
    scores_from_attentions,
)
from attentest.attention.class_scores import TextRelevance
from attentest.attention.encoder import float64_copy
from attentest.attention.network import CAM, NetworkScores, OutputScores, Residual, Segmentation, check_returns_map
from attentest.attention.other_libraries import TorchTransformer
from attentest.attention.relevance import (
    GradCAM,
    GradientRollout,
    HiResCAM,
    InputGradient,
    IntegratedGradients,
    OutputMap,
    Relevance,
)
from attentest.attention.relevance_scores import RelevanceScores
from attentest.attention.saved_model import SavedModel, load_model
from attentest.attention.score_function import (
    NumpyScores,
    ScoreFunction,
    TorchScores,
    checked_shape,
    function_scores,
    score_properties,
)
from attentest.attention.vit import ViTScores, readable
from attentest.errors import InputError

__all__ = [
    "CAM",
    "Aggregation",
    "AggregationLike",
    "GradCAM",
    "GradientRollout",
    "HiResCAM",
    "InputGradient",
    "IntegratedGradients",
    "LayerAttention",
    "NetworkScores",
    "NumpyScores",
    "OutputScores",
    "PoolingAttention",
    "RelevanceScores",
    "Residual",
    "Rollout",
    "SavedModel",
    "ScoreFunction",
    "Segmentation",
    "TextRelevance",
    "TorchScores",
    "TorchTransformer",
    "ViTScores",
    "load_model",
    "scores_from_attentions",
]


def as_score_function(
    model: Any,
    device: torch.device | str | None,
    batch_size: int | None,
    memory_budget: int | None,
    image_shape: tuple[int, ...] | None,
) -> ScoreFunction:
    """Return a score function unchanged, or that of a NumPy or torch function of images of a shape (C, *axes)."""
    if isinstance(model, ScoreFunction) and not isinstance(model, type):
        if device is not None or batch_size is not None or image_shape is not None:
            raise InputError("device, batch_size and image_shape belong to the score function: set them there.")
        score_properties(model)
        return model
    if image_shape is not None and callable(model) and not isinstance(model, type):
        if isinstance(model, torch.nn.Module):
            model, _ = float64_copy(model, device, type(model).__name__, is_function=True)
            device = next((weight.device for weight in model.parameters()), device)
            check_returns_map(model, checked_shape(image_shape, "image_shape"))
        return function_scores(model, image_shape, device, batch_size=batch_size, memory_budget=memory_budget)
    raise InputError(
        f"model must be a vision transformer, a ScoreFunction or, with image_shape, a NumPy or torch function, "
        f"got {type(model).__name__}: to load a saved model use AttentionTest.from_pretrained."
    )


def check_needs_shape(model: torch.nn.Module, attention: Aggregation | Relevance | OutputMap) -> None:
    """Raise an error for the shape of images of a vision transformer that is read, whose input has one of its own."""
    # A network that holds a transformer may return a map, and the map of a layer by name is that of any network.
    of_network = isinstance(attention, OutputMap) or isinstance(getattr(attention, "layer", None), str)
    if readable(model) and not of_network:
        raise InputError(
            "image_shape is for functions and networks, and the model is a vision transformer, whose input has a "
            "shape of its own: leave image_shape out, or use image_size.",
            "image_shape",
        )
