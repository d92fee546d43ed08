"""From images to raw attention scores on the patch grid."""

from attentest.attention.score_function import MOST_TOGETHER, ScoreFunction
from attentest.attention.vit import ViTScores
from attentest.attention.vit_directory import load_vit

__all__ = ["MOST_TOGETHER", "ScoreFunction", "ViTScores", "load_vit"]
