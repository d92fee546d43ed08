"""What tells a noise model from another of the same kind and size."""

from __future__ import annotations

from typing import Any

import numpy as np

from attentest.noise.model import ImageNoise, NoiseModel


def described(noise: NoiseModel | ImageNoise) -> dict[str, Any]:
    """Return the description of a noise model; where that leaves out its many numbers, with one that depends on all."""
    values = dict(noise.describe())
    if isinstance(noise, NoiseModel) and noise.size is not None:
        weights = np.random.default_rng(0).standard_normal((1, noise.size))
        values["checksum"] = float((weights * noise.apply(weights)).sum())
    return values
