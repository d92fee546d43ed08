"""The paper's law: a statistic truncated to the values that choose the region; its standard error known or not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from attentest.statistics.interval_mass import log_mass, log_student_mass, mean_in_interval, quantile
from attentest.statistics.law import Law, clipped_to_side, masses_outside_and_inside


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


MOST_DEGREES = 1e12
"""Degrees of freedom of a variance that is known, among others that are estimated: more cannot be told from it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TruncatedStudent(Law):
    """z = T = D / S, with D normal and S^2 an independent estimate of its variance; S is in the unit of z.

    The line on which a search moves the image, and so the truncation set of D, does not depend on the variance. So the
    law of D given that it lies in the set, and given the sufficient statistic for the variance, is known: see
    :mod:`attentest.statistics.interval_mass`. This is the selective t-test of Fithian, Sun and Taylor (2014), *Optimal
    inference after model selection*: exact if nu S^2 / s^2 has the chi-squared distribution with nu degrees of freedom.

    Parameters
    ----------
    degrees : (k,)
        Degrees of freedom nu of the estimates, at least 1.
    """

    degrees: NDArray[np.float64]

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
            return log_student_mass(start, end, self.statistic[at], about, self.degrees[at])

        return masses_outside_and_inside(log_masses, image, left, right, mean=mean, lower=lower, upper=upper)

    def part_on_side(
        self, image: NDArray[np.int64], left: NDArray[np.float64], right: NDArray[np.float64], *, above: bool
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the parts of intervals on one side of the statistic: see :meth:`Law.part_on_side`."""
        return clipped_to_side(self.statistic[image], left, right, above=above)

    def scaled(self, divisors: NDArray[np.float64]) -> TruncatedStudent:
        """Return the law for other multiples of the noise: degrees of freedom have no unit. See :meth:`Law.scaled`."""
        return TruncatedStudent(
            statistic=self.statistic / divisors, degrees=np.broadcast_to(self.degrees, divisors.shape)
        )

    @property
    def degrees_of_freedom(self) -> NDArray[np.float64]:
        """Degrees of freedom of the standard errors: see :attr:`Law.degrees_of_freedom`."""
        return self.degrees

    def with_known_error(self) -> TruncatedNormal:
        """Return the paper's law of the same statistics: see :meth:`Law.with_known_error`."""
        return TruncatedNormal(statistic=self.statistic)

    def reach(self, log_tail: float) -> NDArray[np.float64]:
        """Return distances from zero beyond which z has little mass, or none: see :meth:`Law.reach`."""
        power = np.maximum(self.degrees / 2 - 1, np.finfo(np.float64).tiny)
        with np.errstate(over="ignore"):
            return np.asarray(np.sqrt(self.statistic**2 - self.degrees * np.expm1(-log_tail / power)))
