"""CUDA graphs: the operations of a computation, launched on a GPU as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

MOST_POINTS = 128  # of more points a model takes longer to compute than its operations take to launch

WARM_UP = 3
"""Calls before a graph is captured, in which libraries allocate their workspaces and kernels are compiled."""

PointFunction: TypeAlias = Callable[[Tensor, Tensor], tuple[Tensor, ...]]
"""Maps image indices (m,) and points z (m,) to tensors (m, ...)."""


def warm_up(function: Callable[[], object], device: torch.device) -> None:
    """Call a function before it is captured, on another stream than the default, as torch asks for."""
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            function()
    torch.cuda.current_stream(device).wait_stream(stream)


class _Captured(NamedTuple):
    """A call as a graph, the tensors that it reads, and those that it writes."""

    graph: torch.cuda.CUDAGraph
    image: Tensor
    z: Tensor
    results: tuple[Tensor, ...]


class GraphedFunction:
    """A function of image indices and points on a GPU, by CUDA graphs where there are few points.

    A model has hundreds of operations, and for few points starting them separately takes longer than running them. A
    graph starts all of them at once, but has a fixed number of points: a power of two, to which points are repeated.
    The function waits for no result, so that it can be captured.
    """

    def __init__(self, function: PointFunction) -> None:
        self._function = function
        self._captured: dict[int, _Captured] = {}

    def __call__(self, image: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        """Return the function of image indices (m,) and points (m,)."""
        count = len(z)
        if count > MOST_POINTS:
            return self._function(image, z)
        size = 1 << (count - 1).bit_length()
        if size not in self._captured:
            self._captured[size] = self._capture(image[:1].repeat(size), z[:1].repeat(size))
        captured = self._captured[size]
        captured.image[:count] = image  # what is left of an earlier call lies on lines too
        captured.z[:count] = z
        captured.graph.replay()
        return tuple(result[:count].clone() for result in captured.results)

    def _capture(self, image: Tensor, z: Tensor) -> _Captured:
        warm_up(lambda: self._function(image, z), z.device)
        graph = torch.cuda.CUDAGraph()
        # The graphs share a pool of memory: none runs before the results of the one before it are copied.
        pool = next((captured.graph.pool() for captured in self._captured.values()), None)
        with torch.cuda.graph(graph, pool=pool):
            results = self._function(image, z)
        return _Captured(graph, image, z, results)
