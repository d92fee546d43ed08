"""Randomised selection: the model chooses the region on the image plus noise of known size."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.checks import real_number, whole_number
from attentest.errors import InputError
from attentest.images.sample import add_values, stacked
from attentest.pipeline.inputs import Input

LEAST, MOST = 0.01, 10.0
"""Range of gamma. Below, the test is that of the paper; above, the model hardly sees the image."""

KEY = b"attentest randomised selection 1"
"""Changes with every change of how the noise is drawn."""


@dataclass(frozen=True, kw_only=True)
class Randomisation:
    """How the image is randomised before the model chooses the region.

    Parameters
    ----------
    gamma
        Standard deviation of the added noise in units of that of the image's own noise.
    seed
        By default the added noise is a function of the image, so that it cannot be drawn again until p is small. A seed
        gives other noise, and is recorded.
    """

    gamma: float
    seed: int | None = None

    def added(self, inputs: Sequence[Input]) -> NDArray[np.float64]:
        """Return the noise (k, C, H, W) that is added to images: gamma times noise as each of them has."""
        return stacked([self.gamma * self._drawn(each) for each in inputs])

    def describe(self) -> dict[str, Any]:
        """Return the settings as JSON-ready values."""
        return asdict(self)

    def _drawn(self, given: Input) -> NDArray[np.float64]:
        pixels = given.image.pixels
        found = hashlib.blake2b(key=KEY, digest_size=32)
        add_values(found, pixels)
        found.update(b"" if self.seed is None else self.seed.to_bytes(8, "little"))
        rng = np.random.Generator(np.random.PCG64(int.from_bytes(found.digest(), "little")))
        return (given.selection_noise or given.noise).sample(rng, 1, pixels.size).reshape(pixels.shape)


def as_randomisation(randomise: float, seed: int | None) -> Randomisation | None:
    """Return how to randomise: not at all for zero."""
    gamma = real_number(randomise, "randomise")
    if gamma != 0 and not LEAST <= gamma <= MOST:
        raise InputError(
            f"randomise must be 0, for the paper's test, or a number from {LEAST:g} to {MOST:g}, got {gamma:g}."
        )
    chosen = None if seed is None else whole_number(seed, "randomise_seed", 0, 2**63 - 1)
    if gamma == 0:
        if chosen is not None:
            raise InputError(f"randomise_seed {chosen} does nothing without randomise=: give both, or neither.")
        return None
    return Randomisation(gamma=gamma, seed=chosen)
