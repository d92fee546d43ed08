"""The variance of a weighted sum of a few pixels, which needs no vector as long as the image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from attentest.noise import (
    AR1,
    Averaged,
    Dense,
    Diagonal,
    Estimated,
    FloatArray,
    Isotropic,
    LocallyStationary,
    NoiseModel,
    PerChannel,
    Scaled,
    Stationary,
)
from attentest.noise.correlated import Exponential
from attentest.noise.model import complete

C, H, W = 2, 4, 5
N = C * H * W
RNG = np.random.default_rng(0)
LAGS = np.exp(-(np.add.outer(np.arange(-2, 3) ** 2, np.arange(-3, 4) ** 2)) / 1.5)
SPATIAL = Stationary(3 * LAGS, (H, W))
CHANNELS = np.array([[2.0, -0.7], [-0.7, 1.0]])


class OwnNoise:
    """A model that attentest does not know: it can only be applied."""

    size = None

    def __repr__(self) -> str:
        return "OwnNoise()"  # in names of tests, which must not change from one process to another

    def apply(self, v: FloatArray) -> FloatArray:
        return np.asarray(1.5 * v + 0.25 * (np.roll(v, 1, -1) + np.roll(v, -1, -1)))

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        raise AssertionError("nothing is drawn")

    def describe(self) -> Mapping[str, Any]:
        return {"model": "own"}


MODELS: list[NoiseModel] = [
    Isotropic(1.7),
    Diagonal(RNG.uniform(0.5, 2, size=N)),
    Dense(np.cov(RNG.normal(size=(N, 3 * N)))),
    AR1(0.5, 1.3),
    AR1(-0.8),
    AR1(0.0),
    Exponential(RNG.uniform(0.5, 2, size=(C, H, W)), 1.5),
    Exponential(np.ones((C, H, W)), 0.0),
    PerChannel(CHANNELS, SPATIAL),
    PerChannel(CHANNELS, LocallyStationary(RNG.uniform(0.5, 2, size=(H, W)), LAGS)),
    PerChannel(CHANNELS, AR1(0.5)),
    PerChannel(CHANNELS, OwnNoise()),
    Averaged(Scaled(Estimated(AR1(0.5, 1.3), {"images": 3}), 2.0), 4),
    Scaled(OwnNoise(), 2.0),
    OwnNoise(),
]


@pytest.mark.parametrize("noise", MODELS, ids=repr)
def test_it_is_the_quadratic_form_of_the_covariance(noise: NoiseModel) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        places, weights = rng.choice(N, size=6, replace=False), rng.normal(size=6)
        vector = np.zeros(N)
        vector[places] = weights
        expected = float(vector @ noise.apply(vector))
        # Sums of 36 products, and in the FFT of a model by lag of 40 values; rounding errors of 1e-16 each.
        variance = float(weights @ complete(noise).covariances(places, N) @ weights)
        assert variance == pytest.approx(expected, rel=1e-12, abs=1e-13)
