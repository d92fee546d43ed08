"""The law of the statistic when the model chooses the region on a randomised image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.statistics.bivariate_mass import (
    log_masses_of_part,
    log_masses_on_side,
    log_masses_outside_and_inside,
)
from attentest.statistics.bivariate_quadrature import Rectangles
from attentest.statistics.law import Law


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomisedNormal(Law):
    """T ~ N(mean, 1) and z = T + gamma E with E ~ N(0, 1): the truncation of T is soft.

    The model looks at the image plus independent noise of the same covariance times gamma^2, and z is the coordinate of
    that sum. Given that z lies in the truncation set, T is not confined to it. As gamma goes to zero this becomes
    :class:`~attentest.statistics.truncated_normal.TruncatedNormal`.

    Parameters
    ----------
    observed_z : (k,)
        Observed coordinates z.
    gamma : (k,)
        Standard deviation of z given T.
    """

    observed_z: NDArray[np.float64]
    gamma: NDArray[np.float64]

    @property
    def z_obs(self) -> NDArray[np.float64]:
        """Observed coordinates (k,): see :attr:`Law.z_obs`."""
        return self.observed_z

    @property
    def spread(self) -> NDArray[np.float64]:
        """Standard deviation of z, sqrt(1 + gamma^2): see :attr:`Law.spread`."""
        return np.asarray(np.sqrt(1 + self.gamma**2))

    @property
    def interval_bound(self) -> NDArray[np.float64]:
        """Greatest length of a confidence interval in units of the naive one (k,), whatever the truncation set.

        It is sqrt(1 + 1 / gamma^2): Kivaranovic and Leeb (2020), *A (tight) upper bound for the length of confidence
        intervals with conditional coverage*.
        """
        return np.asarray(np.sqrt(1 + 1 / self.gamma**2))

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
            gamma=self.gamma[image],
            mean=mean,
            relative_to=self.observed_z[image],
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
        """Return log masses on one side of the statistics, and their slopes: see :meth:`Law.log_masses_on_side`."""
        return log_masses_on_side(
            left,
            right,
            self.statistic[image],
            above,
            gamma=self.gamma[image],
            mean=mean,
            relative_to=self.observed_z[image],
        )

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
        """Return the log masses with T outside, or inside, its range: see :meth:`Law.log_masses_of_part`."""
        return log_masses_of_part(
            Rectangles(left, right, lower, upper, self.gamma[image], mean, self.observed_z[image]), extreme
        )

    def statistic_of(
        self, image: NDArray[np.int64], z: NDArray[np.float64], chance: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return draws of T ~ N(z / (1 + gamma^2), gamma^2 / (1 + gamma^2)): see :meth:`Law.statistic_of`."""
        gamma, spread = self.gamma[image], self.spread[image]
        return np.asarray(z / spread**2 + gamma / spread * chance)
