"""The law of the statistic with an estimated standard error when the model chooses the region on a randomised image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.statistics.law import Law
from attentest.statistics.randomised_normal import RandomisedNormal
from attentest.statistics.student_bivariate_mass import log_masses_outside_and_inside

MOST_DEGREES = 1e5
"""With more degrees of freedom a p-value above 1e-4 changes by less than 0.1% of itself, and the law with a known
standard error is used, whose masses are found faster."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomisedStudent(RandomisedNormal):
    """T as in :class:`~attentest.statistics.truncated_student.TruncatedStudent`, and z = T + gamma E with E ~ N(0, 1).

    This is exact if the standard deviation of the noise that is added does not depend on the estimate S. It is gamma
    times the estimated one, so it does; with the sufficient statistic for the variance given, S changes with T by a
    share of the order of T^2 / (2 nu), and the added noise is taken to be what it was.

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
        """Return the log masses of z intervals with T outside and inside [lower, upper]: see :meth:`Law.log_masses`."""
        return log_masses_outside_and_inside(
            left,
            right,
            lower,
            upper,
            statistic=self.statistic[image],
            gamma=self.gamma[image],
            mean=mean,
            degrees=self.degrees[image],
        )

    def log_masses_on_side(
        self,
        image: NDArray[np.int64],
        left: NDArray[np.float64],
        right: NDArray[np.float64],
        *,
        mean: NDArray[np.float64],
        above: NDArray[np.bool_],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return log masses on one side, with differences as slopes: see :meth:`Law.log_masses_on_side`."""
        return Law.log_masses_on_side(self, image, left, right, mean=mean, above=above)

    def log_masses_of_part(
        self,
        image: NDArray[np.int64],
        left: NDArray[np.float64],
        right: NDArray[np.float64],
        *,
        mean: NDArray[np.float64],
        lower: NDArray[np.float64],
        upper: NDArray[np.float64],
        extreme: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        """Return the log masses where T is extreme, or where it is not: see :meth:`Law.log_masses_of_part`."""
        return Law.log_masses_of_part(self, image, left, right, mean=mean, lower=lower, upper=upper, extreme=extreme)

    def scaled(self, divisors: NDArray[np.float64]) -> RandomisedStudent:
        """Return the law for other multiples of the noise: degrees of freedom have no unit. See :meth:`Law.scaled`."""
        return RandomisedStudent(
            statistic=self.statistic / divisors,
            observed_z=self.observed_z / divisors,
            gamma=self.gamma / divisors,
            degrees=np.broadcast_to(self.degrees, divisors.shape),
        )

    @property
    def degrees_of_freedom(self) -> NDArray[np.float64]:
        """Degrees of freedom of the standard errors: see :attr:`Law.degrees_of_freedom`."""
        return self.degrees

    def with_known_error(self) -> RandomisedNormal:
        """Return the law of the same statistics with a known standard error: see :meth:`Law.with_known_error`."""
        return RandomisedNormal(statistic=self.statistic, observed_z=self.observed_z, gamma=self.gamma)

    def reach(self, log_tail: float) -> NDArray[np.float64]:
        """Return distances from zero beyond which z has little mass: see :meth:`Law.reach`."""
        # The log density of T is at least as curved everywhere as at its mean.
        variance = (self.degrees + self.statistic**2) / np.maximum(self.degrees - 2, 1.0)
        return np.asarray(np.sqrt(self.z_obs**2 + 2 * log_tail * (variance + self.gamma**2)))

    @property
    def interval_bound(self) -> NDArray[np.float64]:
        """Infinite (k,): the bound of :class:`RandomisedNormal` is for a known standard error."""
        return np.full(len(self), np.inf)
