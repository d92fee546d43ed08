"""Gradients of a classifier's loss on a batch, launched as a whole on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

if TYPE_CHECKING:  # transformers takes seconds to import
    from transformers import ViTForImageClassification

WARM_UP = 3
"""Passes before a graph is captured, in which libraries allocate their workspaces."""

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
        stream = torch.cuda.Stream(inputs.device)  # torch asks for a warm-up on another stream than the default
        stream.wait_stream(torch.cuda.current_stream(inputs.device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self._compute(inputs, labels)
        torch.cuda.current_stream(inputs.device).wait_stream(stream)
        self._model.zero_grad()  # so that the graph allocates gradients and does not add to old ones
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._compute(inputs, labels)
        return _Captured(graph, inputs, labels, [parameter.grad for parameter in self._model.parameters()])
