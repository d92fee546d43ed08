"""What a benchmark tests: a bundled model, null images for it, and the test of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attentest.api import AttentionTest
from attentest.attention import load_model
from attentest.attention.device import usable_device
from attentest.checks import strictly_between_0_and_1, whole_number
from attentest.errors import InputError
from attentest.search import SpectralSearch
from attentest.simulation.synthetic_images import null_images
from attentest.training.bundled import BUNDLED, bundled_model

SIZES = tuple(size for architecture, size in BUNDLED if architecture == "base")
"""Sides of the images of the models that can be measured: the bundled ones of the base architecture."""

MOST_IMAGES = 10**7
"""Upper limit on the number of images, against typing errors."""


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """What to measure on.

    Parameters
    ----------
    size
        Side of the images in pixels, which chooses the bundled model.
    images
        Null images that are tested together.
    grid_images
        How many of them the paper's searches and the authors' package test.
    repeats
        How often each of two things is timed, alternately; the paper's searches and the authors' package, which take
        long, only once.
    tol
        Width of the error bar of the spectral search.
    device, seed
        Where to compute, and the seed of the images.
    """

    size: int = 16
    images: int = 10
    grid_images: int = 2
    repeats: int = 3
    tol: float = 1e-4
    device: str = "cpu"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise InputError(f"size must be {', '.join(map(str, SIZES[:-1]))} or {SIZES[-1]}, got {self.size}.")
        whole_number(self.images, "images", 1, MOST_IMAGES)
        whole_number(self.grid_images, "grid_images", 1, MOST_IMAGES)
        if self.grid_images > self.images:
            raise InputError(f"grid_images must be at most images={self.images}, got {self.grid_images}.")
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
    def default_test(self) -> AttentionTest:
        """The same in the precision that the device is best at."""
        return self.test.with_search(SpectralSearch(tol=self.settings.tol))

    @cached_property
    def mixed_test(self) -> AttentionTest:
        """The same in mixed precision."""
        return self.test.with_search(SpectralSearch(tol=self.settings.tol, precision="mixed"))

    def few(self) -> NDArray[np.float64]:
        """Return the images for slow searches."""
        return self.images[: self.settings.grid_images]
