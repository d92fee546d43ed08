"""The conditions under which slices are tested: noise model, region, and what the region is compared with."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.contrast import Background, Contrast, Neighbourhood, Reference
from attentest.errors import InputError
from attentest.noise import Averaged, FromImage, ImageNoise, NoiseModel, as_noise
from attentest.registry import NOISE_ESTIMATORS, REGION_UNITS

ESTIMATORS: Mapping[str, str] = {
    "pooled": "one variance for all pixels, independent",
    "pixel": "a variance for each pixel, independent",
    "ar1": "one variance, correlation that falls by a factor from pixel to pixel, row after row",
    "stationary": "one variance, correlation by the distance in rows and columns",
    "shrunk": "any covariance, shrunk to a multiple of the identity",
}
"""Noise models estimated from slices without tumour of other patients."""

FROM_THE_SLICE: Mapping[str, str] = {
    "sample": "one variance: that of the pixels of the tested slice",
    "wavelet": "one variance: from the finest wavelet coefficients of the tested slice",
}
"""Noise models estimated from the tested slice itself."""

NOISES = {**ESTIMATORS, **FROM_THE_SLICE}
CONTRASTS = ("background", "neighbourhood", "reference")
THRESHOLDS = (0.4, 0.5, 0.6, 0.7, 0.8)
GAMMAS = (0.0, 0.3, 1.0)

RADIUS = 5
"""Width of the neighbourhood in pixels: with one score per 8 pixels, the border of the region is not known better."""


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One way to test a slice; the defaults are the paper's.

    The region is compared with the rest of the slice ("background"), a ring around it ("neighbourhood"), or the mean
    of the slices that the noise is estimated from ("reference"). Regions of whole patches and randomised selection, by
    its gamma, are ours.
    """

    noise: str = "pooled"
    threshold: float = 0.6
    contrast: str = "background"
    region: str = "pixels"
    randomise: float = 0.0

    def __post_init__(self) -> None:
        if self.noise not in NOISES:
            raise InputError(f"noise must be one of {', '.join(NOISES)}, got {self.noise!r}.")
        if self.contrast not in CONTRASTS:
            raise InputError(f"contrast must be one of {', '.join(CONTRASTS)}, got {self.contrast!r}.")
        if self.region not in REGION_UNITS:
            raise InputError(f"region must be one of {', '.join(REGION_UNITS)}, got {self.region!r}.")
        if self.contrast == "reference" and self.noise in FROM_THE_SLICE:
            raise InputError(f"the noise of a reference is not that of one slice: {self.noise!r} does not apply.")

    @property
    def name(self) -> str:
        """The name in files and tables."""
        patches = "-patches" if self.region == "patches" else ""
        gamma = f"-gamma{self.randomise:g}" if self.randomise else ""
        return f"{self.noise}-{self.contrast}-{self.threshold:g}{patches}{gamma}"

    @property
    def ours(self) -> bool:
        """Whether the region is selected in another way than the paper's."""
        return self.region != "pixels" or self.randomise > 0

    def describe(self) -> dict[str, Any]:
        """Return the condition as JSON-ready values."""
        return asdict(self)


PAPER = Condition()

OUR_CONDITIONS = tuple(
    Condition(contrast=contrast, noise=noise, region=region, randomise=gamma)
    for contrast in ("background", "reference")
    for noise in ("pooled", "stationary")
    for region in REGION_UNITS
    for gamma in GAMMAS
)
"""Ways to select the region, ours and the paper's: with independent and correlated noise, each with the paper's
contrast and with the one that allows for anatomy."""

CONDITIONS = tuple(
    dict.fromkeys(
        [
            *(Condition(noise=noise, contrast=contrast) for contrast in CONTRASTS for noise in ESTIMATORS),
            *(Condition(noise=noise) for noise in FROM_THE_SLICE),
            *(Condition(threshold=threshold) for threshold in THRESHOLDS),
            *OUR_CONDITIONS,
        ]
    )
)
"""All that are tested, the paper's first: every noise model with every contrast, every threshold, and ours."""

NOISE_CONDITIONS = sorted(
    (one for one in CONDITIONS if one.threshold == PAPER.threshold and not one.ours),
    key=lambda one: CONTRASTS.index(one.contrast),
)
"""Those with the paper's threshold and selection, by contrast."""


def available() -> tuple[Condition, ...]:
    """Return the conditions that the installed packages allow: shrinking a covariance needs scikit-learn."""
    missing = {"shrunk"} if importlib.util.find_spec("sklearn") is None else set()
    return tuple(condition for condition in CONDITIONS if condition.noise not in missing)


class FittedNoise:
    """Noise models and contrasts from slices (k, H, W) without tumour, in the units of the tested slices."""

    def __init__(self, slices: NDArray[np.uint8]) -> None:
        self._slices = slices
        self.model = cache(lambda name: as_noise(NOISE_ESTIMATORS.load(name)().fit(slices)))

    def noise(self, condition: Condition) -> NoiseModel | ImageNoise:
        """Return the noise of a condition."""
        return FromImage(condition.noise) if condition.noise in FROM_THE_SLICE else self.model(condition.noise)

    def contrast(self, condition: Condition) -> Contrast:
        """Return the contrast of a condition."""
        if condition.contrast == "neighbourhood":
            return Neighbourhood(radius=RADIUS)
        if condition.contrast == "reference":
            mean = self._slices.astype(np.float64).mean(axis=0)
            return Reference(mean, Averaged(self.model(condition.noise), len(self._slices)))
        return Background()
