"""The paper's law: a statistic truncated to the values that choose the region; its standard error known or not."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from attentest.statistics.columns import Floats, Integers, Mask
from attentest.statistics.interval_mass import log_mass, log_student_mass, mean_in_interval, quantile
from attentest.statistics.law import EstimatedError, Law, Strips


@dataclass(frozen=True, kw_only=True, eq=False)
class TruncatedLaw(Law):
    """A law in which z is the statistic itself."""

    @abstractmethod
    def log_interval_masses(self, image: Integers, start: Floats, end: Floats, mean: Floats) -> Floats:
        """Return the log masses (m,) of intervals of T of images (m,), for means (m,)."""

    def log_masses(self, strips: Strips) -> tuple[Floats, Floats]:
        """Return the log masses of intervals outside and inside [lower, upper]: see :meth:`Law.log_masses`."""
        left, right = strips.left, strips.right
        start = np.minimum(np.maximum(strips.lower, left), right)
        end = np.minimum(np.maximum(strips.upper, left), right)
        # Most intervals lie in one of the three parts, and the others need not be measured.
        below, between, above = (part.nonzero()[0] for part in (left < start, start < end, end < right))
        rows = np.concatenate([below, between, above])
        masses = self.log_interval_masses(
            strips.image[rows],
            np.concatenate([left[below], start[between], end[above]]),
            np.concatenate([start[below], end[between], right[above]]),
            strips.mean[rows],
        )
        outside, inside = np.full((2, len(left)), -np.inf)
        outside[below], inside[between], beyond = np.split(masses, np.cumsum([len(below), len(between)]))
        lower_part = outside[above]
        both = (lower_part > -np.inf).nonzero()[0]
        beyond[both] = np.logaddexp(lower_part[both], beyond[both])
        outside[above] = beyond
        return outside, inside

    def part_on_side(self, image: Integers, left: Floats, right: Floats, *, above: bool) -> tuple[Floats, Floats]:
        """Return the parts of intervals on one side of the statistic: see :meth:`Law.part_on_side`."""
        t = self.statistic[image]
        return (np.maximum(left, t), right) if above else (left, np.minimum(right, t))


@dataclass(frozen=True, kw_only=True, eq=False)
class TruncatedNormal(TruncatedLaw):
    """T ~ N(mean, 1) and z = T (sections 2 and 3 of the paper).

    Masses are relative to the density at the observed statistic and in logs, so that neither a statistic of 500, nor
    an interval of width 1e-12, nor a mean a million standard errors away costs accuracy.
    """

    def log_interval_masses(self, image: Integers, start: Floats, end: Floats, mean: Floats) -> Floats:
        """Return normal masses: see :meth:`TruncatedLaw.log_interval_masses`."""
        return log_mass(start, end, mean, relative_to=self.statistic[image])

    def log_masses_on_side(self, strips: Strips, above: Mask) -> tuple[Floats, Floats]:
        """Return log masses on one side of the statistics, and their slopes: see :meth:`Law.log_masses_on_side`.

        In an exponential family the slope is the mean of T - t in the interval.
        """
        left, right, mean, t = strips.left, strips.right, strips.mean, strips.upper
        mass = log_mass(left, right, mean, relative_to=t)
        return mass, mean_in_interval(left - t, right - t, mean - t, mass)

    def quantiles(self, strips: Strips, share: Floats, extreme: Mask) -> Floats:
        """Return the points before which shares of masses lie: see :meth:`Law.quantiles`."""
        left, right, mean = strips.left, strips.right, strips.mean
        start, end = np.clip(strips.lower, left, right), np.clip(strips.upper, left, right)
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
class TruncatedStudent(EstimatedError, TruncatedLaw):
    """z = T = D / S, with D normal and S^2 an independent estimate of its variance; S is in the unit of z.

    The line on which a search moves the image, and so the truncation set of D, does not depend on the variance. So the
    law of D given that it lies in the set, and given the sufficient statistic for the variance, is known: see
    :mod:`attentest.statistics.interval_mass`. This is the selective t-test of Fithian, Sun and Taylor (2014), *Optimal
    inference after model selection*: exact if the estimate has the distribution that :class:`EstimatedError` states.
    """

    def log_interval_masses(self, image: Integers, start: Floats, end: Floats, mean: Floats) -> Floats:
        """Return Student masses: see :meth:`TruncatedLaw.log_interval_masses`."""
        return log_student_mass(start, end, self.statistic[image], mean, self.degrees[image])

    def with_known_error(self) -> TruncatedNormal:
        """Return the paper's law of the same statistics: see :meth:`Law.with_known_error`."""
        return TruncatedNormal(statistic=self.statistic)

    def reach(self, log_tail: float) -> Floats:
        """Return distances from zero beyond which z has little mass, or none: see :meth:`Law.reach`."""
        power = np.maximum(self.degrees / 2 - 1, np.finfo(np.float64).tiny)
        with np.errstate(over="ignore"):
            return np.asarray(np.sqrt(self.statistic**2 - self.degrees * np.expm1(-log_tail / power)))
