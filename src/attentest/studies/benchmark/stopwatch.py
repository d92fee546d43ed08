"""Times of works that are run alternately, so that the load of a shared machine falls on all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Generic, TypeVar

import torch

Name = TypeVar("Name", int, str)
Outcome = TypeVar("Outcome")
Found = TypeVar("Found", covariant=True)


@dataclass(frozen=True)
class Timed(Generic[Found]):
    """The median time of a work, and what it returned the last time."""

    seconds: float
    outcome: Found


def now(device: torch.device) -> float:
    """Return the time at which the device has finished all work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def timed(work: Callable[[], Outcome], device: torch.device) -> Timed[Outcome]:
    """Run a work once."""
    start = now(device)
    outcome = work()
    return Timed(now(device) - start, outcome)


def repeated(work: Callable[[], Outcome], device: torch.device, repeats: int) -> Timed[Outcome]:
    """Run a work several times."""
    return side_by_side({"work": work}, device, repeats)["work"]


def side_by_side(
    works: Mapping[Name, Callable[[], Outcome]], device: torch.device, repeats: int, *, warm_up: bool = False
) -> dict[Name, Timed[Outcome]]:
    """Run works one after the other, several times, and return the median time of each.

    Parameters
    ----------
    works
        The works by name.
    device
        Where they compute.
    repeats
        How often each is run.
    warm_up
        Whether each is run once more before, because the first call of anything is slow. Works that take long are
        warmed up by their caller, on less.
    """
    if warm_up:
        for work in works.values():
            work()
    runs = [{name: timed(work, device) for name, work in works.items()} for _ in range(repeats)]
    return {name: Timed(median(run[name].seconds for run in runs), runs[-1][name].outcome) for name in works}
