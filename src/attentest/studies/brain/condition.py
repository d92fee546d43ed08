"""Under what conditions slices are tested: the noise model, the threshold, what the region is compared with."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.contrast import Background, Contrast, Neighbourhood, Reference
from attentest.errors import InputError
from attentest.noise import (
    AR1Covariance,
    Averaged,
    FromImage,
    ImageNoise,
    NoiseEstimator,
    NoiseModel,
    PixelVariance,
    PooledVariance,
    ShrunkCovariance,
    StationaryCovariance,
    as_noise,
)

ESTIMATORS: Mapping[str, Callable[[], NoiseEstimator]] = {
    "pooled": PooledVariance,
    "pixel": PixelVariance,
    "ar1": AR1Covariance,
    "stationary": StationaryCovariance,
    "shrunk": ShrunkCovariance,
}
"""Estimators from tumour-free slices of other patients."""

FROM_THE_SLICE: Mapping[str, FromImage] = {"sample": FromImage("sample"), "wavelet": FromImage("wavelet")}
"""Noise estimated from the tested slice itself."""

CONTRASTS = ("background", "neighbourhood", "reference")

THRESHOLDS = (0.4, 0.5, 0.6, 0.7, 0.8)

RADIUS = 5
"""Of the neighbourhood, in pixels: the attention map has one score for 8 pixels, so its border is known to about so."""


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One way to test a slice.

    Parameters
    ----------
    noise
        A name in `ESTIMATORS` or `FROM_THE_SLICE`.
    threshold
        tau.
    contrast
        "background" (the paper's), "neighbourhood" (a ring around the region), or "reference" (the mean of the slices
        that the noise is estimated from).
    """

    noise: str = "pooled"
    threshold: float = 0.6
    contrast: str = "background"

    def __post_init__(self) -> None:
        known = (*ESTIMATORS, *FROM_THE_SLICE)
        if self.noise not in known:
            raise InputError(f"noise must be one of {', '.join(known)}, got {self.noise!r}.")
        if self.contrast not in CONTRASTS:
            raise InputError(f"contrast must be one of {', '.join(CONTRASTS)}, got {self.contrast!r}.")
        if self.contrast == "reference" and self.noise in FROM_THE_SLICE:
            raise InputError(f"the noise of a reference is not that of one slice: {self.noise!r} does not apply.")

    @property
    def name(self) -> str:
        """For files and tables."""
        return f"{self.noise}-{self.contrast}-{self.threshold:g}"

    def describe(self) -> dict[str, Any]:
        """Return it as JSON-ready values."""
        return {"noise": self.noise, "threshold": self.threshold, "contrast": self.contrast}


PAPER = Condition()
"""What the paper does: one variance from 100 tumour-free images, tau 0.6, region against all the rest."""

CONDITIONS = tuple(
    dict.fromkeys(
        [
            PAPER,
            *(Condition(noise=noise, contrast=contrast) for contrast in CONTRASTS for noise in ESTIMATORS),
            *(Condition(noise=noise) for noise in FROM_THE_SLICE),
            *(Condition(threshold=threshold) for threshold in THRESHOLDS),
        ]
    )
)
"""All that are tried: every noise model with every contrast, and every threshold with the paper's."""


def available(conditions: tuple[Condition, ...] = CONDITIONS) -> tuple[Condition, ...]:
    """Return the conditions that what is installed allows: shrinking a covariance needs scikit-learn."""
    missing = {"shrunk"} if importlib.util.find_spec("sklearn") is None else set()
    return tuple(condition for condition in conditions if condition.noise not in missing)


class FittedNoise:
    """What tumour-free slices say about noise; each estimator is fitted when it is first asked for.

    Parameters
    ----------
    slices : (k, H, W) uint8
        A few of each patient, in the units of the tested slices.
    """

    def __init__(self, slices: NDArray[np.uint8]) -> None:
        self._slices = slices
        self._models: dict[str, NoiseModel] = {}

    def model(self, name: str) -> NoiseModel:
        """Return the noise model of an estimator in `ESTIMATORS`."""
        if name not in self._models:
            self._models[name] = as_noise(ESTIMATORS[name]().fit(self._slices))
        return self._models[name]

    def noise(self, condition: Condition) -> NoiseModel | ImageNoise:
        """Return the noise of a condition."""
        return FROM_THE_SLICE.get(condition.noise) or self.model(condition.noise)

    def contrast(self, condition: Condition) -> Contrast:
        """Return the contrast of a condition."""
        if condition.contrast == "neighbourhood":
            return Neighbourhood(radius=RADIUS)
        if condition.contrast == "reference":
            mean = self._slices.astype(np.float64).mean(axis=0)
            return Reference(mean, Averaged(self.model(condition.noise), len(self._slices)))
        return Background()
