"""Noise that is almost Gaussian (appendix D.3): five families, each at a given 1-Wasserstein distance from N(0, 1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.integrate import cumulative_simpson
from scipy.optimize import brentq

from attentest.errors import InputError

POINTS = np.sinh(np.linspace(-6.0, 6.0, 8001))
"""Where two distribution functions of variance one are compared: close together in the middle, and as far as 200."""

SHAPE_TOLERANCE = 1e-10
"""Of the shape parameter, relative."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """A family of distributions that has the Gaussian one at an end.

    Parameters
    ----------
    distribution
        From the shape parameter to a SciPy distribution, not standardised.
    gaussian_end, far_end
        Shape parameters between which the distance from N(0, 1) grows, beginning near zero.
    """

    distribution: Callable[[float], Any]
    gaussian_end: float
    far_end: float


FAMILIES: Mapping[str, Family] = {
    "skewnorm": Family(distribution=stats.skewnorm, gaussian_end=1e-3, far_end=1e3),
    "exponnorm": Family(distribution=stats.exponnorm, gaussian_end=1e-2, far_end=20.0),
    "gennormsteep": Family(distribution=stats.gennorm, gaussian_end=2.0 - 1e-6, far_end=0.5),
    "gennormflat": Family(distribution=stats.gennorm, gaussian_end=2.0 + 1e-6, far_end=100.0),
    "t": Family(distribution=stats.t, gaussian_end=1e5, far_end=2.1),
}


@dataclass(frozen=True, kw_only=True)
class NearlyGaussian:
    """A distribution with mean zero and variance one.

    Parameters
    ----------
    family
        Name of its family.
    shape
        Shape parameter, in SciPy's meaning.
    """

    family: str
    shape: float

    def density(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the density at points."""
        return np.asarray(self._standardised().pdf(x))

    def sample(self, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        """Draw independent numbers (size,)."""
        raw, mean, deviation = self._raw()
        return (np.asarray(raw.rvs(size=size, random_state=rng)) - mean) / deviation

    def distance(self) -> float:
        """Return the 1-Wasserstein distance from N(0, 1): the area between the two distribution functions."""
        # Distribution functions by integrating densities, which all have a closed form.
        gap = cumulative_simpson(self.density(POINTS) - stats.norm.pdf(POINTS), x=POINTS, initial=0.0)
        return float(np.trapezoid(np.abs(gap), POINTS))

    def _raw(self) -> tuple[Any, float, float]:
        """Return the distribution before standardisation, its mean and its standard deviation."""
        raw = FAMILIES[self.family].distribution(self.shape)
        mean, variance = raw.stats(moments="mv")
        return raw, float(mean), float(np.sqrt(variance))

    def _standardised(self) -> Any:
        _, mean, deviation = self._raw()
        return FAMILIES[self.family].distribution(self.shape, loc=-mean / deviation, scale=1 / deviation)  # type: ignore[call-arg]


@cache
def nearly_gaussian(family: str, distance: float) -> NearlyGaussian:
    """Return the member of a family at a 1-Wasserstein distance from N(0, 1), found numerically."""
    if family not in FAMILIES:
        raise InputError(f"the family must be one of {', '.join(FAMILIES)}, got {family!r}.")
    near, far = FAMILIES[family].gaussian_end, FAMILIES[family].far_end

    def excess(log_shape: float) -> float:
        return NearlyGaussian(family=family, shape=float(np.exp(log_shape))).distance() - distance

    low, high = excess(np.log(near)) + distance, excess(np.log(far)) + distance
    if not low < distance < high:
        raise InputError(f"the distance of {family} must lie between {low:.2g} and {high:.2g}, got {distance}.")
    found = brentq(excess, np.log(near), np.log(far), xtol=SHAPE_TOLERANCE)
    return NearlyGaussian(family=family, shape=float(np.exp(found)))
