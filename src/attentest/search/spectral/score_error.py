"""The error of the scores themselves: rounding, noise of rough scores, and jitter of scores that are not float64."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from attentest.search.problem import on_device
from attentest.search.spectral.evaluations import Evaluations
from attentest.search.spectral.masses import Floats, Integers

ROUNDING = 32 * float(np.finfo(np.float64).eps)
"""Rounding error of a score relative to the greatest score: five times that of the paper's trained ViTs."""

CLOSE = 1e-7
"""Distance, relative to z_obs, at which smooth scores differ from a straight line by less than rounding."""

ROUGH_SAFETY = 8.0
"""Safety factor on the noise of rough scores, measured at z_obs: in sharp models it is several times that elsewhere."""


def rough_noise(rough: Evaluations, observed: Tensor, z_obs: Floats) -> Floats:
    """Return the noise (k,) of rough scores: their distance from the exact scores (k, gh, gw) at z_obs."""
    difference = rough.at(np.arange(len(z_obs)), z_obs) - observed
    return np.asarray(ROUGH_SAFETY * difference.abs().amax(dim=(1, 2)).cpu().numpy())


def measured_jitter(exact: Evaluations, observed: Tensor, z_obs: Floats) -> Floats:
    """Return how far (k,) scores next to z_obs are from a straight line, where only noise explains it.

    Curvature grows with the square of the distance, noise does not.
    """
    everyone = np.arange(len(z_obs))
    largest = observed.abs().amax(dim=(1, 2)).cpu().numpy()
    jitter = _bend(exact, observed, z_obs, everyone, CLOSE)
    doubtful = everyone[jitter > ROUNDING * largest]
    if len(doubtful):
        farther = _bend(exact, observed, z_obs, doubtful, 4 * CLOSE)
        jitter[doubtful[farther > 8 * jitter[doubtful]]] = 0.0
    return jitter


def _bend(exact: Evaluations, observed: Tensor, z_obs: Floats, images: Integers, distance: float) -> Floats:
    """Return the second difference (m,) of the scores of some images around z_obs."""
    centre = z_obs[images]
    near = distance * np.maximum(1.0, np.abs(centre))
    around = exact.at(images, centre - near) + exact.at(images, centre + near)
    bend = around / 2 - observed[on_device(images, observed.device)]
    return np.array(bend.abs().amax(dim=(1, 2)).cpu().numpy())
