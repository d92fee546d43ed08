"""Small models and problems whose answers are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import ViTConfig, ViTForImageClassification

from attentest import AttentionTest
from attentest.contrast.contrast import labelled_components
from attentest.region.rule import TIE
from attentest.search import Combination, GridSearch, SearchProblem
from truncated import normal

COARSE = GridSearch(step=Combination(fine=1e-3, coarse=5e-2))
"""The paper's combination of steps, coarser than the paper's: it needs no derivatives, and few evaluations."""


def tiny_vit(image_size: int = 8, patch_size: int = 2, channels: int = 1, seed: int = 0) -> ViTForImageClassification:
    """A two-layer ViT with random weights, sharp enough for its attention to move with the image."""
    config = ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=image_size,
        patch_size=patch_size,
        num_channels=channels,
        num_labels=1,
        initializer_range=0.5,
        hidden_dropout_prob=0.3,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ViTForImageClassification(config).eval()


def image_of_components(test: AttentionTest, components: int) -> NDArray[np.float64]:
    """The first of some random images whose region has so many components: which one is, depends on torch's numbers."""
    images = (np.random.default_rng(seed).normal(size=(8, 8)) for seed in range(2, 500))
    return next(image for image in images if labelled_components(test.attention_region(image)[1], 1)[1] == components)


class SoftmaxScores:
    """One attention layer on a 2 x 2 image whose keys are the pixels: scores are their softmax."""

    image_shape = (1, 2, 2)
    device = torch.device("cpu")
    batch_size = 64

    def __call__(self, images: Tensor) -> Tensor:
        return torch.softmax(images.flatten(1), dim=1).unflatten(1, (2, 2))


class ConstantScores(SoftmaxScores):
    """A model that attends everywhere alike."""

    def __call__(self, images: Tensor) -> Tensor:
        return torch.full((len(images), 2, 2), 0.25, dtype=torch.float64)


class OverflowingScores(SoftmaxScores):
    """A model that breaks down for large pixel values."""

    def __call__(self, images: Tensor) -> Tensor:
        return super().__call__(images) / (images.abs().amax(dim=(1, 2, 3), keepdim=True)[:, 0] < 5)


class CurveMargins:
    """Margins that are the scores themselves: all must be negative."""

    signs = torch.ones(1, dtype=torch.float64)
    weights = torch.ones(1, 1, dtype=torch.float64)

    def __call__(self, image: Tensor, scores: Tensor) -> Tensor:
        return scores.flatten(1)

    def pixels(self, image: Tensor, scores: Tensor) -> Tensor:
        return scores.flatten(1)

    def extremes(self, image: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
        greatest = pixels.max(dim=1, keepdim=True)
        return greatest.values, greatest.indices

    def inside(self, image: Tensor, scores: Tensor) -> Tensor:
        return (scores.flatten(1) < 0).all(dim=1)


def curve_problem(
    z_obs: list[float], *curves: Callable[[Tensor], Tensor], batch_size: int = 1024, **options: Any
) -> SearchProblem:
    """A problem whose images share the same margins f_i(z), given as functions of a tensor z (m,)."""

    def scores(image: Tensor, z: Tensor) -> Tensor:
        return torch.stack([curve(z) for curve in curves], dim=1).unsqueeze(1)

    return SearchProblem(
        law=normal(*z_obs),
        scores=scores,
        margins=CurveMargins(),
        device=torch.device("cpu"),
        batch_size=batch_size,
        **options,
    )


def negative_set(curve: Callable[[Tensor], Tensor], grid: NDArray[np.float64], outermost: float) -> NDArray[np.float64]:
    """Return the set where a curve is negative, from a grid and bisection; it ends at plus or minus ``outermost``."""
    inside = curve(torch.from_numpy(grid)).numpy() < 0
    change = np.flatnonzero(inside[1:] != inside[:-1])
    lower, upper, was = grid[change], grid[change + 1], inside[change]
    for _ in range(60):
        middle = (lower + upper) / 2
        same = (curve(torch.from_numpy(middle)).numpy() < 0) == was
        lower, upper = np.where(same, middle, lower), np.where(same, upper, middle)
    ends = np.r_[[-outermost] * int(inside[0]), lower, [outermost] * int(inside[-1])]
    return ends.reshape(-1, 2)


def softmax_boundary(image: NDArray[np.float64], tau: float) -> tuple[float, float]:
    """Return z_obs and the left end of Z = (left, inf) for ``SoftmaxScores`` and unit noise.

    Valid for an image (2, 2) whose region is its brightest pixel alone. Along the line that pixel rises by
    b_0 dz while the others fall together, so with x the sorted values the second brightest stays below tau while
    (exp(x_2 - x_min) - 1) / (exp(x_1 - x_min + c dz) - 1) < tau.
    """
    x = np.sort(image.ravel())[::-1]
    eta = np.array([1.0, -1 / 3, -1 / 3, -1 / 3])
    scale = np.sqrt(eta @ eta)
    c = (eta[0] - eta[1]) / scale
    z_obs = float(eta @ x / scale)
    shift = (np.log1p(np.expm1(x[1] - x[3]) / (tau + TIE)) - (x[0] - x[3])) / c
    return z_obs, z_obs + float(shift)
