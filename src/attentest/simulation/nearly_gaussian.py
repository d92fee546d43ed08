"""Noise that is almost Gaussian (appendix D.3): five families, each at a given 1-Wasserstein distance from N(0, 1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.integrate import cumulative_simpson
from scipy.optimize import brentq

from attentest.errors import InputError

POINTS = np.sinh(np.linspace(-6.0, 6.0, 8001))
"""Points at which two distributions of variance one are compared: dense in the middle, and as far out as 200."""

SHAPE_TOLERANCE = 1e-10
"""Relative tolerance of the shape parameter."""


class Family(NamedTuple):
    """A SciPy distribution, and the shape parameters between which its distance from N(0, 1) grows from near zero."""

    distribution: Callable[..., Any]
    gaussian_end: float
    far_end: float


FAMILIES: Mapping[str, Family] = {
    "skewnorm": Family(stats.skewnorm, 1e-3, 1e3),
    "exponnorm": Family(stats.exponnorm, 1e-2, 20.0),
    "gennormsteep": Family(stats.gennorm, 2.0 - 1e-6, 0.5),
    "gennormflat": Family(stats.gennorm, 2.0 + 1e-6, 100.0),
    "t": Family(stats.t, 1e5, 2.1),
}


@dataclass(frozen=True, kw_only=True)
class NearlyGaussian:
    """The distribution of a family with mean zero, variance one and a shape parameter as SciPy defines it."""

    family: str
    shape: float

    def density(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the density at points x (m,)."""
        mean, deviation = self._moments()
        distribution = FAMILIES[self.family].distribution
        return np.asarray(distribution(self.shape, loc=-mean / deviation, scale=1 / deviation).pdf(x))

    def sample(self, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        """Draw independent numbers (size,)."""
        mean, deviation = self._moments()
        raw = FAMILIES[self.family].distribution(self.shape)
        return (np.asarray(raw.rvs(size=size, random_state=rng)) - mean) / deviation

    def distance(self) -> float:
        """Return the 1-Wasserstein distance from N(0, 1): the area between the two distribution functions."""
        # All densities have a closed form; the distribution functions are their integrals.
        gap = cumulative_simpson(self.density(POINTS) - stats.norm.pdf(POINTS), x=POINTS, initial=0.0)
        return float(np.trapezoid(np.abs(gap), POINTS))

    def _moments(self) -> tuple[float, float]:
        """Return the mean and the standard deviation before standardisation."""
        mean, variance = FAMILIES[self.family].distribution(self.shape).stats(moments="mv")
        return float(mean), float(np.sqrt(variance))


@cache
def nearly_gaussian(family: str, distance: float) -> NearlyGaussian:
    """Return the member of a family at a 1-Wasserstein distance from N(0, 1), found numerically."""
    if family not in FAMILIES:
        raise InputError(f"the family must be one of {', '.join(FAMILIES)}, got {family!r}.")
    ends = np.log(FAMILIES[family].gaussian_end), np.log(FAMILIES[family].far_end)

    def distance_at(log_shape: float) -> float:
        return NearlyGaussian(family=family, shape=float(np.exp(log_shape))).distance()

    low, high = (distance_at(end) for end in ends)
    if not low < distance < high:
        raise InputError(f"the distance of {family} must lie between {low:.2g} and {high:.2g}, got {distance}.")
    found = brentq(lambda log_shape: distance_at(log_shape) - distance, *ends, xtol=SHAPE_TOLERANCE)
    return NearlyGaussian(family=family, shape=float(np.exp(found)))
