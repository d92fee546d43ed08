"""The pieces of the z axis that a search starts with."""

from __future__ import annotations

import numpy as np

from attentest.search.spectral.segments import Floats, Segments, unexplored

LOG_TAIL = 100.0
"""The lattice of pieces reaches to where the density is this many logs below that at z_obs: the tails beyond matter to
no Z wider than 1e-30."""

MOST_PIECES = 2000
"""Of the lattice; with a statistic so large that more are needed, they become wider."""


def _reach(z_obs: Floats) -> Floats:
    return np.asarray(np.sqrt(z_obs**2 + 2 * LOG_TAIL))


def lattice_width(z_obs: Floats, width: float) -> Floats:
    """Return how wide (k,) the pieces of each image are to begin with."""
    return np.maximum(width, 2 * _reach(z_obs) / MOST_PIECES)


def lattice(z_obs: Floats, width_of: Floats) -> Segments:
    """Return unexplored pieces of the whole axis for each image, with z_obs as an end of two of them."""
    reach = _reach(z_obs)
    below = np.ceil((z_obs + reach) / width_of).astype(np.int64)
    above = np.ceil((reach - z_obs) / width_of).astype(np.int64)
    count = below + above + 2  # and the two tails
    image = np.repeat(np.arange(len(z_obs)), count)
    place = np.arange(len(image)) - np.repeat(np.cumsum(count) - count, count) - below[image] - 1
    left = z_obs[image] + place * width_of[image]
    right = z_obs[image] + (place + 1) * width_of[image]
    left[place < -below[image]] = -np.inf
    right[place >= above[image]] = np.inf
    return unexplored(image, left, right)
