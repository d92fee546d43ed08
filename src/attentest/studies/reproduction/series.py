"""A series of trials: one condition of an experiment, one row an image."""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attentest.noise import AR1, Isotropic, NoiseModel
from attentest.simulation.synthetic_images import null_images, signal_images
from attentest.studies.reproduction.family import nearly_gaussian
from attentest.studies.reproduction.paper_model import side_of

Work: TypeAlias = Literal["selective", "permutation", "search", "curves", "precision", "evaluation"]

NOISES: dict[str, NoiseModel] = {"independent": Isotropic(1.0), "correlated": AR1(0.5)}
"""The paper's two covariances: the identity, and 0.5^|i-j| over the flattened index."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """What is done to which images.

    Parameters
    ----------
    work
        "selective": the selective, the naive and the Bonferroni p-value. "permutation": the permutation test.
        "search": the selective p-value with a given search, for its time. "curves": the functions f_i. "precision":
        the same test in float32 and float64. "evaluation": seconds of one evaluation of the model.
    model
        One of the seven classifiers, such as "base16".
    published
        Whether it is the authors' model rather than attentest's.
    noise
        "independent" or "correlated".
    delta
        Strength of the signal; 0 for null images.
    family, distance
        Of noise that is not Gaussian.
    estimated
        Whether the variance is estimated from the tested image rather than known.
    search
        Name of the search for the truncation set.
    permutations
        B of the permutation test.
    device
        Where an evaluation is timed: "cpu" or "cuda".
    """

    work: Work
    model: str
    published: bool = False
    noise: str = "independent"
    delta: float = 0.0
    family: str | None = None
    distance: float | None = None
    estimated: bool = False
    search: str = "spectral"
    permutations: int | None = None
    device: str | None = None

    @property
    def name(self) -> str:
        """Name of its file, without the ending; no two series have the same."""
        parts = [
            "published-" * self.published + self.model,
            self.device or self.family or self.noise,
            "" if self.distance is None else f"{self.distance:g}",
            f"delta{self.delta:g}" if self.delta else "",
            "estimated" if self.estimated else "",
            self.search if self.work == "search" else "",
            "" if self.permutations is None else f"{self.permutations}",
        ]
        return f"{self.work}/" + "-".join(part for part in parts if part)

    @property
    def noise_model(self) -> NoiseModel:
        """The covariance that the test is told of."""
        return NOISES[self.noise]

    def generator(self, seed: int, number: int, purpose: str = "image") -> np.random.Generator:
        """Return the source of randomness of one trial, its own for each purpose.

        It does not matter which trials are done together, or where. Series that are compared with each other see the
        same images.
        """
        source = "published " * self.published + self.model
        stream = f"{source}, {self.noise} noise, delta {self.delta:g}, {self.family} at {self.distance}, {purpose}"
        key = zlib.crc32(stream.encode()), number
        return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))

    def images(self, seed: int, numbers: list[int]) -> NDArray[np.float64]:
        """Draw its images (k, size, size) of given numbers."""
        return np.concatenate([self._draw(self.generator(seed, number)) for number in numbers])

    def _draw(self, rng: np.random.Generator) -> NDArray[np.float64]:
        size = side_of(self.model)
        if self.family is not None and self.distance is not None:
            return nearly_gaussian(self.family, self.distance).sample(rng, size * size).reshape(1, size, size)
        if self.delta:
            return signal_images(rng, 1, size, self.delta, self.noise_model)[0]
        return null_images(rng, 1, size, self.noise_model)

    def describe(self) -> dict[str, Any]:
        """Return all of it as JSON-ready values, with what follows from it."""
        shape = None
        if self.family is not None and self.distance is not None:
            shape = nearly_gaussian(self.family, self.distance).shape
        return {**asdict(self), "noise_model": dict(self.noise_model.describe()), "family_shape": shape}
