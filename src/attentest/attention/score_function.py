"""What the rest of attentest asks of a model: raw scores, nothing else."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

MOST_TOGETHER = 10**9
"""No batch is larger than this on purpose."""


@runtime_checkable
class ScoreFunction(Protocol):
    """Raw attention scores of images: smooth in the pixels, before upsampling and normalisation."""

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """The (C, H, W) of the images it takes."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""

    @property
    def batch_size(self) -> int:
        """How many images it computes best together, within its memory budget."""

    def __call__(self, images: Tensor) -> Tensor:
        """Return scores (m, gh, gw) of images (m, C, H, W), float64, each independent of the others."""


@runtime_checkable
class RoughScoreFunction(ScoreFunction, Protocol):
    """A score function that can also be had less accurate, and perhaps faster."""

    @property
    def rough_is_faster(self) -> bool:
        """Whether that is worth it."""

    def rough(self, images: Tensor) -> Tensor:
        """Return scores as calling it does, float64, but computed with less precision."""
