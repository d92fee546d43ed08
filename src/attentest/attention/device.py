"""Devices to compute on, how much of their memory to use, and CUDA graphs, which launch operations as a whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from textwrap import shorten
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from attentest.checks import whole_number
from attentest.errors import InputError, shortened

FLOAT64_DEVICES = ("cpu", "cuda")  # types of device that compute in float64
LONGEST_REASON = 300  # most characters of an error of another library that is quoted, in whole words
LEAST_MEMORY = 2**24  # smallest memory budget in bytes: less holds no batch of any model
MOST_CPU_MEMORY = 2**31  # largest default budget in bytes on a CPU, where more memory makes nothing faster


def as_memory_budget(value: int | None) -> int | None:
    """Return a memory budget in bytes; None for the default. Raise an error if it is too small."""
    return None if value is None else whole_number(value, "memory_budget", LEAST_MEMORY, 2**62)


def default_memory(device: torch.device) -> int:
    """Return a quarter of the free memory of a device, and no more than 2 GiB on the CPU."""
    if device.type == "cuda":
        return max(LEAST_MEMORY, int(torch.cuda.mem_get_info(device)[0]) // 4)
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not every system reports it
        free = MOST_CPU_MEMORY
    return max(LEAST_MEMORY, min(free // 4, MOST_CPU_MEMORY))


def reason_of(error: object) -> str:
    """Return what an error of another library says, on one line without a full stop; its type if it says nothing."""
    return shorten(str(error).strip().rstrip("."), LONGEST_REASON, placeholder=" ...") or type(error).__name__


def usable_device(device: torch.device | str) -> torch.device:
    """Return a device that is available and computes in float64; raise an error for any other."""
    try:
        usable = torch.device(device)
    except (RuntimeError, TypeError):  # torch's own message lists dozens of types of device
        raise InputError(
            f"device must be cpu, cuda, or cuda:N for the GPU of number N, got {shortened(device)}.", "device"
        ) from None
    try:
        if usable.type not in FLOAT64_DEVICES:
            raise RuntimeError("it does not compute in float64")
        torch.empty(1, dtype=torch.float64, device=usable)
    except (RuntimeError, AssertionError) as error:
        first, *_ = str(error).partition("\n")  # torch lists all backends in others
        raise InputError(
            f"device {shortened(str(device))} cannot be used ({reason_of(first)}): use cpu, or cuda or cuda:N where "
            "torch has it."
        ) from None
    return usable


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
