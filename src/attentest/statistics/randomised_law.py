"""The law of the statistic when the region is chosen on a randomised image; its standard error known or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from attentest.statistics.bivariate_mass import (
    NormalRectangles,
    log_masses_of_part,
    log_masses_on_side,
    log_masses_outside_and_inside,
)
from attentest.statistics.columns import Floats, Integers, Mask
from attentest.statistics.law import EstimatedError, Law, Strips
from attentest.statistics.student_bivariate_mass import StudentRectangles
from attentest.statistics.truncated_law import TruncatedNormal, TruncatedStudent


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomisedLaw(Law):
    """A law in which z = T + gamma E with E ~ N(0, 1): the truncation of T is soft.

    The model looks at the image plus independent noise of the same covariance times gamma^2, and z is the coordinate of
    that sum. Given that z lies in the truncation set, T is not confined to it.

    Parameters
    ----------
    observed_z : (k,)
        Observed coordinates z.
    gamma : (k,)
        Standard deviation of z given T.
    """

    observed_z: Floats
    gamma: Floats

    @property
    def z_obs(self) -> Floats:
        """Observed coordinates (k,): see :attr:`Law.z_obs`."""
        return self.observed_z

    @property
    def spread(self) -> Floats:
        """Standard deviation of z, sqrt(1 + gamma^2): see :attr:`Law.spread`."""
        return np.asarray(np.sqrt(1 + self.gamma**2))

    def statistic_of(self, image: Integers, z: Floats, chance: Floats) -> Floats:
        """Return draws of T ~ N(z / (1 + gamma^2), gamma^2 / (1 + gamma^2)): see :meth:`Law.statistic_of`."""
        gamma, spread = self.gamma[image], self.spread[image]
        return np.asarray(z / spread**2 + gamma / spread * chance)


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomisedNormal(RandomisedLaw):
    """T ~ N(mean, 1) and z = T + gamma E with E ~ N(0, 1).

    As gamma goes to zero this becomes :class:`~attentest.statistics.truncated_law.TruncatedNormal`.
    """

    @property
    def interval_bound(self) -> Floats:
        """Greatest length of a confidence interval in units of the naive one (k,), whatever the truncation set.

        It is sqrt(1 + 1 / gamma^2): Kivaranovic and Leeb (2020), *A (tight) upper bound for the length of confidence
        intervals with conditional coverage*.
        """
        return np.asarray(np.sqrt(1 + 1 / self.gamma**2))

    def log_masses(self, strips: Strips) -> tuple[Floats, Floats]:
        """Return the log masses of z intervals with T outside and inside [lower, upper]: see :meth:`Law.log_masses`."""
        return log_masses_outside_and_inside(self._rectangles(strips))

    def log_masses_of_part(self, strips: Strips, extreme: Mask) -> Floats:
        """Return the log masses with T outside, or inside, its range: see :meth:`Law.log_masses_of_part`."""
        return log_masses_of_part(self._rectangles(strips), extreme)

    def log_masses_on_side(self, strips: Strips, above: Mask) -> tuple[Floats, Floats]:
        """Return log masses on one side of the statistics, and their slopes: see :meth:`Law.log_masses_on_side`."""
        return log_masses_on_side(self._rectangles(strips), above)

    def _rectangles(self, strips: Strips) -> NormalRectangles:
        return NormalRectangles(
            left=strips.left,
            right=strips.right,
            lower=strips.lower,
            upper=strips.upper,
            gamma=self.gamma[strips.image],
            mean=strips.mean,
            origin=self.observed_z[strips.image],
        )


MOST_DEGREES = 1e5
"""With more degrees of freedom a p-value above 1e-4 changes by less than 0.1% of itself, and the law with a known
standard error is used, whose masses are found faster."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomisedStudent(EstimatedError, RandomisedLaw):
    """T as in :class:`~attentest.statistics.truncated_law.TruncatedStudent`, and z = T + gamma E with E ~ N(0, 1).

    This is exact if the standard deviation of the noise that is added does not depend on the estimate S. It is gamma
    times the estimated one, so it does; with the sufficient statistic for the variance given, S changes with T by a
    share of the order of T^2 / (2 nu), and the added noise is taken to be what it was.
    """

    def log_masses(self, strips: Strips) -> tuple[Floats, Floats]:
        """Return the log masses of z intervals with T outside and inside [lower, upper]: see :meth:`Law.log_masses`."""
        image, t = strips.image, self.statistic[strips.image]
        return log_masses_outside_and_inside(
            StudentRectangles(
                left=strips.left - t,
                right=strips.right - t,
                lower=strips.lower - t,
                upper=strips.upper - t,
                gamma=self.gamma[image],
                shift=t - strips.mean,
                degrees=self.degrees[image],
            )
        )

    def with_known_error(self) -> RandomisedNormal:
        """Return the law of the same statistics with a known standard error: see :meth:`Law.with_known_error`."""
        return RandomisedNormal(statistic=self.statistic, observed_z=self.observed_z, gamma=self.gamma)

    def reach(self, log_tail: float) -> Floats:
        """Return distances from zero beyond which z has little mass: see :meth:`Law.reach`."""
        # The log density of T is at least as curved everywhere as at its mean.
        variance = (self.degrees + self.statistic**2) / np.maximum(self.degrees - 2, 1.0)
        return np.asarray(np.sqrt(self.z_obs**2 + 2 * log_tail * (variance + self.gamma**2)))


LAWS: dict[str, type[Law]] = {
    "truncated normal": TruncatedNormal,
    "randomised normal": RandomisedNormal,
    "truncated Student": TruncatedStudent,
    "randomised Student": RandomisedStudent,
}
"""The names of the laws in records."""


def law_values(law: Law) -> dict[str, Any]:
    """Return what, with the statistic, defines the law of one image; only the name of a law that is not attentest's."""
    name = next((name for name, kind in LAWS.items() if type(law) is kind), None)
    if name is None:
        return {"name": type(law).__name__}
    return {"name": name, **{key: float(getattr(law, field)[0]) for field, key in _recorded(type(law)).items()}}


def law_from_values(statistic: float, values: Mapping[str, Any]) -> Law | None:
    """Return the law of one image, given its statistic and :func:`law_values`; None for one that is not attentest's."""
    kind = LAWS.get(values["name"])
    if kind is None:
        return None
    parameters = {field: np.array([values[key]]) for field, key in _recorded(kind).items()}
    return kind(statistic=np.array([statistic]), **parameters)


def _recorded(kind: type[Law]) -> dict[str, str]:
    """Return the fields of a law other than the statistic, and what each is called in a record."""
    names = (field.name for field in fields(kind) if field.name != "statistic")
    return {name: "z_obs" if name == "observed_z" else name for name in names}
