"""Variances of the pixels under any noise model."""

from __future__ import annotations

import numpy as np

from attentest.noise.protocol import FloatArray, KnowsVariances, NoiseModel

DRAWS = 256
"""Draws from which variances are estimated if a model does not know them: their relative standard error is 9%."""


def pixel_variances(noise: NoiseModel, n: int) -> FloatArray:
    """Return the variances (n,) of the values of an image, estimated from draws if the model does not know them."""
    if isinstance(noise, KnowsVariances):
        return noise.variances(n)
    rng = np.random.default_rng(0)  # the same for the same model
    return sum((noise.sample(rng, 1, n)[0] ** 2 for _ in range(DRAWS)), np.zeros(n)) / DRAWS
