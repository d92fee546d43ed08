"""From images to raw attention scores on the patch grid."""

from attentest.attention.aggregation import (
    Aggregation,
    AggregationLike,
    LayerAttention,
    Rollout,
    scores_from_attentions,
)
from attentest.attention.conversion import as_score_function, model_settings
from attentest.attention.functions import NumpyFunction, NumpyScores, TorchFunction, TorchScores, function_scores
from attentest.attention.saved_model import SavedModel, load_model
from attentest.attention.score_function import RoughScoreFunction, ScoreFunction, ScoreProperties, score_properties
from attentest.attention.vit import ViTScores, readable

__all__ = [
    "Aggregation",
    "AggregationLike",
    "LayerAttention",
    "NumpyFunction",
    "NumpyScores",
    "Rollout",
    "RoughScoreFunction",
    "SavedModel",
    "ScoreFunction",
    "ScoreProperties",
    "TorchFunction",
    "TorchScores",
    "ViTScores",
    "as_score_function",
    "function_scores",
    "load_model",
    "model_settings",
    "readable",
    "score_properties",
    "scores_from_attentions",
]
