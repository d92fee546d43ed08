"""Random places that are a function of an image's seed and of what is asked: they do not depend on the batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attentest.search.spectral.masses import Floats

WORDS = tuple(np.uint64(word) for word in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
"""Constants of the generator SplitMix64 (Steele, Lea and Flood 2014)."""


def uniform(seeds: NDArray[np.uint64], *keys: NDArray[np.float64] | NDArray[np.int64]) -> Floats:
    """Return numbers in [0, 1), one for each seed and its keys: arrays that broadcast together."""
    state = np.asarray(seeds, dtype=np.uint64)
    for key in keys:
        state = _mixed(state ^ np.ascontiguousarray(key).view(np.uint64))
    return np.asarray((_mixed(state) >> np.uint64(11)) * 2.0**-53, dtype=np.float64)


def _mixed(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):  # arithmetic is modulo 2^64
        state = state + WORDS[0]
        state = (state ^ (state >> np.uint64(30))) * WORDS[1]
        state = (state ^ (state >> np.uint64(27))) * WORDS[2]
        return np.asarray(state ^ (state >> np.uint64(31)))
