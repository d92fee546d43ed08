"""The law of the statistic when the region is chosen on a randomised image; its standard error known or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.statistics.bivariate_mass import (
    Rectangles,
    log_masses_of_part,
    log_masses_on_side,
    log_masses_outside_and_inside,
)
from attentest.statistics.law import Law
from attentest.statistics.student_bivariate_mass import (
    log_masses_outside_and_inside as student_masses_outside_and_inside,
)
from attentest.statistics.truncated_law import TruncatedNormal, TruncatedStudent


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomisedNormal(Law):
    """T ~ N(mean, 1) and z = T + gamma E with E ~ N(0, 1): the truncation of T is soft.

    The model looks at the image plus independent noise of the same covariance times gamma^2, and z is the coordinate of
    that sum. Given that z lies in the truncation set, T is not confined to it. As gamma goes to zero this becomes
    :class:`~attentest.statistics.truncated_law.TruncatedNormal`.

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


MOST_DEGREES = 1e5
"""With more degrees of freedom a p-value above 1e-4 changes by less than 0.1% of itself, and the law with a known
standard error is used, whose masses are found faster."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomisedStudent(RandomisedNormal):
    """T as in :class:`~attentest.statistics.truncated_law.TruncatedStudent`, and z = T + gamma E with E ~ N(0, 1).

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
        return student_masses_outside_and_inside(
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


LAWS: dict[str, type[Law]] = {
    "truncated normal": TruncatedNormal,
    "randomised normal": RandomisedNormal,
    "truncated Student": TruncatedStudent,
    "randomised Student": RandomisedStudent,
}

NAMES = {"observed_z": "z_obs"}
"""What values are called whose name differs from that of the field of the law."""


def law_values(law: Law) -> dict[str, Any]:
    """Return what, with the statistic, defines the law of one image."""
    name = next((name for name, kind in LAWS.items() if type(law) is kind), None)
    if name is None:
        return {"name": type(law).__name__}
    return {"name": name, **{_name(field): float(getattr(law, field)[0]) for field in _fields(type(law))}}


def law_from_values(statistic: float, values: Mapping[str, Any]) -> Law | None:
    """Return the law of one image, given its statistic and :func:`law_values`; None for one that is not attentest's."""
    kind = LAWS.get(values["name"])
    if kind is None:
        return None
    own = {field: np.array([values[_name(field)]]) for field in _fields(kind)}
    return kind(statistic=np.array([statistic]), **own)


def _fields(kind: type[Law]) -> list[str]:
    return [field.name for field in fields(kind) if field.name != "statistic"]


def _name(field: str) -> str:
    return NAMES.get(field, field)
