"""The paper's law with a standard error that is estimated: a selective t-test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.statistics.law import Law, clipped_to_side, masses_outside_and_inside
from attentest.statistics.student_mass import log_mass
from attentest.statistics.truncated_normal import TruncatedNormal

MOST_DEGREES = 1e12
"""Degrees of freedom of a variance that is known, among others that are estimated: more cannot be told from it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TruncatedStudent(Law):
    """z = T = D / S, with D normal and S^2 an independent estimate of its variance; S is in the unit of z.

    The line on which a search moves the image, and so the truncation set of D, does not depend on the variance. So the
    law of D given that it lies in the set, and given the sufficient statistic for the variance, is known: see
    :mod:`attentest.statistics.student_mass`. This is the selective t-test of Fithian, Sun and Taylor (2014), *Optimal
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
            return log_mass(start, end, self.statistic[at], about, self.degrees[at])

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
