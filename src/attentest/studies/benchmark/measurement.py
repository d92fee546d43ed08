"""What a benchmark measures: ratios of two costs side by side, of works that are run alternately."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from statistics import median
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from attentest.attention import load_model
from attentest.attention.device import usable_device
from attentest.checks import strictly_between_0_and_1, whole_number
from attentest.errors import InputError
from attentest.pipeline.attention_test import AttentionTest
from attentest.results.result import AttentionTestResult
from attentest.runs.records import check_numbers, check_texts
from attentest.search import SpectralSearch
from attentest.simulation.images import null_images
from attentest.training.bundled import BUNDLED, bundled_model

SCALING = "scaling"  # the comparison of growing sizes, which has a table and a picture of its own

Quantity: TypeAlias = Literal["seconds", "CPU seconds", "evaluations", "bytes"]

Costs: TypeAlias = Mapping[Quantity, float]
"""What is measured of something, per image where images are tested; or the ratios of two of them that are aimed at."""


class NotMeasured(Exception):
    """Ends a comparison that cannot be made here, with the reason in a sentence."""


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """The cost of one thing over the cost of another; less is better."""

    comparison: str = ""  # name of the comparison that it is part of, which the run adds
    of: str  # what is divided
    over: str  # and by what
    quantity: Quantity  # what is measured of both, per image where images are tested
    numerator: float  # cost of what is divided
    denominator: float
    goal: float | None = None  # the ratio should be at most this; None where nothing is aimed at

    @property
    def ratio(self) -> float:
        """Numerator over denominator."""
        return self.numerator / self.denominator

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What tells it from others in the same run."""
        return self.comparison, self.of, self.over, self.quantity

    def as_dict(self) -> dict[str, Any]:
        """Return all values, and the ratio, JSON-ready."""
        return {**vars(self), "ratio": self.ratio}

    @classmethod
    def from_dict(cls, values: Any) -> Ratio:
        """Return a ratio that was written as JSON; raise a ValueError, TypeError or KeyError if it is damaged."""
        check_texts(values, ("comparison", "of", "over"))
        check_numbers(values, ("numerator", "denominator", *(["goal"] if values.get("goal") is not None else [])))
        if values["quantity"] not in get_args(Quantity):
            raise ValueError(f"quantity must be one of {', '.join(get_args(Quantity))}")
        if not (values["numerator"] > 0 and values["denominator"] > 0):
            raise ValueError("numerator and denominator must be positive")
        return cls(**{field.name: values.get(field.name) for field in fields(cls)})


def ratios(costs: Mapping[str, Costs], goals: Costs | None = None) -> Iterator[Ratio]:
    """Yield all that is measured of things, by their names, over the same of the last of them."""
    *others, (over, denominators) = costs.items()
    for of, numerators in others:
        for quantity, numerator in numerators.items():
            divided: dict[str, Any] = {"numerator": numerator, "denominator": denominators[quantity]}
            yield Ratio(of=of, over=over, quantity=quantity, goal=(goals or {}).get(quantity), **divided)


Outcome = TypeVar("Outcome")


def now(device: torch.device) -> float:
    """Return the time at which the device has finished all work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def timed(work: Callable[[], Outcome], device: torch.device) -> tuple[float, Outcome]:
    """Run a work once, and return its seconds and what it returned."""
    start = now(device)
    outcome = work()
    return now(device) - start, outcome


def side_by_side(
    works: Mapping[str, Callable[[], Outcome]], device: torch.device, repeats: int, *, warm_up: bool = False
) -> dict[str, tuple[float, Outcome]]:
    """Run works one after the other, several times, and return the median time of each and what it returned last.

    With ``warm_up`` each is run once more before, because the first call of anything is slow; works that take long are
    warmed up by their caller, on less.
    """
    if warm_up:
        for work in works.values():
            work()
    runs = [{name: timed(work, device) for name, work in works.items()} for _ in range(repeats)]
    return {name: (median(run[name][0] for run in runs), runs[-1][name][1]) for name in works}


SIZES = tuple(size for architecture, size in BUNDLED if architecture == "base")
"""Sides of the images of the models that can be measured: the bundled ones of the base architecture."""

MOST_IMAGES = 10**7  # upper limit on the number of images, against typing errors


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """What to measure on."""

    size: int = 16  # side of the images in pixels, which chooses the bundled model
    images: int = 10  # null images that are tested together
    grid_images: int = 2  # how many of them the paper's searches and the authors' package test
    repeats: int = 3  # how often two things are timed, alternately; searches and packages that take long only once
    tol: float = 1e-4  # width of the error bar of the spectral search
    device: str = "cpu"
    seed: int = 0  # of the images

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise InputError(f"size must be {', '.join(map(str, SIZES[:-1]))} or {SIZES[-1]}, got {self.size}.", "size")
        whole_number(self.images, "images", 1, MOST_IMAGES)
        whole_number(self.grid_images, "grid_images", 1, MOST_IMAGES)
        if self.grid_images > self.images:
            raise InputError(
                f"grid_images must be at most {self.images}, the number of images, got {self.grid_images}.",
                "grid_images",
            )
        whole_number(self.repeats, "repeats", 1, 1000)
        strictly_between_0_and_1(self.tol, "tol")


@dataclass(frozen=True)
class Workload:
    """The model, the images and the tests of a benchmark, each made when it is first used."""

    settings: BenchSettings

    @cached_property
    def device(self) -> torch.device:
        """Where to compute."""
        return usable_device(self.settings.device)

    @cached_property
    def model(self) -> Any:
        """The bundled model, as transformers reads it."""
        return load_model(bundled_model(self.settings.size)).encoder

    @cached_property
    def images(self) -> NDArray[np.float64]:
        """Null images, (images, size, size)."""
        return null_images(np.random.default_rng(self.settings.seed), self.settings.images, self.settings.size)

    @cached_property
    def test(self) -> AttentionTest:
        """The test with the spectral search in float64, p alone."""
        search = SpectralSearch(tol=self.settings.tol, precision="float64")
        return AttentionTest(self.model, noise=1.0, search=search, device=self.device, confidence_level=None)

    @cached_property
    def mixed_test(self) -> AttentionTest:
        """The same in mixed precision."""
        return self.test.replace(search=SpectralSearch(tol=self.settings.tol, precision="mixed"))

    @property
    def few(self) -> NDArray[np.float64]:
        """The images for slow searches."""
        return self.images[: self.settings.grid_images]

    def costs(self, works: Mapping[str, Callable[[], Sequence[AttentionTestResult]]]) -> dict[str, Costs]:
        """Return the mean costs per image of works, run side by side, each of which tests images."""
        measured = side_by_side(works, self.device, self.settings.repeats)
        return {name: image_costs(*work) for name, work in measured.items()}


def image_costs(seconds: float, results: Sequence[AttentionTestResult]) -> Costs:
    """Return the mean costs per image of images that were tested in some seconds."""
    evaluations = float(np.mean([result.evaluations for result in results]))
    return {"seconds": seconds / len(results), "evaluations": evaluations}
