"""From images to raw attention scores on the patch grid."""

from attentest.attention.numpy_scores import NumpyFunction, NumpyScores
from attentest.attention.score_function import MOST_TOGETHER, RoughScoreFunction, ScoreFunction
from attentest.attention.vit import ViTScores
from attentest.attention.vit_directory import load_vit

__all__ = [
    "MOST_TOGETHER",
    "NumpyFunction",
    "NumpyScores",
    "RoughScoreFunction",
    "ScoreFunction",
    "ViTScores",
    "load_vit",
]
