"""Steps of a training: variations of images and learning rate, and gradients launched as a whole on a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from attentest.attention.cuda_graph import warm_up

if TYPE_CHECKING:
    from transformers import ViTForImageClassification

Gradients = Callable[[Tensor, Tensor], None]
"""Sets the gradients of a model to those of its loss on inputs (b, 1, d, d) and labels (b,)."""


def gradients_of(model: ViTForImageClassification) -> Gradients:
    """Return what computes the gradients of the binary cross-entropy of a model in training."""
    return GraphedGradients(model) if model.device.type == "cuda" else EagerGradients(model)


class EagerGradients:
    """Computes gradients operation by operation."""

    def __init__(self, model: ViTForImageClassification) -> None:
        self._model = model

    def __call__(self, inputs: Tensor, labels: Tensor) -> None:
        """Set the gradients to those of a batch."""
        self._model.zero_grad()
        logits = self._model(pixel_values=inputs).logits[:, 0]
        binary_cross_entropy_with_logits(logits, labels).backward()


class _Captured(NamedTuple):
    """A pass as a graph, the tensors it reads a batch from, and those it writes the gradients to."""

    graph: torch.cuda.CUDAGraph
    inputs: Tensor
    labels: Tensor
    gradients: list[Tensor | None]


class GraphedGradients:
    """Computes gradients by a CUDA graph for each size of a batch.

    A pass of a small model has about a thousand short operations: starting them one by one takes several times as long
    as running them.
    """

    def __init__(self, model: ViTForImageClassification) -> None:
        self._model = model
        self._compute = EagerGradients(model)
        self._captured: dict[int, _Captured] = {}

    def __call__(self, inputs: Tensor, labels: Tensor) -> None:
        """Set the gradients to those of a batch."""
        if len(inputs) not in self._captured:
            self._captured[len(inputs)] = self._capture(inputs.clone(), labels.clone())
        captured = self._captured[len(inputs)]
        captured.inputs.copy_(inputs)
        captured.labels.copy_(labels)
        captured.graph.replay()
        for parameter, gradient in zip(self._model.parameters(), captured.gradients, strict=True):
            parameter.grad = gradient  # each graph writes to tensors of its own

    def _capture(self, inputs: Tensor, labels: Tensor) -> _Captured:
        warm_up(lambda: self._compute(inputs, labels), inputs.device)
        self._model.zero_grad()  # so that the graph allocates gradients and does not add to old ones
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._compute(inputs, labels)
        return _Captured(graph, inputs, labels, [parameter.grad for parameter in self._model.parameters()])


AUGMENTATION_WARM_UP = 0.05
"""Fraction of the training over which the learning rate rises, because the first steps of AdamW are too large."""


def augmented(inputs: Tensor, rng: np.random.Generator, *, shift: int, gain: float, black: float) -> Tensor:
    """Return inputs (m, 1, h, w) of which half are mirrored left to right, and all are moved and scaled.

    Parameters
    ----------
    inputs : (m, 1, h, w)
        Input of a model.
    rng
        Draws on the CPU, so that all devices get the same images.
    shift
        Largest number of pixels that an image is moved by in either direction; pixels that come in are black. Moves are
        by whole pixels, because interpolation would smooth the noise of the training images alone.
    gain
        Intensities above black are multiplied by a number between 1 - gain and 1 + gain.
    black
        The model's input for a black pixel.
    """
    count, _, height, width = inputs.shape
    mirrored = rng.random(count) < 0.5
    corner = rng.integers(0, 2 * shift + 1, (count, 2))
    factor = rng.uniform(1 - gain, 1 + gain, (count, 1, 1))
    rows = corner[:, :1] + np.arange(height)
    columns = corner[:, 1:] + np.where(mirrored[:, None], np.arange(width)[::-1], np.arange(width))
    padded = torch.nn.functional.pad(inputs[:, 0] - black, (shift,) * 4)
    images = torch.arange(count, device=inputs.device)
    rows_there, columns_there = (torch.from_numpy(index).to(inputs.device) for index in (rows, columns))
    varied = padded[images[:, None, None], rows_there[:, :, None], columns_there[:, None, :]]
    return (varied * torch.from_numpy(factor).to(inputs) + black).unsqueeze(1)


def warm_up_and_cosine(done: float) -> float:
    """Return the factor of the learning rate after a fraction of the training: a linear rise, then a cosine."""
    if done < AUGMENTATION_WARM_UP:
        return (done + AUGMENTATION_WARM_UP / 10) / (1.1 * AUGMENTATION_WARM_UP)
    return 0.5 * (1 + math.cos(math.pi * (done - AUGMENTATION_WARM_UP) / (1 - AUGMENTATION_WARM_UP)))
