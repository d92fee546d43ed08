"""A series of trials: one setting of an experiment, with one row per image."""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attentest.noise import AR1, Isotropic, NoiseModel
from attentest.simulation.nearly_gaussian import NearlyGaussian, nearly_gaussian
from attentest.simulation.synthetic_images import null_images, signal_images
from attentest.training.paper_model import side_of

Work: TypeAlias = Literal["selective", "interval", "permutation", "search", "curves", "precision", "evaluation"]

NOISES: dict[str, NoiseModel] = {"independent": Isotropic(1.0), "correlated": AR1(0.5)}
"""The paper's two covariances: the identity, and 0.5^|i-j| over the flattened index."""

PAPERS = "the paper's"  # how tables call its test, where others are ours


@dataclass(frozen=True, kw_only=True)
class Series:
    """What is computed on which images.

    "selective" computes the selective, the naive and the Bonferroni p-value; "interval" the selective p-value with its
    confidence interval, for our ways to select the region and the paper's; "permutation" the permutation test; "search"
    the selective p-value with a given search, for its time; "curves" the functions f_i; "precision" the same test in
    float32 and float64; "evaluation" the time of one evaluation of the model.
    """

    work: Work
    model: str  # one of the seven classifiers, such as "base16"
    published: bool = False  # whether it is the authors' model rather than attentest's
    noise: str = "independent"  # or "correlated"
    delta: float = 0.0  # strength of the signal; 0 for null images
    family: str | None = None  # family of noise that is not Gaussian
    distance: float | None = None  # its distance from the Gaussian
    estimated: bool = False  # whether the variance is estimated from the tested image rather than known
    search: str = "spectral"  # name of the search for the truncation set
    permutations: int | None = None  # of the permutation test
    device: str | None = None  # where an evaluation is timed: "cpu" or "cuda"
    region: str = "pixels"  # what regions consist of; or "patches"
    randomise: float = 0.0  # gamma of the randomised selection; 0 for none

    @property
    def name(self) -> str:
        """Name of its file without the ending, unique to the series."""
        parts = [
            "published-" * self.published + self.model,
            self.device or self.family or self.noise,
            "" if self.distance is None else f"{self.distance:g}",
            f"delta{self.delta:g}" if self.delta else "",
            "estimated" if self.estimated else "",
            self.search if self.work == "search" else "",
            "" if self.permutations is None else f"{self.permutations}",
            "patches" if self.region == "patches" else "",
            f"gamma{self.randomise:g}" if self.randomise else "",
        ]
        return f"{self.work}/" + "-".join(part for part in parts if part)

    @property
    def test(self) -> str:
        """Which of our tests it is, or "the paper's"."""
        parts = ["patches" if self.region == "patches" else "", f"gamma {self.randomise:g}" if self.randomise else ""]
        named = ", ".join(part for part in parts if part)
        return f"ours: {named}" if named else PAPERS

    @property
    def ours(self) -> bool:
        """Whether it is one of our tests, or the paper's beside them, rather than an experiment of the paper."""
        return self.work == "interval"

    @property
    def timed(self) -> bool:
        """Whether times are what it is for: they would be wrong on workers that compute beside each other."""
        return self.work in ("search", "evaluation")

    @property
    def noise_model(self) -> NoiseModel:
        """The covariance that the test assumes."""
        return NOISES[self.noise]

    def generator(self, seed: int, number: int, purpose: str = "image") -> np.random.Generator:
        """Return the random generator of one trial, a different one for each purpose.

        It depends neither on the other trials nor on the device. Series that are compared see the same images.
        """
        source = "published " * self.published + self.model
        stream = f"{source}, {self.noise} noise, delta {self.delta:g}, {self.family} at {self.distance}, {purpose}"
        key = zlib.crc32(stream.encode()), number
        return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))

    def images(self, seed: int, numbers: list[int]) -> NDArray[np.float64]:
        """Draw the images (k, size, size) of given numbers."""
        return self.images_and_squares(seed, numbers)[0]

    def images_and_squares(self, seed: int, numbers: list[int]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Draw the images (k, size, size) of given numbers, and the pixels of each that have the signal."""
        drawn = [self._draw(self.generator(seed, number)) for number in numbers]
        images, squares = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
        return images, squares

    def describe(self) -> dict[str, Any]:
        """Return all fields and what follows from them, JSON-ready."""
        family = self._family()
        shape = None if family is None else family.shape
        return {**asdict(self), "noise_model": dict(self.noise_model.describe()), "family_shape": shape}

    def _draw(self, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        size = side_of(self.model)
        if self.delta:
            return signal_images(rng, 1, size, self.delta, self.noise_model)
        if (family := self._family()) is not None:
            image = family.sample(rng, size * size).reshape(1, size, size)
        else:
            image = null_images(rng, 1, size, self.noise_model)
        return image, np.zeros(image.shape, dtype=bool)

    def _family(self) -> NearlyGaussian | None:
        if self.family is None or self.distance is None:
            return None
        return nearly_gaussian(self.family, self.distance)
