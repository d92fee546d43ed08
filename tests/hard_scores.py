"""Scores on which an error bar can fail: smooth curves with one narrow dip, and tiny ViTs with large weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import ViTConfig, ViTForImageClassification

from attentest.attention import AggregationLike, LayerAttention, Rollout

MAPS: tuple[AggregationLike, ...] = (
    "rollout",
    "last-layer",
    Rollout("max"),
    Rollout("min"),
    Rollout(0),
    LayerAttention(-1, "max"),
    LayerAttention(-1, "min"),
    LayerAttention(0, "max"),
    LayerAttention(-1, "mean"),
)
CONTRASTS = ("background", "neighbourhood:1", "region-mean")
ALTERNATIVES = ("two-sided", "two-sided", "greater", "less")


def curve_with_a_dip(seed: int, least: float = 0.1, most: float = 0.3) -> tuple[float, Callable[[Tensor], Tensor]]:
    """Return z_obs and a margin that is smooth but for a bump of this standard deviation within 4 of z_obs.

    The bump is a gap in the set, or an island in what is outside it.
    """
    rng = np.random.default_rng([161, seed])
    z_obs = float(rng.normal(scale=2) if rng.random() < 0.7 else rng.uniform(-6, 6))
    kind = int(rng.integers(4))
    deviation = float(rng.uniform(least, most))
    place = z_obs + float(rng.uniform(-4, 4))
    depth, excess = 10 ** rng.uniform(-1.5, 0.5), 10 ** rng.uniform(-1, 1)
    slope, frequency, phase, amplitude = (
        rng.normal(scale=0.3),
        rng.uniform(0.1, 1),
        rng.uniform(0, 6.3),
        rng.uniform(0, 2),
    )
    height = depth * (1 + excess) if rng.random() < 0.75 else -(depth * (1 + excess) + amplitude)

    def smooth(z: Tensor) -> Tensor:
        if kind == 0:
            return torch.zeros_like(z)
        if kind == 1:
            return float(slope) * (z - z_obs)
        if kind == 2:
            return float(amplitude) * (torch.sin(frequency * z + phase) - math.sin(frequency * z_obs + phase))
        return float(amplitude) * (torch.sigmoid(z - phase) - 1 / (1 + math.exp(phase - z_obs)))

    def margin(z: Tensor) -> Tensor:
        return smooth(z) - float(depth) + float(height) * torch.exp(-(((z - place) / deviation) ** 2) / 2)

    return z_obs, margin


def sharp_vit(seed: int) -> tuple[ViTForImageClassification, NDArray[np.float64], dict[str, Any]]:
    """Return a tiny ViT with weights up to 200 times the usual ones, an image, and the settings of a test.

    The weights are NumPy's, so that they are the same on every machine. Every fifth model is a milder one.
    """
    rng = np.random.default_rng([16, seed])
    scale = float(rng.uniform(1, 4)) if seed % 5 else float(rng.uniform(0.5, 1))
    side = int(rng.choice([4, 6, 8]))
    config = ViTConfig(
        hidden_size=16,
        num_hidden_layers=int(rng.integers(1, 4)),
        num_attention_heads=int(rng.choice([1, 2, 4])),
        intermediate_size=32,
        image_size=side,
        patch_size=2,
        num_channels=1,
        num_labels=1,
        hidden_act=str(rng.choice(["gelu", "relu"])),
    )
    model = ViTForImageClassification(config).eval()
    weights = np.random.default_rng([17, seed])
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if parameter.ndim >= 2:
                drawn = scale * np.clip(weights.standard_normal(parameter.shape), -2, 2)
                parameter.copy_(torch.from_numpy(drawn))
            else:
                parameter.fill_(1.0 if "layernorm" in name and name.endswith("weight") else 0.0)
    image = rng.normal(size=(side, side)) + (0 if rng.random() < 0.5 else rng.normal())
    if rng.random() < 0.4:
        image[: side // 2, : side // 2] += rng.uniform(0, 3)
    settings = {
        "noise": 1.0,
        "attention": MAPS[seed % len(MAPS)],
        "threshold": float(rng.uniform(0.05, 0.95)),
        "contrast": CONTRASTS[int(rng.integers(3))],
        "alternative": ALTERNATIVES[int(rng.integers(4))],
    }
    return model, image, settings
