"""The paper's law: a standard normal statistic, truncated to the set of values at which the region is chosen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from attentest.statistics.law import Law, clipped_to_side, masses_outside_and_inside
from attentest.statistics.normal_mass import log_mass, mean_in_interval, quantile


@dataclass(frozen=True, kw_only=True, eq=False)
class TruncatedNormal(Law):
    """T ~ N(mean, 1) and z = T (sections 2 and 3 of the paper).

    Masses are relative to the density at the observed statistic and in logs, so that neither a statistic of 500, nor
    an interval of width 1e-12, nor a mean a million standard errors away costs accuracy.
    """

    def log_masses(
        self,
        image: NDArray[np.int64],
        left: NDArray[np.float64],
        right: NDArray[np.float64],
        *,
        mean: ArrayLike,
        lower: ArrayLike,
        upper: ArrayLike,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the log masses of intervals outside and inside [lower, upper]: see :meth:`Law.log_masses`."""

        def log_masses(
            start: NDArray[np.float64], end: NDArray[np.float64], at: NDArray[np.int64], about: NDArray[np.float64]
        ) -> NDArray[np.float64]:
            return log_mass(start, end, about, relative_to=self.statistic[at])

        return masses_outside_and_inside(log_masses, image, left, right, mean=mean, lower=lower, upper=upper)

    def part_on_side(
        self, image: NDArray[np.int64], left: NDArray[np.float64], right: NDArray[np.float64], *, above: bool
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the parts of intervals on one side of the statistic: see :meth:`Law.part_on_side`."""
        return clipped_to_side(self.statistic[image], left, right, above=above)

    def log_masses_on_side(
        self,
        image: NDArray[np.int64],
        left: NDArray[np.float64],
        right: NDArray[np.float64],
        *,
        mean: NDArray[np.float64],
        above: NDArray[np.bool_],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return log masses on one side of the statistics, and their slopes: see :meth:`Law.log_masses_on_side`.

        In an exponential family the slope is the mean of T - t in the interval.
        """
        t = self.statistic[image]
        mass = log_mass(left, right, mean, relative_to=t)
        return mass, mean_in_interval(left - t, right - t, mean - t, mass)

    def quantiles(
        self,
        image: NDArray[np.int64],
        left: NDArray[np.float64],
        right: NDArray[np.float64],
        share: NDArray[np.float64],
        *,
        mean: NDArray[np.float64],
        lower: NDArray[np.float64],
        upper: NDArray[np.float64],
        extreme: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        """Return the points before which shares of masses lie: see :meth:`Law.quantiles`."""
        start, end = np.clip(lower, left, right), np.clip(upper, left, right)
        # What is extreme lies below the lower limit, with this share of its mass, and above the upper one.
        below = np.where(left < start, 1.0, 0.0)
        both = np.flatnonzero(extreme & (left < start) & (end < right))
        log_odds = log_mass(left[both], start[both], mean[both]) - log_mass(end[both], right[both], mean[both])
        below[both] = expit(log_odds)
        first = extreme & ((share < below) | (end == right))
        with np.errstate(divide="ignore", invalid="ignore"):
            within = np.where(first, share / below, (share - below) / (1 - below))
        return quantile(
            np.where(extreme, np.where(first, left, end), start),
            np.where(extreme, np.where(first, start, right), end),
            mean,
            np.clip(np.where(extreme, within, share), 0.0, 1.0),
        )
